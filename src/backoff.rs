//! How long before the next attempt. Randomness is an argument: `u32::MAX` stands for "just under one".

use std::time::Duration;

/// A stated wait is jittered upward only: by a tenth of it at most, and by this at most.
const MOST_JITTER: Duration = Duration::from_secs(1);

/// The wait that a server stated, plus up to a tenth (and at most a second), so that a fleet that was told
/// the same number does not come back at the same instant. Never less than stated.
pub(crate) fn after_stated(wait: Duration, random: u32) -> Duration {
    let most = (wait / 10).min(MOST_JITTER);
    let jitter = (most.as_nanos() * u128::from(random)) >> 32;
    wait.saturating_add(Duration::from_nanos(u64::try_from(jitter).unwrap_or(u64::MAX)))
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
}
