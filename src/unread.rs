//! Which responses nobody reads any more: after a while, each gives its place up.
//!
//! A body counts as read while a read of it is under way, however long the server takes; what came meanwhile and was not
//! fetched is not read any more. Whoever waits begins a task that looks after the open ones, one on each runtime on which
//! somebody waits, so that nobody depends on a runtime that has died or that nobody polls any more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::context::FAR;
use crate::permit::Permit;
use crate::wait::Reply;

/// So long nobody has to read, unless set.
pub(crate) const UNREAD_FOR: Duration = Duration::from_secs(60);

/// Nobody looks more often.
const LEAST_SLEEP: Duration = Duration::from_millis(1);

/// The open responses of one client.
#[derive(Debug)]
pub(crate) struct Unread {
    after: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Slab<Open>,
    /// Counts the responses that were ever open.
    opened: u64,
    watched_on: Vec<Id>,
}

/// A response whose body has not ended.
#[derive(Debug)]
struct Open {
    number: u64,
    /// Gone once it was given up.
    permit: Option<Permit>,
    /// Since when nobody reads it, if nobody does.
    unread_since: Option<Instant>,
}

/// Which response.
#[derive(Clone, Copy, Debug)]
struct Place {
    place: usize,
    number: u64,
}

/// The place that a response holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    unread: Arc<Unread>,
    place: Place,
    /// Whom to wake, and what tells of it.
    waker: Option<(Waker, Waker)>,
}

/// Something has come: from now on it is not read until somebody fetches it.
struct Come {
    unread: Arc<Unread>,
    place: Place,
    waker: Waker,
}

impl Unread {
    pub(crate) fn new(after: Duration) -> Self {
        Self { after: after.min(FAR), state: Mutex::default() }
    }

    /// The head of a response is here, and nobody reads its body yet.
    pub(crate) fn hold(self: &Arc<Self>, permit: Permit) -> Hold {
        let (mut state, now) = (self.lock(), Instant::now());
        state.opened += 1;
        let number = state.opened;
        let mut open = Open { number, permit: Some(permit), unread_since: None };
        open.set_unread(Some(now));
        let place = state.open.insert(open);
        let somebody_waits = state.open[place].permit.as_ref().is_some_and(Permit::somebody_waits);
        if somebody_waits {
            self.watch(state);
        }
        Hold { unread: Arc::clone(self), place: Place { place, number }, waker: None }
    }

    /// Somebody waits here: a task looks after those who hold places.
    pub(crate) fn look_after(self: &Arc<Self>) {
        self.watch(self.lock());
    }

    fn watch(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if state.open.is_empty() {
            return;
        }
        // Without a runtime nobody waits either.
        let Ok(runtime) = Handle::try_current() else { return };
        let id = runtime.id();
        if !state.watched_on.contains(&id) {
            state.watched_on.push(id);
            drop(state);
            runtime.spawn(Watch { unread: Arc::clone(self), runtime: id }.run());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up what nobody has read for too long. True if there was anything.
    pub(crate) fn give_up(&self) -> bool {
        let (state, now) = (self.lock(), Instant::now());
        self.give_up_at(state, now).1
    }

    /// Answers when there may be more of it.
    fn give_up_at(&self, mut state: MutexGuard<'_, State>, now: Instant) -> (Instant, bool) {
        let (mut next, mut given_up) = (now + self.after, Vec::new());
        for (_, open) in &mut state.open {
            let Some(due) = open.unread_since.map(|since| since + self.after) else { continue };
            if due <= now {
                given_up.extend(open.end());
            } else {
                next = next.min(due);
            }
        }
        drop(state);
        let any = !given_up.is_empty();
        for permit in given_up {
            let (key, after) = (permit.key(), self.after);
            warn!(target: "reqwest_throttle::body", key, ?after, "nobody reads a response: it does not count as in flight any more");
        }
        (next.max(now + LEAST_SLEEP), any)
    }

    fn set_unread(&self, at: Place, is_unread: bool) {
        let mut state = self.lock();
        if let Some(open) = state.open.get_mut(at.place).filter(|open| open.number == at.number) {
            open.set_unread(is_unread.then(Instant::now));
        }
    }
}

impl Open {
    fn set_unread(&mut self, since: Option<Instant>) {
        if let Some(permit) = self.permit.as_ref().filter(|_| since.is_some() != self.unread_since.is_some()) {
            permit.note_unread(since.is_some());
        }
        self.unread_since = since;
    }

    fn end(&mut self) -> Option<Permit> {
        self.set_unread(None);
        self.permit.take()
    }
}

impl Hold {
    /// Somebody reads. The waker is to be woken in the place of this one.
    pub(crate) fn begin_read(&mut self, waker: &Waker) -> &Waker {
        let Self { unread, place, .. } = self;
        if self.waker.as_ref().is_none_or(|(known, _)| !known.will_wake(waker)) {
            let come = Come { unread: Arc::clone(unread), place: *place, waker: waker.clone() };
            self.waker = Some((waker.clone(), Waker::from(Arc::new(come))));
        }
        self.waker.as_ref().map_or(Waker::noop(), |(_, come)| come)
    }

    /// The read goes on, or has fetched something.
    pub(crate) fn has_read(&self, is_pending: bool) {
        self.unread.set_unread(self.place, !is_pending);
    }

    /// Its last frame is here, and says this.
    pub(crate) fn has_heard(&self, reply: Reply) {
        let open = self.unread.lock().open.get_mut(self.place.place).and_then(Open::end);
        // It is told while the lock is free.
        if let Some(mut permit) = open {
            permit.heard(reply);
        }
    }
}

impl Wake for Come {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unread.set_unread(self.place, true);
        self.waker.wake_by_ref();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let open = self.unread.lock().open.try_remove(self.place.place);
        // It ends while the lock is free.
        drop(open.and_then(|mut open| open.end()));
    }
}

/// The task. It ends when nothing is open; dropped with its runtime, it leaves its work to the next.
struct Watch {
    unread: Arc<Unread>,
    runtime: Id,
}

impl Watch {
    async fn run(self) {
        while let Some(next) = self.turn() {
            sleep_until(next).await;
        }
    }

    fn turn(&self) -> Option<Instant> {
        let mut state = self.unread.lock();
        if state.open.is_empty() {
            state.watched_on.retain(|runtime| *runtime != self.runtime);
            return None;
        }
        Some(self.unread.give_up_at(state, Instant::now()).0)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.unread.lock().watched_on.retain(|runtime| *runtime != self.runtime);
    }
}
