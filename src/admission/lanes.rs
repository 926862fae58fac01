//! Who stands where: lanes, lines and holds.
//!
//! Asks for the same gates, of the same class and flow, form a *lane*, first come, first served. What stands in the
//! *line* of a gate is not an ask but a lane, by its head, and in one line only; a lane that is the first in its line
//! may *hold* other gates that it needs. So no event moves more than a few lanes, however many wait.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use foldhash::{HashMap, HashMapExt};
use slab::Slab;
use smallvec::SmallVec;

use super::gates::GateId;
use super::order::{Aged, Arrival, FlowId, FlowName, LaneId, Order, Rank};
use super::queue::{AskId, Asks, Queue, Waiting};
use super::ranked::{Group, Place, Ranked};
use super::timers::{Owner, Timers};
use crate::priority::Priority;
use crate::time::Time;

/// The gates that one request passes, in its own order.
pub(super) type Course = SmallVec<[GateId; 4]>;

/// The same in one go; a clone goes gate by gate.
pub(super) fn copied(course: &Course) -> Course {
    SmallVec::from_slice(course)
}

/// All lanes and all lines.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) order: Order,
    pub(super) asks: Asks,
    slab: Slab<Lane>,
    index: HashMap<(Course, Priority, FlowId), LaneId>,
    /// By gate.
    pub(super) lines: Vec<Line>,
    /// The lines whose first lane may have come to be able to go, by who that is. What a line does not say of itself is
    /// out of date.
    dirty: BinaryHeap<Reverse<(Rank, GateId)>>,
    marked: usize,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) course: Course,
    pub(super) class: Priority,
    pub(super) flow: FlowId,
    pub(super) name: FlowName,
    pub(super) queue: Queue,
    /// At which gate of its course it stands.
    pub(super) stands: usize,
    held: u64,
    head: Arrival,
    /// How far its head had gone up when it was last sorted, and by which class and number it is.
    aged: Aged,
    key: (usize, u64),
    pub(super) timer: Option<Time>,
}

/// What is known of one gate about those who wait.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) standing: Ranked,
    pub(super) holders: Ranked,
    /// All lanes whose course leads through here.
    pub(super) lanes: BTreeSet<LaneId>,
    /// Whose holds are those of the first in this line.
    posted: Option<LaneId>,
    pub(super) timer: Option<Time>,
    dirty: Option<Rank>,
}

/// The bit of a place in a course. Nobody holds a gate beyond the 64th.
pub(super) fn bit(place: usize) -> u64 {
    u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0)
}

impl Lane {
    /// As it is sorted.
    fn place(&self, lane: LaneId) -> Place {
        let (class, number) = self.key;
        let group = if self.aged.classes == 0 { Group::Flow(self.flow) } else { Group::Aged(lane) };
        Place { class, group, number, lane }
    }

    pub(super) fn stands_at(&self) -> GateId {
        self.course[self.stands]
    }

    /// Which gates of its course it holds, a bit for each.
    pub(super) fn held(&self) -> u64 {
        self.held
    }
}

impl Lanes {
    pub(super) fn new(order: Order) -> Self {
        let (asks, slab) = (Slab::new(), Slab::new());
        Self { order, asks, slab, index: HashMap::new(), lines: Vec::new(), dirty: BinaryHeap::new(), marked: 0 }
    }

    pub(super) fn lane(&self, lane: LaneId) -> &Lane {
        &self.slab[lane]
    }

    /// Any of them.
    pub(super) fn any(&self) -> Option<&Lane> {
        self.slab.iter().next().map(|(_, lane)| lane)
    }

    pub(super) fn lane_mut(&mut self, lane: LaneId) -> &mut Lane {
        &mut self.slab[lane]
    }

    pub(super) fn lane_and_asks(&mut self, lane: LaneId) -> (&mut Lane, &Asks) {
        (&mut self.slab[lane], &self.asks)
    }

    pub(super) fn contains(&self, lane: LaneId) -> bool {
        self.slab.contains(lane)
    }

    pub(super) fn line(&self, gate: GateId) -> Option<&Line> {
        self.lines.get(gate)
    }

    /// The line of a gate; there is one for each that somebody has asked to pass.
    pub(super) fn line_mut(&mut self, gate: GateId) -> &mut Line {
        if self.lines.len() <= gate {
            self.lines.resize_with(gate + 1, Line::default);
        }
        &mut self.lines[gate]
    }

