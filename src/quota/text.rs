//! How a quota is written: `100/min`, `40 per 2s`, `10/s burst 20`.

use std::fmt;
use std::time::Duration;

/// The longest period, and the longest time in which a burst may fill.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A bucket's interval is rounded up to whole nanoseconds: below this, by more than a thousandth.
pub(super) const SHORTEST_INTERVAL_NANOS: u64 = 1_000;

pub(super) const FORM: &str =
    "a count and a period, as in `50/s`, `100/min`, `40 per 2s`, or a bucket, as in `10/s burst 20`";

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

/// A quota as it is written: a count, a period, and for a bucket its burst.
pub(super) type Parts = (u64, Duration, Option<u64>);

pub(super) fn read(text: &str) -> Option<Parts> {
    let (rate, burst) = match text.split_once(" burst ") {
        Some((rate, burst)) => (rate, Some(number(burst)?)),
        None => (text, None),
    };
    let (count, period) = rate.split_once('/').or_else(|| rate.split_once(" per "))?;
    Some((number(count)?, duration(period.trim())?, burst))
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

pub(super) fn print((count, period, burst): Parts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (nanos, unit) = (period.as_nanos(), largest_unit(period));
    match nanos / unit.1.as_nanos() {
        1 => write!(f, "{count}/{}", unit.0[0])?,
        times => write!(f, "{count} per {times}{}", unit.0[0])?,
    }
    burst.map_or(Ok(()), |burst| write!(f, " burst {burst}"))
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
