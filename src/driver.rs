//! When does anybody wake up: the one lock round the admission core, its clock, and its timer.
//!
//! The timer is a task that exists only while somebody waits: the *driver*. Every runtime on which somebody waits
//! has its own, spawned by whoever finds none there, so that nobody depends on a runtime that has died or that
//! nobody polls any more. Nor does anybody depend on another waiter: one that is alive but not polled holds no timer.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::admission::{Admission, AskId, Grant};
use crate::time::{Time, nanos};

/// So many are woken for each time that the lock is held.
const MOST_WAKES: usize = 64;

/// How long a driver sleeps when nothing is due: whatever becomes due rouses it.
const IDLE: Duration = Duration::from_secs(3_600);

/// What its clock shows when a limiter begins, so that it can count what was sent before: a year and more.
const BEGINNING: Time = Time::from_nanos(1 << 55);

/// The admission core, and everything that turns its instants into wake-ups.
#[derive(Debug)]
pub(crate) struct Shared {
    began: Instant,
    state: Mutex<State>,
    /// Notified when, after nobody new is let in, nobody waits and no permit is out.
    pub(crate) idle: Notify,
    /// How many responses hold a place in flight that nobody reads.
    pub(crate) unread: AtomicUsize,
}

#[derive(Debug)]
struct State {
    core: Admission,
    /// By ask: whom to wake once it is decided.
    wakers: Vec<Option<Waker>>,
    drivers: Vec<Seat>,
}

/// One driver, as its runtime's waiters see it.
#[derive(Debug)]
struct Seat {
    runtime: Id,
    rouse: Arc<Notify>,
    sleeps_until: Time,
}

impl Shared {
    pub(crate) fn new(core: Admission) -> Self {
        let state = State { core, wakers: Vec::new(), drivers: Vec::new() };
        Self { began: Instant::now(), state: Mutex::new(state), idle: Notify::new(), unread: AtomicUsize::new(0) }
    }

    /// Does something with the core, at the time that it is once the lock is held, and wakes whom that concerns.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Admission, Time) -> R) -> R {
        let (mut state, now) = self.enter();
        let answer = act(&mut state.core, now);
        self.wake_and_go_on(state);
        answer
    }

    /// As [`with`](Self::with), for somebody who may have to wait: if `act` answers with an ask, its waker is kept,
    /// and a driver runs on this runtime from here on.
    pub(crate) fn with_waker(
        self: &Arc<Self>,
        waker: &Waker,
        runtime: &Handle,
        act: impl FnOnce(&mut Admission, Time) -> Option<AskId>,
    ) {
        // A waker's clone and drop are somebody else's code: never under the lock.
        let mut waker = Some(waker.clone());
        let (mut state, now) = self.enter();
        let mut driver = None;
        if let Some(id) = act(&mut state.core, now) {
            state.keep(id, &mut waker);
            driver = state.missing_driver(runtime.id()).map(|rouse| Driver { shared: Arc::clone(self), rouse });
        }
        self.wake_and_go_on(state);
        if let Some(driver) = driver {
            // Made here, so that a runtime without timers panics in the task that waits, and not unseen in another.
            let sleep = sleep_until(Instant::now() + IDLE);
            runtime.spawn(driver.run(sleep));
            let_others_take_it();
        }
    }

    pub(crate) fn somebody_waits(&self) -> bool {
        self.lock().core.waiting() > 0
    }

    /// Ends a grant. What time it is is only asked where that matters.
    pub(crate) fn end(&self, grant: Grant) {
        let mut state = self.lock();
        state.core.release_at(grant, || self.time(Instant::now()));
        self.wake_and_go_on(state);
    }

    /// Ends an ask whose owner is gone.
    pub(crate) fn leave(&self, id: AskId) {
        let (mut state, now) = self.enter();
        state.core.leave(id, now);
        let old = state.wakers.get_mut(id).and_then(Option::take);
        self.wake_and_go_on(state);
        drop(old);
    }

    /// The lock, and the time that it is once it is held.
    fn enter(&self) -> (MutexGuard<'_, State>, Time) {
        let state = self.lock();
        (state, self.time(Instant::now()))
    }

    /// An instant on the limiter's clock.
    pub(crate) fn time(&self, instant: Instant) -> Time {
        BEGINNING.plus(nanos(instant.saturating_duration_since(self.began)))
    }

    /// The other way round.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.began + time.since(BEGINNING)
    }

    /// Nothing that runs under the lock panics; should it, the others' turn still comes.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rouses the drivers that would oversleep, and wakes everybody who was decided on, outside the lock. True if
    /// there were any.
    #[inline]
    fn wake<'a>(&'a self, state: MutexGuard<'a, State>) -> bool {
        !state.is_quiet() && self.wake_all(state)
    }

    /// As [`wake`](Self::wake), where somebody may have to be woken.
    fn wake_all<'a>(&'a self, mut state: MutexGuard<'a, State>) -> bool {
        let mut any = false;
        loop {
            any |= state.rouse_drivers();
            let wakers = state.due_wakers();
            let more = wakers.len() == MOST_WAKES;
            any |= !wakers.is_empty();
            if state.core.is_drained() {
                self.idle.notify_waiters();
            }
            drop(state);
            for waker in wakers {
                // One waker that panics must not cost the others their turn.
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
            if !more {
                return any;
            }
            state = self.lock();
        }
    }

    /// As [`wake`](Self::wake), by somebody who may go on computing.
    fn wake_and_go_on(&self, state: MutexGuard<'_, State>) {
        if self.wake(state) {
            let_others_take_it();
        }
    }

    /// One turn of a driver: until when it may sleep, or `None` when nobody waits and its seat is gone.
    fn turn(&self, driver: &Driver) -> Option<Instant> {
        let mut state = self.lock();
        let now = Instant::now();
        let time = self.time(now);
        state.core.advance(time);
        let idle = time.plus(nanos(IDLE));
        let sleeps_until = state.core.next().map_or(idle, |next| next.min(idle));
        let waiting = state.core.waiting() > 0;
        state.drivers.retain(|seat| waiting || !driver.sits_on(seat));
        if let Some(seat) = state.drivers.iter_mut().find(|seat| driver.sits_on(seat)) {
            seat.sleeps_until = sleeps_until;
        }
        self.wake(state);
        waiting.then(|| now + sleeps_until.since(time))
    }
}

