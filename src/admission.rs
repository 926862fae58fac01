//! Who goes, when: a state machine without I/O. It reads no clock, holds no lock and wakes nobody; whoever drives
//! it says what time it is, asks for the next instant at which something is due, and comes back then.
//!
//! Every call first brings the machine up to `now`, so that nobody who asks now precedes somebody who was due.
//! A `now` from the past changes nothing.
//!
//! A request passes all of its gates in one step, or none. It may go when each of them can serve it, nobody senior
//! stands there, and the most senior of those who hold the gate could still be served after it. Else its lane stands at
//! the gate that blocks it longest, and by its head, once it is the first there, holds those of its other gates that are
//! no faster: *hold at the slower gate, take the next unit at the faster*. No instant is stored for a hold, so nothing
//! has to be reckoned anew when a gate pauses, a slot hangs or limits change; what changes at a gate is looked at there.

use crate::backoff;
use crate::cost::{Cost, Costs, Unit};
use crate::limits::Limits;
use crate::refused::{Reason, Refused};
use crate::time::{Time, nanos};
use crate::wait::Wait;

mod bucket;
mod window;
mod snapshot;
mod lease;
mod report;
mod span;
mod stated;
mod meter;
mod slots;
mod pause;
mod block;
mod brake;
mod gate;
mod heard;
mod gates;
mod effect;
mod order;
mod grant;
mod timers;
mod queue;
mod ranked;
mod lanes;
mod turns;
mod state;
mod decision;
mod work;
mod view;
mod wish;

pub(crate) use effect::{Effect, Event};
use gate::{Gate, Taken};
pub(crate) use gate::{Rule, Use};
pub(crate) use gates::GateName;
#[cfg_attr(not(test), expect(unused_imports, reason = "for limits on what comes in"))]
pub(crate) use gates::Overflow;
use gates::{GateId, Gates};
pub(crate) use grant::Grant;
use lanes::{Course, Lanes};
pub(crate) use order::Arrival;
use order::{LaneId, Order};
pub(crate) use queue::AskId;
use queue::{Ask, Waiting};
pub(crate) use report::Report;
pub use snapshot::{GateSnapshot, LaneSnapshot, QuotaSnapshot, Snapshot, StatedSnapshot};
use state::{Door, State, Sweep};
pub(crate) use wish::{Asked, HandOver, Settings, Wish};

/// The admission of all gates that belong together.
#[derive(Debug)]
pub(crate) struct Admission {
    state: State,
    most_waiting: usize,
}

impl Admission {
    pub(crate) fn new(settings: Settings) -> Self {
        let Settings { rules, age, fair_by, most_keys, overflow, most_waiting } = settings;
        let gates = Gates::new(rules, most_keys, overflow);
        Self { state: State::new(gates, Lanes::new(Order::new(age, fair_by))), most_waiting }
    }

    /// Brings everything up to `now`: grants what has come due, refuses what is past its deadline.
    pub(crate) fn advance(&mut self, now: Time) {
        self.state.advance(now);
    }

    /// The next instant at which [`advance`](Self::advance) has something to do.
    pub(crate) fn next(&self) -> Option<Time> {
        self.state.next()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.waiting
    }

    // --- asking

    /// Asks to pass. Granted at once, if nothing blocks and nobody senior is in the way; else refused, if the deadline
    /// certainly cannot be met; else made to wait.
    pub(crate) fn ask(&mut self, wish: &Wish<'_>, now: Time) -> Result<Asked, Refused> {
        self.state.advance(now);
        if let Some(grant) = self.pass_alone(wish) {
            return Ok(Asked::Granted(grant));
        }
        let lets_in = if wish.arrival.is_some() { Door::Draining } else { Door::Open };
        if self.state.door > lets_in {
            return Err(Refused::new(Reason::Closed, ""));
        }
        let course = self.course(wish)?;
        let arrival = wish.arrival.unwrap_or_else(|| self.state.lanes.order.arrive(self.state.now));
        let need = wish.need(&course);
        if let Some((reason, gate, block)) = self.state.impossible(need) {
            return Err(self.state.refusal(reason, gate, block));
        }
        if wish.cancelled {
            return Err(Refused::new(Reason::Cancelled, ""));
        }
        let rank = self.state.lanes.order.rank_of_newcomer(wish.class, &wish.flow, arrival, self.state.due);
        let Some(stand) = self.state.look(&course, wish.cost, rank, None) else {
            let grant = self.state.grant(need, &wish.flow, arrival);
            self.state.work();
            return Ok(Asked::Granted(grant));
        };
        let flow = self.state.lanes.order.find_flow(wish.class, &wish.flow);
        let lane = flow.and_then(|flow| self.state.lanes.find(&course, wish.class, flow));
        self.check_deadline(&course, wish, arrival, lane)?;
        if self.state.waiting >= self.most_waiting {
            let ahead = self.state.waiting;
            return Err(Refused { ahead, ..Refused::new(Reason::QueueFull, "") });
        }
        let lane = lane.unwrap_or_else(|| self.open(&course, wish, stand.place));
        let id = self.stand(lane, wish, arrival);
        self.state.work();
        Ok(Asked::Waiting(id))
    }

