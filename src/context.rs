//! How long a request may wait, and what it takes: [`Context`].

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cost::{Cost, Unit};
use crate::priority::Priority;

/// "For ever" as an instant that can be reckoned with.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Nobody waits longer without having asked for it.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// How long whoever asks is ready to wait, and what it takes. Cheap to clone, and good for several calls: the deadline
/// is an instant, so that one budget covers them all.
///
/// Without a deadline nobody waits longer than five minutes.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest_throttle::{Context, Limiter};
/// use std::time::Duration;
///
/// let limiter = Limiter::new("10/s")?;
/// let context = Context::within(Duration::from_secs(2));
/// limiter.wait(&context).await?;
/// limiter.wait(&context).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Context {
    deadline: Option<Instant>,
    cost: Cost,
    priority: Priority,
    flow: Option<Arc<str>>,
}

impl Context {
    /// No deadline of one's own: five minutes from the asking, as for everybody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on, no longer than this in all.
    #[must_use]
    pub fn within(budget: Duration) -> Self {
        Self::new().but_within(budget)
    }

    pub(crate) fn but_within(&self, budget: Duration) -> Self {
        let now = Instant::now();
        Self { deadline: Some(now.checked_add(budget).unwrap_or(now + FAR)), ..self.clone() }
    }

    /// No longer than until this instant.
    #[must_use]
    pub fn with_deadline(deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..Self::default() }
    }

    /// And what it takes, beside one request: so much of a unit that quotas count.
    #[must_use]
    pub fn cost(mut self, unit: impl Into<Unit>, amount: u64) -> Self {
        self.cost = self.cost.and(unit, amount);
        self
    }

    /// How urgent it is. [`Priority::Normal`] unless said.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// For whom it is, a tenant or a job: those of the same priority take turns, whoever sends more. All who name nobody
    /// are one.
    #[doc(alias = "tenant")]
    #[must_use]
    pub fn flow(mut self, name: impl Into<Arc<str>>) -> Self {
        self.flow = Some(name.into());
        self
    }

    pub(crate) fn urgency(&self) -> Priority {
        self.priority
    }

    pub(crate) fn flow_name(&self) -> Option<&Arc<str>> {
        self.flow.as_ref()
    }

    /// The instant after which nothing is waited for.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(crate) fn costs(&self) -> &Cost {
        &self.cost
    }

    /// The same, with a deadline for whatever waits.
    pub(crate) fn waiting(&self) -> Self {
        Self { deadline: Some(self.waits_until()), ..self.clone() }
    }

    /// The instant after this delay, or the deadline if that comes first.
    pub(crate) fn no_later_than(&self, delay: Duration) -> Instant {
        let at = Instant::now() + delay;
        self.deadline.map_or(at, |deadline| deadline.min(at))
    }

    /// Until when to wait, at a deadline or for as long as everybody may.
    pub(crate) fn waits_until(&self) -> Instant {
        self.deadline.unwrap_or_else(|| Instant::now() + MAX_WAIT)
    }
}
