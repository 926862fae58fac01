//! Rate r, burst b: governor's decision over a store that we can peek at and give back to.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use governor::RateLimiter;
use governor::clock::{Clock, Reference};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};

use crate::time::Time;

/// A bucket. Full to begin with.
#[derive(Debug)]
pub(super) struct Bucket {
    governor: RateLimiter<NotKeyed, Cells, Cells, NoOpMiddleware<Time>>,
    cells: Cells,
    interval_nanos: u64,
    burst: u32,
    /// Units charged since the beginning, and when the last were: what a give-back may restore depends on them.
    charged: u64,
    charged_at: Time,
}

/// A charge that was made, as far as giving it back needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    cost: u32,
    /// The bucket's count right after it.
    charged: u64,
}

impl Bucket {
    /// `interval_nanos` is the time in which one unit is gained. A checked quota bounds `interval × burst`, which
    /// governor multiplies unchecked.
    pub(super) fn new(interval_nanos: u64, burst: u32) -> Self {
        let interval = Duration::from_nanos(interval_nanos.max(1));
        let most = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        // Neither number is zero here, and `with_period` fails on nothing else.
        let quota = governor::Quota::with_period(interval)
            .unwrap_or_else(|| governor::Quota::per_second(most))
            .allow_burst(most);
        let cells = Cells::default();
        Self {
            // governor takes its beginning from the clock, which must stand at zero for that.
            governor: RateLimiter::new(quota, cells.clone(), cells.clone()),
            cells,
            interval_nanos: interval_nanos.max(1),
            burst: most.get(),
            charged: 0,
            charged_at: Time::ZERO,
        }
    }

    /// When `cost` can go if nothing else does first: governor's answer, and nothing changes.
    pub(super) fn ready_at(&self, cost: u32, now: Time) -> Time {
        self.decide(cost, now, true).err().unwrap_or(now)
    }

    /// Takes `cost`, if it is there.
    pub(super) fn take(&mut self, cost: u32, now: Time) -> Result<Charge, Time> {
        self.decide(cost, now, false)?;
        self.charged = self.charged.wrapping_add(u64::from(cost));
        self.charged_at = now;
        Ok(Charge { cost, charged: self.charged })
    }

    fn decide(&self, cost: u32, now: Time, peek: bool) -> Result<(), Time> {
        let Some(cost) = NonZeroU32::new(cost) else { return Ok(()) };
        self.cells.0.now.store(now.as_nanos(), Relaxed);
        self.cells.0.peek.store(peek, Relaxed);
        match self.governor.check_n(cost) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(not_until)) => Err(not_until.earliest_possible()),
            // More than the bucket ever holds.
            Err(_) => Err(Time::from_nanos(u64::MAX)),
        }
    }

    /// When the last of `cost` units that go one by one as they come can go.
    pub(super) fn estimate(&self, cost: u64, now: Time) -> Time {
        let ahead = u128::from(cost) * u128::from(self.interval_nanos);
        let depth = u128::from(self.burst) * u128::from(self.interval_nanos);
        let full_again = u128::from(self.full_at().max(now).as_nanos()) + ahead;
        let earliest = u64::try_from(full_again.saturating_sub(depth)).unwrap_or(u64::MAX);
        Time::from_nanos(earliest).max(now)
    }

    /// Undoes a charge that was never used.
    ///
    /// Taking it off the level would mint units when the bucket has been full since: what came in meanwhile ran
    /// over, and the charge with it. So the bucket is never made fuller than it would be had it been full at its
    /// last charge, with only what was charged since then on it.
    pub(super) fn give_back(&mut self, charge: Charge) {
        let full_at = self.full_at().as_nanos();
        let since = self.charged.wrapping_sub(charge.charged);
        let plain = full_at.saturating_sub(u64::from(charge.cost).saturating_mul(self.interval_nanos));
        let floor = self.charged_at.plus(since.saturating_mul(self.interval_nanos)).as_nanos();
        self.cells.0.full_at.store(plain.max(full_at.min(floor)), Relaxed);
    }

    /// When it will be full, if nothing more goes ("theoretical arrival time" in the literature on GCRA).
    fn full_at(&self) -> Time {
        Time::from_nanos(self.cells.0.full_at.load(Relaxed))
    }
}

/// governor's store and clock: two plain cells, and whether a decision is only a look. They are atomic because
/// governor owns one handle and the bucket the other; whoever holds the limiter's lock is alone with them.
#[derive(Clone, Default)]
struct Cells(Arc<Inner>);

