//! How long a response asks us to wait: `Retry-After` in whole seconds.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// The wait that the head states (RFC 9110, 10.2.3, `delay-seconds`). A malformed value is as if absent;
/// of several the longest counts, for an earlier return would break one of them.
pub(super) fn stated(headers: &HeaderMap) -> Option<Duration> {
    headers.get_all(RETRY_AFTER).iter().filter_map(|value| seconds(value.as_bytes())).max()
}

fn seconds(value: &[u8]) -> Option<Duration> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds =
        digits.iter().fold(0_u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn stated_by(values: &[&[u8]]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(RETRY_AFTER, HeaderValue::from_bytes(value).unwrap());
        }
        stated(&headers).map(|wait| wait.as_secs())
    }

    #[test]
    fn whole_seconds_are_read_and_nothing_else_is_mistaken_for_them() {
        assert_eq!(stated_by(&[b"120"]), Some(120));
        assert_eq!(stated_by(&[b" 2 "]), Some(2));
        assert_eq!(stated_by(&[b"0"]), Some(0));
        assert_eq!(stated_by(&[b"99999999999999999999999"]), Some(u64::MAX));
        for malformed in [&b""[..], b"-1", b"+1", b"1.5", b"soon", b"1e3", b"2, 3", b"\xff2"] {
            assert_eq!(stated_by(&[malformed]), None, "{malformed:?}");
        }
    }

    #[test]
    fn of_several_the_longest_counts() {
        assert_eq!(stated_by(&[b"1", b"30", b"oops", b"2"]), Some(30));
        assert_eq!(stated_by(&[]), None);
    }
}
