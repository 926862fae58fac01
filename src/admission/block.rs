//! What stands in the way at a gate, and how rare what one needs is there.

use super::slots::overdue_nanos;
use crate::time::Time;

/// What stands in the way, and until when at the earliest if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) cause: Cause,
    pub(super) until: Option<Time>,
    /// Whether what is here then depends on somebody else: an answer, a probe, a slot.
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Somebody senior stands here, or holds what is here.
    Senior,
    Pause,
    Slots,
    /// By its place among the gate's.
    Quota(usize),
}

/// How rare what a request needs is at a gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rarity {
    /// In nanoseconds.
    pub(super) interval: u64,
    pub(super) ready_at: Time,
    /// When that is different, if nothing happens.
    pub(super) changes_at: Option<Time>,
}

impl Rarity {
    /// Nobody knows when it is there: whoever could tell has been silent since then.
    pub(super) fn is_silent_since(&mut self, since: Time, interval: u64, now: Time) {
        let overdue = overdue_nanos(interval, since, now);
        self.interval = self.interval.max(overdue);
        let later = since.plus(overdue.saturating_mul(2));
        self.changes_at = self.changes_at.into_iter().chain([later]).min();
    }
}

impl Block {
    /// Something that nobody knows the end of.
    pub(super) fn open(cause: Cause) -> Self {
        Self { cause, until: None, open: true }
    }

    /// Somebody senior, whatever blocks both.
    pub(super) fn senior(until: Option<Time>) -> Self {
        Self { cause: Cause::Senior, until, open: false }
    }

    pub(super) fn known(cause: Cause, until: Time, open: bool) -> Self {
        Self { cause, until: Some(until), open }
    }

    /// By this one stands where one is blocked: what has no known end before what has, then the latest, and whoever only
    /// waits for somebody else's turn last.
    pub(super) fn weight(&self) -> (u8, Option<Time>) {
        match self.cause {
            _ if self.open => (2, None),
            Cause::Senior => (0, None),
            _ => (1, self.until),
        }
    }
}
