//! What the name of a field says: of which limit it speaks, and what of it.

use std::time::Duration;

use smallvec::SmallVec;

/// The words that make the name of a limit.
pub(super) type Words<'a> = SmallVec<[&'a str; 4]>;

/// What a field says of a limit. Where a name has several such words, the last of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// All of it, in a form of its own.
    Whole,
    Limit,
    Window,
    Used,
    Remaining,
    Reset,
    Wait,
    Policy,
}

/// A name, taken apart.
#[derive(Clone, Debug)]
pub(super) struct Name<'a> {
    /// Up to the word that says that it is about a limit. Fields of one family are about the same limits.
    pub(super) family: &'a str,
    pub(super) words: Words<'a>,
    pub(super) role: Role,
    pub(super) window: Option<Duration>,
    /// The value is in milliseconds.
    pub(super) is_millis: bool,
    /// The value is a span, however large.
    pub(super) is_span: bool,
}

/// Words before `ratelimit` that tell limits apart. Others name the server.
const OF_A_LIMIT: [&str; 13] = [
    "app",
    "user",
    "client",
    "method",
    "organization",
    "org",
    "service",
    "ip",
    "account",
    "project",
    "team",
    "read",
    "write",
];

/// A word that says that a field has a number, but not of a limit.
const ABOUT_OTHER_THINGS: [&str; 7] = ["nearlimit", "fillrate", "cost", "requested", "replenish", "rate", "delay"];

impl<'a> Name<'a> {
    pub(super) fn read(name: &'a str) -> Option<Self> {
        let mut words: SmallVec<[&str; 8]> = name.split('-').collect();
        if words.first() == Some(&"x") {
            words.remove(0);
        }
        let (before, fused, after) = marked(&words)?;
        let is_plain = is_plain(&words, before);
        let end = after.first().map_or(name.len(), |first| offset(name, first).saturating_sub(1));
        let mut read = Self {
            family: name.get(..end)?,
            words: Words::new(),
            role: Role::Whole,
            window: None,
            is_millis: false,
            is_span: false,
        };
        before
            .iter()
            .filter(|word| OF_A_LIMIT.contains(word) || period(word).is_some())
            .for_each(|word| read.add(word));
        read.add_fused(fused);
        if words.get(before.len()) == Some(&"quota") && !read.words.is_empty() {
            read.words.push("quota");
        }
        for word in after {
            if ABOUT_OTHER_THINGS.contains(word) {
                return None;
            }
            read.add(word);
        }
        if !is_plain && read.window.is_some() {
            read.role = read.role.max(Role::Limit);
            // Beside `x-limit-per-second` stands `x-remaining-this-second`.
            read.family = read.family.strip_suffix("-limit").filter(|rest| *rest == "x").unwrap_or(read.family);
        }
        (is_plain || read.role > Role::Whole).then_some(read)
    }

    fn add(&mut self, word: &'a str) {
        let role = match word {
            "limit" | "limits" | "lim" | "max" | "maximum" | "quota" | "total" | "capacity" | "allowed" => Role::Limit,
            "interval" | "window" | "period" => Role::Window,
            "used" | "usage" | "count" | "consumed" | "observed" => Role::Used,
            "remaining" | "remain" | "left" | "available" | "rem" => Role::Remaining,
            "reset" | "resets" | "next" | "resettime" | "resetat" => Role::Reset,
            "retry" => Role::Wait,
            "policy" => Role::Policy,
            _ => return self.add_plain(word),
        };
        self.role = self.role.max(role);
    }

    fn add_plain(&mut self, word: &'a str) {
        match word {
            "after" => self.is_span = true,
            "ms" | "msec" | "millis" | "milliseconds" => self.is_millis = true,
            "seconds" | "secs" | "s" | "time" | "timestamp" | "ts" | "at" | "in" | "date" | "epoch" | "utc"
            | "unix" | "per" | "this" | "" => {}
            "req" | "request" | "reqs" => self.words.push("requests"),
            _ => self.add_period(word),
        }
    }

    /// `minute` is no part of a limit's name; `daily` and `24hour` are.
    fn add_period(&mut self, word: &'a str) {
        let period = period(word);
        self.window = period.or(self.window);
        if period.is_none() || word.ends_with("ly") || word.starts_with(|first: char| first.is_ascii_digit()) {
            self.words.push(word);
        }
    }

    /// What is written together with `limit`: `readratelimit`, `appminlimit`, `tokenlimit`.
    fn add_fused(&mut self, fused: &'a str) {
        let rest = fused.strip_prefix("app").filter(|rest| period(rest).is_some());
        if rest.is_some() {
            self.words.push("app");
        }
        let word = rest.unwrap_or(fused);
        match word {
            "min" => self.words.push("minute"),
            "token" => self.words.push("tokens"),
            "" => {}
            word => self.words.push(word),
        }
        self.window = period(word).or(self.window);
    }
}

