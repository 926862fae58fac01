//! Where a redirect leads: every hop waits at its own host, and takes along only what is for that host.

mod support;

use std::time::Duration;

use http::{HeaderMap, HeaderName, Method};
use reqwest_throttle::{Backoff, Client, ClientBuilder, Limits, redirect};
use support::judge::Limit;
use support::upstream::{self, Answer, Arrival, Upstream};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn leads(status: u16, from: &str, to: &str) -> Answer {
    Answer::status(status).header("location", to).body(upstream::Body::bytes("moved")).on(from)
}

async fn two() -> (Upstream, Upstream) {
    (Upstream::builder().start().await, Upstream::builder().start().await)
}

fn paths(upstream: &Upstream) -> Vec<String> {
    upstream.arrivals().into_iter().map(|arrival| arrival.path).collect()
}

fn has(arrival: &Arrival, name: &str) -> bool {
    arrival.headers.contains_key(name)
}

#[tokio::test]
async fn a_redirect_is_followed_and_the_response_is_that_of_the_last_address() {
    let (one, two) = two().await;
    one.script([leads(302, "/a", "/b"), leads(301, "/b", &two.at("/c?x=1"))]);
    let response = Client::new().get(one.at("/a")).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.url().as_str()), (200, two.at("/c?x=1").as_str()));
    assert_eq!(response.text().await.unwrap(), "ok");
    assert_eq!((paths(&one), paths(&two)), (vec!["/a".into(), "/b".into()], vec!["/c".into()]));
    assert_eq!((one.connections(), one.in_flight()), (1, 0), "what redirects is read, so its connection is used again");
}

#[tokio::test]
async fn every_hop_is_counted_where_it_goes() {
    let one = Upstream::builder().limit(Limit::sliding(2, ms(600))).start().await;
    let two = Upstream::builder().limit(Limit::sliding(1, ms(600))).limit(Limit::in_flight(1)).start().await;
    for _ in 0..3 {
        one.script([leads(302, "/a", &two.at("/b"))]);
    }
    let limits = |most: &str| Limits::new().quota(most).in_flight(1);
    let builder = Client::builder().host(&one.addr().to_string(), limits("2 per 600ms"));
    let client = builder.host(&two.addr().to_string(), limits("1 per 600ms")).build().unwrap();
    let get = async || client.get(one.at("/a")).send().await.unwrap().text().await.unwrap();
    let began = tokio::time::Instant::now();
    futures_util::future::join_all((0..3).map(|_| get())).await;
    assert_eq!((one.refused(), two.refused(), two.accepted()), (0, 0, 3));
    assert!(began.elapsed() >= ms(1_200), "the third waited for the other host");
}

#[tokio::test]
async fn a_hop_that_cannot_go_in_time_is_a_refusal_of_ours() {
    let (one, two) = two().await;
    one.script([leads(302, "/a", &two.at("/b")), leads(302, "/a", &two.at("/b"))]);
    let client = Client::builder().host(&two.addr().to_string(), "1/min").build().unwrap();
    client.get(one.at("/a")).send().await.unwrap();
    let error = client.get(one.at("/a")).within(ms(5_000)).send().await.unwrap_err();
    assert_eq!((error.refused().unwrap().limit.clone(), error.attempts()), (two.addr().to_string(), 1));
    assert_eq!(two.arrivals().len(), 1);
}

#[tokio::test]
async fn another_host_sees_no_credentials_and_the_same_one_does() {
    let (one, two) = two().await;
    let secret = ["authorization", "cookie", "x-api-key", "x-mine"];
    let defaults = HeaderMap::from_iter(
        ["x-api-key", "x-mine", "x-app"].map(|name| (HeaderName::from_static(name), "SECRET".parse().unwrap())),
    );
    let builder = Client::builder().default_headers(defaults).sensitive_header(HeaderName::from_static("x-mine"));
    let client = builder.build().unwrap();
    for to in [one.at("/b"), two.at("/b")] {
        one.script([leads(302, "/a", &to)]);
        let request = client.get(one.at("/a?key=SECRET")).bearer_auth("SECRET").header("cookie", "SECRET");
        request.send().await.unwrap();
    }
    let (at_one, at_two) = (one.arrivals(), two.arrivals());
    assert!(secret.iter().all(|name| has(&at_one[0], name) && has(&at_one[1], name)), "the same host");
    assert!(secret.iter().all(|name| !has(&at_two[0], name)), "another host: {:?}", at_two[0].headers);
    assert!(has(&at_two[0], "x-app"));
    assert_eq!(at_two[0].headers["referer"], format!("{}/", one.url()), "without the query");
    assert_eq!(at_one[1].headers["referer"], one.at("/a?key=SECRET"));
}

