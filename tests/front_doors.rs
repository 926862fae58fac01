//! Every way in behaves in the same way: one table of what must hold, tried through the client, tower's layer over reqwest, over
//! hyper and over a plain function, and reqwest-middleware.

mod support;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::rt::TokioExecutor;
use reqwest_throttle::{Attempts, Body, Client, Limiter, ReqwestService, ThrottleLayer, ThrottleMiddleware, redirect};
use support::eventually;
use support::judge::Limit;
use support::upstream::{Answer, Body as Sent, Upstream};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// An answer, and the rest of it.
struct Got {
    status: u16,
    attempts: Attempts,
    rest: BoxFuture<'static, Bytes>,
}

/// A way in: what gets an address.
#[derive(Clone)]
struct Door {
    name: &'static str,
    get: Arc<dyn Fn(String) -> BoxFuture<'static, Result<Got, BoxError>> + Send + Sync>,
}

impl Door {
    fn new<F, R>(name: &'static str, get: F) -> Self
    where
        F: Fn(String) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Got, BoxError>> + Send + 'static,
    {
        Self { name, get: Arc::new(move |url| Box::pin(get(url))) }
    }

    async fn get(&self, url: &str) -> Got {
        (self.get)(url.to_owned()).await.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

fn of_reqwest(response: reqwest::Response) -> Got {
    let (status, attempts) = (response.status().as_u16(), *response.extensions().get().unwrap());
    Got { status, attempts, rest: Box::pin(async { response.bytes().await.unwrap() }) }
}

fn of_http<B>(response: http::Response<B>) -> Got
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Send + 'static,
{
    let (status, attempts) = (response.status().as_u16(), *response.extensions().get().unwrap());
    Got { status, attempts, rest: Box::pin(async { response.into_body().collect().await.unwrap().to_bytes() }) }
}

/// What sends by itself follows and repeats nothing here.
fn plain() -> reqwest::Client {
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    builder.retry(reqwest::retry::never()).build().unwrap()
}

fn by_client(limits: &str, repeats: bool) -> Door {
    let builder = Client::builder().each_host(limits).redirect(redirect::Policy::none());
    let client = builder.max_attempts(if repeats { 4 } else { 1 }).build().unwrap();
    Door::new("client", move |url| {
        let sent = client.get(url).send();
        async { Ok(of_reqwest(sent.await?)) }
    })
}

/// Any service of requests without a body, behind the layer.
fn by_layer<S, B, P>(name: &'static str, limits: &str, repeats: bool, service: S, body: fn() -> B) -> Door
where
    S: Service<http::Request<B>, Response = http::Response<P>, Error: Into<BoxError>, Future: Send>,
    S: Clone + Send + Sync + 'static,
    B: Clone + Send + 'static,
    P: http_body::Body<Data = Bytes, Error: std::fmt::Debug + Send> + Send + 'static,
{
    let layer = ThrottleLayer::new(Limiter::new(limits).unwrap());
    let request = move |url: String| http::Request::get(url).body(body()).unwrap();
    if repeats {
        let service = layer.repeating().layer(service);
        return Door::new(name, move |url| {
            let sent = service.clone().oneshot(request(url));
            async { Ok(of_http(sent.await?)) }
        });
    }
    let service = layer.layer(service);
    Door::new(name, move |url| {
        let sent = service.clone().oneshot(request(url));
        async { Ok(of_http(sent.await?)) }
    })
}

fn by_layer_over_reqwest(limits: &str, repeats: bool) -> Door {
    let layer = ThrottleLayer::new(Limiter::new(limits).unwrap());
    let request = |url: String| reqwest::Request::new(reqwest::Method::GET, url.parse().unwrap());
    if repeats {
        let service = layer.repeating().layer(plain());
        return Door::new("layer over reqwest", move |url| {
            let sent = service.clone().oneshot(request(url));
            async { Ok(of_reqwest(sent.await?)) }
        });
    }
    let service = layer.layer(plain());
    Door::new("layer over reqwest", move |url| {
        let sent = service.clone().oneshot(request(url));
        async { Ok(of_reqwest(sent.await?)) }
    })
}

/// reqwest's bodies cannot be copied in general, so this one sends once.
fn by_layer_over_http_reqwest(limits: &str) -> Door {
    let service = ThrottleLayer::new(Limiter::new(limits).unwrap()).layer(ReqwestService::from(plain()));
    Door::new("layer over reqwest, with requests of http", move |url| {
        let sent = service.clone().oneshot(http::Request::get(url).body(Body::default()).unwrap());
        async { Ok(of_http(sent.await?)) }
    })
}

fn by_function(limits: &str, repeats: bool) -> Door {
    let client = plain();
    let function = service_fn(move |request: http::Request<String>| {
        let sent = client.get(request.uri().to_string()).send();
        async { Ok::<_, reqwest::Error>(http::Response::<Body>::from(sent.await?)) }
    });
    by_layer("layer over a function", limits, repeats, function, String::new)
}

fn by_hyper(limits: &str, repeats: bool) -> Door {
    let hyper = Hyper::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    by_layer("layer over hyper", limits, repeats, hyper, Empty::new)
}

fn by_middleware(limits: &str, repeats: bool) -> Door {
    let throttle = ThrottleMiddleware::new(Limiter::new(limits).unwrap());
    let throttle = if repeats { throttle.repeating() } else { throttle };
    let client = reqwest_middleware::ClientBuilder::new(plain()).with(throttle).build();
    Door::new("middleware", move |url| {
        let sent = client.get(url).send();
        async { Ok(of_reqwest(sent.await?)) }
    })
}

fn doors(limits: &str, repeats: bool) -> Vec<Door> {
    let mut doors = vec![
        by_client(limits, repeats),
        by_layer_over_reqwest(limits, repeats),
        by_function(limits, repeats),
        by_hyper(limits, repeats),
        by_middleware(limits, repeats),
    ];
    if !repeats {
        doors.push(by_layer_over_http_reqwest(limits));
    }
    doors
}

#[tokio::test]
async fn a_strict_server_refuses_nobody() {
    for door in doors("20 per 300ms", false) {
        let limit = Limit::sliding(20, ms(300));
        let upstream = Upstream::builder().limit(limit).jitter_before(ms(0)..=ms(30)).start().await;
        let url = upstream.url();
        let all = join_all((0..60).map(|_| door.get(&url))).await;
        join_all(all.into_iter().map(|got| got.rest)).await;
        assert_eq!((upstream.refused(), upstream.accepted()), (0, 60), "{}", door.name);
    }
}

#[tokio::test]
async fn a_refusal_pauses_everybody() {
    for door in doors("no limit", true) {
        let upstream = Upstream::builder().start().await;
        upstream.script([Answer::status(429).header("retry-after", "1").on("/refused")]);
        let refused = tokio::spawn({
            let (door, url) = (door.clone(), upstream.at("/refused"));
            async move { door.get(&url).await }
        });
        eventually(|| upstream.arrivals().first().is_some_and(|first| first.answered.is_some())).await;
        tokio::time::sleep(ms(50)).await;
        assert_eq!(door.get(&upstream.at("/other")).await.status, 200);
        let refused = refused.await.unwrap();
        assert_eq!((refused.status, refused.attempts.sent, refused.attempts.refused), (200, 2, 1), "{}", door.name);
        let came: Vec<_> = upstream.arrivals().into_iter().map(|arrival| arrival.came).collect();
        assert!(came[1..].iter().all(|at| *at >= came[0] + ms(1_000)), "{}: {came:?}", door.name);
    }
}

#[tokio::test]
async fn a_place_is_held_until_the_body_has_ended() {
    for door in doors("1 in flight", false) {
        let upstream = Upstream::builder().body(Sent::chunks(3, 1_000, ms(1))).start().await;
        let first = door.get(&upstream.url()).await;
        let second = tokio::spawn({
            let (door, url) = (door.clone(), upstream.url());
            async move { door.get(&url).await }
        });
        tokio::time::sleep(ms(100)).await;
        assert_eq!(upstream.arrivals().len(), 1, "{}", door.name);
        assert_eq!(first.rest.await.len(), 3_000);
        let second = second.await.unwrap();
        assert_eq!(upstream.arrivals().len(), 2, "{}", door.name);
        // Dropping is an end, too.
        drop(second);
        assert_eq!(door.get(&upstream.url()).await.status, 200);
    }
}

#[tokio::test]
async fn whoever_shall_repeat_does_and_nobody_else() {
    for repeats in [false, true] {
        for door in doors("no limit", repeats) {
            let upstream = Upstream::builder().start().await;
            upstream.script((0..2).map(|_| Answer::status(503).body(Sent::bytes("sorry"))));
            let began = Instant::now();
            let got = door.get(&upstream.url()).await;
            let expected = if repeats { (200, 3, 3) } else { (503, 1, 1) };
            assert_eq!((got.status, got.attempts.sent, upstream.arrivals().len()), expected, "{}", door.name);
            assert!(began.elapsed() < ms(10_000));
        }
    }
}

#[tokio::test]
async fn what_is_refused_for_good_is_returned_as_it_came() {
    for door in doors("no limit", true) {
        let upstream = Upstream::builder().start().await;
        upstream.script([Answer::status(429).header("retry-after", "86400").body(Sent::bytes("tomorrow"))]);
        let got = door.get(&upstream.url()).await;
        assert_eq!((got.status, got.attempts.sent, &got.rest.await[..]), (429, 1, &b"tomorrow"[..]), "{}", door.name);
    }
}

/// What repeats outside asks for every request that comes: the layers do not multiply.
#[tokio::test]
async fn the_number_of_requests_is_what_the_outermost_layer_asks_for() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..100).map(|_| Answer::status(503)));
    let throttle = ThrottleMiddleware::new(Limiter::new("1000/s").unwrap());
    let chain = reqwest_middleware::ClientBuilder::new(plain()).with(Thrice).with(throttle).build();
    assert_eq!(chain.get(upstream.url()).send().await.unwrap().status(), 503);
    assert_eq!(upstream.arrivals().len(), 3);
}

/// As reqwest-retry is: it sends what fails three times in all.
struct Thrice;

#[async_trait::async_trait]
impl reqwest_middleware::Middleware for Thrice {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut http::Extensions,
        next: reqwest_middleware::Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let mut answer = Err(reqwest_middleware::Error::middleware(std::io::Error::other("never sent")));
        for _ in 0..3 {
            answer = next.clone().run(request.try_clone().unwrap(), extensions).await;
        }
        answer
    }
}

