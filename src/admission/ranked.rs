//! Lanes by seniority.
//!
//! The lanes of one flow are sorted by arrival; the flows by their tags, as they were when they were last looked at: a
//! grant only moves its flow's tag on, and moves nothing here. Whoever has aged has a tag of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{FlowId, LaneId, Rank};

/// Who has one tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    Flow(FlowId),
    Aged(LaneId),
}

/// One of the lanes, as it is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The place of the class that it goes as.
    pub(super) class: usize,
    pub(super) group: Group,
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
    /// By class and group: under which rank their first is sorted.
    tops: BTreeMap<(usize, Group), Rank>,
    order: BTreeSet<(Rank, Group)>,
}

impl Place {
    fn rank(self, tag: u64) -> Rank {
        Rank { class: self.class, tag, number: self.number }
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
            Self::One(only, _) if *only == place => *self = Self::Nobody,
            Self::Nobody | Self::One(..) => {}
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

    /// Sorts those of one class and group anew, by what their first is now.
    pub(super) fn sort(&mut self, place: Place, tag: u64) {
        match self {
            Self::Nobody => {}
            Self::One(_, old) => *old = tag,
            Self::Many(sorted) => sorted.set_top(place.class, place.group, Some(place.rank(tag))),
        }
    }

    /// Who has a tag of its own here, if these are exactly two; else nobody.
    pub(super) fn two(&self) -> Vec<(usize, Group)> {
        match self {
            Self::Many(sorted) if sorted.tops.len() == 2 => sorted.tops.keys().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// How many have a tag of their own here.
    pub(super) fn groups(&self) -> usize {
        match self {
            Self::Nobody => 0,
            Self::One(..) => 1,
            Self::Many(sorted) => sorted.tops.len(),
        }
    }

    fn first_of(&self, class: usize, group: Group) -> Option<Place> {
        match self {
            Self::Many(sorted) => sorted.first_of(class, group),
            Self::One(place, _) => Some(*place).filter(|place| (place.class, place.group) == (class, group)),
            Self::Nobody => None,
        }
    }

    pub(super) fn has(&self, class: usize, group: Group) -> bool {
        self.first_of(class, group).is_some()
    }

    /// Sorts a group anew whose tag is less than it was. False if it is not here.
    pub(super) fn restore(&mut self, class: usize, group: Group, tag: u64) -> bool {
        let first = self.first_of(class, group);
        if let Some(place) = first {
            self.sort(place, tag);
        }
        first.is_some()
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
        if self.tops.get(&(place.class, place.group)).is_none_or(|top| rank < *top) {
            self.set_top(place.class, place.group, Some(rank));
        }
    }

    fn remove(&mut self, place: Place) {
        self.members.remove(&place);
        let Place { class, group, number, .. } = place;
        if let Some(top) = self.tops.get(&(class, group)).copied().filter(|top| top.number == number) {
            let next = self.first_of(class, group);
            self.set_top(class, group, next.map(|next| next.rank(top.tag)));
        }
    }

    fn first(&self) -> Option<(Rank, Place)> {
        let (rank, group) = *self.order.first()?;
        Some((rank, self.first_of(rank.class, group)?))
    }

    fn first_of(&self, class: usize, group: Group) -> Option<Place> {
        self.those_of(class, group).next()
    }

    fn those_of(&self, class: usize, group: Group) -> impl Iterator<Item = Place> {
        let from = Place { class, group, number: 0, lane: 0 };
        let same = move |place: &&Place| place.class == class && place.group == group;
        self.members.range(from..).take_while(same).copied()
    }

    fn set_top(&mut self, class: usize, group: Group, rank: Option<Rank>) {
        let old = match rank {
            Some(rank) => self.tops.insert((class, group), rank),
            None => self.tops.remove(&(class, group)),
        };
        if let Some(old) = old {
            self.order.remove(&(old, group));
        }
        self.order.extend(rank.map(|rank| (rank, group)));
    }

    fn iter(&self) -> impl Iterator<Item = (Rank, LaneId)> {
        let groups = self.order.iter().copied();
        groups.flat_map(|(rank, group)| {
            self.those_of(rank.class, group).map(move |place| (place.rank(rank.tag), place.lane))
        })
    }
}
