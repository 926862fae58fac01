//! One gate by exact instants, in milliseconds.

mod brakes;
mod handed_over;
mod hostile;
mod learned;
mod leases;
mod many;
mod model;
mod pauses;
mod referee;
mod reports;
mod retunes;
mod scripts;
mod sims;
mod vectors;
mod words;
mod world;

use std::sync::Arc;
use std::time::Duration;

use super::wish::MOST_KEYS;
use super::work::MOST_STEPS;
use super::*;
use crate::cost::Cost;
use crate::key::Key;
use crate::priority::Priority;
use crate::quota::Quota;

const FOREVER: u64 = 1_000_000_000;

const HOST: &str = "host";

fn name(key: &str) -> GateName {
    GateName { rule: 0, key: Key::new(key) }
}

/// A wish that owns what it is made of: one request to the host, as a try with a permit, unless said otherwise.
#[derive(Clone, Debug)]
struct Want {
    gates: Vec<GateName>,
    cost: Cost,
    usage: Use,
    class: Priority,
    flow: Option<&'static str>,
    arrival: Option<Arrival>,
    deadline: Option<Time>,
}

fn host() -> Want {
    let (gates, usage, class) = (vec![name(HOST)], Use::Permit, Priority::Normal);
    Want { gates, cost: Cost::new(), usage, class, flow: None, arrival: None, deadline: None }
}

impl Admission {
    /// How many gates it passed.
    fn gates_of(&self, grant: &Grant) -> usize {
        self.state.grants.gates(grant)
    }
}

fn ask(core: &mut Admission, want: Want, now: Time) -> Result<Asked, Refused> {
    let Want { gates, cost, usage, class, flow, arrival, deadline } = want;
    let wish = Wish { usage, class, flow: flow.map(Arc::from), arrival, deadline, ..Wish::new(&gates, &cost) };
    core.ask(&wish, now)
}

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

/// A core with one gate, and a clock that a test moves.
struct Bench {
    core: Admission,
    now: u64,
}

impl Bench {
    fn new(limits: impl TryInto<Limits, Error: std::fmt::Debug>) -> Self {
        let limits: Limits = limits.try_into().unwrap();
        let core = Admission::new(limits.into());
        Self { core, now: 0 }
    }

    /// One whose limits refusals leave as they are.
    fn fixed(limits: &str) -> Self {
        let rules = vec![Rule { limits: limits.parse().unwrap(), fixed: true, ..Rule::default() }];
        Self { core: Admission::new(Settings { rules, ..Settings::default() }), now: 0 }
    }

    fn bucket(interval_ms: u64, burst: u64) -> Self {
        let period = Duration::from_millis(interval_ms);
        Self::new(format!("1 per {}ms burst {burst}", period.as_millis()))
    }

    fn in_use(&self) -> usize {
        self.core.state.gates[self.core.state.gates.find(&name(HOST)).unwrap()].in_flight().0
    }

    fn ask_until(&mut self, deadline: u64) -> Result<Asked, Refused> {
        let wish = Want { deadline: Some(at(deadline)), ..host() };
        let asked = ask(&mut self.core, wish, at(self.now));
        self.core.state.assert_sound();
        asked
    }

    fn granted(&mut self) -> Grant {
        match self.ask_until(FOREVER) {
            Ok(Asked::Granted(grant)) => grant,
            other => panic!("not granted at {}: {other:?}", self.now),
        }
    }

    fn waiting(&mut self) -> AskId {
        match self.ask_until(FOREVER) {
            Ok(Asked::Waiting(id)) => id,
            other => panic!("not made to wait at {}: {other:?}", self.now),
        }
    }

    fn try_ask(&mut self) -> Result<Asked, Refused> {
        let wish = host();
        ask(&mut self.core, wish, at(self.now))
    }

    /// Goes on to an instant, stopping wherever the core has something to do, and tells who was granted when.
    fn run_to(&mut self, until: u64) -> Vec<(AskId, u64)> {
        let mut granted = Vec::new();
        while let Some(next) = self.core.next().filter(|next| *next <= at(until)) {
            self.now = self.now.max(next.as_nanos() / 1_000_000);
            self.core.advance(next);
            self.core.state.assert_sound();
            granted.extend(self.decided());
        }
        self.now = until;
        granted
    }