#[derive(Default)]
struct Inner {
    full_at: AtomicU64,
    now: AtomicU64,
    peek: AtomicBool,
}

impl fmt::Debug for Cells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cells").field("full_at", &self.0.full_at).finish_non_exhaustive()
    }
}

impl StateStore for Cells {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let (answer, full_at) = decide(Some(Nanos::new(self.0.full_at.load(Relaxed))))?;
        if !self.0.peek.load(Relaxed) {
            self.0.full_at.store(full_at.as_u64(), Relaxed);
        }
        Ok(answer)
    }
}

impl Clock for Cells {
    type Instant = Time;

    fn now(&self) -> Time {
        Time::from_nanos(self.0.now.load(Relaxed))
    }
}

impl Reference for Time {
    fn duration_since(&self, earlier: Self) -> Nanos {
        Nanos::new(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }

    fn saturating_sub(&self, duration: Nanos) -> Self {
        self.minus(duration.as_u64())
    }
}

impl Add<Nanos> for Time {
    type Output = Self;

    fn add(self, nanos: Nanos) -> Self {
        self.plus(nanos.as_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * MS)
    }

    #[test]
    fn a_full_bucket_lets_its_burst_go_and_then_one_per_interval() {
        let mut bucket = Bucket::new(10 * MS, 3);
        for _ in 0..3 {
            bucket.take(1, at(0)).unwrap();
        }
        assert_eq!(bucket.take(1, at(0)).unwrap_err(), at(10));
        assert_eq!(bucket.take(1, Time::from_nanos(10 * MS - 1)).unwrap_err(), at(10));
        bucket.take(1, at(10)).unwrap();
        assert_eq!(bucket.ready_at(3, at(10)), at(40));
    }

    #[test]
    fn looking_takes_nothing_and_a_refusal_takes_nothing() {
        let mut bucket = Bucket::new(10 * MS, 2);
        assert_eq!(bucket.ready_at(2, at(0)), at(0));
        assert_eq!(bucket.take(3, at(0)).unwrap_err(), Time::from_nanos(u64::MAX));
        bucket.take(1, at(0)).unwrap();
        assert_eq!(bucket.take(2, at(0)).unwrap_err(), at(10));
        bucket.take(1, at(0)).unwrap();
    }

    #[test]
    fn an_estimate_is_the_instant_at_which_the_last_one_goes() {
        let mut bucket = Bucket::new(10 * MS, 3);
        assert_eq!(bucket.estimate(3, at(5)), at(5));
        assert_eq!(bucket.estimate(4, at(5)), at(15));
        bucket.take(3, at(5)).unwrap();
        assert_eq!(bucket.estimate(1, at(5)), at(15));
        assert_eq!(bucket.estimate(100, at(5)), at(1_005));
        assert_eq!(bucket.estimate(u64::MAX, at(5)), Time::from_nanos(u64::MAX));
    }

    #[test]
    fn giving_back_is_exact_when_nothing_went_since() {
        let mut bucket = Bucket::new(10 * MS, 2);
        bucket.take(1, at(0)).unwrap();
        let charge = bucket.take(1, at(0)).unwrap();
        bucket.give_back(charge);
        assert_eq!(bucket.ready_at(1, at(0)), at(0));
        assert_eq!(bucket.ready_at(2, at(0)), at(10));
    }

    /// X at 0 (never sent), Y at 20, X given back at 21. Taken off plainly, the next would go at 21.
    #[test]
    fn giving_back_after_the_bucket_was_full_again_mints_nothing() {
        let mut bucket = Bucket::new(10 * MS, 1);
        let x = bucket.take(1, at(0)).unwrap();
        bucket.take(1, at(20)).unwrap();
        bucket.give_back(x);
        assert_eq!(bucket.ready_at(1, at(21)), at(30));

        let mut bucket = Bucket::new(10 * MS, 10);
        let x = bucket.take(10, at(0)).unwrap();
        bucket.take(1, at(50)).unwrap();
        bucket.give_back(x);
        assert_eq!(bucket.ready_at(9, at(50)), at(50));
        assert_eq!(bucket.ready_at(10, at(50)), at(60));
    }

    #[test]
    fn years_of_idling_and_the_end_of_time_change_nothing() {
        let mut bucket = Bucket::new(MS, 5);
        let late = Time::from_nanos(500 * 365 * 86_400 * 1_000 * MS);
        bucket.take(5, late).unwrap();
        assert_eq!(bucket.take(1, late).unwrap_err(), late.plus(MS));
    }
}
