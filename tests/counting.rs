//! By which limits a client counts a request: those of the whole client, of its host, and of the key that it names.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest_throttle::{Client, Context, Limits, Priority, Reason, RequestBuilder};
use support::eventually;
use support::judge::Limit;
use support::upstream::{Answer, Body, Upstream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Why a request does not go at once, and whose limit that is; `None` if it does.
async fn kept_by(request: RequestBuilder) -> Option<(String, String)> {
    let refused = request.within(ms(500)).send().await.err()?;
    let refused = refused.refused().expect("only our own limits are in the way");
    assert_eq!(refused.reason, Reason::Deadline);
    Some((refused.limit.clone(), refused.quota.as_ref().map(ToString::to_string).unwrap_or_default()))
}

#[tokio::test]
async fn the_whole_client_is_counted_over_all_of_its_hosts() {
    let (one, two) = (Upstream::builder().start().await, Upstream::builder().start().await);
    let client = Client::builder().limit("2/min").each_host("100/s").build().unwrap();
    assert_eq!(kept_by(client.get(one.url())).await, None);
    assert_eq!(kept_by(client.get(two.url())).await, None);
    assert_eq!(kept_by(client.get(one.url())).await, Some((String::new(), "2/min".into())));
}

#[tokio::test]
async fn a_limit_that_is_set_again_is_one_more() {
    let upstream = Upstream::builder().start().await;
    let client = Client::builder().limit("2/min").limit("3/hour").max_in_flight(8).build().unwrap();
    assert_eq!(client.snapshot().gates.len(), 0, "gates are made on first use");
    assert_eq!(kept_by(client.get(upstream.url())).await, None);
    let whole = client.snapshot().gates.into_iter().find(|gate| gate.key.is_empty()).unwrap();
    assert_eq!((whole.quotas.len(), whole.most_in_flight), (2, Some(8)));
}

#[tokio::test]
async fn a_host_has_its_own_limits_in_the_place_of_those_of_each_host() {
    let (one, two) = (Upstream::builder().start().await, Upstream::builder().start().await);
    let host = |upstream: &Upstream| upstream.addr().to_string();
    let client = Client::builder().each_host("1/min").host(&host(&one), "2/min").build().unwrap();
    for _ in 0..2 {
        assert_eq!(kept_by(client.get(one.url())).await, None);
    }
    assert_eq!(kept_by(client.get(one.url())).await, Some((host(&one), "2/min".into())));
    assert_eq!(kept_by(client.get(two.url())).await, None);
    assert_eq!(kept_by(client.get(two.url())).await, Some((host(&two), "1/min".into())));
}

#[tokio::test]
async fn keys_are_counted_beside_their_hosts() {
    let upstream = Upstream::builder().start().await;
    let client = Client::builder().each_host("3/min").each_key("1/min").build().unwrap();
    let get = |key: &str| client.get(upstream.url()).key(key);
    assert_eq!(kept_by(get("a")).await, None);
    assert_eq!(kept_by(get("a")).await, Some(("a".into(), "1/min".into())));
    assert_eq!(kept_by(get("b")).await, None);
    assert_eq!(kept_by(client.get(upstream.url())).await, None);
    assert_eq!(kept_by(get("c")).await.unwrap().1, "3/min");
}

#[tokio::test]
async fn a_client_is_in_flight_as_a_whole_and_at_each_host() {
    let limits = [Limit::in_flight(2), Limit::in_flight(2)];
    let [one, two] = limits.map(|limit| Upstream::builder().limit(limit).body(Body::chunks(3, 10, ms(10))));
    let (one, two) = (one.start().await, two.start().await);
    let client = Client::builder().max_in_flight(3).each_host(Limits::new().in_flight(2)).build().unwrap();
    let get = async |url: String| client.get(url).send().await.unwrap().bytes().await.unwrap();
    let all = (0..20).map(|nth| get(if nth % 2 == 0 { one.url() } else { two.url() }));
    futures_util::future::join_all(all).await;
    assert_eq!((one.refused(), two.refused(), one.accepted() + two.accepted()), (0, 0, 20));
}

#[tokio::test]
async fn the_more_urgent_request_goes_first_and_a_context_says_all_at_once() {
    let upstream = Upstream::builder().start().await;
    let client = Client::builder().each_host("1 per 200ms burst 1, 5 tokens per 60s").build().unwrap();
    client.get(upstream.url()).send().await.unwrap();
    let low = client.get(upstream.at("/low")).priority(Priority::Low).flow("batch");
    let low = tokio::spawn(low.send());
    eventually(|| client.snapshot().gates.iter().any(|gate| gate.waiting == 1)).await;
    let urgent = Context::within(ms(5_000)).priority(Priority::High).cost("tokens", 5);
    client.get(upstream.at("/high")).context(&urgent).send().await.unwrap();
    low.await.unwrap().unwrap();
    let paths: Vec<_> = upstream.arrivals().into_iter().map(|arrival| arrival.path).collect();
    assert_eq!(paths, ["/", "/high", "/low"]);
    assert!(kept_by(client.get(upstream.url()).cost("tokens", 1)).await.unwrap().1.contains("tokens"));
}

#[tokio::test]
async fn a_deadline_is_an_instant_that_covers_the_wait() {
    let upstream = Upstream::builder().start().await;
    let client = Client::builder().each_host("1/min").build().unwrap();
    client.get(upstream.url()).send().await.unwrap();
    let error = client.get(upstream.url()).deadline(Instant::now() + ms(500)).send().await.unwrap_err();
    assert_eq!(error.refused().unwrap().reason, Reason::Deadline);
    assert_eq!(error.attempts(), 0);
}

#[tokio::test]
async fn a_token_gives_a_request_up_while_it_waits_and_while_it_is_under_way() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::hang().on("/hang")]);
    let client = Client::builder().each_host("2 per 60s, 1 in flight").build().unwrap();
    let token = CancellationToken::new();
    let under_way = tokio::spawn(client.get(upstream.at("/hang")).cancel_on(&token).send());
    eventually(|| !upstream.arrivals().is_empty()).await;
    let waiting = tokio::spawn(client.get(upstream.url()).cancel_on(&token).send());
    eventually(|| client.snapshot().gates.iter().any(|gate| gate.waiting == 1)).await;
    token.cancel();
    let error = under_way.await.unwrap().unwrap_err();
    assert!(error.is_cancelled() && !error.is_refused() && error.attempts() == 1, "{error:?}");
    assert!(error.to_string().starts_with("the request was cancelled before the answer came, of http://127.0.0.1"));
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.is_cancelled() && error.is_refused() && error.attempts() == 0, "{error:?}");
    assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 200, "its slot is free");
    let error = client.get(upstream.url()).cancel_on(&token).send().await.unwrap_err();
    assert!(error.is_cancelled() && error.is_refused(), "what is cancelled already sends nothing");
    assert_eq!(upstream.arrivals().len(), 2);
}