/// Two ways in of one client share its limits.
#[tokio::test]
async fn a_layer_and_a_chain_of_a_client_share_its_limits() {
    let upstream = Upstream::builder().start().await;
    let client = Client::builder().each_host("2/min").build().unwrap();
    let service = ThrottleLayer::of(&client).layer(plain());
    let chain = reqwest_middleware::ClientBuilder::new(plain()).with(ThrottleMiddleware::of(&client)).build();
    let request = reqwest::Request::new(reqwest::Method::GET, upstream.url().parse().unwrap());
    service.oneshot(request).await.unwrap();
    chain.get(upstream.url()).send().await.unwrap();
    let error = client.get(upstream.url()).within(ms(500)).send().await.unwrap_err();
    assert!(error.is_refused());
}

#[tokio::test]
async fn a_key_by_a_header_has_limits_of_its_own() {
    let answers = service_fn(async |_: http::Request<String>| Ok::<_, BoxError>(http::Response::new(String::new())));
    let layer = ThrottleLayer::new(Limiter::new("1/min").unwrap())
        .key_by(|headers| Some(headers.get("x-tenant")?.to_str().ok()?.to_owned()));
    let service = layer.layer(answers);
    let request = |tenant: &str| {
        let mut request = http::Request::get("http://host/").header("x-tenant", tenant).body(String::new()).unwrap();
        request.extensions_mut().insert(reqwest_throttle::Context::within(ms(50)));
        request
    };
    for tenant in ["a", "b"] {
        service.clone().oneshot(request(tenant)).await.unwrap();
    }
    assert!(service.clone().oneshot(request("a")).await.is_err());
}

/// A call that is not polled any more is cancelled by dropping it, through whatever door.
#[tokio::test]
async fn dropping_is_cancelling() {
    for door in doors("1 in flight", false) {
        let upstream = Upstream::builder().body(Sent::chunks(2, 10, ms(60_000))).start().await;
        let first = door.get(&upstream.url()).await;
        let mut second = (door.get)(upstream.url());
        poll_fn(|cx| {
            assert!(Pin::new(&mut second).poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(second);
        drop(first);
        assert_eq!(door.get(&upstream.url()).await.status, 200, "{}", door.name);
    }
}
