//! Random scripts: the core and the model do the same, event by event, and decide the same at the same instants.
//!
//! A script is a few hundred events at one to four gates: asks for some of them, of all classes and flows, departures (also of the granted that was not collected),
//! sendings, answers, refusals, settlements, endings, give-backs, pauses, other limits, a clock that stands still, goes
//! back, oversleeps, or comes exactly when the core wants it. After every event the invariants of the core are asserted,
//! and before every instant that the core names a poll of the model finds nothing.
//!
//! These mutants of the core were made by hand, and each is killed here or by a neighbour:
//!
//! - *bucket*: a look takes; a give-back is plain; what was charged before a drain comes back; a drain leaves none; a
//!   retune forgets what was spent; the time of the last charge is not kept; what leaves late keeps its charge; what
//!   leaves late is charged at the real instant; more of an old charge is young; parts of grains come back again and
//!   again; another rate stretches a pause.
//! - *window*: a unit comes free at the anchor + W + 1; a late answer moves the anchor later; a sending keeps the old
//!   anchor; a sending after its time is let go; no steady rate after a pause; a settlement downward is dropped; an
//!   estimate counts debt as an allowance; the unanswered are assumed answered late; a settlement does not count for
//!   the steady rate.
//! - *meter*: windows count from the due instant; buckets are charged at the real instant; a pace holds up what is
//!   larger than it; what waits is not part of an estimate; a pace pays for the one before it; a reserve is not kept.
//! - *slots*: two take one; none is reserved; one that hangs is as usual; what is usual never moves.
//! - *gate*: a give-back keeps the slot; a pause does not drain; a quota in the place of another begins full; quotas take
//!   over by their place alone; a new quota is full after a pause; the end of a pause is taken to be known; a shut gate is
//!   held for; silence is no rarity, or is not timed; a late slot or a reopening is not looked at; a refusal by another
//!   gate leaves the probe.
//! - *pause*: the shorter of two holds; each refusal of one burst is an event; a probe that is dropped holds the gate;
//!   there is no probe; a stated wait is probed without end; grants are not recalled; a probe that is not heard shuts
//!   the gate for ever.
//! - *order*: nobody ages; promotions are not timed; an aged one has no tag, or moves with the clock; the served stay
//!   aged; everybody ages while served; the clock stands still; a flow falls behind without end; a give-back keeps the
//!   turn; a flow takes up nowhere; a lone flow moves; a class begins anew at nothing.
//! - *turns*: a moved turn is looked at nowhere; company is not noted, or only the newcomer is; a hold is not noted; who was
//!   alone stays out of order; what is restored is not sorted.
//! - *queue*: a deadline behind another is forgotten; who leaves stays in the chain; the chain takes any deadline.
//! - *lanes*: a gate that changes marks nobody; first marked, first served; an older head sorts nothing; a lane leaves its
//!   timer; holds are dropped, or taken at all gates, or long before; ties do not hold; a hold binds who is more senior, or
//!   whatever is there; who stands senior is overtaken; a moved head leaves its holds; who is not first any more holds on; a
//!   hold that comes is not timed; the earliest gate is stood at; all go as the most urgent.
//! - *lease*: a loan pays no debt; the store is asked twice; a denial is not believed; unspent
//!   units are kept; a loan goes to whoever has its number.
//! - *core*: no credit for a late wake; a late wake is credited without end; a newcomer overtakes; a head that leaves
//!   at its deadline wakes nobody; who leaves at an instant is not granted at it; nobody leaves at an instant; those who
//!   left before are granted; a retry loses its place; a clock that goes back is believed; leaving does not wake the
//!   next; whoever cannot wait for a pause is not told, or only by the first of its gates; a retune looks at nobody; a due
//!   lane goes up no class; a gate in use is dropped; a paused gate is dropped; gates are dropped while others are made; a
//!   release wakes nobody; a split gate is fresh; a full queue lets in; a closed door is open.

use std::thread;