#[tokio::test]
async fn a_body_goes_along_where_the_status_says_so_and_it_is_there() {
    let upstream = Upstream::builder().start().await;
    let client = Client::new();
    upstream.script([leads(307, "/a", "/b"), leads(303, "/c", "/d"), leads(302, "/e", "/f")]);
    for from in ["/a", "/c", "/e"] {
        client.post(upstream.at(from)).header("content-type", "text/plain").body("whole").send().await.unwrap();
    }
    let arrivals = upstream.arrivals();
    let seen = |path| {
        let arrival: &Arrival = arrivals.iter().find(|arrival| arrival.path == path).unwrap();
        (arrival.method.clone(), arrival.body.len(), has(arrival, "content-type"))
    };
    assert_eq!(seen("/b"), (Method::POST, 5, true));
    assert_eq!(seen("/d"), (Method::GET, 0, false));
    assert_eq!(seen("/f"), (Method::GET, 0, false));
}

#[cfg(feature = "stream")]
#[tokio::test]
async fn a_stream_is_not_sent_again_nor_sent_empty() {
    let upstream = Upstream::builder().start().await;
    let stream = || reqwest_throttle::Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("once")]));
    upstream.script([leads(307, "/a", "/b"), leads(303, "/c", "/d")]);
    let kept = Client::new().post(upstream.at("/a")).body(stream()).send().await.unwrap();
    assert_eq!((kept.status().as_u16(), paths(&upstream)), (307, vec!["/a".to_owned()]));
    let response = Client::new().post(upstream.at("/c")).body(stream()).send().await.unwrap();
    assert_eq!((response.status().as_u16(), upstream.arrivals()[2].body.len()), (200, 0));
}

#[tokio::test]
async fn a_loop_ends_at_the_limit() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..20).map(|_| leads(302, "/around", "/around")));
    let error = Client::new().get(upstream.at("/around?key=SECRET")).send().await.unwrap_err();
    assert!(error.is_redirect() && !error.is_refused());
    assert_eq!((error.attempts(), upstream.arrivals().len()), (11, 11));
    assert!(error.to_string().starts_with("a redirect cannot be followed, from http://"));
    assert!(!format!("{error} {error:?}").contains("SECRET"));
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "more than 10 redirects in a row");
}

#[tokio::test]
async fn a_policy_says_what_is_followed() {
    let upstream = Upstream::builder().start().await;
    let with = |policy| Client::builder().redirect(policy);
    let get = async |builder: ClientBuilder| {
        upstream.script([leads(302, "/a", "/b")]);
        builder.build().unwrap().get(upstream.at("/a")).send().await.map(|response| response.status().as_u16())
    };
    assert_eq!(get(with(redirect::Policy::none())).await.unwrap(), 302);
    assert_eq!(get(with(redirect::Policy::limited(1))).await.unwrap(), 200);
    assert!(get(with(redirect::Policy::limited(0))).await.unwrap_err().is_redirect());
    assert_eq!(
        get(with(redirect::Policy::custom(|attempt| if attempt.previous().len() > 1 {
            attempt.follow()
        } else {
            attempt.stop()
        })))
        .await
        .unwrap(),
        302
    );
    let fussy = redirect::Policy::custom(|attempt| {
        assert_eq!((attempt.status().as_u16(), attempt.url().path(), attempt.previous().len()), (302, "/b", 1));
        attempt.error("not there")
    });
    let error = get(with(fussy)).await.unwrap_err();
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "not there");
    upstream.script([Answer::status(302).on("/nowhere"), leads(302, "/file", "file:///etc/passwd")]);
    assert_eq!(Client::new().get(upstream.at("/nowhere")).send().await.unwrap().status(), 302);
    assert!(Client::new().get(upstream.at("/file")).send().await.unwrap_err().is_redirect());
}

#[tokio::test]
async fn a_refusal_on_the_way_is_repeated_at_its_place_on_the_way() {
    let upstream = Upstream::builder().start().await;
    upstream.script([leads(307, "/a", "/b"), Answer::status(429).header("retry-after", "1").on("/b")]);
    let response = Client::new().post(upstream.at("/a")).body("whole").send().await.unwrap();
    assert_eq!((response.status().as_u16(), paths(&upstream)), (200, ["/a", "/b", "/b"].map(str::to_owned).into()));
    assert!(upstream.arrivals().iter().all(|arrival| arrival.body.len() == 5));
}

