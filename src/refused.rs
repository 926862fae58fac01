//! Why not: [`Refused`], the one refusal of all layers.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::quota::Quota;

/// Our own limiter did not let a request go. Nothing was sent, and nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// Whose limit is in the way: the host, for a client; empty for a bare limiter.
    pub limit: String,
    /// The quota in the way, if it is one.
    pub quota: Option<Quota>,
    /// The number of requests in flight in the way, if it is that.
    pub in_flight: Option<usize>,
    /// How long one would have to wait, at the least, if that is known.
    pub wait: Option<Duration>,
    /// How many wait ahead.
    pub ahead: usize,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// It would have to wait, and was only to be tried.
    WouldWait,
    /// It cannot go before its deadline, or could not.
    Deadline,
    /// The limiter counts requests in flight, and `wait` hands out no permit to count by: use `acquire`.
    NeedsPermit,
    /// It would have to wait, and there is no tokio runtime to wait on.
    NoRuntime,
}

impl Refused {
    /// A refusal by nobody's quota; the limiter fills in what stood in the way.
    pub(crate) fn new(reason: Reason, limit: &str) -> Self {
        let limit = limit.to_owned();
        Self { reason, limit, quota: None, in_flight: None, wait: None, ahead: 0 }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::WouldWait => f.write_str("it would have to wait")?,
            Reason::Deadline => f.write_str("it cannot go before its deadline")?,
            Reason::NeedsPermit => return f.write_str("requests in flight are limited: use `acquire`, not `wait`"),
            Reason::NoRuntime => return f.write_str("it would have to wait, and only a tokio runtime can"),
        }
        self.fmt_limit(f)?;
        if let Some(wait) = self.wait {
            write!(f, ", for {wait:?} at least")?;
        }
        write!(f, " with {} ahead; allow a longer wait, or ask for less", self.ahead)
    }
}

impl Refused {
    fn fmt_limit(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.quota, self.in_flight) {
            (Some(quota), _) => write!(f, ": the limit is {quota}")?,
            (None, Some(most)) => write!(f, ": the limit is {most} in flight")?,
            (None, None) => f.write_str(": the server asked for a pause")?,
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
        refused.quota = Some(Quota::per_second(10));
        refused.wait = Some(Duration::from_millis(2_500));
        refused.ahead = 20;
        assert_eq!(
            refused.to_string(),
            "it cannot go before its deadline: the limit is 10/s for api.example.com, for 2.5s at least \
             with 20 ahead; allow a longer wait, or ask for less"
        );
    }
}