use super::model::{self, Decision, From, Kind, Level, Log, Model, Quota};
use super::*;
use crate::quota::{self, Anchor};

const UNITS: [Unit; 2] = [Unit::REQUESTS, Unit::TOKENS];

/// What all scripts together came across.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    steps: usize,
    granted_at_once: usize,
    granted_after_waiting: usize,
    /// Of these, who had to pass several gates.
    granted_several: usize,
    refused: usize,
    cancelled_unsent: usize,
    recalled: usize,
    polls: usize,
    made_anew: usize,
}

/// Everybody who asked, as the script sees them.
#[derive(Debug)]
enum Guest {
    Waiting(AskId),
    Granted(Grant),
    Sent(Grant, u64),
    Answered(Grant),
    Gone,
}

struct Script {
    random: fastrand::Rng,
    core: Admission,
    model: Model,
    gates: Vec<Written>,
    guests: Vec<Guest>,
    now: u64,
    tally: Tally,
}

/// The limits of a gate, as they are written.
struct Written {
    quotas: Vec<quota::Quota>,
    paced: Vec<bool>,
    reserved: [u8; 2],
}

impl Written {
    fn limits(&self, slots: Option<usize>) -> Limits {
        let limits = self.quotas.iter().fold(Limits::new(), |limits, quota| limits.quota(quota.clone()));
        let limits = slots.map_or(limits.clone(), |slots| limits.in_flight(slots));
        let reserved = Priority::ALL.into_iter().zip(self.reserved).filter(|(_, percent)| *percent > 0);
        reserved.fold(limits, |limits, (class, percent)| limits.reserve(class, percent))
    }
}

fn gate_name(rule: usize) -> GateName {
    GateName { rule, key: Key::new(HOST) }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap()
}

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap()
}

/// A quota in both worlds. All its instants are whole milliseconds.
fn quota(random: &mut fastrand::Rng) -> (quota::Quota, Quota) {
    let unit = random.usize(0..2);
    let units = if unit == 0 { 1 } else { 3 };
    if random.u8(0..5) < 2 {
        let (interval, burst) = (random.u64(1..40), random.u64(1..6) * units);
        let written = format!("1 {} per {interval}ms burst {burst}", UNITS[unit]).parse().unwrap();
        return (written, Quota { unit, kind: Kind::Bucket(Level::new(signed(interval), signed(burst))) });
    }
    let (most, step) = (random.u64(1..6) * units, 4 * random.u64(1..60));
    let period = most * step;
    let (anchor, from) = match random.u8(0..6) {
        0..=2 => (Anchor::AnswerCapped, From::AnswerCapped),
        3 => (Anchor::Answer, From::Answer),
        4 => (Anchor::End, From::End),
        _ => (Anchor::Send(Duration::from_millis(7)), From::Send(7)),
    };
    // The while after a sending is a quarter of the window, or a twentieth: whole milliseconds too.
    let period = if period.is_multiple_of(20) { period } else { period * 5 };
    let mut written =
        quota::Quota::window(most, Duration::from_millis(period)).of(UNITS[unit].clone()).counted_from(anchor);
    let mut pace = None;
    if random.u8(0..4) == 0 {
        let at_once = random.u64(1..3);
        written = written.at_most(at_once);
        pace = Some(Level::new(signed(period / most), signed(at_once)));
    }
    let log = Log::new(signed(most), signed(period), from);
    (written, Quota { unit, kind: Kind::Window(log, pace) })
}

/// A gate in both worlds.
fn gate(random: &mut fastrand::Rng) -> (Written, Limits, model::Gate) {
    let most = if random.u8(0..8) == 0 { 4 } else { 2 };
    let (written, quotas): (Vec<_>, Vec<_>) = (0..random.usize(0..most)).map(|_| quota(random)).unzip();
    let slots = random.bool().then(|| random.usize(1..5));
    let reserved = if random.u8(0..4) == 0 { [random.u8(1..60), random.u8(1..39)] } else { [0; 2] };
    let paced = quotas.iter().map(|quota| matches!(quota.kind, Kind::Window(_, Some(_)))).collect();
    let written = Written { quotas: written, paced, reserved };
    let [high, normal] = reserved.map(i64::from);
    let limits = written.limits(slots);
    (written, limits, model::Gate::new(quotas, slots, [0, high, high + normal]))
}

