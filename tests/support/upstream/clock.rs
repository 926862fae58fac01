//! What time is it at the server? Counted from its start, by the system's clock or by the test's hand.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

#[derive(Debug)]
pub(super) enum Clock {
    Real(Instant),
    Manual(watch::Sender<Duration>),
}

impl Clock {
    pub(super) fn real() -> Self {
        Self::Real(Instant::now())
    }

    pub(super) fn manual() -> Self {
        Self::Manual(watch::Sender::new(Duration::ZERO))
    }

    pub(super) fn now(&self) -> Duration {
        match self {
            Self::Real(start) => start.elapsed(),
            Self::Manual(now) => *now.borrow(),
        }
    }

    pub(super) fn advance(&self, by: Duration) {
        match self {
            Self::Real(_) => panic!("only a manual clock can be advanced"),
            Self::Manual(now) => now.send_modify(|now| *now += by),
        }
    }

    /// Sleeps by this clock: with a manual one, until the test has advanced it far enough.
    pub(super) fn sleep_until(&self, due: Duration) -> BoxFuture<'static, ()> {
        match self {
            Self::Real(start) => Box::pin(tokio::time::sleep_until((*start + due).into())),
            Self::Manual(now) => {
                let mut watched = now.subscribe();
                Box::pin(async move {
                    // Fails only when the server is gone, and this with it.
                    let _ = watched.wait_for(|now| *now >= due).await;
                })
            }
        }
    }

    /// A network's delay: none under a manual clock, where the test decides every instant.
    pub(super) async fn jitter(&self, wait: Duration) {
        if matches!(self, Self::Real(_)) && !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}
