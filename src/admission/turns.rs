//! Where it may matter that the turn of a flow moves: at the gates where others stand beside it, or that it holds.

use super::gates::GateId;
use super::lanes::{Lanes, Line};
use super::order::FlowId;
use super::ranked::{Group, Place, Ranked};

impl Lanes {
    /// Somebody stands at a gate now: if others do as well, or hold it, its turn may matter there, and theirs.
    pub(super) fn note_company(&mut self, gate: GateId, place: Place) {
        let Line { standing, holders, .. } = &self.lines[gate];
        let two = standing.two();
        let new = (standing.groups() > 1 || holders.groups() > 0).then_some((place.class, place.group));
        for (class, group) in two.into_iter().chain(new) {
            self.note(gate, class, group);
        }
    }

    /// Somebody holds a gate now: its turn may matter there, and that of who stands there alone.
    pub(super) fn note_hold(&mut self, gate: GateId, place: Place) {
        let alone = self.lines[gate].standing.first().map(|(_, first)| (first.class, first.group));
        for (class, group) in alone.into_iter().chain([(place.class, place.group)]) {
            self.note(gate, class, group);
        }
    }

    fn note(&mut self, gate: GateId, class: usize, group: Group) {
        if let Group::Flow(flow) = group {
            self.order.contend(class, flow, gate, true);
            // As long as it was alone, nobody kept it in order.
            self.restore(gate, class, flow);
        }
    }

    /// The tag of a flow has moved on. Answers whether that may matter at a gate, and forgets the gate if it does not and will
    /// not.
    pub(super) fn leads(&mut self, gate: GateId, class: usize, flow: FlowId) -> bool {
        let Line { standing, holders, .. } = &self.lines[gate];
        let leads = |set: &Ranked| {
            set.first().is_some_and(|(_, first)| first.class == class && first.group == Group::Flow(flow))
        };
        let is_there = |set: &Ranked| set.has(class, Group::Flow(flow));
        let (leads, is_there) = (leads(standing) || leads(holders), is_there(standing) || is_there(holders));
        if !is_there {
            self.order.contend(class, flow, gate, false);
        }
        leads
    }

    /// The tag of a flow is less than it was: it is sorted anew at a gate. False if it is not there.
    pub(super) fn restore(&mut self, gate: GateId, class: usize, flow: FlowId) -> bool {
        let tag = self.order.tag(class, flow);
        let Line { standing, holders, .. } = &mut self.lines[gate];
        let [stands, holds] = [standing, holders].map(|set| set.restore(class, Group::Flow(flow), tag));
        stands || holds
    }
}
