//! Who is to be looked at when: at most one instant for each owner.

use std::collections::BTreeSet;

use crate::time::Time;

/// Whose instant it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Gate(usize),
    Lane(usize),
}

/// The instants, in order.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Time, Owner)>);

impl Timers {
    pub(super) fn first(&self) -> Option<Time> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes out one that is due.
    pub(super) fn pop_until(&mut self, until: Time) -> Option<Owner> {
        self.0.first().filter(|(at, _)| *at <= until)?;
        self.0.pop_first().map(|(_, owner)| owner)
    }

    /// Another instant, or none; `kept` is where the owner keeps the one that it has.
    pub(super) fn set(&mut self, owner: Owner, kept: &mut Option<Time>, at: Option<Time>) {
        if *kept == at {
            return;
        }
        if let Some(old) = std::mem::replace(kept, at) {
            self.0.remove(&(old, owner));
        }
        self.0.extend(at.map(|at| (at, owner)));
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn has(&self, owner: Owner, at: Option<Time>) -> bool {
        let mut own = self.0.iter().filter(|(_, other)| *other == owner).map(|(at, _)| *at);
        own.next() == at && own.next().is_none()
    }
}
