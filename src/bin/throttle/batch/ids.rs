//! Which requests are there, and which of them are answered? By hashes, so that there may be millions.

use std::collections::HashSet;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::line::Print;

/// Stands for a `custom_id`.
pub(crate) type Id = [u8; 16];

/// Twenty-one bytes for each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    id: Id,
    /// Those of [`Print`], as bytes, which need no padding.
    print: [u8; 4],
    is_answered: bool,
}

/// Those of the input.
#[derive(Debug)]
pub(crate) struct Ids {
    /// Drawn for each run, so that nobody can write two ids with the same hash.
    keys: (u64, u64),
    entries: Vec<Entry>,
}

impl Ids {
    pub(crate) fn new() -> Self {
        Self { keys: (fastrand::u64(..), fastrand::u64(..)), entries: Vec::new() }
    }

    pub(crate) fn hash(&self, id: &str) -> Id {
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        hasher.write(id.as_bytes());
        hasher.finish128().as_bytes()
    }

    /// Adds one; [`sort`](Self::sort) after the last.
    pub(crate) fn add(&mut self, id: Id, print: Print) {
        self.entries.push(Entry { id, print: print.0.to_be_bytes(), is_answered: false });
    }

    /// Makes them ready to be looked up, and answers those that there are twice.
    pub(crate) fn sort(&mut self) -> HashSet<Id> {
        self.entries.sort_unstable();
        let pairs = self.entries.windows(2).filter(|pair| pair[0].id == pair[1].id);
        let doubled = pairs.map(|pair| pair[0].id).collect();
        self.entries.dedup_by(|again, first| {
            let is_again = again.id == first.id;
            if is_again && again.print != first.print {
                first.print = [0; 4];
            }
            is_again
        });
        doubled
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether this one is answered, and what its request was; `None` if it is not there.
    pub(crate) fn look_up(&self, id: &Id) -> Option<(bool, Print)> {
        let entry = &self.entries[self.place(id)?];
        Some((entry.is_answered, Print(u32::from_be_bytes(entry.print))))
    }

    pub(crate) fn mark_answered(&mut self, id: &Id) {
        if let Some(place) = self.place(id) {
            self.entries[place].is_answered = true;
        }
    }

    fn place(&self, id: &Id) -> Option<usize> {
        self.entries.binary_search_by_key(id, |entry| entry.id).ok()
    }
}

/// Tells which lines have an id that an earlier one has.
#[derive(Debug)]
pub(crate) struct Doubles {
    /// Those that are known to be there twice; of a stream, nothing is known.
    known: Option<HashSet<Id>>,
    met: HashSet<Id>,
}

impl Doubles {
    pub(crate) fn new(known: Option<HashSet<Id>>) -> Self {
        Self { known, met: HashSet::new() }
    }

    pub(crate) fn has_met(&mut self, id: Id) -> bool {
        self.known.as_ref().is_none_or(|known| known.contains(&id)) && !self.met.insert(id)
    }
}
