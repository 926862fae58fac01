//! Who goes, when: a state machine without I/O. It reads no clock, holds no lock and wakes nobody; whoever drives
//! it says what time it is, asks for the next instant at which something is due, and comes back then.
//!
//! Every call first brings the machine up to `now`, so that nobody who asks now precedes somebody who was due.
//! A `now` from the past changes nothing.

use std::collections::{BTreeSet, HashMap, VecDeque};

use slab::Slab;

use crate::cost::{Cost, Unit};
use crate::key::Key;
use crate::limits::Limits;
use crate::refused::{Reason, Refused};
use crate::time::{LATE_WAKE_CREDIT, Time, nanos};
use crate::wait::Wait;

mod bucket;
mod window;
mod meter;
mod slots;
mod pause;
mod order;
mod gate;

pub(crate) use gate::Use;
use gate::{Gate, Taken};
pub(crate) use order::{Arrival, AskId};

/// A call does at most so much, and leaves the rest for the next one, which is due at once.
const MOST_STEPS: usize = 256;

/// So many keys at most. One more goes in the place of one that is at rest, or not at all.
const MOST_KEYS: usize = 100_000;

/// Whoever makes a gate looks at so many others, whether they are at rest: those cannot outnumber the rest for long.
const LOOKED_AT: usize = 4;

type GateId = usize;

/// The admission of all gates of one limiter. Gates are made on first use, from the same limits.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: Limits,
    gates: Slab<Gate>,
    keys: HashMap<Key, GateId>,
    /// Where the search for gates at rest goes on.
    hand: GateId,
    asks: Slab<Ask>,
    waiting: usize,
    last_arrival: Arrival,
    /// At most one instant for each gate: its head's, or its first deadline.
    timers: BTreeSet<(Time, GateId)>,
    /// Who was decided on while waiting, and not told yet.
    decided: VecDeque<AskId>,
    now: Time,
    /// The instant at which what is due is judged. Never falls, never after `now`.
    due: Time,
}

#[derive(Debug)]
struct Ask {
    gate: GateId,
    arrival: Arrival,
    deadline: Time,
    usage: Use,
    cost: Cost,
    decision: Option<Result<Grant, Refused>>,
}

/// A request's wish to pass a gate.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) key: Key,
    pub(crate) usage: Use,
    pub(crate) cost: Cost,
    /// The place in the order, if it has stood here before.
    pub(crate) arrival: Option<Arrival>,
    /// Until when it would wait; not at all if `None`.
    pub(crate) deadline: Option<Time>,
}

#[derive(Debug)]
pub(crate) enum Asked {
    Granted(Grant),
    Waiting(AskId),
}

