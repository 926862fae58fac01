//! Whether a gate is shut, and by what: a pause, and after it the probe.
//!
//! A refusal shuts the gate until a stated time, or for a while that doubles. The first who passes after that is the
//! *probe*. After a stated wait it holds up the others only for a moment, and so does one whose answer nobody reports;
//! after an unstated one it does until its answer, or until it has taken so long that it tells nothing: then the next one
//! is the probe.

use crate::backoff;
use crate::time::{Time, nanos};
use crate::wait::Wait;

/// After a stated wait the probe holds up others no longer than this: an answer may take a minute.
const STATED_PATIENCE_NANOS: u64 = 1_000_000_000;

/// After an unstated wait a probe counts as one for at least this, and for twice the usual answer.
const LEAST_PATIENCE_NANOS: u64 = 5_000_000_000;

/// A probe that nobody has been for so long after a pause is not needed any more.
const FORGOTTEN_AFTER_NANOS: u64 = 600_000_000_000;

/// Whoever has so many out goes at the rate that was found.
const MOST_STARTING: usize = 256;

/// The pause of one gate.
#[derive(Clone, Debug, Default)]
pub(super) struct Pause {
    until: Time,
    /// Counts the events: all refusals of what was granted before one belong to it.
    epoch: u64,
    probe: Probe,
    /// The last event stated its wait.
    stated: bool,
    /// How many unstated events came without a success between them.
    doublings: u32,
    usual_answer_nanos: u64,
    probes: u64,
    start: Option<Start>,
}

/// Where no rate is known, one goes after a refusal, and two more for each that is answered.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// How many went since the refusal that nothing was heard of.
    out: usize,
    most: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Probe {
    #[default]
    NotNeeded,
    /// The first who is granted will be it.
    Next,
    /// It went, and holds up the others until then. Of one that is not heard nothing will be known.
    Out { id: u64, until: Time, heard: bool },
}

/// How somebody passed: in which epoch, and as which probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    epoch: u64,
    probe: Option<u64>,
    sent: Time,
}

impl Pause {
    /// Until when the gate is shut, if it is.
    pub(super) fn shut_until(&self, now: Time) -> Option<Time> {
        let until = match self.probe {
            Probe::Out { until, .. } => self.until.max(until),
            _ => self.until,
        };
        Some(until).filter(|until| now < *until)
    }

    /// Whether it has just reopened, and so many more are too many before another is answered.
    pub(super) fn is_starting_with(&self, more: usize) -> bool {
        self.start.is_some_and(|start| start.out.saturating_add(more) > start.most)
    }

    pub(super) fn is_starting(&self) -> bool {
        self.start.is_some()
    }

    /// As it was in the beginning, but for what is usual.
    pub(super) fn is_at_rest(&self, now: Time) -> bool {
        let is_as_new = self.until <= now && self.probe == Probe::NotNeeded && self.doublings == 0;
        is_as_new || self.until.plus(FORGOTTEN_AFTER_NANOS) <= now
    }

    /// Whether a probe is out, or to be sent.
    pub(super) fn is_probed(&self) -> bool {
        self.probe != Probe::NotNeeded
    }

    /// When it opens at the earliest: the probe may be answered now.
    pub(super) fn opens(&self, now: Time) -> Time {
        self.until.max(now)
    }

    /// Somebody passes, whose answer will be heard or not. To be called when the gate is not shut.
    pub(super) fn pass(&mut self, heard: bool, now: Time) -> Pass {
        let needed = match self.probe {
            Probe::NotNeeded => false,
            Probe::Next => true,
            // It took too long: after a stated wait the gate is open, else the next one probes, if one is to be heard.
            Probe::Out { heard, .. } => heard && !self.stated,
        };
        if needed {
            self.probes += 1;
            self.probe = Probe::Out { id: self.probes, until: now.plus(self.patience_nanos(heard)), heard };
        } else if self.probe != Probe::NotNeeded {
            (self.probe, self.doublings) = (Probe::NotNeeded, 0);
        }
        if let Some(start) = self.start.as_mut().filter(|_| heard) {
            start.out += 1;
        }
        Pass { epoch: self.epoch, probe: needed.then_some(self.probes), sent: now }
    }

