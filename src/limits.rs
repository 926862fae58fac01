//! All limits of one key: [`Limits`].

use std::fmt;
use std::str::FromStr;

use crate::invalid::Invalid;
use crate::priority::Priority;
use crate::quota::Quota;

/// All limits of one key: its quotas, and how many may be in flight at once. A request passes all of them or none.
///
/// Wherever limits are asked for, a quota or their text does as well: `"50/s, 1000/h, 8 in flight, 20% for high"`.
///
/// # Examples
///
/// ```
/// use reqwest_throttle::Limits;
///
/// let limits = Limits::new().quota("50/s").quota("200_000 tokens/min").in_flight(8);
/// assert_eq!(limits.to_string(), "50/s, 200000 tokens/min, 8 in flight");
/// assert_eq!("50/s, 200_000 tokens/min, 8 in flight".parse(), Ok(limits));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    quotas: Vec<Quota>,
    in_flight: Option<usize>,
    /// In percent, for high and for normal.
    reserved: [u8; 2],
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

    /// Keeps so many percent of each quota, of what ever goes at once, and of the requests in flight, for this priority and
    /// those above it, rounded down: whoever is below cannot take that share, even if nobody else wants it. Whoever has
    /// aged counts as what it has come to.
    ///
    /// A percent is from 1 to 99; so is the sum of both.
    #[must_use]
    pub fn reserve(mut self, priority: Priority, percent: u8) -> Self {
        match self.reserved.get_mut(priority.place()) {
            Some(reserved) if (1..100).contains(&percent) => *reserved = percent,
            Some(_) => self.refuse("reserve", percent.to_string(), "1 to 99 percent; for no share, leave it out"),
            None => self.refuse("reserve", priority.name().to_owned(), "high or normal: nothing is below low"),
        }
        self
    }

    /// These and others, of the same key.
    pub(crate) fn with(mut self, others: Self) -> Self {
        let Self { quotas, in_flight, reserved, invalid } = others;
        self.quotas.extend(quotas);
        self.in_flight = self.in_flight.into_iter().chain(in_flight).min();
        self.reserved = [0, 1].map(|class| self.reserved[class].max(reserved[class]));
        self.invalid = self.invalid.or(invalid);
        self
    }

    fn refuse(&mut self, field: &'static str, value: String, allowed: &'static str) {
        self.invalid.get_or_insert_with(|| Invalid::new(field, value, allowed));
    }

    /// How many percent this priority cannot take.
    pub(crate) fn reserved_above(&self, priority: Priority) -> u64 {
        self.reserved.iter().take(priority.place()).map(|percent| u64::from(*percent)).sum()
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
        if self.reserved_above(Priority::Low) > 99 {
            let sum = self.reserved_above(Priority::Low).to_string();
            return Err(Invalid::new("reserve", sum, "99 percent together, at most"));
        }
        self.quotas.iter().try_for_each(|quota| quota.plan().map(|_| ()))
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quotas = self.quotas.iter().map(ToString::to_string);
        let slots = self.in_flight.iter().map(|most| format!("{most} in flight"));
        let reserved = Priority::ALL.into_iter().zip(self.reserved).filter(|(_, percent)| *percent > 0);
        let reserved = reserved.map(|(priority, percent)| format!("{percent}% for {}", priority.name()));
        let all: Vec<_> = quotas.chain(slots).chain(reserved).collect();
        f.write_str(if all.is_empty() { "no limit" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

impl From<Quota> for Limits {
    fn from(quota: Quota) -> Self {
        Self::new().quota(quota)
    }
}

/// Quotas, a number in flight and reserved shares, with commas between them: `50/s, 1000/h, 8 in flight, 20% for high`.
impl FromStr for Limits {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let limits = text.split(',').map(str::trim).try_fold(Self::new(), Self::and)?;
        limits.check()?;
        Ok(limits)
    }
}

impl Limits {
    /// With one more part of the text.
    fn and(self, part: &str) -> Result<Self, Invalid> {
        if part == "no limit" {
            return Ok(self);
        }
        if let Some(most) = part.strip_suffix("in flight") {
            let most = most.trim().parse();
            return most
                .map(|most| self.in_flight(most))
                .map_err(|_| Invalid::new("in_flight", part, "a whole number, as in `8 in flight`"));
        }
        if let Some((percent, name)) = part.split_once("% for ") {
            let percent = percent.trim().parse().ok();
            let priority = Priority::ALL.into_iter().find(|priority| priority.name() == name.trim());
            return percent
                .zip(priority)
                .map(|(percent, priority)| self.reserve(priority, percent))
                .ok_or_else(|| Invalid::new("reserve", part, "a share for high or normal, as in `20% for high`"));
        }
        part.parse().map(|quota: Quota| self.quota(quota))
    }
}

impl TryFrom<&str> for Limits {
    type Error = Invalid;

    fn try_from(text: &str) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl TryFrom<String> for Limits {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = "50/s, 200000 tokens/min burst 5, 8 in flight, 20% for high, 5% for normal";
        assert_eq!(text.parse::<Limits>().unwrap().to_string(), text);
        assert_eq!("50/s".parse(), Ok(Limits::from(Quota::per_second(50))));
        assert_eq!((Limits::new().to_string().as_str(), "no limit".parse()), ("no limit", Ok(Limits::new())));
    }

    #[test]
    fn what_cannot_be_kept_is_named() {
        for (text, field, value) in [
            ("", "quota", ""),
            ("50/s, ten", "quota", "ten"),
            ("50/s, many in flight", "in_flight", "many in flight"),
            ("0 in flight", "in_flight", "0"),
            ("50/s, 0/h", "quota", "0/h"),
            ("50/s, 20% for all", "reserve", "20% for all"),
            ("50/s, x% for high", "reserve", "x% for high"),
            ("50/s, 100% for high", "reserve", "100"),
            ("50/s, 20% for low", "reserve", "low"),
            ("50/s, 60% for high, 40% for normal", "reserve", "100"),
        ] {
            let error = text.parse::<Limits>().unwrap_err();
            assert_eq!((error.field.as_ref(), error.value.as_str()), (field, value));
        }
    }
}
