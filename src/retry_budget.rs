//! How many retries the traffic has earned: a share of it, and a floor.
//!
//! Each request deposits its share, each retry withdraws one; what was deposited is forgotten after ten seconds. The
//! floor lets quiet clients retry at all. (The same shape as in Finagle and linkerd.)

use crate::time::Time;

/// How long a deposit counts, in slots of a second.
const SLOTS: usize = 10;
const SLOT_NANOS: u64 = 1_000_000_000;

/// A budget in hundredths of a retry, so that a percentage is exact.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    percent: u64,
    floor: u64,
    /// What came in less what went out, by second, the newest first.
    slots: [i64; SLOTS],
    newest: u64,
}

impl RetryBudget {
    /// So many retries for a hundred requests, and so many in ten seconds whatever the traffic.
    pub(crate) fn new(percent: u32, floor: u32) -> Self {
        let (percent, floor) = (percent.into(), floor.into());
        Self { percent, floor, slots: [0; SLOTS], newest: 0 }
    }

    /// A request is sent for the first time.
    pub(crate) fn deposit(&mut self, now: Time) {
        let percent = i64::try_from(self.percent).unwrap_or(i64::MAX);
        let slot = self.slot(now);
        *slot = slot.saturating_add(percent);
    }

    /// A retry wants to go: true if it may.
    pub(crate) fn withdraw(&mut self, now: Time) -> bool {
        self.slot(now);
        let floor = i64::try_from(self.floor.saturating_mul(100)).unwrap_or(i64::MAX);
        let balance = self.slots.iter().fold(floor, |sum, slot| sum.saturating_add(*slot));
        if balance < 100 {
            return false;
        }
        let slot = self.slot(now);
        *slot = slot.saturating_sub(100);
        true
    }

    /// The slot of this second. A second that has gone by, or a clock that goes back, is not written to.
    fn slot(&mut self, now: Time) -> &mut i64 {
        let second = (now.as_nanos() / SLOT_NANOS).max(self.newest);
        let passed = usize::try_from(second - self.newest).unwrap_or(SLOTS).min(SLOTS);
        self.slots.rotate_right(passed);
        self.slots[..passed].fill(0);
        self.newest = second;
        &mut self.slots[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn withdrawn(budget: &mut RetryBudget, now: Time) -> usize {
        (0..1_000).take_while(|_| budget.withdraw(now)).count()
    }

    #[test]
    fn the_floor_is_there_without_any_traffic_and_comes_back_after_ten_seconds() {
        let mut budget = RetryBudget::new(20, 10);
        assert_eq!(withdrawn(&mut budget, at(0)), 10);
        assert_eq!(withdrawn(&mut budget, at(9_999)), 0);
        assert_eq!(withdrawn(&mut budget, at(10_000)), 10);
    }

    #[test]
    fn a_percentage_is_exact() {
        for (percent, earned) in [(20, 20), (33, 33), (60, 60), (1, 1), (0, 0)] {
            let mut budget = RetryBudget::new(percent, 0);
            for _ in 0..100 {
                budget.deposit(at(500));
            }
            assert_eq!(withdrawn(&mut budget, at(500)), earned);
        }
    }

    #[test]
    fn what_was_deposited_is_forgotten_and_a_clock_that_goes_back_changes_nothing() {
        let mut budget = RetryBudget::new(100, 0);
        for second in 0..20 {
            budget.deposit(at(second * 1_000));
        }
        budget.deposit(at(5_000));
        assert_eq!(withdrawn(&mut budget, at(19_000)), 11);
        assert_eq!(withdrawn(&mut budget, Time::from_nanos(u64::MAX)), 0);
    }
}
