//! The client over real sockets: what it sends, what it holds back, and when it goes again.

mod support;

use std::time::Duration;

use futures_util::future::{join, join_all};
use http::{HeaderMap, HeaderValue, Method, Version};
use reqwest_throttle::{Client, Limits, Reason, RequestBuilder};
use support::eventually;
use support::judge::Limit;
use support::upstream::{Answer, Arrival, Body, RetryAfter, Upstream};
use tokio::time::Instant;
use wiremock::matchers::{body_bytes, header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn limited(limits: Limits) -> Client {
    Client::builder().each_host(limits).build().unwrap()
}

fn too_many(retry_after: &str) -> Answer {
    Answer::status(429).header("retry-after", retry_after).body(Body::bytes("slow down"))
}

fn came(arrival: &Arrival) -> Duration {
    arrival.came
}

type Make = fn(&Client, &str) -> RequestBuilder;

#[tokio::test]
async fn each_method_sends_its_method_headers_and_body() {
    let server = MockServer::start().await;
    let client = Client::new();
    let url = format!("{}/a", server.uri());
    let methods: [(&str, Make); 7] = [
        ("GET", |client, url| client.get(url)),
        ("POST", |client, url| client.post(url)),
        ("PUT", |client, url| client.put(url)),
        ("PATCH", |client, url| client.patch(url)),
        ("DELETE", |client, url| client.delete(url)),
        ("HEAD", |client, url| client.head(url)),
        ("OPTIONS", |client, url| client.request(Method::OPTIONS, url)),
    ];
    for (name, make) in methods {
        let expected = Mock::given(method(name)).and(path("/a")).and(header("x-one", "1")).and(header("x-two", "2"));
        let expected = expected.and(header("authorization", "Bearer token")).and(body_bytes("body"));
        let guard = expected.respond_with(ResponseTemplate::new(201)).expect(1).mount_as_scoped(&server).await;
        let headers = HeaderMap::from_iter([(http::HeaderName::from_static("x-two"), HeaderValue::from_static("2"))]);
        let request = make(&client, &url).header("x-one", "1").headers(headers).bearer_auth("token").body("body");
        let response = request.timeout(ms(10_000)).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.url().as_str()), (201, url.as_str()), "{name}");
        drop(guard);
    }
}

#[cfg(all(feature = "json", feature = "query", feature = "form"))]
#[tokio::test]
async fn json_query_and_form_are_sent_as_reqwest_sends_them() {
    use wiremock::matchers::{body_json, body_string, query_param};
    let server = MockServer::start().await;
    let client = Client::new();
    let json = Mock::given(body_json(serde_json::json!({"n": 1}))).and(header("content-type", "application/json"));
    json.respond_with(ResponseTemplate::new(200)).expect(1).mount(&server).await;
    let form = Mock::given(body_string("a=b+c")).and(header("content-type", "application/x-www-form-urlencoded"));
    form.respond_with(ResponseTemplate::new(201)).expect(1).mount(&server).await;
    let query = Mock::given(query_param("q", "x y")).and(body_bytes(""));
    query.respond_with(ResponseTemplate::new(202)).expect(1).mount(&server).await;

    let post = || client.post(server.uri());
    assert_eq!(post().json(&serde_json::json!({"n": 1})).send().await.unwrap().status(), 200);
    assert_eq!(post().form(&[("a", "b c")]).send().await.unwrap().status(), 201);
    assert_eq!(client.get(server.uri()).query(&[("q", "x y")]).send().await.unwrap().status(), 202);
}

#[tokio::test]
async fn a_request_that_is_built_already_can_be_executed() {
    let upstream = Upstream::builder().start().await;
    let client = Client::new();
    let request = client.post(upstream.at("/built")).body("b").build().unwrap();
    // The future borrows nothing: it can be spawned.
    let response = tokio::spawn(client.execute(request)).await.unwrap().unwrap();
    assert_eq!(response.text().await.unwrap(), "ok");
    assert_eq!(upstream.arrivals()[0].path, "/built");
}

