//! What one call does: whatever is due, the most senior first, and no more than so much.

use super::block::Block;
use super::decision::Need;
use super::gates::GateId;
use super::lanes::{Lane, copied};
use super::order::{LaneId, Rank};
use super::queue::{AskId, Queue, Waiting};
use super::state::{Door, State, Sweep};
use super::timers::Owner;
use crate::cost::{Cost, Costs};
use crate::refused::{Reason, Refused};
use crate::time::{LATE_WAKE_CREDIT, Time, nanos};

/// A call does at most so much, and leaves the rest for the next one, which is due at once.
pub(super) const MOST_STEPS: usize = 256;

impl State {
    /// Brings everything up to `now`: grants what has come due, refuses what is past its deadline.
    pub(super) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.steps = MOST_STEPS;
        loop {
            let timed = self.timers.first().filter(|at| *at <= self.now);
            if timed.is_none() && !self.has_leftovers() {
                break;
            }
            if self.steps == 0 {
                return;
            }
            let at = timed.unwrap_or(self.due);
            self.due = self.due.max(at).max(self.now.minus(nanos(LATE_WAKE_CREDIT)));
            self.collect_due();
            self.work();
        }
        self.due = self.now;
    }

    fn collect_due(&mut self) {
        while self.step() {
            match self.timers.pop_until(self.due) {
                Some(Owner::Gate(gate)) => {
                    self.lanes.line_mut(gate).timer = None;
                    self.changed(gate);
                }
                Some(Owner::Lane(lane)) => {
                    self.lanes.lane_mut(lane).timer = None;
                    self.due_lanes.insert(lane);
                }
                None => return,
            }
        }
    }

    /// Decides on everybody on whom it can be decided at the due instant, the most senior first, as far as the steps go.
    pub(super) fn work(&mut self) {
        if self.has_leftovers() {
            self.work_off();
        }
        #[cfg(debug_assertions)]
        self.assert_sound_if_small();
    }

    fn work_off(&mut self) {
        // Half of the call at most, so that grants go on meanwhile.
        while !self.sweeps.is_empty() && self.steps > MOST_STEPS / 2 && self.step() {
            self.sweep();
        }
        if self.leaving_at < self.due {
            self.due_lanes.append(&mut self.leaving);
        }
        // Who left before this instant is not granted at it; who leaves at it still may be.
        while let Some(lane) = self.due_lanes.first().copied().filter(|_| self.step()) {
            self.look_at_due(lane);
        }
        self.serve();
        // A head that leaves may have held up a smaller one.
        while !self.leaving.is_empty() && !self.lanes.is_marked() && self.steps > 0 {
            while let Some(lane) = self.leaving.first().copied().filter(|_| self.step()) {
                if self.expire(lane, self.due) {
                    self.leaving.remove(&lane);
                    self.time_lane(lane);
                }
            }
            self.serve();
        }
    }

    /// A lane whose instant has come: some of it may be too late, its head may have gone up a class.
    fn look_at_due(&mut self, lane: LaneId) {
        if !self.expire(lane, self.due.minus(1)) {
            return;
        }
        self.due_lanes.remove(&lane);
        if self.lanes.contains(lane) {
            self.lane_changed(lane);
        }
        if self.first_hopeless(lane, self.due).is_some() {
            self.leaving.insert(lane);
            self.leaving_at = self.due;
        }
    }

    fn serve(&mut self) {
        while self.lanes.is_marked() && self.step() {
            if let Some((gate, lane, rank)) = self.lanes.pop_marked(self.due) {
                self.serve_first(gate, lane, rank);
            }
        }
    }

    /// Grants the head of the first lane in a line, or lets it stand where it is blocked longest.
    fn serve_first(&mut self, gate: GateId, lane: LaneId, rank: Rank) {
        if let Some(before) = self.lanes.post(gate, Some(lane)) {
            self.hold(before, 0);
        }
        let Some((id, head)) = self.lanes.lane(lane).queue.head(&self.lanes.asks) else { return };
        let (cost, usage) = (head.cost.clone(), head.usage);
        let Lane { course, class, .. } = self.lanes.lane(lane);
        let (course, class) = (copied(course), *class);
        let need = Need { course: &course, class, cost: &cost, usage };
        if !self.sweeps.is_empty() && self.impossible(need).is_some() {
            return self.refuse_waiting(id);
        }
        if let Some(block) = self.first_blocked_at(gate, &cost, rank) {
            return self.stay(gate, lane, &cost, rank, block);
        }
        match self.look(&course, &cost, rank, Some(gate)) {
            None => self.grant_waiting(id),
            Some(stand) => {
                self.hold(lane, 0);
                self.lanes.move_to(lane, stand.place, self.due);
                self.changed(gate);
                self.changed(course[stand.place]);
            }
        }
    }

    /// The first in a line stays there: until when, and what it holds meanwhile.
    fn stay(&mut self, gate: GateId, lane: LaneId, cost: &Cost, rank: Rank, block: Block) {
        let mut changes = None;
        if self.lanes.lane(lane).course.len() > 1 {
            let (held, changes_at) = self.holds_from(lane, gate, cost, rank.priority());
            self.hold(lane, held);
            changes = changes_at;
        }
        let lapses = if self.gates[gate].is_shared() { self.lapse(gate) } else { None };
        let timer = [block.until, changes, lapses].into_iter().flatten().min();
        let kept = &mut self.lanes.line_mut(gate).timer;
        self.timers.set(Owner::Gate(gate), kept, timer);
    }

    fn hold(&mut self, lane: LaneId, wanted: u64) {
        for gate in self.lanes.hold(lane, wanted, self.due) {
            self.changed(gate);
        }
    }

    fn grant_waiting(&mut self, id: AskId) {
        let Some(Waiting { arrival, usage, cost, .. }) = self.lanes.asks[id].waiting().cloned() else { return };
        let Some((lane, course)) = self.exit(id) else { return };
        let Lane { class, name, .. } = self.lanes.lane(lane);
        let (class, name) = (*class, name.clone());
        let need = Need { course: &course, class, cost: &cost, usage };
        let grant = self.grant(need, &name, arrival);
        self.decide(id, Ok(grant));
        self.exited(lane, &course);
    }

    fn refuse_waiting(&mut self, id: AskId) {
        let Some(ask) = self.lanes.asks[id].waiting() else { return };
        let lane = self.lanes.lane(ask.lane());
        let ahead = Queue::ahead_of(&self.lanes.asks, id);
        let need = Need { course: &lane.course, class: lane.class, cost: &ask.cost, usage: ask.usage };
        let (reason, gate, block) = self.impossible(need).unwrap_or_else(|| {
            let (gate, estimate) = self.estimate(need, &Costs::default());
            (Reason::Deadline, gate, estimate)
        });
        let reason = if self.door == Door::Closed { Reason::Closed } else { reason };
        let refusal = self.refusal(reason, gate, block);
        let Some((lane, course)) = self.exit(id) else { return };
        self.decide(id, Err(Refused { ahead, ..refusal }));
        self.exited(lane, &course);
    }

    // --- instants of lanes

    /// Refuses those in a lane whose deadline comes by then, or before a gate of theirs reopens. False if the call may not
    /// do so much.
    fn expire(&mut self, lane: LaneId, until: Time) -> bool {
        while let Some(id) = self.first_hopeless(lane, until) {
            if !self.step() {
                return false;
            }
            self.refuse_waiting(id);
        }
        true
    }

    fn first_hopeless(&self, lane: LaneId, until: Time) -> Option<AskId> {
        let lane = self.lanes.contains(lane).then(|| self.lanes.lane(lane))?;
        let (deadline, id) = lane.queue.first_deadline(&self.lanes.asks)?;
        // Whoever is due at the reopening itself may still go.
        let reopens = lane.course.iter().map(|gate| self.gates[*gate].opens(self.due).minus(1)).max();
        (deadline <= until.max(reopens?)).then_some(id)
    }

    // --- what is looked at from end to end

    /// One step of the first sweep.
    fn sweep(&mut self) {
        match self.sweeps.pop_front() {
            Some(Sweep::Rule { rule, next }) if next < self.gates.end() => {
                self.sweeps.push_front(Sweep::Rule { rule, next: next + 1 });
                if self.gates.get(next).is_some_and(|name| name.rule == rule) {
                    self.bring_up(next);
                }
            }
            Some(Sweep::Gate { gate, next, walk }) => {
                let lane = self.lanes.line(gate).and_then(|line| line.lanes.range(next..).next().copied());
                if let Some(lane) = lane {
                    self.sweeps.push_front(Sweep::Gate { gate, next: lane + 1, walk });
                    self.sweep_lane(lane, walk);
                }
            }
            Some(Sweep::Lane(lane)) if self.lanes.contains(lane) => self.sweep_ask(lane),
            Some(Sweep::All) => self.refuse_any(),
            _ => {}
        }
    }

    /// Refuses one of all who wait.
    fn refuse_any(&mut self) {
        let head = |lane: &Lane| lane.queue.head(&self.lanes.asks).map(|(id, _)| id);
        if let Some(id) = self.lanes.any().and_then(head) {
            self.sweeps.push_front(Sweep::All);
            self.refuse_waiting(id);
        }
    }

    fn sweep_lane(&mut self, lane: LaneId, walk: bool) {
        if !self.expire(lane, self.due.minus(1)) {
            // The rest is due at once.
            self.due_lanes.insert(lane);
        }
        if !self.lanes.contains(lane) {
            return;
        }
        if walk {
            self.lanes.lane_mut(lane).queue.begin_walk();
            self.sweeps.push_back(Sweep::Lane(lane));
        }
        self.changed(self.lanes.lane(lane).stands_at());
    }

    /// Refuses the next of a lane if it can never go under the limits that there are now, or not in time.
    fn sweep_ask(&mut self, id: LaneId) {
        let (lane, asks) = self.lanes.lane_and_asks(id);
        let Some((ask, ahead)) = lane.queue.walk(asks) else { return };
        let Some(Waiting { cost, usage, deadline, .. }) = asks[ask].waiting().cloned() else { return };
        let (course, class) = (copied(&lane.course), lane.class);
        self.sweeps.push_front(Sweep::Lane(id));
        let need = Need { course: &course, class, cost: &cost, usage };
        if self.impossible(need).is_some() || self.estimate(need, &ahead).1.until > Some(deadline) {
            self.refuse_waiting(ask);
        }
    }
}
