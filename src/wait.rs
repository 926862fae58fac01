//! What an answer says about those who come next: [`Reply`], and how long to stay away: [`Wait`].

use std::time::Duration;

/// How long a refusal asks to stay away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// So long, said the server. The number draws what is added to it.
    Stated(Duration, u32),
    /// It did not say. The number draws from the while that the doublings allow.
    Unstated(u32),
}

/// What an answer says about the gate that its request has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The server took it, whatever came of it.
    Taken,
    /// The server refused it because of traffic.
    Refused(Wait),
    /// The server had too much to do, or did not answer in time. It may ask to be left alone for a while.
    Failed(Option<Wait>),
}
