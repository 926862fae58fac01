//! Rate r, burst b: governor's decision over a level that we charge and give back to.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
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
    /// Units that went since the beginning, and when the last did: what a give-back may restore depends on them.
    bought: u64,
    bought_at: Ticks,
    /// Counts the drains: what was charged before one is gone, and cannot come back.
    drains: u64,
    /// When the last drain's reopening is, or was.
    reopens: Time,
}

/// A charge that was made, as far as giving it back needs it: when, and the bucket's counts right after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    bought: u64,
    drains: u64,
    at: Time,
}

impl Bucket {
    pub(super) fn new(scale: Scale) -> Self {
        let cells = Cells::default();
        let (governor, reopens) = (decision(scale, &cells), Time::ZERO);
        Self { governor, cells, scale, left: 0, bought: 0, bought_at: Ticks(0), drains: 0, reopens }
    }

    /// The most that can ever go at once.
    pub(super) fn capacity(&self) -> u64 {
        self.scale.capacity()
    }

    /// How many could go now.
    pub(super) fn level(&self, now: Time) -> u64 {
        let missing = self.full_at().saturating_sub(self.ticks(now).0).div_ceil(self.scale.interval_ticks);
        let grains = u64::from(self.scale.burst).saturating_sub(missing);
        grains.saturating_mul(self.scale.grain).saturating_add(self.left)
    }

    /// One for somebody who was counted by this one up to now.
    pub(super) fn split(&self) -> Self {
        let split = Self::new(self.scale);
        split.set_full_at(self.full_at());
        let Self { left, bought, bought_at, drains, reopens, .. } = *self;
        Self { left, bought, bought_at, drains, reopens, ..split }
    }

    pub(super) fn is_full(&self, now: Time) -> bool {
        self.full_at() <= self.ticks(now).0
    }

    /// When `cost` can go if nothing else does first: governor's answer.
    pub(super) fn ready_at(&self, cost: u64, now: Time) -> Time {
        let never = Time::from_nanos(u64::MAX);
        let Ok(grains) = u32::try_from(self.to_buy(cost)) else { return never };
        let Some(grains) = NonZeroU32::new(grains) else { return now };
        self.cells.0.now.store(self.ticks(now).0, Relaxed);
        match self.governor.check_n(grains) {
            Ok(Ok(())) => now,
            Ok(Err(not_until)) => self.time(not_until.earliest_possible()).max(now),
            // More than the bucket ever holds.
            Err(_) => never,
        }
    }

    /// Takes `cost`. What is not there goes into debt.
    #[inline]
    pub(super) fn charge(&mut self, cost: u64, now: Time) -> Charge {
        let (grains, now) = (self.to_buy(cost), self.ticks(now));
        if grains > 0 {
            self.set_full_at(self.full_at().max(now.0).saturating_add(self.span(grains)));
        }
        let units = grains.saturating_mul(self.scale.grain);
        self.left = self.left.saturating_add(units).saturating_sub(cost);
        if cost > 0 {
            self.bought = self.bought.wrapping_add(cost);
            // What left late is charged a little back.
            self.bought_at = self.bought_at.max(now);
        }
        Charge { bought: self.bought, drains: self.drains, at: self.time(now) }
    }

    /// Takes `cost` for what somebody else took at this instant, less what has come in since, up to what was charged later.
    pub(super) fn count(&mut self, cost: u64, at: Time) {
        let later = self.bought_at.0.saturating_sub(self.ticks(at).0) / self.scale.interval_ticks;
        self.charge(cost.saturating_sub(later.saturating_mul(self.scale.grain)), at);
    }

    /// Takes more for what was charged before. What comes back of it later is as old as the first of it.
    pub(super) fn charge_more(&mut self, cost: u64, first: Charge, now: Time) -> Charge {
        self.charge(cost, now);
        Charge { bought: first.bought.wrapping_add(cost), ..first }
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
        if charge.drains != self.drains {
            return;
        }
        let since = self.bought.wrapping_sub(charge.bought);
        let left = self.left.saturating_add(amount);
        let (grains, rest) = (left / self.scale.grain, left % self.scale.grain);
        let plain = self.full_at().saturating_sub(self.span(grains));
        let floor = self.bought_at.0.saturating_add(self.span(since.div_ceil(self.scale.grain)));
        // What is less than a grain only comes back if all of the rest does, or it would come back again and again.
        let all = plain >= floor.saturating_add(self.span(1));
        self.left = if all { rest } else { rest.min(self.left) };
        self.set_full_at(plain.max(self.full_at().min(floor)));
    }

