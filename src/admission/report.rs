//! What one answer says of one limit: [`Report`].

use std::sync::Arc;
use std::time::Duration;

use crate::cost::Unit;

/// What one answer says of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Which limit it is about, and what that counts.
    pub(crate) name: Arc<str>,
    pub(crate) unit: Unit,
    pub(crate) left: u64,
    /// How many go in all, if it says that.
    pub(crate) most: Option<u64>,
    /// When they do again, from the moment of the answer.
    pub(crate) resets_after: Option<Duration>,
    pub(crate) window: Option<Duration>,
    /// The request was refused because of traffic.
    pub(crate) refused: bool,
}
