//! What a response states of one limit, and for whom it holds.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

/// The name of a limit to which the server gives none.
pub(super) const UNNAMED: &str = "requests";

/// One limit, as a response states it. What it does not state is `None`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StatedLimit {
    /// As the server calls it; `requests` if it gives no name.
    pub name: Cow<'static, str>,
    /// How much there is in all: of requests, tokens, bytes, points, whatever the server counts.
    pub limit: Option<f64>,
    /// How much of it is left, never below zero.
    pub remaining: Option<f64>,
    /// How long until it is whole again, or begins anew: which of the two, servers do not say.
    pub reset_after: Option<Duration>,
    /// For how long a time the limit is meant.
    pub window: Option<Duration>,
}

impl StatedLimit {
    pub(super) fn named(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), limit: None, remaining: None, reset_after: None, window: None }
    }

    pub(super) fn refused(name: impl Into<Cow<'static, str>>) -> Self {
        Self { remaining: Some(0.0), ..Self::named(name) }
    }

    /// Nothing is left.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.remaining.is_some_and(|left| left < 1.0)
    }
}

impl fmt::Display for StatedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It comes from the server: one line, and not a long one.
        let name = self.name.chars().take(60).map(|c| if c.is_control() { '?' } else { c }).collect::<String>();
        match (self.remaining, self.limit) {
            (Some(left), Some(limit)) => write!(f, "{left} of {limit} {name} left"),
            (Some(left), None) => write!(f, "{left} {name} left"),
            (None, Some(limit)) => write!(f, "at most {limit} {name}"),
            (None, None) => write!(f, "a limit on {name}"),
        }?;
        match self.window {
            Some(window) => write!(f, " in {window:?}"),
            None => Ok(()),
        }
    }
}

/// For what a limit holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// All that is done for one account, organization or key.
    Account,
    /// All that one user does.
    User,
    /// All that comes from one address, to the whole host.
    Host,
    /// One path, method or endpoint.
    Route,
    /// What the server has put into one bucket, which has this name.
    Bucket(String),
}

/// What is known of a server beforehand, where its responses do not say it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hints {
    /// The number of a reset is a time in milliseconds, and not in seconds. Its size does not tell: 45000 may be
    /// either.
    pub resets_in_millis: bool,
    /// For what its limits hold, if a response does not say.
    pub scope: Option<Scope>,
}

/// What has been found in a response so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Each with whether its name is the server's.
    limits: SmallVec<[(StatedLimit, bool); 4]>,
    /// How long to stay away, in a field of the server's own.
    pub(super) wait: Option<Duration>,
    pub(super) scope: Option<Scope>,
    /// It says that it refuses for all, and not because of who asks.
    pub(super) blames_service: bool,
}

impl Found {
    /// A limit of its own.
    pub(super) fn push(&mut self, limit: StatedLimit) {
        self.limits.push((limit, true));
    }

    /// What is said twice, under two names, is one limit.
    pub(super) fn merge(&mut self, limit: StatedLimit, is_named: bool) {
        let same = self.limits.iter_mut().find(|(known, known_is_named)| {
            let names = known.name == limit.name || !is_named || !*known_is_named;
            let numbers = known.limit.is_some() && known.limit == limit.limit && known.remaining == limit.remaining;
            let windows = known.window.is_none() || limit.window.is_none() || known.window == limit.window;
            names && numbers && windows && are_near(known.reset_after, limit.reset_after)
        });
        let Some((known, known_is_named)) = same else { return self.limits.push((limit, is_named)) };
        known.reset_after = known.reset_after.or(limit.reset_after);
        known.window = known.window.or(limit.window);
        if is_named && !*known_is_named {
            known.name = limit.name;
            *known_is_named = true;
        }
    }

    /// Gives the only limit a name, if it has none of its own.
    pub(super) fn name(&mut self, name: &str) {
        if let [(only, is_named @ false)] = self.limits.as_mut_slice() {
            only.name = Cow::Owned(name.to_owned());
            *is_named = true;
        }
    }

    pub(super) fn wait_at_least(&mut self, wait: Option<Duration>) {
        self.wait = self.wait.max(wait);
    }

    pub(super) fn limits(&self) -> impl Iterator<Item = &StatedLimit> {
        self.limits.iter().map(|(limit, _)| limit)
    }

    pub(super) fn limits_mut(&mut self) -> impl Iterator<Item = &mut StatedLimit> {
        self.limits.iter_mut().map(|(limit, _)| limit)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    pub(super) fn into_limits(self) -> Vec<StatedLimit> {
        self.limits.into_iter().map(|(limit, _)| limit).collect()
    }
}

fn are_near(one: Option<Duration>, other: Option<Duration>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.abs_diff(other) <= Duration::from_secs(2),
        _ => true,
    }
}
