//! A stack of tower's services with limits in it: time-outs and shedding before them, hyper's client below.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use reqwest_throttle::{Context, Limiter, Limits, Priority, ThrottleLayer};
use support::judge::Limit;
use support::upstream::Upstream;
use tower::{BoxError, ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Somebody else's API, which takes 20 requests a second.
    let api = Upstream::builder().limit(Limit::sliding(20, Duration::from_secs(1))).start().await;

    let limiter = Limiter::new(Limits::new().quota("20/s").in_flight(4))?;
    let http = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let service = ServiceBuilder::new()
        // The layer does not press back: who waits, waits inside the call. These bound how many do, and for how long.
        .buffer::<http::Request<Empty<Bytes>>>(64)
        .timeout(Duration::from_secs(10))
        .layer(ThrottleLayer::new(limiter.clone()).repeating())
        .service(http);

    let calls = (0..50).map(|nth| {
        let mut request = http::Request::get(api.at("/status")).body(Empty::new()).expect("a request");
        // What this one asks for.
        let priority = if nth % 10 == 0 { Priority::High } else { Priority::Low };
        request.extensions_mut().insert(Context::within(Duration::from_secs(5)).priority(priority));
        let service = service.clone();
        async move { service.oneshot(request).await.map(|answer| answer.status()) }
    });
    let answers = futures_util::future::try_join_all(calls).await?;
    println!("{} answers in {:.2?}; {}", answers.len(), api.now(), limiter.snapshot());
    assert!(answers.iter().all(http::StatusCode::is_success) && api.refused() == 0);
    Ok(())
}
