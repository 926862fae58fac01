//! When a request goes again: only where that does no harm, in its place, and not before anybody's time.

mod support;

#[cfg(feature = "http2")]
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use reqwest_throttle::{Attempts, Backoff, Client, ClientBuilder, Response};
use support::eventually;
use support::upstream::{Answer, Body, Upstream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Whose own waits are short.
fn quick() -> ClientBuilder {
    Client::builder().backoff(Backoff::exponential(ms(1), ms(5)))
}

fn fails(status: u16, times: usize) -> Vec<Answer> {
    (0..times).map(|_| Answer::status(status).body(Body::bytes("sorry"))).collect()
}

fn attempts(response: &Response) -> Attempts {
    *response.extensions().get().expect("what has happened is told")
}

#[tokio::test]
async fn what_fails_is_made_again_where_doing_it_twice_is_as_good_as_once() {
    let upstream = Upstream::builder().start().await;
    let client = quick().build().unwrap();
    for status in [408, 500, 502, 503, 504] {
        upstream.reset_records();
        upstream.script(fails(status, 2));
        let response = client.get(upstream.url()).send().await.unwrap();
        let happened = attempts(&response);
        assert_eq!((response.status().as_u16(), happened.sent, happened.failed), (200, 3, 2), "{status}");
        assert_eq!(upstream.arrivals().len(), 3);
    }
}

#[tokio::test]
async fn a_post_is_never_sent_twice_unless_it_may() {
    let upstream = Upstream::builder().start().await;
    let sent = async |builder: ClientBuilder, status, key: Option<&str>| {
        upstream.reset_records();
        upstream.script(fails(status, 1));
        let mut request = builder.build().unwrap().post(upstream.url()).body("once");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        request.send().await.unwrap();
        let arrivals = upstream.arrivals();
        assert!(arrivals.iter().all(|arrival| arrival.body.len() == 4), "never empty");
        arrivals.len()
    };
    for status in [500, 502, 503, 504] {
        assert_eq!(sent(quick(), status, None).await, 1, "{status}");
        assert_eq!(sent(quick(), status, Some("a")).await, 2, "{status}: the server can tell by its key");
    }
    assert_eq!(sent(quick().trust_503(true), 503, None).await, 2);
    assert_eq!(sent(quick().trust_503(true), 500, None).await, 1);
}

#[tokio::test]
async fn a_connection_that_is_reset_is_made_again_for_a_get_and_not_for_a_post() {
    let upstream = Upstream::builder().start().await;
    let client = quick().build().unwrap();
    upstream.script([Answer::reset().on("/a"), Answer::reset().on("/b")]);
    assert_eq!(client.get(upstream.at("/a")).send().await.unwrap().status(), 200);
    let error = client.post(upstream.at("/b")).body("once").send().await.unwrap_err();
    assert!(error.is_request() && error.attempts() == 1);
}

#[tokio::test]
async fn whom_nobody_answers_is_asked_again_whatever_the_method_and_nothing_is_counted() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = quick().each_host("1/min").build().unwrap();
    let error = client.post(format!("http://{nobody}/")).body("x").send().await.unwrap_err();
    assert!(error.is_connect());
    assert_eq!((error.attempts(), client.snapshot().gates[0].quotas[0].left), (4, 1));
}

#[tokio::test]
async fn after_the_attempts_the_last_answer_is_returned_as_it_came() {
    let upstream = Upstream::builder().start().await;
    upstream.script(fails(503, 9));
    let response = quick().max_attempts(3).build().unwrap().get(upstream.url()).send().await.unwrap();
    assert_eq!((response.status().as_u16(), attempts(&response).sent), (503, 3));
    assert_eq!(response.text().await.unwrap(), "sorry");
}

#[tokio::test]
async fn a_503_that_states_its_wait_silences_everybody_until_then() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(503).header("retry-after", "1").on("/a")]);
    let client = quick().build().unwrap();
    let first = client.get(upstream.at("/a")).send();
    let began = Instant::now();
    let (first, ()) = futures_util::future::join(first, async {
        eventually(|| !upstream.arrivals().is_empty()).await;
        tokio::time::sleep(ms(50)).await;
        client.get(upstream.at("/b")).send().await.unwrap();
    })
    .await;
    assert_eq!(first.unwrap().status(), 200);
    assert!(began.elapsed() >= ms(1_000));
    let came: Vec<_> = upstream.arrivals().into_iter().map(|arrival| arrival.came).collect();
    assert!(came[1..].iter().all(|at| *at >= came[0] + ms(1_000)), "{came:?}");
}

