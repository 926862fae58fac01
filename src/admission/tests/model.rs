//! The same, slow and obvious: whole milliseconds, lists that are searched from end to end, holds and turns that are
//! reckoned anew each time, and time that goes by one millisecond after the other. Written from the rules, and not from
//! the code that it judges.

mod gate;
mod quota;

use std::collections::{HashMap, HashSet};

pub(super) use gate::Gate;
use gate::Probe;
pub(super) use quota::{From, Kind, Level, Log, Quota};

/// The longest that what was due may lie back.
const CREDIT: i64 = 2;

const FOREVER: i64 = i64::MAX / 4;

const NOBODY: usize = usize::MAX;

/// Whose request it is, and what it wants.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) id: usize,
    pub(super) gates: Vec<usize>,
    pub(super) cost: [i64; 2],
    pub(super) seen: bool,
    /// 0 is the most urgent.
    pub(super) class: usize,
    /// 0 is that of all who name none.
    pub(super) flow: usize,
    /// As which one it arrived, and when.
    pub(super) arrival: Option<(u64, i64)>,
    pub(super) deadline: Option<i64>,
}

impl Ask {
    fn number(&self) -> u64 {
        self.arrival.unwrap().0
    }
}

#[derive(Clone, Debug)]
struct Lane {
    gates: Vec<usize>,
    class: usize,
    flow: usize,
    stands: usize,
    asks: Vec<Ask>,
    /// How far which head has gone up, and with which tag.
    aged: (u64, usize, i64),
}

#[derive(Clone, Debug)]
struct Grant {
    ask: Ask,
    /// By gate: in which epoch, and as which probe.
    passes: Vec<(u64, Option<u64>)>,
    at: i64,
    answered: bool,
    /// How far it moved its flow on, and in which period.
    turn: (i64, u64),
}

/// What was decided on somebody who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Granted,
    TooLate,
    TooMuch,
}

/// One flow's turn in one class.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    at: i64,
    served: i64,
}

/// The turns of one class, since somebody last waited in it.
#[derive(Clone, Debug, Default)]
struct Turns {
    clock: i64,
    largest: i64,
    flows: HashMap<usize, Tag>,
    period: u64,
}

/// Who is senior: the class it has come to, then the tag, then the arrival.
type Rank = (usize, i64, u64);

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) gates: Vec<Gate>,
    age: i64,
    lanes: Vec<Lane>,
    grants: Vec<Grant>,
    turns: [Turns; 3],
    arrivals: u64,
    now: i64,
    due: i64,
    pub(super) decided: Vec<(usize, Decision)>,
}

