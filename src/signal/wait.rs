//! How long a response asks us to wait, by header.

use std::time::Duration;

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};

/// Headers that say it in milliseconds. They go before `Retry-After`, whose seconds are rounded.
const IN_MILLISECONDS: [&str; 3] = ["retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"];

/// From here on a number of seconds is taken as a moment since 1970: as seconds, milliseconds, or microseconds by its size.
/// As a wait it would be thirty years.
const EPOCH_SECONDS: f64 = 1e9;
const EPOCH_MILLIS: f64 = 1e11;
const EPOCH_MICROS: f64 = 1e14;
/// And from here on it is none of these.
const NO_EPOCH: f64 = 1e17;

/// The wait that the head states. A malformed value is as if absent, and so is one that lies in the past; of several the longest
/// counts, for an earlier return would break one of them: but seconds that are only rounded up from milliseconds say no more than
/// these. `now` since 1970 is only asked if the response does not say what its own clock shows.
pub(super) fn stated(headers: &HeaderMap, now: Duration) -> Option<Duration> {
    let clock = headers.get(DATE).and_then(|date| http_date(text(date)?)).unwrap_or(now);
    let all = |name: &str, read: &dyn Fn(&str) -> Option<Duration>| {
        headers.get_all(name).iter().filter_map(|value| longest(text(value)?, read)).max()
    };
    let milliseconds = IN_MILLISECONDS.iter().filter_map(|name| all(name, &milliseconds)).max();
    let seconds = all(RETRY_AFTER.as_str(), &|one| {
        moment(one).map(|at| at.saturating_sub(clock)).or_else(|| seconds(one, clock))
    });
    match (milliseconds, seconds) {
        (Some(exact), Some(rounded)) if rounded <= exact.saturating_add(Duration::from_secs(1)) => Some(exact),
        (milliseconds, seconds) => milliseconds.max(seconds),
    }
}

/// What the head says about going again at all, whatever the status. Of several that differ, that it is no use.
pub(super) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    let words = headers.get_all("x-should-retry").iter().filter_map(|value| match text(value)? {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    });
    words.min()
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok().map(str::trim)
}

/// Of values that a proxy has joined, the longest. A date has a comma in it.
fn longest(value: &str, read: &dyn Fn(&str) -> Option<Duration>) -> Option<Duration> {
    let parts: Vec<_> = value.split(',').collect();
    let dates = parts.windows(2).filter_map(|pair| read(pair.join(",").trim()));
    parts.iter().filter_map(|part| read(part.trim())).chain(dates).max()
}

fn milliseconds(value: &str) -> Option<Duration> {
    number(value).map(|millis| span(millis / 1_000.0))
}

/// A wait in seconds, or a moment since 1970 in seconds or less.
fn seconds(value: &str, clock: Duration) -> Option<Duration> {
    let number = number(value)?;
    let at = match number {
        _ if !(EPOCH_SECONDS..NO_EPOCH).contains(&number) => return Some(span(number)),
        _ if number < EPOCH_MILLIS => number,
        _ if number < EPOCH_MICROS => number / 1e3,
        _ => number / 1e6,
    };
    Some(span(at).saturating_sub(clock))
}

/// Digits with a point among them at most (RFC 9110, 10.2.3, `delay-seconds`, and what is seen beside it): no sign, no
/// exponent, no word.
fn number(value: &str) -> Option<f64> {
    let is_number = value.starts_with(|first: char| first.is_ascii_digit())
        && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_number { value.parse().ok() } else { None }
}

/// Rounded up, in the server's favour; at most what a duration holds.
fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64((seconds * 1e6).ceil() / 1e6).unwrap_or(Duration::MAX)
}

/// A moment that is written out, since 1970.
fn moment(value: &str) -> Option<Duration> {
    http_date(value).or_else(|| rfc_3339(value))
}

/// In the three forms of RFC 9110, 5.6.7.
fn http_date(value: &str) -> Option<Duration> {
    httpdate::parse_http_date(value).ok()?.duration_since(std::time::UNIX_EPOCH).ok()
}

