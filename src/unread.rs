//! Which responses nobody reads any more: after a while, each gives its place up.
//!
//! A body counts as read while a read of it is under way, however long the server takes. What nobody has begun to read,
//! or has stopped reading, is looked at by a task that exists only while a response is open and somebody waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::permit::Permit;

/// So long nobody has to read, unless set.
pub(crate) const UNREAD_FOR: Duration = Duration::from_secs(60);

/// The open responses of one client.
#[derive(Debug)]
pub(crate) struct Unread {
    after: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Slab<Open>,
    is_watched: bool,
}

/// A response whose body has not ended.
#[derive(Debug)]
struct Open {
    /// Gone once it was given up.
    permit: Option<Permit>,
    /// Since when nobody reads it, if nobody does.
    unread_since: Option<Instant>,
}

/// The place that a response holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    unread: Arc<Unread>,
    place: usize,
    is_read: bool,
}

impl Unread {
    pub(crate) fn new(after: Duration) -> Self {
        Self { after, state: Mutex::default() }
    }

    /// The head of a response is here, and nobody reads its body yet.
    pub(crate) fn hold(self: &Arc<Self>, permit: Permit) -> Hold {
        let somebody_waits = permit.somebody_waits();
        let mut open = Open { permit: Some(permit), unread_since: None };
        open.set_unread(Some(Instant::now()));
        let mut state = self.lock();
        let place = state.open.insert(open);
        if somebody_waits {
            self.watch(state);
        }
        Hold { unread: Arc::clone(self), place, is_read: false }
    }

    /// Somebody waits: a task looks after those who hold places, also if the last one's runtime has died.
    pub(crate) fn look_after(self: &Arc<Self>) {
        self.watch(self.lock());
    }

    fn watch(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if state.is_watched || state.open.is_empty() {
            return;
        }
        // Without a runtime nobody waits either.
        if let Ok(runtime) = Handle::try_current() {
            state.is_watched = true;
            drop(state);
            runtime.spawn(Watch(Arc::clone(self)).run());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up what nobody has read for too long. Answers when to look again; `None` when nothing is open.
    fn give_up(&self) -> Option<Instant> {
        let mut state = self.lock();
        let now = Instant::now();
        let (mut next, mut given_up) = (now + self.after, Vec::new());
        for (_, open) in &mut state.open {
            let Some(due) = open.unread_since.map(|since| since + self.after) else { continue };
            if due <= now {
                given_up.extend(open.end());
            } else {
                next = next.min(due);
            }
        }
        state.is_watched = !state.open.is_empty();
        let is_watched = state.is_watched;
        drop(state);
        for permit in given_up {
            let (key, after) = (permit.key(), self.after);
            warn!(target: "reqwest_throttle::body", key, ?after, "nobody reads a response: it does not count as in flight any more");
        }
        is_watched.then_some(next)
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
    /// Somebody reads, from now on or not any more.
    pub(crate) fn is_read(&mut self, is_read: bool) {
        if is_read && self.is_read {
            return;
        }
        self.is_read = is_read;
        if let Some(open) = self.unread.lock().open.get_mut(self.place) {
            open.set_unread((!is_read).then(Instant::now));
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let open = self.unread.lock().open.try_remove(self.place);
        // It ends while the lock is free.
        drop(open.and_then(|mut open| open.end()));
    }
}

/// The task. Dropped with its runtime, it leaves its work to the next.
struct Watch(Arc<Unread>);

impl Watch {
    async fn run(self) {
        while let Some(next) = self.0.give_up() {
            sleep_until(next).await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.lock().is_watched = false;
    }
}
