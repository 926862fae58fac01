//! Who goes first: the more urgent, then tenants in turn, and a share that is kept for the urgent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest_throttle::{Context, Limiter, Priority};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Of ten in flight, two are for the urgent only.
    let limiter = Limiter::new("50/s burst 1, 10 in flight, 20% for high")?;
    drop(limiter.try_acquire()?);
    let order = Arc::new(Mutex::new(Vec::new()));
    let wait = |name: &'static str, context: Context| {
        let (asked, order) = (limiter.acquire(&context), order.clone());
        tokio::spawn(async move {
            let permit = asked.await;
            order.lock().unwrap().push(name);
            // The request, and its answer.
            tokio::time::sleep(Duration::from_millis(10)).await;
            permit.map(drop)
        })
    };

    // One tenant sends ten at once, another three, a batch job five; last comes something urgent.
    let mut tasks = Vec::new();
    tasks.extend((0..5).map(|_| wait("batch", Context::new().priority(Priority::Low))));
    tasks.extend((0..10).map(|_| wait("a", Context::new().flow("tenant a"))));
    tasks.extend((0..3).map(|_| wait("b", Context::new().flow("tenant b"))));
    tasks.push(wait("urgent", Context::new().priority(Priority::High)));
    tokio::task::yield_now().await;
    println!("{}\n", limiter.snapshot());
    for task in tasks {
        task.await??;
    }
    println!("{}", order.lock().unwrap().join(" "));

    // Each tenant can also have limits of its own.
    let tenants = Limiter::new("2/s")?;
    let went = |tenant| (0..5).filter(|_| tenants.key(tenant).try_acquire().is_ok()).count();
    println!("of five tries each: a {}, b {}", went("a"), went("b"));
    Ok(())
}
