//! The contract of a tower service, point by point, each a test:
//!
//! 1. it is always ready, and asks nothing of the service below for that;
//! 2. the service below is made ready after the limits let a request go, on the very clone that is called;
//! 3. whoever leaves before its turn never reaches the service, and its place is free;
//! 4. whoever leaves after it drops the call below, and its place is free;
//! 5. clones share the limits;
//! 6. requests go in the order in which they were made;
//! 7. a request and its extensions come as they were, and so does an answer;
//! 8. an error of the service passes through as it is, also one of its readiness, which costs nothing;
//! 9. a refusal of ours is our error, and the service is not called;
//! 10. a service that panics takes its own call along, and no place;
//! 11. a pause that comes while the service gets ready is heeded;
//! 12. each attempt waits for the limits and for the service;
//! 13. `Buffer`, `LoadShed` and `Timeout` go before it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, poll};
use http::{Request, Response};
use reqwest_throttle::{Attempts, Context, Error, Limiter, Throttle, ThrottleBody, ThrottleLayer};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_test::mock::{self, Handle, Mock, SendResponse};

type Below = Mock<Request<String>, Response<String>>;
type Above = Handle<Request<String>, Response<String>>;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn layer(limits: &str) -> ThrottleLayer {
    ThrottleLayer::new(Limiter::new(limits).unwrap())
}

fn throttled(limits: &str) -> (Throttle<Below>, Above) {
    let (below, above) = mock::pair();
    (layer(limits).layer(below), above)
}

fn get(path: &str) -> Request<String> {
    Request::get(format!("http://host{path}")).body(String::new()).unwrap()
}

async fn next(above: &mut Above) -> (Request<String>, SendResponse<Response<String>>) {
    above.next_request().await.expect("the service is called")
}

fn ok() -> Response<String> {
    Response::new("done".to_owned())
}

