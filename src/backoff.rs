//! How long before the next attempt: [`Backoff`]. Randomness is an argument: `u32::MAX` stands for "just under one".

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::wait::Wait;

/// A stated wait is jittered upward only: by a tenth of it at most, and by this at most.
const MOST_JITTER: Duration = Duration::from_secs(1);

/// The bounds of the while for which a refusal without a stated wait shuts a gate.
const LEAST_UNSTATED: Duration = Duration::from_secs(1);
const MOST_UNSTATED: Duration = Duration::from_secs(60);

/// How long a refusal shuts a gate, after so many before it that stated no wait.
pub(crate) fn pause(wait: Wait, doublings: u32) -> Duration {
    match wait {
        Wait::Stated(wait, random) => after_stated(wait, random),
        Wait::Unstated(random) => unstated(doublings, random),
    }
}

/// The wait that a server stated, plus up to a tenth (and at most a second), so that a fleet that was told
/// the same number does not come back at the same instant. Never less than stated.
fn after_stated(wait: Duration, random: u32) -> Duration {
    wait.saturating_add(fraction((wait / 10).min(MOST_JITTER), random))
}

/// The while for which a refusal that states none shuts a gate: a second, then up to 2, 4, … 60 seconds, drawn from above
/// that first second (full jitter above a floor).
fn unstated(doublings: u32, random: u32) -> Duration {
    let most = LEAST_UNSTATED.saturating_mul(1 << doublings.min(16)).min(MOST_UNSTATED);
    LEAST_UNSTATED + fraction(most.saturating_sub(LEAST_UNSTATED), random)
}

/// How long a request that failed waits before it goes again, of its own accord: half a second that doubles up to 30 s,
/// with full jitter, unless set. What the server states goes before it.
///
/// # Examples
///
/// ```
/// use reqwest_throttle::{Backoff, Client};
/// use std::time::Duration;
///
/// let doubling = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(10));
/// let client = Client::builder().backoff(doubling).build()?;
/// // Or whatever counts durations, made anew for each request; its end ends the attempts.
/// let mine = Backoff::from_iter(|| [1, 2, 5].map(Duration::from_secs));
/// let client = Client::builder().backoff(mine).build()?;
/// # Ok::<(), reqwest_throttle::Error>(())
/// ```
#[derive(Clone)]
pub struct Backoff(Kind);

#[derive(Clone)]
enum Kind {
    Exponential { first: Duration, most: Duration },
    Each(Arc<dyn Fn() -> Delays + Send + Sync>),
}

/// The waits of one request.
pub(crate) type Delays = Box<dyn Iterator<Item = Duration> + Send>;