/// Leave to send one request. To be ended with [`Admission::release`] or [`Admission::give_back`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Grant {
    gate: GateId,
    pub(crate) arrival: Arrival,
    taken: Taken,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            gates: Slab::new(),
            keys: HashMap::new(),
            hand: 0,
            asks: Slab::new(),
            waiting: 0,
            last_arrival: Arrival::default(),
            timers: BTreeSet::new(),
            decided: VecDeque::new(),
            now: Time::ZERO,
            due: Time::ZERO,
        }
    }

    /// The gate of a key, made on first use. `None` if there are too many, and none that was looked at is at rest.
    fn gate(&mut self, key: &Key) -> Option<GateId> {
        if let Some(id) = self.keys.get(key) {
            return Some(*id);
        }
        self.drop_gates_at_rest(LOOKED_AT);
        if self.gates.len() >= MOST_KEYS {
            self.drop_gates_at_rest(MOST_STEPS);
        }
        (self.gates.len() < MOST_KEYS).then(|| self.make_gate(key))
    }

    fn make_gate(&mut self, key: &Key) -> GateId {
        let id = self.gates.insert(Gate::new(key.clone(), &self.limits));
        self.keys.insert(key.clone(), id);
        id
    }

    /// Looks at so many gates, where the last look ended, and drops those that a fresh one would be the same as.
    fn drop_gates_at_rest(&mut self, looks: usize) {
        for _ in 0..looks.min(self.gates.len()) {
            self.hand = if self.hand + 1 < self.gates.capacity() { self.hand + 1 } else { 0 };
            let (id, due) = (self.hand, self.due);
            if self.gates.get_mut(id).is_some_and(|gate| gate.is_at_rest(due)) {
                self.keys.remove(self.gates.remove(id).key());
            }
        }
    }

    /// Asks to pass. Granted at once, if nothing blocks and nobody with an earlier place waits; else refused, if
    /// the deadline certainly cannot be met; else made to wait.
    pub(crate) fn ask(&mut self, wish: Wish, now: Time) -> Result<Asked, Refused> {
        self.advance(now);
        let arrival = wish.arrival.unwrap_or_else(|| self.next_arrival());
        let Some(id) = self.gate(&wish.key) else {
            return Err(Refused::new(Reason::TooManyKeys, wish.key.as_str()));
        };
        let gate = &mut self.gates[id];
        let ahead = gate.ahead_of(arrival);
        if wish.usage == Use::Unseen && gate.counts_in_flight() {
            let block = gate.estimate(&wish.cost, arrival, self.due);
            return Err(gate.refusal(Reason::NeedsPermit, block, ahead, self.now));
        }
        if let Some(block) = gate.never_lets(&wish.cost) {
            return Err(gate.refusal(Reason::CostExceedsQuota, block, ahead, self.now));
        }
        if ahead == 0 && gate.blocked(&wish.cost, self.due).is_none() {
            return Ok(Asked::Granted(self.grant(id, arrival, &wish.cost, wish.usage)));
        }
        let estimate = gate.estimate(&wish.cost, arrival, self.due);
        let Some(deadline) = wish.deadline else {
            return Err(gate.refusal(Reason::WouldWait, estimate, ahead, self.now));
        };
        if deadline <= self.now || estimate.until > Some(deadline) {
            return Err(gate.refusal(Reason::Deadline, estimate, ahead, self.now));
        }
        Ok(Asked::Waiting(self.stand(id, wish, arrival, deadline)))
    }

    fn next_arrival(&mut self) -> Arrival {
        self.last_arrival = self.last_arrival.next();
        self.last_arrival
    }

    fn grant(&mut self, gate: GateId, arrival: Arrival, cost: &Cost, usage: Use) -> Grant {
        let taken = self.gates[gate].take(cost, usage, self.due, self.now);
        Grant { gate, arrival, taken }
    }

    fn stand(&mut self, gate: GateId, wish: Wish, arrival: Arrival, deadline: Time) -> AskId {
        let Wish { usage, cost, .. } = wish;
        let id = self.asks.insert(Ask { gate, arrival, deadline, usage, cost, decision: None });
        self.waiting += 1;
        self.gates[gate].stand(arrival, deadline, id, &self.asks[id].cost);
        self.serve(gate, MOST_STEPS);
        id
    }

    /// Brings everything up to `now`: grants what has come due, refuses what is past its deadline.
    pub(crate) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        let mut steps = MOST_STEPS;
        while let Some(&(at, gate)) = self.timers.first().filter(|(at, _)| *at <= self.now) {
            if steps == 0 {
                return;
            }
            self.due = self.due.max(at).max(self.now.minus(nanos(LATE_WAKE_CREDIT)));
            steps = self.serve(gate, steps);
        }
        self.due = self.now;
    }

    /// Decides on everybody at one gate on whom it can be decided at the due instant, and sets its timer. Answers
    /// how many of its steps are left.
    fn serve(&mut self, id: GateId, mut steps: usize) -> usize {
        // Who left before this instant is not granted at it; who leaves at it still may be.
        self.expire(id, self.due.minus(1), &mut steps);
        let mut timer = self.grant_heads(id, &mut steps);
        // A head that leaves may have held up a smaller one.
        while self.expire(id, self.due, &mut steps) {
            timer = self.grant_heads(id, &mut steps);
        }
        self.set_timer(id, timer);
        steps
    }

    /// Grants one head after the other, until one has to wait: until when, if that is known.
    fn grant_heads(&mut self, id: GateId, steps: &mut usize) -> Option<Time> {
        loop {
            let gate = &mut self.gates[id];
            let head = gate.head()?;
            match gate.blocked(&self.asks[head].cost, self.due) {
                Some(block) => return block.until,
                None if *steps == 0 => return Some(self.due),
                None => self.grant_waiting(head),
            }
            *steps -= 1;
        }
    }

    fn grant_waiting(&mut self, id: AskId) {
        // Out of the line first: what it waits for is no longer queued.
        self.unlink(id);
        let cost = std::mem::take(&mut self.asks[id].cost);
        let Ask { gate, arrival, usage, .. } = self.asks[id];
        let grant = self.grant(gate, arrival, &cost, usage);
        self.decide(id, Ok(grant));
    }

    /// Refuses those whose deadline has come by then, as far as the steps go. False if there are none.
    fn expire(&mut self, id: GateId, until: Time, steps: &mut usize) -> bool {
        let until = until.max(self.gates[id].hopeless_until);
        let mut any = false;
        while let Some((_, ask)) = self.gates[id].first_deadline().filter(|(at, _)| *at <= until && *steps > 0) {
            self.refuse_waiting(ask);
            *steps -= 1;
            any = true;
        }
        any
    }

    fn refuse_waiting(&mut self, id: AskId) {
        let ask = &self.asks[id];
        let gate = &self.gates[ask.gate];
        let (never, ahead) = (gate.never_lets(&ask.cost), gate.ahead_of(ask.arrival));
        let reason = match ask.usage {
            Use::Unseen if gate.counts_in_flight() => Reason::NeedsPermit,
            _ if never.is_some() => Reason::CostExceedsQuota,
            _ => Reason::Deadline,
        };
        let block = never.unwrap_or_else(|| gate.estimate(&ask.cost, ask.arrival, self.due));
        let refusal = gate.refusal(reason, block, ahead, self.now);
        self.unlink(id);
        self.decide(id, Err(refusal));
    }

    fn decide(&mut self, id: AskId, decision: Result<Grant, Refused>) {
        self.asks[id].decision = Some(decision);
        self.decided.push_back(id);
    }

    fn unlink(&mut self, id: AskId) {
        let ask = &self.asks[id];
        self.gates[ask.gate].leave(ask.arrival, ask.deadline, id, &ask.cost);
        self.waiting -= 1;
    }

    fn set_timer(&mut self, id: GateId, head: Option<Time>) {
        let gate = &mut self.gates[id];
        let deadline = gate.first_deadline().map(|(at, _)| if at <= gate.hopeless_until { self.due } else { at });
        let timer = [head, deadline].into_iter().flatten().min();
        if timer == gate.timer {
            return;
        }
        if let Some(old) = std::mem::replace(&mut gate.timer, timer) {
            self.timers.remove(&(old, id));
        }
        self.timers.extend(timer.map(|at| (at, id)));
    }

    /// One of those who were decided on while they waited, to be told.
    pub(crate) fn pop_decided(&mut self) -> Option<AskId> {
        // Who has collected its decision or left since need not be told; its number may be somebody else's by now.
        let told = |ask: &Ask| ask.decision.is_some();
        while let Some(id) = self.decided.pop_front() {
            if self.asks.get(id).is_some_and(told) {
                return Some(id);
            }
        }
        None
    }

    /// The decision, once there is one; with it the ask is over.
    pub(crate) fn collect(&mut self, id: AskId) -> Option<Result<Grant, Refused>> {
        self.asks[id].decision.as_ref()?;
        self.asks.remove(id).decision
    }

    /// Whoever asked is gone. If it was granted meanwhile, the grant is given back.
    pub(crate) fn leave(&mut self, id: AskId, now: Time) {
        self.advance(now);
        let gate = self.asks[id].gate;
        if self.asks[id].decision.is_none() {
            self.unlink(id);
        }
        match self.asks.remove(id).decision {
            Some(Ok(grant)) => self.give_back(grant, now),
            _ => {
                self.serve(gate, MOST_STEPS);
            }
        }
    }

    /// The request leaves now. False if it must not: then the grant is to be given back, and asked for again.
    pub(crate) fn send(&mut self, grant: &mut Grant, now: Time) -> bool {
        self.advance(now);
        let sent = self.gates[grant.gate].send(&mut grant.taken, self.now);
        self.serve(grant.gate, MOST_STEPS);
        sent
    }

    /// The server took the request.
    pub(crate) fn answered(&mut self, grant: &mut Grant, now: Time) {
        self.advance(now);
        self.gates[grant.gate].answered(&mut grant.taken, self.now);
        self.serve(grant.gate, MOST_STEPS);
    }

    /// The server refused the request because of traffic: nobody passes the gate for a while.
    pub(crate) fn refused(&mut self, grant: &mut Grant, wait: Wait, now: Time) {
        self.advance(now);
        self.gates[grant.gate].refused(&mut grant.taken, wait, self.now);
        self.serve_after_pause(grant.gate);
    }

    /// The request took `actual` of a unit, and not what it was taken to cost.
    pub(crate) fn settle(&mut self, grant: &mut Grant, unit: &Unit, actual: u64, now: Time) {
        self.advance(now);
        self.gates[grant.gate].settle(&mut grant.taken, unit, actual, self.now);
        self.serve(grant.gate, MOST_STEPS);
    }

    /// The request has ended: its slot is free, its units stay spent. What was never answered counts from now.
    pub(crate) fn release(&mut self, grant: Grant, now: Time) {
        self.advance(now);
        self.gates[grant.gate].release(grant.taken, self.now);
        self.serve(grant.gate, MOST_STEPS);
    }

    /// The request was never sent: as if it had not been granted.
    pub(crate) fn give_back(&mut self, grant: Grant, now: Time) {
        self.advance(now);
        self.gates[grant.gate].give_back(grant.taken);
        self.serve(grant.gate, MOST_STEPS);
    }

    /// Nobody passes the gate of a key before `until`. It is made for that, however many there are.
    pub(crate) fn pause(&mut self, key: &Key, until: Time, now: Time) {
        self.advance(now);
        let id = self.keys.get(key).copied().unwrap_or_else(|| self.make_gate(key));
        self.gates[id].pause(until, self.now);
        self.serve_after_pause(id);
    }

    /// Whoever cannot wait that long learns it now.
    fn serve_after_pause(&mut self, id: GateId) {
        // Whoever is due at the reopening itself may still go.
        let gate = &mut self.gates[id];
        gate.hopeless_until = gate.paused_until(self.now).minus(1);
        self.serve(id, MOST_STEPS);
    }

    /// Other limits for all gates, from now on. Whoever can never go under them, or not in time, learns it now.
    pub(crate) fn set_limits(&mut self, limits: Limits, now: Time) {
        self.advance(now);
        self.limits = limits;
        let gates: Vec<_> = self.gates.iter().map(|(id, _)| id).collect();
        for id in gates {
            self.retune(id);
        }
    }

    fn retune(&mut self, id: GateId) {
        let gate = &mut self.gates[id];
        gate.retune(&self.limits, self.now);
        let waiting: Vec<_> = gate.line().collect();
        let costs: Vec<_> = waiting.iter().map(|ask| &self.asks[*ask].cost).collect();
        gate.recount(&costs);
        for ask in waiting {
            if self.is_hopeless(ask) {
                self.refuse_waiting(ask);
            }
        }
        self.serve(id, MOST_STEPS);
    }

    /// Whether somebody can never go under the limits that there are now, or as the first one not in time.
    fn is_hopeless(&self, id: AskId) -> bool {
        let Ask { gate, arrival, deadline, usage, ref cost, .. } = self.asks[id];
        let gate = &self.gates[gate];
        let late = gate.head() == Some(id) && gate.estimate(cost, arrival, self.due).until > Some(deadline);
        late || gate.never_lets(cost).is_some() || (usage == Use::Unseen && gate.counts_in_flight())
    }

    /// The next instant at which [`advance`](Self::advance) has something to do.
    pub(crate) fn next(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The invariants of the core, for tests.
    #[cfg(test)]
    fn assert_sound(&mut self) {
        let due = self.due;
        assert_eq!(self.waiting, self.asks.iter().filter(|(_, ask)| ask.decision.is_none()).count());
        for (id, gate) in &mut self.gates {
            let leftover = gate.timer.is_some_and(|at| at <= due);
            let stuck = gate.head().is_some_and(|head| gate.blocked(&self.asks[head].cost, due).is_none());
            assert!(leftover || !stuck, "gate {id} lets go, and somebody waits");
            assert_eq!(self.timers.iter().filter(|(_, gate)| *gate == id).count(), gate.timer.iter().count());
            assert!(gate.first_deadline().is_none_or(|(at, _)| leftover || at > due), "waits past its deadline");
        }
    }
}

#[cfg(test)]
mod tests;