/// One combination: until when, what the first answer asks for, whether there is a wait before it, and how many attempts.
async fn one_of_the_table(within: Duration, retry_after: &'static str, queues: bool, most_attempts: usize) {
    let case = format!("{within:?}, {retry_after:?}, {queues}, {most_attempts}");
    let upstream = Upstream::builder().start().await;
    let limits = if queues { "1 per 1500ms burst 1" } else { "no limit" };
    let client = quick().each_host(limits).max_attempts(most_attempts).build().unwrap();
    let began = Instant::now();
    client.get(upstream.url()).send().await.unwrap();
    let refuses = Answer::status(429);
    upstream.script([if retry_after.is_empty() { refuses } else { refuses.header("retry-after", retry_after) }]);
    let answer = client.get(upstream.url()).within(within).send().await;
    let (took, sent) = (began.elapsed(), upstream.arrivals().len() - 1);
    let queue = if queues { ms(1_500) } else { ms(0) };
    let asked = ms(if retry_after.is_empty() { 1_000 } else { 1_000 * retry_after.parse::<u64>().unwrap() });
    if queue > within {
        assert!(answer.unwrap_err().is_refused() && sent == 0 && took < within, "{case}: {took:?}");
        return;
    }
    let again = most_attempts > 1 && queue + asked < within;
    assert_eq!((answer.unwrap().status().as_u16(), sent), if again { (200, 2) } else { (429, 1) }, "{case}");
    let certain = if again { queue + asked } else { queue };
    // A timer is credited with 2 ms, and the server's clock is another one.
    assert!(took + ms(10) >= certain && took < certain + ms(if again { 3_000 } else { 700 }), "{case}: {took:?}");
}

#[tokio::test]
async fn whoever_cannot_go_in_time_learns_it_as_soon_as_it_is_certain_and_whoever_can_goes() {
    let mut all = Vec::new();
    for within in [ms(800), ms(6_000)] {
        for retry_after in ["", "2", "30"] {
            for queues in [false, true] {
                for most_attempts in [1, 4] {
                    all.push(one_of_the_table(within, retry_after, queues, most_attempts));
                }
            }
        }
    }
    futures_util::future::join_all(all).await;
}

#[tokio::test]
async fn thirty_who_are_refused_together_come_back_one_after_the_other() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..30).map(|_| Answer::status(429).header("retry-after", "2").delay(ms(300))));
    let client = Client::new();
    let sent = (0..30).map(|_| client.get(upstream.url()).send());
    assert!(futures_util::future::join_all(sent).await.iter().all(|answer| answer.as_ref().unwrap().status() == 200));
    let came: Vec<_> = upstream.arrivals().into_iter().map(|arrival| arrival.came).collect();
    let (first, again) = came.split_at(30);
    assert!(again.len() == 30 && again[0] >= first[29] + ms(2_000), "{came:?}");
    assert!(again[29] >= again[0] + ms(300));
    assert!((0..22).all(|nth| again[nth + 8] > again[nth] + ms(20)), "{again:?}");
}

#[tokio::test]
async fn a_server_whose_clock_is_ten_minutes_off_is_understood_by_its_own_date() {
    for off in [-600_i64, 600] {
        let upstream = Upstream::builder().start().await;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let theirs = |later: i64| {
            let at = std::time::UNIX_EPOCH + Duration::from_secs(now.checked_add_signed(off + later).unwrap());
            httpdate::fmt_http_date(at)
        };
        upstream.script([Answer::status(429).header("date", &theirs(0)).header("retry-after", &theirs(2))]);
        let response = quick().build().unwrap().get(upstream.url()).within(ms(20_000)).send().await.unwrap();
        assert_eq!((response.status().as_u16(), attempts(&response).sent), (200, 2), "{off}");
        let came: Vec<_> = upstream.arrivals().into_iter().map(|arrival| arrival.came).collect();
        assert!(came[1] >= came[0] + ms(2_000) && came[1] < came[0] + ms(5_000), "{off}: {came:?}");
    }
}

#[tokio::test]
async fn a_wait_of_nothing_is_a_second_and_one_above_ten_minutes_is_the_callers_affair() {
    let upstream = Upstream::builder().start().await;
    upstream.script([
        Answer::status(429).header("retry-after", "0").on("/zero"),
        Answer::status(429).header("retry-after", "86400").on("/day"),
    ]);
    let client = quick().max_wait(ms(3_600_000)).build().unwrap();
    assert_eq!(client.get(upstream.at("/zero")).send().await.unwrap().status(), 200);
    let came: Vec<_> = upstream.arrivals().into_iter().map(|arrival| arrival.came).collect();
    assert!(came[1] >= came[0] + ms(1_000), "{came:?}");
    let response = client.get(upstream.at("/day")).send().await.unwrap();
    assert_eq!((response.status().as_u16(), attempts(&response).sent), (429, 1));
    let paused = client.snapshot().gates[0].paused_for.unwrap();
    assert!(paused > ms(590_000) && paused < ms(602_000), "{paused:?}");
}

