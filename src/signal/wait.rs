//! How long the head of a response asks us to wait, in so many words.

use std::time::Duration;

use super::head::Head;
use super::list::bare;
use super::moment::{millis, number, when};
use super::name::{Name, Role};

/// In milliseconds, the first before the second. They go before `Retry-After`, whose seconds are rounded.
const IN_MILLISECONDS: [&str; 2] = ["retry-after-ms", "x-ms-retry-after-ms"];

/// Of vendors, in milliseconds.
const OF_VENDORS: [&str; 2] = ["x-amz-retry-after", "grpc-retry-pushback-ms"];

/// The wait that the head states. A malformed value is as if absent, and so is a moment that is far away; of several
/// the longest counts, for an earlier return would break one of them: but what is only rounded otherwise says no more
/// than the first. What vendors say in fields of their own counts if there is nothing else.
pub(super) fn stated(head: &Head) -> Option<Duration> {
    let in_millis = IN_MILLISECONDS.map(|name| longest_of(head, name, true));
    let seconds = longest_of(head, "retry-after", false);
    let all = in_millis.into_iter().chain([seconds]).flatten();
    let stated = all.reduce(|first, next| if is_rounded(next, first) { first } else { first.max(next) });
    stated.or_else(|| of_vendors(head))
}

fn is_rounded(next: Duration, first: Duration) -> bool {
    next <= first.saturating_add(Duration::from_secs(1))
}

fn of_vendors(head: &Head) -> Option<Duration> {
    let of_names = OF_VENDORS.iter().filter_map(|name| longest_of(head, name, true)).max();
    let of_fields = head.fields.iter().filter_map(|(name, value)| match *name {
        "x-retry-in" | "x-retry-after" => longest(value, &|one| when(one, head.clock)),
        name => {
            let name = Name::read(name).filter(|name| name.role == Role::Wait)?;
            longest(value, &|one| if name.is_millis { in_millis(one, head) } else { when(one, head.clock) })
        }
    });
    of_names.or_else(|| of_fields.max())
}

/// What the head says about going again at all, whatever the status. Of several that differ, that it is no use.
pub(super) fn should_retry(head: &Head) -> Option<bool> {
    let words = head.fields.iter().filter_map(|(name, value)| match (*name, *value) {
        ("x-should-retry" | "stripe-should-retry", "true") => Some(true),
        ("x-should-retry" | "stripe-should-retry", "false") => Some(false),
        ("grpc-retry-pushback-ms", value) if value.starts_with('-') => Some(false),
        _ => None,
    });
    words.min()
}

fn longest_of(head: &Head, name: &str, is_millis: bool) -> Option<Duration> {
    let read = |one: &str| if is_millis { in_millis(one, head) } else { when(one, head.clock) };
    head.all(name).filter_map(|value| longest(value, &read)).max()
}

/// Of values that a proxy has joined, the longest. A date has a comma in it.
fn longest(value: &str, read: &dyn Fn(&str) -> Option<Duration>) -> Option<Duration> {
    let value = bare(value);
    if !value.contains(',') {
        return read(value);
    }
    let (mut longest, mut before) = (None, None);
    for part in value.split(',') {
        let dated =
            before.and_then(|before| value.get(before..)).and_then(|rest| read(rest.get(..joined(rest))?.trim()));
        longest = longest.max(read(part.trim())).max(dated);
        before = Some((part.as_ptr() as usize).saturating_sub(value.as_ptr() as usize));
    }
    longest
}

/// Up to the second comma.
fn joined(rest: &str) -> usize {
    rest.match_indices(',').nth(1).map_or(rest.len(), |(at, _)| at)
}

fn in_millis(one: &str, head: &Head) -> Option<Duration> {
    millis(number(one)?, head.clock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderName, HeaderValue};

    /// 2026-11-30 12:00:00 UTC.
    const NOW: u64 = 1_796_040_000;

    fn stated_by(values: &[(&'static str, &[u8])]) -> Option<f64> {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        stated(&Head::read(&headers, Duration::from_secs(NOW))).map(|wait| wait.as_secs_f64())
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
        assert_eq!(after("99999999"), Some(99_999_999.0));
        assert_eq!(after("1m30s"), Some(90.0));
        assert_eq!((after("30s"), after("30 seconds"), after("2 minutes")), (Some(30.0), Some(30.0), Some(120.0)));
    }

    #[test]
    fn what_is_malformed_is_as_if_absent() {
        for value in
            ["", "-1", "+1", "soon", "1e3", "NaN", "inf", "1_000", "0x10", ".5", "1.2.3", "2 3", "1:30", "999999999"]
        {
            assert_eq!(after(value), None, "{value:?}");
        }
        assert_eq!((after("99999999999999999999999"), after(&"9".repeat(400))), (None, None));
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
        assert_eq!(after("2026-11-30T12:00:30"), None, "in no zone");
    }

    #[test]
    fn a_moment_since_1970_is_told_by_its_size() {
        assert_eq!(after("1796040030"), Some(30.0));
        assert_eq!(after("1796040030.5"), Some(30.5));
        assert_eq!(after("1796040030500"), Some(30.5));
        assert_eq!(after("1796040030500000"), Some(30.5));
        assert_eq!(after("1796039990"), Some(0.0), "past");
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
            let name = HeaderName::from_static("x-should-retry");
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
            should_retry(&Head::read(&headers, Duration::ZERO))
        };
        assert_eq!((said("true"), said("false"), said("1"), said("")), (Some(true), Some(false), None, None));
        let name = HeaderName::from_static("x-should-retry");
        let both = ["true", "false"].map(|word| (name.clone(), HeaderValue::from_static(word)));
        let mut headers = HeaderMap::new();
        headers.extend(both.map(|(name, word)| (Some(name), word)));
        assert_eq!(should_retry(&Head::read(&headers, Duration::ZERO)), Some(false));
    }
}