    pub(super) fn find(&self, course: &Course, class: Priority, flow: FlowId) -> Option<LaneId> {
        self.index.get(&(copied(course), class, flow)).copied()
    }

    // --- asks come and go

    /// A new lane, for an ask that then enters it.
    pub(super) fn open(&mut self, course: &Course, class: Priority, flow: FlowId, name: FlowName, at: usize) -> LaneId {
        let lane = Lane {
            course: copied(course),
            class,
            flow,
            name,
            queue: Queue::new(),
            stands: at,
            held: 0,
            head: Arrival::default(),
            aged: Aged::default(),
            key: (0, 0),
            timer: None,
        };
        let id = self.slab.insert(lane);
        self.index.insert((copied(course), class, flow), id);
        self.order.enter(class, flow, id);
        for gate in course {
            self.line_mut(*gate).lanes.insert(id);
        }
        id
    }

    /// Somebody waits from now on. True if it is the head of its lane.
    pub(super) fn enter(&mut self, waiting: Waiting, now: Time) -> (AskId, bool) {
        let lane = waiting.lane();
        let id = self.asks.insert(super::queue::Ask::Waiting(waiting));
        let Lane { queue, .. } = &mut self.slab[lane];
        let was_empty = queue.len() == 0;
        queue.insert(&mut self.asks, id);
        let is_head = queue.head(&self.asks).is_some_and(|(head, _)| head == id);
        if is_head {
            self.head_changed(lane, was_empty, now);
        }
        (id, is_head)
    }

    /// Somebody does not wait any more; the ask itself stays. True if it was the head of its lane.
    pub(super) fn exit(&mut self, ask: AskId, now: Time) -> bool {
        let Some(lane) = self.asks[ask].waiting().map(Waiting::lane) else { return false };
        let Lane { queue, .. } = &mut self.slab[lane];
        let was_head = queue.head(&self.asks).is_some_and(|(head, _)| head == ask);
        queue.remove(&mut self.asks, ask);
        if was_head {
            self.head_changed(lane, false, now);
        }
        was_head
    }

    /// Sorts a lane by its new head, if it has one; else out of its line.
    fn head_changed(&mut self, lane: LaneId, is_new: bool, now: Time) {
        if !is_new {
            self.sort_out(lane);
        }
        let Lane { queue, head, aged, .. } = &mut self.slab[lane];
        let first = queue.head(&self.asks).map(|(_, ask)| ask.arrival);
        if let Some(arrival) = first {
            (*head, *aged) = (arrival, Aged::default());
            self.sort_in(lane, now);
        }
    }

    /// Gives up a lane in which nobody waits. It holds nothing any more.
    pub(super) fn close(&mut self, lane: LaneId, timers: &mut Timers) {
        self.unpost(lane);
        let Lane { course, class, flow, mut timer, .. } = self.slab.remove(lane);
        timers.set(Owner::Lane(lane), &mut timer, None);
        self.order.leave(class, flow, lane);
        for gate in &course {
            self.lines[*gate].lanes.remove(&lane);
        }
        self.index.remove(&(course, class, flow));
    }

    // --- seniority

    pub(super) fn rank(&self, lane: LaneId, now: Time) -> Rank {
        let Lane { class, flow, head, aged, .. } = self.slab[lane];
        self.order.rank(class, flow, head, aged, now)
    }

    /// When the head of a lane goes up a class, if nothing happens before.
    pub(super) fn promotion(&self, lane: LaneId, now: Time) -> Option<Time> {
        let Lane { class, flow, head, .. } = self.slab[lane];
        self.order.promotion(class, flow, head, now)
    }

    /// Sorts a lane anew, if its head has gone up or down a class.
    pub(super) fn sort(&mut self, lane: LaneId, now: Time) {
        if self.slab[lane].key.0 != self.rank(lane, now).class {
            self.sort_out(lane);
            self.sort_in(lane, now);
        }
    }

    /// How far the head of a lane has gone up.
    pub(super) fn ages(&self, lane: LaneId) -> usize {
        self.slab[lane].aged.classes
    }

    fn sort_out(&mut self, lane: LaneId) {
        self.each_set(lane, Ranked::remove);
    }

