//! What attacks over sockets came to: callers that leave, bodies of errors of all kinds, refusals that are none, storms.

mod support;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context as Cx, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::future::join_all;
use futures_util::poll;
use http_body::{Body as _, Frame, SizeHint};
use reqwest_throttle::{Attempts, Backoff, Client, ClientBuilder, Context, Limiter, Limits, ThrottleLayer};
use support::eventually;
use support::judge::Limit;
use support::upstream::{Answer, Body, RetryAfter, Says, Upstream};
use tokio::time::{Instant, sleep, timeout};
use tower::{ServiceBuilder, ServiceExt, service_fn};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn quick() -> ClientBuilder {
    Client::builder().backoff(Backoff::exponential(ms(1), ms(5)))
}

/// Requests that their callers gave up stay in the books of a client without limits.
#[tokio::test]
async fn cancelled_requests_slow_nobody_down_for_ever() {
    let upstream = Upstream::builder().limit(Limit::fixed(20, ms(1_000))).says(Says::Trio).start().await;
    let client = Client::new();
    upstream.script((0..40).map(|_| Answer::hang().on("/hang")));
    let hang = (0..40).map(|_| timeout(ms(300), client.get(upstream.at("/hang")).send()));
    assert!(join_all(hang).await.into_iter().all(|came| came.is_err()));
    let began = Instant::now();
    for _ in 0..40 {
        client.get(upstream.at("/")).within(ms(20_000)).send().await.unwrap().bytes().await.unwrap();
        if began.elapsed() > ms(12_000) {
            break;
        }
    }
    println!("{:?} for {} of 40; {}", began.elapsed(), upstream.accepted(), client.snapshot());
    assert!(began.elapsed() < ms(6_000), "{:?} for {}", began.elapsed(), upstream.accepted());
}

/// In a debug build a panic while the lock is held, else a limit that is never free again.
#[tokio::test]
async fn a_wait_that_is_dropped_after_it_was_granted_harms_nothing() {
    let limiter = Limiter::new("no limit").unwrap();
    let answers = service_fn(async |_: http::Request<String>| {
        let response = http::Response::builder()
            .header("x-ratelimit-limit", "60")
            .header("x-ratelimit-remaining", "0")
            .header("x-ratelimit-reset", "1");
        Ok::<_, Infallible>(response.body(String::new()).unwrap())
    });
    let service = ServiceBuilder::new().layer(ThrottleLayer::new(limiter.clone())).service(answers);
    let get = || http::Request::get("http://host/").body(String::new()).unwrap();
    service.clone().oneshot(get()).await.unwrap();
    let mut waits = Box::pin(limiter.wait(&Context::within(ms(10_000))));
    assert!(poll!(waits.as_mut()).is_pending());
    sleep(ms(2_500)).await;
    drop(waits);
    timeout(ms(5_000), service.oneshot(get())).await.unwrap().unwrap();
}

/// What comes back is what was sent, whatever of it was read ahead.
#[tokio::test]
async fn bodies_of_errors_come_as_they_were() {
    let upstream = Upstream::builder().start().await;
    for status in [400, 404, 429, 500, 503] {
        for body in [
            Body::chunks(50, 4_096, ms(4)),
            Body::chunks(3, 100_000, ms(1)),
            Body::chunks(3, 5, ms(80)),
            Body::chunks(1, 65_536, ms(0)),
            Body::chunks(1, 65_537, ms(0)),
            Body::empty(),
        ] {
            let (length, client) = (format!("{body:?}").len(), quick().max_attempts(1).build().unwrap());
            let expected = text_of(&body);
            upstream.script([Answer::status(status).body(body.clone())]);
            let response = client.get(upstream.url()).send().await.unwrap();
            assert_eq!(response.status().as_u16(), status);
            if let Some(length) = response.content_length() {
                assert_eq!(length, expected as u64);
            }
            assert_eq!(response.bytes().await.unwrap().len(), expected, "{status} {length}");
            eventually(|| client.snapshot().gates.iter().all(|gate| gate.in_flight == 0)).await;
            upstream.script([Answer::status(status).body(body)]);
            let response = client.head(upstream.url()).send().await.unwrap();
            assert_eq!(response.bytes().await.unwrap().len(), 0);
        }
    }
    // Cut in the middle.
    upstream.script([Answer::status(404).body(Body::chunks(10, 10, ms(5))).cut_after(30)]);
    let mut response = quick().build().unwrap().get(upstream.url()).send().await.unwrap();
    let mut came = 0;
    let error = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => came += chunk.len(),
            Ok(None) => panic!("it ended well after {came}"),
            Err(error) => break error,
        }
    };
    assert_eq!((came, error.is_body() || error.is_decode()), (30, true));
}

