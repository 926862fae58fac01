//! How much: [`Quota`] for one limit, [`Limits`] for all limits of one key, and [`Invalid`] for what cannot be built.

use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

mod text;

/// How many requests may go in how long a time.
///
/// A bare quota, `"50/s"` or [`Quota::per_second`], means what an API's page means by it: **at most n in any
/// window of that length, as the server counts**. A bucket is said: `"10/s burst 20"` or [`Quota::bucket`] lets
/// a burst go at once and then one by one at the rate, so up to `burst + rate × window` fall into a window.
///
/// Constructors take any number; what cannot work (none at all, no time, a burst of none) is refused, with the
/// reason, when a [`Limiter`](crate::Limiter) or a [`Client`](crate::Client) is built from it.
///
/// # Examples
///
/// ```
/// use reqwest_throttle::Quota;
/// use std::time::Duration;
///
/// assert_eq!("100/min".parse(), Ok(Quota::per_minute(100)));
/// assert_eq!("40 per 2s".parse(), Ok(Quota::window(40, Duration::from_secs(2))));
/// assert_eq!("10/s burst 20".parse(), Ok(Quota::bucket(10.0, 20)));
/// assert_eq!(Quota::per_hour(5_000).to_string(), "5000/h");
/// assert!("0/s".parse::<Quota>().unwrap_err().to_string().contains("at least 1"));
/// ```
#[doc(alias = "token bucket")]
#[doc(alias = "GCRA")]
#[doc(alias = "sliding window")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    count: u64,
    period: Duration,
    burst: Option<u64>,
}

impl Quota {
    /// At most `count` in any window of the length `period`, as the server counts.
    #[must_use]
    pub const fn window(count: u64, period: Duration) -> Self {
        Self { count, period, burst: None }
    }

    /// At most `count` in any second.
    #[must_use]
    pub const fn per_second(count: u64) -> Self {
        Self::window(count, Duration::from_secs(1))
    }

    /// At most `count` in any minute.
    #[must_use]
    pub const fn per_minute(count: u64) -> Self {
        Self::window(count, Duration::from_secs(60))
    }

    /// At most `count` in any hour.
    #[must_use]
    pub const fn per_hour(count: u64) -> Self {
        Self::window(count, Duration::from_secs(3_600))
    }

    /// At most `count` in any 24 hours.
    #[must_use]
    pub const fn per_day(count: u64) -> Self {
        Self::window(count, Duration::from_secs(86_400))
    }

    /// A bucket of `burst` requests that fills with `rate_per_second`. Fractions work: `0.5` is one in two
    /// seconds. A rate whose interval is not a whole number of nanoseconds is rounded down, in the server's favour.
    #[must_use]
    pub fn bucket(rate_per_second: f64, burst: u64) -> Self {
        let (count, period) = text::exact_rate(rate_per_second);
        Self { count, period, burst: Some(burst) }
    }

    /// One each `interval`: a bucket with a burst of one.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self { count: 1, period: interval, burst: Some(1) }
    }

    /// How many, in each [`period`](Self::period).
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// How long a window is, or how long a bucket takes to gain [`count`](Self::count).
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// How many a full bucket lets go at once; `None` for a window.
    #[must_use]
    pub const fn burst(&self) -> Option<u64> {
        self.burst
    }

    /// The time in which a bucket gains one, rounded up.
    pub(crate) fn interval_nanos(&self) -> u64 {
        let interval = self.period.as_nanos().div_ceil(u128::from(self.count.max(1)));
        u64::try_from(interval).unwrap_or(u64::MAX)
    }

    /// Whether this can be kept, and why not.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let allowed = match (self.count, self.period, self.burst) {
            (0, ..) => "at least 1 in its period, as in `1/s`; for no limit, leave the quota out",
            (_, Duration::ZERO, _) => "a period above zero, as in `1 per 500ms`",
            (.., Some(0)) => "a burst of at least 1, as in `10/s burst 1`",
            (_, period, _) if period > text::LONGEST => "a period of 100 years at most",
            (.., Some(burst)) => return self.check_bucket(burst),
            _ => return Ok(()),
        };
        Err(Invalid::new("quota", self.to_string(), allowed))
    }

    /// A bucket's decision is taken by `governor`: bursts below 2^32, and what a burst takes to fill in nanoseconds
    /// must leave room for the clock in a `u64`.
    fn check_bucket(&self, burst: u64) -> Result<(), Invalid> {
        let interval = self.interval_nanos();
        let allowed = if interval < text::SHORTEST_INTERVAL_NANOS {
            "a bucket of 1000000/s at most: above, rounding to whole nanoseconds would cost more than a thousandth"
        } else if u32::try_from(burst).is_err() {
            "a burst of 4294967295 at most"
        } else if u128::from(interval) * u128::from(burst) > text::LONGEST.as_nanos() {
            "a burst that fills within 100 years"
        } else {
            return Ok(());
        };
        Err(Invalid::new("quota", self.to_string(), allowed))
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::print((self.count, self.period, self.burst), f)
    }
}

