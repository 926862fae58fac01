//! Who is senior: one order over all who wait, the same at every gate.
//!
//! By class, that is priority with ageing; in a class by the turn of the flow; in a flow by arrival. Each of these is a
//! function of who asks and of the instant, never of the gate: orders that differ between gates lock each other out.
//!
//! Turns are start-time fair queueing (Goyal, Vin and Cheng, 1996) with one clock for each class: a flow has one tag,
//! which its grants move on by their cost; one that begins to wait takes up at the clock. The clock is the latest tag
//! that was granted, and moves on with each grant by at least the share that each waiting flow has of it (as in weighted
//! fair queueing): else those who ask once each, and begin at the clock, would stop it. Nothing is written when somebody
//! asks or leaves.
//!
//! Whoever goes up a class takes up at the clock there, as if it came then, but with the number that it has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use slab::Slab;

use super::gates::GateId;
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
    /// The place of the class that it goes as.
    pub(super) class: usize,
    pub(super) tag: u64,
    pub(super) number: u64,
}

impl Rank {
    /// The class that it goes as.
    pub(super) fn priority(self) -> Priority {
        Priority::ALL[self.class]
    }
}

/// How many classes somebody has gone up, and the tag that it took there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Aged {
    pub(super) classes: usize,
    tag: u64,
}

/// Tags count in parts of a unit: the clock moves on by a flow's share of one.
const PARTS: u64 = 1 << 16;

/// What a grant moved its flow's tag by, to undo that.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) class: Priority,
    flow: FlowName,
    charged: u64,
    period: u64,
}

impl Aged {
    /// How far somebody of this class has gone up that has this rank.
    pub(super) fn new(class: Priority, rank: Rank) -> Self {
        let classes = class.place() - rank.class;
        Self { classes, tag: if classes == 0 { 0 } else { rank.tag } }
    }
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
    /// The latest tag that was granted, or later.
    clock: u64,
    /// The largest cost of a grant. Whoever is served falls behind the clock by no more than twice that: where flows meet at
    /// a gate that is slower than others, they go turn by turn.
    largest: u64,
    flows: Slab<Flow>,
    names: HashMap<FlowName, FlowId>,
    /// Counts the flows that were ever made in this period.
    made: usize,
    /// How many lanes wait, and of how many flows. With the last all turns are over, and another period begins.
    lanes: usize,
    waiting: usize,
    period: u64,
    /// Where the search for flows to forget goes on.
    hand: FlowId,
}

