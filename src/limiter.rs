//! Waiting for one's turn: [`Limiter`], and the [`Permit`] that it hands out.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::admission::{Admission, Arrival, AskId, Asked, GateName, Grant, Snapshot, Use, Wish};
use crate::context::Context;
use crate::cost::{Cost, Unit};
use crate::driver::Shared;
use crate::invalid::Invalid;
use crate::key::Key;
use crate::limits::Limits;
use crate::refused::{Reason, Refused};
use crate::time::Time;
use crate::wait::Wait;

/// A limiter: everybody who shares it waits in one line and goes in order of arrival, as soon as its limits allow.
///
/// Clones share the limits. The line is a queue: whoever leaves it, by dropping its future or at its deadline,
/// leaves it as if it had never asked, and everybody behind moves up.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest_throttle::{Context, Limiter, Limits};
/// use std::time::Duration;
///
/// let limiter = Limiter::new(Limits::new().quota("10/s burst 5").in_flight(2))?;
/// let permit = limiter.acquire(&Context::within(Duration::from_secs(1))).await?;
/// // send the request, read its answer
/// drop(permit);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "rate limiter")]
#[doc(alias = "semaphore")]
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
    gate: GateName,
}

/// A limiter has one set of limits, for all of its keys.
const RULE: usize = 0;

impl Limiter {
    /// A limiter with these limits: a [`Limits`], a [`Quota`](crate::Quota), or a quota's text.
    ///
    /// # Errors
    ///
    /// When the limits cannot be read or cannot be kept: the error names the value and what is allowed.
    pub fn new<L>(limits: L) -> Result<Self, Invalid>
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        let core = Admission::new(checked(limits)?.into());
        Ok(Self { shared: Arc::new(Shared::new(core)), gate: GateName { rule: RULE, key: Key::new("") } })
    }

    /// The limiter of one key: the same limits, counted by themselves.
    pub(crate) fn key(&self, key: Key) -> Self {
        Self { shared: Arc::clone(&self.shared), gate: GateName { rule: RULE, key } }
    }

    /// A permit, if one can be had without waiting and without overtaking anybody.
    ///
    /// # Errors
    ///
    /// [`Reason::WouldWait`](crate::Reason::WouldWait), with the limit that is in the way and the wait that it would take.
    pub fn try_acquire(&self) -> Result<Permit, Refused> {
        let (gates, cost) = (std::slice::from_ref(&self.gate), Cost::new());
        match self.shared.with(|core, now| core.ask(&Wish::new(gates, &cost), now))? {
            Asked::Granted(grant) => Ok(Permit { shared: Arc::clone(&self.shared), grant: Some(grant) }),
            Asked::Waiting(_) => Err(Refused::new(Reason::WouldWait, "")),
        }
    }

    /// Waits for one's turn: wait, then send.
    ///
    /// The limiter does not hear when the answer comes. A window therefore counts the request from a while after its
    /// turn (a twentieth of the window, between 20 ms and 1 s): it is safe on a network whose delays differ by less
    /// than that. With [`acquire`](Self::acquire), or through [`Client`](crate::Client), it counts from the answer, as
    /// [`Anchor`](crate::Anchor) says.
    ///
    /// # Errors
    ///
    /// As soon as it is certain that the deadline of the context cannot be met, and at the deadline at the latest:
    /// [`Reason::Deadline`](crate::Reason::Deadline). When requests in flight are limited, which only a permit can
    /// count: [`Reason::NeedsPermit`](crate::Reason::NeedsPermit). When it would have to wait outside a tokio
    /// runtime: [`Reason::NoRuntime`](crate::Reason::NoRuntime).
    ///
    /// # Panics
    ///
    /// When it has to wait on a tokio runtime whose timers are disabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line; nothing was taken.
    pub fn wait<'a>(&'a self, context: &Context) -> impl Future<Output = Result<(), Refused>> + Send + use<'a> {
        let place = Place::new(self, Use::Unseen, None, context);
        async { place.await.map(|_| ()) }
    }

    /// Waits for a permit. Hold it until the request has ended: it counts as in flight, and its end is when windows take
    /// the answer to have come (or what their [`Anchor`](crate::Anchor) says, if that is earlier).
    ///
    /// # Errors
    ///
    /// As soon as it is certain that the deadline of the context cannot be met, and at the deadline at the latest:
    /// [`Reason::Deadline`](crate::Reason::Deadline). When it would have to wait outside a tokio runtime:
    /// [`Reason::NoRuntime`](crate::Reason::NoRuntime).
    ///
    /// # Panics
    ///
    /// When it has to wait on a tokio runtime whose timers are disabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line; nothing was taken.
    pub fn acquire<'a>(&'a self, context: &Context) -> impl Future<Output = Result<Permit, Refused>> + Send + use<'a> {
        self.acquire_in_place(None, context)
    }

    /// As [`acquire`](Self::acquire), in the place of a permit that was recalled or refused.
    pub(crate) fn acquire_in_place<'a>(
        &'a self,
        arrival: Option<Arrival>,
        context: &Context,
    ) -> impl Future<Output = Result<Permit, Refused>> + Send + use<'a> {
        let place = Place::new(self, Use::Permit, arrival, context);
        async { Ok(Permit { shared: Arc::clone(&self.shared), grant: place.await? }) }
    }

    /// Nobody passes before this instant; after it the first one goes ahead of the others, until its answer or for a
    /// second, and then they go at the steady rate. Whoever cannot wait that long is refused now. Of several pauses
    /// the longest holds.
    pub fn pause_until(&self, until: Instant) {
        let until = self.shared.time(until);
        self.shared.with(|core, now| core.pause(&self.gate, until, now));
    }

    /// Other limits from now on, for everybody who shares this limiter, also for those who wait. What has been used
    /// under a quota stays used under the most similar one of the same unit that takes its place.
    ///
    /// # Errors
    ///
    /// When the limits cannot be read or cannot be kept; then the old ones stay.
    pub fn set_limits<L>(&self, limits: L) -> Result<(), Invalid>
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        let limits = checked(limits)?;
        self.shared.with(|core, now| core.set_limits(RULE, limits, now));
        Ok(())
    }

    /// How each key stands: what is left, how many are in flight, who waits and for what.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.with(Admission::snapshot)
    }
}

