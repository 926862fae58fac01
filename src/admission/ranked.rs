//! Lanes by seniority.
//!
//! The lanes of one flow are sorted by arrival; the flows by their tags, which only grow, as they were when they were
//! last looked at. So a grant, which moves the tag of its flow, moves nothing here.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{FlowId, LaneId, Rank, Standing};

/// One of the lanes, as it is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) standing: Standing,
    pub(super) flow: FlowId,
    pub(super) number: u64,
    pub(super) lane: LaneId,
}

/// A set of lanes.
#[derive(Debug, Default)]
pub(super) enum Ranked {
    #[default]
    Nobody,
    /// Mostly there is one.
    One(Place, u64),
    Many(Box<Sorted>),
}

#[derive(Debug, Default)]
pub(super) struct Sorted {
    members: BTreeSet<Place>,
    /// By standing and flow: under which rank their first is sorted.
    tops: BTreeMap<(Standing, FlowId), Rank>,
    order: BTreeSet<(Rank, FlowId)>,
}

impl Place {
    fn rank(self, tag: u64) -> Rank {
        Rank { standing: self.standing, tag, number: self.number }
    }
}

impl Ranked {
    pub(super) fn insert(&mut self, place: Place, tag: u64) {
        match self {
            Self::Nobody => *self = Self::One(place, tag),
            Self::One(first, first_tag) => {
                let mut sorted = Sorted::default();
                sorted.insert(*first, *first_tag);
                sorted.insert(place, tag);
                *self = Self::Many(Box::new(sorted));
            }
            Self::Many(sorted) => sorted.insert(place, tag),
        }
    }

    pub(super) fn remove(&mut self, place: Place) {
        match self {
            Self::Nobody => {}
            Self::One(..) => *self = Self::Nobody,
            Self::Many(sorted) => {
                sorted.remove(place);
                if sorted.members.is_empty() {
                    *self = Self::Nobody;
                }
            }
        }
    }

    /// The first, and under which rank it is sorted: it may have fallen behind others since.
    pub(super) fn first(&self) -> Option<(Rank, Place)> {
        match self {
            Self::Nobody => None,
            Self::One(place, tag) => Some((place.rank(*tag), *place)),
            Self::Many(sorted) => sorted.first(),
        }
    }

    /// Sorts those of one standing and flow anew, by what their first is now.
    pub(super) fn sort(&mut self, place: Place, tag: u64) {
        match self {
            Self::Nobody => {}
            Self::One(_, old) => *old = tag,
            Self::Many(sorted) => sorted.set_top(place.standing, place.flow, Some(place.rank(tag))),
        }
    }

    /// All of them, as they are sorted.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = (Rank, LaneId)> + '_> {
        match self {
            Self::Nobody => Box::new(std::iter::empty()),
            Self::One(place, tag) => Box::new(std::iter::once((place.rank(*tag), place.lane))),
            Self::Many(sorted) => Box::new(sorted.iter()),
        }
    }
}

impl Sorted {
    fn insert(&mut self, place: Place, tag: u64) {
        self.members.insert(place);
        let rank = place.rank(tag);
        if self.tops.get(&(place.standing, place.flow)).is_none_or(|top| rank < *top) {
            self.set_top(place.standing, place.flow, Some(rank));
        }
    }

    fn remove(&mut self, place: Place) {
        self.members.remove(&place);
        let Place { standing, flow, number, .. } = place;
        if let Some(top) = self.tops.get(&(standing, flow)).copied().filter(|top| top.number == number) {
            let next = self.first_of(standing, flow);
            self.set_top(standing, flow, next.map(|next| next.rank(top.tag)));
        }
    }

    fn first(&self) -> Option<(Rank, Place)> {
        let (rank, flow) = *self.order.first()?;
        Some((rank, self.first_of(rank.standing, flow)?))
    }

    fn first_of(&self, standing: Standing, flow: FlowId) -> Option<Place> {
        self.those_of(standing, flow).next()
    }

    fn those_of(&self, standing: Standing, flow: FlowId) -> impl Iterator<Item = Place> {
        let from = Place { standing, flow, number: 0, lane: 0 };
        let same = move |place: &&Place| place.standing == standing && place.flow == flow;
        self.members.range(from..).take_while(same).copied()
    }

    fn set_top(&mut self, standing: Standing, flow: FlowId, rank: Option<Rank>) {
        let old = match rank {
            Some(rank) => self.tops.insert((standing, flow), rank),
            None => self.tops.remove(&(standing, flow)),
        };
        if let Some(old) = old {
            self.order.remove(&(old, flow));
        }
        self.order.extend(rank.map(|rank| (rank, flow)));
    }

    fn iter(&self) -> impl Iterator<Item = (Rank, LaneId)> {
        let flows = self.order.iter().copied();
        flows.flat_map(|(rank, flow)| {
            self.those_of(rank.standing, flow).map(move |place| (place.rank(rank.tag), place.lane))
        })
    }
}
