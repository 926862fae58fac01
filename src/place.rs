//! A place in the line, from the asking until the decision or the drop.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::admission::{Admission, Arrival, AskId, Asked, GateName, Grant, Use, Wish};
use crate::context::Context;
use crate::driver::Shared;
use crate::observe::{OnWait, Waits};
use crate::refused::{Reason, Refused};
use crate::time::Time;

/// Whoever has waited for so long, says so.
const LONG: Duration = Duration::from_secs(1);

/// Somebody who asks, waits and is decided on. As a future it answers with the grant, and how long that was waited for;
/// without a grant to whoever only waits.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    gate: GateName,
    usage: Use,
    arrival: Option<Arrival>,
    context: Context,
    max_wait: Duration,
    ask: Option<AskId>,
    /// Had and not handed over.
    grant: Option<Grant>,
    began: Option<Instant>,
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    on_wait: Option<OnWait>,
    long: Option<Pin<Box<Sleep>>>,
}

/// What was decided, and after how long.
pub(crate) type Decision = Result<(Option<Grant>, Duration), Refused>;

impl Place {
    pub(crate) fn new(shared: Arc<Shared>, gate: GateName, usage: Use, context: Context, max_wait: Duration) -> Self {
        let (arrival, ask, grant, began, cancelled) = (None, None, None, None, None);
        Self {
            shared,
            gate,
            usage,
            arrival,
            context,
            max_wait,
            ask,
            grant,
            began,
            cancelled,
            on_wait: None,
            long: None,
        }
    }

    /// In this place in the order.
    pub(crate) fn at(mut self, arrival: Option<Arrival>) -> Self {
        self.arrival = arrival;
        self
    }

    pub(crate) fn telling(mut self, on_wait: Option<OnWait>) -> Self {
        self.on_wait = on_wait;
        self
    }

    fn wish(&self) -> Wish<'_> {
        let deadline = self.shared.time(self.context.waits_until(self.max_wait));
        Wish {
            usage: self.usage,
            class: self.context.urgency(),
            flow: self.context.flow_name().cloned(),
            arrival: self.arrival,
            deadline: Some(deadline),
            cancelled: self.context.is_cancelled(),
            ..Wish::new(std::slice::from_ref(&self.gate), self.context.costs())
        }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Takes the place now, before anybody polls.
    pub(crate) fn take(&mut self) -> Result<(), Refused> {
        self.began = Some(Instant::now());
        let shared = Arc::clone(&self.shared);
        shared.with(|core, now| {
            match core.ask(&self.wish(), now)? {
                Asked::Granted(grant) => self.grant = Some(grant),
                Asked::Waiting(id) => self.ask = Some(id),
            }
            Ok(())
        })
    }

    /// How long it has to wait from now at the least, as things stand.
    pub(crate) fn delay(&self) -> Duration {
        let Some(id) = self.ask else { return Duration::ZERO };
        self.shared.with(|core, now| core.estimate(id, now).map_or(Duration::ZERO, |at| at.since(now)))
    }

    /// Asks, or asks what has been decided.
    fn step(&mut self, core: &mut Admission, now: Time) -> Poll<Result<Option<Grant>, Refused>> {
        if let Some(id) = self.ask {
            if self.context.is_cancelled() {
                self.ask = None;
                core.leave(id, now);
                return Poll::Ready(Err(Refused::new(Reason::Cancelled, "")));
            }
            let Some(decision) = core.collect(id) else { return Poll::Pending };
            self.ask = None;
            self.grant = Some(decision?);
        }
        if let Some(mut grant) = self.grant.take() {
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

    /// While it waits: its token may be cancelled, and somebody may want to know why it waits for so long.
    fn watch(&mut self, cx: &mut task::Context<'_>) {
        if let Some(token) = self.context.cancellation() {
            let cancelled = self.cancelled.get_or_insert_with(|| Box::pin(token.clone().cancelled_owned()));
            if cancelled.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        let (Some(OnWait(tell)), Some(began)) = (&self.on_wait, self.began) else { return };
        let long = self.long.get_or_insert_with(|| Box::pin(sleep_until(began + LONG)));
        if long.as_mut().poll(cx).is_ready() {
            if let Some(waits) = self.waits() {
                tell(&waits);
            }
            self.on_wait = None;
        }
    }

    fn waits(&self) -> Option<Waits> {
        let (id, began) = (self.ask?, self.began?);
        let (lane, ahead) = self.shared.with(|core, now| core.why(id, now))?;
        Some(Waits { keys: lane.keys, why: lane.why, ahead, waited: began.elapsed(), at_least: self.delay() })
    }
}

impl Future for Place {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Decision> {
        let began = *self.began.get_or_insert_with(Instant::now);
        let shared = Arc::clone(&self.shared);
        let Ok(runtime) = Handle::try_current() else {
            // Outside a runtime one goes at once or not at all.
            let step = shared.with(|core, now| self.step(core, now));
            let no_runtime = || Poll::Ready(Err(Refused::new(Reason::NoRuntime, "")));
            return if step.is_pending() { no_runtime() } else { step.map_ok(|grant| (grant, began.elapsed())) };
        };
        let mut answer = Poll::Pending;
        shared.with_waker(cx.waker(), &runtime, |core, now| {
            answer = self.step(core, now);
            self.ask
        });
        if answer.is_pending() {
            self.watch(cx);
        }
        answer.map_ok(|grant| (grant, began.elapsed()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(id) = self.ask.take() {
            self.shared.leave(id);
        }
        if let Some(grant) = self.grant.take() {
            self.shared.with(|core, now| core.give_back(grant, now));
        }
    }
}