#[tokio::test]
async fn a_request_is_sent_as_often_as_is_set() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..3).map(|_| Answer::status(429).header("retry-after", "0")));
    let client = Client::builder().max_attempts(1).build().unwrap();
    assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 429);
    assert_eq!(upstream.arrivals().len(), 1);
}

#[tokio::test]
async fn a_client_of_reqwests_waits_as_ours_does() {
    let upstream = Upstream::builder().start().await;
    for builder in [Client::from_reqwest(reqwest::Client::new()), Client::from_reqwest(reqwest::Client::builder())] {
        upstream.reset_records();
        let client = builder.each_host("1/min").build().unwrap();
        assert_eq!(kept_by(client.get(upstream.url())).await, None);
        assert!(kept_by(client.get(upstream.url())).await.is_some());
        assert_eq!(upstream.arrivals().len(), 1);
    }
}

#[test]
fn a_setting_that_cannot_be_kept_is_named() {
    let invalid = |builder: reqwest_throttle::ClientBuilder| {
        let error = builder.build().unwrap_err();
        assert!(error.is_builder());
        error.to_string().strip_prefix("the client cannot be built: ").unwrap().to_owned()
    };
    let builder = Client::builder;
    assert!(invalid(builder().limit("0/s")).starts_with("limit: quota `0/s` cannot be kept"));
    assert!(invalid(builder().host("a.example", "ten")).starts_with("host: "));
    assert!(invalid(builder().each_key("1/s burst 0")).starts_with("each_key: "));
    for host in
        ["", "https://a.example", "a.example/path", "me@a.example", "@a", ":pw@a", "a b", "a\n", "*.a", "a.example?x"]
    {
        assert!(invalid(builder().host(host, "1/s")).contains("`api.example.com`"), "{host}");
    }
    assert!(builder().host("[::1]:8080", "1/s").host("Example.COM:443", "1/s").build().is_ok());
    assert!(invalid(builder().max_keys(2)).contains("at least 3"));
    let built = Client::from_reqwest(reqwest::Client::new());
    assert!(invalid(built.timeout(ms(1))).contains("reqwest"));
}

