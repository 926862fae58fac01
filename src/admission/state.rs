//! Everything that passes or waits, at one instant, and the smallest moves in it.

use std::collections::{BTreeSet, VecDeque};

use super::effect::{Effect, Loan};
use super::gate::{Gate, Taken, Use};
use super::gates::{GateId, Gates};
use super::grant::{Grant, Grants};
use super::lanes::{Course, Lanes, bit, copied};
use super::lease::Lease;
use super::order::{LaneId, Turn};
use super::queue::{Ask, AskId};
use super::timers::{Owner, Timers};
use crate::refused::Refused;
use crate::time::Time;

/// The state of the machine.
#[derive(Debug)]
pub(super) struct State {
    pub(super) gates: Gates,
    pub(super) lanes: Lanes,
    pub(super) timers: Timers,
    /// The lanes whose instant has come.
    pub(super) due_lanes: BTreeSet<LaneId>,
    /// Of these, in which somebody leaves at this very instant, unless it is granted at it.
    pub(super) leaving: BTreeSet<LaneId>,
    pub(super) leaving_at: Time,
    /// What is still to be looked at from end to end.
    pub(super) sweeps: VecDeque<Sweep>,
    pub(super) waiting: usize,
    /// What has been granted and has not ended.
    pub(super) grants: Grants,
    /// Grants with a permit that have not ended.
    pub(super) out: usize,
    pub(super) door: Door,
    /// Who was decided on while waiting, and not told yet.
    pub(super) decided: VecDeque<AskId>,
    pub(super) effects: VecDeque<Effect>,
    pub(super) now: Time,
    /// The instant at which what is due is judged. Never falls, never after `now`.
    pub(super) due: Time,
    /// How much this call may still do.
    pub(super) steps: usize,
}

/// Something with many parts, of which a call looks at only so many.
#[derive(Debug)]
pub(super) enum Sweep {
    /// All gates of a rule: they have other limits.
    Rule { rule: usize, next: GateId },
    /// All lanes of a gate: what stands there has become worse, or rarer. After other limits, with all who wait.
    Gate { gate: GateId, next: LaneId, walk: bool },
    /// All who wait in a lane.
    Lane(LaneId),
    /// All who wait: nobody is let in any more.
    All,
}

/// Who is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Door {
    Open,
    /// Only who has been here before.
    Draining,
    /// Nobody.
    Closed,
}

impl State {
    pub(super) fn new(gates: Gates, lanes: Lanes) -> Self {
        Self {
            gates,
            lanes,
            timers: Timers::default(),
            due_lanes: BTreeSet::new(),
            leaving: BTreeSet::new(),
            leaving_at: Time::ZERO,
            sweeps: VecDeque::new(),
            waiting: 0,
            grants: Grants::default(),
            out: 0,
            door: Door::Open,
            decided: VecDeque::new(),
            effects: VecDeque::new(),
            now: Time::ZERO,
            due: Time::ZERO,
            steps: 0,
        }
    }

    /// Takes a step, if this call may take one more.
    pub(super) fn step(&mut self) -> bool {
        let more = self.steps > 0;
        self.steps = self.steps.saturating_sub(1);
        more
    }

    /// Nobody waits, nobody has to be told anything, and everybody is let in.
    pub(super) fn is_calm(&self) -> bool {
        self.waiting == 0 && self.door == Door::Open && !self.has_leftovers()
    }

    pub(super) fn has_leftovers(&self) -> bool {
        self.lanes.is_marked() || !self.due_lanes.is_empty() || !self.leaving.is_empty() || !self.sweeps.is_empty()
    }

    /// The next instant at which there is something to do.
    pub(super) fn next(&self) -> Option<Time> {
        let leftover = self.has_leftovers().then_some(self.due);
        leftover.into_iter().chain(self.timers.first()).min()
    }

    // --- something has changed

    /// Something has changed at a gate: the first who stands there is to be looked at.
    #[inline]
    pub(super) fn changed(&mut self, gate: GateId) {
        if self.waiting == 0 && self.timers.first().is_none() && !self.gates[gate].is_shared() {
            return;
        }
        if !self.lanes.mark(gate, self.due) {
            self.rest(gate);
        }
    }

