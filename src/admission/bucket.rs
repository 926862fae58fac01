//! Rate r, burst b: governor's decision over a store that we can peek at, give back to and charge.

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

use crate::quota::Scale;
use crate::time::{LATE_WAKE_CREDIT, Time, nanos};

/// The latest instant, and the deepest debt, in ticks: with what a bucket takes to fill they stay below 2^64, which
/// governor's sums are not checked for.
const END_OF_TIME: u64 = 1 << 62;

/// A bucket. Full to begin with.
///
/// What goes is bought in whole grains of the [`Scale`]; what is left of a grain pays for what goes next.
pub(super) struct Bucket {
    governor: RateLimiter<NotKeyed, Cells, Cells, NoOpMiddleware<Ticks>>,
    cells: Cells,
    scale: Scale,
    /// Units that were bought and have not gone.
    left: u64,
    /// Units bought since the beginning, and when the last were: what a give-back may restore depends on them.
    bought: u64,
    bought_at: Ticks,
    /// The count at the last drain: what was charged before it is gone, and cannot come back.
    drained: u64,
}

/// A charge that was made, as far as giving it back needs it: the bucket's count right after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    bought: u64,
    at: Time,
}

impl Bucket {
    pub(super) fn new(scale: Scale) -> Self {
        let cells = Cells::default();
        Self { governor: decision(scale, &cells), cells, scale, left: 0, bought: 0, bought_at: Ticks(0), drained: 0 }
    }

    /// The most that can ever go at once.
    pub(super) fn capacity(&self) -> u64 {
        self.scale.capacity()
    }

    pub(super) fn is_full(&self, now: Time) -> bool {
        self.full_at() <= self.ticks(now).0
    }

    /// When `cost` can go if nothing else does first: governor's answer, and nothing changes.
    pub(super) fn ready_at(&self, cost: u64, now: Time) -> Time {
        let answer = self.decide(self.to_buy(cost), self.ticks(now), true);
        answer.err().map_or(now, |at| self.time(at).max(now))
    }

    /// Takes `cost`, if it is there.
    pub(super) fn take(&mut self, cost: u64, now: Time) -> Result<Charge, Time> {
        let (grains, now) = (self.to_buy(cost), self.ticks(now));
        self.decide(grains, now, false).map_err(|at| self.time(at))?;
        Ok(self.bought(cost, grains, now))
    }

    /// Takes `cost` whether it is there or not, into debt.
    pub(super) fn charge(&mut self, cost: u64, now: Time) -> Charge {
        let (grains, now) = (self.to_buy(cost), self.ticks(now));
        let full_at = self.full_at().max(now.0).saturating_add(self.span(grains));
        self.set_full_at(full_at);
        self.bought(cost, grains, now)
    }

    fn bought(&mut self, cost: u64, grains: u64, now: Ticks) -> Charge {
        let units = grains.saturating_mul(self.scale.grain);
        self.left = self.left.saturating_add(units).saturating_sub(cost);
        if grains > 0 {
            self.bought = self.bought.wrapping_add(units);
            // What left late is charged a little back.
            self.bought_at = self.bought_at.max(now);
        }
        Charge { bought: self.bought, at: self.time(now) }
    }

    /// What was charged leaves only now. If that is later than it is credited for, it is charged anew, as late as that;
    /// `None` if it is not there any more then, and gone.
    pub(super) fn sent(&mut self, cost: u64, charge: Charge, now: Time) -> Option<Charge> {
        let at = now.minus(nanos(LATE_WAKE_CREDIT));
        if self.time(self.ticks(at)) <= charge.at {
            return Some(charge);
        }
        self.give_back(cost, charge);
        // One that paces lets go what is more than it holds.
        if self.ready_at(cost.min(self.capacity()), at) > at {
            return None;
        }
        Some(self.charge(cost, at))
    }

    /// When the last of `cost` units that go one by one as they come can go, whatever the burst.
    pub(super) fn estimate(&self, cost: u64, now: Time) -> Time {
        let filled = self.full_at().max(self.ticks(now).0).saturating_add(self.span(self.to_buy(cost)));
        self.time(Ticks(filled.saturating_sub(self.span(self.scale.burst.into())))).max(now)
    }

    /// Undoes so much of a charge.
    ///
    /// Taking it off the level would mint units when the bucket has been full since: what came in meanwhile ran
    /// over, and the charge with it. So the bucket is never made fuller than it would be had it been full at its
    /// last charge, with only what was charged since then on it.
    pub(super) fn give_back(&mut self, amount: u64, charge: Charge) {
        let since = self.bought.wrapping_sub(charge.bought);
        if since >= self.bought.wrapping_sub(self.drained) {
            return;
        }
        self.left = self.left.saturating_add(amount);
        let grains = self.left / self.scale.grain;
        self.left %= self.scale.grain;
        let plain = self.full_at().saturating_sub(self.span(grains));
        let floor = self.bought_at.0.saturating_add(self.span(since.div_ceil(self.scale.grain)));
        self.set_full_at(plain.max(self.full_at().min(floor)));
    }

