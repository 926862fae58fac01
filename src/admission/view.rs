//! How it stands, for people; and whether it stands as it must, for debug builds.

use super::block::{Block, Cause};
use super::decision::Need;
use super::gates::GateId;
use super::order::{LaneId, Rank};
use super::queue::{AskId, Queue};
use super::snapshot::{GateSnapshot, LaneSnapshot, Snapshot};
use super::state::State;
#[cfg(any(test, debug_assertions))]
use super::timers::Owner;
use crate::time::{Time, readable};

/// By class, and how far it has gone up.
const NAMES: [[&str; 3]; 3] =
    [["high", "", ""], ["normal", "normal, aged", ""], ["low", "low, aged", "low, aged twice"]];

/// So many lanes of one gate are shown, and no more.
const MOST_SHOWN: usize = 16;

impl State {
    /// How each gate stands.
    pub(super) fn snapshot(&mut self) -> Snapshot {
        let ids: Vec<_> = self.gates.ids().collect();
        Snapshot { gates: ids.into_iter().map(|gate| self.gate_snapshot(gate)).collect() }
    }

    fn gate_snapshot(&mut self, id: GateId) -> GateSnapshot {
        self.bring_up(id);
        let shown: Vec<_> = self.lanes.standing(id).take(MOST_SHOWN).collect();
        let standing = shown.into_iter().map(|(rank, lane)| self.lane_snapshot(id, rank, lane)).collect();
        let through = self.lanes.line(id).into_iter().flat_map(|line| &line.lanes);
        let waiting = through.map(|lane| self.lanes.lane(*lane).queue.len()).sum();
        let quotas = self.gates[id].levels(self.due);
        let gate = &self.gates[id];
        let (in_flight, most_in_flight) = gate.in_flight();
        GateSnapshot {
            key: self.gates.key(id).to_owned(),
            quotas,
            in_flight,
            most_in_flight,
            waiting,
            paused_for: gate.shut_until(self.due).map(|until| until.since(self.due)),
            lowered_to_percent: gate.lowered_to().and_then(|percent| u8::try_from(percent).ok()),
            found: gate.is_found(),
            standing,
        }
    }

    fn lane_snapshot(&mut self, gate: GateId, rank: Rank, id: LaneId) -> LaneSnapshot {
        let head = self.lanes.lane(id).queue.head(&self.lanes.asks).map(|(_, head)| head.cost.clone());
        let block = head.and_then(|cost| self.blocked_at(gate, &cost, rank));
        let wait = block.as_ref().and_then(|block| block.until).map(|until| until.since(self.due));
        let lane = self.lanes.lane(id);
        LaneSnapshot {
            keys: lane.course.iter().map(|gate| self.gates.key(*gate).to_owned()).collect(),
            priority: NAMES[lane.class.place()][self.lanes.ages(id)],
            flow: lane.name.clone(),
            waiting: lane.queue.len(),
            why: self.why(gate, block),
            wait,
        }
    }

    /// What the lane of somebody waits for, and how many are ahead there.
    pub(super) fn why_it_waits(&mut self, id: AskId) -> Option<(LaneSnapshot, usize)> {
        let lane = self.lanes.asks.get(id)?.waiting()?.lane();
        let (gate, rank) = (self.lanes.lane(lane).stands_at(), self.lanes.rank(lane, self.due));
        let ahead = Queue::ahead_of(&self.lanes.asks, id);
        Some((self.lane_snapshot(gate, rank, lane), ahead))
    }

    /// When it can go at the earliest, with what is queued ahead of it in its lane: reckoned from the front.
    pub(super) fn estimate_of(&mut self, id: AskId) -> Option<Time> {
        let ask = self.lanes.asks.get(id)?.waiting()?;
        let lane = self.lanes.lane(ask.lane());
        let ahead = lane.queue.queued_ahead_of(&self.lanes.asks, id);
        let need = Need { course: &lane.course, class: lane.class, cost: &ask.cost, usage: ask.usage };
        let (_, estimate) = self.estimate(need, &ahead);
        estimate.until
    }

    fn why(&self, gate: GateId, block: Option<Block>) -> String {
        let Some(Block { cause, until, .. }) = block else { return "about to go".to_owned() };
        let what = match cause {
            Cause::Senior => "others are first".to_owned(),
            Cause::Pause => "the server asked for a pause".to_owned(),
            Cause::Slots => "all that may be are in flight".to_owned(),
            Cause::Quota(place) => match self.gates[gate].quota(place) {
                Some(quota) => format!("the limit is {quota}"),
                None => "the server said that nothing is left".to_owned(),
            },
        };
        until.map_or(what.clone(), |until| format!("{what}, for {:?}", readable(until.since(self.due))))
    }

    /// In debug builds after every call, unless that would take long.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn assert_sound_if_small(&mut self) {
        if self.waiting <= 64 && self.gates.len() <= 64 {
            self.assert_sound();
        }
    }

    /// What must always hold.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn assert_sound(&mut self) {
        let leftovers = self.has_leftovers();
        let waiting = self.lanes.asks.iter().filter(|(_, ask)| !ask.is_decided()).count();
        assert_eq!(self.waiting, waiting, "how many wait is known");
        assert!(self.due <= self.now, "what is judged is not in the future");
        self.lanes.assert_sound(&self.timers, self.due, leftovers);
        let ids: Vec<_> = self.gates.ids().collect();
        for gate in ids {
            let timer = self.lanes.line(gate).and_then(|line| line.timer);
            let lanes = self.lanes.line(gate).map_or(0, |line| line.lanes.len());
            self.gates[gate].assert_sound(lanes, self.due);
            assert!(self.timers.has(Owner::Gate(gate), timer), "a gate has the timer that it keeps");
            let Some((rank, lane)) = self.lanes.first(gate, self.due) else { continue };
            let Some((_, head)) = self.lanes.lane(lane).queue.head(&self.lanes.asks) else { continue };
            let (cost, deadline) = (head.cost.clone(), self.lanes.lane(lane).queue.first_deadline(&self.lanes.asks));
            assert!(leftovers || deadline.is_none_or(|(at, _)| at > self.due), "nobody waits past the deadline");
            let block = self.blocked_at(gate, &cost, rank);
            assert!(leftovers || block.is_some(), "gate {gate} lets go, and somebody waits");
            let until = block.and_then(|block| block.until);
            assert!(leftovers || until.is_none_or(|until| timer.is_some_and(|at| at <= until)), "nobody oversleeps");
        }
    }
}
