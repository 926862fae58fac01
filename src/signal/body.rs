//! What the body of a response says of limits: of a refusal, or of one inside a success.

use http::StatusCode;
use serde_json::Value;

use super::codes::{Meaning, meaning};
use super::head::Head;
use super::limit::{Found, Scope, StatedLimit};
use super::said::{Said, until_affordable};
use super::{aws, prose, terminal};

/// A refusal inside a success has one of these in it. Without any the body is not read.
const MARKS: [&[u8]; 12] = [
    b"frequency",
    b"lockout",
    b"limit",
    b"throttl",
    b"429",
    b"backoff",
    b"maxlag",
    b"exceeded",
    b"too many",
    b"toomany",
    b"exhausted",
    b"<fault>",
];

/// At most so many bytes are looked at, and so many members of a batch.
const LONGEST: usize = 65_536;
const MOST_MEMBERS: usize = 100;

/// A text of a success that is longer is about something else.
const SHORT: usize = 100;

/// Reads a body, or as much of it as there is.
pub(super) fn read(status: StatusCode, body: &[u8], head: &Head, found: &mut Found) -> Said {
    let body = body.get(..LONGEST).unwrap_or(body);
    let mut said = Said::default();
    let is_refused = status.as_u16() >= 400;
    if body.is_empty() || status.is_redirection() || !(is_refused || has_marks(body)) {
        return said;
    }
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start_matches('\u{feff}').trim();
    match serde_json::from_str::<Value>(text) {
        Ok(json) if is_refused => said.visit(&json, head.clock, found),
        Ok(json) => success(&json, head, found, &mut said),
        Err(_) if is_refused => {
            said.meanings.extend(aws::codes(text).filter_map(meaning));
            said.hear(text);
        }
        Err(_) if text.starts_with('<') && text.contains("<fault>") => said.hear(text),
        Err(_) if text.starts_with('<') => said.meanings.extend(aws::codes(text).filter_map(meaning)),
        // One line that says so, and nothing else.
        Err(_) if text.len() < SHORT && !text.contains('\n') && !text.starts_with("data:") => said.hear(text),
        Err(_) => events(text, head, found, &mut said),
    }
    said.conclude(head.clock);
    if found.scope.is_none() && !said.meanings.is_empty() {
        found.scope = prose::scope(&said.messages);
    }
    if is_refused {
        limits_in_words(status, &said, text, found);
    }
    said
}

/// Only where errors stand: a success may speak of limits for many reasons.
fn success(json: &Value, head: &Head, found: &mut Found, said: &mut Said) {
    let members = match json {
        Value::Array(members) => members.as_slice(),
        other => std::slice::from_ref(other),
    };
    for member in members.iter().take(MOST_MEMBERS).filter(|member| member.is_object()) {
        errors(member, head, found, said);
        let wait = member.get("backoff").and_then(Value::as_f64).and_then(super::moment::span);
        if wait.is_some_and(|wait| !wait.is_zero()) {
            said.wait = said.wait.max(wait);
            said.meanings.push(Meaning::Lagging);
        }
        if member.get("quota_remaining").is_some() {
            let mut quota = Said::default();
            quota.visit(&Value::Object(only(member, &["quota_remaining", "quota_max"])), head.clock, found);
        }
        costs(member, head, found, said);
    }
}

fn only(value: &Value, keys: &[&str]) -> serde_json::Map<String, Value> {
    keys.iter().filter_map(|key| Some(((*key).to_owned(), value.get(key)?.clone()))).collect()
}

fn errors(member: &Value, head: &Head, found: &mut Found, said: &mut Said) {
    let fails = |key: &str| member.get(key).is_some_and(says_no);
    let has_failed = ["status", "success", "ok", "code", "retCode"].into_iter().any(fails);
    let is_alone = member.as_object().is_some_and(|fields| fields.len() == 1);
    let places = ["error", "errors", "fault"].into_iter();
    let beside = ["status", "code", "message", "msg", "retMsg", "result", "Note", "Information", "error_message"];
    let beside = beside.into_iter().filter(|_| has_failed || is_alone);
    for place in places.chain(beside) {
        match member.get(place) {
            // The result of a failure is a text; that of a success, anything.
            Some(part) if place != "result" || part.is_string() => {
                said.visit(&serde_json::json!({ place: part }), head.clock, found);
            }
            _ => {}
        }
    }
    let answers = member.get("responses").and_then(Value::as_array).into_iter().flatten().take(MOST_MEMBERS);
    let refused =
        answers.filter(|answer| answer.get("status").and_then(Value::as_i64).is_some_and(|status| status >= 400));
    refused.for_each(|answer| said.visit(answer, head.clock, found));
}

