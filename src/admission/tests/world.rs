//! Workers who ask again and again, before a strict server that counts for itself, in virtual time. Its arithmetic is its own: a
//! plain list of what it took, and when.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::*;
use crate::time::nanos;

/// A server that counts for itself.
#[derive(Clone, Copy)]
pub(super) enum Counts {
    InAny(usize, Duration),
    InEach(usize, Duration),
    Bucket(f64, f64),
}

/// 50 workers, of whom each asks again at once, and others who use the same key.
pub(super) struct World {
    pub(super) core: Admission,
    server: Counts,
    taken: Vec<Time>,
    level: (f64, Time),
    random: fastrand::Rng,
    pub(super) now: Time,
    events: BinaryHeap<Reverse<(Time, usize, Happens)>>,
    grants: BTreeMap<usize, Grant>,
    pub(super) sent: usize,
    pub(super) served: usize,
    pub(super) refused: usize,
    /// Before this nobody may be sent.
    shut: Time,
    /// What it says of its limit with each answer: nothing, or what is left and when it is reset, rounded to this.
    pub(super) says: Option<Duration>,
    pub(super) answers_take: (u64, u64),
    /// How often others come, in a second, at random.
    pub(super) others_come: f64,
    /// Whether it rounds down.
    pub(super) rounds_down: bool,
    /// Another limit, from then on.
    pub(super) changes: Vec<(Time, Counts)>,
    said: BTreeMap<usize, Report>,
    /// Of them, when.
    pub(super) refusals: Vec<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Arrives,
    Answered,
    Refused,
    OtherComes,
}

pub(super) const WORKERS: usize = 50;

/// Fixed windows begin at any time.
const PHASE_NANOS: u64 = 370_000_000;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a level of a few")]
fn whole(level: f64) -> usize {
    level as usize
}

pub(super) fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

impl World {
    pub(super) fn new(limits: &str, server: Counts, seed: u64) -> Self {
        let limits: Limits = limits.parse().unwrap();
        let (events, grants, taken) = (BinaryHeap::new(), BTreeMap::new(), Vec::new());
        let random = fastrand::Rng::with_seed(seed);
        let level = (if let Counts::Bucket(_, burst) = server { burst } else { 0.0 }, Time::ZERO);
        let (now, core) = (Time::ZERO, Admission::new(limits.into()));
        Self {
            core,
            server,
            taken,
            level,
            random,
            now,
            events,
            grants,
            sent: 0,
            served: 0,
            refused: 0,
            shut: Time::ZERO,
            says: None,
            answers_take: (1_000_000, 6_000_000),
            others_come: 6.0,
            rounds_down: false,
            changes: Vec::new(),
            said: BTreeMap::new(),
            refusals: Vec::new(),
        }
    }

    /// Whether the server takes one more.
    fn takes(&mut self) -> bool {
        let now = self.now;
        let free = match self.server {
            Counts::InAny(most, window) => {
                self.taken.iter().rev().take(most).filter(|at| now.since(**at) < window).count() < most
            }
            Counts::InEach(most, window) => {
                let place = |at: Time| (at.as_nanos() + PHASE_NANOS) / nanos(window);
                self.taken.iter().rev().take(most).filter(|at| place(**at) == place(now)).count() < most
            }
            Counts::Bucket(rate, burst) => {
                let (level, since) = self.level;
                let level = (level + now.since(since).as_secs_f64() * rate).min(burst);
                self.level = (if level >= 1.0 { level - 1.0 } else { level }, now);
                level >= 1.0
            }
        };
        self.taken.extend(free.then_some(now));
        free
    }

