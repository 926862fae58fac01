//! How long a refusal asks to stay away.

use std::time::Duration;

/// How long a refusal asks to stay away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// So long, said the server.
    Stated(Duration),
    /// It did not say. The number draws from the while that the doublings allow.
    Unstated(u32),
}
