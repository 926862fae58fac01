//! In flight: how many may be, and how often one comes free.

use crate::time::Time;

/// What a request takes until others have ended, and it is known.
const USUAL_NANOS: u64 = 1_000_000_000;

/// What is usual is an estimate, and rounded up to this.
const GRAIN_NANOS: u64 = 1_000_000;

/// How many may be in flight at once, and how many are.
#[derive(Debug)]
pub(super) struct Slots {
    most: Option<usize>,
    used: usize,
    /// How long a slot is held in the mean, each new one weighing a sixteenth.
    mean_nanos: u64,
    /// The mean when it was last found to have moved by a factor of two: what it is taken to be, so that it is steady.
    usual_nanos: u64,
    /// When a slot last came free, or the last one was taken.
    moved: Time,
}

impl Slots {
    pub(super) fn new(most: Option<usize>) -> Self {
        Self { most, used: 0, mean_nanos: USUAL_NANOS, usual_nanos: USUAL_NANOS, moved: Time::ZERO }
    }

    pub(super) fn most(&self) -> Option<usize> {
        self.most
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Whether so many more may go, and leave as many as are reserved.
    pub(super) fn are_free(&self, wanted: usize, reserved: usize) -> bool {
        self.most.is_none_or(|most| self.used.saturating_add(wanted).saturating_add(reserved) <= most)
    }

    /// Another number from now on. If more are in use, nobody is cut off, and nobody new goes until they are fewer.
    pub(super) fn retune(&mut self, most: Option<usize>, now: Time) {
        (self.most, self.moved) = (most, now);
    }

    pub(super) fn take(&mut self, now: Time) {
        (self.used, self.moved) = (self.used + 1, now);
    }

    /// A slot is free again. True if that changes what is usual.
    pub(super) fn release(&mut self, taken: Time, now: Time) -> bool {
        self.give_back(now);
        if self.most.is_none() {
            return false;
        }
        self.mean_nanos = self.mean_nanos - self.mean_nanos / 16 + now.nanos_since(taken) / 16;
        let before = self.usual_nanos;
        if self.mean_nanos >= before.saturating_mul(2) || self.mean_nanos <= before / 2 {
            self.usual_nanos = self.mean_nanos.max(1).next_multiple_of(GRAIN_NANOS);
        }
        self.usual_nanos != before
    }

    /// The slot of somebody who never went.
    pub(super) fn give_back(&mut self, now: Time) {
        (self.used, self.moved) = (self.used - 1, now);
    }

    /// How often one comes free, usually.
    pub(super) fn interval_nanos(&self) -> u64 {
        let each = |most: usize| self.usual_nanos.div_ceil(u64::try_from(most).unwrap_or(u64::MAX).max(1));
        self.most.map_or(0, |most| each(most).next_multiple_of(GRAIN_NANOS))
    }

    /// The same while all are taken: once none has come free for twice as long, it is so long, in doublings. A slot that
    /// hangs thus becomes rarer than anything.
    pub(super) fn late_interval_nanos(&self, now: Time) -> u64 {
        let interval = self.interval_nanos();
        if self.is_full() { overdue_nanos(interval, self.moved, now) } else { interval }
    }

    /// When that changes next, if nothing happens.
    pub(super) fn later_at(&self, now: Time) -> Option<Time> {
        let interval = self.late_interval_nanos(now).max(1);
        self.is_full().then(|| self.moved.plus(interval.saturating_mul(2)))
    }

    fn is_full(&self) -> bool {
        self.most.is_some_and(|most| self.used >= most)
    }
}

/// An interval after which something should have happened, and has not since then: once it is overdue by as much again, it
/// is so long, in doublings.
pub(super) fn overdue_nanos(interval: u64, since: Time, now: Time) -> u64 {
    let periods = now.nanos_since(since) / interval.max(1);
    periods.checked_ilog2().map_or(interval, |doublings| interval << doublings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * SECOND)
    }

    #[test]
    fn a_slot_is_free_until_all_are_taken() {
        let mut slots = Slots::new(Some(2));
        slots.take(at(0));
        assert!(slots.are_free(1, 0) && !slots.are_free(1, 1) && !slots.are_free(2, 0));
        slots.take(at(0));
        assert!(!slots.are_free(1, 0));
        slots.release(at(0), at(1));
        assert!(slots.are_free(1, 0));
        assert!(Slots::new(None).are_free(1, 0));
    }

    #[test]
    fn what_is_usual_follows_the_mean_by_factors_of_two() {
        let mut slots = Slots::new(Some(1));
        let changes = (0..200).filter(|_| {
            slots.take(at(0));
            slots.release(at(0), Time::from_nanos(SECOND / 10))
        });
        assert_eq!(changes.count(), 3, "1 s, 0.5 s, 0.25 s, 0.125 s");
        assert!((SECOND / 10..SECOND / 7).contains(&slots.interval_nanos()), "{slots:?}");
    }

    #[test]
    fn a_slot_that_hangs_becomes_rarer_by_doublings_and_only_while_all_are_taken() {
        let mut slots = Slots::new(Some(2));
        slots.take(at(0));
        assert_eq!(slots.late_interval_nanos(at(100)), SECOND / 2);
        slots.take(at(100));
        assert_eq!(slots.later_at(at(100)), Some(at(101)));
        assert_eq!(slots.late_interval_nanos(at(100)), SECOND / 2);
        assert_eq!(slots.late_interval_nanos(at(101)), SECOND);
        assert_eq!(slots.late_interval_nanos(at(103)), 2 * SECOND);
        assert_eq!(slots.later_at(at(103)), Some(at(104)));
    }
}