#[tokio::test]
async fn the_response_is_as_reqwest_gives_it() {
    let upstream = Upstream::builder().body(Body::bytes("twelve bytes")).start().await;
    let response = limited(Limits::new().in_flight(1)).get(upstream.at("/x?y=1")).send().await.unwrap();
    assert_eq!(response.url().as_str(), upstream.at("/x?y=1"));
    assert_eq!(response.remote_addr(), Some(upstream.addr()));
    assert_eq!((response.content_length(), response.version()), (Some(12), Version::HTTP_11));
    assert_eq!(response.text().await.unwrap(), "twelve bytes");
}

#[tokio::test]
async fn a_request_is_in_flight_until_its_body_has_ended() {
    let upstream = Upstream::builder().limit(Limit::in_flight(2)).body(Body::chunks(4, 10, ms(20))).start().await;
    let client = limited(Limits::new().in_flight(2));
    join_all((0..10).map(async |_| client.get(upstream.url()).send().await.unwrap().bytes().await.unwrap())).await;
    assert_eq!((upstream.refused(), upstream.accepted(), upstream.peak_in_flight()), (0, 10, 2));
}

#[tokio::test]
async fn a_body_that_is_dropped_or_fails_or_never_was_frees_its_slot() {
    let upstream = Upstream::builder().start().await;
    let client = Client::builder().each_host(Limits::new().in_flight(1)).max_attempts(1).build().unwrap();
    let slow = || Answer::status(200).body(Body::chunks(1_000, 10, ms(20)));
    upstream.script([
        slow().on("/dropped"),
        slow().cut_after(10).on("/cut"),
        Answer::status(204).body(Body::empty()).on("/none"),
        Answer::status(200).body(Body::empty()).on("/empty"),
        Answer::reset().on("/reset"),
        Answer::hang().on("/hang"),
        slow().on("/timeout"),
    ]);
    let get = |path| client.get(upstream.at(path)).within(ms(10_000));
    drop(get("/dropped").send().await.unwrap());
    assert!(get("/cut").send().await.unwrap().bytes().await.is_err());
    // These three are kept alive, and must not keep their slots.
    let _no_body = get("/none").send().await.unwrap();
    let _empty = get("/empty").send().await.unwrap();
    let _head = client.head(upstream.url()).within(ms(10_000)).send().await.unwrap();
    assert!(get("/reset").send().await.unwrap_err().is_request());
    assert!(tokio::time::timeout(ms(100), get("/hang").send()).await.is_err());
    let timed_out = get("/timeout").timeout(ms(200)).send().await.unwrap().bytes().await;
    assert!(timed_out.unwrap_err().is_timeout());
    assert_eq!(get("/good").send().await.unwrap().text().await.unwrap(), "ok");
    eventually(|| upstream.in_flight() == 0).await;
}

#[cfg(feature = "http2")]
#[tokio::test]
async fn http2_is_limited_as_http1_is() {
    let limits = Limits::new().quota("20/s").in_flight(3);
    let client = Client::builder().each_host(limits).reqwest(reqwest::ClientBuilder::http2_prior_knowledge);
    let client = client.build().unwrap();
    let upstream = Upstream::builder().limit(Limit::sliding(20, ms(1_000))).limit(Limit::in_flight(3));
    let upstream = upstream.body(Body::chunks(2, 10, ms(5))).start().await;
    join_all((0..30).map(async |_| client.get(upstream.url()).send().await.unwrap().bytes().await.unwrap())).await;
    assert_eq!((upstream.refused(), upstream.accepted(), upstream.connections()), (0, 30, 1));
    assert!(upstream.arrivals().iter().all(|arrival| arrival.version == Version::HTTP_2));
}

#[tokio::test]
async fn each_host_is_counted_by_itself() {
    let (one, two) = (Upstream::builder().start().await, Upstream::builder().start().await);
    let client = limited(Limits::new().quota("1 per 60s"));
    for upstream in [&one, &two] {
        client.get(upstream.url()).send().await.unwrap();
        let refused = client.get(upstream.url()).within(ms(1_000)).send().await.unwrap_err();
        assert_eq!(refused.refused().unwrap().limit, format!("127.0.0.1:{}", upstream.addr().port()));
    }
}

