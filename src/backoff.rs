//! How long before the next attempt. Randomness is an argument: `u32::MAX` stands for "just under one".

use std::time::Duration;

/// A stated wait is jittered upward only: by a tenth of it at most, and by this at most.
const MOST_JITTER: Duration = Duration::from_secs(1);

/// The bounds of the while for which a refusal without a stated wait shuts a gate.
const LEAST_UNSTATED: Duration = Duration::from_secs(1);
const MOST_UNSTATED: Duration = Duration::from_secs(60);

/// The wait that a server stated, plus up to a tenth (and at most a second), so that a fleet that was told
/// the same number does not come back at the same instant. Never less than stated.
pub(crate) fn after_stated(wait: Duration, random: u32) -> Duration {
    wait.saturating_add(fraction((wait / 10).min(MOST_JITTER), random))
}

/// The while for which a refusal that states none shuts a gate: a second, then up to 2, 4, … 60 seconds, drawn from above
/// that first second (full jitter above a floor).
pub(crate) fn unstated(doublings: u32, random: u32) -> Duration {
    let most = LEAST_UNSTATED.saturating_mul(1 << doublings.min(16)).min(MOST_UNSTATED);
    LEAST_UNSTATED + fraction(most.saturating_sub(LEAST_UNSTATED), random)
}

/// What lies before the next attempt: exponential, with full jitter (as AWS calls it): anything up to
/// `first × 2^retries`, and up to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), most: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The wait after so many retries. Does not wrap: from some number on it is drawn from all of `most`.
    pub(crate) fn delay(self, retries: u32, random: u32) -> Duration {
        let factor = 1_u32.checked_shl(retries).filter(|factor| *factor > 0).unwrap_or(u32::MAX);
        fraction(self.first.saturating_mul(factor).min(self.most), random)
    }
}

/// So much of a duration, `random` of 2^32 parts.
fn fraction(whole: Duration, random: u32) -> Duration {
    // A fraction of a duration is one, so its nanoseconds fit wherever the whole's do.
    let nanos = whole.as_nanos().saturating_mul(random.into()) >> 32;
    let subsecond = u32::try_from(nanos % 1_000_000_000).unwrap_or(0);
    Duration::new(u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX), subsecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_wait_is_lengthened_by_a_tenth_or_a_second_and_never_shortened() {
        let (two, hour) = (Duration::from_secs(2), Duration::from_secs(3_600));
        assert_eq!(after_stated(two, 0), two);
        assert_eq!(after_stated(two, 1 << 31), Duration::from_millis(2_100));
        assert!(after_stated(two, u32::MAX) < Duration::from_millis(2_200));
        assert!(after_stated(hour, u32::MAX) < hour + MOST_JITTER);
        assert_eq!(after_stated(Duration::MAX, u32::MAX), Duration::MAX);
    }

    #[test]
    fn an_unstated_wait_doubles_from_a_second_to_a_minute_and_is_never_less_than_a_second() {
        for (doublings, most) in [(0, 1), (1, 2), (2, 4), (5, 32), (6, 60), (7, 60), (100, 60), (u32::MAX, 60)] {
            let longest = unstated(doublings, u32::MAX);
            assert!(Duration::from_secs(most).abs_diff(longest) < Duration::from_micros(1), "{doublings}: {longest:?}");
        }
        for doublings in 0..200 {
            assert_eq!(unstated(doublings, 0), Duration::from_secs(1));
        }
    }

    #[test]
    fn a_delay_grows_to_its_cap_and_never_wraps() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(30) };
        let longest: Vec<_> = (0..200).map(|retries| backoff.delay(retries, u32::MAX)).collect();
        assert!(longest.is_sorted());
        let near =
            |delay: Duration, seconds: u64| Duration::from_secs(seconds).abs_diff(delay) < Duration::from_micros(1);
        assert!(near(longest[0], 1) && near(longest[4], 16) && longest[5..].iter().all(|delay| near(*delay, 30)));
        assert_eq!(Backoff::default().delay(3, 0), Duration::ZERO);
    }
}
