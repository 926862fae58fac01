//! A place in the line, from the asking until the decision or the drop.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{self, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::{Level, enabled, info};

use crate::admission::{Admission, Arrival, AskId, Asked, Grant, Use, Wish};
use crate::context::Context;
use crate::entrance::Entrance;
use crate::observe::{Tell, Waits};
use crate::refused::{Reason, Refused};
use crate::time::Time;

/// Whoever has waited for so long, says so.
const LONG: Duration = Duration::from_secs(1);

/// Somebody who asks, waits and is decided on. As a future it answers with the grant; without a grant to whoever only
/// waits.
#[derive(Debug)]
pub(crate) struct Place {
    entrance: Arc<Entrance>,
    asker: Asker,
    watch: Watch,
}

/// What is asked for, and how far that has come.
#[derive(Debug)]
struct Asker {
    usage: Use,
    context: Context,
    began: Option<Instant>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// To be asked for, in the place of an earlier attempt if there was one.
    New(Option<Arrival>),
    Waiting(AskId),
    /// Had and not handed over.
    Granted(Grant),
    Over,
}

/// What is looked at while one waits.
#[derive(Debug)]
struct Watch {
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Whoever wants to know why it waits has been told.
    told: bool,
    long: Option<Pin<Box<Sleep>>>,
}

impl Place {
    /// In the place of an earlier attempt, if there was one.
    pub(crate) fn new(entrance: Arc<Entrance>, usage: Use, context: Context, arrival: Option<Arrival>) -> Self {
        let asker = Asker { usage, context, began: None, stage: Stage::New(arrival) };
        Self { entrance, asker, watch: Watch { cancelled: None, told: false, long: None } }
    }

    pub(crate) fn entrance(&self) -> &Arc<Entrance> {
        &self.entrance
    }

    /// Takes the place now, before anybody polls.
    pub(crate) fn take(&mut self) -> Result<(), Refused> {
        let Self { entrance, asker, .. } = self;
        entrance.shared.with(|core, now| asker.ask(entrance, core, now))
    }

    /// For how long it has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.asker.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    /// How long it has to wait from now at the least, as things stand.
    pub(crate) fn delay(&self) -> Duration {
        let Stage::Waiting(id) = self.asker.stage else { return Duration::ZERO };
        self.entrance.shared.with(|core, now| core.estimate(id, now).map_or(Duration::ZERO, |at| at.since(now)))
    }

    /// Asks, or asks what has been decided, and leaves the waker if that is to come.
    fn step(&mut self, cx: &task::Context<'_>) -> Poll<Result<Option<Grant>, Refused>> {
        let Self { entrance, asker, .. } = self;
        let shared = &entrance.shared;
        if let Some(id) = asker.waiting().filter(|_| asker.context.is_cancelled()) {
            asker.stage = Stage::Over;
            shared.leave(id);
            return Poll::Ready(Err(Refused::new(Reason::Cancelled, "")));
        }
        if let Stage::Waiting(_) = asker.stage {
            let decided = shared.with(|core, now| asker.step(entrance, core, now));
            if decided.is_ready() {
                return decided;
            }
        }
        let Ok(runtime) = Handle::try_current() else {
            // Outside a runtime one goes at once or not at all.
            let step = shared.with(|core, now| asker.step(entrance, core, now));
            return if step.is_ready() { step } else { Poll::Ready(Err(Refused::new(Reason::NoRuntime, ""))) };
        };
        let mut answer = Poll::Pending;
        shared.with_waker(cx.waker(), &runtime, |core, now| {
            answer = asker.step(entrance, core, now);
            asker.waiting()
        });
        answer
    }