    /// What it says after it has counted one.
    fn report(&self, precision: Duration) -> Report {
        let now = self.now;
        let (most, left, resets) = match self.server {
            Counts::InAny(most, window) => {
                let counted: Vec<_> =
                    self.taken.iter().rev().take(most).filter(|at| now.since(**at) < window).collect();
                let resets = counted.last().map_or(Duration::ZERO, |oldest| window.saturating_sub(now.since(**oldest)));
                (most, most - counted.len(), resets)
            }
            Counts::InEach(most, window) => {
                let place = |at: Time| (at.as_nanos() + PHASE_NANOS) / nanos(window);
                let used = self.taken.iter().rev().take(most).filter(|at| place(**at) == place(now)).count();
                let gone = (now.as_nanos() + PHASE_NANOS) % nanos(window);
                (most, most - used, window.saturating_sub(Duration::from_nanos(gone)))
            }
            Counts::Bucket(rate, burst) => {
                let (level, missing) = (self.level.0, burst - self.level.0);
                (whole(burst), whole(level), Duration::from_secs_f64(missing / rate))
            }
        };
        let up = if self.rounds_down { 0 } else { nanos(precision) - 1 };
        let rounded = (nanos(resets) + up) / nanos(precision) * nanos(precision);
        let (name, unit) = (Arc::from("requests"), Unit::REQUESTS);
        let (left, most) = (u64::try_from(left).unwrap(), u64::try_from(most).ok());
        Report {
            name,
            unit,
            left,
            most,
            resets_after: Some(Duration::from_nanos(rounded)),
            window: None,
            refused: false,
        }
    }

    fn after(&mut self, from: u64, to: u64) -> Time {
        self.now.plus(self.random.u64(from..to))
    }

    fn send(&mut self, grant: Grant) {
        if !self.core.send(&grant, self.now) {
            // A pause has come between.
            self.core.give_back(grant, self.now);
            return self.ask();
        }
        assert!(self.now >= self.shut, "sent before a stated time");
        self.sent += 1;
        self.grants.insert(self.sent, grant);
        let arrives = self.after(self.answers_take.0, self.answers_take.1);
        self.events.push(Reverse((arrives, self.sent, Happens::Arrives)));
    }

    fn ask(&mut self) {
        let wish = Want { deadline: Some(at(FOREVER)), ..host() };
        if let Asked::Granted(grant) = ask(&mut self.core, wish, self.now).unwrap() {
            self.send(grant);
        }
    }

    fn happens(&mut self, who: usize, what: Happens) {
        match what {
            Happens::Arrives => {
                let answer = if self.takes() { Happens::Answered } else { Happens::Refused };
                if let Some(precision) = self.says {
                    let report = Report { refused: answer == Happens::Refused, ..self.report(precision) };
                    self.said.insert(who, report);
                }
                let at = self.after(self.answers_take.0, self.answers_take.1);
                self.events.push(Reverse((at, who, answer)));
            }
            Happens::Answered | Happens::Refused => {
                let grant = self.grants.remove(&who).unwrap();
                let said = self.said.remove(&who);
                if let Some(report) = &said {
                    self.core.report(&grant, 0, std::slice::from_ref(report), self.now);
                }
                if what == Happens::Answered {
                    self.served += 1;
                    self.core.answered(&grant, self.now);
                } else {
                    self.refused += 1;
                    self.refusals.push(self.now);
                    let wait = said.and_then(|report| report.resets_after).unwrap_or(Duration::from_secs(1));
                    self.core.refused(&grant, 0, Wait::Stated(wait, self.random.u32(..)), self.now);
                    self.shut = self.shut.max(self.now.plus(nanos(wait)));
                }
                self.core.release(grant, self.now);
                self.ask();
            }
            Happens::OtherComes => {
                self.takes();
                self.others();
            }
        }
    }

    /// The next of the others.
    pub(super) fn others(&mut self) {
        let gap = -(1.0 - self.random.f64()).ln() / self.others_come;
        let at = self.now.plus(nanos(Duration::from_secs_f64(gap)));
        self.events.push(Reverse((at, 0, Happens::OtherComes)));
    }

    pub(super) fn run(mut self, done: impl Fn(&Self) -> bool) -> Self {
        (0..WORKERS).for_each(|_| self.ask());
        while !done(&self) {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            self.now = self.core.next().into_iter().chain(event).min().unwrap().max(self.now);
            self.core.advance(self.now);
            while self.changes.first().is_some_and(|(at, _)| *at <= self.now) {
                self.server = self.changes.remove(0).1;
            }
            while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
                let Some(Reverse((_, who, what))) = self.events.pop() else { break };
                self.happens(who, what);
            }
            while let Some(id) = self.core.pop_decided() {
                let grant = self.core.collect(id).unwrap().unwrap();
                self.send(grant);
            }
        }
        self
    }
}
