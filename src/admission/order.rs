//! Who is senior: one order over all who wait, the same at every gate.
//!
//! By class, that is priority with ageing; in a class by the turn of the flow; in a flow by arrival. Each of these is a
//! function of who asks and of the instant, never of the gate: orders that differ between gates lock each other out.
//!
//! Turns are start-time fair queueing (Goyal, Vin and Cheng, 1996) with one clock for each class: a flow has one tag,
//! which its grants move on by their cost; one that begins to wait takes up at the clock. Nothing is written when
//! somebody asks or leaves.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use slab::Slab;

use crate::cost::{Cost, Unit};
use crate::priority::Priority;
use crate::time::{Time, nanos};

pub(super) type LaneId = usize;
pub(super) type FlowId = usize;

/// A flow's name; all who name none are one flow.
pub(super) type FlowName = Option<Arc<str>>;

/// So many flows of a class are remembered that nobody waits in, and a new one takes the place of one of those.
const MOST_FLOWS: usize = 100_000;

/// Whoever makes a flow looks at so many others, whether they can be forgotten.
const LOOKED_AT: usize = 4;

/// When and as which one somebody first asked, the same for all attempts of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    number: u64,
    at: Time,
}

/// A place in the order. The smaller is the senior.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) standing: Standing,
    pub(super) tag: u64,
    pub(super) number: u64,
}

/// The class that somebody has come to by waiting, and in it those first who have come from further below: they have
/// waited longer than anybody who began there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing(u8);

impl Standing {
    const NAMES: [&str; 9] = ["low, aged twice", "normal, aged", "high", "low, aged", "normal", "", "low", "", ""];

    /// That of a class `place`, after so many promotions.
    const fn new(place: usize, promotions: usize) -> Self {
        let (class, below) = (place - promotions, promotions);
        // Three classes: fits.
        #[expect(clippy::cast_possible_truncation)]
        Self((class * 3 + 2 - class - below) as u8)
    }

    /// The class that it goes as.
    pub(super) fn class(self) -> Priority {
        Priority::ALL[usize::from(self.0) / 3]
    }

    pub(super) fn name(self) -> &'static str {
        Self::NAMES[usize::from(self.0)]
    }
}

/// What a grant moved its flow's tag by, to undo that.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    class: Priority,
    flow: FlowName,
    charged: u64,
    period: u64,
}

/// The order, and the flows that have a turn in it.
#[derive(Debug)]
pub(super) struct Order {
    age_nanos: u64,
    fair_by: Unit,
    classes: [Class; 3],
    arrivals: u64,
}

/// The turns of one class.
#[derive(Debug, Default)]
struct Class {
    /// The latest tag that was granted.
    clock: u64,
    flows: Slab<Flow>,
    names: HashMap<FlowName, FlowId>,
    /// Counts the flows that were ever made in this period.
    made: usize,
    /// How many lanes wait. With the last all turns are over, and another period begins.
    lanes: usize,
    period: u64,
    /// Where the search for flows to forget goes on.
    hand: FlowId,
}

#[derive(Debug)]
struct Flow {
    name: FlowName,
    tag: u64,
    /// What was given back: its next grants move the tag by so much less.
    credit: u64,
    served: Time,
    lanes: BTreeSet<LaneId>,
}

impl Order {
    /// Waiting for `age` is worth one class; turns count `fair_by`.
    pub(super) fn new(age: Duration, fair_by: Unit) -> Self {
        Self { age_nanos: nanos(age).max(1), fair_by, classes: Default::default(), arrivals: 0 }
    }

    pub(super) fn arrive(&mut self, now: Time) -> Arrival {
        self.arrivals += 1;
        Arrival { number: self.arrivals, at: now }
    }

    /// The rank of somebody who does not wait.
    pub(super) fn rank_of_newcomer(&self, class: Priority, flow: &FlowName, arrival: Arrival, now: Time) -> Rank {
        let turns = &self.classes[class.place()];
        if let Some(flow) = turns.names.get(flow).filter(|flow| !turns.flows[**flow].lanes.is_empty()) {
            return self.rank(class, *flow, arrival, now);
        }
        let tag = turns.names.get(flow).map_or(0, |flow| turns.flows[*flow].tag).max(turns.clock);
        let promotions = self.promotions(class, arrival.at, now);
        Rank { standing: Standing::new(class.place(), promotions), tag, number: arrival.number }
    }

    /// The rank of a lane's head.
    pub(super) fn rank(&self, class: Priority, flow: FlowId, head: Arrival, now: Time) -> Rank {
        let flow = &self.classes[class.place()].flows[flow];
        let promotions = self.promotions(class, flow.waits_since(head), now);
        Rank { standing: Standing::new(class.place(), promotions), tag: flow.tag, number: head.number }
    }

    fn promotions(&self, class: Priority, since: Time, now: Time) -> usize {
        let ages = nanos(now.since(since)) / self.age_nanos;
        usize::try_from(ages).unwrap_or(usize::MAX).min(class.place())
    }