    /// A lane is not as senior any more as it was, or more: where it stands another may be the first, and where it holds
    /// another the most senior of those who do.
    pub(super) fn lane_changed(&mut self, id: LaneId) {
        if self.lanes.lane(id).queue.len() == 0 {
            return;
        }
        self.lanes.sort(id, self.due);
        self.time_lane(id);
        let lane = self.lanes.lane(id);
        let (course, stands, held) = (copied(&lane.course), lane.stands, lane.held());
        for (place, gate) in course.iter().enumerate() {
            if place == stands || held & bit(place) != 0 {
                self.changed(*gate);
            }
        }
    }

    /// A grant moved the tag of its flow: where that is the first, others may be now.
    pub(super) fn turn_moved(&mut self, turn: &Turn) {
        let Some((flow, gates, aged)) = self.lanes.order.moved(turn) else { return };
        for lane in aged {
            self.lane_changed(lane);
        }
        for gate in gates {
            if self.lanes.leads(gate, turn.class.place(), flow) {
                self.changed(gate);
            }
        }
    }

    /// A grant was given back, and the tag of its flow is what it was.
    pub(super) fn turn_returned(&mut self, turn: &Turn) {
        let Some((flow, gates)) = self.lanes.order.returned(turn) else { return };
        for gate in gates {
            if self.lanes.restore(gate, turn.class.place(), flow) {
                self.changed(gate);
            }
        }
    }

    /// Nobody stands at a gate.
    pub(super) fn rest(&mut self, gate: GateId) {
        let is_timed = self.lanes.line(gate).is_some_and(|line| line.timer.is_some());
        if is_timed || self.gates[gate].is_shared() {
            let lapses = if self.gates[gate].is_shared() { self.lapse(gate) } else { None };
            let line = self.lanes.line_mut(gate);
            self.timers.set(Owner::Gate(gate), &mut line.timer, lapses);
        }
    }

    /// Lets a gate take over other limits of its rule, if there are any.
    pub(super) fn bring_up(&mut self, gate: GateId) {
        if let Some(gone) = self.gates.bring_up(gate, self.now) {
            for (meter, units) in gone {
                let of = self.loan(gate, meter);
                self.effects.extend(of.map(|of| Effect::Return { of, units }));
            }
            if self.lanes.line(gate).is_some_and(|line| !line.lanes.is_empty()) {
                self.sweeps.push_back(Sweep::Gate { gate, next: 0, walk: true });
            }
            self.changed(gate);
        }
    }

    /// All lanes of a gate are to be looked at: somebody may be hopeless there, or hold something else.
    pub(super) fn sweep_lanes(&mut self, gate: GateId) {
        let same = |sweep: &&mut Sweep| matches!(sweep, Sweep::Gate { gate: other, .. } if *other == gate);
        // One that is under way begins anew, if it is found at once.
        match self.sweeps.iter_mut().take(16).find(same) {
            Some(Sweep::Gate { next, .. }) => *next = 0,
            _ => self.sweeps.push_back(Sweep::Gate { gate, next: 0, walk: false }),
        }
    }

