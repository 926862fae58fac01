//! What is counted, and how much of it one request takes: [`Unit`] and [`Cost`].

use std::fmt;
use std::sync::Arc;

/// What a quota counts: requests, tokens, or anything that you name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unit(Name);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Requests,
    Tokens,
    Other(Arc<str>),
}

impl Unit {
    /// Requests. What is not said to be anything else.
    pub const REQUESTS: Self = Self(Name::Requests);
    /// Tokens, of a language model.
    pub const TOKENS: Self = Self(Name::Tokens);

    /// Its name, as it is written in a quota.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.0 {
            Name::Requests => "requests",
            Name::Tokens => "tokens",
            Name::Other(name) => name,
        }
    }
}

/// The unit of this name. `request` and `token` are read too.
impl From<&str> for Unit {
    fn from(name: &str) -> Self {
        match name {
            "requests" | "request" => Self::REQUESTS,
            "tokens" | "token" => Self::TOKENS,
            other => Self(Name::Other(Arc::from(other))),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What one request takes of each unit: one request, unless set, and nothing else.
///
/// # Examples
///
/// ```
/// use reqwest_throttle::{Cost, Unit};
///
/// let cost = Cost::new().and("tokens", 1_200);
/// assert_eq!((cost.of(&Unit::REQUESTS), cost.of(&Unit::TOKENS)), (1, 1_200));
/// assert_eq!(cost.of(&Unit::from("points")), 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    requests: u64,
    /// Rarely any, and then shared by all clones.
    others: Option<Arc<Vec<(Unit, u64)>>>,
}

impl Cost {
    /// One request.
    #[must_use]
    pub const fn new() -> Self {
        Self { requests: 1, others: None }
    }

    /// And so much of a unit, in the place of what was set for it before.
    #[must_use]
    pub fn and(mut self, unit: impl Into<Unit>, amount: u64) -> Self {
        let unit = unit.into();
        if unit == Unit::REQUESTS {
            self.requests = amount;
            return self;
        }
        let others = self.others().iter().filter(|(other, _)| *other != unit);
        self.others = Some(Arc::new(others.cloned().chain([(unit.clone(), amount)]).collect()));
        self
    }

    fn others(&self) -> &[(Unit, u64)] {
        self.others.as_deref().map_or(&[], Vec::as_slice)
    }

    /// How much of this unit.
    #[must_use]
    pub fn of(&self, unit: &Unit) -> u64 {
        if matches!(unit.0, Name::Requests) {
            return self.requests;
        }
        self.others().iter().find(|(other, _)| other == unit).map_or(0, |(_, amount)| *amount)
    }
}

/// What several requests take together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Costs {
    requests: u128,
    others: Vec<(Unit, u128)>,
}

impl Costs {
    /// How much of this unit, or as much as can be reckoned with.
    pub(crate) fn of(&self, unit: &Unit) -> u64 {
        let other = || self.others.iter().find(|(other, _)| other == unit).map_or(0, |(_, amount)| *amount);
        let sum = if *unit == Unit::REQUESTS { self.requests } else { other() };
        u64::try_from(sum).unwrap_or(u64::MAX)
    }

    pub(crate) fn add(&mut self, cost: &Cost) {
        self.requests += u128::from(cost.requests);
        for (unit, amount) in cost.others() {
            match self.others.iter_mut().find(|(other, _)| other == unit) {
                Some((_, sum)) => *sum += u128::from(*amount),
                None => self.others.push((unit.clone(), u128::from(*amount))),
            }
        }
    }

    /// Takes off what was added.
    pub(crate) fn take_off(&mut self, cost: &Cost) {
        self.requests = self.requests.saturating_sub(u128::from(cost.requests));
        for (unit, amount) in cost.others() {
            if let Some((_, sum)) = self.others.iter_mut().find(|(other, _)| other == unit) {
                *sum = sum.saturating_sub(u128::from(*amount));
            }
        }
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::new()
    }
}

/// So many requests.
impl From<u64> for Cost {
    fn from(requests: u64) -> Self {
        Self::new().and(Unit::REQUESTS, requests)
    }
}