/// `"0"`, `"ERROR"`, `OVER_QUERY_LIMIT`, `false`, 429.
fn says_no(value: &Value) -> bool {
    match value {
        Value::Bool(is_good) => !is_good,
        Value::Number(code) => code.as_i64().is_some_and(|code| code != 0 && code != 200),
        Value::String(word) => {
            !matches!(word.to_ascii_lowercase().as_str(), "1" | "ok" | "success" | "200" | "zero_results")
        }
        _ => false,
    }
}

/// What a query of GraphQL has cost, and what is left.
fn costs(member: &Value, head: &Head, found: &mut Found, said: &mut Said) {
    let cost = member.get("extensions").and_then(|extensions| extensions.get("cost"));
    let left = cost.and_then(|cost| cost.get("throttleStatus"));
    let left = left.or_else(|| member.get("data").and_then(|data| data.get("rateLimit")));
    if let Some(left) = left {
        Said::default().visit(left, head.clock, found);
    }
    if !said.meanings.is_empty() {
        said.wait = said.wait.max(cost.and_then(until_affordable));
    }
}

/// A stream of events that has one with an error.
fn events(text: &str, head: &Head, found: &mut Found, said: &mut Said) {
    for line in text.lines().filter_map(|line| line.strip_prefix("data:")).take(MOST_MEMBERS) {
        if let Ok(json) = serde_json::from_str::<Value>(line.trim()) {
            errors(&json, head, found, said);
        }
    }
}

/// What only the message says of limits.
fn limits_in_words(status: StatusCode, said: &Said, text: &str, found: &mut Found) {
    let limit = prose::limit(&said.messages);
    if let Some(limit) = limit.filter(|limit| !complete(found, limit))
        && found.is_empty()
    {
        let is_known = limit.remaining.is_some() || terminal::is_too_large(&said.messages);
        let is_refused = status == StatusCode::TOO_MANY_REQUESTS
            || said.means(Meaning::Throttled)
            || terminal::is_monthly(&said.messages);
        let remaining = if is_known || !is_refused { None } else { Some(0.0) };
        found.push(StatedLimit { remaining: limit.remaining.or(remaining), ..limit });
    }
    if found.is_empty() && said.messages.contains("concurren") {
        found.push(StatedLimit::refused("concurrency"));
    }
    if let Some(name) = prose::refused_name(&said.messages) {
        found.name(name);
    }
    violated(text, found);
}

/// A limit whose size only the message says.
fn complete(found: &mut Found, said: &StatedLimit) -> bool {
    let known = found.limits_mut().find(|known| known.limit.is_none() && known.window == said.window);
    let has_one = known.is_some();
    if let Some(known) = known {
        known.limit = said.limit;
    }
    has_one
}

/// The policies that a problem document names (RFC 9457).
fn violated(text: &str, found: &mut Found) {
    let json = serde_json::from_str::<Value>(text).ok();
    let violated = json.as_ref().and_then(|json| json.get("violated-policies")).and_then(Value::as_array);
    let names: Vec<&str> = violated.into_iter().flatten().filter_map(Value::as_str).collect();
    if text.contains("#quota-exceeded") && found.is_empty() {
        for name in &names {
            found.push(StatedLimit::refused((*name).to_owned()));
        }
    }
    if let [only] = names.as_slice() {
        found.scope = Some(Scope::Bucket((*only).to_owned()));
    }
}

fn has_marks(body: &[u8]) -> bool {
    let starts =
        |at: usize, mark: &[u8]| body.get(at..at + mark.len()).is_some_and(|here| here.eq_ignore_ascii_case(mark));
    body.iter().enumerate().any(|(at, byte)| {
        matches!(byte | 0x20, b'f' | b'l' | b't' | b'4' | b'b' | b'm' | b'e' | b'<')
            && MARKS.iter().any(|mark| starts(at, mark))
    })
}