fn text_of(body: &Body) -> usize {
    // Its chunks are private: their number and length are in what is shown.
    let text = format!("{body:?}");
    text.matches('.').count()
}

/// A body whose data are in pieces, all of it known beforehand, with trailers.
struct Pieces(Vec<Frame<bytes::buf::Chain<Bytes, Bytes>>>, u64);

impl http_body::Body for Pieces {
    type Data = bytes::buf::Chain<Bytes, Bytes>;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Cx<'_>) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
        let frame = if self.0.is_empty() { None } else { Some(self.0.remove(0)) };
        if let Some(data) = frame.as_ref().and_then(Frame::data_ref) {
            self.1 -= data.remaining() as u64;
        }
        Poll::Ready(frame.map(Ok))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.1)
    }
}

/// The size of a body that was read ahead is that of the first piece of each of its frames.
#[tokio::test]
async fn a_body_in_pieces_is_as_long_as_it_was() {
    let answers = service_fn(async |_: http::Request<String>| {
        let data = Bytes::from_static(b"hello").chain(Bytes::from_static(b" world"));
        let trailers = http::HeaderMap::from_iter([(http::HeaderName::from_static("x-end"), "1".parse().unwrap())]);
        let body = Pieces(vec![Frame::data(data), Frame::trailers(trailers)], 11);
        Ok::<_, Infallible>(http::Response::builder().status(404).body(body).unwrap())
    });
    let layer = ThrottleLayer::new(Limiter::new("10/s").unwrap());
    let request = http::Request::get("http://host/").body(String::new()).unwrap();
    let response = ServiceBuilder::new().layer(layer).service(answers).oneshot(request).await.unwrap();
    let hint = response.body().size_hint();
    let collected = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    assert_eq!(collected.trailers().map(http::HeaderMap::len), Some(1));
    assert_eq!(collected.to_bytes(), "hello world");
    assert_eq!((hint.lower(), hint.upper()), (11, Some(11)));
}

const NO_MONEY: &str = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#;

/// How often a POST went.
async fn posts(answer: Answer) -> usize {
    let upstream = Upstream::builder().start().await;
    upstream.script(vec![answer; 3]);
    let client = quick().build().unwrap();
    let response = client.post(upstream.url()).within(ms(9_000)).body("once").send().await;
    drop(response);
    upstream.arrivals().len()
}

/// A refusal for good whose body comes a little later than its head.
#[tokio::test]
async fn a_refusal_for_good_is_not_repeated_if_its_body_is_slow() {
    assert_eq!(posts(Answer::status(429).body(Body::bytes(NO_MONEY))).await, 1, "at once");
    let upstream = Upstream::builder().start().await;
    let slow = |path: &str| Answer::status(429).body(Body::bytes(NO_MONEY)).on(path);
    upstream.script([slow("/"), slow("/")]);
    let response = quick().build().unwrap().post(upstream.at("/")).body("once").send().await.unwrap();
    assert_eq!(
        (response.extensions().get::<Attempts>().unwrap().sent, response.text().await.unwrap().as_str()),
        (1, NO_MONEY)
    );
}

