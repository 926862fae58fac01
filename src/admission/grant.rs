//! Leave to send one request: what it took of each gate, and its place if it has to ask again.

use smallvec::SmallVec;

use super::gate::{Taken, Use};
use super::gates::GateId;
use super::order::{Arrival, Turn};

/// Leave to send one request. To be released or given back in the end.
#[derive(Debug)]
#[must_use]
pub(crate) struct Grant {
    pub(crate) arrival: Arrival,
    pub(super) taken: SmallVec<[(GateId, Taken); 1]>,
    pub(super) turn: Turn,
    pub(super) usage: Use,
}