fn checked<L>(limits: L) -> Result<Limits, Invalid>
where
    L: TryInto<Limits>,
    L::Error: Into<Invalid>,
{
    let limits = limits.try_into().map_err(Into::into)?;
    limits.check()?;
    Ok(limits)
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").finish_non_exhaustive()
    }
}

/// Leave to send one request, from [`Limiter::acquire`] or [`Limiter::try_acquire`]. Dropping it ends the request: its
/// slot is free again, and what a window has not heard the answer of is answered now.
#[must_use = "a permit that is dropped counts as a request that has ended"]
pub struct Permit {
    shared: Arc<Shared>,
    /// Only gone while it is being ended.
    grant: Option<Grant>,
}

impl Permit {
    /// To be called when the request leaves. False if it must not leave any more: then give the permit back.
    pub(crate) fn send(&mut self) -> bool {
        let grant = self.grant.as_mut();
        grant.is_some_and(|grant| self.shared.with(|core, now| core.send(grant, now)))
    }

    /// The server took the request.
    pub(crate) fn answered(&mut self) {
        if let Some(grant) = &mut self.grant {
            self.shared.with(|core, now| core.answered(grant, now));
        }
    }

    /// The server refused the request because of traffic.
    pub(crate) fn refused(&mut self, wait: Wait) {
        if let Some(grant) = &mut self.grant {
            self.shared.with(|core, now| core.refused(grant, 0, wait, now));
        }
    }

    /// The request took so much of a unit, and not what it was taken to cost. More goes into debt, which those who come
    /// next wait for; less is there for others.
    pub fn settle(&mut self, unit: impl Into<Unit>, actual: u64) {
        if let Some(grant) = &mut self.grant {
            let unit = unit.into();
            self.shared.with(|core, now| core.settle(grant, &unit, actual, now));
        }
    }

    /// The request was never sent, and is as if it had not been granted. Answers its place in the line.
    pub(crate) fn give_back(mut self) -> Option<Arrival> {
        let grant = self.grant.take()?;
        let arrival = grant.arrival;
        self.shared.with(|core, now| core.give_back(grant, now));
        Some(arrival)
    }

    /// The place in the line, for another attempt of the same request.
    pub(crate) fn arrival(&self) -> Option<Arrival> {
        self.grant.as_ref().map(|grant| grant.arrival)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.shared.with(|core, now| core.release(grant, now));
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

/// A place in the line, from the first poll until the decision or the drop.
struct Place<'a> {
    limiter: &'a Limiter,
    usage: Use,
    arrival: Option<Arrival>,
    context: Context,
    ask: Option<AskId>,
}

impl<'a> Place<'a> {
    fn new(limiter: &'a Limiter, usage: Use, arrival: Option<Arrival>, context: &Context) -> Self {
        Self { limiter, usage, arrival, context: context.clone(), ask: None }
    }

    fn wish(&self) -> Wish<'_> {
        let deadline = self.limiter.shared.time(self.context.waits_until());
        Wish {
            usage: self.usage,
            class: self.context.urgency(),
            flow: self.context.flow_name().cloned(),
            arrival: self.arrival,
            deadline: Some(deadline),
            ..Wish::new(std::slice::from_ref(&self.limiter.gate), self.context.costs())
        }
    }

    /// Asks, or asks what has been decided.
    fn step(&mut self, core: &mut Admission, now: Time) -> Poll<Result<Option<Grant>, Refused>> {
        if let Some(id) = self.ask {
            let Some(decision) = core.collect(id) else { return Poll::Pending };
            self.ask = None;
            let mut grant = decision?;
            if core.send(&mut grant, now) {
                return Poll::Ready(Ok(self.hand_over(grant, core, now)));
            }
            // Polled so long after the grant that what it took is not there any more: back to the old place.
            self.arrival = Some(grant.arrival);
            core.give_back(grant, now);
        }
        match core.ask(&self.wish(), now)? {
            Asked::Granted(grant) => Poll::Ready(Ok(self.hand_over(grant, core, now))),
            Asked::Waiting(id) => {
                self.ask = Some(id);
                Poll::Pending
            }
        }
    }

    /// Of a bare wait nothing more will be heard: its grant ends here.
    fn hand_over(&self, grant: Grant, core: &mut Admission, now: Time) -> Option<Grant> {
        if self.usage == Use::Permit {
            return Some(grant);
        }
        core.release(grant, now);
        None
    }
}

/// Answers without a grant to whoever only waits.
impl Future for Place<'_> {
    type Output = Result<Option<Grant>, Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let shared = Arc::clone(&self.limiter.shared);
        let Ok(runtime) = Handle::try_current() else {
            // Outside a runtime one goes at once or not at all.
            let step = shared.with(|core, now| self.step(core, now));
            return if step.is_pending() { Poll::Ready(Err(Refused::new(Reason::NoRuntime, ""))) } else { step };
        };
        let mut answer = Poll::Pending;
        shared.with_waker(cx.waker(), &runtime, |core, now| {
            answer = self.step(core, now);
            self.ask
        });
        answer
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.ask.take() {
            self.limiter.shared.leave(id);
        }
    }
}
