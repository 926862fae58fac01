//! After an attempt: how long everybody stays away, and whether the request goes out again.

use std::time::Duration;

use crate::signal::Signal;

/// A stated wait above this is not slept on: the caller gets the response.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(600);

/// What a refusal without a usable wait (none, or zero) is taken to ask for.
const UNSTATED_PAUSE: Duration = Duration::from_secs(1);

/// How long nobody may pass the gate of a response, if it says so.
pub(crate) fn pause(signal: Signal) -> Option<Duration> {
    let stated = signal.wait.unwrap_or_default();
    signal.throttled.then(|| stated.max(UNSTATED_PAUSE))
}

/// What is known about a request besides its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// How many attempts are left after this one.
    pub(crate) left: usize,
    /// Its body can be sent a second time.
    pub(crate) replayable: bool,
}

/// Whether the request goes out again, once its gate lets it.
pub(crate) fn again(signal: Signal, attempt: Attempt) -> bool {
    // A 429 proves that nothing was done, so every method may be repeated.
    pause(signal).is_some_and(|pause| pause <= MAX_PAUSE) && attempt.left > 0 && attempt.replayable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_always_pauses_and_never_for_nothing() {
        let pause = |throttled, wait: Option<u64>| {
            pause(Signal { throttled, wait: wait.map(Duration::from_secs) }).map(|p| p.as_secs())
        };
        assert_eq!(pause(true, Some(7)), Some(7));
        assert_eq!(pause(true, Some(0)), Some(1));
        assert_eq!(pause(true, None), Some(1));
        assert_eq!(pause(false, None), None);
    }

    #[test]
    fn only_a_refusal_with_a_bearable_wait_is_repeated() {
        let refused = |seconds: Option<u64>| Signal { throttled: true, wait: seconds.map(Duration::from_secs) };
        let attempt = Attempt { left: 1, replayable: true };
        assert!(again(refused(Some(2)), attempt));
        assert!(again(refused(Some(600)), attempt));
        assert!(!again(refused(Some(601)), attempt));
        assert!(again(refused(None), attempt));
        assert!(!again(Signal::default(), attempt));
        assert!(!again(refused(Some(2)), Attempt { left: 0, ..attempt }));
        assert!(!again(refused(Some(2)), Attempt { replayable: false, ..attempt }));
    }
}
