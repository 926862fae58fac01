//! What the messages of a refusal say in words: waits and limits. They are in lower case.

use std::time::Duration;

use super::limit::{Scope, StatedLimit};
use super::moment::{Clock, number, units, when};
use super::name::period;

/// What is said where there is too much traffic.
const OF_TRAFFIC: [&str; 24] = [
    "rate limit",
    "rate-limit",
    "ratelimit",
    "rate_limit",
    "rate exceeded",
    "request rate",
    "request limit",
    "too many requests",
    "too many calls",
    "too many api",
    "too many concurrent",
    "too many visits",
    "too much request weight",
    "there have been too many",
    "throttl",
    "slow down",
    "maximum requests",
    "requests per ",
    "calls per ",
    "call frequency",
    "quota exceeded",
    "over quota",
    "temporary lockout",
    // A firewall says so of too many requests as well.
    "forbidden by administrative rules",
];

/// What comes before a wait, and whether a number without a unit is one.
const BEFORE_A_WAIT: [(&str, bool); 13] = [
    ("again in ", false),
    ("retry after ", true),
    ("retry in ", true),
    ("available in ", false),
    ("resets in ", false),
    ("reset in ", false),
    ("resume in ", false),
    ("wait for ", false),
    ("wait ", false),
    ("again after ", false),
    ("request after ", false),
    ("until ", false),
    ("throttled: ", false),
];

/// Words that say that a wait is not exact.
const ROUGHLY: [&str; 6] = ["about ", "approximately ", "at least ", "another ", "up to ", "around "];

pub(super) fn speaks_of_traffic(message: &str) -> bool {
    OF_TRAFFIC.iter().any(|part| message.contains(part))
}

/// For what the limit holds, as far as a message says so.
pub(super) fn scope(message: &str) -> Option<Scope> {
    let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    if has(&["your ip", "this ip", "ip banned", "ip address", "error code: 1015"]) {
        return Some(Scope::Host);
    }
    if has(&["user-rate", "per user", "for user"]) {
        return Some(Scope::User);
    }
    has(&["organization", "your account", "your app ", "project id", "compute units"]).then_some(Scope::Account)
}

/// The longest of the waits that it names.
pub(super) fn wait(message: &str, clock: Clock<'_>) -> Option<Duration> {
    let waits = BEFORE_A_WAIT.iter().flat_map(|(before, bare)| {
        message
            .match_indices(before)
            .filter_map(move |(at, _)| leading(message.get(at + before.len()..)?, *bare, clock))
    });
    waits.max()
}

/// The wait with which a text begins.
fn leading(text: &str, may_be_bare: bool, clock: Clock<'_>) -> Option<Duration> {
    let text = ROUGHLY.iter().fold(text.trim_start(), |text, word| text.strip_prefix(word).unwrap_or(text));
    let text = text.trim_start_matches(['~', '≈', ' ', '\'', '"', '`']);
    let first = word(text);
    if let Some(number) = number(first) {
        let is_moment = number >= 1e9;
        return with_words(text).or_else(|| if may_be_bare || is_moment { when(first, clock) } else { None });
    }
    when(first, clock).or_else(|| {
        let end = text.find(" gmt").filter(|end| *end < 40)? + " gmt".len();
        when(text.get(..end)?, clock)
    })
}

/// `1 minute and 30 seconds`.
fn with_words(text: &str) -> Option<Duration> {
    let mut words = text.split_whitespace().filter(|word| *word != "and").map(trimmed);
    let mut sum = None;
    while let (Some(count), Some(unit)) = (words.next(), words.next()) {
        let Some(span) = number(count).and_then(|_| units(&format!("{count} {unit}"))) else { break };
        sum = Some(sum.unwrap_or(Duration::ZERO).saturating_add(span));
    }
    sum
}

fn word(text: &str) -> &str {
    trimmed(text.split_whitespace().next().unwrap_or_default())
}

fn trimmed(word: &str) -> &str {
    word.trim_end_matches(['.', ',', ';', '!', ')', ':', '"', '\'', '`', '<'])
}

/// The name in `limit of 6 exceeded for 'publish'`.
pub(super) fn refused_name(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("exceeded for '")?;
    rest.split('\'').next().filter(|name| (1..=80).contains(&name.len()))
}

pub(super) fn number_after(message: &str, before: &str) -> Option<f64> {
    let mut places = message.match_indices(before).map(|(at, _)| at + before.len());
    places.find_map(|at| count(message.get(at..)?.trim_start_matches([':', ' ']).split_whitespace().next()?))
}