    /// Where nobody waits, only the gate itself can be in the way. What is found here is what all the rest would find.
    fn pass_alone(&mut self, wish: &Wish<'_>) -> Option<Grant> {
        let [name] = wish.gates else { return None };
        if !self.state.is_calm() || wish.cancelled || wish.usage == Use::Unseen {
            return None;
        }
        let gate = self.state.gates.find_current(name)?;
        if !self.state.gates[gate].lets(wish.cost, wish.class, self.state.due) {
            return None;
        }
        let arrival = wish.arrival.unwrap_or_else(|| self.state.lanes.order.arrive(self.state.now));
        Some(self.state.grant(wish.need(&[gate]), &wish.flow, arrival))
    }

    /// The gates of a wish, made on first use.
    fn course(&mut self, wish: &Wish<'_>) -> Result<Course, Refused> {
        let mut course = Course::new();
        let mut too_many = None;
        for name in wish.gates {
            match self.state.gates.find_or_make(name, self.state.due) {
                // While others are made, this one is in use.
                Some(id) if !course.contains(&id) => {
                    self.state.gates[id].enter();
                    course.push(id);
                }
                Some(_) => {}
                None if self.state.gates.is_optional(name) => {}
                None => too_many = Some(Refused::new(Reason::TooManyKeys, name.key.as_str())),
            }
        }
        for gate in &course {
            self.state.gates[*gate].exit();
            self.state.bring_up(*gate);
        }
        too_many.map_or(Ok(course), Err)
    }

    /// Refuses a newcomer who would have to wait, if it certainly cannot for as long as that.
    fn check_deadline(
        &mut self,
        course: &Course,
        wish: &Wish<'_>,
        arrival: Arrival,
        lane: Option<LaneId>,
    ) -> Result<(), Refused> {
        let lane = lane.map(|lane| self.state.lanes.lane(lane));
        let ahead = lane.map_or(0, |lane| lane.queue.ahead_of_arrival(&self.state.lanes.asks, arrival));
        // While decisions are due of which a call could do only so many, nobody knows who is ahead.
        let lane =
            lane.filter(|lane| lane.queue.ends_before(&self.state.lanes.asks, arrival) && !self.state.has_leftovers());
        let nobody = Costs::default();
        let (gate, estimate) = self.state.estimate(wish.need(course), lane.map_or(&nobody, |lane| lane.queue.queued()));
        let reason = match wish.deadline {
            None => Reason::WouldWait,
            Some(deadline) if deadline <= self.state.now || estimate.until > Some(deadline) => Reason::Deadline,
            Some(_) => return Ok(()),
        };
        Err(Refused { ahead, ..self.state.refusal(reason, gate, estimate) })
    }

    /// A lane for the first who stands in it.
    fn open(&mut self, course: &Course, wish: &Wish<'_>, place: usize) -> LaneId {
        let flow = self.state.lanes.order.flow(wish.class, &wish.flow);
        course.iter().for_each(|gate| self.state.gates[*gate].enter());
        self.state.lanes.open(course, wish.class, flow, wish.flow.clone(), place)
    }

