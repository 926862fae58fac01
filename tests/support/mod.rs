//! What do the tests share? A strict server, its judge, and a bounded wait.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "every test binary includes this and uses a part of it")]
#![allow(
    clippy::unchecked_time_subtraction,
    reason = "a negative span of time is a bug in the server, which has to panic"
)]

pub mod judge;
pub mod upstream;

use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

/// How long [`eventually`] waits: far above what a loaded machine needs, far below a hung test.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Looks every 2 ms until `condition` holds; panics after [`PATIENCE`], naming the caller.
#[track_caller]
pub fn eventually(condition: impl Fn() -> bool) -> impl Future<Output = ()> {
    let asked_by = Location::caller();
    let begun = Instant::now();
    async move {
        while !condition() {
            assert!(begun.elapsed() < PATIENCE, "still not so: {asked_by}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