#[derive(Debug, Default)]
struct Flow {
    name: FlowName,
    tag: u64,
    served: Time,
    lanes: BTreeSet<LaneId>,
    /// Where a move of its tag may matter: gates at which others stand beside it, or that it holds. Some of them may not
    /// be so any more.
    contends: BTreeSet<GateId>,
    /// Of its lanes, whose heads have gone up a class.
    aged: BTreeSet<LaneId>,
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
        let known = turns.names.get(flow).map(|flow| &turns.flows[*flow]);
        let (since, tag) = match known {
            Some(flow) if !flow.lanes.is_empty() => (flow.waits_since(arrival), flow.tag),
            Some(flow) => (arrival.at, flow.tag.max(turns.clock)),
            None => (arrival.at, turns.clock),
        };
        self.ranked(class, self.ages(class, since, now), tag, Aged::default(), arrival)
    }

    /// The rank of a lane's head, which had gone up so far when it was last sorted.
    pub(super) fn rank(&self, class: Priority, flow: FlowId, head: Arrival, aged: Aged, now: Time) -> Rank {
        let flow = &self.classes[class.place()].flows[flow];
        self.ranked(class, self.ages(class, flow.waits_since(head), now), flow.tag, aged, head)
    }

    fn ranked(&self, class: Priority, ages: usize, tag: u64, sorted: Aged, arrival: Arrival) -> Rank {
        let class = class.place() - ages;
        let tag = match ages {
            0 => tag,
            _ if ages == sorted.classes => sorted.tag,
            _ => self.classes[class].clock,
        };
        Rank { class, tag, number: arrival.number }
    }

    fn ages(&self, class: Priority, since: Time, now: Time) -> usize {
        let waited = now.nanos_since(since);
        // Nearly nobody waits for so long.
        let ages = if waited < self.age_nanos { 0 } else { waited / self.age_nanos };
        usize::try_from(ages).unwrap_or(usize::MAX).min(class.place())
    }

    /// When a lane's head goes up next, if its flow is not served before.
    pub(super) fn promotion(&self, class: Priority, flow: FlowId, head: Arrival, now: Time) -> Option<Time> {
        let since = self.classes[class.place()].flows[flow].waits_since(head);
        let ages = self.ages(class, since, now);
        let next = u64::try_from(ages).unwrap_or(u64::MAX) + 1;
        (ages < class.place()).then(|| since.plus(self.age_nanos.saturating_mul(next)))
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
        turns.waiting += usize::from(turns.flows[flow].lanes.is_empty());
        turns.flows[flow].lanes.insert(lane);
    }

    pub(super) fn leave(&mut self, class: Priority, flow: FlowId, lane: LaneId) {
        let turns = &mut self.classes[class.place()];
        turns.flows[flow].lanes.remove(&lane);
        turns.flows[flow].aged.remove(&lane);
        turns.lanes -= 1;
        if turns.flows[flow].lanes.is_empty() {
            turns.waiting -= 1;
        }
        if turns.lanes == 0 {
            turns.begin_anew();
        }
    }

    /// A grant: its flow's turn moves on. The only flow stays where it is, and when nobody waits, there are no turns.
    pub(super) fn served(&mut self, class: Priority, name: &FlowName, cost: &Cost, now: Time) -> Option<Turn> {
        let turns = &mut self.classes[class.place()];
        if turns.lanes == 0 {
            return None;
        }
        let id = turns.flow(name);
        let flow = &mut turns.flows[id];
        flow.served = now;
        let mut charged = 0;
        if turns.made > 1 {
            charged = cost.of(&self.fair_by).max(1).saturating_mul(PARTS);
            turns.largest = turns.largest.max(charged);
            let share = charged / u64::try_from(turns.waiting.max(1)).unwrap_or(u64::MAX);
            turns.clock = turns.clock.saturating_add(share.max(1)).max(flow.tag);
            let least = turns.clock.saturating_sub(turns.largest.saturating_mul(2));
            flow.tag = flow.tag.max(least).saturating_add(charged);
        }
        Some(Turn { class, flow: name.clone(), charged, period: turns.period })
    }

    /// Where it may matter that a grant moved its flow's tag: at these gates, and to these lanes.
    pub(super) fn moved(&self, turn: &Turn) -> Option<(FlowId, Vec<GateId>, Vec<LaneId>)> {
        let turns = &self.classes[turn.class.place()];
        let id = *turns.names.get(&turn.flow)?;
        let flow = &turns.flows[id];
        // Whoever names no flow ages by itself.
        let aged = if turn.flow.is_some() { flow.aged.iter().copied().collect() } else { Vec::new() };
        let gates = if turns.made > 1 { flow.contends.iter().copied().collect() } else { Vec::new() };
        Some((id, gates, aged))
    }

    /// A grant that was never used. Answers its flow, if that goes before others again, and where that may matter.
    pub(super) fn returned(&mut self, turn: &Turn) -> Option<(FlowId, Vec<GateId>)> {
        let turns = &mut self.classes[turn.class.place()];
        let id = *turns.names.get(&turn.flow).filter(|_| turns.period == turn.period && turn.charged > 0)?;
        let flow = &mut turns.flows[id];
        flow.tag = flow.tag.saturating_sub(turn.charged);
        Some((id, flow.contends.iter().copied().collect()))
    }

    /// From now on, or not any more, a move of a flow's tag may matter at a gate.
    pub(super) fn contend(&mut self, class: usize, flow: FlowId, gate: GateId, does: bool) {
        let contends = &mut self.classes[class].flows[flow].contends;
        if does {
            contends.insert(gate)
        } else {
            contends.remove(&gate)
        };
    }

    /// The head of a lane has gone up a class, or not.
    pub(super) fn note_aged(&mut self, class: Priority, flow: FlowId, lane: LaneId, is_aged: bool) {
        let aged = &mut self.classes[class.place()].flows[flow].aged;
        if is_aged {
            aged.insert(lane)
        } else {
            aged.remove(&lane)
        };
    }

    /// The tag of a flow.
    pub(super) fn tag(&self, class: usize, flow: FlowId) -> u64 {
        self.classes[class].flows[flow].tag
    }
}

impl Class {
    /// A flow, made on first use. One in which nobody waits takes up at the clock, as if it had been forgotten.
    fn flow(&mut self, name: &FlowName) -> FlowId {
        let id = self.names.get(name).copied().unwrap_or_else(|| self.make(name));
        let clock = self.clock;
        let flow = &mut self.flows[id];
        if flow.lanes.is_empty() {
            (flow.served, flow.tag) = (Time::ZERO, flow.tag.max(clock));
        }
        id
    }

    /// Nobody waits: all flows are forgotten. The clock goes on, by which others may have gone up.
    fn begin_anew(&mut self) {
        *self = Self { clock: self.clock, period: self.period + 1, ..Self::default() };
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
        let flow = Flow { name: name.clone(), tag: 0, served: Time::ZERO, lanes: BTreeSet::new(), ..Flow::default() };
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
