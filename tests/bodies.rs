//! In flight means until the body has ended: what happens to a response's place, however it is read or left.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use http_body_util::BodyExt;
use reqwest_throttle::{Client, ClientBuilder, Limits, Response};
use support::eventually;
use support::judge::Limit;
use support::upstream::{Answer, Body, Upstream};
use tokio::time::{sleep, timeout};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn one_at_a_time() -> ClientBuilder {
    Client::builder().each_host(Limits::new().in_flight(1))
}

/// Three chunks, one each 10 ms.
fn slow() -> Body {
    Body::chunks(3, 10, ms(10))
}

fn in_flight(client: &Client) -> usize {
    client.snapshot().gates.iter().map(|gate| gate.in_flight).sum()
}

#[tokio::test]
async fn a_response_that_nobody_reads_gives_its_place_up_after_a_while_and_can_be_read_all_the_same() {
    let upstream = Upstream::builder().body(slow()).start().await;
    let client = one_at_a_time().unread_for(ms(200)).build().unwrap();
    let unread = client.get(upstream.url()).send().await.unwrap();
    client.get(upstream.url()).within(ms(10_000)).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(unread.bytes().await.unwrap().len(), 30);
    eventually(|| in_flight(&client) == 0).await;
}

#[tokio::test]
async fn a_response_that_is_left_half_read_gives_its_place_up_too() {
    let upstream = Upstream::builder().body(Body::chunks(1_000, 10, ms(1))).start().await;
    let client = one_at_a_time().unread_for(ms(200)).build().unwrap();
    let mut left = client.get(upstream.url()).send().await.unwrap();
    assert!(left.chunk().await.unwrap().is_some());
    drop(client.get(upstream.url()).within(ms(10_000)).send().await.unwrap());
    assert!(left.chunk().await.unwrap().is_some());
}

#[tokio::test]
async fn a_read_that_waits_for_the_server_is_a_read() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(200).body(Body::chunks(2, 10, ms(800))).on("/slow")]);
    let client = one_at_a_time().unread_for(ms(100)).build().unwrap();
    let mut slow = client.get(upstream.at("/slow")).send().await.unwrap();
    let read = tokio::spawn(async move { while slow.chunk().await.unwrap().is_some() {} });
    sleep(ms(400)).await;
    assert_eq!(in_flight(&client), 1, "the server is at it still");
    read.await.unwrap();
    assert_eq!(in_flight(&client), 0);
}

#[tokio::test]
async fn whoever_waits_while_responses_are_left_unread_is_told_so() {
    let upstream = Upstream::builder().body(slow()).start().await;
    let told = Arc::new(Mutex::new(String::new()));
    let hear = Arc::clone(&told);
    let client = one_at_a_time().on_wait(move |waits| *hear.lock().unwrap() = waits.to_string()).build().unwrap();
    let _unread = client.get(upstream.url()).send().await.unwrap();
    let error = client.get(upstream.url()).within(ms(1_500)).send().await.unwrap_err();
    let refused = error.refused().unwrap();
    assert_eq!((refused.in_flight, refused.unread), (Some(1), 1));
    assert!(
        refused.to_string().ends_with("1 responses are open that nobody reads: read them to their end, or drop them")
    );
    assert!(told.lock().unwrap().ends_with("; 1 responses are open that nobody reads"), "{told:?}");
}

#[tokio::test]
async fn a_request_can_ask_to_be_in_flight_only_until_its_head() {
    let upstream = Upstream::builder().body(Body::chunks(1_000, 10, ms(20))).start().await;
    let client = one_at_a_time().build().unwrap();
    let _open = client.get(upstream.url()).release_on_headers().send().await.unwrap();
    assert_eq!(in_flight(&client), 0);
    let _next = client.get(upstream.url()).within(ms(5_000)).send().await.unwrap();
    assert_eq!(in_flight(&client), 1);
}

/// Answers one request: `101`, and then what it reads.
fn echoes_after_an_upgrade() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut bytes = [0; 4_096];
        assert!(peer.read(&mut bytes).unwrap() > 0);
        peer.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").unwrap();
        let read = peer.read(&mut bytes).unwrap();
        peer.write_all(&bytes[..read]).unwrap();
    });
    format!("http://{address}/")
}

#[tokio::test]
async fn a_connection_can_be_upgraded() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let client = one_at_a_time().build().unwrap();
    let request = client.get(echoes_after_an_upgrade()).header("connection", "upgrade").header("upgrade", "echo");
    let mut upgraded = request.send().await.unwrap().upgrade().await.unwrap();
    upgraded.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    upgraded.read_exact(&mut heard).await.unwrap();
    assert_eq!((&heard, in_flight(&client)), (b"hello", 0), "from then on it is no request");
}

