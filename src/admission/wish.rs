//! What a core is made with, what somebody asks of it, and the answer.

use std::sync::Arc;
use std::time::Duration;

use super::decision::Need;
use super::gate::{Rule, Use};
use super::gates::{GateId, GateName, Overflow};
use super::grant::Grant;
use super::order::{Arrival, FlowName};
use super::queue::AskId;
use crate::cost::{Cost, Unit};
use crate::limits::Limits;
use crate::priority::Priority;
use crate::time::Time;

/// So many gates at most, unless set.
pub(super) const MOST_KEYS: usize = 100_000;

/// So many wait at most, unless set.
const MOST_WAITING: usize = 10_000;

/// Something that was learned at one gate, and is about others.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) from: GateName,
    /// Whose are the limits of which the server spoke, by name, or all.
    pub(crate) stated: Vec<(Option<Arc<str>>, GateName)>,
    /// Whose is what refusals have taught, if it is not that of all.
    pub(crate) found: Option<GateName>,
}

/// What an admission core is made with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) rules: Vec<Rule>,
    /// So long a wait is worth one class.
    pub(crate) age: Duration,
    /// What the turns of flows are counted in.
    pub(crate) fair_by: Unit,
    /// So many gates at most. One more goes in the place of one that is at rest, or as `overflow` says.
    pub(crate) most_keys: usize,
    pub(crate) overflow: Overflow,
    /// So many wait at most, in all.
    pub(crate) most_waiting: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let (age, fair_by) = (Duration::from_secs(30), Unit::REQUESTS);
        Self {
            rules: Vec::new(),
            age,
            fair_by,
            most_keys: MOST_KEYS,
            overflow: Overflow::Refuse,
            most_waiting: MOST_WAITING,
        }
    }
}

impl From<Limits> for Settings {
    fn from(limits: Limits) -> Self {
        Self { rules: vec![Rule { limits, ..Rule::default() }], ..Self::default() }
    }
}

/// A request's wish to pass its gates.
#[derive(Clone, Debug)]
pub(crate) struct Wish<'a> {
    /// Up to eight, and each counts once.
    pub(crate) gates: &'a [GateName],
    pub(crate) cost: &'a Cost,
    pub(crate) usage: Use,
    pub(crate) class: Priority,
    pub(crate) flow: FlowName,
    /// The place in the order, if it has stood here before.
    pub(crate) arrival: Option<Arrival>,
    /// Until when it would wait; not at all if `None`.
    pub(crate) deadline: Option<Time>,
    /// It is not wanted any more.
    pub(crate) cancelled: bool,
}

impl<'a> Wish<'a> {
    /// A try, with a permit.
    pub(crate) fn new(gates: &'a [GateName], cost: &'a Cost) -> Self {
        let (usage, class) = (Use::Permit, Priority::Normal);
        Self { gates, cost, usage, class, flow: None, arrival: None, deadline: None, cancelled: false }
    }

    pub(super) fn need<'n>(&'n self, course: &'n [GateId]) -> Need<'n> {
        Need { course, class: self.class, cost: self.cost, usage: self.usage }
    }
}

#[derive(Debug)]
pub(crate) enum Asked {
    Granted(Grant),
    Waiting(AskId),
}
