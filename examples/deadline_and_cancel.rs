//! How long a request may wait, and how it is called off: deadlines, tokens, dropped futures, and the end of it all.

use std::time::{Duration, Instant};

use reqwest_throttle::{Context, Limiter};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder("5/s burst 1").on_wait(|waits| println!("  {waits}")).build()?;
    let begun = Instant::now();
    drop(limiter.try_acquire()?);

    // Ten wait, so the next would have its turn in about two seconds: refused at once, and nothing was taken.
    let crowd: Vec<_> = (0..10).map(|_| tokio::spawn(limiter.wait(&Context::new()))).collect();
    tokio::task::yield_now().await;
    let refused = limiter.wait(&Context::within(Duration::from_secs(1))).await.unwrap_err();
    println!("a deadline that cannot be met: {refused}");

    // One token for a whole job. Whoever waits on it leaves, and those behind move up.
    let job = CancellationToken::new();
    let part = tokio::spawn(limiter.wait(&Context::new().cancel_on(&job)));
    let last = tokio::spawn(limiter.wait(&Context::new()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    job.cancel();
    println!("a cancelled job: {}", part.await?.unwrap_err());

    // A future that is dropped is the same; so is one that loses a race.
    let raced = tokio::time::timeout(Duration::from_millis(50), limiter.wait(&Context::new())).await;
    println!("a future that is dropped: {}", if raced.is_err() { "it left the line" } else { "it went" });

    // A place that is taken now can be asked, and awaited or given up.
    let place = limiter.reserve(&Context::new())?;
    println!("a reservation: {:.1?} to wait, as things stand", place.delay());
    place.cancel();

    for waits in crowd {
        waits.await??;
    }
    last.await??;
    println!("all the others went, after {:.1?}", begun.elapsed());

    // Nobody new is let in; whoever waits or is in flight may end first.
    let ended = limiter.drain(tokio::time::Instant::now() + Duration::from_secs(1)).await;
    println!("drained: {ended}; then: {}", limiter.try_acquire().unwrap_err());
    Ok(())
}