#[tokio::test]
async fn a_refusal_of_our_own_sends_nothing_and_says_which_limit_and_how_long() {
    let upstream = Upstream::builder().start().await;
    let client = limited(Limits::new().quota("1/min burst 1"));
    client.get(upstream.url()).send().await.unwrap();
    let begun = Instant::now();
    let error = client.get(upstream.url()).within(ms(5_000)).send().await.unwrap_err();
    assert!(begun.elapsed() < ms(2_500) && error.is_refused() && !error.is_timeout());
    let refused = error.refused().unwrap();
    assert_eq!((refused.reason, refused.ahead), (Reason::Deadline, 0));
    assert!(refused.wait.unwrap() > ms(50_000) && refused.to_string().contains("1/min"), "{refused}");
    assert_eq!(error.to_string(), format!("not sent: {refused}"), "limit, wait and way out");
    assert_eq!(upstream.arrivals().len(), 1);
}

#[tokio::test]
async fn the_wait_budget_ends_an_attempt_under_way() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::hang()]);
    let client = limited(Limits::new().in_flight(1));
    let error = client.get(upstream.at("/?key=SECRET123")).within(ms(200)).send().await.unwrap_err();
    assert!(error.is_timeout() && !error.is_refused());
    assert!(!format!("{error} {error:?}").contains("SECRET123"), "{error:?}");
    client.get(upstream.url()).within(ms(5_000)).send().await.unwrap();
}

/// The first answer refuses, and asks for two seconds; fifty callers wait for the same host.
#[tokio::test]
async fn after_a_429_nothing_leaves_for_that_host_before_its_time_and_other_hosts_go_on() {
    let upstream = Upstream::builder().start().await;
    let other = Upstream::builder().start().await;
    upstream.script([too_many("2").delay(ms(100))]);
    let client = limited(Limits::new().quota("10/s"));
    let get = async |url: String| {
        let response = client.get(url).within(ms(30_000)).send().await.unwrap();
        response.error_for_status().unwrap().bytes().await.unwrap()
    };
    let meanwhile = async {
        eventually(|| upstream.arrivals().iter().any(|arrival| arrival.answered.is_some())).await;
        let begun = Instant::now();
        join_all((0..10).map(|_| get(other.url()))).await;
        assert!(begun.elapsed() < ms(1_500), "{:?}", begun.elapsed());
    };
    join(join_all((0..50).map(|_| get(upstream.url()))), meanwhile).await;

    let arrivals = upstream.arrivals();
    let refused = arrivals.iter().find(|arrival| arrival.status == Some(429)).unwrap();
    let read = refused.answered.unwrap();
    let (before, after): (Vec<_>, Vec<_>) = arrivals.iter().map(came).partition(|came| *came <= read);
    assert_eq!((before.len(), after.len()), (10, 41), "ten went at once, and one of them again");
    let pause = after[0].checked_sub(read).unwrap();
    assert!((ms(2_000)..ms(3_500)).contains(&pause), "{pause:?}");
    assert_eq!(other.arrivals().len(), 10);
}

/// Two went at once, and the first is refused: it goes again before those who came later, with the same body.
#[tokio::test]
async fn a_refused_post_is_sent_again_whole_and_in_its_place() {
    let upstream = Upstream::builder().start().await;
    upstream.script([too_many("1").on("/0").delay(ms(50))]);
    let client = limited(Limits::new().quota("1 per 200ms burst 1"));
    let body = vec![b'x'; 65_536];
    let post = async |n: usize| {
        tokio::time::sleep(ms(2 * n as u64)).await;
        let request = client.post(upstream.at(&format!("/{n}"))).header("x-id", "7").body(body.clone());
        request.send().await.unwrap().status()
    };
    assert!(join_all((0..4).map(post)).await.iter().all(|status| *status == 200));
    let arrivals = upstream.arrivals();
    assert_eq!(arrivals.iter().map(|arrival| &arrival.path[..]).collect::<Vec<_>>(), ["/0", "/0", "/1", "/2", "/3"]);
    for arrival in &arrivals {
        assert_eq!((arrival.method.as_str(), &arrival.body[..]), ("POST", &body[..]));
        assert_eq!(
            (&arrival.headers["content-length"], &arrival.headers["x-id"]),
            (&"65536".parse().unwrap(), &"7".parse().unwrap())
        );
    }
    assert!(arrivals[1].came.checked_sub(arrivals[0].answered.unwrap()).unwrap() >= ms(1_000));
    assert!(
        arrivals.iter().all(|arrival| arrival.connection <= 2),
        "a refusal's body is read, and its connection lives"
    );
}

