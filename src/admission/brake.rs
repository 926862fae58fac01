//! How far refusals have brought the limits of a gate down, and how they come up again.
//!
//! A refusal says that what is counted here is too much, and not by how much. Limits that were set come down by three
//! tenths for each event, by a tenth for a failure, and up again by a hundredth of themselves at a time. Where none were
//! set, what the server took before it refused is the limit from then on, in the time in which it took that and asked to
//! be left alone. When nothing was refused for long, and as much is used, a little more is tried.

use std::time::Duration;

use crate::quota::Quota;
use crate::time::{Time, nanos};

/// What a refusal leaves of a rate, in percent, and what a failure does.
const AFTER_REFUSAL: u64 = 70;
const AFTER_FAILURE: u64 = 90;

/// It is never less than this, so that it comes up again.
const LEAST_PERCENT: u64 = 5;

/// A rate goes up by a hundredth in a tenth of the time in which all of its quota goes, and no sooner than this.
const SHORTEST_STEP_NANOS: u64 = 1_000_000_000;

/// One that was found by so many hundredths: nobody promised it, and others may have taken what was missing.
const POINTS_OF_FOUND: u64 = 3;

/// What was taken longer ago than this weighs half.
const LONGEST_SPAN: Duration = Duration::from_secs(60);

/// A little more is tried after so many periods, and after twice as many each time that it was refused.
const FIRST_PATIENCE: u64 = 10;
const MOST_PATIENCE: u64 = 160;

/// Where nothing was taken before the refusal, nothing is known: so many a second, and twice as many in each second in which
/// all of them went and none was refused; one by one, for all of them were refused together.
const GUESS: u64 = 8;

/// What is found over a longer time than this is tried out sooner.
const SHORT: Duration = Duration::from_secs(5);

/// A limit that was found is forgotten at a gate where nothing has happened for so long, and for so many periods.
const FORGOTTEN_AFTER_NANOS: u64 = 600_000_000_000;
const FORGOTTEN_AFTER: u64 = 60;

/// How far refusals have brought the limits of one gate down.
#[derive(Clone, Debug)]
pub(super) struct Brake {
    /// How much of its quotas it may use.
    percent: u64,
    /// When that was last changed, or will be: the reopening after a refusal.
    moved: Time,
    /// When the first passed since the last event, and how many were taken since.
    opened: Option<Time>,
    taken: u64,
    /// The limit of a gate that has no other.
    found: Option<Found>,
}

/// How much is known of a limit that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Surety {
    /// Nothing: nothing was taken before the refusal.
    Guessed,
    /// It counts over a long time, of which little may have been seen: as long as nothing is refused, twice as many are tried.
    Rough,
    /// The server took so many, and refused one more.
    Seen,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    most: u64,
    period: Duration,
    surety: Surety,
    /// How many were taken, in which time, and how long it asked to be left alone after that.
    seen: (u64, Duration, Duration),
    /// It is the first one: answers to what was sent before the refusal still add to it.
    fresh: bool,
    /// What it was before a little more was tried.
    before: Option<u64>,
    /// After how many periods a little more is tried.
    patience: u64,
    /// Whether all of it was used since it was last changed.
    used_up: bool,
}

impl Default for Brake {
    fn default() -> Self {
        Self { percent: 100, moved: Time::ZERO, opened: None, taken: 0, found: None }
    }
}

impl Brake {
    /// How much of its quotas a gate may use, in percent.
    pub(super) fn percent(&self) -> u64 {
        self.percent
    }

    /// The limit of a gate that has no other.
    pub(super) fn found(&self) -> Option<Quota> {
        self.found.map(|Found { most, period, surety, .. }| {
            let quota = Quota::window(most, period);
            if surety == Surety::Guessed { quota.paced() } else { quota }
        })
    }

    pub(super) fn has_found(&self) -> bool {
        self.found.is_some()
    }

    pub(super) fn is_on(&self) -> bool {
        self.percent < 100 || self.has_found()
    }

    /// As it would be after this long at the latest, whatever came: so nothing is lost by forgetting it.
    pub(super) fn is_at_rest(&self, step_nanos: u64, now: Time) -> bool {
        let up = step_nanos.max(SHORTEST_STEP_NANOS).saturating_mul(100 - self.percent);
        let found = self
            .found
            .map_or(0, |found| nanos(found.period).saturating_mul(FORGOTTEN_AFTER).max(FORGOTTEN_AFTER_NANOS));
        !self.is_on() || self.moved.plus(up.max(found)) <= now
    }

    /// Somebody passes, and leaves nothing or something of the limit that was found.
    pub(super) fn passed(&mut self, used_up: bool, now: Time) {
        self.opened.get_or_insert(now);
        if let Some(found) = &mut self.found {
            found.used_up |= used_up;
        }
    }

