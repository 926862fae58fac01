//! Who waits in one lane, in order of arrival, and until when each of them will.

use std::collections::BTreeSet;

use slab::Slab;

use super::gate::Use;
use super::grant::Grant;
use super::order::{Arrival, LaneId};
#[cfg(any(test, debug_assertions))]
use crate::cost::Unit;
use crate::cost::{Cost, Costs};
use crate::refused::Refused;
use crate::time::Time;

/// Somebody who asked and was made to wait.
pub(crate) type AskId = usize;

/// So many of those ahead of somebody are counted, and no more.
const MOST_COUNTED: usize = 64;

/// Nobody.
const NONE: u32 = u32::MAX;

/// Those who wait, or were decided on and have not been told.
pub(super) type Asks = Slab<Ask>;

#[derive(Debug)]
pub(super) enum Ask {
    Waiting(Waiting),
    Decided(Result<Grant, Box<Refused>>),
}

/// Somebody who waits. There may be a million of these.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) arrival: Arrival,
    pub(super) deadline: Time,
    pub(super) cost: Cost,
    lane: u32,
    prev: u32,
    next: u32,
    /// Its neighbours by deadline, if it is chained.
    sooner: u32,
    later: u32,
    is_chained: bool,
    pub(super) usage: Use,
}

/// A lane's queue. What is queued in it is known without counting.
#[derive(Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    len: usize,
    queued: Costs,
    /// Mostly deadlines come in order: whose is not before the last of the chain is put behind it.
    soonest: u32,
    latest: u32,
    /// The others.
    deadlines: BTreeSet<(Time, u32)>,
    walk: Option<Box<Walk>>,
}

/// One after the other is looked at again: who is next, and what is queued ahead of it.
#[derive(Clone, Debug)]
struct Walk {
    next: u32,
    ahead: Costs,
}

fn id(link: u32) -> Option<AskId> {
    (link != NONE).then_some(link as usize)
}

/// More than four billion do not wait.
fn link(id: usize) -> u32 {
    u32::try_from(id).unwrap_or(NONE)
}

impl Ask {
    pub(super) fn waiting(&self) -> Option<&Waiting> {
        match self {
            Self::Waiting(waiting) => Some(waiting),
            Self::Decided(_) => None,
        }
    }

    fn waiting_mut(&mut self) -> Option<&mut Waiting> {
        match self {
            Self::Waiting(waiting) => Some(waiting),
            Self::Decided(_) => None,
        }
    }

    pub(super) fn is_decided(&self) -> bool {
        matches!(self, Self::Decided(_))
    }
}

impl Waiting {
    pub(super) fn new(lane: LaneId, arrival: Arrival, deadline: Time, usage: Use, cost: Cost) -> Self {
        Self {
            arrival,
            deadline,
            cost,
            usage,
            lane: link(lane),
            prev: NONE,
            next: NONE,
            sooner: NONE,
            later: NONE,
            is_chained: false,
        }
    }

    pub(super) fn lane(&self) -> LaneId {
        self.lane as usize
    }
}

fn waiting(asks: &Asks, link: u32) -> Option<&Waiting> {
    asks.get(id(link)?)?.waiting()
}

/// Changes somebody, if there is somebody.
fn change(asks: &mut Asks, link: u32, change: impl FnOnce(&mut Waiting)) {
    if let Some(ask) = id(link).and_then(|id| asks[id].waiting_mut()) {
        change(ask);
    }
}

impl Queue {
    pub(super) fn new() -> Self {
        let (queued, deadlines) = (Costs::default(), BTreeSet::new());
        Self { head: NONE, tail: NONE, len: 0, queued, soonest: NONE, latest: NONE, deadlines, walk: None }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn queued(&self) -> &Costs {
        &self.queued
    }

    pub(super) fn head<'a>(&self, asks: &'a Asks) -> Option<(AskId, &'a Waiting)> {
        id(self.head).zip(waiting(asks, self.head))
    }

    pub(super) fn first_deadline(&self, asks: &Asks) -> Option<(Time, AskId)> {
        let chained = waiting(asks, self.soonest).map(|ask| (ask.deadline, self.soonest));
        let first = chained.into_iter().chain(self.deadlines.first().copied()).min();
        first.map(|(at, link)| (at, link as usize))
    }

    /// Whether somebody who arrives then comes last.
    pub(super) fn ends_before(&self, asks: &Asks, arrival: Arrival) -> bool {
        waiting(asks, self.tail).is_none_or(|last| last.arrival < arrival)
    }

    /// Puts in somebody, in the place of its arrival: mostly the last. That of an older retry is searched from the front.
    pub(super) fn insert(&mut self, asks: &mut Asks, ask: AskId) {
        let Some(Waiting { arrival, cost, .. }) = asks[ask].waiting().cloned() else { return };
        let next = if self.ends_before(asks, arrival) { NONE } else { self.first_after(asks, arrival) };
        let prev = waiting(asks, next).map_or(self.tail, |next| next.prev);
        let own = link(ask);
        change(asks, own, |ask| (ask.prev, ask.next) = (prev, next));
        change(asks, prev, |prev| prev.next = own);
        change(asks, next, |next| next.prev = own);
        if prev == NONE {
            self.head = own;
        }
        if next == NONE {
            self.tail = own;
        }
        self.len += 1;
        self.queued.add(&cost);
        self.insert_deadline(asks, own);
        let is_before = |walk: &&mut Box<Walk>| waiting(asks, walk.next).is_some_and(|next| arrival < next.arrival);
        if let Some(walk) = self.walk.as_mut().filter(is_before) {
            walk.ahead.add(&cost);
        }
    }