/// The words before the one that says that it is about a limit, what is written together with it, and the words after
/// it.
fn marked<'w, 'a>(words: &'w [&'a str]) -> Option<(&'w [&'a str], &'a str, &'w [&'a str])> {
    for (at, word) in words.iter().enumerate() {
        let fused = word.strip_suffix('s').unwrap_or(word).strip_suffix("ratelimit");
        let is_rate_limit = *word == "rate" && words.get(at + 1).is_some_and(|next| next.starts_with("limit"));
        if fused.is_some() || is_rate_limit || *word == "quota" {
            let after = at + 1 + usize::from(is_rate_limit);
            return Some((&words[..at], fused.unwrap_or_default(), words.get(after..).unwrap_or_default()));
        }
    }
    for (at, word) in words.iter().enumerate() {
        if let Some(fused) = word.strip_suffix("limit") {
            return Some((&words[..at], fused, &words[at + 1..]));
        }
    }
    let says_no_more = |word: &&str| {
        matches!(*word, "remaining" | "available" | "used" | "consumed" | "requests" | "tokens" | "this")
            || period(word).is_some()
    };
    (words.len() > 1 && words.iter().all(says_no_more)).then_some((&[], "", words))
}

fn is_plain(words: &[&str], before: &[&str]) -> bool {
    words.get(before.len()).is_some_and(|word| word.contains("ratelimit") || *word == "rate")
}

/// Where a part of a text begins in it.
fn offset(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize)
}

/// `x-ratelimit` and `x-rate-limit` are one.
pub(super) fn is_same_family(one: &str, other: &str) -> bool {
    let letters = |family: &str| family.bytes().filter(|byte| *byte != b'-').count();
    one == other
        || (letters(one) == letters(other)
            && one.bytes().filter(|byte| *byte != b'-').eq(other.bytes().filter(|byte| *byte != b'-')))
}

/// How long `minute`, `daily`, `24hour` and `7d` are.
pub(super) fn period(word: &str) -> Option<Duration> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = word.split_at(digits);
    let seconds = match unit {
        "s" | "m" | "h" | "d" if digits == 0 => return None,
        "s" | "sec" | "second" | "secondly" => 1,
        "m" | "min" | "minute" | "minutely" => 60,
        "h" | "hr" | "hour" | "hourly" => 3_600,
        "d" | "day" | "daily" | "today" => 86_400,
        "week" | "weekly" => 604_800,
        "month" | "monthly" => 2_592_000,
        "year" | "yearly" => 31_536_000,
        _ => return None,
    };
    let number = if number.is_empty() { 1 } else { number.parse::<u32>().ok()? };
    (number > 0).then(|| Duration::from_secs(u64::from(number).saturating_mul(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> Option<(String, String, Role, u64)> {
        let read = Name::read(name)?;
        Some((read.family.into(), read.words.join("-"), read.role, read.window.map_or(0, |window| window.as_secs())))
    }

    #[test]
    fn names_are_taken_apart() {
        for (name, family, words, role, window) in [
            ("x-ratelimit-remaining", "x-ratelimit", "", Role::Remaining, 0),
            ("ratelimit-limit", "ratelimit", "", Role::Limit, 0),
            ("x-rate-limit", "x-rate-limit", "", Role::Whole, 0),
            ("x-ratelimit-limit-tokens_usage_based", "x-ratelimit", "tokens_usage_based", Role::Limit, 0),
            ("x-ratelimit-limit-tokens-minute", "x-ratelimit", "tokens", Role::Limit, 60),
            ("x-ratelimit-remaining-req-minute", "x-ratelimit", "requests", Role::Remaining, 60),
            ("x-ratelimit-requests-reset", "x-ratelimit", "requests", Role::Reset, 0),
            ("anthropic-ratelimit-input-tokens-limit", "anthropic-ratelimit", "input-tokens", Role::Limit, 0),
            ("x-hubspot-ratelimit-daily", "x-hubspot-ratelimit", "daily", Role::Whole, 86_400),
            ("x-app-limit-24hour-limit", "x-app-limit", "app-24hour", Role::Limit, 86_400),
            ("x-readratelimit-usage", "x-readratelimit", "read", Role::Used, 0),
            ("x-ms-user-quota-resets-after", "x-ms-user-quota", "user-quota", Role::Reset, 0),
            ("x-appminlimit-remaining", "x-appminlimit", "app-minute", Role::Remaining, 60),
            ("x-limit-per-second", "x", "", Role::Limit, 1),
            ("x-remaining-today", "x", "", Role::Remaining, 86_400),
            ("3scale-limit-reset", "3scale-limit", "", Role::Reset, 0),
            ("x-rate-limit-time-window-ms", "x-rate-limit", "", Role::Window, 0),
            ("x-ratelimit-retry-after", "x-ratelimit", "", Role::Wait, 0),
        ] {
            assert_eq!(read(name), Some((family.into(), words.into(), role, window)), "{name}");
        }
        for name in ["retry-after", "x_ratelimit_remaining", "x-ratelimit-tokens-query-cost", "x-limit", "server"] {
            assert!(read(name).is_none(), "{name}: {:?}", read(name));
        }
    }
}
