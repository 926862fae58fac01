//! Many jobs, few at a time, no faster than allowed: the limiter decides when, a stream keeps the workers busy.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest_throttle::{Context, Limiter, Limits};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // At most 100 in any second, and 8 in flight.
    let limiter = Limiter::new(Limits::new().quota("100/s").in_flight(8))?;
    let begun = Instant::now();
    let jobs = stream::iter(0..150_u64).map(|job| {
        let limiter = limiter.clone();
        async move {
            let mut permit = limiter.acquire(&Context::within(Duration::from_secs(10))).await?;
            let answer = fetch(job).await;
            permit.answered();
            Ok::<_, reqwest_throttle::Refused>(answer)
        }
    });
    // More workers than places only wait in line: the order and the limits are the limiter's.
    let sum: u64 = jobs.buffer_unordered(32).try_fold(0, |sum, answer| async move { Ok(sum + answer) }).await?;
    let took = begun.elapsed();
    println!("150 jobs in {took:.2?}, sum {sum}");
    println!("{}", limiter.snapshot());
    assert!(took >= Duration::from_secs(1), "more than 100 in a second");
    Ok(())
}

/// In the place of a request to somebody's server.
async fn fetch(job: u64) -> u64 {
    tokio::time::sleep(Duration::from_millis(5 + job % 20)).await;
    job
}