    /// Who was granted since, each as of now. Refusals are thrown away.
    fn decided(&mut self) -> Vec<(AskId, u64)> {
        let mut granted = Vec::new();
        while let Some(id) = self.core.pop_decided() {
            if self.core.collect(id).unwrap().is_ok() {
                granted.push((id, self.now));
            }
        }
        granted
    }
}

#[test]
fn what_others_sent_before_counts_from_then_on() {
    let count = |limits: &str, sent: &[u64]| {
        let mut bench = Bench::new(limits);
        bench.now = 1_000;
        for ms in sent {
            bench.core.count(&[name(HOST)], &Cost::new(), at(*ms), at(1_000));
        }
        (0..4).for_each(|_| drop(bench.ask_until(FOREVER)));
        let went = bench.run_to(3_000).into_iter().map(|(_, at)| at).collect::<Vec<_>>();
        (4 - went.len(), went)
    };
    // A quarter of a window later, for the answer may have taken so long.
    assert_eq!(count("3/s", &[100, 600, 900]), (0, vec![1_350, 1_850, 2_150, 2_600]));
    assert_eq!(count("3/s counted from send + 0ms", &[0, 0, 900]), (2, vec![1_900, 2_000]));
    assert_eq!(count("2/s burst 3", &[]), (3, vec![1_500]));
    assert_eq!(count("2/s burst 3", &[0, 0, 0, 0]), (1, vec![1_500, 2_000, 2_500]));
}

#[test]
fn who_waits_is_timed_anew_by_what_others_sent() {
    let mut bench = Bench::new("1/s counted from send + 0ms");
    let granted = bench.granted();
    assert!(matches!(bench.ask_until(1_500), Ok(Asked::Waiting(_))));
    bench.core.count(&[name(HOST)], &Cost::new(), at(900), at(900));
    assert_eq!(bench.run_to(3_000), []);
    assert_eq!(bench.core.waiting(), 0, "it cannot go in time, and knows");
    bench.core.release(granted, at(3_000));
}

#[test]
fn a_bucket_serves_in_order_of_arrival_one_per_interval() {
    let mut bench = Bench::bucket(100, 1);
    let _ = bench.granted();
    let ids: Vec<_> = (0..5).map(|_| bench.waiting()).collect();
    let expected: Vec<_> = ids.iter().zip(1..).map(|(id, n)| (*id, n * 100)).collect();
    assert_eq!(bench.run_to(10_000), expected);
    assert_eq!(bench.core.waiting(), 0);
    assert_eq!(bench.core.next(), None);
}

#[test]
fn a_newcomer_never_precedes_one_who_was_due() {
    let mut bench = Bench::bucket(100, 1);
    let _ = bench.granted();
    let first = bench.waiting();
    bench.now = 150;
    let second = bench.waiting();
    assert_eq!(bench.decided(), [(first, 150)]);
    assert_eq!(bench.run_to(1_000), [(second, 248)]);
}

#[test]
fn a_window_comes_free_with_the_answers() {
    let mut bench = Bench::new("2/s");
    let (first, second) = (bench.granted(), bench.granted());
    let third = bench.waiting();
    assert_eq!(bench.core.next(), Some(at(1_250)));
    bench.core.answered(&second, at(30));
    assert_eq!(bench.core.next(), Some(at(1_030)));
    bench.core.answered(&first, at(20));
    assert_eq!(bench.core.next(), Some(at(1_030)), "a clock that goes back changes nothing");
    assert_eq!(bench.run_to(2_000), [(third, 1_030)]);
}

#[test]
fn a_slot_is_free_when_the_request_has_ended() {
    let mut bench = Bench::new(Limits::new().in_flight(1));
    let grant = bench.granted();
    let next = bench.waiting();
    assert_eq!(bench.core.next(), Some(at(30_000)), "when it has aged");
    bench.core.answered(&grant, at(10));
    assert_eq!(bench.run_to(500), []);
    bench.core.release(grant, at(500));
    assert_eq!(bench.decided(), [(next, 500)]);
    assert_eq!(bench.in_use(), 1);
}

