//! The gates by key: made on first use, dropped at rest, and never more than so many.

use std::ops::{Index, IndexMut};

use foldhash::{HashMap, HashMapExt};
use slab::Slab;

use super::gate::{Gate, Rule};
use crate::key::Key;
use crate::limits::Limits;
use crate::time::Time;

/// Whoever makes a gate looks at so many others, whether they are at rest: those cannot outnumber the rest for long.
const LOOKED_AT: usize = 4;

/// Whoever finds no room for one looks at so many.
const MOST_LOOKED_AT: usize = 256;

/// The number of a gate, as long as there is something at it.
pub(super) type GateId = usize;

/// Which gate: a key, and the rule by whose limits it is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GateName {
    pub(crate) rule: usize,
    pub(crate) key: Key,
}

/// What a new key gets if there are too many, and none that was looked at is at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// Nothing.
    #[default]
    Refuse,
    /// One gate together with all other such keys. Whoever gets a gate of its own later begins with what that one counts.
    #[cfg_attr(not(test), expect(dead_code, reason = "for limits on what comes in"))]
    Share,
}

/// All gates, and the rules that they are made by.
#[derive(Debug)]
pub(super) struct Gates {
    slab: Slab<Entry>,
    keys: HashMap<GateName, GateId>,
    rules: Vec<Current>,
    most: usize,
    overflow: Overflow,
    /// Counts the gates that were ever made.
    made_ever: u64,
    /// Where the search for gates at rest goes on.
    hand: GateId,
    /// The one that was last found.
    last: GateId,
    #[cfg(test)]
    pub(super) made: Vec<GateName>,
}

#[derive(Debug)]
struct Entry {
    gate: Gate,
    name: GateName,
    /// Whether it is the one that keys without one of their own share.
    is_further: bool,
    serial: u64,
    version: u64,
}

/// A rule as it is now.
#[derive(Debug)]
struct Current {
    rule: Rule,
    /// Counts the limits that it has had.
    version: u64,
    /// The gate that keys without one of their own share.
    further: Option<GateId>,
}

