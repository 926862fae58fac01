//! Who waits in one lane, in order of arrival, and until when each of them will.

use std::collections::BTreeSet;

use slab::Slab;

use super::gate::Use;
use super::grant::Grant;
use super::order::{Arrival, LaneId};
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
    Decided(Box<Result<Grant, Refused>>),
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
    pub(super) usage: Use,
}

/// A lane's queue. What is queued in it is known without counting.
#[derive(Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    len: usize,
    queued: Costs,
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
        Self { arrival, deadline, cost, lane: link(lane), prev: NONE, next: NONE, usage }
    }

    pub(super) fn lane(&self) -> LaneId {
        self.lane as usize
    }
}

fn waiting(asks: &Asks, link: u32) -> Option<&Waiting> {
    asks.get(id(link)?)?.waiting()
}

fn set_next(asks: &mut Asks, of: u32, to: u32) {
    if let Some(ask) = id(of).and_then(|id| asks[id].waiting_mut()) {
        ask.next = to;
    }
}

fn set_prev(asks: &mut Asks, of: u32, to: u32) {
    if let Some(ask) = id(of).and_then(|id| asks[id].waiting_mut()) {
        ask.prev = to;
    }
}

impl Queue {
    pub(super) fn new() -> Self {
        let (queued, deadlines) = (Costs::default(), BTreeSet::new());
        Self { head: NONE, tail: NONE, len: 0, queued, deadlines, walk: None }
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

    pub(super) fn first_deadline(&self) -> Option<(Time, AskId)> {
        self.deadlines.first().map(|(at, link)| (*at, *link as usize))
    }

    /// Whether somebody who arrives then comes last.
    pub(super) fn ends_before(&self, asks: &Asks, arrival: Arrival) -> bool {
        waiting(asks, self.tail).is_none_or(|last| last.arrival < arrival)
    }

    /// Puts in somebody, in the place of its arrival: mostly the last. The older retry is searched for from the front.
    pub(super) fn insert(&mut self, asks: &mut Asks, ask: AskId) {
        let Some(Waiting { arrival, deadline, cost, .. }) = asks[ask].waiting().cloned() else { return };
        let next = if self.ends_before(asks, arrival) { NONE } else { self.first_after(asks, arrival) };
        let prev = waiting(asks, next).map_or(self.tail, |next| next.prev);
        let own = link(ask);
        set_next(asks, own, next);
        set_prev(asks, own, prev);
        set_next(asks, prev, own);
        set_prev(asks, next, own);
        if prev == NONE {
            self.head = own;
        }
        if next == NONE {
            self.tail = own;
        }
        self.len += 1;
        self.queued.add(&cost);
        self.deadlines.insert((deadline, own));
        if let Some(walk) =
            self.walk.as_mut().filter(|walk| waiting(asks, walk.next).is_some_and(|n| arrival < n.arrival))
        {
            walk.ahead.add(&cost);
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
        let Some(Waiting { arrival, deadline, cost, prev, next, .. }) = asks[ask].waiting().cloned() else { return };
        set_next(asks, prev, next);
        set_prev(asks, next, prev);
        if prev == NONE {
            self.head = next;
        }
        if next == NONE {
            self.tail = prev;
        }
        self.len -= 1;
        self.queued.take_off(&cost);
        self.deadlines.remove(&(deadline, link(ask)));
        if let Some(walk) = &mut self.walk {
            if walk.next == link(ask) {
                walk.next = next;
            } else if waiting(asks, walk.next).is_none_or(|n| arrival < n.arrival) {
                walk.ahead.take_off(&cost);
            }
        }
    }

    /// How many are ahead of somebody in the queue, counted up to a bound.
    pub(super) fn ahead_of(asks: &Asks, ask: AskId) -> usize {
        let before = |at: &u32| waiting(asks, *at).map(|ask| ask.prev).filter(|prev| *prev != NONE);
        std::iter::successors(Some(link(ask)), before).skip(1).take(MOST_COUNTED).count()
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

    #[cfg(debug_assertions)]
    pub(super) fn assert_sound(&self, asks: &Asks) {
        let after = |at: &u32| waiting(asks, *at).map(|ask| ask.next);
        let links = std::iter::successors(Some(self.head), after);
        let all: Vec<_> = links.map_while(|at| waiting(asks, at)).collect();
        assert_eq!((all.len(), all.len()), (self.len, self.deadlines.len()), "a queue's length");
        assert!(all.is_sorted_by_key(|ask| ask.arrival), "a queue is in order of arrival");
        let requests = all.iter().map(|ask| ask.cost.of(&crate::cost::Unit::REQUESTS)).sum::<u64>();
        assert_eq!(requests, self.queued.of(&crate::cost::Unit::REQUESTS), "a queue's cost");
    }
}