    /// Does something at each gate of a grant, by its place among them, with what was taken there. If it answers true, the
    /// next may go earlier there.
    pub(super) fn at_each_gate(
        &mut self,
        grant: &Grant,
        mut act: impl FnMut(usize, &mut Gate, &mut Taken<'_>, Time) -> bool,
    ) {
        for place in 0..self.grants.gates(grant) {
            let (gate, mut taken) = self.grants.at(grant, place);
            if act(place, &mut self.gates[gate], &mut taken, self.now) {
                self.changed(gate);
            }
        }
    }

    /// Whether it matters to anybody when a grant ends.
    pub(super) fn heeds_end(&self, grant: &Grant) -> bool {
        self.grants.gates_of(grant).any(|gate| self.gates[gate].heeds_ends())
    }

    /// A grant has ended: its slots are free, its units stay spent.
    pub(super) fn end(&mut self, grant: Grant) {
        let usage = self.grants.usage(&grant);
        self.out -= usize::from(usage == Use::Permit);
        for place in 0..self.grants.gates(&grant) {
            let (gate, mut taken) = self.grants.at(&grant, place);
            if self.gates[gate].heeds_ends() {
                if self.gates[gate].release(&mut taken, self.now) {
                    self.sweep_lanes(gate);
                }
                self.changed(gate);
            } else {
                self.gates[gate].release_unheeded(&taken, self.now);
            }
        }
        self.grants.end(grant);
    }

    /// The same where nobody heeds it.
    pub(super) fn end_unheeded(&mut self, grant: Grant) {
        let usage = self.grants.usage(&grant);
        self.out -= usize::from(usage == Use::Permit);
        for place in 0..self.grants.gates(&grant) {
            let (gate, taken) = self.grants.at(&grant, place);
            self.gates[gate].release_unheeded(&taken, self.now);
        }
        self.grants.end(grant);
    }

    // --- somebody leaves a lane

    /// Takes somebody out of its lane.
    pub(super) fn exit(&mut self, id: AskId) -> Option<(LaneId, Course)> {
        let lane = self.lanes.asks[id].waiting()?.lane();
        if self.lanes.exit(id, self.due) {
            self.lane_changed(lane);
        }
        self.waiting -= 1;
        Some((lane, copied(&self.lanes.lane(lane).course)))
    }

    /// Somebody has left a lane: it goes on, or is given up.
    pub(super) fn exited(&mut self, lane: LaneId, course: &Course) {
        // Its instant may be earlier now than it need be, and never too late.
        if self.lanes.lane(lane).queue.len() > 0 {
            return;
        }
        self.lanes.close(lane, &mut self.timers);
        for gate in course {
            self.gates[*gate].exit();
            self.changed(*gate);
        }
    }

    pub(super) fn decide(&mut self, id: AskId, decision: Result<Grant, Refused>) {
        self.lanes.asks[id] = Ask::Decided(decision.map_err(Box::new));
        self.decided.push_back(id);
    }

    /// A lane is looked at no later than its first deadline and the next promotion of its head.
    pub(super) fn time_lane(&mut self, id: LaneId) {
        if !self.lanes.contains(id) {
            return;
        }
        let deadline = self.lanes.lane(id).queue.first_deadline(&self.lanes.asks).map(|(at, _)| at);
        let promotion = self.lanes.promotion(id, self.due);
        let wanted = [deadline, promotion].into_iter().flatten().min();
        let lane = self.lanes.lane_mut(id);
        // Too early does no harm; whoever is due is timed anew.
        if wanted.is_some_and(|at| lane.timer.is_none_or(|timer| at < timer)) {
            self.timers.set(Owner::Lane(id), &mut lane.timer, wanted);
        }
    }

    // --- units that a store lends

    /// Asks the store for what is wanted at a gate, and gives back what was not spent in time.
    pub(super) fn borrow_and_return(&mut self, gate: GateId) {
        let Some(any) = self.loan(gate, 0) else { return };
        for (meter, quota, lease) in self.gates[gate].leases() {
            let of = || Loan { meter, ..any.clone() };
            let unspent = lease.unspent().map(|units| Effect::Return { of: of(), units });
            let wanted = lease.ask(self.due).map(|units| Effect::Borrow { of: of(), quota, units });
            self.effects.extend(unspent.into_iter().chain(wanted));
        }
    }

    fn loan(&self, gate: GateId, meter: u32) -> Option<Loan> {
        let (name, serial) = (self.gates.get(gate)?.clone(), self.gates.serial(gate)?);
        Some(Loan { gate: name, id: gate, serial, meter })
    }

    /// What was lent until now is the store's again. When the next of it is.
    pub(super) fn lapse(&mut self, gate: GateId) -> Option<Time> {
        let due = self.due;
        let lapsed = |lease: &Lease| lease.lapses_at().is_some_and(|at| at <= due);
        self.gates[gate].leases().filter(|(.., lease)| lapsed(lease)).for_each(|(.., lease)| lease.lapse());
        self.borrow_and_return(gate);
        self.gates[gate].leases().filter_map(|(.., lease)| lease.lapses_at()).min()
    }
}