    /// The server took one. True if more may go from now on: a hundredth for each time of `step_nanos`.
    pub(super) fn took(&mut self, step_nanos: u64, now: Time) -> bool {
        self.count(now);
        if now < self.moved {
            // It was sent before the refusal.
            let Some(found) = self.found.as_mut().filter(|found| found.fresh) else { return false };
            let (taken, span, wait) = found.seen;
            *found = Found::new(taken.saturating_add(1), span, wait);
            return true;
        }
        let since = now.nanos_since(self.moved);
        if self.percent < 100 {
            let points = if self.found.is_some() { POINTS_OF_FOUND } else { 1 };
            let steps = since / step_nanos.max(SHORTEST_STEP_NANOS) * points;
            self.percent = self.percent.saturating_add(steps).min(100);
            self.moved = if steps > 0 { now } else { self.moved };
            return steps > 0;
        }
        let more = self.found.as_mut().is_some_and(|found| found.try_more(since));
        self.moved = if more { now } else { self.moved };
        more
    }

    fn count(&mut self, now: Time) {
        self.taken += 1;
        let long = |opened: Time| now.since(opened) > LONGEST_SPAN;
        if self.opened.is_some_and(long) {
            (self.taken, self.opened) = (self.taken / 2, Some(now.minus(nanos(LONGEST_SPAN / 2))));
        }
    }

    /// The server refused, and for so long: one event. `limited` if the gate has quotas of its own.
    pub(super) fn refused(&mut self, limited: bool, wait: Duration, reopens: Time, now: Time) {
        let span = self.opened.map_or(Duration::ZERO, |opened| now.since(opened));
        match &mut self.found {
            None if !limited => self.found = Some(Found::new(self.taken, span, wait)),
            Some(found) if found.surety == Surety::Guessed => *found = Found::new(self.taken, span, wait),
            Some(Found { most, before: before @ Some(_), patience, fresh, surety, .. }) => {
                (*most, *fresh, *surety) = (before.take().unwrap_or(*most), false, Surety::Seen);
                *patience = patience.saturating_mul(2).min(MOST_PATIENCE);
            }
            found => {
                self.percent = lowered(self.percent, AFTER_REFUSAL);
                if let Some(found) = found {
                    (found.fresh, found.surety) = (false, Surety::Seen);
                }
            }
        }
        (self.moved, self.opened, self.taken) = (reopens, None, 0);
    }

    /// The server could not do what was sent at an instant. False if that was before the last change, which it may be due to.
    pub(super) fn failed(&mut self, sent: Time, now: Time) -> bool {
        let counts = sent >= self.moved;
        if counts {
            (self.percent, self.moved) = (lowered(self.percent, AFTER_FAILURE), now);
        }
        counts
    }
}

fn lowered(percent: u64, to: u64) -> u64 {
    (percent * to / 100).max(LEAST_PERCENT)
}

impl Found {
    /// So many were taken in a time, then it refused, and asked to be left alone for another. After a longer time only the
    /// rate is known; it counts in about such a while as it asks for.
    fn new(taken: u64, span: Duration, wait: Duration) -> Self {
        let (guessed, seen) = (taken == 0, (taken, span, wait));
        let wait = wait.max(Duration::from_secs(1));
        let (most, period) = if guessed {
            (GUESS, Duration::from_secs(1))
        } else if span <= wait {
            (taken, span + wait)
        } else {
            let period = wait.min(LONGEST_SPAN);
            let most = u128::from(taken) * period.as_nanos() / span.as_nanos();
            (u64::try_from(most).unwrap_or(u64::MAX), period)
        };
        let millis = period.as_nanos().div_ceil(1_000_000);
        let period = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        let surety = if guessed {
            Surety::Guessed
        } else if period > SHORT {
            Surety::Rough
        } else {
            Surety::Seen
        };
        Self {
            most: most.max(1),
            period,
            surety,
            seen,
            fresh: true,
            before: None,
            patience: FIRST_PATIENCE,
            used_up: false,
        }
    }

    /// Nothing was refused for so long.
    fn try_more(&mut self, since_nanos: u64) -> bool {
        let periods = since_nanos / nanos(self.period).max(1);
        if self.before.is_some() && periods >= 2 {
            (self.before, self.patience) = (None, FIRST_PATIENCE);
        }
        if self.surety == Surety::Guessed && self.used_up && periods >= 1 {
            (self.most, self.used_up) = (self.most.saturating_mul(2), false);
            return true;
        }
        let is_rough = self.surety == Surety::Rough;
        let is_long = periods >= self.patience || is_rough && since_nanos >= nanos(self.period.min(LONGEST_SPAN));
        let more = self.used_up && is_long;
        if more {
            (self.before, self.used_up) = (Some(self.most), false);
            let step = if is_rough { self.most } else { (self.most / 20).max(1) };
            self.most = self.most.saturating_add(step);
        }
        more
    }
}
