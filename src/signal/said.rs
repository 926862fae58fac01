//! What the parts of a JSON body say, wherever they stand in it.

use std::time::Duration;

use serde_json::Value;
use smallvec::SmallVec;

use super::codes::{Meaning, meaning, meaning_of_number};
use super::fields::Fields;
use super::limit::{Found, StatedLimit};
use super::list::bare;
use super::moment::{Clock, by_size, millis, number, span, when};
use super::name::{Name, period};
use super::{prose, terminal};

/// No deeper than this, and no more than so many bytes of messages.
const DEEPEST: usize = 8;
const MOST_TEXT: usize = 8_192;

const CODES: [&str; 15] = [
    "code",
    "type",
    "status",
    "reason",
    "error",
    "errors",
    "errorcode",
    "errortype",
    "errorname",
    "errorsummary",
    "name",
    "tag",
    "kind",
    "title",
    "retcode",
];

const WAITS: [&str; 11] = [
    "retryafter",
    "retryafterseconds",
    "retryaftersecs",
    "retryinseconds",
    "retryin",
    "retrydelay",
    "backoff",
    "backoffseconds",
    "waitseconds",
    "resetsinseconds",
    "resetinseconds",
];

const WAITS_IN_MILLIS: [&str; 3] = ["retryafterms", "retryaftermillis", "retryaftermilliseconds"];

/// What a body has said so far.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) meanings: SmallVec<[Meaning; 4]>,
    /// In lower case, one a line.
    pub(super) messages: String,
    /// In so many words.
    pub(super) wait: Option<Duration>,
    /// It names an allowance of a day, so that a short wait is of no use.
    pub(super) is_daily: bool,
}

impl Said {
    pub(super) fn means(&self, meaning: Meaning) -> bool {
        self.meanings.contains(&meaning)
    }

    pub(super) fn hear(&mut self, message: &str) {
        let room = MOST_TEXT.saturating_sub(self.messages.len());
        let end = (0..=room.min(message.len())).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
        let words = message.get(..end).unwrap_or_default().split_ascii_whitespace();
        // An address of a document about limits says nothing of this one.
        for word in words.filter(|word| !word.contains("://")) {
            self.messages.extend(word.chars().map(|c| c.to_ascii_lowercase()));
            self.messages.push(' ');
        }
        self.messages.push('\n');
    }

    /// Everything that a part of a body says.
    pub(super) fn visit(&mut self, value: &Value, clock: Clock<'_>, found: &mut Found) {
        self.visit_at("error", value, clock, found, 0);
    }

