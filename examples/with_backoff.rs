//! Back-off by somebody else's rules: an iterator, or the crate `backoff` where it is in use already.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use backoff::ExponentialBackoffBuilder;
use reqwest_throttle::{Attempts, Backoff, Client};
use support::upstream::{Answer, Upstream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let api = Upstream::builder().start().await;

    // Whatever counts durations does, such as a builder of `backon`; made anew for each request.
    let fibonacci = || std::iter::successors(Some((1, 2)), |(a, b)| Some((*b, a + b)));
    let steps = Backoff::from_iter(move || fibonacci().map(|(a, _)| Duration::from_millis(10 * a)).take(5));

    // Of the crate `backoff`: its end ends the attempts, and what a server states goes before it.
    let doubling = Backoff::from_backoff(|| {
        ExponentialBackoffBuilder::new().with_initial_interval(Duration::from_millis(10)).build()
    });

    for backoff in [steps, doubling] {
        api.script((0..3).map(|_| Answer::status(503)));
        let client = Client::builder().backoff(backoff).max_attempts(6).build()?;
        let response = client.get(api.url()).send().await?;
        let attempts = response.extensions().get::<Attempts>().ok_or("told by every response")?;
        println!("{}: sent {} times, backed off for {:.0?}", response.status(), attempts.sent, attempts.backed_off);
        assert!(response.status().is_success() && attempts.sent == 4);
    }
    Ok(())
}