#[tokio::test]
async fn a_host_is_found_however_it_is_written() {
    let limits = || Limits::new().in_flight(7);
    for (host, url) in [
        ("127.0.0.1:443", "http://127.0.0.1:443/"),
        ("127.0.0.1:80", "https://127.0.0.1:80/"),
        ("localhost:9", "http://localhost.:9/"),
        ("[::0:1]:9", "http://[::1]:9/"),
        ("LOCALHOST:9", "http://user:pw@LocalHost:9/"),
        ("0x7f.1:9", "http://127.0.0.1:9/"),
    ] {
        let client = Client::builder().host(host, limits()).max_attempts(1).connect_timeout(ms(200)).build().unwrap();
        let _ = client.get(url).send().await;
        assert_eq!(client.snapshot().gates[0].most_in_flight, Some(7), "{host} {url}");
    }
}

#[tokio::test]
async fn of_several_limits_the_smallest_number_in_flight_counts() {
    let upstream = Upstream::builder().start().await;
    let client = Client::builder().limit("100/s, 2 in flight").limit("50 in flight").max_in_flight(9).build().unwrap();
    client.get(upstream.url()).send().await.unwrap();
    let whole = client.snapshot().gates.into_iter().find(|gate| gate.key.is_empty()).unwrap();
    assert_eq!(whole.most_in_flight, Some(2));
}

#[tokio::test]
async fn what_comes_too_late_takes_and_sends_nothing() {
    let upstream = Upstream::builder().start().await;
    let client = Client::builder().each_host("5/min").build().unwrap();
    for _ in 0..20 {
        let error = client.get(upstream.url()).deadline(Instant::now()).send().await.unwrap_err();
        assert_eq!((error.refused().unwrap().reason, error.attempts()), (Reason::Deadline, 0));
    }
    client.get(upstream.url()).within(ms(5_000)).send().await.unwrap();
    assert_eq!(upstream.arrivals().len(), 1);
}

#[tokio::test]
async fn what_an_earlier_run_sent_counts_and_each_attempt_and_hop_is_told() {
    let upstream = Upstream::builder().start().await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let builder = Client::builder().limit("9/h, 1000 tokens/h").each_host("5/h").each_key("2/h");
    let builder = builder.on_send(move |request| tell.lock().unwrap().push(request.url().path().to_owned()));
    let client = builder.build().unwrap();
    upstream.script([Answer::status(302).header("location", "/b")]);
    let earlier =
        |ago| client.get(upstream.url()).key("one").cost("tokens", 300).count_as_sent(Duration::from_secs(ago));
    earlier(4_000).unwrap();
    earlier(3_000).unwrap();
    let left = |key: &str| {
        let gate = client.snapshot().gates.into_iter().find(|gate| gate.key.contains(key)).unwrap();
        gate.quotas.iter().map(|quota| quota.left).collect::<Vec<_>>()
    };
    assert_eq!((left("127.0.0.1"), left("one"), upstream.arrivals().len()), (vec![4], vec![1], 0));
    assert!(client.get(upstream.at("/a")).send().await.is_ok());
    assert_eq!((left("127.0.0.1"), left("one")), (vec![2], vec![1]));
    assert_eq!(*told.lock().unwrap(), ["/a", "/b"]);
}
