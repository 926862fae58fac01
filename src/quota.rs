//! How much: [`Quota`], one limit of one unit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::cost::Unit;
use crate::invalid::Invalid;
use crate::time::LATE_WAKE_CREDIT;

mod form;
mod text;
mod scale;

pub use form::Anchor;
use form::{Form, Rate};
pub(crate) use scale::Scale;

/// The longest period of a quota.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How much of a unit may go in how long a time.
///
/// A bare quota, `"50/s"` or [`Quota::per_second`], means what an API's page means by it: **at most n in any
/// window of that length, as the server counts**. A bucket is said: `"10/s burst 20"` or [`Quota::bucket`] lets
/// a burst go at once and then one by one at the rate, so up to `burst + rate × window` fall into a window.
///
/// What is counted are requests, or [`of`](Self::of) another unit. Constructors and setters take any number; what
/// cannot work (none at all, no time, a burst of none) is refused, with the reason, when a
/// [`Limiter`](crate::Limiter) or a [`Client`](crate::Client) is built from it. Rates are kept exactly, or rounded
/// down by at most a thousandth, in the server's favour.
///
/// # Examples
///
/// ```
/// use reqwest_throttle::Quota;
/// use std::time::Duration;
///
/// assert_eq!("100/min".parse(), Ok(Quota::per_minute(100)));
/// assert_eq!("40 per 2s paced".parse(), Ok(Quota::window(40, Duration::from_secs(2)).paced()));
/// assert_eq!("200_000 tokens/min".parse(), Ok(Quota::per_minute(200_000).of("tokens")));
/// assert_eq!("10/s burst 20 headroom 10%".parse(), Ok(Quota::bucket(10.0, 20).headroom(10)));
/// assert_eq!("0.5/s".parse(), Ok(Quota::window(1, Duration::from_secs(2))));
/// assert_eq!(Quota::per_hour(5_000).to_string(), "5000/h");
/// assert!("0/s".parse::<Quota>().unwrap_err().to_string().contains("at least 1"));
/// ```
#[doc(alias = "token bucket")]
#[doc(alias = "GCRA")]
#[doc(alias = "sliding window")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Quota(Form);

/// A quota in the numbers that admission counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Unlimited,
    /// At most so many in any window, and paced by a bucket if that is asked for.
    Window {
        most: u64,
        period: Duration,
        anchor: Anchor,
        pace: Option<Scale>,
    },
    Bucket(Scale),
}

impl Plan {
    /// So many percent of the rate, and of what goes at once: rounded up, and what that is too much by takes longer instead.
    pub(crate) fn lowered(self, percent: u64) -> Self {
        match self {
            Self::Window { most, period, anchor, pace } if percent < 100 => {
                let whole = u128::from(most) * u128::from(percent);
                let fewer = whole.div_ceil(100).max(1);
                let longer = period.as_nanos().saturating_mul(fewer.saturating_mul(100)).div_ceil(whole.max(1));
                Self::Window {
                    most: u64::try_from(fewer).unwrap_or(most),
                    period: Duration::from_nanos(u64::try_from(longer).unwrap_or(u64::MAX)),
                    anchor,
                    pace: pace.map(|pace| pace.lowered(percent)),
                }
            }
            Self::Bucket(scale) if percent < 100 => Self::Bucket(scale.lowered(percent)),
            same => same,
        }
    }
}

