//! The bare limiter, for whatever it is that you send: wait for your turn, then send.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use reqwest_throttle::{Context, Limiter};
use support::upstream::Upstream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let api = Upstream::builder().start().await;
    let http = reqwest::Client::new();
    let limiter = Limiter::new("5/s burst 2")?;
    let begun = Instant::now();

    for n in 1..=6 {
        // One budget for the wait; who drops this future, or runs into its deadline, has taken nothing.
        limiter.wait(&Context::within(Duration::from_secs(10))).await?;
        let status = http.get(api.url()).send().await?.status();
        println!("{n}: {status} after {:.1?}", begun.elapsed());
    }

    // A wait that cannot be met is refused at once, and says why.
    let refused = limiter.wait(&Context::within(Duration::from_millis(50))).await.unwrap_err();
    println!("refused: {refused}");
    Ok(())
}