impl Script {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(1..5);
        let (mut gates, mut rules, mut modelled) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let (written, limits, model) = gate(&mut random);
            gates.push(written);
            rules.push(Rule { limits, fixed: true, ..Rule::default() });
            modelled.push(model);
        }
        let age = [20, 300, 30_000][random.usize(0..3)];
        let core = Admission::new(Settings { rules, age: Duration::from_millis(age), ..Settings::default() });
        let (guests, tally) = (Vec::new(), Tally::default());
        Self { random, core, model: Model::new(modelled, signed(age)), gates, guests, now: 0, tally }
    }

    fn run(mut self, steps: usize) -> Tally {
        for _ in 0..steps {
            self.pass_time();
            self.step();
            self.compare();
            self.tally.steps += 1;
        }
        self.tally
    }

    /// Mostly little time or none; sometimes until the core wants to be called; sometimes too much.
    fn pass_time(&mut self) {
        let next = self.core.next().map(|next| next.as_nanos().div_ceil(1_000_000)).filter(|next| *next > self.now);
        let later = match (self.random.u8(0..10), next) {
            (0..=3, _) => 0,
            (4..=7, Some(next)) if next < self.now + 5_000 => next - self.now,
            (4..=8, _) => self.random.u64(0..20),
            _ => self.random.u64(0..400),
        };
        if next.is_some_and(|next| next == self.now + later && later < 100) && self.random.u8(0..4) == 0 {
            self.tally.polls += 1;
            assert!(!self.model.would_decide_by(signed(self.now + later - 1)), "the core oversleeps");
        }
        self.now += later;
    }

    fn step(&mut self) {
        // A clock that goes back changes nothing.
        let stale = if self.random.u8(0..8) == 0 { self.random.u64(0..50) } else { 0 };
        let now = self.now.saturating_sub(stale);
        self.model.advance(signed(now));
        match self.random.u8(0..100) {
            0..=44 => self.ask(now),
            45..=49 => self.leave(now),
            50..=52 => self.pause(now),
            53 => self.retune(now),
            54..=56 => self.core.advance(at(now)),
            _ => self.go_on(now),
        }
        self.bustle(now);
        // Not every step comes to something.
        self.core.advance(at(now));
    }

    /// Others come and go at gates of their own, and look whether this one is at rest: it may be dropped and made anew at
    /// any time, and nobody can tell.
    fn bustle(&mut self, now: u64) {
        if self.random.u8(0..3) > 0 {
            return;
        }
        let key = Key::new(["a", "b", "c", "d", "e", "f", "g", "h"][self.random.usize(0..8)]);
        let (gates, cost) = ([GateName { rule: self.random.usize(..self.gates.len()), key }], Cost::new());
        if let Ok(Asked::Granted(grant)) = self.core.ask(&Wish::new(&gates, &cost), at(now)) {
            self.model.passes_by();
            self.core.release(grant, at(now));
        }
        self.forget_anew();
    }

    /// What requests usually take is not known of a gate that was dropped and made anew.
    fn forget_anew(&mut self) {
        for name in self.core.state.gates.made.drain(..).filter(|name| name.key.as_str() == HOST) {
            self.model.gates[name.rule].forget();
            self.tally.made_anew += 1;
        }
    }

    fn ask(&mut self, now: u64) {
        let cost = [self.random.i64(0..3).min(1 + self.random.i64(0..2)), self.random.i64(0..6)];
        let deadline = match self.random.u8(0..8) {
            0 => None,
            1..=3 => Some(now + self.random.u64(0..300)),
            _ => Some(now + 1_000_000),
        };
        let gates = self.some_gates();
        let counted = gates.iter().any(|gate| self.model.gates[*gate].slots.is_some());
        let seen = counted || self.random.u8(0..5) > 0;
        let class = [0, 1, 1, 1, 2][self.random.usize(0..5)];
        let flow = self.random.usize(0..4).saturating_sub(1);
        let (id, deadline) = (self.guests.len(), deadline.map(signed));
        self.put(model::Ask { id, gates, cost, seen, class, flow, arrival: None, deadline }, None, now);
    }

    /// Any one, or any several in any order.
    fn some_gates(&mut self) -> Vec<usize> {
        let mut gates: Vec<_> = (0..self.gates.len()).collect();
        self.random.shuffle(&mut gates);
        let several = self.random.usize(1..=gates.len());
        gates.truncate(if self.random.bool() { 1 } else { several });
        gates
    }

    fn put(&mut self, ask: model::Ask, arrival: Option<Arrival>, now: u64) {
        let cost = Cost::from(unsigned(ask.cost[0])).and(Unit::TOKENS, unsigned(ask.cost[1]));
        let gates: Vec<_> = ask.gates.iter().map(|gate| gate_name(*gate)).collect();
        let wish = Wish {
            usage: if ask.seen { Use::Permit } else { Use::Unseen },
            class: Priority::ALL[ask.class],
            flow: (ask.flow > 0).then(|| Arc::from(ask.flow.to_string())),
            arrival,
            deadline: ask.deadline.map(|deadline| at(unsigned(deadline))),
            ..Wish::new(&gates, &cost)
        };
        let asked = self.core.ask(&wish, at(now));
        self.forget_anew();
        let expected = self.model.ask(ask);
        let guest = match (asked, expected) {
            (Ok(Asked::Granted(grant)), Ok(true)) => {
                self.tally.granted_at_once += 1;
                Guest::Granted(grant)
            }
            (Ok(Asked::Waiting(ask)), Ok(false)) => Guest::Waiting(ask),
            (Err(refused), Err(decision)) => {
                let too_much = refused.reason == Reason::CostExceedsQuota;
                assert_eq!(too_much, decision == Decision::TooMuch);
                self.tally.refused += 1;
                Guest::Gone
            }
            (asked, expected) => panic!("{asked:?} where {expected:?}"),
        };
        self.guests.push(guest);
    }

    fn any(&mut self, wanted: fn(&Guest) -> bool) -> Option<usize> {
        let recent = self.guests.len().saturating_sub(60);
        let all: Vec<_> = (recent..self.guests.len()).filter(|id| wanted(&self.guests[*id])).collect();
        (!all.is_empty()).then(|| all[self.random.usize(..all.len())])
    }

    fn leave(&mut self, now: u64) {
        let Some(id) = self.any(|guest| matches!(guest, Guest::Waiting(_))) else { return };
        let Guest::Waiting(ask) = std::mem::replace(&mut self.guests[id], Guest::Gone) else { return };
        // Whoever is to be decided at this very instant may be granted first, and its grant goes back.
        self.core.advance(at(now));
        self.tally.cancelled_unsent += usize::from(self.is_granted(ask));
        self.core.leave(ask, at(now));
        self.model.leave(id);
    }

    fn pause(&mut self, now: u64) {
        if self.random.u8(0..4) > 0 {
            return;
        }
        let (gate, until) = (self.random.usize(..self.gates.len()), now + self.random.u64(0..200));
        self.core.pause(&gate_name(gate), at(until), at(now));
        self.forget_anew();
        self.model.pause(gate, signed(until));
    }

    /// Other numbers for the same quotas: of a bucket the burst, of a window (that is not paced) how many it lets go.
    fn retune(&mut self, now: u64) {
        let gate = self.random.usize(..self.gates.len());
        let (written, mut new, mut numbers) = (&mut self.gates[gate], Vec::new(), Vec::new());
        for (old, paced) in written.quotas.iter().zip(&written.paced) {
            let mut number = self.random.u64(1..12);
            let period = u64::try_from(old.period().as_millis()).unwrap();
            new.push(if old.burst().is_some() {
                format!("1 {} per {period}ms burst {number}", old.unit()).parse().unwrap()
            } else {
                if *paced || !period.is_multiple_of(number) {
                    number = old.count();
                }
                old.with_count(number)
            });
            numbers.push(signed(number));
        }
        // One that becomes what another was would take over from that one.
        let is_another =
            |(nth, new): (usize, &quota::Quota)| written.quotas.iter().position(|old| old == new) != Some(nth);
        if new.iter().enumerate().any(|(nth, new)| written.quotas.contains(new) && is_another((nth, new))) {
            return;
        }
        written.quotas = new;
        let slots = self.model.gates[gate].slots.map(|_| self.random.usize(1..5));
        self.core.set_limits(gate, written.limits(slots), at(now));
        self.model.retune(gate, slots, &numbers);
    }

    /// Something happens to one of those who were granted.
    fn go_on(&mut self, now: u64) {
        let live = |guest: &Guest| matches!(guest, Guest::Granted(..) | Guest::Sent(..) | Guest::Answered(_));
        let Some(id) = self.any(live) else { return };
        let guest = std::mem::replace(&mut self.guests[id], Guest::Gone);
        self.guests[id] = match guest {
            Guest::Granted(grant) if self.random.u8(0..4) == 0 => self.give_back(id, grant, now),
            Guest::Granted(grant) => self.send(id, grant, now),
            Guest::Sent(grant, since) if self.random.u8(0..3) == 0 || now > since + 2_000 => {
                self.release(id, grant, now)
            }
            Guest::Sent(grant, since) => self.answer(id, grant, since, now),
            Guest::Answered(grant) => self.release(id, grant, now),
            other => other,
        };
    }

    fn give_back(&mut self, id: usize, grant: Grant, now: u64) -> Guest {
        self.tally.cancelled_unsent += 1;
        self.core.give_back(grant, at(now));
        self.model.give_back(id);
        Guest::Gone
    }

    fn send(&mut self, id: usize, grant: Grant, now: u64) -> Guest {
        let sent = self.core.send(&grant, at(now));
        assert_eq!(sent, self.model.send(id), "sent, or recalled");
        if sent {
            return Guest::Sent(grant, now);
        }
        // Recalled: it goes back, and asks again in its old place.
        self.tally.recalled += 1;
        let (ask, arrival) = (self.model.ask_of(id), Some(grant.arrival));
        self.give_back(id, grant, now);
        self.compare();
        if let Some(ask) = ask {
            self.put(model::Ask { id: self.guests.len(), deadline: Some(signed(now + 100_000)), ..ask }, arrival, now);
        }
        Guest::Gone
    }

    fn answer(&mut self, id: usize, grant: Grant, since: u64, now: u64) -> Guest {
        let place = self.random.usize(..self.core.gates_of(&grant));
        match self.random.u8(0..16) {
            0 => {
                let wait = Duration::from_millis(self.random.u64(0..300));
                self.core.refused(&grant, place, Wait::Stated(wait, 0), at(now));
                self.model.refused(id, place, Some(signed(wait.as_millis().try_into().unwrap())));
            }
            1 => {
                self.core.refused(&grant, place, Wait::Unstated(0), at(now));
                self.model.refused(id, place, None);
            }
            2 => {
                let (unit, actual) = (self.random.usize(0..2), self.random.u64(0..6));
                self.core.settle(&grant, &UNITS[unit], actual, at(now));
                self.model.settle(id, unit, signed(actual));
                return Guest::Answered(grant);
            }
            _ if now > since + 2_000 => {}
            _ => {
                self.core.answered(&grant, at(now));
                self.model.answered(id);
            }
        }
        Guest::Answered(grant)
    }

    fn release(&mut self, id: usize, grant: Grant, now: u64) -> Guest {
        self.core.release(grant, at(now));
        self.model.release(id);
        Guest::Gone
    }

    /// The same decisions, the grants in the same order, and nobody left who may go.
    fn compare(&mut self) {
        assert_eq!(self.core.waiting(), self.model.waiting());
        let mine = std::iter::from_fn(|| self.core.pop_decided()).collect::<Vec<_>>();
        let is_there = |(id, _): &(usize, Decision)| matches!(self.guests[*id], Guest::Waiting(_));
        let theirs: Vec<_> = std::mem::take(&mut self.model.decided).into_iter().filter(is_there).collect();
        assert_eq!(mine.len(), theirs.len());
        let my_grants: Vec<_> = mine.iter().copied().filter(|ask| self.is_granted(*ask)).collect();
        let their_grants = theirs.iter().filter(|(_, decision)| *decision == Decision::Granted);
        assert_eq!(my_grants, their_grants.map(|(id, _)| self.ask_of(*id)).collect::<Vec<_>>(), "the order of grants");
        for (id, decision) in theirs {
            self.collect(id, decision);
        }
        // Grants that were not collected went to others.
        if !self.model.decided.is_empty() {
            self.compare();
        }
    }

    fn is_granted(&self, ask: AskId) -> bool {
        matches!(&self.core.state.lanes.asks[ask], Ask::Decided(decision) if decision.is_ok())
    }

    fn ask_of(&self, id: usize) -> AskId {
        let Guest::Waiting(ask) = self.guests[id] else { panic!("guest {id} does not wait") };
        ask
    }

    fn collect(&mut self, id: usize, decision: Decision) {
        let ask = self.ask_of(id);
        self.guests[id] = Guest::Gone;
        if decision == Decision::Granted {
            self.tally.granted_after_waiting += 1;
            if self.random.u8(0..20) == 0 {
                self.tally.cancelled_unsent += 1;
                self.core.leave(ask, at(self.core_now()));
                self.model.leave(id);
                return;
            }
        }
        match self.core.collect(ask).unwrap() {
            Ok(grant) => {
                self.tally.granted_several += usize::from(self.core.gates_of(&grant) > 1);
                self.guests[id] = Guest::Granted(grant);
            }
            Err(refused) => {
                self.tally.refused += 1;
                let too_much = refused.reason == Reason::CostExceedsQuota;
                assert_eq!(too_much, decision == Decision::TooMuch);
            }
        }
    }

    fn core_now(&self) -> u64 {
        self.core.state.now.as_nanos() / 1_000_000
    }
}

