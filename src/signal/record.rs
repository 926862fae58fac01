//! What is said of one limit by fields for its parts, and what that amounts to.

use std::borrow::Cow;
use std::time::Duration;

use super::limit::{StatedLimit, UNNAMED};
use super::list::bare;
use super::moment::number;
use super::name::{Name, Words, is_same_family};
use super::policies::Policy;

/// A number as a field has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Some(f64),
    /// Below zero: not counted, or more than used up.
    Negative,
    /// A word, or worse.
    Junk,
}

impl Number {
    pub(super) fn positive(self) -> Option<f64> {
        if let Self::Some(number) = self { Some(number) } else { None }
    }
}

/// What is said of one limit of one family.
#[derive(Clone, Debug)]
pub(super) struct Record<'a> {
    pub(super) name: Name<'a>,
    /// Its place among the values of a field that has several.
    pub(super) place: usize,
    pub(super) limit: Option<Number>,
    pub(super) remaining: Option<Number>,
    pub(super) used: Option<Number>,
    pub(super) reset: Option<Duration>,
    pub(super) window: Option<Duration>,
    /// A name that the response gives it elsewhere.
    pub(super) label: Option<String>,
}

/// The names of a pair of limits of which the use is told, and nothing else.
const OF_A_PAIR: [&str; 2] = ["15min", "daily"];

/// Families whose limit without a name is told from others by this one.
const UNNAMED_BUT: [(&str, &str); 1] = [("x-hubspot-ratelimit", "interval")];

impl<'a> Record<'a> {
    pub(super) fn new(name: Name<'a>, place: usize) -> Self {
        let window = name.window;
        Self { name, place, limit: None, remaining: None, used: None, reset: None, window, label: None }
    }

    pub(super) fn is(&self, name: &Name<'a>, place: usize) -> bool {
        let is_same = self.name.words == name.words && self.name.window == name.window && self.place == place;
        is_same && is_same_family(self.name.family, name.family)
    }

    pub(super) fn is_of(&self, other: &Record<'_>) -> bool {
        is_same_family(self.name.family, other.name.family)
    }

    /// It has no number of its own.
    pub(super) fn is_loose(&self) -> bool {
        self.limit.is_none() && self.remaining.is_none() && self.used.is_none()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.remaining.and_then(Number::positive).is_some_and(|left| left < 1.0)
    }

    /// The name with a unit is the more exact one.
    pub(super) fn set_reset(&mut self, reset: Duration, name: &Name) {
        if self.reset.is_none() || name.is_span || name.is_millis {
            self.reset = Some(reset);
        }
    }

    pub(super) fn title(&self, is_pair: bool) -> Option<String> {
        let mut words: Words = self.name.words.clone();
        if is_pair {
            words.extend(OF_A_PAIR.get(self.place).copied());
        }
        let of_family = UNNAMED_BUT.iter().find(|(family, _)| words.is_empty() && *family == self.name.family);
        let label = self.label.as_deref().or(of_family.map(|(_, name)| *name)).map(str::to_owned);
        label.or_else(|| (!words.is_empty()).then(|| words.join("-")))
    }

    /// The policy whose limit it is says its window.
    pub(super) fn join(&mut self, policy: &Policy) {
        self.window = self.window.or(policy.window);
        self.limit = Some(Number::Some(policy.limit));
        self.label = policy.name.map(str::to_owned);
    }

    /// Two numbers below zero, or two zeros beside a success, say that nothing is counted.
    pub(super) fn into_limit(self, name: Option<String>, is_refused: bool) -> Option<StatedLimit> {
        let (limit, left) = (self.limit.and_then(Number::positive), self.remaining.and_then(Number::positive));
        let used = self.used.and_then(Number::positive);
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

pub(super) fn read(text: &str) -> Number {
    let text = bare(text);
    match (number(text), text.strip_prefix('-').and_then(number)) {
        (Some(number), _) => Number::Some(number),
        (None, Some(_)) => Number::Negative,
        (None, None) => Number::Junk,
    }
}

/// `1,000`. Several limits that a proxy has joined have a space after the comma.
pub(super) fn with_thousands(text: &str) -> Option<Number> {
    let (first, rest) = text.split_once(',')?;
    let is_group = |group: &str| group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit());
    let is_one = (1..=3).contains(&first.len()) && !first.starts_with('0') && rest.split(',').all(is_group);
    if is_one { number(&text.replace(',', "")).map(Number::Some) } else { None }
}

/// `5000/hour`, `5000 per hour`, `59/60`, `60 requests`: the number, and the last word behind it.
pub(super) fn with_unit(text: &str) -> (&str, &str) {
    if let Some((number, of)) = text.split_once('/') {
        return (number.trim(), of.trim());
    }
    match text.split_once(' ') {
        Some((number, words)) if words.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b' ') => {
            (number, words.rsplit(' ').next().unwrap_or_default())
        }
        _ => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_servers_write_them() {
        for (text, expected) in [
            ("60", Number::Some(60.0)),
            ("\"60\"", Number::Some(60.0)),
            ("99.0", Number::Some(99.0)),
            ("60;", Number::Some(60.0)),
            ("-1", Number::Negative),
            ("unlimited", Number::Junk),
            ("1e3", Number::Junk),
            ("", Number::Junk),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        assert_eq!(with_thousands("1,000"), Some(Number::Some(1_000.0)));
        assert_eq!((with_thousands("57, 0"), with_thousands("1,0.5"), with_thousands("200,2000")), (None, None, None));
        assert_eq!((with_unit("5000/hour"), with_unit("5000 per hour")), (("5000", "hour"), ("5000", "hour")));
        assert_eq!((with_unit("59/60"), with_unit("60"), with_unit("6 0")), (("59", "60"), ("60", ""), ("6 0", "")));
    }
}