#[test]
fn a_request_takes_all_of_its_limits_or_none() {
    let limits = || Limits::new().quota("1 per 10ms burst 1").quota("3/s").in_flight(2);
    let mut bench = Bench::new(limits());
    let (one, mut kept) = (bench.granted(), Vec::new());
    bench.now = 10;
    kept.push(bench.granted());
    bench.now = 20;
    let refused = bench.try_ask().unwrap_err();
    assert_eq!((refused.in_flight, refused.quota, refused.wait), (Some(2), None, None));
    bench.core.release(one, at(30));
    bench.now = 30;
    kept.push(bench.granted());
    bench.core.release(kept.remove(0), at(40));
    bench.now = 40;
    let refused = bench.try_ask().unwrap_err();
    assert_eq!((refused.quota, refused.wait), (Some(Quota::per_second(3).into()), Some(Duration::from_millis(990))));
}

#[test]
fn who_leaves_is_as_if_it_had_never_asked() {
    // Whatever the order in which the second and the third leave, a newcomer goes when the second would have.
    for order in [[0, 1], [1, 0]] {
        let mut bench = Bench::bucket(1_000, 1);
        let _ = bench.granted();
        let leaving = [bench.waiting(), bench.waiting()];
        for who in order {
            bench.core.leave(leaving[who], at(200));
        }
        bench.now = 300;
        let newcomer = bench.waiting();
        assert_eq!(bench.run_to(5_000), [(newcomer, 1_000)]);
    }
}

#[test]
fn a_grant_that_nobody_collects_goes_to_the_next_at_once() {
    let mut bench = Bench::bucket(1_000, 1);
    let _ = bench.granted();
    let (gone, next) = (bench.waiting(), bench.waiting());
    bench.core.advance(at(1_000));
    bench.now = 1_001;
    bench.core.leave(gone, at(1_001));
    assert_eq!(bench.decided(), [(next, 1_001)]);
}

#[test]
fn a_deadline_that_cannot_be_met_is_refused_at_once_and_takes_nothing() {
    let mut bench = Bench::bucket(10_000, 1);
    let _ = bench.granted();
    let refused = bench.ask_until(3_000).unwrap_err();
    assert_eq!(refused.reason, Reason::Deadline);
    assert_eq!((refused.wait, refused.ahead), (Some(Duration::from_secs(10)), 0));
    assert_eq!(refused.limit, "host");
    assert!(matches!(bench.ask_until(12_000), Ok(Asked::Waiting(_))));
    let refused = bench.ask_until(12_000).unwrap_err();
    assert_eq!((refused.wait, refused.ahead), (Some(Duration::from_secs(20)), 1));
    assert!(matches!(bench.ask_until(20_000), Ok(Asked::Waiting(_))), "a grant at the deadline is in time");
    assert_eq!(bench.run_to(60_000).iter().map(|granted| granted.1).collect::<Vec<_>>(), [10_000, 20_000]);
}

#[test]
fn at_its_deadline_a_request_is_refused_and_those_behind_move_up() {
    let mut bench = Bench::new(Limits::new().quota("1 per 100ms burst 1").in_flight(1));
    let grant = bench.granted();
    let Ok(Asked::Waiting(hopeful)) = bench.ask_until(150) else { panic!("refused too early") };
    let patient = bench.waiting();
    bench.core.advance(at(150));
    assert_eq!(bench.core.pop_decided(), Some(hopeful));
    assert_eq!(bench.core.collect(hopeful).unwrap().unwrap_err().in_flight, Some(1));
    bench.core.release(grant, at(151));
    bench.now = 151;
    assert_eq!(bench.decided(), [(patient, 151)]);
}

#[test]
fn a_late_wake_grants_nothing_to_who_had_left_before() {
    let mut bench = Bench::bucket(100, 1);
    let _ = bench.granted();
    let Ok(Asked::Waiting(_)) = bench.ask_until(100) else { panic!("refused too early") };
    let patient = bench.waiting();
    bench.now = 5_000;
    bench.core.advance(at(5_000));
    assert_eq!(bench.decided(), [(patient, 5_000)]);
}

#[test]
fn a_pause_stops_the_gate_and_only_that_one() {
    let mut bench = Bench::bucket(10, 1);
    let _ = bench.granted();
    let first = bench.waiting();
    let Ok(Asked::Waiting(hasty)) = bench.ask_until(1_999) else { panic!("refused too early") };
    bench.core.pause(&name(HOST), at(2_000), at(5));
    assert_eq!(bench.core.pop_decided(), Some(hasty), "it cannot wait that long, and learns it now");
    assert_eq!(bench.core.collect(hasty).unwrap().unwrap_err().wait, Some(Duration::from_millis(1_995)));
    bench.core.pause(&name(HOST), at(1_000), at(6));
    let wish = Want { gates: vec![GateName { rule: 0, key: Key::new("other") }], ..host() };
    assert!(matches!(ask(&mut bench.core, wish, at(7)), Ok(Asked::Granted(_))));
    assert_eq!(bench.run_to(10_000), [(first, 2_000)], "of two pauses the longer one holds");
}