/// Answers one request with a chunked body and a trailer.
fn sends_a_trailer() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        assert!(peer.read(&mut [0; 4_096]).unwrap() > 0);
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
        write!(peer, "{head}5\r\nhello\r\n0\r\nx-sum: 5\r\n\r\n").unwrap();
    });
    format!("http://{address}/")
}

#[tokio::test]
async fn frames_and_trailers_come_through() {
    let client = one_at_a_time().build().unwrap();
    let response = client.get(sends_a_trailer()).header("te", "trailers").send().await.unwrap();
    let body = http::Response::<reqwest::Body>::from(response).into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "5");
    assert_eq!((body.to_bytes(), in_flight(&client)), ("hello".into(), 0));
}

/// Says what is not HTTP, to everybody.
fn talks_nonsense() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for peer in listener.incoming() {
            let _ = peer.and_then(|mut peer| peer.write_all(b"SMTP 220 hello\r\n\r\n"));
        }
    });
    format!("http://{address}/")
}

#[tokio::test]
async fn whatever_goes_wrong_the_next_one_goes() {
    let upstream = Upstream::builder().start().await;
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client =
        Client::builder().max_in_flight(1).no_proxy().connect_timeout(ms(5_000)).max_attempts(1).build().unwrap();
    let wrong = [
        "http://name.invalid/".to_owned(),
        format!("http://{refused}/"),
        talks_nonsense(),
        upstream.url().replace("http://", "https://"),
    ];
    for url in wrong {
        assert!(client.get(&url).send().await.is_err(), "{url}");
        assert_eq!(in_flight(&client), 0, "{url}");
        assert_eq!(client.get(upstream.url()).send().await.unwrap().text().await.unwrap(), "ok", "{url}");
    }
    upstream.script([Answer::status(400)]);
    assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 400);
    assert_eq!(in_flight(&client), 0, "the response was dropped");
}

#[tokio::test]
async fn a_hook_that_panics_takes_its_own_request_along_and_no_other() {
    let upstream = Upstream::builder().body(Body::chunks(1_000, 10, ms(20))).start().await;
    let client = one_at_a_time().on_wait(|_| panic!("a hook")).build().unwrap();
    let held = client.get(upstream.url()).send().await.unwrap();
    let panicking = tokio::spawn(client.get(upstream.url()).send());
    assert!(panicking.await.unwrap_err().is_panic());
    drop(held);
    client.get(upstream.url()).within(ms(800)).send().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_is_cut_is_given_as_far_as_it_came_and_never_repeated() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(200).body(Body::chunks(10, 10, ms(5))).cut_after(30)]);
    let mut response = one_at_a_time().build().unwrap().get(upstream.url()).send().await.unwrap();
    let (mut came, mut error) = (0, None);
    while error.is_none() {
        match response.chunk().await {
            Ok(Some(chunk)) => came += chunk.len(),
            Ok(None) => panic!("cut off, and not ended"),
            Err(cut) => error = Some(cut),
        }
    }
    assert_eq!((came, upstream.arrivals().len()), (30, 1));
}

/// Every way in which a caller may end with a response.
async fn ends_somehow(nth: usize, response: Response) {
    let mut response = response;
    match nth % 4 {
        0 => drop(response.bytes().await),
        1 => drop(response),
        2 => drop(response.chunk().await),
        _ => while let Ok(Some(_)) = response.chunk().await {},
    }
}

const PATHS: [&str; 5] = ["/none", "/reset", "/cut", "/same", "/hang"];