    fn stand(&mut self, lane: LaneId, wish: &Wish<'_>, arrival: Arrival) -> AskId {
        let deadline = wish.deadline.unwrap_or(self.state.now);
        let waiting = Waiting::new(lane, arrival, deadline, wish.usage, wish.cost.clone());
        let (id, is_head) = self.state.lanes.enter(waiting, self.state.due);
        self.state.waiting += 1;
        if is_head {
            self.state.lane_changed(lane);
        } else {
            self.state.time_lane(lane);
        }
        id
    }

    // --- the life of an ask and of a grant

    /// Whether there may be somebody to be told.
    pub(crate) fn has_decided(&self) -> bool {
        !self.state.decided.is_empty()
    }

    /// One of those who were decided on while they waited, to be told.
    pub(crate) fn pop_decided(&mut self) -> Option<AskId> {
        // Who has collected its decision or left since need not be told; its number may be somebody else's by now.
        while let Some(id) = self.state.decided.pop_front() {
            if self.state.lanes.asks.get(id).is_some_and(Ask::is_decided) {
                return Some(id);
            }
        }
        None
    }

    /// The decision, once there is one; with it the ask is over.
    pub(crate) fn collect(&mut self, id: AskId) -> Option<Result<Grant, Refused>> {
        if !self.state.lanes.asks[id].is_decided() {
            return None;
        }
        match self.state.lanes.asks.remove(id) {
            Ask::Decided(decision) => Some(decision.map_err(|refused| *refused)),
            Ask::Waiting(_) => None,
        }
    }

    /// Whoever asked is gone. If it was granted meanwhile, the grant is given back.
    pub(crate) fn leave(&mut self, id: AskId, now: Time) {
        self.state.advance(now);
        let left = self.state.exit(id);
        let ask = self.state.lanes.asks.remove(id);
        if let Some((lane, course)) = left {
            self.state.exited(lane, &course);
        }
        if let Ask::Decided(Ok(grant)) = ask {
            self.undo(grant);
        }
        self.state.work();
    }

    /// The request leaves now. False if it must not: then the grant is to be given back, and asked for again.
    pub(crate) fn send(&mut self, grant: &Grant, now: Time) -> bool {
        self.state.advance(now);
        let mut sent = true;
        self.state.at_each_gate(grant, |_, gate, taken, now| {
            let (held, anew) = gate.send(taken, now);
            sent &= held;
            !held || anew || gate.heeds_ends()
        });
        self.state.work();
        sent
    }

    /// The server took the request.
    pub(crate) fn answered(&mut self, grant: &Grant, now: Time) {
        self.state.advance(now);
        self.state.at_each_gate(grant, |_, gate, taken, now| {
            let heeds = gate.heeds_ends();
            gate.answered(taken, now);
            heeds
        });
        self.state.work();
    }

    /// What the server says of its limits, with the answer to the request: at one of its gates, by its place among them. To be
    /// heard before whether the request was taken.
    pub(crate) fn report(&mut self, grant: &Grant, place: usize, reports: &[Report], now: Time) {
        self.state.advance(now);
        self.state.at_each_gate(grant, |nth, gate, taken, now| {
            if nth == place {
                gate.report(taken, reports, now);
            }
            nth == place
        });
        self.state.work();
    }

    /// The same at the gate of a name, which the request did not pass, for nobody knew that it had to. It is made for that,
    /// unless there are too many.
    pub(crate) fn report_of_another(&mut self, name: &GateName, reports: &[Report], now: Time) {
        self.state.advance(now);
        if let Some(gate) = self.state.gates.find_or_make(name, self.state.due) {
            self.state.gates[gate].report_of_another(reports, self.state.now);
            self.state.changed(gate);
        }
        self.state.work();
    }

    /// Which of the gates that it passed has this name.
    pub(crate) fn place(&self, grant: &Grant, name: &GateName) -> Option<usize> {
        let gate = self.state.gates.find(name)?;
        self.state.grants.gates_of(grant).position(|passed| passed == gate)
    }