impl Gates {
    pub(super) fn new(rules: Vec<Rule>, most: usize, overflow: Overflow) -> Self {
        let rules = rules.into_iter().map(|rule| Current { rule, version: 0, further: None }).collect();
        Self {
            slab: Slab::new(),
            keys: HashMap::new(),
            rules,
            most,
            overflow,
            made_ever: 0,
            hand: 0,
            last: 0,
            #[cfg(test)]
            made: Vec::new(),
        }
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = GateId> {
        self.slab.iter().map(|(id, _)| id)
    }

    /// One more than the greatest number that a gate may have.
    pub(super) fn end(&self) -> GateId {
        self.slab.capacity()
    }

    pub(super) fn get(&self, id: GateId) -> Option<&GateName> {
        self.slab.get(id).map(|entry| &entry.name)
    }

    /// Its name, for those who read it.
    pub(super) fn key(&self, id: GateId) -> &str {
        self.slab[id].name.key.as_str()
    }

    pub(super) fn find(&self, name: &GateName) -> Option<GateId> {
        self.keys.get(name).copied()
    }

    /// The gate of a name, if there is one, and it is its own and has the limits of its rule.
    pub(super) fn find_current(&mut self, name: &GateName) -> Option<GateId> {
        // Mostly whoever asks is at the same gate as the last.
        let same = self.slab.get(self.last).is_some_and(|entry| !entry.is_further && entry.name == *name);
        self.last = if same { self.last } else { self.find(name)? };
        (self.slab[self.last].version == self.rules[name.rule].version).then_some(self.last)
    }

    /// The gate of a name, made on first use. `None` if there are too many.
    pub(super) fn find_or_make(&mut self, name: &GateName, now: Time) -> Option<GateId> {
        if let Some(id) = self.find(name) {
            return Some(id);
        }
        self.drop_at_rest(LOOKED_AT, now);
        if self.is_full() {
            self.drop_at_rest(MOST_LOOKED_AT, now);
        }
        match self.overflow {
            _ if !self.is_full() => Some(self.make(name, now)),
            Overflow::Refuse => None,
            Overflow::Share => Some(self.further(name.rule)),
        }
    }

    fn is_full(&self) -> bool {
        self.keys.len() >= self.most
    }

    /// The gate that keys without one of their own share.
    fn further(&mut self, rule: usize) -> GateId {
        if let Some(further) = self.rules[rule].further {
            return further;
        }
        let Current { rule: of, version, .. } = &self.rules[rule];
        let (gate, version) = (Gate::new(of), *version);
        let name = GateName { rule, key: Key::new("(all further keys)") };
        let further = self.insert(Entry { gate, name, is_further: true, serial: 0, version });
        self.rules[rule].further = Some(further);
        further
    }

    /// The gate of a name, made on first use however many there are.
    pub(super) fn make_anyway(&mut self, name: &GateName, now: Time) -> GateId {
        self.find_or_make(name, now).unwrap_or_else(|| self.make(name, now))
    }

    /// Whether a request goes without it where there are too many.
    pub(super) fn is_optional(&self, name: &GateName) -> bool {
        self.rules[name.rule].rule.optional
    }

    /// What refusals have taught at one gate was about another.
    pub(super) fn give_up_found(&mut self, from: GateId, to: GateId, now: Time) {
        if let Some((from, to)) = self.slab.get2_mut(from, to) {
            from.gate.give_up_found(&mut to.gate, now);
        }
    }

    /// Makes the gate of a name, however many there are.
    fn make(&mut self, name: &GateName, now: Time) -> GateId {
        let Current { rule, version, further } = &self.rules[name.rule];
        let (gate, version) = match further.map(|further| &self.slab[further]) {
            Some(further) => (further.gate.split(now), further.version),
            None => (Gate::new(rule), *version),
        };
        let id = self.insert(Entry { gate, name: name.clone(), is_further: false, serial: 0, version });
        self.keys.insert(name.clone(), id);
        #[cfg(test)]
        self.made.push(name.clone());
        id
    }

    fn insert(&mut self, entry: Entry) -> GateId {
        self.made_ever += 1;
        self.slab.insert(Entry { serial: self.made_ever, ..entry })
    }

    /// Tells a gate from others that had its number or name.
    pub(super) fn serial(&self, id: GateId) -> Option<u64> {
        self.slab.get(id).map(|entry| entry.serial)
    }

    /// Looks at so many gates, where the last look ended, and drops those that a fresh one would be the same as.
    fn drop_at_rest(&mut self, looks: usize, now: Time) {
        for _ in 0..looks.min(self.slab.len()) {
            self.hand = if self.hand + 1 < self.slab.capacity() { self.hand + 1 } else { 0 };
            if self.slab.get_mut(self.hand).is_some_and(|entry| entry.gate.is_at_rest(now)) {
                let Entry { name, is_further, .. } = self.slab.remove(self.hand);
                if is_further {
                    self.rules[name.rule].further = None;
                } else {
                    self.keys.remove(&name);
                }
            }
        }
    }

    /// Other limits for all gates of a rule. Each takes them over when it is next looked at.
    pub(super) fn set_limits(&mut self, rule: usize, limits: Limits) {
        if let Some(current) = self.rules.get_mut(rule) {
            current.rule.limits = limits;
            current.version += 1;
        }
    }

    /// Lets a gate take over the limits of its rule, if it has others. Answers what was lent under quotas that are gone, by
    /// the numbers of their meters.
    pub(super) fn bring_up(&mut self, id: GateId, now: Time) -> Option<Vec<(u32, u64)>> {
        let entry = &mut self.slab[id];
        let current = &self.rules[entry.name.rule];
        (entry.version != current.version).then(|| {
            entry.version = current.version;
            entry.gate.retune(&current.rule.limits, now)
        })
    }
}

impl Index<GateId> for Gates {
    type Output = Gate;

    fn index(&self, id: GateId) -> &Gate {
        &self.slab[id].gate
    }
}

impl IndexMut<GateId> for Gates {
    fn index_mut(&mut self, id: GateId) -> &mut Gate {
        &mut self.slab[id].gate
    }
}
