//! Why does a request wait: [`Waits`], told to whoever wants to know.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::time::readable;

/// Somebody has waited for a second. See [`LimiterBuilder::on_wait`](crate::LimiterBuilder::on_wait).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// The keys of all that it has to pass: the host, for a client; empty for a bare limiter.
    pub keys: Vec<String>,
    /// What the first of its kind waits for, in words: that of the same priority and flow.
    pub why: String,
    /// How many of those are ahead, counted up to 64.
    pub ahead: usize,
    /// How long it has waited.
    pub waited: Duration,
    /// How much longer it has to at the least, as things stand.
    pub at_least: Duration,
    /// How many responses of the client are open and nobody reads them: each holds its place in flight.
    pub unread: usize,
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, ahead, waited, at_least, .. } = self;
        let (waited, at_least) = (readable(*waited), readable(*at_least));
        write!(f, "waits since {waited:?}, with {ahead} ahead: {why}; {at_least:?} more at least")?;
        match self.keys.iter().filter(|key| !key.is_empty()).cloned().collect::<Vec<_>>().join(" + ") {
            keys if keys.is_empty() => {}
            keys => write!(f, ", for {keys}")?,
        }
        match self.unread {
            0 => Ok(()),
            unread => write!(f, "; {unread} responses are open that nobody reads"),
        }
    }
}

/// Who wants to know.
pub(crate) struct Tell<T>(pub(crate) Arc<dyn Fn(&T) + Send + Sync>);

impl<T> Clone for Tell<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Tell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}