#[tokio::test]
async fn after_four_attempts_the_last_refusal_is_returned_as_it_came() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..4).map(|n| too_many("1").header("x-n", &n.to_string())));
    let response = Client::new().get(upstream.url()).send().await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["x-n"]), (429, &"3".parse::<HeaderValue>().unwrap()));
    assert_eq!(response.text().await.unwrap(), "slow down");
    let came: Vec<_> = upstream.arrivals().iter().map(came).collect();
    assert!(came.windows(2).all(|two| two[1].checked_sub(two[0]).unwrap() >= ms(1_000)), "{came:?}");
}

#[tokio::test]
async fn a_refusal_that_the_budget_cannot_wait_for_is_returned_at_once_as_it_came() {
    let upstream = Upstream::builder().start().await;
    let begun = Instant::now();
    for wait in ["60", "3600"] {
        let big = Answer::status(429).header("retry-after", wait).body(Body::chunks(3, 50_000, ms(1)));
        upstream.script([big]);
        // The second one is above what is slept on at all.
        let budget = if wait == "60" { ms(10_000) } else { ms(100_000_000) };
        let response = Client::new().get(upstream.url()).within(budget).send().await.unwrap();
        assert_eq!(response.headers()["retry-after"], wait);
        assert_eq!((response.status().as_u16(), response.bytes().await.unwrap().len()), (429, 150_000));
    }
    assert!(begun.elapsed() < ms(5_000), "{:?}", begun.elapsed());
    assert_eq!(upstream.arrivals().len(), 2);
}

/// A refusal whose body stalls costs neither the processor nor, once it cannot be waited for, any time.
#[tokio::test]
async fn a_refusal_whose_body_stalls_is_not_waited_for() {
    let upstream = Upstream::builder().start().await;
    let stalled = || Answer::status(429).body(Body::chunks(3, 10, ms(60_000)));
    upstream.script([stalled().header("retry-after", "60"), stalled().header("retry-after", "1")]);
    let begun = Instant::now();
    let response = Client::new().get(upstream.at("/?n=1")).within(ms(5_000)).send().await.unwrap();
    assert_eq!(response.status(), 429);
    assert!(begun.elapsed() < ms(800), "{:?}", begun.elapsed());
    drop(response);
    // Its time-out comes again and again from the same body, which is asked no more.
    let busy = cpu_time();
    let response = Client::new().get(upstream.at("/?n=2")).timeout(ms(200)).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let busy = cpu_time().checked_sub(busy).unwrap();
    assert!(busy < ms(500), "{busy:?} of processor time while a refusal stalled");
    assert_eq!(upstream.arrivals().len(), 3);
}