    /// When a lane's head goes up next, if its flow is not served before.
    pub(super) fn promotion(&self, class: Priority, flow: FlowId, head: Arrival, now: Time) -> Option<Time> {
        let since = self.classes[class.place()].flows[flow].waits_since(head);
        let promotions = self.promotions(class, since, now);
        let ages = u64::try_from(promotions).unwrap_or(u64::MAX) + 1;
        (promotions < class.place()).then(|| since.plus(self.age_nanos.saturating_mul(ages)))
    }

    pub(super) fn find_flow(&self, class: Priority, name: &FlowName) -> Option<FlowId> {
        self.classes[class.place()].names.get(name).copied()
    }

    /// A lane begins to wait: in which flow.
    pub(super) fn flow(&mut self, class: Priority, name: &FlowName) -> FlowId {
        self.classes[class.place()].flow(name)
    }

    pub(super) fn enter(&mut self, class: Priority, flow: FlowId, lane: LaneId) {
        let turns = &mut self.classes[class.place()];
        turns.lanes += 1;
        turns.flows[flow].lanes.insert(lane);
    }

    pub(super) fn leave(&mut self, class: Priority, flow: FlowId, lane: LaneId) {
        let turns = &mut self.classes[class.place()];
        turns.flows[flow].lanes.remove(&lane);
        turns.lanes -= 1;
        if turns.lanes == 0 {
            let period = turns.period + 1;
            *turns = Class { period, ..Class::default() };
        }
    }

    /// A grant: its flow's turn moves on. The only flow stays where it is, and when nobody waits, turns do not matter.
    pub(super) fn served(&mut self, class: Priority, name: FlowName, cost: &Cost, now: Time) -> Turn {
        let amount = cost.of(&self.fair_by).max(1);
        let turns = &mut self.classes[class.place()];
        let mut charged = 0;
        if turns.lanes > 0 {
            let id = turns.flow(&name);
            let flow = &mut turns.flows[id];
            flow.served = now;
            if turns.made > 1 {
                turns.clock = turns.clock.max(flow.tag);
                charged = amount;
                let paid = amount.min(flow.credit);
                flow.credit -= paid;
                flow.tag = flow.tag.saturating_add(amount - paid);
            }
        }
        Turn { class, flow: name, charged, period: turns.period }
    }

    /// The lanes whose place in the order a grant moved: whoever names no flow ages by itself, and has a turn among others.
    pub(super) fn moved(&self, turn: &Turn) -> Vec<LaneId> {
        let turns = &self.classes[turn.class.place()];
        let moved = turn.flow.is_some() || turns.made > 1;
        let flow = turns.names.get(&turn.flow).filter(|_| moved);
        flow.map_or_else(Vec::new, |flow| turns.flows[*flow].lanes.iter().copied().collect())
    }

    /// A grant that was never used.
    pub(super) fn returned(&mut self, turn: &Turn) {
        let turns = &mut self.classes[turn.class.place()];
        let flow = turns.names.get(&turn.flow).filter(|_| turns.period == turn.period);
        if let Some(flow) = flow {
            let credit = &mut turns.flows[*flow].credit;
            *credit = credit.saturating_add(turn.charged);
        }
    }
}

impl Class {
    /// A flow, made on first use. One in which nobody waits takes up at the clock, as if it had been forgotten.
    fn flow(&mut self, name: &FlowName) -> FlowId {
        let id = self.names.get(name).copied().unwrap_or_else(|| self.make(name));
        let clock = self.clock;
        let flow = &mut self.flows[id];
        if flow.lanes.is_empty() {
            flow.served = Time::ZERO;
            if flow.tag <= clock {
                (flow.tag, flow.credit) = (clock, 0);
            }
        }
        id
    }

    fn make(&mut self, name: &FlowName) -> FlowId {
        for _ in 0..LOOKED_AT.min(self.flows.len()) {
            self.hand = if self.hand + 1 < self.flows.capacity() { self.hand + 1 } else { 0 };
            let (crowded, clock) = (self.flows.len() >= MOST_FLOWS, self.clock);
            let over = |flow: &Flow| flow.lanes.is_empty() && (crowded || flow.tag <= clock);
            if self.flows.get(self.hand).is_some_and(over) {
                let flow = self.flows.remove(self.hand);
                self.names.remove(&flow.name);
            }
        }
        self.made += 1;
        let flow = Flow { name: name.clone(), tag: 0, credit: 0, served: Time::ZERO, lanes: BTreeSet::new() };
        let id = self.flows.insert(flow);
        self.names.insert(name.clone(), id);
        id
    }
}

impl Flow {
    /// Whoever names no flow ages by itself; a flow's lanes age while it is not served.
    fn waits_since(&self, head: Arrival) -> Time {
        if self.name.is_some() { head.at.max(self.served) } else { head.at }
    }
}