    fn sort_in(&mut self, lane: LaneId, now: Time) {
        let rank = self.rank(lane, now);
        let Lane { class, flow, .. } = self.slab[lane];
        let aged = Aged::new(class, rank);
        if aged.classes != self.slab[lane].aged.classes || aged.classes > 0 {
            self.order.note_aged(class, flow, lane, aged.classes > 0);
        }
        (self.slab[lane].key, self.slab[lane].aged) = ((rank.class, rank.number), aged);
        self.each_set(lane, |set, place| set.insert(place, rank.tag));
        let (stands, place) = (self.slab[lane].stands_at(), self.slab[lane].place(lane));
        self.note_company(stands, place);
        let Lane { course, held, .. } = &self.slab[lane];
        let held: Course = (0..course.len()).filter(|nth| held & bit(*nth) != 0).map(|nth| course[nth]).collect();
        for gate in held {
            self.note_hold(gate, place);
        }
    }

    /// The sets in which a lane is: its line, and the holders of what it holds.
    fn each_set(&mut self, lane: LaneId, mut act: impl FnMut(&mut Ranked, Place)) {
        let place_in_order = self.slab[lane].place(lane);
        let Lane { course, stands, held, .. } = &self.slab[lane];
        for (place, gate) in course.iter().enumerate() {
            let Line { standing, holders, .. } = &mut self.lines[*gate];
            if place == *stands {
                act(standing, place_in_order);
            }
            if held & bit(place) != 0 {
                act(holders, place_in_order);
            }
        }
    }

    /// The most senior of those who stand at a gate.
    pub(super) fn first(&mut self, gate: GateId, now: Time) -> Option<(Rank, LaneId)> {
        self.first_in(gate, |line| &mut line.standing, now)
    }

    /// The most senior of those who hold a gate.
    pub(super) fn first_holder(&mut self, gate: GateId, now: Time) -> Option<(Rank, LaneId)> {
        self.first_in(gate, |line| &mut line.holders, now)
    }

    fn first_in(&mut self, gate: GateId, set: fn(&mut Line) -> &mut Ranked, now: Time) -> Option<(Rank, LaneId)> {
        loop {
            let (key, place) = set(self.lines.get_mut(gate)?).first()?;
            let rank = self.rank(place.lane, now);
            if rank == key {
                return Some((rank, place.lane));
            }
            if rank.class == key.class {
                set(&mut self.lines[gate]).sort(place, rank.tag);
            } else {
                self.sort(place.lane, now);
            }
        }
    }

    // --- standing and holding

    /// A lane that holds nothing stands at another gate of its course from now on.
    pub(super) fn move_to(&mut self, lane: LaneId, place: usize, now: Time) {
        self.unpost(lane);
        self.sort_out(lane);
        self.slab[lane].stands = place;
        self.sort_in(lane, now);
    }

    /// A lane holds these gates of its course from now on, and no others. Answers for which of them that is new: only the
    /// most senior of those who hold a gate binds, and that may be another one now.
    pub(super) fn hold(&mut self, lane: LaneId, wanted: u64, now: Time) -> Course {
        let old = std::mem::replace(&mut self.slab[lane].held, wanted);
        if old == wanted {
            return Course::new();
        }
        let (rank, in_order) = (self.rank(lane, now), self.slab[lane].place(lane));
        let course = copied(&self.slab[lane].course);
        let changed = |(place, _): &(usize, &GateId)| (old ^ wanted) & bit(*place) != 0;
        let mut new = Course::new();
        for (place, gate) in course.iter().enumerate().filter(changed) {
            new.push(*gate);
            if wanted & bit(place) == 0 {
                self.lines[*gate].holders.remove(in_order);
            } else {
                self.lines[*gate].holders.insert(in_order, rank.tag);
                self.note_hold(*gate, in_order);
            }
        }
        new
    }

    /// The first in a line is this one now. Answers who was, and may hold nothing any more.
    pub(super) fn post(&mut self, gate: GateId, first: Option<LaneId>) -> Option<LaneId> {
        let before = std::mem::replace(&mut self.line_mut(gate).posted, first);
        before.filter(|before| Some(*before) != first && self.slab.contains(*before))
    }

    fn unpost(&mut self, lane: LaneId) {
        let posted = &mut self.lines[self.slab[lane].stands_at()].posted;
        *posted = posted.filter(|posted| *posted != lane);
    }

    // --- what is to be looked at

