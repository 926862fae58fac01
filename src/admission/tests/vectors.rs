//! The vectors that x/time/rate tests itself with, as far as they say something here: instants in tenths of a second. A
//! reservation there is a place in a line here, so what comes later may come sooner when somebody leaves or the limits
//! change; each difference is explained where it is.

use super::*;
use crate::quota::Quota;

struct Vector(Bench);

impl Vector {
    fn new(rate: f64, burst: u64) -> Self {
        Self(Bench::new(Quota::bucket(rate, burst)))
    }

    /// Asks for so much: granted now, or waiting.
    fn ask(&mut self, at_tenths: u64, amount: u64) -> Option<AskId> {
        let deadline = Some(at(FOREVER));
        let wish = Want { cost: amount.into(), deadline, ..host() };
        match ask(&mut self.0.core, wish, at(at_tenths * 100)).unwrap() {
            Asked::Granted(_) => None,
            Asked::Waiting(id) => Some(id),
        }
    }

    fn cancel(&mut self, at_tenths: u64, who: Option<AskId>) {
        self.0.core.leave(who.unwrap(), at(at_tenths * 100));
    }

    fn set(&mut self, at_tenths: u64, rate: f64, burst: u64) {
        self.0.core.set_limits(0, Quota::bucket(rate, burst).into(), at(at_tenths * 100));
    }

    /// When each went, from now on, in order.
    fn go_on(&mut self) -> Vec<(Option<AskId>, u64)> {
        self.0.now = self.0.core.state.now.as_nanos() / 1_000_000;
        let mut went = self.0.decided();
        while self.0.core.waiting() > 0 {
            let next = self.0.core.next().unwrap();
            went.extend(self.0.run_to(next.as_nanos() / 1_000_000));
        }
        went.into_iter().map(|(id, at)| (Some(id), at / 100)).collect()
    }
}

#[test]
fn what_is_reserved_goes_when_it_is_there() {
    let mut vector = Vector::new(10.0, 2);
    assert_eq!(vector.ask(0, 2), None);
    let second = vector.ask(0, 2);
    assert_eq!(vector.go_on(), [(second, 2)]);
    let third = vector.ask(3, 2);
    assert_eq!(vector.go_on(), [(third, 4)]);
}

#[test]
fn the_last_that_is_cancelled_leaves_its_place() {
    let mut vector = Vector::new(10.0, 2);
    vector.ask(0, 2);
    let cancelled = vector.ask(0, 2);
    vector.cancel(1, cancelled);
    let next = vector.ask(1, 2);
    assert_eq!(vector.go_on(), [(next, 2)]);
}

#[test]
fn nothing_costs_nothing() {
    let mut vector = Vector::new(10.0, 2);
    vector.ask(0, 2);
    assert_eq!(vector.ask(0, 0), None);
    let next = vector.ask(0, 1);
    assert_eq!(vector.go_on(), [(next, 1)]);
}

/// There 3 go at 5: the place of the first one that left is lost. In a line those behind move up, and they go at 4.
#[test]
fn several_that_are_cancelled_leave_no_hole() {
    let mut vector = Vector::new(10.0, 4);
    vector.ask(0, 4);
    let (first, second, third) = (vector.ask(0, 3), vector.ask(0, 1), vector.ask(0, 1));
    vector.cancel(1, third);
    vector.cancel(1, first);
    let next = vector.ask(1, 3);
    assert_eq!(vector.go_on(), [(second, 1), (next, 4)]);
}

#[test]
fn a_clock_that_jumps_back_changes_nothing() {
    let mut vector = Vector::new(10.0, 2);
    assert_eq!(vector.ask(1, 2), None);
    let next = vector.ask(0, 2);
    assert_eq!(vector.go_on(), [(next, 3)]);
}

/// There the one that waits stays at 4, and both go then. Here it sees the new rate, and goes at 3; the next at 4, as there.
#[test]
fn another_rate_holds_for_those_who_wait() {
    let mut vector = Vector::new(5.0, 2);
    vector.ask(0, 2);
    let waits = vector.ask(0, 2);
    vector.set(2, 10.0, 2);
    let next = vector.ask(2, 1);
    assert_eq!(vector.go_on(), [(waits, 3), (next, 4)]);
}

/// There a larger burst comes empty: counted from 3, the next goes at 12. Here what was spent is kept, so a larger burst has
/// room at once: the one that waits goes at 3, and the next when the 2.5 that are owed by then have come in, at 8.
#[test]
fn another_burst_keeps_what_was_spent() {
    let mut vector = Vector::new(5.0, 2);
    vector.ask(0, 2);
    let waits = vector.ask(0, 2);
    vector.set(3, 5.0, 4);
    let next = vector.ask(3, 4);
    assert_eq!(vector.go_on(), [(waits, 3), (next, 8)]);
}

#[test]
fn another_rate_and_then_a_cancellation() {
    let mut vector = Vector::new(5.0, 2);
    vector.ask(0, 2);
    let cancelled = vector.ask(0, 2);
    vector.set(2, 10.0, 2);
    vector.cancel(2, cancelled);
    let next = vector.ask(2, 2);
    assert_eq!(vector.go_on(), [(next, 3)]);
}

/// There more than the burst is never granted, and the caller is told so; a rate of 1e-10 is a wait of centuries. Here
/// both are refused, the latter when it is built.
#[test]
fn what_can_never_go_is_refused() {
    let mut vector = Vector::new(10.0, 2);
    let deadline = Some(at(FOREVER));
    let wish = Want { cost: 3.into(), deadline, ..host() };
    assert_eq!(ask(&mut vector.0.core, wish, at(0)).unwrap_err().reason, Reason::CostExceedsQuota);
    assert!(Quota::bucket(1e-10, 1).plan().is_err());
}
