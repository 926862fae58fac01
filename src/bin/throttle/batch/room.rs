//! How many requests may be on their way through the program at once?

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// So many requests: far more than are in flight, so that those of one slow host do not hold up the others.
const MOST: usize = 1_024;

/// So many bytes of lines, and one line more.
const MOST_BYTES: usize = 32 << 20;

/// Room for those that were read and are not written yet.
#[derive(Debug, Default)]
pub(crate) struct Room {
    taken: Mutex<Taken>,
    given_back: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    places: usize,
    bytes: usize,
}

/// A place in it, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    /// Takes a place; blocks until there is one.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Place {
        let full = |taken: &mut Taken| taken.places >= MOST || taken.bytes >= MOST_BYTES;
        let mut taken = self.given_back.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        taken.places += 1;
        taken.bytes += bytes;
        Place { room: Arc::clone(self), bytes }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.lock();
        taken.places -= 1;
        taken.bytes -= self.bytes;
        self.room.given_back.notify_one();
    }
}