    /// Something has changed at a gate: the first in its line is to be looked at. False if there is none.
    pub(super) fn mark(&mut self, gate: GateId, now: Time) -> bool {
        let Some(line) = self.lines.get(gate) else { return false };
        // Who stands here is no more senior than it is sorted.
        if line.dirty.is_some() && line.dirty == line.standing.first().map(|(key, _)| key) {
            return true;
        }
        let Some((rank, _)) = self.first(gate, now) else { return false };
        let line = &mut self.lines[gate];
        if line.dirty.is_none_or(|old| rank < old) {
            self.marked += usize::from(line.dirty.replace(rank).is_none());
            self.dirty.push(Reverse((rank, gate)));
        }
        true
    }

    /// The marked gate whose first lane is the most senior, with that lane and its rank.
    pub(super) fn pop_marked(&mut self, now: Time) -> Option<(GateId, LaneId, Rank)> {
        while let Some(Reverse((key, gate))) = self.dirty.pop() {
            if self.lines[gate].dirty != Some(key) {
                continue;
            }
            self.lines[gate].dirty = None;
            self.marked -= 1;
            match self.first(gate, now) {
                Some((rank, lane)) if rank <= key => return Some((gate, lane, rank)),
                Some(_) => drop(self.mark(gate, now)),
                None => {}
            }
        }
        None
    }

    pub(super) fn is_marked(&self) -> bool {
        self.marked > 0
    }

    /// Who stands at a gate, in order, as they were last sorted.
    pub(super) fn standing(&self, gate: GateId) -> impl Iterator<Item = (Rank, LaneId)> {
        self.lines.get(gate).into_iter().flat_map(|line| line.standing.iter())
    }
}

#[cfg(any(test, debug_assertions))]
impl Lanes {
    /// What must always hold of who stands where. A lane whose instant has come and that was not looked at yet has no timer.
    pub(super) fn assert_sound(&self, timers: &Timers, now: Time, leftovers: bool) {
        for (id, lane) in &self.slab {
            self.assert_lane(id, lane);
            assert!(timers.has(Owner::Lane(id), lane.timer), "a lane has the timer that it keeps");
            assert!(lane.key.0 <= self.rank(id, now).class, "whoever has aged is sorted anew");
            let timed = |at| leftovers || lane.timer.is_some_and(|timer| timer <= at);
            assert!(self.promotion(id, now).is_none_or(timed), "a promotion is timed");
            assert!(lane.queue.first_deadline(&self.asks).is_none_or(|(at, _)| timed(at)), "a deadline is timed");
        }
        let stand = self.lines.iter().map(|line| line.standing.iter().count()).sum::<usize>();
        let hold = self.lines.iter().map(|line| line.holders.iter().count()).sum::<usize>();
        let say_so = self.slab.iter().map(|(_, lane)| lane.held.count_ones() as usize).sum::<usize>();
        assert_eq!((stand, hold), (self.slab.len(), say_so), "nobody stands or holds who does not say so");
        for (gate, line) in self.lines.iter().enumerate() {
            let says = |rank| self.dirty.iter().any(|Reverse(mark)| *mark == (rank, gate));
            assert!(line.dirty.is_none_or(says), "what is marked is found");
        }
        let marked = self.lines.iter().filter(|line| line.dirty.is_some()).count();
        assert_eq!(self.marked, marked, "what is marked is counted");
    }

    fn assert_lane(&self, id: LaneId, lane: &Lane) {
        lane.queue.assert_sound(&self.asks);
        let head = lane.queue.head(&self.asks).map(|(_, ask)| ask.arrival);
        assert_eq!(head, Some(lane.head), "a lane is sorted by its head");
        for (place, gate) in lane.course.iter().enumerate() {
            let here = &self.lines[*gate];
            let (stands, holds) = (place == lane.stands, lane.held & bit(place) != 0);
            let is_in = |set: &Ranked| set.iter().filter(|(_, other)| *other == id).count();
            assert_eq!(is_in(&here.standing), usize::from(stands), "a lane stands at one gate");
            assert_eq!(is_in(&here.holders), usize::from(holds), "a lane holds what it says");
            assert!(!holds || self.lines[lane.stands_at()].posted == Some(id), "only the first in a line holds");
            assert!(here.lanes.contains(&id), "a gate knows the lanes that pass it");
        }
    }
}
