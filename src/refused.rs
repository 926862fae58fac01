//! Why not: [`Refused`], the one refusal of all layers.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::quota::Quota;
use crate::time::readable;

/// Our own limiter did not let a request go. Nothing was sent, and nothing was taken.
///
/// # Examples
///
/// ```
/// use reqwest_throttle::{Limiter, Quota, Reason};
/// use std::time::Duration;
///
/// let limiter = Limiter::new(Quota::every(Duration::from_secs(60)))?;
/// let _first = limiter.try_acquire()?;
/// let refused = limiter.try_acquire().unwrap_err();
/// assert_eq!(refused.reason, Reason::WouldWait);
/// assert!(refused.wait.is_some_and(|wait| wait <= Duration::from_secs(60)));
/// assert!(refused.to_string().contains("the limit is 1/min burst 1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// Whose limit is in the way: the host or the key, for a client; empty for the whole client, or a bare limiter.
    pub limit: String,
    /// The quota in the way, if it is one.
    pub quota: Option<Arc<Quota>>,
    /// The number of requests in flight in the way, if it is that.
    pub in_flight: Option<usize>,
    /// The server asked for a pause, and that is in the way. If no limit is in the way either, others are first.
    pub paused: bool,
    /// The server said that nothing is left of a limit, and that is in the way.
    pub stated: bool,
    /// How long one would have to wait, at the least, if that is known.
    pub wait: Option<Duration>,
    /// How many wait ahead.
    pub ahead: usize,
    /// How many responses of a client are open and nobody reads them: each holds its place in flight until it is read to its
    /// end, dropped, or given up.
    pub unread: usize,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// It would have to wait, and was only to be tried.
    WouldWait,
    /// It cannot go before its deadline, or could not.
    Deadline,
    /// It costs more than the quota ever lets go at once.
    CostExceedsQuota,
    /// The limiter counts requests in flight, and `wait` hands out no permit to count by: use `acquire`.
    NeedsPermit,
    /// There are too many keys (hosts, for a client), 100 000, and those that were looked at are all in use.
    TooManyKeys,
    /// It would have to wait, and there is no tokio runtime to wait on.
    NoRuntime,
    /// So many wait already as may.
    QueueFull,
    /// Its cancellation token was cancelled.
    Cancelled,
    /// The limiter was closed, or lets nobody new in.
    Closed,
}

impl Refused {
    /// Whether it would have been let go, had fewer been in flight or in the queue.
    pub(crate) fn is_for_room(&self) -> bool {
        self.in_flight.is_some() || self.reason == Reason::QueueFull
    }

    /// A refusal by nobody's quota; the limiter fills in what stood in the way.
    pub(crate) fn new(reason: Reason, limit: &str) -> Self {
        let limit = limit.to_owned();
        let (quota, in_flight, wait) = (None, None, None);
        Self { reason, limit, quota, in_flight, paused: false, stated: false, wait, ahead: 0, unread: 0 }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, remedy) = match self.reason {
            Reason::WouldWait => ("it would have to wait", "try again then, or wait with `acquire`"),
            Reason::Deadline if self.in_flight.is_some() => (
                "it did not go in the time that it may wait",
                "allow a longer wait, or read or drop the responses held",
            ),
            Reason::Deadline => ("it cannot go in the time that it may wait", "allow a longer wait"),
            Reason::CostExceedsQuota => ("it costs more than ever goes at once", "ask for less"),
            Reason::NeedsPermit => {
                ("requests in flight are counted by permits", "use `acquire` in the place of `wait`")
            }
            Reason::TooManyKeys => ("too many keys are in use at once", "use fewer, or wait until some are at rest"),
            Reason::NoRuntime => {
                ("it would have to wait outside a tokio runtime", "wait in one, as in `Runtime::block_on`")
            }
            Reason::QueueFull => ("so many wait already as may", "ask for less at once, or let more wait"),
            Reason::Cancelled => ("it was cancelled", "nothing was sent"),
            Reason::Closed => ("the limiter is closed", "make a new one"),
        };
        f.write_str(what)?;
        self.fmt_limit(f)?;
        if let Some(wait) = self.wait {
            write!(f, ", for {:?} at least", readable(wait))?;
        }
        match self.ahead {
            0 => {}
            ahead => write!(f, ", with {ahead} ahead")?,
        }
        match self.unread {
            0 => write!(f, "; {remedy}"),
            unread => {
                write!(f, "; {unread} responses are open that nobody reads: read them to their end, or drop them")
            }
        }
    }
}

impl Refused {
    fn fmt_limit(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.quota, self.in_flight, self.reason) {
            (Some(quota), ..) => write!(f, ": the limit is {quota}")?,
            (None, Some(most), _) => write!(f, ": the limit is {most} in flight")?,
            _ if self.stated => f.write_str(": the server said that nothing is left")?,
            _ if self.paused => f.write_str(": the server asked for a pause")?,
            (None, None, Reason::WouldWait | Reason::Deadline) => f.write_str(": others are first")?,
            (None, None, _) => {}
        }
        if self.limit.is_empty() { Ok(()) } else { write!(f, " for {}", self.limit) }
    }
}

impl Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_which_limit_how_long_and_how_many() {
        let mut refused = Refused::new(Reason::Deadline, "api.example.com");
        refused.quota = Some(Arc::new(Quota::per_second(10)));
        refused.wait = Some(Duration::from_micros(2_499_001));
        refused.ahead = 20;
        assert_eq!(
            refused.to_string(),
            "it cannot go in the time that it may wait: the limit is 10/s for api.example.com, for 2.5s at least, \
             with 20 ahead; allow a longer wait"
        );
    }
}
