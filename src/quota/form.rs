//! What a quota is made of.

use std::time::Duration;

use crate::cost::Unit;

/// The parts of a quota, as they are written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    /// How many in each period; of no limit, `None`.
    pub(crate) rate: Option<Rate>,
    pub(crate) unit: Unit,
    /// A bucket's; `None` for a window.
    pub(crate) burst: Option<u64>,
    pub(crate) at_most: Option<u64>,
    pub(crate) headroom_percent: u8,
    pub(crate) jitter: Duration,
    pub(crate) anchor: Anchor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rate {
    pub(crate) count: u64,
    pub(crate) period: Duration,
}

impl Form {
    pub(crate) const fn window(rate: Option<Rate>, unit: Unit) -> Self {
        let (jitter, anchor) = (Duration::ZERO, Anchor::AnswerCapped);
        Self { rate, unit, burst: None, at_most: None, headroom_percent: 0, jitter, anchor }
    }
}

/// From when a window counts a request. The server counted it at some moment between its sending and its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Anchor {
    /// From its answer, but no later than a while after its sending: a quarter of the window, between 100 ms and 1 s.
    /// Only delays that differ by more than that can fool the server's count (with what it takes to open a connection
    /// among them), and a slow answer does not cost the allowance.
    #[default]
    AnswerCapped,
    /// From its answer, however late it comes: never more than the server allows, whatever the delays.
    Answer,
    /// From so long after its sending, whatever the answer.
    Send(Duration),
    /// From the end of its body: what is counted is only known then.
    End,
}
