//! After an attempt: how long everybody stays away, and whether the request goes out again, and when.

use std::time::Duration;

use crate::signal::{Fault, Signal};
use crate::wait::{Reply, Wait};

/// A stated wait above this is not slept on: the caller gets the response.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// What a response says about its gate. It stays shut for the stated wait, up to the most that is slept on. A wait of nothing
/// is as if unstated: going again at once would earn the next refusal. A failure shuts it only for as long as it states.
pub(crate) fn reply(signal: &Signal, random: u32) -> Reply {
    let stated = signal.wait.filter(|wait| !wait.is_zero()).map(|wait| Wait::Stated(wait.min(MAX_PAUSE), random));
    match signal {
        Signal { throttled: true, .. } => Reply::Refused(stated.unwrap_or(Wait::Unstated(random))),
        Signal { fault: Some(Fault::Unavailable | Fault::TooSlow), .. } => Reply::Failed(stated),
        _ => Reply::Taken,
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome<'a> {
    /// With a response, which says this.
    Answered(&'a Signal),
    /// Without one, and nothing was done: nobody was there, or the server gave it back untouched.
    Untouched,
    /// Without one, and nobody knows what was done.
    Unknown,
    /// As it would again: a bad address, a deadline, a body that fails.
    Final,
}

/// What an error says about what was done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) outcome: Outcome<'static>,
    /// Nobody took the connection: the server has counted nothing.
    pub(crate) is_connect: bool,
    /// The server did not answer in the time that it was given, whatever time the caller had.
    pub(crate) is_silence: bool,
}

/// What is known about a request besides its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// Whether it is there to be sent again: a stream is sent once.
    pub(crate) is_whole: bool,
    /// Whether doing it twice is as good as once.
    pub(crate) is_idempotent: bool,
    /// Whether a 503 is taken to say that nothing was done.
    pub(crate) trusts_503: bool,
    /// How many attempts are left after this one.
    pub(crate) left: usize,
    /// For how long its gate is shut.
    pub(crate) shut: Duration,
    /// How long it may still wait.
    pub(crate) budget: Duration,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    /// Again, once its gate lets it, which has been told how long to stay shut.
    AtTheGate {
        /// By the server.
        stated: bool,
    },
    /// Again, after a wait of its own.
    After(Duration),
}

/// How long to wait before a redirect is followed; `None` if that is too long.
pub(crate) fn before_a_hop(signal: &Signal, budget: Duration) -> Option<Duration> {
    Some(signal.wait.unwrap_or_default()).filter(|wait| *wait <= MAX_PAUSE && *wait <= budget)
}

/// Whether a request goes out again. `delay` is asked for a wait of its own only if it needs one; none ends the attempts.
pub(crate) fn decide(outcome: Outcome<'_>, attempt: Attempt, delay: impl FnOnce() -> Option<Duration>) -> Verdict {
    let may_be_repeated = match outcome {
        _ if attempt.left == 0 || !attempt.is_whole => false,
        Outcome::Answered(signal) => answer_may_be_repeated(signal, attempt),
        Outcome::Untouched => true,
        Outcome::Unknown => attempt.is_idempotent,
        Outcome::Final => false,
    };
    match outcome {
        _ if !may_be_repeated => Verdict::Done,
        // The gate is shut, and lets it go when it reopens.
        Outcome::Answered(&Signal { throttled, wait, .. }) if throttled || wait.is_some_and(|wait| !wait.is_zero()) => {
            let wait = wait.unwrap_or_default();
            let bearable = wait <= MAX_PAUSE && attempt.shut.max(wait) <= attempt.budget;
            if bearable { Verdict::AtTheGate { stated: !wait.is_zero() } } else { Verdict::Done }
        }
        _ => delay().filter(|delay| *delay <= attempt.budget).map_or(Verdict::Done, Verdict::After),
    }
}