impl FromStr for Quota {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let parts = text::read(text).ok_or_else(|| Invalid::new("quota", text, text::FORM));
        let (count, period, burst) = parts?;
        let quota = Self { count, period, burst };
        quota.check()?;
        Ok(quota)
    }
}

impl TryFrom<&str> for Quota {
    type Error = Invalid;

    fn try_from(text: &str) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl TryFrom<String> for Quota {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

/// All limits of one key: its quotas, and how many may be in flight at once. A request passes all of them or none.
///
/// Wherever limits are asked for, a quota or its text does as well.
///
/// # Examples
///
/// ```
/// use reqwest_throttle::Limits;
///
/// let limits = Limits::new().quota("50/s").quota("1000/hour").in_flight(8);
/// assert_eq!(limits.to_string(), "50/s, 1000/h, 8 in flight");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    quotas: Vec<Quota>,
    in_flight: Option<usize>,
    invalid: Option<Invalid>,
}

impl Limits {
    /// No limit at all.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a quota. A text that cannot be read is kept, and refused when something is built from these limits.
    #[must_use]
    pub fn quota<Q>(mut self, quota: Q) -> Self
    where
        Q: TryInto<Quota>,
        Q::Error: Into<Invalid>,
    {
        match quota.try_into() {
            Ok(quota) => self.quotas.push(quota),
            Err(error) => self.invalid = self.invalid.or_else(|| Some(error.into())),
        }
        self
    }

    /// How many requests may be in flight at once, from the moment they are let go until their body has ended.
    #[doc(alias = "bulkhead")]
    #[doc(alias = "concurrency limit")]
    #[must_use]
    pub fn in_flight(mut self, most: usize) -> Self {
        self.in_flight = Some(most);
        self
    }

    pub(crate) fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    pub(crate) fn most_in_flight(&self) -> Option<usize> {
        self.in_flight
    }

    /// Whether all of this can be kept, and why not.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if let Some(invalid) = &self.invalid {
            return Err(invalid.clone());
        }
        if self.in_flight == Some(0) {
            let allowed = "at least 1; for no limit, leave it out";
            return Err(Invalid::new("in_flight", "0", allowed));
        }
        self.quotas.iter().try_for_each(Quota::check)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quotas = self.quotas.iter().map(ToString::to_string);
        let slots = self.in_flight.iter().map(|most| format!("{most} in flight"));
        let all: Vec<_> = quotas.chain(slots).collect();
        f.write_str(if all.is_empty() { "no limit" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

impl From<Quota> for Limits {
    fn from(quota: Quota) -> Self {
        Self::new().quota(quota)
    }
}

impl TryFrom<&str> for Limits {
    type Error = Invalid;

    fn try_from(text: &str) -> Result<Self, Invalid> {
        text.parse().map(Quota::into)
    }
}

impl TryFrom<String> for Limits {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.as_str().try_into()
    }
}

/// A setting that cannot be kept: which, what it was, and what is allowed instead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalid {
    /// Which setting.
    pub field: Cow<'static, str>,
    /// What it was.
    pub value: String,
    /// What it may be.
    pub allowed: Cow<'static, str>,
}

impl Invalid {
    pub(crate) fn new(field: &'static str, value: impl Into<String>, allowed: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), value: value.into(), allowed: allowed.into() }
    }

    /// The same, found inside another setting.
    pub(crate) fn inside(mut self, outer: &'static str) -> Self {
        self.field = format!("{outer}: {}", self.field).into();
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}` cannot be kept; allowed is {}", self.field, self.value, self.allowed)
    }
}

impl Error for Invalid {}

/// Limits and quotas convert without fail; this lets setters take either.
impl From<Infallible> for Invalid {
    fn from(never: Infallible) -> Self {
        match never {}
    }
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
