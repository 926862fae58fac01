//! What the trios say: fields for a limit, what remains of it, and its reset, for one limit or several.

use std::borrow::Cow;
use std::time::Duration;

use smallvec::SmallVec;

use super::limit::{Found, StatedLimit, UNNAMED};
use super::list::{Member, bare, members, split};
use super::moment::{Clock, by_size, millis, number, span, units, when};
use super::name::{Name, Role, Words, period};

/// A number as a field has it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Some(f64),
    /// Below zero: not counted, or more than used up.
    Negative,
    /// A word, or worse.
    Junk,
}

/// What is said of one limit of one family.
#[derive(Clone, Debug)]
struct Record<'a> {
    name: Name<'a>,
    /// Its place among the values of a field that has several.
    place: usize,
    limit: Option<Number>,
    remaining: Option<Number>,
    used: Option<Number>,
    reset: Option<Duration>,
    window: Option<Duration>,
    /// A name that the response gives it elsewhere.
    label: Option<String>,
}

/// One of the policies that a family lists beside its limit.
#[derive(Clone, Copy, Debug)]
struct Policy<'a> {
    family: &'a str,
    name: Option<&'a str>,
    limit: f64,
    window: Option<Duration>,
    /// Listed in the field of the limit itself (draft 03), and not in one of their own (drafts 04 to 07).
    is_in_limit: bool,
}

/// All trios of a head.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    records: SmallVec<[Record<'a>; 4]>,
    policies: SmallVec<[Policy<'a>; 4]>,
}

