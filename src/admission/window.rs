//! At most n in any window W, as the server counts.
//!
//! The server counted a request at some moment between its sending and its answer. A unit therefore comes free W
//! after its *anchor*: the answer, but no later than a while after the sending, so that a slow answer does not
//! cost the allowance. Only delays that differ by more than that while could fool the server's count.

use std::collections::BTreeMap;

use crate::time::Time;

/// Windows for more than this keep their anchors on a grid of `W / MOST_ANCHORS`, rounded up: bounded memory for
/// any n, at the price of a two-thousandth of the rate.
const MOST_ANCHORS: u64 = 1_024;

/// The bounds of the while after the sending: a quarter of the window, within these.
const LEAST_LATENCY_CAP_NANOS: u64 = 100_000_000;
const MOST_LATENCY_CAP_NANOS: u64 = 1_000_000_000;

/// The bounds of the allowance for a request whose answer nobody will report: a twentieth of the window, within these.
const LEAST_PAD_NANOS: u64 = 20_000_000;
const MOST_PAD_NANOS: u64 = 1_000_000_000;

/// A window. Empty to begin with.
#[derive(Debug)]
pub(super) struct Window {
    most: u64,
    period_nanos: u64,
    grid_nanos: u64,
    used: u64,
    /// Units by anchor, of those that still count.
    anchors: BTreeMap<Time, u64>,
}

/// Units that were taken, as far as moving or returning them needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    units: u64,
    anchor: Time,
}

impl Window {
    pub(super) fn new(most: u64, period_nanos: u64) -> Self {
        let grid_nanos = if most > MOST_ANCHORS { period_nanos.div_ceil(MOST_ANCHORS) } else { 1 };
        Self { most, period_nanos, grid_nanos, used: 0, anchors: BTreeMap::new() }
    }

    /// When `units` can go, if nothing else does first. Units that no longer count at `now` are forgotten.
    pub(super) fn ready_at(&mut self, units: u64, now: Time) -> Time {
        self.forget(now);
        let missing = self.used.saturating_add(units).saturating_sub(self.most);
        let free = |anchor: Time| anchor.plus(self.period_nanos);
        if missing == 0 { now } else { self.nth_anchor(missing).map_or(Time::from_nanos(u64::MAX), free) }
    }

    fn forget(&mut self, now: Time) {
        while let Some(first) = self.anchors.first_entry() {
            if first.key().plus(self.period_nanos) > now {
                return;
            }
            self.used -= first.remove();
        }
    }

    /// When the last of `units` that go one by one can go at the earliest: if each is answered at once, and
    /// whatever is unanswered now. So it is never too late.
    pub(super) fn estimate(&self, units: u64, now: Time) -> Time {
        let missing = self.used.saturating_add(units).saturating_sub(self.most);
        if missing == 0 {
            return now;
        }
        // What goes first comes free first: the whole allowance goes round once in each period.
        let (rounds, nth) = ((missing - 1) / self.most, (missing - 1) % self.most + 1);
        let anchor = self.nth_anchor(nth).map_or(now, |anchor| anchor.min(now));
        anchor.plus(self.period_nanos).max(now).plus(self.period_nanos.saturating_mul(rounds))
    }

    /// The anchor of the unit that comes free as the nth.
    fn nth_anchor(&self, nth: u64) -> Option<Time> {
        let mut freed = 0_u64;
        let mut enough = |units: u64| {
            freed = freed.saturating_add(units);
            freed >= nth
        };
        self.anchors.iter().find(|(_, units)| enough(**units)).map(|(anchor, _)| *anchor)
    }

    /// Takes units for a request whose answer will be reported. To be called when they are there.
    pub(super) fn take(&mut self, units: u64, now: Time) -> Units {
        let cap = (self.period_nanos / 4).clamp(LEAST_LATENCY_CAP_NANOS, MOST_LATENCY_CAP_NANOS);
        self.insert(units, now.plus(cap))
    }

    /// Takes units for a request of which nothing more will be heard.
    pub(super) fn take_unseen(&mut self, units: u64, now: Time) -> Units {
        let pad = (self.period_nanos / 20).clamp(LEAST_PAD_NANOS, MOST_PAD_NANOS);
        self.insert(units, now.plus(pad))
    }

    /// The request left only now: its while begins anew. False if it came too late, and its units are free again.
    pub(super) fn sent(&mut self, units: &mut Units, now: Time) -> bool {
        let held = self.remove(*units);
        if held {
            *units = self.take(units.units, now);
        }
        held
    }

    /// The answer is here: no need to assume it any later.
    pub(super) fn answered(&mut self, units: &mut Units, now: Time) {
        if now < units.anchor && self.remove(*units) {
            *units = self.insert(units.units, now);
        }
    }

