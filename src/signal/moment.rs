//! Which time a text means: a span, or a moment.

use std::time::{Duration, UNIX_EPOCH};

use jiff::fmt::strtime;
use jiff::tz::Offset;
use jiff::{Span, SpanRelativeTo, Timestamp};

const DAY: Duration = Duration::from_secs(86_400);

/// From here on a number is no span in seconds: it would be three years.
const NO_SPAN: f64 = 1e8;
/// And from here on it is a moment since 1970: in seconds, milliseconds, or microseconds by its size.
const EPOCH_SECONDS: f64 = 1e9;
const EPOCH_MILLIS: f64 = 1e11;
const EPOCH_MICROS: f64 = 1e14;
/// And from here on it is none of these.
const NO_EPOCH: f64 = 1e17;

/// No number that means anything is larger.
const MOST: f64 = 1e18;

/// No number and no date is longer.
const LONGEST: usize = 100;

/// How moments are written besides RFC 3339, without the name of the weekday, which servers get wrong.
const FORMS: [&str; 8] = [
    "%d %b %Y %H:%M:%S GMT",
    "%d-%b-%y %H:%M:%S GMT",
    "%b %d %H:%M:%S %Y",
    "%b %d %Y %H:%M:%S GMT%z",
    "%d %b %Y %H:%M:%S UTC",
    "%d %b %Y %H:%M:%S %z",
    "%Y-%m-%d %H:%M:%S UTC",
    "%Y-%m-%d %H:%M:%S %z",
];

/// What the clock shows by which moments are measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock<'a> {
    /// What the response says, which goes before our own.
    pub(super) date: Option<&'a str>,
    /// Ours, since 1970.
    pub(super) now: Duration,
}

impl Clock<'_> {
    fn read(self) -> Duration {
        self.date.and_then(date).unwrap_or(self.now)
    }

    /// How long until then. A past moment is now; one that is far away on either side is a mistake.
    fn until(self, at: Duration) -> Option<Duration> {
        let clock = self.read();
        let is_near = at.saturating_add(DAY) >= clock && at <= clock.saturating_add(DAY * 400);
        is_near.then(|| at.saturating_sub(clock))
    }
}

/// Digits with a point among them at most: no sign, no exponent, no word.
pub(super) fn number(text: &str) -> Option<f64> {
    let is_number = text.len() < LONGEST
        && text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_number { text.parse().ok().filter(|number| *number < MOST) } else { None }
}

/// Rounded up to microseconds, in the server's favour.
pub(super) fn span(seconds: f64) -> Option<Duration> {
    if seconds < NO_SPAN { duration(seconds) } else { None }
}

fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64((seconds * 1e6).ceil() / 1e6).ok()
}

/// A number by its size: a span in seconds, or a moment.
pub(super) fn by_size(number: f64, clock: Clock<'_>) -> Option<Duration> {
    let at = match number {
        _ if number < NO_SPAN => return span(number),
        _ if number < EPOCH_SECONDS => return None,
        _ if number < EPOCH_MILLIS => number,
        _ if number < EPOCH_MICROS => number / 1e3,
        _ if number < NO_EPOCH => number / 1e6,
        _ => return None,
    };
    clock.until(duration(at)?)
}

/// The same, of milliseconds.
pub(super) fn millis(number: f64, clock: Clock<'_>) -> Option<Duration> {
    if number < EPOCH_MILLIS { span(number / 1e3) } else { by_size(number, clock) }
}

/// However it is written: a number, a span with units, a date.
pub(super) fn when(text: &str, clock: Clock<'_>) -> Option<Duration> {
    match number(text) {
        Some(number) => by_size(number, clock),
        None => units(text).or_else(|| clock.until(date(text)?)),
    }
}

/// `1m30s`, `30 seconds`, `PT1M30S`, `00:00:03`.
pub(super) fn units(text: &str) -> Option<Duration> {
    let begins = |first: char| first.is_ascii_digit() || matches!(first, 'P' | 'p');
    if text.len() > LONGEST || !text.starts_with(begins) || text.contains(',') {
        return None;
    }
    if let Some(clock) = hours_minutes_seconds(text) {
        return Some(clock);
    }
    let span: Span = text.parse().ok()?;
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(length).ok().filter(|length| length.as_secs_f64() < NO_SPAN)
}

