//! What the trios say: fields for a limit, what remains of it, and its reset, for one limit or several.

use std::time::Duration;

use smallvec::SmallVec;

use super::limit::{Found, Scope};
use super::list::{bare, members, split};
use super::moment::{Clock, by_size, millis, number, span, units, when};
use super::name::{Name, Role, period};
use super::policies::{self, Policies};
use super::record::{Number, Record, read, with_thousands, with_unit};

/// All trios of a head.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    records: SmallVec<[Record<'a>; 4]>,
    policies: Policies<'a>,
}

impl<'a> Fields<'a> {
    /// What one field says; `before` are the values that it had on lines before this.
    pub(super) fn add(&mut self, name: &Name<'a>, value: &'a str, before: usize, clock: Clock<'_>, in_millis: bool) {
        match name.role {
            Role::Limit if policies::is_list(value) => self.add_limit_with_policies(name, value),
            // `36/200` alone: used, of all.
            Role::Whole if value.contains('/') => self.add_numbers(name, value, before, |record| &mut record.used),
            Role::Limit | Role::Whole => self.add_numbers(name, value, before, |record| &mut record.limit),
            Role::Remaining => self.add_numbers(name, value, before, |record| &mut record.remaining),
            Role::Used => self.add_numbers(name, value, before, |record| &mut record.used),
            Role::Reset => self.add_resets(name, value, before, clock, in_millis),
            Role::Window => self.add_window(name, value),
            Role::Policy => self.policies.add(name.family, value, false),
            Role::Wait => {}
        }
    }

    /// `limit=100, remaining=50, reset=5` (draft 07), or with other words and semicolons.
    pub(super) fn add_dictionary(&mut self, name: &Name<'a>, value: &'a str) {
        let separator = if split(value, b',').nth(1).is_some() { b',' } else { b';' };
        for part in split(value, separator) {
            let Some((key, value)) = part.split_once('=') else { continue };
            let value = split(value, b';').next().unwrap_or_default();
            let record = self.record(name, 0);
            match key.trim() {
                "limit" | "total" => record.limit = Some(read(value)),
                "remaining" => record.remaining = Some(read(value)),
                "reset" | "resets" => record.reset = number(bare(value)).and_then(span),
                _ => {}
            }
        }
    }

    /// A name that is given elsewhere for the limit without one.
    pub(super) fn label(&mut self, label: &str, window: Option<Duration>) {
        for record in self.records.iter_mut().filter(|record| record.name.words.is_empty()) {
            record.label = Some(label.to_owned());
            record.window = record.window.or(window);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.policies.is_empty()
    }

    /// For what they hold, where the names of the fields say so.
    pub(super) fn scope(&self) -> Option<Scope> {
        let name = &self.records.first()?.name;
        match name.words.first() {
            Some(&"user") => Some(Scope::User),
            Some(_) if name.family == "x-ms-ratelimit" => Some(Scope::Bucket(name.words.join("-"))),
            _ => None,
        }
    }

    /// The limits that all this amounts to.
    pub(super) fn into_limits(mut self, is_refused: bool, found: &mut Found) {
        self.share_loose_ends();
        for record in &mut self.records {
            let (limit, left) = (record.limit.and_then(Number::positive), record.remaining.and_then(Number::positive));
            if record.place == 0
                && record.name.words.is_empty()
                && let Some(policy) = self.policies.take(record.name.family, limit, left)
            {
                record.join(&policy);
            }
        }
        let pairs = self.records.iter().filter(|record| record.place == 1 && record.used.is_some()).count();
        for record in self.records {
            let name = record.title(pairs > 0);
            let is_named = name.is_some();
            if let Some(limit) = record.into_limit(name, is_refused) {
                found.merge(limit, is_named);
            }
        }
        self.policies.into_limits(found);
    }

    fn record(&mut self, name: &Name<'a>, place: usize) -> &mut Record<'a> {
        let known = self.records.iter().position(|record| record.is(name, place));
        let at = known.unwrap_or_else(|| {
            self.records.push(Record::new(name.clone(), place));
            self.records.len() - 1
        });
        &mut self.records[at]
    }

    fn add_numbers(
        &mut self,
        name: &Name<'a>,
        value: &'a str,
        before: usize,
        slot: for<'r> fn(&'r mut Record<'a>) -> &'r mut Option<Number>,
    ) {
        if let Some(number) = with_thousands(bare(value)).filter(|_| name.role != Role::Used) {
            slot(self.record(name, before)).get_or_insert(number);
            return;
        }
        for (place, member) in members(value).enumerate() {
            let record = self.record(name, before + place);
            let (head, of) = with_unit(bare(member.head));
            slot(record).get_or_insert(read(head));
            // `100/hour`, and `59/60` of what is left or used.
            record.window = record.window.or(period(of.trim()));
            if let (Some(limit), Role::Remaining | Role::Used | Role::Whole) = (number(of.trim()), name.role) {
                record.limit.get_or_insert(Number::Some(limit));
            }
            let window = member.parameter("w").and_then(number).and_then(span);
            record.window = record.window.or(window.filter(|window| !window.is_zero()));
        }
    }

    fn add_limit_with_policies(&mut self, name: &Name<'a>, value: &'a str) {
        if let Some(first) = members(value).next() {
            self.record(name, 0).limit.get_or_insert(read(first.head));
            let rest = value.get(first.head.len()..).unwrap_or_default();
            self.policies.add(name.family, rest.trim_start_matches([' ', ',']), true);
        }
    }

    fn add_resets(&mut self, name: &Name<'a>, value: &'a str, before: usize, clock: Clock<'_>, in_millis: bool) {
        let one = |text: &str| match number(text) {
            Some(number) if name.is_span && !name.is_millis => span(number).filter(|_| number < 1e8),
            Some(number) if name.is_millis || in_millis => millis(number, clock),
            Some(number) => by_size(number, clock),
            None => when(text, clock),
        };
        // A date has a comma in it.
        if let Some(reset) = one(bare(value)) {
            return self.record(name, before).set_reset(reset, name);
        }
        for (place, member) in members(value).enumerate() {
            let record = self.record(name, before + place);
            if let Some(reset) = one(bare(member.head)) {
                record.set_reset(reset, name);
            }
        }
    }

    fn add_window(&mut self, name: &Name<'a>, value: &str) {
        let window = match number(bare(value)) {
            Some(number) if name.is_millis => span(number / 1e3),
            Some(number) => span(number).filter(|_| number < 1e8),
            None => units(bare(value)),
        };
        let record = self.record(name, 0);
        record.window = record.window.or(window.filter(|window| !window.is_zero()));
    }

    /// A reset and a window that are of no limit by name are of the only limit of that family, or of the only empty
    /// one.
    fn share_loose_ends(&mut self) {
        while let Some(at) = self.records.iter().position(|record| {
            let others = self.records.iter().filter(|other| other.is_of(record) && !other.is_loose()).count();
            record.is_loose() && record.name.words.is_empty() && others > 0
        }) {
            let loose = self.records.remove(at);
            let others = |record: &Record| record.is_of(&loose) && !record.is_loose();
            let is_only = self.records.iter().filter(|record| others(record)).count() == 1;
            let is_it = |record: &Record| others(record) && (is_only || record.is_empty());
            let is_clear = self.records.iter().filter(|record| is_it(record)).count() == 1;
            if let Some(only) = self.records.iter_mut().find(|record| is_clear && is_it(record)) {
                only.reset = only.reset.or(loose.reset);
                only.window = only.window.or(loose.window);
            }
        }
    }
}