#[tokio::test]
async fn a_stream_is_sent_once() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(429).header("retry-after", "1")]);
    let client = quick().build().unwrap();
    let stream = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"abc"))]);
    let body = reqwest::Body::wrap_stream(stream);
    let response = client.post(upstream.url()).body(body).send().await.unwrap();
    assert_eq!((response.status().as_u16(), upstream.arrivals().len()), (429, 1));
}

async fn storm(client: Client, limit: Limit, says: Says, seed: u64) {
    let upstream = Upstream::builder()
        .limit(limit)
        .says(says)
        .retry_after(if seed.is_multiple_of(2) { RetryAfter::Exact } else { RetryAfter::None })
        .jitter_before(ms(0)..=ms(20))
        .jitter_after(ms(0)..=ms(20))
        .start()
        .await;
    let mut random = fastrand::Rng::with_seed(seed);
    let tasks: Vec<_> = (0..2_000)
        .map(|_| {
            let (client, url) = (client.clone(), upstream.url());
            let (begins, most) = (ms(random.u64(..3_000)), ms(random.u64(1..1_500)));
            tokio::spawn(async move {
                sleep(begins).await;
                drop(
                    timeout(most, async {
                        client.get(url).send().await?.bytes().await.map_err(Into::<reqwest_throttle::Error>::into)
                    })
                    .await,
                );
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    eventually(|| client.snapshot().gates.iter().all(|gate| gate.in_flight == 0 && gate.waiting == 0)).await;
    println!("{seed}: {} taken, {} refused, {}", upstream.accepted(), upstream.refused(), client.snapshot());
    let began = Instant::now();
    for nth in 0..5 {
        let fresh = client.get(upstream.url()).within(ms(20_000)).send().await;
        assert!(fresh.is_ok(), "{seed}, {nth}, after {:?}: {fresh:?}, {}", began.elapsed(), client.snapshot());
    }
    println!("{seed}: five in {:?}", began.elapsed());
    assert!(began.elapsed() < ms(12_000), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_over_sockets_without_limits() {
    storm(Client::new(), Limit::fixed(40, ms(1_000)), Says::Trio, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_over_sockets_that_says_nothing() {
    storm(Client::new(), Limit::fixed(40, ms(1_000)), Says::Nothing, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_over_sockets_with_a_few_in_flight() {
    let client = Client::builder().each_host(Limits::new().quota("60/s").in_flight(16)).build().unwrap();
    storm(client, Limit::bucket(40, ms(1_000), 40), Says::Llm, 2).await;
}

/// A compressed error, in chunks.
#[tokio::test]
async fn a_compressed_error_is_decoded_once() {
    const PACKED: &[u8] = include_bytes!("data/error.gz");
    const LENGTH: usize = 6029;
    let upstream = Upstream::builder().start().await;
    for status in [200, 404, 429] {
        let answer = || Answer::status(status).header("content-encoding", "gzip").body(Body::bytes(PACKED));
        upstream.script([answer(), answer().cut_after(1_000)]);
        let client = Client::builder().reqwest(|http| http.gzip(true)).max_attempts(1).build().unwrap();
        let response = client.get(upstream.url()).within(ms(5_000)).send().await.unwrap();
        assert_eq!(response.content_length(), if status == 200 { None } else { response.content_length() });
        println!("{status}: {:?}", response.content_length());
        let text = response.text().await.unwrap();
        assert!(text.len() == LENGTH && text.starts_with("{\"error\""), "{status}");
        let cut = client.get(upstream.url()).within(ms(5_000)).send().await.unwrap();
        assert!(cut.text().await.is_err(), "{status}");
    }
}

/// A refusal whose body is slow, and whose callers leave while it is looked into: nobody learns of it.
#[tokio::test]
async fn a_refusal_is_heard_though_its_caller_leaves_while_its_body_comes() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..20).map(|_| Answer::status(429).header("retry-after", "5").body(Body::chunks(10, 10, ms(50)))));
    let client = Client::new();
    for _ in 0..20 {
        drop(timeout(ms(60), client.get(upstream.url()).send()).await);
    }
    assert_eq!(upstream.arrivals().len(), 1, "{}", client.snapshot());
}

/// A validation error with a common number in it.
#[tokio::test]
async fn a_validation_error_with_a_small_code_is_no_refusal_because_of_traffic() {
    let mut wrong = Vec::new();
    for (status, body) in [
        (400, r#"{"code":4,"message":"name must not be empty"}"#),
        (400, r#"{"code":17,"message":"name must not be empty"}"#),
        (400, r#"{"error":{"code":32,"message":"name must not be empty"}}"#),
        (403, r#"{"code":4,"message":"not yours"}"#),
        (409, r#"{"code":17,"message":"exists already"}"#),
        (400, r#"{"message":"the field rate_limit must be positive"}"#),
        (400, r#"{"message":"rate limit exceeded must be a boolean"}"#),
        (200, r#"{"code":4}"#),
    ] {
        let upstream = Upstream::builder().start().await;
        upstream.script([Answer::status(status).body(Body::bytes(body))]);
        let client = quick().build().unwrap();
        let began = Instant::now();
        client.post(upstream.url()).body("x").send().await.unwrap();
        if upstream.arrivals().len() > 1 {
            wrong.push(format!(
                "{status} {body}: {} in {:?}: {}",
                upstream.arrivals().len(),
                began.elapsed(),
                client.snapshot()
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What is said of a limit with names that change never ends: the mirror of a name that is said no more is left behind.
#[tokio::test]
async fn names_that_change_with_each_answer_slow_nobody_down() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..60).map(|nth| {
        Answer::status(200)
            .header("ratelimit", &format!("\"{nth}\";r=0;t=1"))
            .header("ratelimit-policy", &format!("\"{nth}\";q=10;w=1"))
    }));
    let client = Client::new();
    let began = Instant::now();
    for _ in 0..6 {
        client.get(upstream.url()).within(ms(20_000)).send().await.unwrap();
    }
    println!("{:?}: {}", began.elapsed(), client.snapshot());
}

/// A refusal that says in so many words when to come again, and whose limit is reset much later.
#[tokio::test]
async fn what_retry_after_says_goes_before_a_reset() {
    let upstream = Upstream::builder().start().await;
    let answer = Answer::status(429).header("retry-after", "1");
    upstream.script([answer
        .header("x-ratelimit-limit", "100")
        .header("x-ratelimit-remaining", "0")
        .header("x-ratelimit-reset", "3600")]);
    let client = quick().build().unwrap();
    let response = client.get(upstream.url()).within(ms(10_000)).send().await.unwrap();
    println!("{} {}: {}", response.status(), upstream.arrivals().len(), client.snapshot());
    assert_eq!(response.status(), 200);
}

/// Hosts that fail with a plain 503 for a while: how fast does it come back?
#[tokio::test]
async fn redirects_with_stated_limits_leak_nothing() {
    let upstream = Upstream::builder().start().await;
    let says = |answer: Answer| {
        answer
            .header("x-ratelimit-limit", "100")
            .header("x-ratelimit-remaining", "50")
            .header("x-ratelimit-reset", "30")
    };
    for _ in 0..20 {
        upstream.script(
            [
                says(Answer::status(302).header("location", "/b")).on("/a"),
                says(Answer::status(200)).on("/b"),
                Answer::reset().on("/none"),
            ]
            .into_iter()
            .take(2),
        );
    }
    upstream.script((0..20).map(|_| Answer::reset().on("/c")));
    let client = quick().build().unwrap();
    for _ in 0..20 {
        client.get(upstream.at("/a")).within(ms(5_000)).send().await.unwrap();
    }
    for _ in 0..5 {
        drop(client.post(upstream.at("/c")).within(ms(5_000)).send().await);
    }
    let snapshot = client.snapshot();
    println!("{snapshot}");
    assert!(snapshot.gates.iter().all(|gate| gate.in_flight == 0 && gate.waiting == 0));
}