fn hours_minutes_seconds(text: &str) -> Option<Duration> {
    let mut parts = text.split(':');
    let mut next = || parts.next().and_then(number);
    let (hours, minutes, seconds) = (next()?, next()?, next()?);
    let is_clock = parts.next().is_none() && minutes < 60.0 && seconds < 60.0 && hours < 1e5;
    if is_clock { span(hours * 3_600.0 + minutes * 60.0 + seconds) } else { None }
}

/// A moment since 1970. One without a zone says nothing, except in the form of C's `asctime`, which is in GMT.
pub(super) fn date(text: &str) -> Option<Duration> {
    let has = |byte: u8| text.as_bytes().contains(&byte);
    if text.len() > LONGEST || !text.is_ascii() || !has(b':') {
        return None;
    }
    if let Ok(at) = httpdate::parse_http_date(text) {
        return at.duration_since(UNIX_EPOCH).ok();
    }
    let at = if has(b'-') { text.parse::<Timestamp>().ok() } else { None };
    at.or_else(|| in_words(text))?.duration_since(Timestamp::UNIX_EPOCH).try_into().ok()
}

fn in_words(text: &str) -> Option<Timestamp> {
    let upper = text.split('(').next()?.trim().to_ascii_uppercase();
    let after_weekday = match upper.split_once([',', ' ']) {
        Some((word, rest)) if word.len() >= 3 && word.ends_with(|last: char| last.is_ascii_alphabetic()) => rest.trim(),
        _ => &upper,
    };
    FORMS.iter().find_map(|form| {
        let read = strtime::parse(form, after_weekday).ok()?;
        read.offset().unwrap_or(Offset::UTC).to_timestamp(read.to_datetime().ok()?).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_with_units() {
        let seconds = |text| units(text).map(|span| span.as_secs_f64());
        for (text, expected) in [
            ("6m0s", 360.0),
            ("17ms", 0.017),
            ("1h0m0.5s", 3_600.5),
            ("250us", 0.000_25),
            ("812.5µs", 0.000_812_5),
            ("30 seconds", 30.0),
            ("30s", 30.0),
            ("7 days", 604_800.0),
            ("2 minutes", 120.0),
            ("1 minute 30 seconds", 90.0),
            ("PT1M30S", 90.0),
            ("00:00:03", 3.0),
            ("45.837906927s", 45.837_906_927),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for text in ["", "-5s", "soon", "5", "5 apples", "P", "1s, 2s", "99999999999999999999d"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn moments_in_all_their_forms() {
        for text in [
            "Mon, 30 Nov 2026 12:00:30 GMT",
            "mon, 30 nov 2026 12:00:30 gmt",
            "Fri, 30 Nov 2026 12:00:30 GMT",
            "Monday, 30-Nov-26 12:00:30 GMT",
            "Mon Nov 30 12:00:30 2026",
            "Mon Nov 30 2026 13:00:30 GMT+0100 (Central European Standard Time)",
            "Mon, 30 Nov 2026 12:00:30 +0000",
            "2026-11-30T12:00:30Z",
            "2026-11-30t12:00:30z",
            "2026-11-30 12:00:30 UTC",
            "2026-11-30 14:00:30 +0200",
        ] {
            assert_eq!(date(text), Some(Duration::from_secs(1_796_040_030)), "{text}");
        }
        assert_eq!(date("2026-11-30T12:00Z"), Some(Duration::from_secs(1_796_040_000)));
        assert_eq!(date("Sun Jun  7 00:00:00 2026"), Some(Duration::from_secs(1_780_790_400)));
        for text in [
            "",
            "2026-11-30T12:00:30",
            "2026-11-30 12:00:30",
            "Mon, 30 Nov 2026 12:00:30 PST",
            "Mon, 31 Feb 2026 25:61:00 GMT",
            "1960-01-01T00:00:00Z",
        ] {
            assert_eq!(date(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_is_told_by_its_size() {
        let clock = Clock { date: None, now: Duration::from_secs(1_796_040_000) };
        let seconds = |number| by_size(number, clock).map(|span| span.as_secs_f64());
        assert_eq!(seconds(86_400.0), Some(86_400.0));
        assert_eq!(seconds(2e8), None);
        assert_eq!(seconds(1_796_040_030.5), Some(30.5));
        assert_eq!(seconds(1_796_040_030_500.0), Some(30.5));
        assert_eq!(seconds(1_796_040_030_500_000.0), Some(30.5));
        assert_eq!(seconds(1_796_039_990.0), Some(0.0), "past");
        assert_eq!((seconds(1e9), seconds(1.9e9), seconds(1e18)), (None, None, None));
    }
}