    /// The request was never sent.
    pub(super) fn give_back(&mut self, units: Units) {
        self.remove(units);
    }

    fn insert(&mut self, units: u64, anchor: Time) -> Units {
        let anchor = Time::from_nanos(anchor.as_nanos().div_ceil(self.grid_nanos).saturating_mul(self.grid_nanos));
        *self.anchors.entry(anchor).or_default() += units;
        self.used += units;
        Units { units, anchor }
    }

    /// False if they no longer count.
    fn remove(&mut self, Units { units, anchor }: Units) -> bool {
        let Some(held) = self.anchors.get_mut(&anchor) else { return false };
        *held -= units;
        if *held == 0 {
            self.anchors.remove(&anchor);
        }
        self.used -= units;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn window(most: u64, period_ms: u64) -> Window {
        Window::new(most, period_ms * 1_000_000)
    }

    #[test]
    fn a_unit_comes_free_one_window_after_its_answer() {
        let mut window = window(2, 1_000);
        let mut first = window.take(1, at(0));
        window.take(1, at(0));
        window.answered(&mut first, at(40));
        assert_eq!(window.ready_at(1, at(40)), at(1_040));
        assert_eq!(window.ready_at(1, Time::from_nanos(at(1_040).as_nanos() - 1)), at(1_040));
        assert_eq!(window.ready_at(1, at(1_040)), at(1_040));
    }

    #[test]
    fn a_late_answer_counts_from_a_quarter_window_after_the_sending() {
        let mut window = window(1, 1_000);
        let mut slow = window.take(1, at(0));
        assert_eq!(window.ready_at(1, at(0)), at(1_250));
        assert!(window.sent(&mut slow, at(30)));
        assert_eq!(window.ready_at(1, at(30)), at(1_280));
        window.answered(&mut slow, at(900));
        assert_eq!(window.ready_at(1, at(900)), at(1_280));
    }

    #[test]
    fn the_while_is_at_least_100_ms_and_at_most_a_second() {
        let mut short = window(1, 100);
        short.take(1, at(0));
        assert_eq!(short.ready_at(1, at(0)), at(200));
        let mut long = window(1, 60_000);
        long.take(1, at(0));
        assert_eq!(long.ready_at(1, at(0)), at(61_000));
        let mut unseen = window(1, 1_000);
        unseen.take_unseen(1, at(0));
        assert_eq!(unseen.ready_at(1, at(0)), at(1_050));
    }

    #[test]
    fn an_estimate_goes_round_the_allowance_once_in_each_window() {
        let mut window = window(2, 1_000);
        for answer in [10, 20] {
            let mut units = window.take(1, at(0));
            window.answered(&mut units, at(answer));
        }
        for (units, free) in [(1, 1_010), (2, 1_020), (3, 2_010), (4, 2_020), (5, 3_010)] {
            assert_eq!(window.estimate(units, at(20)), at(free), "{units}");
        }
    }

    #[test]
    fn an_estimate_assumes_that_all_that_is_unanswered_is_answered_now() {
        let mut window = window(2, 1_000);
        window.take(1, at(0));
        assert_eq!(window.estimate(1, at(5)), at(5));
        assert_eq!(window.estimate(2, at(5)), at(1_005));
        assert_eq!(window.estimate(3, at(5)), at(1_005));
        assert_eq!(window.estimate(4, at(5)), at(2_005));
    }

    #[test]
    fn what_was_given_back_or_no_longer_counts_is_not_moved() {
        let mut window = window(1, 1_000);
        let units = window.take(1, at(0));
        window.give_back(units);
        assert_eq!(window.ready_at(1, at(0)), at(0));
        let mut old = window.take(1, at(0));
        assert_eq!(window.ready_at(1, at(1_250)), at(1_250));
        window.take(1, at(1_250));
        assert!(!window.sent(&mut old, at(1_260)));
        window.answered(&mut old, at(1_260));
        window.give_back(old);
        assert_eq!(window.ready_at(1, at(1_300)), at(2_500));
    }

    #[test]
    fn memory_is_bounded_whatever_the_allowance() {
        let mut window = window(1_000_000, 1_000);
        for n in 0..1_000_000 {
            let mut units = window.take(1, Time::from_nanos(n * 1_000));
            window.answered(&mut units, Time::from_nanos(n * 1_000 + 7));
        }
        assert!(window.anchors.len() as u64 <= MOST_ANCHORS + 1);
        let free = window.ready_at(1, at(1_000));
        assert!(at(1_000) < free && free <= at(1_001), "{free:?}");
    }
}