    /// While it waits: its token may be cancelled, and somebody may want to know why it waits for so long.
    fn watch(&mut self, cx: &mut task::Context<'_>) {
        if let Some(token) = self.asker.context.cancellation() {
            let cancelled = self.watch.cancelled.get_or_insert_with(|| Box::pin(token.clone().cancelled_owned()));
            if cancelled.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        let wanted = self.entrance.on_wait.is_some() || enabled!(target: "reqwest_throttle::wait", Level::INFO);
        let Some(began) = self.asker.began.filter(|_| wanted && !self.watch.told) else { return };
        let long = self.watch.long.get_or_insert_with(|| Box::pin(sleep_until(began + LONG)));
        if long.as_mut().poll(cx).is_ready() {
            self.tell();
            self.watch.told = true;
        }
    }

    fn tell(&self) {
        let Some(waits) = self.waits() else { return };
        if let Some(Tell(tell)) = &self.entrance.on_wait {
            tell(&waits);
        }
        info!(target: "reqwest_throttle::wait", "{waits}");
    }

    fn waits(&self) -> Option<Waits> {
        let id = self.asker.waiting()?;
        let unread = self.entrance.shared.unread.load(Relaxed);
        let (lane, ahead) = self.entrance.shared.with(|core, now| core.why(id, now))?;
        Some(Waits { keys: lane.keys, why: lane.why, ahead, waited: self.waited(), at_least: self.delay(), unread })
    }
}

impl Asker {
    fn waiting(&self) -> Option<AskId> {
        if let Stage::Waiting(id) = self.stage { Some(id) } else { None }
    }

    /// Asks, or asks what has been decided.
    fn step(&mut self, entrance: &Entrance, core: &mut Admission, now: Time) -> Poll<Result<Option<Grant>, Refused>> {
        if let Stage::Waiting(id) = self.stage {
            let Some(decision) = core.collect(id) else { return Poll::Pending };
            self.stage = Stage::Over;
            self.stage = Stage::Granted(decision?);
        }
        if let Some(grant) = self.granted() {
            if core.send(&grant, now) {
                return Poll::Ready(Ok(self.hand_over(grant, core, now)));
            }
            // Polled so long after the grant that what it took is not there any more: back to the old place.
            self.stage = Stage::New(Some(grant.arrival));
            core.give_back(grant, now);
        }
        self.ask(entrance, core, now)?;
        self.granted().map_or(Poll::Pending, |grant| Poll::Ready(Ok(self.hand_over(grant, core, now))))
    }

    fn ask(&mut self, entrance: &Entrance, core: &mut Admission, now: Time) -> Result<(), Refused> {
        let Stage::New(arrival) = std::mem::replace(&mut self.stage, Stage::Over) else { return Ok(()) };
        let began = *self.began.get_or_insert_with(|| entrance.shared.instant(now));
        let waits_until = self.context.waits_until(began, entrance.max_wait);
        let asked = core.ask(
            &Wish {
                usage: self.usage,
                class: self.context.urgency(),
                flow: self.context.flow_name().cloned(),
                arrival,
                deadline: Some(entrance.shared.time(waits_until)),
                cancelled: self.context.is_cancelled(),
                ..Wish::new(&entrance.gates, self.context.costs())
            },
            now,
        )?;
        self.stage = match asked {
            Asked::Granted(grant) => Stage::Granted(grant),
            Asked::Waiting(id) => Stage::Waiting(id),
        };
        Ok(())
    }

    fn granted(&mut self) -> Option<Grant> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Granted(grant) => Some(grant),
            other => {
                self.stage = other;
                None
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

impl Future for Place {
    type Output = Result<Option<Grant>, Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let answer = self.step(cx);
        if answer.is_pending() {
            self.watch(cx);
        }
        answer
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.asker.stage, Stage::Over) {
            Stage::Waiting(id) => self.entrance.shared.leave(id),
            Stage::Granted(grant) => self.entrance.shared.with(|core, now| core.give_back(grant, now)),
            Stage::New(_) | Stage::Over => {}
        }
    }
}

/// A place of somebody who only waits.
pub(crate) struct Turn(pub(crate) Place);

impl Future for Turn {
    type Output = Result<(), Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_ok(|_| ())
    }
}
