//! Limits in a chain of reqwest-middleware that is there already: one line, and a context for those who want one.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use reqwest_middleware::ClientBuilder;
use reqwest_throttle::{Context, Error, Limiter, ThrottleMiddleware};
use support::judge::Limit;
use support::upstream::Upstream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Somebody else's API, which takes 10 requests a second.
    let api = Upstream::builder().limit(Limit::sliding(10, Duration::from_secs(1))).start().await;

    // The last of the chain, so that whatever repeats outside asks the limits for each attempt.
    let throttle = ThrottleMiddleware::new(Limiter::new("10/s")?);
    let client = ClientBuilder::new(reqwest::Client::new()).with(throttle).build();

    for n in 1..=20 {
        let status = client.get(api.at("/status")).send().await?.status();
        println!("{n:>2}: {status} after {:.2?}", api.now());
    }
    // Who does not want to wait that long is told at once.
    let hurried = client.get(api.at("/status")).with_extension(Context::within(Duration::from_millis(1))).send().await;
    if let Err(reqwest_middleware::Error::Middleware(error)) = hurried {
        println!("{}", error.downcast_ref::<Error>().ok_or("an error of ours")?);
    }
    assert_eq!(api.refused(), 0);
    Ok(())
}
