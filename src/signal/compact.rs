//! What vendors say in forms of their own: a vendor is a row.

use std::time::Duration;

use super::limit::{Found, Scope, StatedLimit};
use super::list::{members, split};
use super::moment::{number, span};
use super::name::period;

/// How a value is read, and whether the response refuses.
type Form = fn(name: &str, value: &str, is_refused: bool, found: &mut Found);

/// The name of the field, or how it begins if that ends with a hyphen.
const FORMS: [(&str, Form); 14] = [
    ("x-shopify-shop-api-call-limit", used_of),
    ("sforce-limit-info", used_of),
    ("x-app-usage", percent),
    ("x-page-usage", percent),
    ("x-ad-account-usage", percent),
    ("x-business-use-case-usage", percent),
    ("x-sentry-rate-limits", categories),
    ("x-ms-ratelimit-remaining-resource", left_by_name),
    ("x-mbx-used-weight-", used_in_window),
    ("x-mbx-order-count-", used_in_window),
    ("twilio-concurrent-requests", concurrency),
    ("stripe-rate-limited-reason", reason),
    ("x-amzn-ratelimit-limit", a_second),
    ("docker-ratelimit-source", source),
];

/// Names that the words in them do not explain, and what they would be called else.
const ALIASES: [(&str, &str); 14] = [
    ("x-bapi-limit", "x-bapi-ratelimit-limit"),
    ("x-bapi-limit-status", "x-bapi-ratelimit-remaining"),
    ("x-bapi-limit-reset-timestamp", "x-bapi-ratelimit-reset"),
    ("gw-ratelimit-reset", "gw-ratelimit-reset-ms"),
    ("ratelimit-dailylimit", "ratelimit-limit"),
    ("x-ratelimit-userlimit", "x-ratelimit-user-limit"),
    ("x-ratelimit-userremaining", "x-ratelimit-user-remaining"),
    ("x-ratelimit-userreset", "x-ratelimit-user-reset"),
    ("x-ratelimit-clientlimit", "x-ratelimit-client-limit"),
    ("x-ratelimit-clientremaining", "x-ratelimit-client-remaining"),
    ("x-ratelimit-delay", "x-ratelimit-retry-after"),
    ("x-ratelimit-burst-capacity", "x-ratelimit-limit"),
    ("x-trial-endpoint-call-limit", "x-trial-ratelimit-limit"),
    ("x-trial-endpoint-call-remaining", "x-trial-ratelimit-remaining"),
];

pub(super) fn alias(name: &str) -> &str {
    ALIASES.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, ours)| ours)
}

/// Reads a field in a form of its own; whether it is one.
pub(super) fn read(name: &str, value: &str, is_refused: bool, found: &mut Found) -> bool {
    let is_it = |row: &str| if row.ends_with('-') { name.starts_with(row) } else { name == row };
    let form = FORMS.iter().find(|(row, _)| is_it(row)).map(|(_, form)| *form);
    let form = form.or_else(|| form_by_value(name, value));
    form.is_some_and(|form| {
        form(name, value, is_refused, found);
        true
    })
}

fn form_by_value(name: &str, value: &str) -> Option<Form> {
    let is_pair = |pair: &str| pair.split_once(':').is_some_and(|(a, b)| number(a).is_some() && number(b).is_some());
    let is_rate_limit = || name.contains("rate-limit") || name.contains("ratelimit");
    if value.contains(':') && is_rate_limit() && value.split(',').all(|pair| is_pair(pair.trim())) {
        return Some(pairs);
    }
    if value.contains(";q=") && name.contains("quota-") {
        return Some(buckets);
    }
    (value.contains("-lim:") && is_rate_limit()).then_some(keys)
}

/// `32/40`, `api-usage=18/5000`: used, of all.
fn used_of(_: &str, value: &str, _: bool, found: &mut Found) {
    for part in value.split([',', ';']).map(str::trim) {
        let (name, numbers) = part.split_once('=').unwrap_or(("requests", part));
        let Some((used, limit)) = numbers.split('(').next().and_then(|numbers| numbers.split_once('/')) else {
            continue;
        };
        if let (Some(used), Some(limit)) = (number(used.trim()), number(limit.trim())) {
            let remaining = Some((limit - used).max(0.0));
            found.push(StatedLimit { limit: Some(limit), remaining, ..StatedLimit::named(name.trim().to_owned()) });
        }
    }
    found.scope = Some(Scope::Account);
}