impl Default for Backoff {
    fn default() -> Self {
        Self::exponential(Duration::from_millis(500), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Anything up to `first`, then up to twice as long each time, and never longer than `most` ("full jitter", as AWS calls
    /// it).
    #[must_use]
    pub fn exponential(first: Duration, most: Duration) -> Self {
        Self(Kind::Exponential { first, most })
    }

    /// The waits that an iterator counts, made anew for each request. When it ends, so do the attempts; they also end after
    /// [`max_attempts`](crate::ClientBuilder::max_attempts), and with the [budget](crate::ClientBuilder::retry_budget). Jitter is its
    /// own.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "of a factory, which the trait does not know")]
    pub fn from_iter<I>(factory: impl Fn() -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = Duration>,
        I::IntoIter: Send + 'static,
    {
        Self(Kind::Each(Arc::new(move || Box::new(factory().into_iter()))))
    }

    /// The waits of the crate `backoff`, made anew for each request: its `None` ends the attempts.
    #[cfg(feature = "backoff")]
    #[cfg_attr(docsrs, doc(cfg(feature = "backoff")))]
    #[must_use]
    pub fn from_backoff<B>(factory: impl Fn() -> B + Send + Sync + 'static) -> Self
    where
        B: ::backoff::backoff::Backoff + Send + 'static,
    {
        Self::from_iter(move || {
            let mut backoff = factory();
            std::iter::from_fn(move || backoff.next_backoff())
        })
    }

    /// The wait after so many retries, the `delays` of the same request before. `None` if it has ended.
    pub(crate) fn delay(&self, delays: &mut Option<Delays>, retries: u32, random: u32) -> Option<Duration> {
        match &self.0 {
            // Does not wrap: from some number on it is drawn from all of `most`.
            Kind::Exponential { first, most } => {
                let factor = 1_u32.checked_shl(retries).filter(|factor| *factor > 0).unwrap_or(u32::MAX);
                Some(fraction(first.saturating_mul(factor).min(*most), random))
            }
            Kind::Each(factory) => delays.get_or_insert_with(|| factory()).next(),
        }
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Exponential { first, most } => write!(f, "Backoff({first:?} to {most:?})"),
            Kind::Each(_) => f.write_str("Backoff(its own)"),
        }
    }
}

/// So much of a duration, `random` of 2^32 parts.
fn fraction(whole: Duration, random: u32) -> Duration {
    // A fraction of a duration is one, so its nanoseconds fit wherever the whole's do.
    let nanos = whole.as_nanos().saturating_mul(random.into()) >> 32;
    let subsecond = u32::try_from(nanos % 1_000_000_000).unwrap_or(0);
    Duration::new(u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX), subsecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_wait_is_lengthened_by_a_tenth_or_a_second_and_never_shortened() {
        let (two, hour) = (Duration::from_secs(2), Duration::from_secs(3_600));
        assert_eq!(after_stated(two, 0), two);
        assert_eq!(after_stated(two, 1 << 31), Duration::from_millis(2_100));
        assert!(after_stated(two, u32::MAX) < Duration::from_millis(2_200));
        assert!(after_stated(hour, u32::MAX) < hour + MOST_JITTER);
        assert_eq!(after_stated(Duration::MAX, u32::MAX), Duration::MAX);
    }

    #[test]
    fn an_unstated_wait_doubles_from_a_second_to_a_minute_and_is_never_less_than_a_second() {
        for (doublings, most) in [(0, 1), (1, 2), (2, 4), (5, 32), (6, 60), (7, 60), (100, 60), (u32::MAX, 60)] {
            let longest = unstated(doublings, u32::MAX);
            assert!(Duration::from_secs(most).abs_diff(longest) < Duration::from_micros(1), "{doublings}: {longest:?}");
        }
        for doublings in 0..200 {
            assert_eq!(unstated(doublings, 0), Duration::from_secs(1));
        }
    }

    #[test]
    fn a_delay_grows_to_its_cap_and_never_wraps() {
        let backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(30));
        let delay = |backoff: &Backoff, retries, random| backoff.delay(&mut None, retries, random).unwrap();
        let longest: Vec<_> = (0..200).map(|retries| delay(&backoff, retries, u32::MAX)).collect();
        assert!(longest.is_sorted());
        let near =
            |delay: Duration, seconds: u64| Duration::from_secs(seconds).abs_diff(delay) < Duration::from_micros(1);
        assert!(near(longest[0], 1) && near(longest[4], 16) && longest[5..].iter().all(|delay| near(*delay, 30)));
        assert_eq!(delay(&Backoff::default(), 3, 0), Duration::ZERO);
    }

    #[test]
    fn an_iterator_counts_for_each_request_anew_until_it_ends() {
        let backoff = Backoff::from_iter(|| [1, 2].map(Duration::from_secs));
        for _ in 0..2 {
            let mut delays = None;
            let all: Vec<_> = (0..3).map(|retries| backoff.delay(&mut delays, retries, 0)).collect();
            assert_eq!(all, [Some(Duration::from_secs(1)), Some(Duration::from_secs(2)), None]);
        }
    }
}