fn answer_may_be_repeated(signal: &Signal, attempt: Attempt) -> bool {
    match signal.should_retry {
        Some(says) => says,
        // A 429 proves that nothing was done, so every method may be repeated.
        None if signal.throttled => true,
        None if signal.fault == Some(Fault::Unavailable) && attempt.trusts_503 => true,
        None => signal.fault.is_some() && attempt.is_idempotent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const AGAIN: Verdict = Verdict::After(Duration::ZERO);

    fn refused(seconds: Option<u64>) -> Signal {
        Signal { throttled: true, wait: seconds.map(Duration::from_secs), ..Signal::default() }
    }

    fn failed(seconds: Option<u64>) -> Signal {
        Signal { fault: Some(Fault::Unavailable), wait: seconds.map(Duration::from_secs), ..Signal::default() }
    }

    fn attempt() -> Attempt {
        let budget = Duration::from_secs(3_600);
        Attempt { is_whole: true, is_idempotent: false, trusts_503: false, left: 1, shut: Duration::ZERO, budget }
    }

    fn verdict(signal: &Signal, attempt: Attempt) -> Verdict {
        decide(Outcome::Answered(signal), attempt, || Some(Duration::ZERO))
    }

    #[test]
    fn a_refusal_always_pauses_and_never_for_nothing() {
        let seven = Wait::Stated(Duration::from_secs(7), 0);
        assert_eq!(reply(&refused(Some(7)), 0), Reply::Refused(seven));
        assert_eq!(reply(&refused(Some(86_400)), 0), Reply::Refused(Wait::Stated(MAX_PAUSE, 0)));
        assert_eq!(reply(&refused(Some(0)), 0), Reply::Refused(Wait::Unstated(0)));
        assert_eq!(reply(&refused(None), 0), Reply::Refused(Wait::Unstated(0)));
        assert_eq!(reply(&failed(Some(7)), 0), Reply::Failed(Some(seven)));
        assert_eq!((reply(&failed(None), 0), reply(&failed(Some(0)), 0)), (Reply::Failed(None), Reply::Failed(None)));
        assert_eq!(reply(&Signal::default(), 0), Reply::Taken);
        assert_eq!(
            reply(&Signal { fault: Some(Fault::Broken), ..Signal::default() }, 0),
            Reply::Taken,
            "broken, and not overloaded"
        );
    }

    #[test]
    fn a_refusal_with_a_bearable_wait_is_repeated_at_the_gate() {
        let (stated, unstated) = (Verdict::AtTheGate { stated: true }, Verdict::AtTheGate { stated: false });
        assert_eq!(verdict(&refused(Some(2)), attempt()), stated);
        assert_eq!(verdict(&refused(Some(600)), attempt()), stated);
        assert_eq!(verdict(&refused(Some(601)), attempt()), Verdict::Done);
        assert_eq!(verdict(&refused(None), attempt()), unstated);
        assert_eq!(verdict(&refused(Some(0)), attempt()), unstated);
        assert_eq!(verdict(&refused(Some(2)), Attempt { left: 0, ..attempt() }), Verdict::Done);
        assert_eq!(verdict(&refused(Some(2)), Attempt { is_whole: false, ..attempt() }), Verdict::Done);
        assert_eq!(verdict(&refused(Some(2)), Attempt { budget: 2 * SECOND, ..attempt() }), stated);
        assert_eq!(verdict(&refused(Some(3)), Attempt { budget: 2 * SECOND, ..attempt() }), Verdict::Done);
        let shut = Attempt { shut: 3 * SECOND, budget: 2 * SECOND, ..attempt() };
        assert_eq!((verdict(&refused(Some(2)), shut), verdict(&refused(None), shut)), (Verdict::Done, Verdict::Done));
    }

    #[test]
    fn a_failure_is_repeated_only_where_doing_it_twice_is_as_good_as_once() {
        let idempotent = Attempt { is_idempotent: true, ..attempt() };
        assert_eq!(verdict(&failed(None), idempotent), AGAIN);
        assert_eq!(verdict(&failed(None), attempt()), Verdict::Done);
        assert_eq!(verdict(&failed(None), Attempt { trusts_503: true, ..attempt() }), AGAIN);
        let internal = Signal { fault: Some(Fault::Broken), ..Signal::default() };
        assert_eq!(verdict(&internal, Attempt { trusts_503: true, ..attempt() }), Verdict::Done);
        assert_eq!(verdict(&failed(Some(2)), idempotent), Verdict::AtTheGate { stated: true });
        assert_eq!(verdict(&failed(Some(2)), attempt()), Verdict::Done);
        assert_eq!(verdict(&failed(Some(601)), idempotent), Verdict::Done);
        assert_eq!(verdict(&Signal::default(), idempotent), Verdict::Done);
    }

    #[test]
    fn what_the_server_says_about_going_again_goes_before_what_we_think() {
        let idempotent = Attempt { is_idempotent: true, ..attempt() };
        assert_eq!(verdict(&Signal { should_retry: Some(false), ..refused(Some(2)) }, attempt()), Verdict::Done);
        assert_eq!(verdict(&Signal { should_retry: Some(false), ..failed(None) }, idempotent), Verdict::Done);
        assert_eq!(verdict(&Signal { should_retry: Some(true), ..Signal::default() }, attempt()), AGAIN);
    }

    #[test]
    fn without_an_answer_it_depends_on_what_may_have_been_done() {
        let decide = |outcome, attempt| decide(outcome, attempt, || Some(Duration::ZERO));
        let idempotent = Attempt { is_idempotent: true, ..attempt() };
        assert_eq!(decide(Outcome::Untouched, attempt()), AGAIN);
        assert_eq!(decide(Outcome::Unknown, attempt()), Verdict::Done);
        assert_eq!(decide(Outcome::Unknown, idempotent), AGAIN);
        assert_eq!(decide(Outcome::Final, idempotent), Verdict::Done);
        assert_eq!(decide(Outcome::Untouched, Attempt { left: 0, ..attempt() }), Verdict::Done);
    }

    #[test]
    fn a_wait_of_ones_own_must_fit_into_the_budget_and_none_ends_the_attempts() {
        let short = Attempt { is_idempotent: true, budget: SECOND, ..attempt() };
        for (delay, verdict) in [
            (Some(SECOND), Verdict::After(SECOND)),
            (Some(SECOND + Duration::from_nanos(1)), Verdict::Done),
            (None, Verdict::Done),
        ] {
            assert_eq!(decide(Outcome::Untouched, short, || delay), verdict);
        }
        // What the server states is not asked of anybody else.
        let never = || panic!("asked for");
        assert_eq!(decide(Outcome::Answered(&refused(Some(1))), short, never), Verdict::AtTheGate { stated: true });
    }
}