fn rfc_3339(value: &str) -> Option<Duration> {
    let at: jiff::Timestamp = value.parse().ok()?;
    at.duration_since(jiff::Timestamp::UNIX_EPOCH).try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    /// 2026-11-30 12:00:00 UTC.
    const NOW: u64 = 1_796_040_000;

    fn stated_by(values: &[(&'static str, &[u8])]) -> Option<f64> {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        stated(&headers, Duration::from_secs(NOW)).map(|wait| wait.as_secs_f64())
    }

    fn after(value: &str) -> Option<f64> {
        stated_by(&[("retry-after", value.as_bytes())])
    }

    #[test]
    fn seconds_are_read_whole_and_in_parts() {
        assert_eq!(after("120"), Some(120.0));
        assert_eq!(after(" 2 "), Some(2.0));
        assert_eq!(after("0"), Some(0.0));
        assert_eq!(after("1.5"), Some(1.5));
        assert_eq!(after("0.0000001"), Some(1e-6), "rounded up");
        assert_eq!(after("999999999"), Some(999_999_999.0));
        assert!(after("99999999999999999999999").unwrap() > 1e19 && after(&"9".repeat(400)).unwrap() > 1e19);
    }

    #[test]
    fn what_is_malformed_is_as_if_absent() {
        for value in ["", "-1", "+1", "soon", "1e3", "NaN", "inf", "1_000", "0x10", ".5", "1.2.3", "2 3", "1:30"] {
            assert_eq!(after(value), None, "{value:?}");
        }
        assert_eq!(stated_by(&[("retry-after", b"\xff2")]), None);
        assert_eq!(stated_by(&[]), None);
    }

    #[test]
    fn of_several_the_longest_counts() {
        let several = [&b"1"[..], b"30", b"oops", b"2"].map(|value| ("retry-after", value));
        assert_eq!(stated_by(&several), Some(30.0));
        assert_eq!(after("2, 3"), Some(3.0));
        assert_eq!(after("soon, 3"), Some(3.0));
        let (eight, nine) = ("Mon, 30 Nov 2026 12:00:08 GMT", "Mon, 30 Nov 2026 12:00:09 GMT");
        assert_eq!(after(&format!("1, {eight}")), Some(8.0));
        assert_eq!(after(&format!("{eight}, 1")), Some(8.0));
        assert_eq!(after(&format!("{eight}, {nine}")), Some(9.0));
        assert_eq!(stated_by(&[("retry-after", b"8"), ("retry-after-ms", b"0")]), Some(8.0));
        assert_eq!(stated_by(&[("retry-after-ms", b"1"), ("x-ms-retry-after-ms", b"8000")]), Some(8.0));
    }

    #[test]
    fn a_date_is_measured_by_the_clock_of_the_response() {
        for date in ["Mon, 30 Nov 2026 12:00:30 GMT", "Monday, 30-Nov-26 12:00:30 GMT", "Mon Nov 30 12:00:30 2026"] {
            assert_eq!(after(date), Some(30.0), "{date}");
            // The server's clock is ten minutes behind.
            let own = ("date", &b"Mon, 30 Nov 2026 11:50:00 GMT"[..]);
            assert_eq!(stated_by(&[("retry-after", date.as_bytes()), own]), Some(630.0), "{date}");
            let broken = ("date", &b"yesterday"[..]);
            assert_eq!(stated_by(&[("retry-after", date.as_bytes()), broken]), Some(30.0), "{date}");
        }
        assert_eq!(after("Mon, 30 Nov 2026 11:00:00 GMT"), Some(0.0), "past");
        assert_eq!(after("2026-11-30T12:00:30Z"), Some(30.0));
        assert_eq!(after("2026-11-30T13:00:30.5+01:00"), Some(30.5));
        assert_eq!(after("1960-01-01T00:00:00Z"), None);
    }

    #[test]
    fn a_moment_since_1970_is_told_by_its_size() {
        assert_eq!(after("1796040030"), Some(30.0));
        assert_eq!(after("1796040030.5"), Some(30.5));
        assert_eq!(after("1796040030500"), Some(30.5));
        assert_eq!(after("1796040030500000"), Some(30.5));
        assert_eq!(after("1000000000"), Some(0.0), "past");
        let own = ("date", &b"Mon, 30 Nov 2026 11:50:00 GMT"[..]);
        assert_eq!(stated_by(&[("retry-after", b"1796040030"), own]), Some(630.0));
    }

    #[test]
    fn milliseconds_go_before_seconds() {
        assert_eq!(stated_by(&[("retry-after", b"2"), ("retry-after-ms", b"1250")]), Some(1.25));
        assert_eq!(stated_by(&[("x-ms-retry-after-ms", b"1250.5"), ("retry-after", b"2")]), Some(1.2505));
        assert_eq!(stated_by(&[("x-amz-retry-after", b"300")]), Some(0.3));
        assert_eq!(stated_by(&[("retry-after", b"2"), ("retry-after-ms", b"soon")]), Some(2.0));
    }

    #[test]
    fn whether_to_go_again_is_a_word() {
        let said = |value| {
            should_retry(&HeaderMap::from_iter([(
                HeaderName::from_static("x-should-retry"),
                HeaderValue::from_static(value),
            )]))
        };
        assert_eq!((said("true"), said("false"), said("1"), said("")), (Some(true), Some(false), None, None));
        let name = HeaderName::from_static("x-should-retry");
        let both = ["true", "false"].map(|word| (name.clone(), HeaderValue::from_static(word)));
        let mut headers = HeaderMap::new();
        headers.extend(both.map(|(name, word)| (Some(name), word)));
        assert_eq!(should_retry(&headers), Some(false));
    }
}