impl Model {
    pub(super) fn new(gates: Vec<Gate>, age: i64) -> Self {
        Self {
            gates,
            age,
            lanes: Vec::new(),
            grants: Vec::new(),
            turns: Default::default(),
            arrivals: 0,
            now: 0,
            due: 0,
            decided: Vec::new(),
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.lanes.iter().map(|lane| lane.asks.len()).sum()
    }

    /// One millisecond after the other; what was due longer ago than the credit is due at its end.
    pub(super) fn advance(&mut self, now: i64) {
        self.now = self.now.max(now);
        for due in self.due.max(self.now - CREDIT)..=self.now {
            self.due = due;
            self.settle_at_due();
        }
    }

    /// Nobody who may go waits, and nobody waits past the deadline.
    fn settle_at_due(&mut self) {
        let due = self.due;
        self.gates.iter_mut().for_each(|gate| gate.rise(due));
        self.expire(due - 1);
        self.age_heads();
        loop {
            while self.act() {}
            if !self.expire(due) {
                return;
            }
        }
    }

    /// Refuses those whose deadline comes by then, or before one of their gates reopens.
    fn expire(&mut self, until: i64) -> bool {
        let mut any = false;
        for place in 0..self.lanes.len() {
            let gates = self.lanes[place].gates.clone();
            let until = gates.iter().map(|gate| self.gates[*gate].until.max(self.due) - 1).fold(until, i64::max);
            let (gone, kept) = self.lanes[place].asks.drain(..).partition(|ask| ask.deadline.unwrap() <= until);
            self.lanes[place].asks = kept;
            any |= !gone.is_empty();
            self.decided.extend(gone.into_iter().map(|ask: Ask| (ask.id, Decision::TooLate)));
        }
        self.drop_empty();
        self.age_heads();
        any
    }

    /// A lane in which nobody waits is gone; a class in which nobody does begins anew.
    fn drop_empty(&mut self) {
        let before: Vec<_> = self.lanes.iter().map(|lane| lane.class).collect();
        self.lanes.retain(|lane| !lane.asks.is_empty());
        for class in 0..3 {
            if before.contains(&class) && !self.lanes.iter().any(|lane| lane.class == class) {
                let Turns { clock, period, .. } = self.turns[class];
                self.turns[class] = Turns { clock, period: period + 1, ..Turns::default() };
            }
        }
    }

    // --- who is senior

    fn waits_in(&self, class: usize, flow: usize) -> bool {
        self.lanes.iter().any(|lane| lane.class == class && lane.flow == flow)
    }

    /// How many classes somebody has gone up.
    fn ages(&self, class: usize, flow: usize, at: i64) -> usize {
        let served = self.turns[class].flows.get(&flow).map_or(0, |tag| tag.served);
        let served = if flow > 0 && self.waits_in(class, flow) { served } else { 0 };
        usize::try_from((self.due - at.max(served)) / self.age).unwrap().min(class)
    }

    /// The rank of somebody who does not wait.
    fn rank(&self, class: usize, flow: usize, (number, at): (u64, i64)) -> Rank {
        let (turns, ages) = (&self.turns[class], self.ages(class, flow, at));
        let known = turns.flows.get(&flow).map_or(0, |tag| tag.at);
        let tag = match ages {
            0 if self.waits_in(class, flow) => known,
            0 => known.max(turns.clock),
            _ => self.turns[class - ages].clock,
        };
        (class - ages, tag, number)
    }

    fn rank_of(&self, lane: usize) -> Rank {
        let Lane { class, flow, asks, aged, .. } = &self.lanes[lane];
        let (number, ages, tag) = *aged;
        assert_eq!(number, asks[0].number(), "each head has been looked at");
        (class - ages, if ages == 0 { self.turns[*class].flows[flow].at } else { tag }, number)
    }

    /// Whoever has gone up a class takes up at its clock.
    fn age_heads(&mut self) {
        for lane in 0..self.lanes.len() {
            let Lane { class, flow, asks, aged, .. } = &self.lanes[lane];
            let Some(head) = asks.first() else { continue };
            let ages = self.ages(*class, *flow, head.arrival.unwrap().1);
            if (head.number(), ages) != (aged.0, aged.1) {
                self.lanes[lane].aged = (head.number(), ages, self.turns[class - ages].clock);
            }
        }
    }

    /// The most senior of those who stand at a gate.
    fn first_at(&self, gate: usize) -> Option<usize> {
        (0..self.lanes.len()).filter(|lane| self.lanes[*lane].stands == gate).min_by_key(|lane| self.rank_of(*lane))
    }

    /// Those who hold a gate: the first of another one, if that is no slower for them.
    fn holders(&self, gate: usize) -> Vec<usize> {
        let holds = |lane: &usize| {
            let Lane { gates, stands, asks, .. } = &self.lanes[*lane];
            *stands != gate
                && gates.contains(&gate)
                && self.first_at(*stands) == Some(*lane)
                && self.gates[*stands].lets_hold(
                    self.gates[gate].interval(asks[0].cost),
                    asks[0].cost,
                    self.rank_of(*lane).0,
                    self.due,
                )
        };
        (0..self.lanes.len()).filter(holds).collect()
    }

    // --- the decision

    /// How long somebody is blocked at a gate, if it is: for somebody senior the shortest.
    fn blocked_at(&self, gate: usize, cost: [i64; 2], rank: Rank) -> Option<i64> {
        let here = &self.gates[gate];
        if !here.lets(&[cost], rank.0, self.due) {
            return Some(here.weight(cost, rank.0, self.due));
        }
        if self.first_at(gate).is_some_and(|first| self.rank_of(first) < rank) {
            return Some(i64::MIN);
        }
        let senior = self.holders(gate).into_iter().map(|lane| (self.rank_of(lane), lane)).min()?;
        let held = self.lanes[senior.1].asks[0].cost;
        (senior.0 < rank && !here.lets(&[cost, held], senior.0.0, self.due)).then_some(i64::MIN)
    }

    /// The gate that blocks somebody longest.
    fn stands(&self, gates: &[usize], cost: [i64; 2], rank: Rank) -> Option<usize> {
        let mut longest: Option<(i64, usize)> = None;
        for gate in gates {
            let Some(weight) = self.blocked_at(*gate, cost, rank) else { continue };
            if longest.is_none_or(|(other, _)| weight > other) {
                longest = Some((weight, *gate));
            }
        }
        longest.map(|(_, gate)| gate)
    }

    /// The most senior of those who are the first where they stand, and are not blocked there, goes or stands elsewhere.
    fn act(&mut self) -> bool {
        let mut firsts: Vec<_> = (0..self.gates.len()).filter_map(|gate| self.first_at(gate)).collect();
        firsts.sort_by_key(|lane| self.rank_of(*lane));
        let free = |lane: &usize| {
            let (rank, Lane { stands, asks, .. }) = (self.rank_of(*lane), &self.lanes[*lane]);
            self.blocked_at(*stands, asks[0].cost, rank).is_none()
        };
        let Some(lane) = firsts.into_iter().find(free) else { return false };
        let (rank, Lane { gates, asks, .. }) = (self.rank_of(lane), &self.lanes[lane]);
        if let Some(stands) = self.stands(gates, asks[0].cost, rank) {
            self.lanes[lane].stands = stands;
            return true;
        }
        let ask = self.lanes[lane].asks.remove(0);
        self.decided.push((ask.id, Decision::Granted));
        self.age_heads();
        self.grant(ask);
        self.drop_empty();
        self.age_heads();
        true
    }

    fn grant(&mut self, ask: Ask) {
        let passes = ask.gates.iter().map(|gate| self.gates[*gate].pass(&ask, self.due, self.now)).collect();
        let turn = self.serve(&ask);
        self.grants.push(Grant { ask, passes, at: self.now, answered: false, turn });
    }

    /// The turn of a flow moves on, unless nobody waits or there is no other.
    fn serve(&mut self, ask: &Ask) -> (i64, u64) {
        let Ask { class, flow, cost, .. } = *ask;
        // The lane of whoever waited until now is still there, though it may be empty.
        if !self.lanes.iter().any(|lane| lane.class == class) {
            return (0, self.turns[class].period);
        }
        self.take_up(class, flow);
        let amount = cost[0].max(1) << 16;
        let waiting: HashSet<_> = self.lanes.iter().filter(|lane| lane.class == class).map(|lane| lane.flow).collect();
        let turns = &mut self.turns[class];
        let alone = turns.flows.len() == 1;
        let tag = turns.flows.get_mut(&flow).unwrap();
        tag.served = self.due;
        if alone {
            return (0, turns.period);
        }
        turns.largest = turns.largest.max(amount);
        let share = amount / i64::try_from(waiting.len()).unwrap();
        turns.clock = (turns.clock + share.max(1)).max(tag.at);
        tag.at = tag.at.max(turns.clock - 2 * turns.largest) + amount;
        (amount, turns.period)
    }

    /// Somebody takes a turn at a gate that is not in the model.
    pub(super) fn passes_by(&mut self) {
        let (gates, cost, seen, class, flow) = (Vec::new(), [1, 0], true, 1, 0);
        self.serve(&Ask { id: NOBODY, gates, cost, seen, class, flow, arrival: None, deadline: None });
        self.settle_at_due();
    }

    /// A flow in which nobody waits takes up at the clock.
    fn take_up(&mut self, class: usize, flow: usize) {
        let waits = self.waits_in(class, flow);
        let turns = &mut self.turns[class];
        let clock = turns.clock;
        let tag = turns.flows.entry(flow).or_default();
        if !waits {
            (tag.served, tag.at) = (0, tag.at.max(clock));
        }
    }

    /// `Ok(true)` if granted at once, `Ok(false)` if it waits.
    pub(super) fn ask(&mut self, mut ask: Ask) -> Result<bool, Decision> {
        if ask.arrival.is_none() {
            self.arrivals += 1;
            ask.arrival = Some((self.arrivals, self.now));
        }
        let Ask { class, flow, cost, .. } = ask;
        if ask.gates.iter().any(|gate| self.gates[*gate].never_lets(cost, class)) {
            return Err(Decision::TooMuch);
        }
        let rank = self.rank(class, flow, ask.arrival.unwrap());
        let Some(stands) = self.stands(&ask.gates, cost, rank) else {
            self.grant(ask);
            self.settle_at_due();
            return Ok(true);
        };
        let deadline = ask.deadline.ok_or(Decision::TooLate)?;
        let gates = ask.gates.clone();
        let same = |lane: &Lane| lane.gates == gates && lane.class == class && lane.flow == flow;
        let lane = self.lanes.iter().position(same);
        let ahead = lane.map_or(&[][..], |lane| &self.lanes[lane].asks);
        let last = ahead.last().is_none_or(|last| last.number() < ask.number());
        let queued = [0, 1].map(|unit| if last { ahead.iter().map(|ask| ask.cost[unit]).sum() } else { 0 });
        if deadline <= self.now || self.estimate(&ask, queued) > deadline {
            return Err(Decision::TooLate);
        }
        if lane.is_none() {
            self.take_up(class, flow);
            let (gates, aged) = (ask.gates.clone(), (0, 0, 0));
            self.lanes.push(Lane { gates, class, flow, stands, asks: Vec::new(), aged });
        }
        let asks = &mut self.lanes.iter_mut().find(|lane| same(lane)).unwrap().asks;
        let place = asks.iter().filter(|other| other.number() < ask.number()).count();
        asks.insert(place, ask);
        self.age_heads();
        self.settle_at_due();
        Ok(false)
    }

    fn estimate(&self, ask: &Ask, queued: [i64; 2]) -> i64 {
        ask.gates.iter().map(|gate| self.gates[*gate].estimate(ask.cost, queued, self.due)).max().unwrap()
    }

    // --- the life of a grant

    fn grant_of(&mut self, id: usize) -> Option<usize> {
        self.grants.iter().position(|grant| grant.ask.id == id)
    }

    pub(super) fn ask_of(&self, id: usize) -> Option<Ask> {
        self.grants.iter().find(|grant| grant.ask.id == id).map(|grant| grant.ask.clone())
    }

    pub(super) fn leave(&mut self, id: usize) {
        if self.grant_of(id).is_some() {
            return self.give_back(id);
        }
        self.lanes.iter_mut().for_each(|lane| lane.asks.retain(|ask| ask.id != id));
        self.drop_empty();
        self.age_heads();
        self.settle_at_due();
    }

    pub(super) fn send(&mut self, id: usize) -> bool {
        let Some(place) = self.grant_of(id) else { return false };
        let Grant { ask, passes, .. } = &self.grants[place];
        let mut held = true;
        for (gate, pass) in ask.gates.iter().zip(passes) {
            held &= self.gates[*gate].send(ask, *pass, self.now);
        }
        self.settle_at_due();
        held
    }

    pub(super) fn answered(&mut self, id: usize) {
        let Some(place) = self.grant_of(id) else { return };
        self.grants[place].answered = true;
        let Grant { ask, passes, .. } = &self.grants[place];
        for (gate, pass) in ask.gates.iter().zip(passes) {
            self.gates[*gate].answered(id, self.now);
            self.gates[*gate].probed(*pass, true);
        }
        self.settle_at_due();
    }

    /// By one of its gates, by place. `wait` in milliseconds; one that is not stated is a second here, for chance is taken
    /// out of scripts.
    pub(super) fn refused(&mut self, id: usize, place: usize, wait: Option<i64>) {
        let Some(grant) = self.grant_of(id) else { return };
        self.grants[grant].answered = true;
        let Grant { ask, passes, .. } = &self.grants[grant];
        for (nth, (gate, pass)) in ask.gates.iter().zip(passes).enumerate() {
            let gate = &mut self.gates[*gate];
            gate.answered(id, self.now);
            if nth != place {
                gate.probed(*pass, false);
                continue;
            }
            let event = pass.0 == gate.epoch;
            if event {
                gate.epoch += 1;
                gate.stated = wait.is_some();
            }
            if event || gate.probe == Probe::NotNeeded {
                gate.probe = Probe::Next;
            }
            gate.until = gate.until.max(self.now + wait.unwrap_or(1_000));
            gate.drain(self.now);
        }
        self.settle_at_due();
    }

    pub(super) fn pause(&mut self, gate: usize, until: i64) {
        let gate = &mut self.gates[gate];
        gate.epoch += 1;
        gate.stated = true;
        gate.probe = Probe::Next;
        gate.until = gate.until.max(until);
        gate.drain(self.now);
        self.settle_at_due();
    }

    pub(super) fn settle(&mut self, id: usize, unit: usize, actual: i64) {
        let Some(place) = self.grant_of(id) else { return };
        let charged = std::mem::replace(&mut self.grants[place].ask.cost[unit], actual);
        for gate in &self.grants[place].ask.gates {
            self.gates[*gate].settle(id, unit, charged, actual, self.now);
        }
        self.settle_at_due();
    }

    pub(super) fn release(&mut self, id: usize) {
        let Some(place) = self.grant_of(id) else { return };
        let Grant { ask, passes, at, answered, .. } = self.grants.remove(place);
        for (gate, pass) in ask.gates.iter().zip(passes).filter(|_| ask.seen) {
            self.gates[*gate].release(&ask, at, self.now);
            if !answered {
                self.gates[*gate].probed(pass, false);
            }
        }
        self.settle_at_due();
    }

    pub(super) fn give_back(&mut self, id: usize) {
        let Some(place) = self.grant_of(id) else { return };
        let Grant { ask, passes, turn, .. } = self.grants.remove(place);
        for (gate, pass) in ask.gates.iter().zip(passes) {
            self.gates[*gate].give_back(&ask, self.now);
            self.gates[*gate].probed(pass, false);
        }
        let turns = &mut self.turns[ask.class];
        if let Some(tag) = turns.flows.get_mut(&ask.flow).filter(|_| turns.period == turn.1) {
            tag.at = (tag.at - turn.0).max(0);
        }
        self.settle_at_due();
    }

    // --- other limits

    /// Other numbers for the quotas of a gate: bursts, and what a window lets go.
    pub(super) fn retune(&mut self, gate: usize, slots: Option<usize>, numbers: &[i64]) {
        let here = &mut self.gates[gate];
        (here.slots, here.moved) = (slots, self.now);
        for (quota, number) in here.quotas.iter_mut().zip(numbers) {
            match &mut quota.kind {
                Kind::Bucket(level) => level.retune(*number),
                Kind::Window(log, _) => log.most = *number,
            }
        }
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].gates.contains(&gate) {
                self.look_again(lane);
            }
        }
        self.drop_empty();
        self.age_heads();
        self.settle_at_due();
    }

    /// Whoever can never go any more, or certainly not in time, learns it now.
    fn look_again(&mut self, lane: usize) {
        let class = self.lanes[lane].class;
        let mut queued = [0, 0];
        for ask in std::mem::take(&mut self.lanes[lane].asks) {
            let too_much = ask.gates.iter().any(|gate| self.gates[*gate].never_lets(ask.cost, class));
            if too_much || self.estimate(&ask, queued) > ask.deadline.unwrap() {
                self.decided.push((ask.id, if too_much { Decision::TooMuch } else { Decision::TooLate }));
            } else {
                queued = [queued[0] + ask.cost[0], queued[1] + ask.cost[1]];
                self.lanes[lane].asks.push(ask);
            }
        }
    }

    /// Whether anything would be decided if it were this late: a poll, on a copy.
    pub(super) fn would_decide_by(&self, now: i64) -> bool {
        let mut copy = self.clone();
        for instant in copy.now..=now {
            copy.advance(instant);
        }
        copy.decided.len() > self.decided.len()
    }
}
