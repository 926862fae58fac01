//! At which gates a limiter's handle asks, and how long one may wait there.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::admission::GateName;
use crate::driver::Shared;
use crate::observe::{Tell, Waits};

/// What the clones of a handle share.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    pub(crate) shared: Arc<Shared>,
    /// The first of them is the one that a refusal is about.
    pub(crate) gates: SmallVec<[GateName; 1]>,
    /// How long somebody waits that has no deadline of its own.
    pub(crate) max_wait: Duration,
    pub(crate) on_wait: Option<Tell<Waits>>,
}