fn status(status: u16, retry_after: &str) -> Response<String> {
    Response::builder().status(status).header("retry-after", retry_after).body(String::new()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn it_is_always_ready_and_asks_nothing_of_the_service_below() {
    let (mut service, mut above) = throttled("1/s");
    above.allow(0);
    assert!(poll_fn(|cx| Poll::Ready(service.poll_ready(cx))).await.is_ready());
    assert!(is_left_alone(&mut above));
}

#[tokio::test(start_paused = true)]
async fn clones_that_are_ready_and_not_called_hold_nothing() {
    let answers = service_fn(async |_: Request<String>| Ok::<_, Infallible>(ok()));
    let service = layer("2 per 10s, 2 in flight").layer(answers);
    let mut idle = [service.clone(), service.clone()];
    for clone in &mut idle {
        poll_fn(|cx| clone.poll_ready(cx)).await.unwrap();
    }
    let began = Instant::now();
    for _ in 0..2 {
        drop(service.clone().oneshot(get("/")).await.unwrap());
    }
    assert_eq!(began.elapsed(), ms(0), "both of the window were there");
    // Ready is no promise: who is called now waits for the window.
    idle[0].call(get("/")).await.unwrap();
    assert_eq!(began.elapsed(), ms(10_000));
}

fn is_left_alone(above: &mut Above) -> bool {
    Box::pin(above.next_request()).now_or_never().is_none()
}

#[tokio::test(start_paused = true)]
async fn the_service_below_is_made_ready_after_the_limits_on_the_clone_that_is_called() {
    let (service, mut above) = throttled("1 per 100ms");
    above.allow(0);
    let began = Instant::now();
    let (first, second) = (service.clone().oneshot(get("/1")), service.clone().oneshot(get("/2")));
    let (first, second) = (tokio::spawn(first), tokio::spawn(second));
    tokio::time::sleep(ms(250)).await;
    assert!(is_left_alone(&mut above), "granted, and not ready");
    above.allow(2);
    for _ in 0..2 {
        next(&mut above).await.1.send_response(ok());
    }
    assert_eq!(
        (first.await.unwrap().unwrap().status(), second.await.unwrap().unwrap().status().as_u16()),
        (http::StatusCode::OK, 200)
    );
    assert!(began.elapsed() >= ms(250));
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_before_its_turn_never_reaches_the_service() {
    let (service, mut above) = throttled("1 per 100ms, 1 in flight");
    let first = tokio::spawn(service.clone().oneshot(get("/1")));
    let (_, answer) = next(&mut above).await;
    let mut leaves = Box::pin(service.clone().oneshot(get("/leaves")));
    assert!(poll!(&mut leaves).is_pending());
    let third = tokio::spawn(service.clone().oneshot(get("/3")));
    tokio::task::yield_now().await;
    drop(leaves);
    answer.send_response(Response::new(String::new()));
    first.await.unwrap().unwrap();
    let (request, answer) = next(&mut above).await;
    assert_eq!(request.uri().path(), "/3");
    answer.send_response(ok());
    third.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_after_it_drops_the_call_and_frees_the_place() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let counts = dropped.clone();
    let service = layer("1 in flight").layer(service_fn(move |request: Request<String>| {
        let guard = Guard(counts.clone());
        async move {
            if request.uri().path() == "/hangs" {
                std::future::pending::<()>().await;
            }
            drop(guard);
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    }));
    let mut hangs = Box::pin(service.clone().oneshot(get("/hangs")));
    assert!(poll!(&mut hangs).is_pending());
    let second = tokio::spawn(service.oneshot(get("/2")));
    tokio::time::sleep(ms(10)).await;
    assert!(!second.is_finished());
    drop(hangs);
    assert_eq!(dropped.load(Relaxed), 1);
    second.await.unwrap().unwrap();
}

struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn clones_share_the_limits_and_requests_go_in_order() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (layer, notes, began) = (layer("1 per 10ms burst 1"), seen.clone(), Instant::now());
    let answers = service_fn(move |request: Request<String>| {
        notes.lock().unwrap().push((request.uri().path().to_owned(), began.elapsed()));
        async { Ok::<_, Infallible>(ok()) }
    });
    // Of one layer, and of its clones; of one service, and of its clones.
    let services = [layer.layer(answers.clone()), layer.clone().layer(answers)];
    let calls = (0..6).map(|nth| services[nth % 2].clone().oneshot(get(&format!("/{nth}"))));
    join_all(calls).await.into_iter().for_each(|answer| assert!(answer.is_ok()));
    let expected: Vec<_> = (0..6).map(|nth| (format!("/{nth}"), ms(10 * nth))).collect();
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_request_and_its_answer_come_as_they_were() {
    let (service, mut above) = throttled("1/s");
    let mut request = Request::post("http://host/path?query").header("x-mine", "1").body("body".to_owned()).unwrap();
    request.extensions_mut().insert(Context::within(ms(500)));
    request.extensions_mut().insert(7_u8);
    let answer = tokio::spawn(service.oneshot(request));
    let (request, send) = next(&mut above).await;
    assert_eq!((request.uri().to_string().as_str(), request.body().as_str()), ("http://host/path?query", "body"));
    assert_eq!((request.headers()["x-mine"].as_bytes(), request.extensions().get::<u8>()), (&b"1"[..], Some(&7)));
    send.send_response(Response::builder().status(418).extension(9_u8).body("tea".to_owned()).unwrap());
    let answer: Response<ThrottleBody<String>> = answer.await.unwrap().unwrap();
    assert_eq!((answer.status().as_u16(), answer.extensions().get::<u8>()), (418, Some(&9)));
    assert_eq!(answer.extensions().get::<Attempts>().unwrap().sent, 1);
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    assert_eq!(&body[..], b"tea");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_service_passes_through_as_it_is() {
    let (service, mut above) = throttled("1/s");
    let answer = tokio::spawn(service.clone().oneshot(get("/")));
    next(&mut above).await.1.send_error(std::io::Error::other("mine"));
    let error = answer.await.unwrap().unwrap_err();
    assert_eq!(error.downcast_ref::<std::io::Error>().unwrap().to_string(), "mine");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_get_ready_costs_nothing() {
    let (below, above) = mock::pair::<Request<String>, Response<String>>();
    let limiter = Limiter::new("1/min").unwrap();
    let service = ThrottleLayer::new(limiter.clone()).layer(below);
    drop(above);
    let error = service.oneshot(get("/")).await.unwrap_err();
    assert!(error.downcast_ref::<Error>().is_none(), "{error}");
    assert!(limiter.try_acquire().is_ok(), "given back");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_ours_is_our_error_and_the_service_is_not_called() {
    let (service, mut above) = throttled("1/s");
    let first = tokio::spawn(service.clone().oneshot(get("/")));
    next(&mut above).await.1.send_response(ok());
    first.await.unwrap().unwrap();
    let mut request = get("/late");
    request.extensions_mut().insert(Context::within(ms(100)));
    let began = Instant::now();
    let error = service.clone().oneshot(request).await.unwrap_err();
    let error = error.downcast_ref::<Error>().unwrap();
    assert!(error.is_refused() && error.refused().unwrap().wait.is_some() && began.elapsed() < ms(100));
    assert!(is_left_alone(&mut above));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_panics_takes_its_own_call_along_and_no_place() {
    let service = layer("1 in flight").layer(service_fn(|request: Request<String>| {
        assert_ne!(request.uri().path(), "/panics");
        async { Ok::<_, Infallible>(Response::new(String::new())) }
    }));
    assert!(tokio::spawn(service.clone().oneshot(get("/panics"))).await.unwrap_err().is_panic());
    service.oneshot(get("/")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_comes_while_the_service_gets_ready_is_heeded() {
    let (below, mut above) = mock::pair::<Request<String>, Response<String>>();
    let limiter = Limiter::new("100/s").unwrap();
    let service = ThrottleLayer::new(limiter.clone()).layer(below);
    above.allow(0);
    let call = tokio::spawn(service.oneshot(get("/")));
    tokio::time::sleep(ms(10)).await;
    let (paused, until) = (Instant::now(), ms(2_000));
    limiter.pause_until(paused + until);
    above.allow(1);
    next(&mut above).await.1.send_response(ok());
    assert!(paused.elapsed() >= until, "{:?}", paused.elapsed());
    call.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_attempt_waits_for_the_limits_and_for_the_service() {
    let (below, mut above) = mock::pair::<Request<String>, Response<String>>();
    let service = ThrottleLayer::new(Limiter::new("1 per 10s burst 2").unwrap()).repeating().layer(below);
    let began = Instant::now();
    let call = tokio::spawn(service.oneshot(get("/again")));
    next(&mut above).await.1.send_response(status(503, ""));
    above.allow(0);
    tokio::time::sleep(ms(5_000)).await;
    assert!(is_left_alone(&mut above), "the second waits for the service");
    above.allow(9);
    next(&mut above).await.1.send_response(status(503, ""));
    next(&mut above).await.1.send_response(ok());
    let answer = call.await.unwrap().unwrap();
    assert_eq!((answer.status().as_u16(), answer.extensions().get::<Attempts>().unwrap().sent), (200, 3));
    assert!(began.elapsed() >= ms(10_000), "the third waits for the limit");
}

#[tokio::test(start_paused = true)]
async fn buffer_load_shed_and_timeout_go_before_it() {
    let answers = service_fn(async |_: Request<String>| Ok::<_, Infallible>(ok()));
    let service = ServiceBuilder::new().load_shed().buffer(1).timeout(ms(100)).layer(layer("1/s")).service(answers);
    service.clone().oneshot(get("/1")).await.unwrap();
    let error: BoxError = service.oneshot(get("/2")).await.unwrap_err();
    assert!(error.is::<tower::timeout::error::Elapsed>(), "{error}");
}

/// What `/exhausted` says only in its trailers.
async fn says_in_trailers(
    request: Request<String>,
) -> Result<Response<impl http_body::Body<Data = bytes::Bytes, Error = Infallible>>, Infallible> {
    let body = http_body_util::Full::new(bytes::Bytes::from_static(b"part"));
    let trailers = match request.uri().path() {
        "/exhausted" => &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "2000")][..],
        _ => &[("grpc-status", "0")],
    };
    let trailers = trailers
        .iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)));
    let trailers: http::HeaderMap = trailers.collect();
    Ok(Response::new(http_body_util::BodyExt::with_trailers(body, async move { Some(Ok(trailers)) })))
}

#[tokio::test(start_paused = true)]
async fn what_the_trailers_of_an_answer_say_pauses_whoever_comes_next() {
    let service = layer("100/s, 8 in flight").layer(service_fn(says_in_trailers));
    let began = Instant::now();
    for (path, after) in [("/fine", 0), ("/exhausted", 0), ("/fine", 2_000)] {
        let answer = service.clone().oneshot(get(path)).await.unwrap();
        let waited = began.elapsed();
        assert!(waited >= ms(after) && waited < ms(after + 250), "{path}: {waited:?}");
        http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn and_of_several_keys_the_one_that_it_was_about() {
    let client = reqwest_throttle::Client::builder().each_host("100/s").build().unwrap();
    let service = ThrottleLayer::of(&client).layer(service_fn(says_in_trailers));
    let began = Instant::now();
    for (key, path, after) in
        [("1", "fine", 0), ("2", "fine", 0), ("1", "exhausted", 0), ("2", "fine", 0), ("1", "fine", 2_000)]
    {
        let request = Request::get(format!("http://a.example/{path}")).header("authorization", key);
        let answer = service.clone().oneshot(request.body(String::new()).unwrap()).await.unwrap();
        let waited = began.elapsed();
        assert!(waited >= ms(after) && waited < ms(after + 250), "{key} {path}: {waited:?}");
        http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
    }
}