    fn insert_deadline(&mut self, asks: &mut Asks, own: u32) {
        let Some(deadline) = waiting(asks, own).map(|ask| ask.deadline) else { return };
        let latest = self.latest;
        if waiting(asks, latest).is_some_and(|latest| deadline < latest.deadline) {
            self.deadlines.insert((deadline, own));
            return;
        }
        change(asks, own, |ask| (ask.sooner, ask.is_chained) = (latest, true));
        change(asks, latest, |latest| latest.later = own);
        if latest == NONE {
            self.soonest = own;
        }
        self.latest = own;
    }

    fn remove_deadline(&mut self, asks: &mut Asks, own: u32) {
        let Some(&Waiting { deadline, sooner, later, is_chained, .. }) = waiting(asks, own) else { return };
        if !is_chained {
            self.deadlines.remove(&(deadline, own));
            return;
        }
        change(asks, sooner, |sooner| sooner.later = later);
        change(asks, later, |later| later.sooner = sooner);
        if sooner == NONE {
            self.soonest = later;
        }
        if later == NONE {
            self.latest = sooner;
        }
    }

    fn first_after(&self, asks: &Asks, arrival: Arrival) -> u32 {
        let mut at = self.head;
        while let Some(ask) = waiting(asks, at).filter(|ask| ask.arrival < arrival) {
            at = ask.next;
        }
        at
    }

    /// Takes out somebody; the ask itself stays where it is.
    pub(super) fn remove(&mut self, asks: &mut Asks, ask: AskId) {
        let own = link(ask);
        self.remove_deadline(asks, own);
        let Some(Waiting { arrival, cost, prev, next, .. }) = asks[ask].waiting().cloned() else { return };
        change(asks, prev, |prev| prev.next = next);
        change(asks, next, |next| next.prev = prev);
        if prev == NONE {
            self.head = next;
        }
        if next == NONE {
            self.tail = prev;
        }
        self.len -= 1;
        self.queued.take_off(&cost);
        if let Some(walk) = &mut self.walk {
            if walk.next == own {
                walk.next = next;
            } else if waiting(asks, walk.next).is_none_or(|next| arrival < next.arrival) {
                walk.ahead.take_off(&cost);
            }
        }
    }

    /// How many are ahead of somebody in the queue, counted up to a bound.
    pub(super) fn ahead_of(asks: &Asks, ask: AskId) -> usize {
        let before = |at: &u32| waiting(asks, *at).map(|ask| ask.prev).filter(|prev| *prev != NONE);
        std::iter::successors(Some(link(ask)), before).skip(1).take(MOST_COUNTED).count()
    }

    /// What is queued ahead of somebody, added up.
    pub(super) fn queued_ahead_of(&self, asks: &Asks, ask: AskId) -> Costs {
        let after = |at: &u32| waiting(asks, *at).map(|ask| ask.next);
        let ahead = std::iter::successors(Some(self.head), after).take_while(|at| *at != link(ask));
        let mut sum = Costs::default();
        ahead.filter_map(|at| waiting(asks, at)).for_each(|ask| sum.add(&ask.cost));
        sum
    }

    /// How many are ahead of an arrival: exact for a newcomer, for others counted up to a bound.
    pub(super) fn ahead_of_arrival(&self, asks: &Asks, arrival: Arrival) -> usize {
        if self.ends_before(asks, arrival) {
            return self.len;
        }
        let after = |at: &u32| waiting(asks, *at).map(|ask| ask.next);
        let all = std::iter::successors(Some(self.head), after);
        all.map_while(|at| waiting(asks, at)).take_while(|ask| ask.arrival < arrival).take(MOST_COUNTED).count()
    }

    /// From now on all are looked at again, from the first.
    pub(super) fn begin_walk(&mut self) {
        self.walk = Some(Box::new(Walk { next: self.head, ahead: Costs::default() }));
    }

    /// The next to be looked at again, and what is queued ahead of it.
    pub(super) fn walk(&mut self, asks: &Asks) -> Option<(AskId, Costs)> {
        let walk = self.walk.as_mut()?;
        let Some(ask) = waiting(asks, walk.next) else {
            self.walk = None;
            return None;
        };
        let found = (walk.next as usize, walk.ahead.clone());
        walk.next = ask.next;
        walk.ahead.add(&ask.cost);
        Some(found)
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn assert_sound(&self, asks: &Asks) {
        let after = |at: &u32| waiting(asks, *at).map(|ask| ask.next);
        let links = std::iter::successors(Some(self.head), after);
        let all: Vec<_> = links.map_while(|at| waiting(asks, at)).collect();
        let later = |at: &u32| waiting(asks, *at).map(|ask| ask.later);
        let chain = std::iter::successors(Some(self.soonest), later).map_while(|at| waiting(asks, at));
        let chain: Vec<_> = chain.map(|ask| ask.deadline).collect();
        assert!(chain.is_sorted(), "the chain is in order of deadlines");
        assert_eq!((all.len(), all.len()), (self.len, chain.len() + self.deadlines.len()), "a queue's length");
        assert!(all.is_sorted_by_key(|ask| ask.arrival), "a queue is in order of arrival");
        let mut queued = Costs::default();
        for ask in &all {
            queued.add(&ask.cost);
        }
        assert_eq!(queued.of(&Unit::REQUESTS), self.queued.of(&Unit::REQUESTS), "a queue's cost");
    }
}
