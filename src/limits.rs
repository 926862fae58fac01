//! All limits of one key: [`Limits`].

use std::fmt;
use std::str::FromStr;

use crate::invalid::Invalid;
use crate::quota::Quota;

/// All limits of one key: its quotas, and how many may be in flight at once. A request passes all of them or none.
///
/// Wherever limits are asked for, a quota or their text does as well: `"50/s, 1000/h, 8 in flight"`.
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
        self.quotas.iter().try_for_each(|quota| quota.plan().map(|_| ()))
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

/// Quotas and a number in flight, with commas between them: `50/s, 1000/h, 8 in flight`.
impl FromStr for Limits {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let limits = text.split(',').map(str::trim).try_fold(Self::new(), |limits, part| {
            match part.strip_suffix("in flight").map(|most| most.trim().parse()) {
                Some(Ok(most)) => Ok(limits.in_flight(most)),
                Some(Err(_)) => Err(Invalid::new("in_flight", part, "a whole number, as in `8 in flight`")),
                None => part.parse().map(|quota: Quota| limits.quota(quota)),
            }
        })?;
        limits.check()?;
        Ok(limits)
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
        let text = "50/s, 200000 tokens/min burst 5, 8 in flight";
        assert_eq!(text.parse::<Limits>().unwrap().to_string(), text);
        assert_eq!("50/s".parse(), Ok(Limits::from(Quota::per_second(50))));
        assert_eq!(Limits::new().to_string(), "no limit");
    }

    #[test]
    fn what_cannot_be_kept_is_named() {
        for (text, field, value) in [
            ("", "quota", ""),
            ("50/s, ten", "quota", "ten"),
            ("50/s, many in flight", "in_flight", "many in flight"),
            ("0 in flight", "in_flight", "0"),
            ("50/s, 0/h", "quota", "0/h"),
        ] {
            let error = text.parse::<Limits>().unwrap_err();
            assert_eq!((error.field.as_ref(), error.value.as_str()), (field, value));
        }
    }
}