/// With commas between thousands.
fn count(word: &str) -> Option<f64> {
    let word = trimmed(word);
    number(word).or_else(|| number(&word.replace(',', "")))
}

/// `6 requests per minute`, `1000 API calls / month`, `on tokens per min (TPM): Limit 6000, Used 5900`.
pub(super) fn limit(message: &str) -> Option<StatedLimit> {
    let words: Vec<&str> = message.split_whitespace().collect();
    let mut pers = words.iter().enumerate().filter(|(_, word)| matches!(**word, "per" | "/"));
    pers.find_map(|(at, _)| limit_at(message, &words, at)).or_else(|| words.iter().find_map(|word| in_one_word(word)))
}

fn limit_at(message: &str, words: &[&str], at: usize) -> Option<StatedLimit> {
    let next = words.get(at + 1..)?.iter().map(|word| trimmed(word)).find(|word| *word != "1")?;
    let window = period(next.strip_suffix('s').unwrap_or(next))?;
    let before = words.get(at.saturating_sub(4)..at)?;
    let place = before.iter().rposition(|word| count(word).is_some());
    let named = before.get(place.map_or(0, |place| place + 1)..)?.join("-");
    let window = Some(window);
    if let Some(limit) = place.and_then(|place| count(before.get(place)?)) {
        return Some(StatedLimit { limit: Some(limit), window, ..StatedLimit::named(title(&named)) });
    }
    let limit = number_after(message, "limit ")?;
    let remaining = number_after(message, "used ").map(|used| (limit - used).max(0.0));
    Some(StatedLimit { limit: Some(limit), remaining, window, ..StatedLimit::named(title(&named)) })
}

/// `50/second`.
fn in_one_word(word: &str) -> Option<StatedLimit> {
    let (limit, window) = word.split_once('/')?;
    let (limit, window) = (Some(count(limit)?), Some(period(trimmed(window))?));
    Some(StatedLimit { limit, window, ..StatedLimit::named("requests") })
}

/// What is counted, by the words before `per`.
fn title(words: &str) -> String {
    let known = ["input-tokens", "output-tokens", "tokens", "weight"];
    known.iter().find(|known| words.ends_with(**known)).map_or("requests", |known| known).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { date: None, now: Duration::from_secs(1_796_040_000) };

    #[test]
    fn waits_in_words() {
        for (message, seconds) in [
            ("please try again in 1.326s.", 1.326),
            ("please try again in 7m12s. visit", 432.0),
            ("too many requests: retry after 35", 35.0),
            ("rate limit resets in ~30s.", 30.0),
            ("more requests available in 76366 seconds", 76_366.0),
            ("expected available in 42 seconds.", 42.0),
            ("try again in 7 days", 604_800.0),
            ("try again in 1 minute and 30 seconds", 90.0),
            ("please retry after 2026-11-30t12:00:05.000z", 5.0),
            ("please try again after mon, 30 nov 2026 12:10:00 gmt and see", 600.0),
            ("ip banned until 1796040060000. please", 60.0),
            ("throttled: 1796040060", 60.0),
        ] {
            assert_eq!(wait(message, CLOCK).map(|wait| wait.as_secs_f64()), Some(seconds), "{message}");
        }
        for message in ["", "please wait a few minutes", "wait 5", "try again in a while", "until tomorrow"] {
            assert_eq!(wait(message, CLOCK), None, "{message}");
        }
    }

    #[test]
    fn limits_in_words() {
        let read = |message| {
            limit(message)
                .map(|limit| (limit.name.into_owned(), limit.limit, limit.remaining, limit.window.unwrap().as_secs()))
        };
        let requests = |limit, window| Some(("requests".to_owned(), Some(limit), None, window));
        assert_eq!(read("is reduced to 6 requests per minute with"), requests(6.0, 60));
        assert_eq!(read("limited to 1000 api calls / month. you"), requests(1_000.0, 2_592_000));
        assert_eq!(
            read("your organization of 100,000 input tokens per minute."),
            Some(("input-tokens".to_owned(), Some(100_000.0), None, 60))
        );
        assert_eq!(
            read("too large on tokens per min (tpm): limit 6000, used 5900, requested 123"),
            Some(("tokens".to_owned(), Some(6_000.0), Some(100.0), 60))
        );
        assert_eq!(
            read("current limit is 6000 request weight per 1 minute. please"),
            Some(("weight".to_owned(), Some(6_000.0), None, 60))
        );
        assert_eq!(read("exceeded the maximum requests per minute"), None);
    }
}