impl<'a> Fields<'a> {
    /// What one field says; `before` are the values that it had on lines before this.
    pub(super) fn add(&mut self, name: &Name<'a>, value: &'a str, before: usize, clock: Clock<'_>, in_millis: bool) {
        match name.role {
            Role::Limit if is_list_of_policies(value) => self.add_limit_with_policies(name, value),
            Role::Limit | Role::Whole => self.add_numbers(name, value, before, |record| &mut record.limit),
            Role::Remaining => self.add_numbers(name, value, before, |record| &mut record.remaining),
            Role::Used => self.add_numbers(name, value, before, |record| &mut record.used),
            Role::Reset => self.add_resets(name, value, before, clock, in_millis),
            Role::Window => self.add_window(name, value),
            Role::Policy => self.add_policies(name.family, value, false),
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

    pub(super) fn add_policies(&mut self, family: &'a str, value: &'a str, is_in_limit: bool) {
        let policies = members(value).filter_map(|member| {
            let window = member.parameter("w").or(member.parameter("window"));
            let window = window.and_then(number).and_then(span).filter(|window| !window.is_zero());
            let name = member.parameter("name").map(bare);
            Some(Policy { family, name, limit: number(bare(member.head))?, window, is_in_limit })
        });
        self.policies.extend(policies);
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

    /// The limits that all this amounts to.
    pub(super) fn into_limits(mut self, is_refused: bool, found: &mut Found) {
        self.share_loose_ends();
        let mut policies = std::mem::take(&mut self.policies);
        for record in &mut self.records {
            join(record, &mut policies);
        }
        let pairs = self.records.iter().filter(|record| record.place == 1 && record.used.is_some()).count();
        for record in self.records {
            let name = record.title(pairs > 0);
            let is_named = name.is_some();
            if let Some(limit) = record.into_limit(name, is_refused) {
                found.merge(limit, is_named);
            }
        }
        for policy in policies {
            let name = policy.name.map(|name| Cow::Owned(name.to_owned()));
            let limit = StatedLimit::named(name.unwrap_or(Cow::Borrowed(UNNAMED)));
            found.push(StatedLimit { limit: Some(policy.limit), window: policy.window, ..limit });
        }
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
            let (head, of) = member.head.split_once('/').unwrap_or((member.head, ""));
            slot(record).get_or_insert(read(head));
            // `100/hour`, and `59/60` of what is left or used.
            record.window = record.window.or(period(of.trim()));
            if let (Some(limit), Role::Remaining | Role::Used) = (number(of.trim()), name.role) {
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
            self.add_policies(name.family, rest.trim_start_matches([' ', ',']), true);
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

    /// A reset and a window that are of no limit by name are of the only limit of that family, or of the only empty one.
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

/// The names of a pair of limits of which the use is told, and nothing else.
const OF_A_PAIR: [&str; 2] = ["15min", "daily"];

/// Families whose limit without a name is told from others by this one.
const UNNAMED_BUT: [(&str, &str); 1] = [("x-hubspot-ratelimit", "interval")];

impl<'a> Record<'a> {
    fn new(name: Name<'a>, place: usize) -> Self {
        let window = name.window;
        Self { name, place, limit: None, remaining: None, used: None, reset: None, window, label: None }
    }

    fn is(&self, name: &Name<'a>, place: usize) -> bool {
        let is_same = self.name.words == name.words && self.name.window == name.window && self.place == place;
        is_same && is_same_family(self.name.family, name.family)
    }

    fn is_of(&self, other: &Record<'_>) -> bool {
        is_same_family(self.name.family, other.name.family)
    }

    /// It has no number of its own.
    fn is_loose(&self) -> bool {
        self.limit.is_none() && self.remaining.is_none() && self.used.is_none()
    }

    fn is_empty(&self) -> bool {
        self.remaining.and_then(positive).is_some_and(|left| left < 1.0)
    }

    /// The name with a unit is the more exact one.
    fn set_reset(&mut self, reset: Duration, name: &Name) {
        if self.reset.is_none() || name.is_span || name.is_millis {
            self.reset = Some(reset);
        }
    }

    fn title(&self, is_pair: bool) -> Option<String> {
        let mut words: Words = self.name.words.clone();
        if is_pair {
            words.extend(OF_A_PAIR.get(self.place).copied());
        }
        let of_family = UNNAMED_BUT.iter().find(|(family, _)| words.is_empty() && *family == self.name.family);
        let label = self.label.as_deref().or(of_family.map(|(_, name)| *name)).map(str::to_owned);
        label.or_else(|| (!words.is_empty()).then(|| words.join("-")))
    }

    /// Two numbers below zero, or two zeros beside a success, say that nothing is counted.
    fn into_limit(self, name: Option<String>, is_refused: bool) -> Option<StatedLimit> {
        let (limit, left) = (self.limit.and_then(positive), self.remaining.and_then(positive));
        let used = self.used.and_then(positive);
        let is_spent = self.remaining == Some(Number::Negative) && (is_refused || limit.is_some());
        let left = left.or(is_spent.then_some(0.0)).or_else(|| Some((limit? - used?).max(0.0)));
        let is_nothing = limit.is_some_and(|limit| limit < 1.0) && left.is_some_and(|left| left < 1.0);
        let is_uncounted = self.limit == Some(Number::Negative) || (is_nothing && !is_refused);
        let says_something = limit.is_some() || left.is_some() || self.is_loose() && self.reset.is_some();
        // A limit of nothing that is refused is one on what is under way.
        let name = if is_nothing && name.is_none() { Some("concurrency".to_owned()) } else { name };
        let title = name.map_or(Cow::Borrowed(UNNAMED), Cow::Owned);
        let (reset_after, window) = (self.reset, self.window);
        let limit = StatedLimit { limit, remaining: left, reset_after, window, ..StatedLimit::named(title) };
        (says_something && !is_uncounted).then_some(limit)
    }
}

/// The policy whose limit it is says its window. If the server has lowered the limit, or two policies have the same, none does.
fn join(record: &mut Record<'_>, policies: &mut SmallVec<[Policy<'_>; 4]>) {
    let mine = |policy: &&Policy| is_same_family(policy.family, record.name.family);
    if record.place > 0 || !record.name.words.is_empty() || !policies.iter().any(|policy| mine(&policy)) {
        return;
    }
    let (limit, left) = (record.limit.and_then(positive), record.remaining.and_then(positive));
    // More is left than the limit allows, so it is left of another.
    let of_another = policies.iter().filter(mine).filter(|policy| {
        policy.is_in_limit && left > limit && limit.is_some() && left.is_some_and(|left| left <= policy.limit)
    });
    let limit = of_another.map(|policy| policy.limit).reduce(f64::min).or(limit);
    let is_mine = |policy: &Policy| mine(&policy) && limit.is_none_or(|limit| is_equal(policy.limit, limit));
    let mut matching = policies.iter().filter(|policy| is_mine(policy));
    match (matching.next(), matching.next()) {
        (Some(only), None) => {
            record.window = record.window.or(only.window);
            record.limit = Some(Number::Some(only.limit));
            record.label = only.name.map(str::to_owned);
        }
        (Some(_), Some(_)) if limit.is_none() => return,
        (None, _) if policies.iter().filter(mine).all(|policy| !policy.is_in_limit) => {
            let family = record.name.family;
            return policies.retain(|policy| !is_same_family(policy.family, family));
        }
        _ => {}
    }
    policies.retain(|policy| {
        !(is_same_family(policy.family, record.name.family) && limit.is_none_or(|limit| is_equal(policy.limit, limit)))
    });
}

fn is_equal(one: f64, other: f64) -> bool {
    (one - other).abs() < 0.5
}

/// `x-ratelimit` and `x-rate-limit` are one.
fn is_same_family(one: &str, other: &str) -> bool {
    let letters = |family: &str| family.bytes().filter(|byte| *byte != b'-').count();
    one == other
        || (letters(one) == letters(other)
            && one.bytes().filter(|byte| *byte != b'-').eq(other.bytes().filter(|byte| *byte != b'-')))
}

/// A limit, and policies after it that have a window each (draft 03).
fn is_list_of_policies(value: &str) -> bool {
    members(value).skip(1).any(Member::has_parameters)
}

fn read(text: &str) -> Number {
    let text = bare(text);
    match (number(text), text.strip_prefix('-').and_then(number)) {
        (Some(number), _) => Number::Some(number),
        (None, Some(_)) => Number::Negative,
        (None, None) => Number::Junk,
    }
}

/// `1,000`. Several limits that a proxy has joined have a space after the comma.
fn with_thousands(text: &str) -> Option<Number> {
    let (first, rest) = text.split_once(',')?;
    let is_group = |group: &str| group.len() == 3 && number(group).is_some();
    let is_one = (1..=3).contains(&first.len()) && !first.starts_with('0') && rest.split(',').all(is_group);
    if is_one { number(&text.replace(',', "")).map(Number::Some) } else { None }
}

fn positive(number: Number) -> Option<f64> {
    if let Number::Some(number) = number { Some(number) } else { None }
}
