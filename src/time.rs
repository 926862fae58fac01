//! When: nanoseconds since the limiter began.

use std::fmt;
use std::time::Duration;

/// An instant of the limiter's own clock. Sums stop at the far end (584 years) instead of wrapping.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Time(u64);

impl Time {
    pub(crate) const ZERO: Self = Self(0);

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) const fn plus(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    pub(crate) const fn minus(self, nanos: u64) -> Self {
        Self(self.0.saturating_sub(nanos))
    }

    /// How long after `earlier`; nothing if it is not after it.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    pub(crate) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// Timers fire late, by a millisecond or so, and tasks are polled later still. What was due within this before it really
/// went counts from when it was due; without that, a tenth of the rate is lost at 100/s and half at 1000/s.
pub(crate) const LATE_WAKE_CREDIT: Duration = Duration::from_millis(2);

/// The nanoseconds of a duration, at most what a `u64` holds.
pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}

/// To the next millisecond, for those who read it.
pub(crate) fn readable(duration: Duration) -> Duration {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_stop_at_the_ends() {
        assert_eq!(Time::from_nanos(u64::MAX).plus(1), Time::from_nanos(u64::MAX));
        assert_eq!(Time::ZERO.minus(1), Time::ZERO);
        assert_eq!(Time::ZERO.since(Time::from_nanos(5)), Duration::ZERO);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }
}