#[tokio::test]
async fn with_a_client_of_reqwests_it_follows_as_it_was_told() {
    let upstream = Upstream::builder().start().await;
    upstream.script([leads(302, "/a", "/b")]);
    let client = Client::from_reqwest(reqwest::Client::builder()).redirect(redirect::Policy::none()).build().unwrap();
    assert_eq!(client.get(upstream.at("/a")).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn what_another_host_says_to_a_client_of_reqwests_is_not_held_against_this_one() {
    let (one, two) = two().await;
    one.script([leads(302, "/a", &two.at("/b"))]);
    two.script([Answer::status(429).header("retry-after", "2").on("/b")]);
    let client = Client::from_reqwest(reqwest::Client::new()).build().unwrap();
    assert_eq!(client.get(one.at("/a")).send().await.unwrap().status(), 429);
    assert_eq!(client.get(one.url()).within(ms(1_000)).send().await.unwrap().status(), 200);
    assert!(client.get(two.url()).within(ms(1_000)).send().await.unwrap_err().is_refused());
}

#[tokio::test]
async fn what_a_client_of_reqwests_has_counted_on_the_way_is_not_given_back() {
    let upstream = Upstream::builder().start().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    upstream.script((0..5).map(|_| leads(302, "/a", &format!("http://{nobody}/"))));
    let client = Client::from_reqwest(reqwest::Client::new()).each_host("1/min").max_attempts(1).build().unwrap();
    for _ in 0..3 {
        client.get(upstream.at("/a")).within(ms(500)).send().await.unwrap_err();
    }
    assert_eq!(upstream.arrivals().len(), 1);
}

#[tokio::test]
async fn a_post_that_a_client_of_reqwests_has_followed_to_nobody_is_not_sent_twice() {
    let upstream = Upstream::builder().start().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    upstream.script((0..4).map(|_| leads(303, "/a", &format!("http://{nobody}/"))));
    let client =
        Client::from_reqwest(reqwest::Client::new()).backoff(Backoff::exponential(ms(1), ms(1))).build().unwrap();
    let error = client.post(upstream.at("/a")).body("once").send().await.unwrap_err();
    assert!(error.is_connect());
    assert_eq!((error.attempts(), upstream.arrivals().len()), (1, 1));
}

#[tokio::test]
async fn a_wait_that_a_redirect_states_is_waited_for() {
    let upstream = Upstream::builder().start().await;
    upstream.script([
        leads(303, "/a", "/b").header("retry-after", "1"),
        leads(303, "/c", "/d").header("retry-after", "60"),
    ]);
    assert_eq!(Client::new().get(upstream.at("/a")).send().await.unwrap().status(), 200);
    let arrivals = upstream.arrivals();
    assert!(arrivals[1].came >= arrivals[0].came + ms(1_000));
    let kept = Client::new().get(upstream.at("/c")).within(ms(5_000)).send().await.unwrap();
    assert_eq!((kept.status().as_u16(), upstream.arrivals().len()), (303, 3), "as it came: nobody waits that long");
}

#[tokio::test]
async fn a_redirect_whose_body_does_not_end_is_followed_all_the_same() {
    let upstream = Upstream::builder().start().await;
    upstream.script([leads(302, "/a", "/b").body(upstream::Body::chunks(2, 10, ms(60_000)))]);
    let client = Client::builder().each_host("1 in flight").build().unwrap();
    assert_eq!(client.get(upstream.at("/a")).within(ms(5_000)).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_post_through_a_client_of_reqwests_is_not_repeated_for_what_it_was_led_to() {
    let upstream = Upstream::builder().start().await;
    for to in ["/b", "/a"] {
        upstream.reset_records();
        upstream.script([leads(303, "/a", to), Answer::status(429).header("retry-after", "1").on(to)]);
        let client = Client::from_reqwest(reqwest::Client::new()).trust_503(true).build().unwrap();
        assert_eq!(client.post(upstream.at("/a")).body("once").send().await.unwrap().status(), 429);
        assert_eq!(upstream.arrivals().iter().filter(|arrival| arrival.method == Method::POST).count(), 1);
    }
}