    /// What was learned of answers at a gate was not about everybody who passes there.
    pub(crate) fn hand_over(&mut self, HandOver { from, stated, found }: &HandOver, now: Time) {
        self.state.advance(now);
        let Some(gate) = self.state.gates.find(from) else { return };
        // While others are made, this one is in use.
        self.state.gates[gate].enter();
        for (name, to) in stated {
            let is_its = |other: &str| name.as_ref().is_none_or(|name| **name == *other);
            let meters = self.state.gates[gate].give_up_stated(is_its);
            if meters.is_empty() {
                continue;
            }
            let Some(to) = self.state.gates.find_or_make(to, self.state.due) else { continue };
            for meter in meters {
                self.state.gates[to].adopt(meter);
            }
            self.state.changed(to);
        }
        if let Some(to) =
            found.as_ref().filter(|to| *to != from).and_then(|name| self.state.gates.find_or_make(name, self.state.due))
        {
            self.state.gates.give_up_found(gate, to, self.state.now);
            self.state.changed(to);
        }
        self.state.gates[gate].exit();
        self.state.sweep_lanes(gate);
        self.state.changed(gate);
        self.state.work();
    }

    /// The server refused the request because of traffic at one of its gates, by its place among them: nobody passes that
    /// one for a while.
    pub(crate) fn refused(&mut self, grant: &Grant, place: usize, wait: Wait, now: Time) {
        self.in_vain(grant, place, now, |gate, taken, now| gate.refused(taken, wait, now));
    }

    /// The same at the gate of a name that the request did not pass, for nobody knew that it had to.
    pub(crate) fn refused_by_another(&mut self, grant: &Grant, name: &GateName, wait: Wait, now: Time) {
        let Some(gate) = self.state.gates.find_or_make(name, self.state.due) else {
            return self.refused(grant, 0, wait, now);
        };
        self.in_vain(grant, usize::MAX, now, |_, _, _| {});
        self.pause_at(gate, now.plus(nanos(backoff::pause(wait, 0))));
    }

    /// The server could not do what was asked, or did not answer: its gate lets go less for a while, and nobody before a wait
    /// that it states.
    pub(crate) fn failed(&mut self, grant: &Grant, place: usize, wait: Option<Wait>, now: Time) {
        self.in_vain(grant, place, now, |gate, taken, now| gate.failed(taken, wait, now));
    }