/// How many scripts, of so many events each.
const SCRIPTS: u64 = 25_000;
const EVENTS: usize = 400;

#[test]
fn the_core_and_the_model_do_the_same() {
    let part = |from: u64| (from..SCRIPTS).step_by(4).map(|seed| Script::new(seed).run(EVENTS)).reduce(Tally::plus);
    let sum = thread::scope(|scope| {
        let parts = [0, 1, 2, 3].map(|from| scope.spawn(move || part(from)));
        parts.into_iter().filter_map(|part| part.join().unwrap()).reduce(Tally::plus).unwrap()
    });
    println!("{sum:?}");
    assert!(sum.steps >= 10_000_000 && sum.granted_after_waiting >= 1_000_000, "{sum:?}");
    assert!(sum.granted_several >= 200_000, "{sum:?}");
    assert!(
        sum.cancelled_unsent >= 50_000 && sum.recalled >= 50_000 && sum.polls >= 50_000 && sum.made_anew >= 10_000,
        "{sum:?}"
    );
}

impl Tally {
    fn plus(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            granted_at_once: self.granted_at_once + other.granted_at_once,
            granted_after_waiting: self.granted_after_waiting + other.granted_after_waiting,
            granted_several: self.granted_several + other.granted_several,
            refused: self.refused + other.refused,
            cancelled_unsent: self.cancelled_unsent + other.cancelled_unsent,
            recalled: self.recalled + other.recalled,
            polls: self.polls + other.polls,
            made_anew: self.made_anew + other.made_anew,
        }
    }
}