#[tokio::test]
async fn a_wait_is_read_in_whatever_way_it_is_said_and_nothing_goes_before_it() {
    let later = || std::time::SystemTime::now() + ms(2_900);
    let epoch = || later().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs().to_string();
    let date = || httpdate::fmt_http_date(later());
    for (name, value, least) in [
        ("retry-after", "0.4".to_owned(), ms(400)),
        ("retry-after-ms", "400".to_owned(), ms(400)),
        ("x-ms-retry-after-ms", "400".to_owned(), ms(400)),
        ("retry-after", date(), ms(900)),
        ("retry-after", epoch(), ms(900)),
    ] {
        let upstream = Upstream::builder().start().await;
        upstream.script([Answer::status(429).header(name, &value)]);
        let response = quick().build().unwrap().get(upstream.url()).send().await.unwrap();
        let happened = attempts(&response);
        assert_eq!((response.status().as_u16(), happened.sent, happened.refused), (200, 2, 1), "{name}: {value}");
        let came: Vec<_> = upstream.arrivals().into_iter().map(|arrival| arrival.came).collect();
        assert!(came[1] >= came[0] + least, "{name}: {value}: {came:?}");
        assert!(happened.in_line >= least && came[1] < came[0] + ms(4_000), "{happened:?}");
    }
}

#[tokio::test]
async fn the_server_can_say_that_going_again_is_no_use_or_that_it_is() {
    let upstream = Upstream::builder().start().await;
    upstream.script([
        Answer::status(429).header("retry-after", "1").header("x-should-retry", "false").on("/never"),
        Answer::status(503).header("x-should-retry", "false").on("/never"),
        Answer::status(409).header("x-should-retry", "true").on("/again"),
    ]);
    let client = quick().build().unwrap();
    assert_eq!(client.get(upstream.at("/never")).send().await.unwrap().status(), 429);
    assert_eq!(client.get(upstream.at("/never")).within(ms(3_000)).send().await.unwrap().status(), 503);
    assert_eq!(client.post(upstream.at("/again")).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn retries_that_nobody_asked_for_are_bounded_by_the_traffic() {
    let upstream = Upstream::builder().start().await;
    upstream.script(fails(500, 500));
    let client = quick().retry_budget(20, 10).build().unwrap();
    for _ in 0..100 {
        assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 500);
    }
    assert_eq!(upstream.arrivals().len(), 130, "a hundred, a fifth of that, and ten");
}

#[tokio::test]
async fn a_refusal_that_cannot_be_waited_for_is_returned_however_large_it_is() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(429).body(Body::chunks(3, 50_000, ms(1)))]);
    let response = Client::new().get(upstream.url()).within(ms(900)).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.bytes().await.unwrap().len()), (429, 150_000));
}

#[tokio::test]
async fn a_token_is_heeded_while_it_backs_off_and_while_it_reads_what_it_will_not_return() {
    let upstream = Upstream::builder().start().await;
    upstream.script([
        Answer::status(429).header("retry-after", "5").body(Body::chunks(3, 10, ms(60_000))).on("/stalls"),
        Answer::status(500).on("/fails"),
    ]);
    let client = Client::builder().backoff(Backoff::exponential(ms(60_000), ms(60_000))).build().unwrap();
    for path in ["/stalls", "/fails"] {
        let token = CancellationToken::new();
        let sent = tokio::spawn(client.get(upstream.at(path)).cancel_on(&token).send());
        eventually(|| upstream.arrivals().iter().any(|arrival| arrival.path == path && arrival.answered.is_some()))
            .await;
        tokio::time::sleep(ms(50)).await;
        let began = Instant::now();
        token.cancel();
        assert!(sent.await.unwrap().unwrap_err().is_cancelled(), "{path}");
        assert!(began.elapsed() < ms(800), "{path}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn what_the_attempts_take_is_no_waiting() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..2).map(|_| Answer::status(503).delay(ms(400)).on("/slow")));
    let client = quick().max_wait(ms(300)).build().unwrap();
    let response = client.get(upstream.at("/slow")).send().await.unwrap();
    assert_eq!((response.status().as_u16(), attempts(&response).sent), (200, 3));
}

#[tokio::test]
async fn every_attempt_waits_for_its_turn() {
    let upstream = Upstream::builder().start().await;
    let client = quick().each_host("20/s burst 1").build().unwrap();
    upstream.script((0..5).flat_map(|nth| (0..2).map(move |_| Answer::status(503).on(&format!("/{nth}")))));
    let get = async |nth: usize| client.get(upstream.at(&format!("/{nth}"))).send().await.unwrap().status();
    assert!(futures_util::future::join_all((0..5).map(get)).await.iter().all(|status| *status == 200));
    let came: Vec<_> = upstream.arrivals().into_iter().map(|arrival| arrival.came).collect();
    assert_eq!(came.len(), 15);
    // In any time no more than the bucket lets, with what a late timer is credited for and the way to the server.
    assert!((0..10).all(|nth| came[nth + 5] >= came[nth] + ms(5 * 50 - 25)), "{came:?}");
}

#[tokio::test]
async fn while_it_backs_off_its_place_in_flight_is_free() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(500).on("/fails")]);
    let client = Client::builder()
        .each_host("1 in flight")
        .backoff(Backoff::exponential(ms(60_000), ms(60_000)))
        .build()
        .unwrap();
    let backs_off = tokio::spawn(client.get(upstream.at("/fails")).send());
    eventually(|| upstream.arrivals().len() == 1).await;
    assert_eq!(client.get(upstream.url()).within(ms(5_000)).send().await.unwrap().status(), 200);
    backs_off.abort();
}