/// `20:1,100:120`: so many in so many seconds; the field that ends in `-count` has what is used, in any order.
fn pairs(name: &str, value: &str, _: bool, found: &mut Found) {
    let (limits, is_used) = name.strip_suffix("-count").map_or((name, false), |limits| (limits, true));
    let limits = limits.trim_start_matches("x-").trim_end_matches("-rate-limit");
    for (count, window) in value.split(',').filter_map(|pair| pair.trim().split_once(':')) {
        let (Some(count), window) = (number(count), number(window).and_then(span)) else { continue };
        if window.is_none_or(|window| window.is_zero()) {
            continue;
        }
        let known = found.limits_mut().find(|known| known.name == limits && known.window == window);
        match known {
            Some(known) if is_used => known.remaining = known.limit.map(|limit| (limit - count).max(0.0)),
            Some(known) => {
                // What is used came before.
                let used = known.remaining.take();
                known.limit = Some(count);
                known.remaining = used.map(|used| (count - used).max(0.0));
            }
            None => {
                let (limit, remaining) = if is_used { (None, Some(count)) } else { (Some(count), None) };
                found.push(StatedLimit { limit, remaining, window, ..StatedLimit::named(limits.to_owned()) });
            }
        }
    }
}

/// `user-hour-lim:3500;user-hour-rem:500;`
fn keys(_: &str, value: &str, _: bool, found: &mut Found) {
    for (key, value) in value.split(';').filter_map(|part| part.trim().split_once(':')) {
        let Some((key, word)) = key.rsplit_once('-') else { continue };
        let (Some(number), (name, span)) = (number(value), key.rsplit_once('-').unwrap_or((key, ""))) else { continue };
        let window = period(span);
        let name = if window.is_some() { name } else { key };
        if !found.limits().any(|known| known.name == name && known.window == window) {
            found.push(StatedLimit { window, ..StatedLimit::named(name.to_owned()) });
        }
        let known = found.limits_mut().find(|known| known.name == name && known.window == window);
        match (known, word) {
            (Some(known), "lim") => known.limit = Some(number),
            (Some(known), "rem") => known.remaining = Some(number),
            _ => {}
        }
        found.scope = (name == "user").then_some(Scope::User).or(found.scope.take());
    }
}

/// `60:transaction, 2700:default;error:organization`: so many seconds for each of these; without one for all.
fn categories(_: &str, value: &str, _: bool, found: &mut Found) {
    for group in value.split(',') {
        let mut parts = group.trim().split(':');
        let (seconds, categories) = (parts.next().and_then(number).and_then(span), parts.next().unwrap_or_default());
        let Some(reset) = seconds else { continue };
        for category in categories.split(';') {
            let name = if category.is_empty() { "all" } else { category };
            found.push(StatedLimit { reset_after: Some(reset), ..StatedLimit::refused(name.to_owned()) });
        }
        found.scope =
            if categories.is_empty() { Some(Scope::Account) } else { Some(Scope::Bucket(categories.to_owned())) };
    }
}

/// `Microsoft.Compute/HighCostGet3Min;159`: the window is at the end of the name.
fn left_by_name(_: &str, value: &str, _: bool, found: &mut Found) {
    for member in split(value, b',') {
        let Some((name, left)) = member.rsplit_once(';') else { continue };
        let Some(left) = number(left.trim()) else { continue };
        let before_unit = name.trim_end_matches(|last: char| last.is_ascii_alphabetic());
        let digits = before_unit.trim_end_matches(|last: char| last.is_ascii_digit()).len();
        let window = name.get(digits..).and_then(|end| period(&end.to_ascii_lowercase()));
        found.push(StatedLimit { remaining: Some(left), window, ..StatedLimit::named(name.to_owned()) });
        if left < 1.0 || found.scope.is_none() {
            found.scope = Some(Scope::Bucket(name.to_owned()));
        }
    }
}