    fn patience_nanos(&self, heard: bool) -> u64 {
        let unstated = self.usual_answer_nanos.saturating_mul(2).max(LEAST_PATIENCE_NANOS);
        if self.stated || !heard { STATED_PATIENCE_NANOS } else { unstated }
    }

    /// Whether what was granted may still leave: not if a refusal came in between.
    pub(super) fn send(&self, pass: &mut Pass, now: Time) -> bool {
        pass.sent = now;
        pass.epoch == self.epoch && self.until <= now
    }

    /// The server took it.
    pub(super) fn succeeded(&mut self, pass: Pass, now: Time) {
        let took = now.nanos_since(pass.sent);
        self.usual_answer_nanos = self.usual_answer_nanos / 8 * 7 + took / 8;
        if self.is_out(pass) {
            (self.probe, self.doublings) = (Probe::NotNeeded, 0);
        }
        self.start = self.start.and_then(|start| {
            let most = start.most + usize::from(pass.epoch == self.epoch);
            (most < MOST_STARTING).then_some(Start { most, ..start })
        });
    }

    /// Something was heard of it for the first time, or nothing will be.
    pub(super) fn over(&mut self, pass: Pass) {
        if let Some(start) = self.start.as_mut().filter(|_| pass.epoch == self.epoch) {
            start.out = start.out.saturating_sub(1);
        }
    }

    /// Whether a refusal of it is an event, and not one more of the same.
    pub(super) fn is_event(&self, pass: Pass) -> bool {
        pass.epoch == self.epoch
    }

    /// The server refused it. Answers when the gate reopens: if no rate is `known`, with one and then with more.
    pub(super) fn refused(&mut self, pass: Pass, wait: Wait, known: bool, now: Time) -> Time {
        let is_event = self.is_event(pass);
        if is_event {
            self.epoch += 1;
            self.stated = matches!(wait, Wait::Stated(..));
            self.doublings = if self.stated { 0 } else { self.doublings + 1 };
            self.start = (!known).then_some(Start { out: 0, most: 1 });
        }
        if is_event || self.probe == Probe::NotNeeded {
            self.probe = Probe::Next;
        }
        let wait = backoff::pause(wait, self.doublings.saturating_sub(1));
        self.until = self.until.max(now.plus(nanos(wait)));
        self.until
    }

    /// Nobody passes before then, whoever said so. What is granted and not sent is recalled.
    pub(super) fn until(&mut self, until: Time) -> Time {
        (self.epoch, self.stated, self.probe) = (self.epoch + 1, true, Probe::Next);
        self.start = self.start.map(|_| Start { out: 0, most: 1 });
        self.until = self.until.max(until);
        self.until
    }

    /// The same at another gate, beside what is known there: those who are out passed here only.
    pub(super) fn hand_over(&self, to: &mut Self) {
        to.epoch += 1;
        to.until = to.until.max(self.until);
        to.stated |= self.stated;
        to.doublings = to.doublings.max(self.doublings);
        to.usual_answer_nanos = to.usual_answer_nanos.max(self.usual_answer_nanos);
        if self.is_probed() {
            to.probe = Probe::Next;
        }
        if self.is_starting() {
            to.start = Some(Start { out: 0, most: 1 });
        }
    }

    /// It ended without an answer: if it was the probe, the next one is.
    pub(super) fn ended_unanswered(&mut self, pass: Pass) {
        if self.is_out(pass) {
            self.probe = Probe::Next;
        }
    }

    fn is_out(&self, pass: Pass) -> bool {
        matches!(self.probe, Probe::Out { id, .. } if pass.probe == Some(id))
    }
}