    /// Nothing came of it, because of one of its gates, where things have become rarer.
    fn in_vain(
        &mut self,
        grant: &Grant,
        place: usize,
        now: Time,
        mut act: impl FnMut(&mut Gate, &mut Taken<'_>, Time),
    ) {
        self.state.advance(now);
        self.state.at_each_gate(grant, |nth, gate, taken, now| {
            if nth == place {
                act(gate, taken, now);
            } else {
                gate.refused_elsewhere(taken, now);
            }
            true
        });
        if place < self.state.grants.gates(grant) {
            let (gate, _) = self.state.grants.at(grant, place);
            self.state.sweep_lanes(gate);
        }
        self.state.work();
    }

    /// The request took `actual` of a unit, and not what it was taken to cost.
    pub(crate) fn settle(&mut self, grant: &Grant, unit: &Unit, actual: u64, now: Time) {
        self.state.advance(now);
        self.state.at_each_gate(grant, |_, gate, taken, now| {
            gate.settle(taken, unit, actual, now);
            true
        });
        self.state.work();
    }

    /// The request has ended: its slot is free, its units stay spent. What was never answered counts from now.
    pub(crate) fn release(&mut self, grant: Grant, now: Time) {
        self.release_at(grant, || now);
    }

    /// The same. What time it is is only asked where that matters to anybody.
    pub(crate) fn release_at(&mut self, grant: Grant, now: impl FnOnce() -> Time) {
        if !self.state.heeds_end(&grant) {
            return self.state.end_unheeded(grant);
        }
        self.state.advance(now());
        self.state.end(grant);
        self.state.work();
    }

    /// The request was never sent: as if it had not been granted.
    pub(crate) fn give_back(&mut self, grant: Grant, now: Time) {
        self.state.advance(now);
        self.undo(grant);
        self.state.work();
    }

    fn undo(&mut self, grant: Grant) {
        if let Some(turn) = self.state.grants.take_turn(&grant) {
            self.state.turn_returned(&turn);
        }
        self.state.out -= usize::from(self.state.grants.usage(&grant) == Use::Permit);
        self.state.at_each_gate(&grant, |_, gate, taken, now| {
            gate.give_back(taken, now);
            true
        });
        self.state.grants.end(grant);
    }

    // --- what comes from outside

    /// Nobody passes the gate of a name before `until`. It is made for that, however many there are.
    pub(crate) fn pause(&mut self, name: &GateName, until: Time, now: Time) {
        self.state.advance(now);
        let gate = self.state.gates.make_anyway(name, self.state.due);
        self.pause_at(gate, until);
    }

    fn pause_at(&mut self, gate: GateId, until: Time) {
        self.state.bring_up(gate);
        self.state.gates[gate].pause(until, self.state.now);
        self.state.sweep_lanes(gate);
        self.state.changed(gate);
        self.state.work();
    }

    /// A request was sent `at` some time before that nobody has asked for here, and counts at the gates of these names. They are
    /// made for that, however many there are.
    pub(crate) fn count(&mut self, names: &[GateName], cost: &Cost, at: Time, now: Time) {
        self.state.advance(now);
        for name in names {
            let gate = self.state.gates.make_anyway(name, self.state.due);
            self.state.bring_up(gate);
            self.state.gates[gate].count(cost, at.min(self.state.now));
            self.state.sweep_lanes(gate);
            self.state.changed(gate);
        }
        self.state.work();
    }

    /// When the gate of a name opens at the earliest.
    pub(crate) fn opens(&self, name: &GateName, now: Time) -> Option<Time> {
        self.state.gates.find(name).map(|gate| self.state.gates[gate].opens(now))
    }

    /// Other limits for all gates of a rule, from now on. Whoever can never go under them, or not in time, learns it.
    pub(crate) fn set_limits(&mut self, rule: usize, limits: Limits, now: Time) {
        self.state.advance(now);
        self.state.gates.set_limits(rule, limits);
        self.state.sweeps.push_front(Sweep::Rule { rule, next: 0 });
        self.state.work();
    }

    /// Nobody new is let in any more; who waits goes on.
    pub(crate) fn drain(&mut self) {
        self.state.door = self.state.door.max(Door::Draining);
    }

    /// Nobody is let in any more, and all who wait are refused.
    pub(crate) fn close(&mut self, now: Time) {
        self.advance(now);
        self.state.door = Door::Closed;
        self.state.sweeps.push_front(Sweep::All);
        self.state.work();
    }

    /// Nobody new is let in, nobody waits, and no permit is out.
    pub(crate) fn is_drained(&self) -> bool {
        self.state.door > Door::Open && self.state.waiting == 0 && self.state.out == 0
    }

    /// When somebody who waits can go at the earliest, as things stand.
    pub(crate) fn estimate(&mut self, id: AskId, now: Time) -> Option<Time> {
        self.advance(now);
        self.state.estimate_of(id)
    }

    /// What the lane of somebody waits for, and how many are ahead there.
    pub(crate) fn why(&mut self, id: AskId, now: Time) -> Option<(LaneSnapshot, usize)> {
        self.advance(now);
        self.state.why_it_waits(id)
    }

    /// What the store has answered.
    #[cfg_attr(not(test), expect(dead_code, reason = "for limits that are shared through a store"))]
    pub(crate) fn event(&mut self, event: Event, now: Time) {
        self.state.advance(now);
        let (Event::Borrowed { of, .. } | Event::Denied { of, .. }) = &event;
        let gate = Some(of.id).filter(|id| self.state.gates.serial(*id) == Some(of.serial));
        let lease = gate.and_then(|gate| self.state.gates[gate].leases().find(|(meter, ..)| *meter == of.meter));
        match (event, lease) {
            (Event::Borrowed { units, until, .. }, Some((.., lease))) => lease.borrowed(units, until),
            (Event::Denied { until, .. }, Some((.., lease))) => lease.denied(until),
            // It is not counted by that quota any more.
            (Event::Borrowed { of, units, .. }, None) => self.state.effects.push_back(Effect::Return { of, units }),
            (Event::Denied { .. }, None) => {}
        }
        if let Some(gate) = gate {
            self.state.changed(gate);
        }
        self.state.work();
    }

    /// Something to be asked of the store.
    #[cfg_attr(not(test), expect(dead_code, reason = "for limits that are shared through a store"))]
    pub(crate) fn pop_effect(&mut self) -> Option<Effect> {
        self.state.effects.pop_front()
    }

    /// How each gate stands.
    pub(crate) fn snapshot(&mut self, now: Time) -> Snapshot {
        self.state.advance(now);
        self.state.snapshot()
    }
}

#[cfg(test)]
mod tests;