    fn visit_at(&mut self, key: &str, value: &Value, clock: Clock<'_>, found: &mut Found, depth: usize) {
        match value {
            _ if depth > DEEPEST => {}
            Value::String(text) => self.visit_text(key, text, clock),
            Value::Number(number) => self.visit_number(key, number, clock),
            Value::Array(members) => {
                for member in members {
                    self.visit_at(key, member, clock, found, depth + 1);
                }
            }
            Value::Object(fields) => {
                if key == "headers" {
                    read_head(value, clock, found);
                }
                read_limit(value, clock, found);
                for (key, value) in fields {
                    self.visit_at(&letters(key), value, clock, found, depth + 1);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn visit_text(&mut self, key: &str, text: &str, clock: Clock<'_>) {
        self.is_daily |= key == "quotaid" && text.contains("PerDay");
        if CODES.contains(&key) {
            self.meanings.extend(meaning(text));
        }
        match wait(key, text, clock) {
            Some(wait) => self.wait = self.wait.max(Some(wait)),
            None if text.contains(' ') => self.hear(text),
            None => {}
        }
    }

    fn visit_number(&mut self, key: &str, value: &serde_json::Number, clock: Clock<'_>) {
        if CODES.contains(&key) {
            self.meanings.extend(value.as_i64().and_then(meaning_of_number));
        }
        self.wait = self.wait.max(wait(key, &value.to_string(), clock));
    }

    /// What the messages say, once all are heard.
    pub(super) fn conclude(&mut self, clock: Clock<'_>) {
        if prose::speaks_of_traffic(&self.messages) {
            self.meanings.push(Meaning::Throttled);
        }
        self.meanings.extend(terminal::meaning(&self.messages));
        self.wait = self.wait.or_else(|| prose::wait(&self.messages, clock)).filter(|_| !self.is_daily);
    }
}

fn wait(key: &str, text: &str, clock: Clock<'_>) -> Option<Duration> {
    if WAITS_IN_MILLIS.contains(&key) {
        return millis(number(text)?, clock);
    }
    if WAITS.contains(&key) { when(bare(text), clock) } else { None }
}

/// A name without case and hyphens.
fn letters(key: &str) -> String {
    let letters = key.chars().filter(char::is_ascii_alphanumeric);
    match letters.map(|c| c.to_ascii_lowercase()).collect::<String>() {
        // `__type` is a code.
        letters if letters.len() > 40 => String::new(),
        letters => letters,
    }
}

/// A body may repeat the head that another has sent.
fn read_head(value: &Value, clock: Clock<'_>, found: &mut Found) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let lines = value.as_object().into_iter().flatten().map(|(key, value)| (key.to_ascii_lowercase(), text(value)));
    let lines: Vec<_> = lines.take(64).collect();
    let mut fields = Fields::default();
    for (key, value) in &lines {
        if let Some(name) = Name::read(key) {
            fields.add(&name, value, 0, clock, false);
        }
    }
    fields.into_limits(true, found);
}

fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64().filter(|number| (0.0..1e18).contains(number)),
        Value::String(text) => number(bare(text)),
        _ => None,
    }
}

/// A limit in an object of its own, in one of the ways in which it is seen.
fn read_limit(value: &Value, clock: Clock<'_>, found: &mut Found) {
    let one_of = |keys: &[&str]| keys.iter().find_map(|key| number_of(value.get(key)?));
    let left = one_of(&["remaining", "currentlyAvailable", "quota_remaining"]);
    let limit = one_of(&["limit", "total", "maximumAvailable", "quota_max"]);
    if let (Some(left), Some(limit)) = (left, limit) {
        let name = if value.get("currentlyAvailable").is_some() { "points" } else { "requests" };
        let reset_after = reset(value, clock);
        let stated = StatedLimit { limit: Some(limit), remaining: Some(left), reset_after, ..StatedLimit::named(name) };
        return found.merge(stated, false);
    }
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    for (name, limit) in [("quotaId", "quotaValue"), ("quota_limit", "quota_limit_value")] {
        if let (Some(name), Some(limit)) = (text(name), value.get(limit).and_then(number_of)) {
            let window = name.split("Per").nth(1).and_then(|rest| period(&first_word(rest)));
            let refused = StatedLimit::refused(name.to_owned());
            found.merge(StatedLimit { limit: Some(limit), window, ..refused }, true);
        }
    }
    if let Some(limit) = one_of(&["allowed_rps"]) {
        let window = Some(Duration::from_secs(1));
        found.push(StatedLimit { limit: Some(limit), window, ..StatedLimit::refused("requests") });
    }
}

/// `PerDayPerProject`: the word up to the next capital.
fn first_word(text: &str) -> String {
    let end = text.char_indices().skip(1).find(|(_, c)| !c.is_ascii_lowercase()).map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or_default().to_ascii_lowercase()
}

fn reset(value: &Value, clock: Clock<'_>) -> Option<Duration> {
    let in_millis = value.get("resetMs").and_then(number_of).and_then(|at| millis(at, clock));
    let keys = ["reset", "resetAt", "reset_at", "resetTime", "reset_time"];
    let read = |value: &Value| match value {
        Value::String(text) => when(bare(text), clock),
        other => number_of(other).and_then(|number| by_size(number, clock)),
    };
    in_millis.or_else(|| keys.iter().find_map(|key| read(value.get(key)?)))
}

/// How long until a cost is there again, at the rate at which it comes back.
pub(super) fn until_affordable(cost: &Value) -> Option<Duration> {
    let of_status = |key: &str| number_of(cost.get("throttleStatus")?.get(key)?);
    let missing = number_of(cost.get("requestedQueryCost")?)? - of_status("currentlyAvailable")?;
    let rate = of_status("restoreRate").filter(|rate| *rate > 0.0)?;
    if missing > 0.0 { span(missing / rate).filter(|wait| wait.as_secs() < 100_000_000) } else { None }
}