/// `X-MBX-USED-WEIGHT-1M: 70`: used; the limit is not said, but that it is passed if the response refuses.
fn used_in_window(name: &str, value: &str, is_refused: bool, found: &mut Found) {
    let Some(window) = name.rsplit('-').next().and_then(period) else { return };
    let title = if name.contains("weight") { "weight" } else { "orders" };
    if number(value).is_some() {
        let is_spent = is_refused && title == "weight";
        let limit = StatedLimit { window: Some(window), ..StatedLimit::named(title) };
        found.push(StatedLimit { remaining: is_spent.then_some(0.0), ..limit });
        found.scope = Some(Scope::Host);
    }
}

/// `b=per_hour;q=10;r=9;t=774`, or without the `b=`.
fn buckets(name: &str, value: &str, _: bool, found: &mut Found) {
    let whose = name.split("quota-").nth(1).and_then(|rest| rest.strip_suffix("-limit")).unwrap_or_default();
    for member in members(value) {
        let bucket = member.head.strip_prefix("b=").unwrap_or(member.head);
        let count = |key| member.parameter(key).and_then(number);
        let (limit, remaining, reset_after) = (count("q"), count("r"), count("t").and_then(span));
        if limit.is_some() || remaining.is_some() {
            let name = format!("{whose}-{bucket}");
            let window = bucket.strip_prefix("per_").and_then(period);
            found.push(StatedLimit { limit, remaining, reset_after, window, ..StatedLimit::named(name) });
            found.scope = Some(Scope::Account);
        }
    }
}

/// How many are under way; how many may be is not said.
fn concurrency(_: &str, _: &str, is_refused: bool, found: &mut Found) {
    if is_refused {
        found.push(StatedLimit::refused("concurrency"));
        found.scope = Some(Scope::Account);
    }
}

fn reason(_: &str, value: &str, is_refused: bool, found: &mut Found) {
    if is_refused && value.contains("concurrency") {
        found.push(StatedLimit::refused("concurrency"));
    }
    found.scope = Some(if value.starts_with("global") { Scope::Account } else { Scope::Route });
}

/// A rate in requests a second, which may be well below one.
fn a_second(_: &str, value: &str, _: bool, found: &mut Found) {
    if let Some(rate) = number(value) {
        let window = Some(Duration::from_secs(1));
        found.push(StatedLimit { limit: Some(rate), window, ..StatedLimit::named("requests") });
        found.scope = Some(Scope::Route);
    }
}

fn source(_: &str, value: &str, _: bool, found: &mut Found) {
    found.scope = value.contains('.').then_some(Scope::Host).or(found.scope.take());
}

/// JSON with shares of a hundred that are SPENT, and how many MINUTES it takes until some is back.
fn percent(name: &str, value: &str, _: bool, found: &mut Found) {
    let Ok(json) = serde_json::from_str::<serde_json::Value>(value) else { return };
    let of_ids = json.as_object().into_iter().flat_map(|ids| ids.values()).filter_map(|list| list.as_array()).flatten();
    for usage in of_ids.chain(std::iter::once(&json)) {
        let count = |key: &str| usage.get(key).and_then(serde_json::Value::as_f64);
        let shares = ["call_count", "total_cputime", "total_time", "acc_id_util_pct"].map(count);
        let Some(spent) = shares.into_iter().flatten().reduce(f64::max) else { continue };
        let kind = usage.get("type").and_then(serde_json::Value::as_str);
        let kind = kind.unwrap_or_else(|| name.trim_start_matches("x-").trim_end_matches("-usage"));
        let (limit, remaining) = (Some(100.0), Some((100.0 - spent).max(0.0)));
        let minutes = count("estimated_time_to_regain_access").and_then(|minutes| span(minutes * 60.0));
        let seconds = count("reset_time_duration").and_then(span);
        let reset_after = minutes.max(seconds).filter(|reset| !reset.is_zero());
        found.push(StatedLimit { limit, remaining, reset_after, ..StatedLimit::named(kind.to_owned()) });
        found.wait_at_least(reset_after);
        found.scope = Some(Scope::Account);
    }
}