/// What this thread has used of the processor, where the system tells.
fn cpu_time() -> Duration {
    let Ok(stat) = std::fs::read_to_string("/proc/thread-self/schedstat") else { return Duration::ZERO };
    Duration::from_nanos(stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

#[tokio::test]
async fn a_budget_and_costs_travel_with_a_request() {
    let upstream = Upstream::builder().start().await;
    let client = limited(Limits::new().quota("1000 tokens/min"));
    let send = async |tokens| client.get(upstream.url()).cost("tokens", tokens).within(ms(2_000)).send().await;
    assert!(send(900).await.is_ok() && send(100).await.is_ok() && send(0).await.is_ok());
    assert_eq!(send(1).await.unwrap_err().refused().unwrap().reason, Reason::Deadline);
    assert_eq!(send(1_001).await.unwrap_err().refused().unwrap().reason, Reason::CostExceedsQuota);
}

#[cfg(feature = "stream")]
#[tokio::test]
async fn a_stream_is_sent_once() {
    let upstream = Upstream::builder().start().await;
    upstream.script([too_many("1")]);
    let chunks = ["a", "b"].map(Ok::<_, std::io::Error>);
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    let response = Client::new().post(upstream.url()).body(body).send().await.unwrap();
    assert_eq!(response.status(), 429);
    let arrivals = upstream.arrivals();
    assert_eq!((arrivals.len(), &arrivals[0].body[..]), (1, &b"ab"[..]));
}

/// Without limits of its own, the client learns from the first refusal; whole seconds of `Retry-After` are kept.
#[tokio::test]
async fn a_429_without_a_wait_pauses_for_a_second() {
    let upstream = Upstream::builder().limit(Limit::sliding(5, ms(900))).retry_after(RetryAfter::None).start().await;
    let client = Client::new();
    let get = async || client.get(upstream.url()).send().await.unwrap().status();
    let statuses = join_all((0..10).map(|_| get())).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!((upstream.accepted(), upstream.refused()), (10, 5));
}

#[tokio::test]
async fn a_bad_address_is_named_without_its_secrets() {
    for (address, shown) in [
        ("example.com/path?key=SECRET123", "`example.com/path`"),
        ("https://", "`https://`"),
        ("http://me:SECRET123@", "`…@`"),
        ("mailto:me@example.com", "`…@example.com`"),
        ("ftp://example.com/", "`ftp://example.com/`"),
        ("data:text/plain,x", "`data:text/plain,x`"),
    ] {
        let error = Client::new().get(address).send().await.unwrap_err();
        let told = error.to_string();
        assert!(error.is_builder() && told.contains(shown) && told.contains("https://example.com/path"), "{told}");
        assert!(!format!("{error:?}").contains("SECRET123"), "{error:?}");
    }
    let error = Client::new().get("http://localhost/").header("bad name", "x").send().await.unwrap_err();
    assert!(error.is_builder());
}

#[test]
fn a_bad_limit_is_refused_when_the_client_is_built() {
    for (limit, remedy) in [("0/s", "at least 1"), ("ten", "as in `50/s`"), ("5/s burst 0", "burst of at least 1")] {
        let error = Client::builder().each_host(limit).build().unwrap_err();
        let cause = error.to_string();
        let begins = format!("the client cannot be built: each_host: quota `{limit}`");
        assert!(error.is_builder() && cause.starts_with(&begins), "{cause}");
        assert!(cause.contains(remedy), "{cause}");
    }
}

#[tokio::test]
async fn a_connection_that_is_refused_is_an_error_and_frees_its_slot() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = limited(Limits::new().in_flight(1));
    for _ in 0..3 {
        let url = format!("http://{closed}/?key=SECRET123");
        let error = client.get(url).within(ms(5_000)).send().await.unwrap_err();
        assert!(error.is_connect(), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("SECRET123"), "{error:?}");
    }
}

#[tokio::test]
async fn dropping_a_waiting_request_leaves_its_place_to_the_next() {
    let upstream = Upstream::builder().start().await;
    let client = limited(Limits::new().quota("1 per 300ms burst 1"));
    client.get(upstream.url()).send().await.unwrap();
    let mut dropped = Box::pin(client.get(upstream.at("/dropped")).send());
    assert!(futures_util::future::poll_immediate(dropped.as_mut()).await.is_none());
    let next = tokio::spawn(client.get(upstream.at("/next")).send());
    tokio::task::yield_now().await;
    drop(dropped);
    next.await.unwrap().unwrap();
    let arrivals = upstream.arrivals();
    assert_eq!((arrivals.len(), arrivals[1].path.as_str()), (2, "/next"));
    let waited = arrivals[1].came.checked_sub(arrivals[0].came).unwrap();
    assert!((ms(280)..ms(560)).contains(&waited), "{waited:?}");
}
