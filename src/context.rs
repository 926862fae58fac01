//! How long a request may wait, and what it takes: [`Context`].

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cost::{Cost, Unit};
use crate::priority::Priority;

/// "For ever" as an instant that can be reckoned with.
pub(crate) const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

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
    /// Nothing, if all of it is as usual.
    details: Option<Arc<Details>>,
}

#[derive(Clone, Debug, Default)]
struct Details {
    cost: Cost,
    priority: Priority,
    flow: Option<Arc<str>>,
    cancellation: Option<CancellationToken>,
}

static USUAL_COST: Cost = Cost::new();

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
        self.clone().until(now.checked_add(budget).unwrap_or(now + FAR))
    }

    /// No longer than until this instant.
    #[must_use]
    pub fn with_deadline(deadline: Instant) -> Self {
        Self::new().until(deadline)
    }

    /// The same, until this instant.
    pub(crate) fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// And what it takes, beside one request: so much of a unit that quotas count.
    #[must_use]
    pub fn cost(self, unit: impl Into<Unit>, amount: u64) -> Self {
        self.detail(|details| details.cost = details.cost.clone().and(unit, amount))
    }

    /// How urgent it is. [`Priority::Normal`] unless said.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        self.detail(|details| details.priority = priority)
    }

    /// For whom it is, a tenant or a job: those of the same priority take turns, whoever sends more. All who name nobody
    /// are one.
    #[doc(alias = "tenant")]
    #[must_use]
    pub fn flow(self, name: impl Into<Arc<str>>) -> Self {
        self.detail(|details| details.flow = Some(name.into()))
    }

    /// Whoever waits stops waiting when this token is cancelled, as if its future had been dropped, and is refused with
    /// [`Reason::Cancelled`](crate::Reason::Cancelled). If it is already, nothing is taken.
    #[must_use]
    pub fn cancel_on(self, token: &CancellationToken) -> Self {
        self.detail(|details| details.cancellation = Some(token.clone()))
    }

    fn detail(mut self, set: impl FnOnce(&mut Details)) -> Self {
        set(Arc::make_mut(self.details.get_or_insert_default()));
        self
    }

    pub(crate) fn cancellation(&self) -> Option<&CancellationToken> {
        self.details.as_ref()?.cancellation.as_ref()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancellation().is_some_and(CancellationToken::is_cancelled)
    }

    pub(crate) fn urgency(&self) -> Priority {
        self.details.as_ref().map_or(Priority::default(), |details| details.priority)
    }

    pub(crate) fn flow_name(&self) -> Option<&Arc<str>> {
        self.details.as_ref()?.flow.as_ref()
    }

    /// The instant after which nothing is waited for.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(crate) fn costs(&self) -> &Cost {
        self.details.as_ref().map_or(&USUAL_COST, |details| &details.cost)
    }

    /// The same, with a deadline for whatever waits.
    pub(crate) fn waiting(&self, max_wait: Duration) -> Self {
        self.clone().until(self.waits_until(Instant::now(), max_wait))
    }

    /// The instant after this delay, or the deadline if that comes first.
    pub(crate) fn no_later_than(&self, delay: Duration) -> Instant {
        let at = Instant::now() + delay;
        self.deadline.map_or(at, |deadline| deadline.min(at))
    }

    /// Until when to wait, at a deadline or for as long as everybody may.
    pub(crate) fn waits_until(&self, from: Instant, max_wait: Duration) -> Instant {
        self.deadline.unwrap_or_else(|| from.checked_add(max_wait).unwrap_or(from + FAR))
    }
}
