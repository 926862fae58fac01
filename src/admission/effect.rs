//! What the core asks of a store that several processes share, and what it is told by it.

use std::sync::Arc;

use super::gates::{GateId, GateName};
use crate::quota::Quota;
use crate::time::Time;

/// To be asked of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// To lend at least so many units of a quota. Answered by one event.
    Borrow { of: Loan, quota: Arc<Quota>, units: u64 },
    /// So many that were lent were not spent. Not answered.
    Return { of: Loan, units: u64 },
}

/// What the store answered.
#[cfg_attr(not(test), expect(dead_code, reason = "for limits that are shared through a store"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// So many units are lent, to be spent before then.
    Borrowed { of: Loan, units: u64, until: Time },
    /// There are none, and it is no use to ask before then.
    Denied { of: Loan, until: Time },
}

/// Which quota of which gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loan {
    pub(crate) gate: GateName,
    pub(super) id: GateId,
    pub(super) serial: u64,
    pub(super) meter: u32,
}