impl Quota {
    /// No limit. It counts nothing, and stands for one where a quota is asked for.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self(Form::window(None, Unit::REQUESTS))
    }

    /// At most `count` in any window of the length `period`, as the server counts.
    #[must_use]
    pub const fn window(count: u64, period: Duration) -> Self {
        Self(Form::window(Some(Rate { count, period }), Unit::REQUESTS))
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

    /// A bucket that holds `burst` and fills at `rate_per_second`. Fractions work: `0.5` is one in two seconds. A
    /// rate that is not a whole number is kept as one in so many nanoseconds, rounded up.
    #[must_use]
    pub fn bucket(rate_per_second: f64, burst: u64) -> Self {
        Self::rate_and_burst(exact_rate(rate_per_second), burst)
    }

    /// One each `interval`: a bucket that holds one.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self::rate_and_burst(Rate { count: 1, period: interval }, 1)
    }

    fn rate_and_burst(rate: Rate, burst: u64) -> Self {
        let mut form = Form::window(Some(rate), Unit::REQUESTS);
        form.burst = Some(burst);
        Self(form)
    }

    /// The same, counting another unit: `tokens`, or a name of your own. A request takes none of it unless its
    /// [`Cost`](crate::Cost) says so.
    #[must_use]
    pub fn of(mut self, unit: impl Into<Unit>) -> Self {
        self.0.unit = unit.into();
        self
    }

    /// The same, spread evenly: one at a time. As [`at_most`](Self::at_most) with one.
    #[must_use]
    pub fn paced(self) -> Self {
        self.at_most(1)
    }

    /// The same, no more than so many at once, and those that follow at the rate. What takes more at a time goes
    /// when so many are there, and those that follow wait the longer.
    #[must_use]
    pub fn at_most(mut self, at_once: u64) -> Self {
        self.0.at_most = Some(at_once);
        self
    }

    /// The same, less so many percent (0 to 99) of the count and of the burst: a margin for others who use the same
    /// key, and for wrong documentation.
    #[must_use]
    pub fn headroom(mut self, percent: u8) -> Self {
        self.0.headroom_percent = percent;
        self
    }

    /// A bucket that is safe for a server with this rate and burst on a network whose delays differ by up to `jitter`:
    /// what leaves in a burst can arrive in a larger one, so its own burst is smaller by `rate × (jitter + 2 ms)`.
    /// Refused when nothing is left of it. A window needs none: it counts from the answer.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.0.jitter = jitter;
        self
    }

    /// A window that counts a request from there; [`Anchor::AnswerCapped`] unless set.
    #[must_use]
    pub fn counted_from(mut self, anchor: Anchor) -> Self {
        self.0.anchor = anchor;
        self
    }

    /// How many, in each [`period`](Self::period); zero if there is no limit.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.rate.map_or(0, |rate| rate.count)
    }

    /// How long a window is, or how long a bucket takes to gain [`count`](Self::count); zero if there is no limit.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.0.rate.map_or(Duration::ZERO, |rate| rate.period)
    }

    /// How many a full bucket lets go at once; `None` for a window.
    #[must_use]
    pub fn burst(&self) -> Option<u64> {
        self.0.burst
    }

    /// What is counted.
    #[must_use]
    pub fn unit(&self) -> &Unit {
        &self.0.unit
    }

    #[cfg(test)]
    pub(crate) fn with_count(&self, count: u64) -> Self {
        let mut same = self.clone();
        same.0.rate = self.0.rate.map(|rate| Rate { count, ..rate });
        same
    }

    /// The numbers to count in, or what is wrong.
    pub(crate) fn plan(&self) -> Result<Plan, Invalid> {
        let refused = |allowed| Invalid::new("quota", self.to_string(), allowed);
        self.check_words().map_err(|allowed| refused(allowed.into()))?;
        let Some(rate) = self.0.rate else { return Ok(Plan::Unlimited) };
        let count = self.less_headroom(rate.count);
        let scale = |burst| Scale::new(count, rate.period, burst).map_err(refused);
        let Some(burst) = self.0.burst else {
            let (most, period, anchor) = (count, rate.period, self.0.anchor);
            return Ok(Plan::Window { most, period, anchor, pace: self.0.at_most.map(scale).transpose()? });
        };
        let burst = self.less_headroom(burst).max(1).min(self.0.at_most.unwrap_or(u64::MAX));
        let burst = burst.saturating_sub(self.jitter_units(count, rate.period));
        if burst == 0 {
            return Err(refused("a burst above rate × (jitter + 2 ms)".into()));
        }
        scale(burst).map(Plan::Bucket)
    }

    /// What can be seen without reckoning.
    fn check_words(&self) -> Result<(), &'static str> {
        let form = &self.0;
        let (count, period) = (self.count(), self.period());
        match form {
            _ if !text::is_unit(form.unit.name()) => Err("a unit of one word, of letters, digits, `-` and `_`"),
            Form { rate: None, .. } if *form != Form::window(None, form.unit.clone()) => Err("`unlimited` by itself"),
            Form { rate: None, .. } => Ok(()),
            _ if count == 0 => Err("at least 1 in its period, as in `1/s`; for no limit, `unlimited`"),
            _ if period.is_zero() => Err("a period above zero, as in `1 per 500ms`"),
            _ if period > LONGEST => Err("a period of 100 years at most"),
            Form { burst: Some(0), .. } => Err("a burst of at least 1, as in `10/s burst 1`"),
            Form { at_most: Some(0), .. } => Err("at least 1 at once, as in `at most 1`"),
            Form { headroom_percent: 100.., .. } => Err("a headroom below 100%"),
            _ if self.less_headroom(count) == 0 => Err("a headroom that leaves at least 1"),
            Form { burst: None, jitter, .. } if !jitter.is_zero() => {
                Err("jitter for a bucket only: `burst` is missing")
            }
            Form { burst: Some(_), anchor, .. } if *anchor != Anchor::AnswerCapped => {
                Err("`counted from` for a window only, without `burst`")
            }
            _ => Ok(()),
        }
    }

    /// Rounded down.
    fn less_headroom(&self, amount: u64) -> u64 {
        let kept = u128::from(100 - self.0.headroom_percent.min(100)) * u128::from(amount) / 100;
        u64::try_from(kept).unwrap_or(u64::MAX)
    }

    /// How many more than leave in a burst can arrive in one, rounded up.
    fn jitter_units(&self, count: u64, period: Duration) -> u64 {
        if self.0.jitter.is_zero() {
            return 0;
        }
        let time = self.0.jitter.saturating_add(LATE_WAKE_CREDIT).as_nanos();
        let units = time.saturating_mul(u128::from(count)).div_ceil(period.as_nanos());
        u64::try_from(units).unwrap_or(u64::MAX)
    }
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
fn exact_rate(per_second: f64) -> Rate {
    let second = Duration::from_secs(1);
    if !per_second.is_finite() || per_second <= 0.0 {
        return Rate { count: 0, period: second };
    }
    let whole = per_second as u64;
    if whole as f64 == per_second {
        return Rate { count: whole, period: second };
    }
    Rate { count: 1, period: Duration::from_nanos((1e9 / per_second).ceil() as u64) }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::print(&self.0, f)
    }
}

/// As its text.
impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}

impl FromStr for Quota {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let form = text::read(text).ok_or_else(|| Invalid::new("quota", text, text::GRAMMAR))?;
        let quota = Self(form);
        quota.plan()?;
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

/// A window: so many in any time of this length.
impl From<(u64, Duration)> for Quota {
    fn from((count, period): (u64, Duration)) -> Self {
        Self::window(count, period)
    }
}

/// A bucket, as governor's quotas are.
impl From<governor::Quota> for Quota {
    fn from(quota: governor::Quota) -> Self {
        let rate = Rate { count: 1, period: quota.replenish_interval() };
        Self::rate_and_burst(rate, quota.burst_size().get().into())
    }
}

/// As its text.
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl serde::Serialize for Quota {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From its text.
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> serde::Deserialize<'de> for Quota {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
