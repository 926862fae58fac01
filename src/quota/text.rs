//! How a quota is written: `100/min`, `40 per 2s`, `10/s burst 20`.

use std::fmt;
use std::time::Duration;

use super::{Invalid, Quota};

/// The longest period, and the longest time in which a burst may fill.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A bucket's interval is rounded up to whole nanoseconds: below this, by more than a thousandth.
pub(super) const SHORTEST_INTERVAL_NANOS: u64 = 1_000;

const FORM: &str = "a count and a period, as in `50/s`, `100/min`, `40 per 2s`, or a bucket, as in `10/s burst 20`";

/// The units of time that are read, the first spelling of each being the one that is printed.
const UNITS: [(&[&str], Duration); 7] = [
    (&["d", "day", "days"], Duration::from_secs(86_400)),
    (&["h", "hr", "hour", "hours"], Duration::from_secs(3_600)),
    (&["min", "m", "minute", "minutes"], Duration::from_secs(60)),
    (&["s", "sec", "second", "seconds"], Duration::from_secs(1)),
    (&["ms", "millisecond", "milliseconds"], Duration::from_millis(1)),
    (&["us", "µs", "microsecond", "microseconds"], Duration::from_micros(1)),
    (&["ns", "nanosecond", "nanoseconds"], Duration::from_nanos(1)),
];

pub(super) fn read(text: &str) -> Result<Quota, Invalid> {
    parts(text).ok_or_else(|| Invalid::new("quota", text, FORM))
}

fn parts(text: &str) -> Option<Quota> {
    let (rate, burst) = match text.split_once(" burst ") {
        Some((rate, burst)) => (rate, Some(number(burst)?)),
        None => (text, None),
    };
    let (count, period) = rate.split_once('/').or_else(|| rate.split_once(" per "))?;
    Some(Quota { count: number(count)?, period: duration(period.trim())?, burst })
}

/// A whole number, its digits in groups if one likes: `200_000`.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let grouped = text.starts_with('_') || text.ends_with('_') || text.starts_with('+');
    if grouped { None } else { text.replace('_', "").parse().ok() }
}

/// `2s`, `500 ms`, `minute`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let count = if count.is_empty() { 1 } else { number(count)? };
    let unit = UNITS.iter().find(|(names, _)| names.contains(&unit.trim()))?.1;
    unit.checked_mul(u32::try_from(count).ok()?)
}

pub(super) fn print(quota: &Quota, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (nanos, unit) = (quota.period.as_nanos(), largest_unit(quota.period));
    match nanos / unit.1.as_nanos() {
        1 => write!(f, "{}/{}", quota.count, unit.0[0])?,
        times => write!(f, "{} per {times}{}", quota.count, unit.0[0])?,
    }
    quota.burst.map_or(Ok(()), |burst| write!(f, " burst {burst}"))
}

/// The largest unit of which the period is a whole number.
fn largest_unit(period: Duration) -> (&'static [&'static str], Duration) {
    let divides = |unit: &&(_, Duration)| period.as_nanos().is_multiple_of(unit.1.as_nanos());
    let fits = |unit: &&(_, Duration)| unit.1 <= period;
    *UNITS.iter().filter(divides).find(fits).unwrap_or(&UNITS[3])
}

/// A rate per second as a count and a period: whole numbers as they are, others as one in so many nanoseconds,
/// rounded up. No rate at all becomes a count of none, which is refused when built.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "casts stop at the ends, which are refused when built, and whole numbers compare exactly"
)]
pub(super) fn exact_rate(per_second: f64) -> (u64, Duration) {
    if !per_second.is_finite() || per_second <= 0.0 {
        return (0, Duration::from_secs(1));
    }
    let whole = per_second as u64;
    if whole as f64 == per_second {
        return (whole, Duration::from_secs(1));
    }
    (1, Duration::from_nanos((1e9 / per_second).ceil() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_printed_in_one_form() {
        for (written, printed) in [
            ("50/s", "50/s"),
            (" 50 / sec ", "50/s"),
            ("100/min", "100/min"),
            ("100 per minute", "100/min"),
            ("5_000/hour", "5000/h"),
            ("40 per 2s", "40 per 2s"),
            ("1 per 500ms", "1 per 500ms"),
            ("1/500 ms", "1 per 500ms"),
            ("1 per 120s", "1 per 2min"),
            ("10/s burst 20", "10/s burst 20"),
            ("7/min burst 1", "7/min burst 1"),
            ("1/day", "1/d"),
        ] {
            let quota: Quota = written.parse().unwrap();
            assert_eq!(quota.to_string(), printed);
            assert_eq!(printed.parse(), Ok(quota));
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_remedy() {
        for text in [
            "",
            "50",
            "/s",
            "10/",
            "-1/s",
            "NaN/s",
            "1e400/s",
            "10/fortnight",
            "1/2sec/s",
            "_1/s",
            "5 per",
            "10/s burst x",
        ] {
            let error = text.parse::<Quota>().unwrap_err();
            assert_eq!((error.field.as_ref(), error.value.as_str()), ("quota", text));
            assert!(error.to_string().contains("`50/s`"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_named_with_its_remedy() {
        for (text, remedy) in [
            ("0/s", "at least 1 in its period"),
            ("5 per 0s", "a period above zero"),
            ("1/s burst 0", "a burst of at least 1"),
            ("1/4000000000d", "100 years at most"),
            ("2_000_000/s burst 1", "1000000/s at most"),
            ("1/s burst 5_000_000_000", "4294967295 at most"),
            ("1 per 365d burst 1000", "within 100 years"),
        ] {
            let error = text.parse::<Quota>().unwrap_err();
            assert!(error.allowed.contains(remedy), "{text}: {error}");
        }
    }

    #[test]
    fn a_rate_is_kept_exactly_or_in_the_servers_favour() {
        assert_eq!(Quota::bucket(0.5, 1).interval_nanos(), 2_000_000_000);
        assert_eq!(Quota::bucket(2.5, 1).interval_nanos(), 400_000_000);
        assert_eq!(Quota::bucket(1e6, 1).interval_nanos(), 1_000);
        assert_eq!("7/min burst 1".parse::<Quota>().unwrap().interval_nanos(), 8_571_428_572);
        for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Quota::bucket(nothing, 1).check().is_err(), "{nothing}");
        }
        assert!(Quota::bucket(f64::MIN_POSITIVE, 1).check().is_err());
    }
}
