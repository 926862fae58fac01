//! When do other clients of the same key come?

use std::collections::VecDeque;
use std::time::Duration;

/// Another client of the same key, whose requests only the judge sees. Each ends as soon as it came.
#[derive(Clone, Debug)]
pub enum OtherClient {
    /// Evenly, from now on.
    PerSecond(u32),
    /// At these instants of the server's clock; those that are past, at once.
    At(Vec<Duration>),
}

/// When another client comes next.
#[derive(Debug)]
pub(super) enum Turns {
    Every { since: Duration, per_second: u64, done: u64 },
    At(VecDeque<Duration>),
}

impl Turns {
    pub(super) fn new(client: OtherClient, now: Duration) -> Self {
        match client {
            OtherClient::PerSecond(rate) => {
                assert!(rate > 0, "another client that never comes");
                Self::Every { since: now, per_second: rate.into(), done: 0 }
            }
            OtherClient::At(mut instants) => {
                instants.sort_unstable();
                Self::At(instants.into_iter().map(|at| at.max(now)).collect())
            }
        }
    }

    pub(super) fn next(&self) -> Option<Duration> {
        match self {
            Self::Every { since, per_second, done } => {
                let nanos = (done + 1) * 1_000_000_000 / per_second;
                Some(*since + Duration::from_nanos(nanos))
            }
            Self::At(instants) => instants.front().copied(),
        }
    }

    pub(super) fn advance(&mut self) {
        match self {
            Self::Every { done, .. } => *done += 1,
            Self::At(instants) => drop(instants.pop_front()),
        }
    }
}