    /// At this instant no more than one unit is there: enough for a probe, and then the rate.
    pub(super) fn drain(&mut self, at: Time) {
        self.left = 0;
        self.drains += 1;
        self.reopens = self.reopens.max(at);
        self.set_full_at(self.full_at().max(one_there(at, self.scale)));
    }

    /// At this instant nothing is there, and from now on it comes in at the rate.
    pub(super) fn begin_empty(&mut self, now: Time) {
        self.drain(now);
        self.charge(1, now);
    }

    /// Another rate and burst. What has been spent stays spent, in units; so nothing is minted and nothing lost, also by
    /// going there and back again. One that is drained holds one unit at the reopening, as before.
    pub(super) fn retune(&mut self, scale: Scale, now: Time) {
        let old = std::mem::replace(&mut self.scale, scale);
        if old == scale {
            return;
        }
        let full_at = if self.reopens > now {
            // What is owed beyond that one unit is owed still.
            let owed = self.full_at().saturating_sub(one_there(self.reopens, old));
            one_there(self.reopens, scale).saturating_add(scaled(owed, old, scale, u128::div_ceil))
        } else {
            moved(self.full_at(), now, old, scale)
        };
        self.bought_at = Ticks(moved(self.bought_at.0, now, old, scale).min(END_OF_TIME));
        self.left = 0;
        self.governor = decision(scale, &self.cells);
        self.set_full_at(full_at);
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn assert_sound(&self, now: Time) {
        assert!(self.left < self.scale.grain.max(1), "less than a grain is left over");
        assert!(self.full_at() <= END_OF_TIME, "a debt that fits");
        assert!(self.level(now) <= self.capacity().saturating_add(self.left), "no fuller than full");
    }

    fn to_buy(&self, cost: u64) -> u64 {
        cost.saturating_sub(self.left).div_ceil(self.scale.grain)
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

/// When a bucket is full that holds one grain at this instant.
fn one_there(at: Time, scale: Scale) -> u64 {
    let missing = (u64::from(scale.burst) - 1).saturating_mul(scale.interval_ticks);
    (at.as_nanos() / scale.tick_nanos).min(END_OF_TIME).saturating_add(missing)
}

/// An instant as far from now as the new scale takes to gain what the old one gains until there, rounded up.
fn moved(at: u64, now: Time, old: Scale, new: Scale) -> u64 {
    let (now_old, now_new) = (now.as_nanos() / old.tick_nanos, now.as_nanos() / new.tick_nanos);
    match at.checked_sub(now_old) {
        Some(later) => now_new.saturating_add(scaled(later, old, new, u128::div_ceil)),
        None => now_new.saturating_sub(scaled(now_old - at, old, new, |ticks, per| ticks / per)),
    }
}

/// The ticks in which the new scale gains as much as the old one does in these.
fn scaled(ticks: u64, old: Scale, new: Scale, divide: impl Fn(u128, u128) -> u128) -> u64 {
    let grains = u128::from(ticks).saturating_mul(old.grain.into());
    let stretched = grains.saturating_mul(new.interval_ticks.into());
    let per = u128::from(old.interval_ticks).saturating_mul(new.grain.into());
    u64::try_from(divide(stretched, per)).unwrap_or(END_OF_TIME)
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

/// governor's store and clock: two plain cells, which it only reads. They are atomic because governor owns one handle and
/// the bucket the other; whoever holds the limiter's lock is alone with them.
#[derive(Clone, Default)]
struct Cells(Arc<Inner>);

#[derive(Default)]
struct Inner {
    full_at: AtomicU64,
    now: AtomicU64,
}

impl StateStore for Cells {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        decide(Some(Nanos::new(self.0.full_at.load(Relaxed)))).map(|(answer, _)| answer)
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
