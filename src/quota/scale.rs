//! How a bucket of any rate and burst is counted in whole numbers that fit.

use std::borrow::Cow;
use std::time::Duration;

/// A bucket's interval is rounded up to whole nanoseconds: below this, by more than a thousandth.
const SHORTEST_INTERVAL_NANOS: u64 = 1_000;

/// What a bucket takes to fill, in ticks, leaves room for the clock in 64 bits.
const LONGEST_FILL_TICKS: u128 = 1 << 61;

/// A bucket in the numbers that its decision is taken in.
///
/// Very high rates are counted in *grains* of several units, for their interval to be long enough to be rounded; very
/// long times are counted in *ticks* of more than a nanosecond. Almost every bucket has grains of one unit and ticks
/// of one nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) grain: u64,
    pub(crate) tick_nanos: u64,
    /// The time in which one grain is gained, in ticks, rounded up.
    pub(crate) interval_ticks: u64,
    /// How many grains the full bucket holds.
    pub(crate) burst: u32,
}

impl Scale {
    /// `count` in each `period`, and `burst` at once, all of them above zero; or what is allowed instead.
    pub(crate) fn new(count: u64, period: Duration, burst: u64) -> Result<Self, Cow<'static, str>> {
        let grain = grain(count, period.as_nanos(), burst);
        // What is left of a grain once it was bought may go later, on top of a full bucket: room for it is kept.
        let grains = burst.saturating_sub(grain - 1) / grain;
        let Some(burst) = u32::try_from(grains).ok().filter(|burst| *burst > 0) else {
            return Err(format!("a burst of at least {}, at that rate", grain.saturating_mul(2) - 1).into());
        };
        let interval_nanos = (u128::from(grain) * period.as_nanos()).div_ceil(u128::from(count));
        for tick_nanos in [1, 1_000, 1_000_000, 1_000_000_000] {
            let interval = interval_nanos.div_ceil(u128::from(tick_nanos));
            if let (true, Ok(interval_ticks)) =
                (interval * u128::from(burst) <= LONGEST_FILL_TICKS, interval.try_into())
            {
                return Ok(Self { grain, tick_nanos, interval_ticks, burst });
            }
        }
        Err("a smaller burst, or a shorter period".into())
    }

    /// So many percent of the rate and of the burst, rounded up: something is left.
    pub(crate) fn lowered(self, percent: u64) -> Self {
        let burst = (u64::from(self.burst) * percent).div_ceil(100).max(1);
        let longest = u64::try_from(LONGEST_FILL_TICKS / u128::from(burst)).unwrap_or(u64::MAX);
        let interval_ticks = (u128::from(self.interval_ticks) * 100).div_ceil(u128::from(percent.max(1)));
        let interval_ticks = u64::try_from(interval_ticks).unwrap_or(u64::MAX).min(longest.max(self.interval_ticks));
        Self { interval_ticks, burst: u32::try_from(burst).unwrap_or(self.burst), ..self }
    }

    /// How many units the full bucket holds.
    pub(crate) fn capacity(&self) -> u64 {
        self.grain.saturating_mul(u64::from(self.burst))
    }
}

/// How many units are counted as one: one, unless its interval would be rounded too much, or the burst not fit.
fn grain(count: u64, period_nanos: u128, burst: u64) -> u64 {
    let count = u128::from(count);
    let exact = period_nanos.is_multiple_of(count) || period_nanos / count >= u128::from(SHORTEST_INTERVAL_NANOS);
    let for_rate = if exact { 1 } else { (u128::from(SHORTEST_INTERVAL_NANOS) * count).div_ceil(period_nanos) };
    u64::try_from(for_rate).unwrap_or(u64::MAX).max(burst.div_ceil(u64::from(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(count: u64, period_nanos: u64, burst: u64) -> Result<Scale, Cow<'static, str>> {
        Scale::new(count, Duration::from_nanos(period_nanos), burst)
    }

    fn plain(interval_ticks: u64, burst: u32) -> Scale {
        Scale { grain: 1, tick_nanos: 1, interval_ticks, burst }
    }

    const SECOND: u64 = 1_000_000_000;
    const YEAR: u64 = 365 * 86_400 * SECOND;

    #[test]
    fn ordinary_buckets_are_counted_in_units_and_nanoseconds() {
        assert_eq!(scale(10, SECOND, 20), Ok(plain(100_000_000, 20)));
        assert_eq!(scale(7, 60 * SECOND, 1), Ok(plain(8_571_428_572, 1)));
        assert_eq!(scale(SECOND, SECOND, 5), Ok(plain(1, 5)));
    }

    #[test]
    fn high_rates_are_counted_in_larger_units() {
        // 2 000 in 1 000 ns; 1 999 may be left over from what was bought, and are kept out of the burst.
        let fast = Scale { grain: 2_000, tick_nanos: 1, interval_ticks: 1_000, burst: 49 };
        assert_eq!(scale(2 * SECOND, SECOND, 100_000), Ok(fast));
        assert_eq!(fast.capacity(), 98_000);
        assert_eq!(scale(2 * SECOND, SECOND, 3_998).unwrap_err(), "a burst of at least 3999, at that rate");
        assert_eq!(scale(2 * SECOND, SECOND, 3_999).unwrap().burst, 1);
    }

    #[test]
    fn a_lowered_one_gains_less_and_holds_less_and_never_nothing() {
        assert_eq!(plain(100, 20).lowered(70), plain(143, 14));
        assert_eq!(plain(100, 1).lowered(5), plain(2_000, 1));
        assert_eq!(plain(100, 20).lowered(100), plain(100, 20));
        let slow = plain(1 << 61, 1);
        assert_eq!(slow.lowered(5), slow, "what is as slow as can be counted stays");
    }

    #[test]
    fn long_times_are_counted_in_longer_ticks() {
        let slow = Scale { grain: 1, tick_nanos: 1_000, interval_ticks: YEAR / 1_000, burst: 1_000 };
        assert_eq!(scale(1, YEAR, 1_000), Ok(slow));
        assert!(scale(1, 100 * YEAR, u64::from(u32::MAX)).is_err());
        assert_eq!(scale(1, SECOND, 1 << 40).unwrap().grain, 257);
    }
}