    /// At this instant no more than one unit is there: enough for a probe, and then the rate.
    pub(super) fn drain(&mut self, at: Time) {
        self.left = 0;
        self.drained = self.bought;
        let one_there = self.ticks(at).0.saturating_add(self.span(u64::from(self.scale.burst) - 1));
        self.set_full_at(self.full_at().max(one_there));
    }

    /// Another rate and burst. What has been spent stays spent, in units; so nothing is minted and nothing lost.
    pub(super) fn retune(&mut self, scale: Scale, now: Time) {
        let old = self.scale;
        let now_old = self.ticks(now).0;
        let now_new = now.as_nanos() / scale.tick_nanos;
        // An instant as far from now as the new rate takes to gain what the old one gains until there, rounded up.
        let moved = |at: u64| {
            let grains = u128::from(at.abs_diff(now_old)).saturating_mul(old.grain.into());
            let stretched = grains.saturating_mul(scale.interval_ticks.into());
            let per = u128::from(old.interval_ticks).saturating_mul(scale.grain.into());
            let rounded = if at < now_old { stretched / per } else { stretched.div_ceil(per) };
            let distance = u64::try_from(rounded).unwrap_or(u64::MAX);
            if at < now_old { now_new.saturating_sub(distance) } else { now_new.saturating_add(distance) }
        };
        let (full_at, bought_at) = (moved(self.full_at()), moved(self.bought_at.0));
        self.scale = scale;
        self.left = 0;
        self.bought_at = Ticks(bought_at);
        self.governor = decision(scale, &self.cells);
        self.set_full_at(full_at);
    }

    fn to_buy(&self, cost: u64) -> u64 {
        cost.saturating_sub(self.left).div_ceil(self.scale.grain)
    }

    fn decide(&self, grains: u64, now: Ticks, peek: bool) -> Result<(), Ticks> {
        let never = Err(Ticks(u64::MAX));
        let Ok(grains) = u32::try_from(grains) else { return never };
        let Some(grains) = NonZeroU32::new(grains) else { return Ok(()) };
        self.cells.0.now.store(now.0, Relaxed);
        self.cells.0.peek.store(peek, Relaxed);
        match self.governor.check_n(grains) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(not_until)) => Err(not_until.earliest_possible()),
            // More than the bucket ever holds.
            Err(_) => never,
        }
    }

    /// When it will be full, if nothing more goes ("theoretical arrival time" in the literature on GCRA).
    fn full_at(&self) -> u64 {
        self.cells.0.full_at.load(Relaxed)
    }

    fn set_full_at(&self, ticks: u64) {
        self.cells.0.full_at.store(ticks.min(END_OF_TIME), Relaxed);
    }

    /// How long the bucket takes to gain so many grains.
    fn span(&self, grains: u64) -> u64 {
        grains.saturating_mul(self.scale.interval_ticks)
    }

    /// Rounded down: what is due later is due later.
    fn ticks(&self, time: Time) -> Ticks {
        Ticks((time.as_nanos() / self.scale.tick_nanos).min(END_OF_TIME))
    }

    fn time(&self, ticks: Ticks) -> Time {
        Time::from_nanos(ticks.0.saturating_mul(self.scale.tick_nanos))
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("scale", &self.scale).field("full_at", &self.full_at()).finish_non_exhaustive()
    }
}

/// governor's limiter takes its beginning from the clock, which must stand at zero for that.
fn decision(scale: Scale, cells: &Cells) -> RateLimiter<NotKeyed, Cells, Cells, NoOpMiddleware<Ticks>> {
    cells.0.now.store(0, Relaxed);
    let burst = NonZeroU32::new(scale.burst).unwrap_or(NonZeroU32::MIN);
    // A scale's interval is above zero, and `with_period` fails on nothing else.
    let quota = governor::Quota::with_period(Duration::from_nanos(scale.interval_ticks))
        .unwrap_or_else(|| governor::Quota::per_second(burst));
    RateLimiter::new(quota.allow_burst(burst), cells.clone(), cells.clone())
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
    type Instant = Ticks;

    fn now(&self) -> Ticks {
        Ticks(self.0.now.load(Relaxed))
    }
}

/// An instant in ticks of the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ticks(u64);

impl Reference for Ticks {
    fn duration_since(&self, earlier: Self) -> Nanos {
        Nanos::new(self.0.saturating_sub(earlier.0))
    }

    fn saturating_sub(&self, duration: Nanos) -> Self {
        Self(self.0.saturating_sub(duration.as_u64()))
    }
}

impl Add<Nanos> for Ticks {
    type Output = Self;

    fn add(self, nanos: Nanos) -> Self {
        Self(self.0.saturating_add(nanos.as_u64()))
    }
}

#[cfg(test)]
mod tests;
