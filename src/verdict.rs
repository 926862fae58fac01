//! After an attempt: how long everybody stays away, and whether the request goes out again.

use std::time::Duration;

use crate::backoff;
use crate::signal::Signal;
use crate::wait::Wait;

/// A stated wait above this is not slept on: the caller gets the response.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// How long nobody may pass the gate of a response, if it refuses: the stated wait and a little more, up to the most that
/// is slept on. A wait of nothing is as if unstated: going again at once would earn the next refusal.
pub(crate) fn wait(signal: Signal, random: u32) -> Option<Wait> {
    let wait = match signal.wait {
        Some(wait) if !wait.is_zero() => Wait::Stated(backoff::after_stated(wait.min(MAX_PAUSE), random)),
        _ => Wait::Unstated(random),
    };
    signal.throttled.then_some(wait)
}

/// What is known about a request besides its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// How many attempts are left after this one.
    pub(crate) left: usize,
    /// How long it may still wait.
    pub(crate) budget: Duration,
}

/// Whether a request that can be sent a second time goes out again, once its gate lets it.
pub(crate) fn again(signal: Signal, attempt: Attempt) -> bool {
    // A 429 proves that nothing was done, so every method may be repeated.
    let wait = signal.wait.unwrap_or_default();
    signal.throttled && attempt.left > 0 && wait <= MAX_PAUSE && wait <= attempt.budget
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_always_pauses_and_never_for_nothing() {
        let wait =
            |throttled, seconds: Option<u64>| wait(Signal { throttled, wait: seconds.map(Duration::from_secs) }, 0);
        assert_eq!(wait(true, Some(7)), Some(Wait::Stated(Duration::from_secs(7))));
        assert_eq!(wait(true, Some(86_400)), Some(Wait::Stated(MAX_PAUSE)));
        assert_eq!(wait(true, Some(0)), Some(Wait::Unstated(0)));
        assert_eq!(wait(true, None), Some(Wait::Unstated(0)));
        assert_eq!(wait(false, None), None);
    }

    #[test]
    fn only_a_refusal_with_a_bearable_wait_is_repeated() {
        let refused = |seconds: Option<u64>| Signal { throttled: true, wait: seconds.map(Duration::from_secs) };
        let attempt = Attempt { left: 1, budget: Duration::from_secs(3_600) };
        assert!(again(refused(Some(2)), attempt));
        assert!(again(refused(Some(600)), attempt));
        assert!(!again(refused(Some(601)), attempt));
        assert!(again(refused(None), attempt));
        assert!(!again(Signal::default(), attempt));
        assert!(!again(refused(Some(2)), Attempt { left: 0, ..attempt }));
        assert!(again(refused(Some(2)), Attempt { budget: Duration::from_secs(2), ..attempt }));
        assert!(!again(refused(Some(3)), Attempt { budget: Duration::from_secs(2), ..attempt }));
    }
}
