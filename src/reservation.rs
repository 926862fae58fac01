//! A place in the line that was taken at once: [`Reservation`].

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use crate::permit::Permit;
use crate::place::Place;
use crate::refused::Refused;

/// A place in the line, from [`Limiter::reserve`](crate::Limiter::reserve). Await it for the permit.
///
/// Its time is not fixed, as it would be where units are spent when they are reserved: whoever is ahead may leave, more
/// urgent ones may come, limits may change. [`delay`](Self::delay) can be asked again. When its turn comes it is granted, whether
/// anybody awaits it or not, and counts as in flight; awaited so late that what it took does not count any more, it goes
/// back into its old place.
///
/// # Cancel safety
///
/// Dropping it, or its future, leaves the line; nothing was taken.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest_throttle::{Context, Limiter};
/// use std::time::Duration;
///
/// let limiter = Limiter::new("1 per 20ms burst 1")?;
/// let _first = limiter.try_acquire()?;
/// let (second, third) = (limiter.reserve(&Context::new())?, limiter.reserve(&Context::new())?);
/// assert!(third.delay() > second.delay());
/// second.cancel();
/// assert!(third.delay() <= Duration::from_millis(20));
/// let _permit = third.await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a reservation that is dropped is cancelled"]
pub struct Reservation {
    place: Place,
}

impl Reservation {
    pub(crate) fn new(mut place: Place) -> Result<Self, Refused> {
        place.take()?;
        Ok(Self { place })
    }

    /// How long it has to wait from now at the least, as things stand. Nothing if its turn has come.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.place.delay()
    }

    /// Leaves the line, as dropping it does: everybody behind moves up.
    pub fn cancel(self) {
        drop(self);
    }
}

impl IntoFuture for Reservation {
    type Output = Result<Permit, Refused>;
    type IntoFuture = Reserved;

    fn into_future(self) -> Reserved {
        Reserved(Permitted(self.place))
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}

/// The future of a [`Reservation`].
#[must_use = "futures do nothing unless they are polled"]
pub struct Reserved(Permitted);

impl Future for Reserved {
    type Output = Result<Permit, Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl fmt::Debug for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved").finish_non_exhaustive()
    }
}

/// A place whose grant comes as a permit.
pub(crate) struct Permitted(pub(crate) Place);

impl Future for Permitted {
    type Output = Result<Permit, Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let decision = std::task::ready!(Pin::new(&mut self.0).poll(cx));
        let Self(place) = &*self;
        Poll::Ready(decision.map(|grant| Permit::new(Arc::clone(place.entrance()), grant, place.waited())))
    }
}