/// A server that speaks HTTP/2 so far as to refuse the first stream of a connection.
#[cfg(feature = "http2")]
fn refuses_a_stream_once() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
            let length = u8::try_from(payload.len()).unwrap();
            [&[0, 0, length, kind, flags, 0, 0, 0, stream][..], payload].concat()
        };
        let (mut peer, _) = listener.accept().unwrap();
        assert!(peer.read(&mut [0; 4_096]).unwrap() > 0);
        peer.write_all(&frame(4, 0, 0, &[])).unwrap();
        // The first stream is refused (7), the second answered with `:status: 200` and nothing more.
        std::thread::sleep(ms(100));
        peer.write_all(&frame(3, 0, 1, &[0, 0, 0, 7])).unwrap();
        std::thread::sleep(ms(300));
        peer.write_all(&frame(1, 5, 3, &[0x88])).unwrap();
        std::thread::sleep(ms(2_000));
    });
    format!("http://{address}/")
}

#[cfg(feature = "http2")]
#[tokio::test]
async fn a_stream_that_the_server_gives_back_untouched_is_sent_again_whatever_the_method() {
    let client = quick().http2_prior_knowledge().build().unwrap();
    let response = client.post(refuses_a_stream_once()).body("x").send().await.unwrap();
    assert_eq!((response.status().as_u16(), attempts(&response).sent), (200, 2));
}

#[tokio::test]
async fn what_the_server_states_goes_before_a_back_off_whose_end_ends_the_attempts() {
    let upstream = Upstream::builder().start().await;
    let client = Client::builder().backoff(Backoff::from_iter(|| [ms(20), ms(40)])).max_attempts(9);
    let client = client.build().unwrap();
    upstream.script(fails(503, 9));
    let response = client.get(upstream.url()).send().await.unwrap();
    let happened = attempts(&response);
    assert_eq!((response.status().as_u16(), happened.sent, happened.backed_off), (503, 3, ms(60)));
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(429).header("retry-after", "1")]);
    let response = client.get(upstream.url()).send().await.unwrap();
    let happened = attempts(&response);
    assert_eq!((happened.sent, happened.backed_off), (2, ms(0)));
    assert!(happened.in_line >= ms(1_000));
}

#[cfg(feature = "backoff")]
#[tokio::test]
async fn a_back_off_of_the_crate_of_that_name_is_made_for_each_request() {
    let upstream = Upstream::builder().start().await;
    let made = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counts = made.clone();
    let backoff = Backoff::from_backoff(move || {
        counts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        backoff::backoff::Constant::new(ms(10))
    });
    let client = Client::builder().backoff(backoff).build().unwrap();
    for _ in 0..2 {
        upstream.script(fails(500, 2));
        let response = client.get(upstream.url()).send().await.unwrap();
        assert_eq!((attempts(&response).sent, attempts(&response).backed_off), (3, ms(20)));
    }
    let never = Client::builder().backoff(Backoff::from_backoff(|| backoff::backoff::Stop {})).build().unwrap();
    upstream.script(fails(500, 1));
    assert_eq!(attempts(&never.get(upstream.url()).send().await.unwrap()).sent, 1);
    assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 2);
}
