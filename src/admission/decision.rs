//! May somebody go, and where does it stand if not.

use super::block::{Block, Cause};
use super::gate::Use;
use super::gates::GateId;
use super::grant::Grant;
use super::lanes::{Course, bit};
use super::order::{Arrival, FlowName, LaneId, Rank};
use super::state::State;
use crate::cost::{Cost, Costs};
use crate::priority::Priority;
use crate::refused::{Reason, Refused};
use crate::time::Time;

/// What somebody needs to go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need<'a> {
    pub(super) course: &'a [GateId],
    pub(super) class: Priority,
    pub(super) cost: &'a Cost,
    pub(super) usage: Use,
}

/// Where somebody is kept from going, and by what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    /// The place of the gate in the course.
    pub(super) place: usize,
    pub(super) block: Block,
}

impl State {
    /// The gate that can never let somebody go, and why.
    pub(super) fn impossible(&self, need: Need<'_>) -> Option<(Reason, GateId, Block)> {
        need.course.iter().find_map(|id| {
            let gate = &self.gates[*id];
            if need.usage == Use::Unseen && gate.counts_in_flight() {
                return Some((Reason::NeedsPermit, *id, Block::open(Cause::Slots)));
            }
            gate.never_lets(need.cost, need.class).map(|block| (Reason::CostExceedsQuota, *id, block))
        })
    }

    /// The refusal of somebody whom a gate keeps from going.
    pub(super) fn refusal(&self, reason: Reason, gate: GateId, block: Block) -> Refused {
        self.gates[gate].refusal(self.gates.key(gate), reason, block, self.now)
    }

    /// When somebody can go at the earliest, with what is queued ahead of it in its own lane, and which gate decides that.
    pub(super) fn estimate(&self, need: Need<'_>, queued: &Costs) -> (GateId, Block) {
        let all = need.course.iter().map(|gate| (*gate, self.gates[*gate].estimate(need.cost, queued, self.due)));
        let latest = all.reduce(|latest, next| if next.1.until > latest.1.until { next } else { latest });
        // Only who has gates can be in the way of one.
        latest.unwrap_or((0, Block::senior(Some(self.due))))
    }

    /// What keeps somebody from going: nothing, or the gate to stand at and what blocks there. At one of them, it may be
    /// known that nothing does.
    pub(super) fn look(&mut self, course: &Course, cost: &Cost, rank: Rank, free: Option<GateId>) -> Option<Stand> {
        let mut longest: Option<Stand> = None;
        for (place, gate) in course.iter().enumerate().filter(|(_, gate)| Some(**gate) != free) {
            let Some(block) = self.blocked_at(*gate, cost, rank) else { continue };
            if longest.is_none_or(|stand| block.weight() > stand.block.weight()) {
                longest = Some(Stand { place, block });
            }
        }
        longest
    }

    /// What keeps somebody from going at one gate: the gate itself, somebody senior who stands there, or the most senior
    /// of those who hold it, if it could not be served after.
    pub(super) fn blocked_at(&mut self, gate: GateId, cost: &Cost, rank: Rank) -> Option<Block> {
        let block = self.blocked_by_gate(gate, cost, rank);
        if block.is_some() {
            return block;
        }
        if self.lanes.first(gate, self.due).is_some_and(|(first, _)| first < rank) {
            return Some(Block::senior(None));
        }
        self.blocked_by_holder(gate, cost, rank)
    }

    /// The same for the most senior who stands there.
    pub(super) fn first_blocked_at(&mut self, gate: GateId, cost: &Cost, rank: Rank) -> Option<Block> {
        let block = self.blocked_by_gate(gate, cost, rank);
        if block.is_some() { block } else { self.blocked_by_holder(gate, cost, rank) }
    }

    fn blocked_by_gate(&mut self, gate: GateId, cost: &Cost, rank: Rank) -> Option<Block> {
        self.bring_up(gate);
        let block = self.gates[gate].blocked(&[cost], rank.priority(), self.due);
        if self.gates[gate].is_shared() {
            self.borrow_and_return(gate);
        }
        block
    }

    fn blocked_by_holder(&mut self, gate: GateId, cost: &Cost, rank: Rank) -> Option<Block> {
        let (senior, holder) = self.lanes.first_holder(gate, self.due).filter(|(senior, _)| *senior < rank)?;
        let (_, held) = self.lanes.lane(holder).queue.head(&self.lanes.asks)?;
        let both = self.gates[gate].blocked(&[cost, &held.cost], senior.priority(), self.due)?;
        Some(Block::senior(both.until))
    }

    /// Which of its other gates a lane holds that stands at one: a bit for each that is no faster, and is not before the gate
    /// where it stands by more than its own interval. And when that may be different, if nothing happens.
    pub(super) fn holds_from(
        &mut self,
        lane: LaneId,
        stands: GateId,
        cost: &Cost,
        class: Priority,
    ) -> (u64, Option<Time>) {
        let rarity = self.gates[stands].rarity(cost, class, self.due);
        let (mut held, mut changes_at) = (0, rarity.changes_at);
        for (place, gate) in self.lanes.lane(lane).course.iter().enumerate().filter(|(_, gate)| **gate != stands) {
            let interval = self.gates[*gate].interval_nanos(cost);
            let from = rarity.ready_at.minus(interval);
            if interval >= rarity.interval && from <= self.due {
                held |= bit(place);
            } else if interval >= rarity.interval {
                changes_at = changes_at.into_iter().chain([from]).min();
            }
        }
        (held, changes_at)
    }

    /// Takes what is needed, of all gates at once.
    #[inline]
    pub(super) fn grant(&mut self, need: Need<'_>, flow: &FlowName, arrival: Arrival) -> Grant {
        let Need { course, class, cost, usage } = need;
        self.out += usize::from(usage == Use::Permit);
        let grant = self.grants.begin(arrival, usage);
        for gate in course {
            self.grants.pass(&grant, *gate, &mut self.gates[*gate], cost, self.due, self.now);
        }
        if let Some(turn) = self.lanes.order.served(class, flow, cost, self.due) {
            self.turn_moved(&turn);
            self.grants.set_turn(&grant, turn);
        }
        for gate in course {
            self.changed(*gate);
        }
        grant
    }
}
