//! Several gates by exact instants, in milliseconds: who goes when, and who is kept from starving whom.

use std::collections::HashMap;

use super::*;

/// A core with a gate for each rule, and a clock that a test moves.
pub(super) struct Many {
    pub(super) core: Admission,
    pub(super) now: u64,
    waiting: HashMap<AskId, &'static str>,
    grants: HashMap<&'static str, Grant>,
    /// Who was granted when.
    log: Vec<(&'static str, u64)>,
    refused: Vec<(&'static str, u64)>,
    most_steps: usize,
}

impl Many {
    pub(super) fn new(limits: &[&str]) -> Self {
        Self::with(limits, Duration::from_secs(30))
    }

    fn with(limits: &[&str], age: Duration) -> Self {
        let rules = limits.iter().map(|limits| Rule { limits: limits.parse().unwrap(), ..Rule::default() }).collect();
        let core = Admission::new(Settings { rules, age, ..Settings::default() });
        let (waiting, grants, log, refused) = (HashMap::new(), HashMap::new(), Vec::new(), Vec::new());
        Self { core, now: 0, waiting, grants, log, refused, most_steps: 0 }
    }

    /// Of these rules, one request at the present instant.
    fn ask(&mut self, label: &'static str, gates: &[usize]) {
        self.want(label, gates, host());
    }

    fn want(&mut self, label: &'static str, gates: &[usize], want: Want) {
        let gates = gates.iter().map(|rule| gate(*rule)).collect();
        let deadline = Some(want.deadline.unwrap_or(at(FOREVER)));
        match ask(&mut self.core, Want { gates, deadline, ..want }, at(self.now)) {
            Ok(Asked::Granted(grant)) => self.granted(label, grant),
            Ok(Asked::Waiting(id)) => drop(self.waiting.insert(id, label)),
            Err(_) => self.refused.push((label, self.now)),
        }
        self.look();
    }

    fn granted(&mut self, label: &'static str, grant: Grant) {
        self.log.push((label, self.now));
        self.grants.insert(label, grant);
    }

    fn look(&mut self) {
        self.core.state.assert_sound();
        self.most_steps = self.most_steps.max(MOST_STEPS - self.core.state.steps);
        while let Some(id) = self.core.pop_decided() {
            let label = self.waiting.remove(&id).unwrap();
            match self.core.collect(id).unwrap() {
                Ok(grant) => self.granted(label, grant),
                Err(_) => self.refused.push((label, self.now)),
            }
        }
    }

    /// Goes on to an instant, stopping wherever the core has something to do. Every millisecond between is polled too.
    fn to(&mut self, until: u64) -> &mut Self {
        while self.now < until {
            let next = self.core.next().filter(|next| *next < at(self.now + 1));
            if let Some(next) = next {
                self.core.advance(next);
                self.look();
                continue;
            }
            self.now += 1;
            let due = self.core.next().is_some_and(|next| next <= at(self.now));
            let before = self.log.len() + self.refused.len();
            self.core.advance(at(self.now));
            self.look();
            assert!(due || self.log.len() + self.refused.len() == before, "the core overslept");
        }
        self
    }

    fn release(&mut self, label: &str) {
        let grant = self.grants.remove(label).unwrap();
        self.core.release(grant, at(self.now));
        self.look();
    }

    fn id(&self, label: &str) -> AskId {
        *self.waiting.iter().find(|(_, other)| **other == label).unwrap().0
    }

    fn cancel(&mut self, label: &str) {
        let id = self.id(label);
        self.waiting.remove(&id);
        self.core.leave(id, at(self.now));
        self.look();
    }

    fn when(&self, label: &str) -> Vec<u64> {
        self.log.iter().filter(|(other, _)| *other == label).map(|(_, at)| *at).collect()
    }
}

fn gate(rule: usize) -> GateName {
    GateName { rule, key: Key::new(["A", "B", "C", "D", "E", "F", "G", "H"][rule]) }
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

fn low() -> Want {
    Want { class: Priority::Low, ..host() }
}

fn high() -> Want {
    Want { class: Priority::High, ..host() }
}

/// One who needs two busy gates, and as many singles as there is room for.
fn coincidence(singles_at_a: usize, singles: usize) -> Many {
    let mut many = Many::new(&["1 per 20ms burst 1", "1 per 20ms burst 1"]);
    many.ask("a", &[A]);
    many.to(10).ask("b", &[B]);
    many.to(11).ask("m", &[A, B]);
    many.to(12);
    (0..singles_at_a).for_each(|_| many.ask("a", &[A]));
    (0..singles).for_each(|_| many.ask("b", &[B]));
    many
}

#[test]
fn who_needs_two_busy_gates_goes_as_soon_as_both_have_come_up_for_it() {
    let mut many = coincidence(20, 20);
    many.to(130);
    assert_eq!(many.when("m"), [30]);
    assert_eq!(many.when("a"), [0, 50, 70, 90, 110, 130]);
    assert_eq!(many.when("b"), [10, 50, 70, 90, 110, 130]);
}

#[test]
fn who_needs_two_slots_gets_the_second_although_the_first_came_free_before() {
    let mut many = Many::new(&["1 in flight", "1 in flight"]);
    many.ask("a0", &[A]);
    many.ask("b0", &[B]);
    many.to(1).ask("m", &[A, B]);
    many.to(2).ask("a1", &[A]);
    many.ask("b1", &[B]);
    many.to(100).release("a0");
    many.to(150);
    assert_eq!(many.log.len(), 2, "nobody goes in the place of who holds it");
    many.release("b0");
    assert_eq!(many.when("m"), [150]);
    many.to(200).release("m");
    assert_eq!((many.when("a1"), many.when("b1")), (vec![200], vec![200]));
}

#[test]
fn a_hung_host_holds_nothing() {
    let mut many = Many::new(&["1 per 100ms burst 1", "1 in flight", "unlimited"]);
    many.ask("hung", &[A, B]);
    many.to(1).ask("m", &[A, B]);
    (0..400).for_each(|_| many.ask("other", &[A, C]));
    many.to(40_000);
    assert_eq!(many.when("other"), (1..=400).map(|n| n * 100).collect::<Vec<_>>(), "none is missing");
    assert!(many.when("m").is_empty());
    many.release("hung");
    many.to(40_100);
    assert_eq!(many.when("m"), [40_100]);
}

#[test]
fn gates_that_are_needed_in_a_ring_lock_nobody_out() {
    let mut many = Many::new(&["1 per 100ms burst 1"; 3]);
    for (gate, flow) in [(A, "1"), (B, "2"), (C, "3")] {
        many.want("first", &[gate], Want { flow: Some(flow), ..host() });
    }
    many.to(1);
    for (label, gates, flow) in [("x", [A, B], "1"), ("y", [B, C], "2"), ("z", [A, C], "3")] {
        many.want(label, &gates, Want { flow: Some(flow), ..host() });
    }
    many.to(1_000);
    assert_eq!((many.when("x"), many.when("y"), many.when("z")), (vec![100], vec![200], vec![300]));
}

#[test]
fn when_a_holder_can_not_go_soon_any_more_who_was_held_off_goes_in_the_same_call() {
    let mut many = coincidence(1, 0);
    many.to(25).core.pause(&gate(B), at(60_025), at(25));
    many.look();
    assert_eq!(many.log.last(), Some(&("a", 25)));
    many.to(60_100);
    assert_eq!(many.when("m"), [60_025]);

    let mut many = coincidence(1, 0);
    many.to(25).cancel("m");
    assert_eq!(many.log.last(), Some(&("a", 25)));

    let mut many = coincidence(1, 0);
    many.to(25).core.set_limits(B, "1/min burst 1".parse().unwrap(), at(25));
    many.look();
    assert_eq!(many.log.last(), Some(&("a", 25)));
    many.to(60_100);
    // A quarter of the one that B had spent had come back; of the new interval three quarters of that are still to come.
    assert_eq!(many.when("m"), [25 + 60_000 / 20 * 5]);
}

#[test]
fn how_many_are_ahead_counts_in_ones_own_lane() {
    let mut many = Many::new(&["1 per 1ms burst 5", "1 per 100ms burst 1", "1 per 100ms burst 1"]);
    many.ask("h1", &[A, B]);
    (0..1_000).for_each(|_| many.ask("h1", &[A, B]));
    many.want("h2", &[A, C], Want { deadline: Some(at(50)), ..host() });
    assert_eq!(many.when("h2"), [0]);
    let gates = vec![gate(A), gate(B)];
    let refused = ask(&mut many.core, Want { gates, deadline: Some(at(50_000)), ..host() }, at(0)).unwrap_err();
    assert_eq!((refused.reason, refused.ahead), (Reason::Deadline, 1_000));
    assert_eq!((refused.limit.as_str(), refused.wait), ("B", Some(Duration::from_millis(100_100))));
}

#[test]
fn who_has_aged_overtakes_a_large_one_that_is_still_saving() {
    let mut many = Many::with(&["1 per 1000ms burst 10"], Duration::from_secs(5));
    many.want("all", &[A], Want { cost: 10.into(), ..host() });
    many.to(100).want("low", &[A], low());
    many.to(200).want("normal", &[A], Want { cost: 10.into(), ..host() });
    many.to(20_000);
    assert_eq!((many.when("low"), many.when("normal")), (vec![5_100], vec![11_000]));
}

#[test]
fn a_flow_that_is_served_does_not_age_and_another_takes_its_turn_at_once() {
    let mut many = Many::with(&["10/s burst 1"], Duration::from_secs(5));
    (0..1_000).for_each(|_| many.want("1", &[A], Want { flow: Some("1"), ..host() }));
    for second in 0..90 {
        many.to(second * 1_000 + 50).want("2", &[A], Want { flow: Some("2"), ..host() });
    }
    many.to(91_000);
    let late = (0..90).zip(many.when("2")).filter(|(second, at)| at - (second * 1_000 + 50) > 200);
    assert_eq!((many.when("2").len(), late.count()), (90, 0));
}

#[test]
fn the_first_who_is_granted_probes_and_one_may_probe_several_gates() {
    let mut many = Many::new(&["1000/s burst 100", "1000/s burst 100"]);
    many.core.pause(&gate(A), at(1_000), at(0));
    many.core.pause(&gate(B), at(2_000), at(0));
    many.to(500).ask("m", &[A, B]);
    many.to(501).ask("s", &[A]);
    (0..3).for_each(|_| many.ask("after", &[A]));
    many.to(1_500);
    assert_eq!((many.when("s"), many.when("after")), (vec![1_000], vec![]), "it probes, and nothing else goes");
    many.release("s");
    assert_eq!(many.when("after"), [1_500], "dropped without an answer: the next one probes");
}

#[test]
fn a_probe_of_two_gates_that_is_refused_by_one_leaves_the_other_to_the_next() {
    let mut many = Many::new(&["1000/s burst 100", "1000/s burst 100"]);
    many.core.pause(&gate(A), at(1_000), at(0));
    many.core.pause(&gate(B), at(2_000), at(0));
    many.to(500).ask("m", &[A, B]);
    many.to(501).ask("s", &[A]);
    many.to(1_500).release("s");
    assert_eq!(many.log.len(), 1, "nobody else wants to go through A alone");
    many.to(2_000);
    assert_eq!(many.when("m"), [2_000]);
    many.ask("next", &[A]);
    assert!(many.when("next").is_empty(), "both gates are probed");
    let grant = many.grants.remove("m").unwrap();
    many.core.refused(&grant, 1, Wait::Unstated(u32::MAX), at(2_010));
    many.now = 2_010;
    many.look();
    assert_eq!(many.when("next"), [2_010], "B pauses, and A is to be probed by the next");
    many.ask("third", &[A]);
    assert!(many.when("third").is_empty());
}

#[test]
fn no_call_takes_more_than_a_few_steps_however_long_the_lane() {
    let mut many = Many::new(&["1 per 1ms burst 1", "1 per 1000ms burst 1"]);
    for _ in 0..10_000 {
        let want = Want { gates: vec![gate(A), gate(B)], deadline: Some(at(FOREVER)), ..host() };
        if let Ok(Asked::Waiting(id)) = ask(&mut many.core, want, at(0)) {
            many.waiting.insert(id, "m");
        }
        many.most_steps = many.most_steps.max(MOST_STEPS - many.core.state.steps);
    }
    while many.now < 20_000 {
        many.now += 1_000;
        many.core.advance(at(many.now));
        many.look();
    }
    assert_eq!(many.when("m").len(), 20);
    assert!(many.most_steps <= 10, "{} steps", many.most_steps);
}

#[test]
fn a_hold_never_lets_the_less_urgent_go_first() {
    let mut many = Many::new(&["1 per 100ms burst 1", "1 per 1000ms burst 1"]);
    many.ask("b", &[B]);
    many.to(850).ask("a", &[A]);
    many.to(900).want("low", &[A, B], low());
    many.to(940).want("high", &[A], high());
    (0..3).for_each(|_| many.ask("normal", &[A]));
    many.to(2_000);
    // The hold binds nobody more senior: high, then the normal ones; low takes the next unit of the faster.
    assert_eq!((many.when("high"), many.when("normal")), (vec![950], vec![1_050, 1_150, 1_250]));
    assert_eq!(many.when("low"), [1_350]);
}

#[test]
fn a_reserved_share_is_there_for_the_more_urgent_and_for_who_has_aged() {
    let mut many = Many::with(&["10 in flight, 20% for high, 30% for normal"], Duration::from_secs(5));
    for (label, class, most) in
        [("low", Priority::Low, 5), ("normal", Priority::Normal, 3), ("high", Priority::High, 2)]
    {
        (0..10).for_each(|_| many.want(label, &[A], Want { class, ..host() }));
        assert_eq!(many.when(label), vec![0; most], "{label}");
    }
    // Who has aged goes as what it has come to, and before those.
    many.to(5_000).release("high");
    assert_eq!(many.log.last(), Some(&("normal", 5_000)));
    let mut many = Many::new(&["10/s, 20% for high, 30% for normal"]);
    many.want("low", &[A], Want { cost: 6.into(), ..low() });
    many.want("normal", &[A], Want { cost: 8.into(), ..host() });
    assert_eq!(
        (many.refused.as_slice(), many.when("normal")),
        ([("low", 0)].as_slice(), vec![0]),
        "never is so much left"
    );
}