/// Answers of each kind for the paths, all but the last of which end by themselves.
fn misbehaves(upstream: &Upstream) {
    let answers = [
        Answer::status(204).body(Body::empty()),
        Answer::reset(),
        Answer::status(200).body(slow()).cut_after(15),
        Answer::status(304).body(Body::empty()),
        Answer::hang(),
    ];
    for _ in 0..20 {
        upstream.script(answers.clone().into_iter().zip(PATHS).map(|(answer, path)| answer.on(path)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_server_ends_never_exceeds_the_cap() {
    let upstream = Upstream::builder().limit(Limit::in_flight(4)).body(slow()).start().await;
    misbehaves(&upstream);
    let client = Client::builder().each_host(Limits::new().in_flight(4)).max_attempts(1).build().unwrap();
    let request = async |nth: usize| {
        let path = PATHS[..4].get(nth % 8).unwrap_or(&"/slow");
        if let Ok(response) = client.get(upstream.at(path)).send().await {
            drop(response.bytes().await);
        }
    };
    join_all((0..120).map(request)).await;
    assert_eq!((upstream.arrivals().len(), upstream.refused()), (120, 0));
    assert!(upstream.peak_in_flight() <= 4);
    eventually(|| in_flight(&client) == 0).await;
}

/// Callers that leave in every way and at any time. The server learns of that a moment later, so `most` is more than the cap.
async fn storm(client: Client, upstream: Upstream, most: usize) {
    misbehaves(&upstream);
    let request = async |nth: usize| {
        let path = PATHS.get(nth % 10).unwrap_or(&"/slow");
        let sent = timeout(ms(200 + 7 * (nth as u64 % 20)), client.get(upstream.at(path)).send()).await;
        if let Ok(Ok(response)) = sent {
            ends_somehow(nth / 10, response).await;
        }
    };
    join_all((0..160).map(request)).await;
    assert!(upstream.peak_in_flight() <= most, "{}", upstream.peak_in_flight());
    assert!(upstream.accepted() > 20 && upstream.refused() == 0, "{}", upstream.accepted());
    eventually(|| in_flight(&client) == 0).await;
    assert_eq!(client.snapshot().gates.iter().map(|gate| gate.waiting).sum::<usize>(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_ends_never_exceeds_the_cap_and_leaves_nothing_in_flight() {
    let upstream = Upstream::builder().limit(Limit::in_flight(8)).body(slow()).start().await;
    let client = Client::builder().each_host(Limits::new().in_flight(4)).build().unwrap();
    storm(client, upstream, 8).await;
}

#[cfg(feature = "http2")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_storm_over_http2() {
    let upstream = Upstream::builder().limit(Limit::in_flight(8)).body(slow()).start().await;
    let client = Client::builder().each_host(Limits::new().in_flight(4)).http2_prior_knowledge().build().unwrap();
    assert_eq!(client.get(upstream.url()).send().await.unwrap().version(), http::Version::HTTP_2);
    storm(client, upstream, 8).await;
}

#[tokio::test]
async fn a_read_that_was_given_up_is_none_once_something_has_come() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(200).body(Body::chunks(2, 10, ms(300))).on("/slow")]);
    let client = one_at_a_time().unread_for(ms(200)).build().unwrap();
    let mut left = client.get(upstream.at("/slow")).send().await.unwrap();
    assert!(timeout(ms(50), left.chunk()).await.is_err());
    client.get(upstream.url()).within(ms(10_000)).send().await.unwrap();
    assert!(left.chunk().await.unwrap().is_some());
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Whoever waits on one runtime does not depend on another one that somebody waited on before, and of which `then` makes something.
fn waits_beside(other: tokio::runtime::Runtime, then: impl FnOnce(tokio::runtime::Runtime)) {
    let own = runtime();
    let upstream = own.block_on(Upstream::builder().body(slow()).start());
    let client = one_at_a_time().unread_for(ms(600)).build().unwrap();
    let held = own.block_on(client.get(upstream.url()).send()).unwrap();
    other.block_on(async { client.get(upstream.url()).within(ms(50)).send().await.unwrap_err() });
    let waiting = own.spawn(client.get(upstream.url()).within(ms(10_000)).send());
    std::thread::sleep(ms(100));
    then(other);
    own.block_on(waiting).unwrap().unwrap();
    drop(held);
}

#[test]
fn a_runtime_that_ends_or_that_nobody_polls_keeps_no_place_from_those_who_wait() {
    waits_beside(runtime(), drop);
    let idle = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut kept = None;
    waits_beside(idle, |idle| kept = Some(idle));
}

#[tokio::test]
async fn who_does_not_wait_gets_the_place_of_what_nobody_reads() {
    let upstream = Upstream::builder().body(slow()).start().await;
    for builder in [one_at_a_time().max_waiting(0), one_at_a_time().max_wait(Duration::ZERO)] {
        let client = builder.unread_for(ms(100)).build().unwrap();
        let _unread = client.get(upstream.url()).send().await.unwrap();
        assert!(client.get(upstream.url()).send().await.unwrap_err().is_refused());
        sleep(ms(150)).await;
        client.get(upstream.url()).send().await.unwrap();
    }
}

#[tokio::test]
async fn what_is_never_to_be_given_up_is_not() {
    let upstream = Upstream::builder().body(slow()).start().await;
    let client = one_at_a_time().unread_for(Duration::MAX).build().unwrap();
    let unread = client.get(upstream.url()).send().await.unwrap();
    let waiting = tokio::spawn(client.get(upstream.url()).within(ms(5_000)).send());
    sleep(ms(100)).await;
    assert_eq!(in_flight(&client), 1);
    drop(unread);
    waiting.await.unwrap().unwrap();
}

#[cfg(feature = "http2")]
#[tokio::test]
async fn a_response_over_http2_that_ends_with_its_head_holds_nothing() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(200).body(Body::empty())]);
    let client = one_at_a_time().http2_prior_knowledge().build().unwrap();
    let _kept = client.get(upstream.url()).send().await.unwrap();
    assert_eq!(in_flight(&client), 0);
}
