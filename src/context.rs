//! How long a request may wait, and what it takes: [`Context`].

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cost::{Cost, Unit};
use crate::priority::Priority;

/// "For ever" as an instant that can be reckoned with.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// How long whoever asks is ready to wait, and what it takes. Cheap to clone, and good for several calls: the deadline
/// is an instant, so that one budget covers them all.
///
/// Without a deadline nobody waits longer than five minutes, or what [`LimiterBuilder::max_wait`](crate::LimiterBuilder) says.
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
    cancellation: Option<CancellationToken>,
}

impl Context {
    /// No deadline of one's own: as long as everybody may wait, five minutes from the asking.
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

    /// Whoever waits stops waiting when this token is cancelled, as if its future had been dropped, and is refused with
    /// [`Reason::Cancelled`](crate::Reason::Cancelled). If it is already, nothing is taken.
    #[must_use]
    pub fn cancel_on(mut self, token: &CancellationToken) -> Self {
        self.cancellation = Some(token.clone());
        self
    }

    pub(crate) fn cancellation(&self) -> Option<&CancellationToken> {
        self.cancellation.as_ref()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancellation.as_ref().is_some_and(CancellationToken::is_cancelled)
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
    pub(crate) fn waiting(&self, max_wait: Duration) -> Self {
        Self { deadline: Some(self.waits_until(max_wait)), ..self.clone() }
    }

    /// The instant after this delay, or the deadline if that comes first.
    pub(crate) fn no_later_than(&self, delay: Duration) -> Instant {
        let at = Instant::now() + delay;
        self.deadline.map_or(at, |deadline| deadline.min(at))
    }

    /// Until when to wait, at a deadline or for as long as everybody may.
    pub(crate) fn waits_until(&self, max_wait: Duration) -> Instant {
        let now = Instant::now();
        self.deadline.unwrap_or_else(|| now.checked_add(max_wait).unwrap_or(now + FAR))
    }
}