impl State {
    /// Nobody is to be woken or roused.
    fn is_quiet(&self) -> bool {
        self.drivers.is_empty() && !self.core.has_decided() && !self.core.is_drained()
    }

    /// Keeps the waker, and puts the one that it takes the place of where it was.
    fn keep(&mut self, id: AskId, waker: &mut Option<Waker>) {
        if self.wakers.len() <= id {
            self.wakers.resize(id + 1, None);
        }
        std::mem::swap(&mut self.wakers[id], waker);
    }

    fn due_wakers(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while wakers.len() < MOST_WAKES {
            let Some(id) = self.core.pop_decided() else { break };
            wakers.extend(self.wakers.get_mut(id).and_then(Option::take));
        }
        wakers
    }

    /// True if one was roused that has to sleep less long.
    fn rouse_drivers(&mut self) -> bool {
        if self.drivers.is_empty() {
            return false;
        }
        let (next, waiting, mut earlier) = (self.core.next(), self.core.waiting() > 0, false);
        for seat in &mut self.drivers {
            if !waiting {
                seat.rouse.notify_one();
            } else if let Some(next) = next.filter(|next| *next < seat.sleeps_until) {
                seat.sleeps_until = next;
                seat.rouse.notify_one();
                earlier = true;
            }
        }
        earlier
    }

    /// Takes the seat of the driver of a runtime, if it is free.
    fn missing_driver(&mut self, runtime: Id) -> Option<Arc<Notify>> {
        if self.drivers.iter().any(|seat| seat.runtime == runtime) {
            return None;
        }
        let rouse = Arc::new(Notify::new());
        // Until its first turn it need not be roused.
        self.drivers.push(Seat { runtime, rouse: Arc::clone(&rouse), sleeps_until: Time::ZERO });
        Some(rouse)
    }
}

/// A worker of a multi-threaded runtime keeps the task that it woke last for itself, and other workers do not steal it: it
/// would wait until whoever woke it stops computing. Another task behind it moves it into the queue.
fn let_others_take_it() {
    let runtime = Handle::try_current().ok();
    if let Some(runtime) = runtime.filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread) {
        runtime.spawn(async {});
    }
}

/// The task. Dropped with its runtime, it leaves its seat to the next.
struct Driver {
    shared: Arc<Shared>,
    rouse: Arc<Notify>,
}

impl Driver {
    async fn run(self, sleep: Sleep) {
        let mut sleep = pin!(sleep);
        while let Some(until) = self.shared.turn(&self) {
            if until <= Instant::now() {
                // A timer would round that up to the next millisecond.
                yield_now().await;
            } else {
                sleep.as_mut().reset(until);
                self.doze(sleep.as_mut()).await;
            }
        }
    }

    /// Until the timer fires, or somebody rouses it.
    async fn doze(&self, mut sleep: Pin<&mut Sleep>) {
        let mut roused = pin!(self.rouse.notified());
        poll_fn(|cx| match roused.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => sleep.as_mut().poll(cx),
        })
        .await;
    }

    fn sits_on(&self, seat: &Seat) -> bool {
        Arc::ptr_eq(&seat.rouse, &self.rouse)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.drivers.retain(|seat| !self.sits_on(seat));
    }
}