#[test]
fn what_was_granted_before_a_pause_and_not_sent_is_recalled_and_keeps_its_place() {
    let mut bench = Bench::bucket(10, 2);
    let (sent, unsent) = (bench.granted(), bench.granted());
    assert!(bench.core.send(&sent, at(0)));
    let younger = bench.waiting();
    bench.core.pause(&name(HOST), at(1_000), at(1));
    assert!(!bench.core.send(&unsent, at(2)));
    let arrival = Some(unsent.arrival);
    bench.core.give_back(unsent, at(2));
    let wish = Want { arrival, deadline: Some(at(FOREVER)), ..host() };
    let Ok(Asked::Waiting(older)) = ask(&mut bench.core, wish, at(2)) else { panic!("sent into a pause") };
    // It probes; once it is answered, the others go at the steady rate.
    bench.core.advance(at(1_000));
    let Some(Ok(probe)) = bench.core.collect(older) else { panic!("the pause has no end") };
    bench.core.answered(&probe, at(1_004));
    assert_eq!(bench.run_to(10_000), [(younger, 1_010)]);
}

#[test]
fn who_held_its_grant_until_its_units_were_free_again_must_ask_again() {
    let mut bench = Bench::new("1 per 100ms");
    let slow = bench.granted();
    let next = bench.waiting();
    assert_eq!(bench.run_to(5_000), [(next, 200)]);
    assert!(!bench.core.send(&slow, at(5_000)));
}

#[test]
fn a_late_wake_is_credited_for_two_milliseconds_and_no_more() {
    let mut bench = Bench::bucket(1, 1);
    let _ = bench.granted();
    for _ in 0..1_000 {
        bench.waiting();
    }
    assert_eq!(bench.run_to(500).len(), 500);
    bench.now = 800;
    bench.core.advance(at(800));
    assert_eq!(bench.decided().len(), 3);
}

#[test]
fn a_window_counts_a_late_wake_from_when_it_really_went() {
    let mut bench = Bench::new("1 per 100ms");
    let wish = Want { usage: Use::Unseen, deadline: Some(at(FOREVER)), ..host() };
    let Ok(Asked::Granted(_)) = ask(&mut bench.core, wish.clone(), at(0)) else { panic!("a fresh window refuses") };
    let Ok(Asked::Waiting(_)) = ask(&mut bench.core, wish.clone(), at(0)) else { panic!("a full window grants") };
    assert_eq!(bench.core.next(), Some(at(120)));
    let late = Time::from_nanos(121_500_000);
    bench.core.advance(late);
    assert_eq!(bench.decided().len(), 1);
    let Ok(Asked::Waiting(_)) = ask(&mut bench.core, wish, late) else { panic!("a full window grants") };
    assert_eq!(bench.core.next(), Some(late.plus(120_000_000)));
}

#[test]
fn a_call_does_a_bounded_amount_and_says_that_more_is_due() {
    let mut bench = Bench::new(Limits::new().quota("1000 per 100ms").in_flight(2_000));
    let grants: Vec<_> = (0..1_000).map(|_| bench.granted()).collect();
    for _ in 0..1_000 {
        bench.waiting();
    }
    bench.core.advance(at(200));
    bench.now = 200;
    assert!((200..=MOST_STEPS).contains(&bench.decided().len()));
    assert!(bench.core.next().unwrap() <= at(200));
    let newcomer = bench.waiting();
    let granted = bench.run_to(200);
    assert!(granted.len() > 700 && granted.iter().all(|(id, _)| *id != newcomer));
    drop(grants);
}

#[test]
fn a_limit_on_requests_in_flight_needs_a_permit() {
    let mut bench = Bench::new(Limits::new().in_flight(1));
    let wish = Want { usage: Use::Unseen, ..host() };
    assert_eq!(ask(&mut bench.core, wish, at(0)).unwrap_err().reason, Reason::NeedsPermit);
}
