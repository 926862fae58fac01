//! Servers that say what is left of their limits, to clients that know of none: nobody is refused once something was heard, and
//! what others leave is used. Others use the same key all the time, at random.

mod support;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest_throttle::{Client, Signal};
use support::judge::Limit;
use support::upstream::{Answer, OtherClient, Says, Upstream};

const SECOND: Duration = Duration::from_secs(1);
const CALLERS: usize = 50;
const SECONDS: u64 = 20;

fn float(number: impl TryInto<u32, Error: std::fmt::Debug>) -> f64 {
    f64::from(number.try_into().unwrap())
}

/// Others come at random, so many a second in the mean.
fn others(per_second: f64, seconds: u64, seed: u64) -> OtherClient {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut at, mut all) = (0.0, Vec::new());
    while at < float(seconds) {
        at -= (1.0 - random.f64()).ln() / per_second;
        all.push(Duration::from_secs_f64(at));
    }
    OtherClient::At(all)
}

/// Everybody asks again at once, for so long. How many were refused while it learned, and after, and how many went.
async fn ask(client: &Client, upstream: &Upstream, seconds: u64) -> (usize, usize, usize) {
    let began = Instant::now();
    let work = async || {
        while began.elapsed() < Duration::from_secs(seconds) {
            let left = Duration::from_secs(seconds).saturating_sub(began.elapsed()) + SECOND;
            if let Ok(answer) = client.get(upstream.url()).within(left).send().await {
                answer.bytes().await.unwrap();
            }
        }
    };
    join_all((0..CALLERS).map(|_| work())).await;
    let refused: Vec<_> = upstream.arrivals().into_iter().filter(|one| one.status == Some(429)).collect();
    let learning = refused.iter().filter(|one| one.came < 2 * SECOND).count();
    let went = upstream.accepted_at().into_iter().filter(|at| *at < Duration::from_secs(seconds)).count();
    (learning, refused.len() - learning, went)
}

/// 20 a second, of which others take six: ours are refused at most once each while they learn, and then hardly ever.
async fn finds(says: Says, limit: Limit, seed: u64) {
    let upstream = Upstream::builder().limit(limit).says(says).start().await;
    upstream.other_client(others(6.0, SECONDS + 5, seed));
    let client = Client::builder().max_attempts(50).build().unwrap();
    let (learning, refused, went) = ask(&client, &upstream, SECONDS).await;
    let share = float(went) / (14.0 * float(SECONDS));
    println!("{says:?}: {learning} while learning, {refused} after, {:.1} % of what others leave", share * 100.0);
    println!("  {}", client.snapshot());
    // A tenth of a second that is missed on a loaded machine costs a tenth of a window. What the share is without that, the
    // same in virtual time says.
    assert!(learning <= CALLERS && refused * 100 <= 2 * went && share >= 0.65, "{learning} {refused} {share}");
}

#[tokio::test]
async fn what_is_left_is_kept_to_in_every_dialect_and_whatever_the_servers_clock_shows() {
    let fixed = || Limit::fixed(20, SECOND);
    tokio::join!(
        finds(Says::Structured, fixed(), 1),
        finds(Says::Trio, fixed(), 2),
        finds(Says::Llm, fixed(), 3),
        finds(Says::Llm, Limit::bucket(20, SECOND, 20), 4),
        finds(Says::Trio, Limit::sliding(20, SECOND), 7),
    );
    let off = |minutes: i64| Says::Moment { ahead: 60 * minutes };
    tokio::join!(finds(off(10), fixed(), 5), finds(off(-10), fixed(), 6));
}

#[tokio::test]
async fn alone_on_the_key_nearly_all_is_used() {
    let alone = async |says| {
        let upstream = Upstream::builder().limit(Limit::fixed(60, 3 * SECOND)).says(says).start().await;
        let client = Client::builder().max_attempts(50).build().unwrap();
        let (learning, refused, went) = ask(&client, &upstream, 15).await;
        println!("{says:?}: {learning} and {refused} refused, {went} of 300");
        assert!(learning + refused <= 3 && went >= 255, "{says:?}: {learning} {refused} {went}");
    };
    tokio::join!(alone(Says::Structured), alone(Says::Trio), alone(Says::Llm), alone(Says::Moment { ahead: 0 }));
}

#[tokio::test]
async fn a_refusal_without_money_is_not_repeated_and_pauses_nobody() {
    let upstream = Upstream::builder().start().await;
    let body = support::upstream::Body::bytes(r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}"#);
    upstream.script([Answer::status(429).body(body)]);
    let client = Client::new();
    let answer = client.get(upstream.url()).send().await.unwrap();
    let signal = answer.extensions().get::<Signal>().unwrap();
    assert!(signal.terminal && upstream.arrivals().len() == 1, "{signal}");
    assert!(answer.text().await.unwrap().contains("insufficient_quota"), "as it came");
    assert_eq!(client.snapshot().gates[0].paused_for, None);
}

#[tokio::test]
async fn a_wait_in_the_body_is_heeded() {
    let upstream = Upstream::builder().start().await;
    let body =
        r#"{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1s"}]}}"#;
    upstream.script([Answer::status(429).body(support::upstream::Body::bytes(body))]);
    let answer = Client::new().get(upstream.url()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let came: Vec<_> = upstream.arrivals().into_iter().map(|arrival| arrival.came).collect();
    assert!(came.len() == 2 && came[1] >= came[0] + SECOND, "{came:?}");
}

#[tokio::test]
async fn whoever_does_not_want_reports_to_be_heeded_is_only_refused() {
    let upstream = Upstream::builder().start().await;
    let used_up = || Answer::status(200).header("x-ratelimit-remaining", "0").header("x-ratelimit-reset", "60");
    upstream.script((0..2).map(|_| used_up()));
    let client = Client::builder().heed_reports(false).build().unwrap();
    for _ in 0..2 {
        client.get(upstream.url()).within(SECOND).send().await.unwrap();
    }
    let client = Client::new();
    upstream.script((0..2).map(|_| used_up()));
    client.get(upstream.url()).send().await.unwrap();
    assert!(client.get(upstream.url()).within(SECOND).send().await.unwrap_err().is_refused());
    assert!(client.snapshot().to_string().contains("stated by the server"), "{}", client.snapshot());
}

#[tokio::test]
async fn who_is_careful_has_few_in_flight() {
    let upstream =
        Upstream::builder().jitter_after(Duration::from_millis(20)..=Duration::from_millis(20)).start().await;
    let client = Client::builder().careful().build().unwrap();
    let get = async || client.get(upstream.url()).send().await.unwrap().bytes().await.unwrap();
    join_all((0..20).map(|_| get())).await;
    assert_eq!(upstream.peak_in_flight(), 4);
}

/// When the requests came, after the first.
fn gaps(upstream: &Upstream) -> Vec<Duration> {
    let came: Vec<_> = upstream.arrivals().into_iter().map(|arrival| arrival.came).collect();
    came[1..].iter().map(|at| at.saturating_sub(came[0])).collect()
}

#[tokio::test]
async fn a_reset_in_seconds_is_no_moment_and_whoever_cannot_wait_for_it_is_told() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(200)
        .header("x-ratelimit-limit", "100")
        .header("x-ratelimit-remaining", "0")
        .header("x-ratelimit-reset", "2513")]);
    let client = Client::new();
    client.get(upstream.url()).send().await.unwrap();
    let error = client.get(upstream.url()).within(SECOND).send().await.unwrap_err();
    let wait = error.refused().unwrap().wait.unwrap();
    assert!(wait > 2_500 * SECOND && wait <= 2_513 * SECOND, "{wait:?}");
}

#[tokio::test]
async fn structured_fields_are_kept_to_on_answers_and_on_refusals_and_of_several_the_tightest() {
    for (status, field, least) in
        [(200, "\"api\";r=0;t=2", 2), (429, "\"api\";r=0;t=2", 2), (200, "\"a\";r=5;t=1, \"b\";r=0;t=3", 3)]
    {
        let upstream = Upstream::builder().start().await;
        let policy = "\"api\";q=500;w=300, \"a\";q=9;w=1, \"b\";q=9;w=3";
        upstream.script([Answer::status(status).header("ratelimit-policy", policy).header("ratelimit", field)]);
        let client = Client::new();
        for _ in 0..2 {
            assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 200);
        }
        let waited = gaps(&upstream)[0];
        assert!(waited >= least * SECOND && waited < (least + 3) * SECOND, "{status} {field}: {waited:?}");
    }
}

#[tokio::test]
async fn an_answer_that_says_nothing_of_limits_holds_nobody_up() {
    for first in [Answer::status(403), Answer::status(404), Answer::reset()] {
        let upstream = Upstream::builder().start().await;
        upstream.script([first.on("/first")]);
        let client = Client::builder().max_attempts(1).build().unwrap();
        let _ = client.post(upstream.at("/first")).send().await;
        let began = Instant::now();
        client.get(upstream.url()).send().await.unwrap();
        assert!(began.elapsed() < SECOND / 2, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn callers_that_leave_before_any_answer_hold_nobody_up() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..100).map(|_| Answer::hang().on("/hangs")));
    let client = Client::new();
    for _ in 0..100 {
        let sent = client.get(upstream.at("/hangs")).send();
        assert!(tokio::time::timeout(Duration::from_millis(5), sent).await.is_err());
    }
    let answer = client.get(upstream.url()).within(SECOND).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), client.snapshot().gates[0].waiting), (200, 0));
}

#[tokio::test]
async fn a_refusal_in_other_words_is_one_and_a_forbidden_thing_is_not() {
    let upstream = Upstream::builder().start().await;
    let says = |message: &str| support::upstream::Body::bytes(format!("{{\"message\":\"{message}\"}}"));
    let left = |answer: Answer| answer.header("x-ratelimit-limit", "5000").header("x-ratelimit-remaining", "4000");
    upstream.script([
        left(Answer::status(403)).body(says("You have exceeded a secondary rate limit.")).on("/limited"),
        left(Answer::status(403)).body(says("Must have admin rights to Repository.")).on("/forbidden"),
    ]);
    let client = Client::new();
    assert_eq!(client.get(upstream.at("/forbidden")).send().await.unwrap().status(), 403);
    assert_eq!(upstream.arrivals().len(), 1, "returned at once");
    assert_eq!(client.get(upstream.at("/limited")).send().await.unwrap().status(), 200);
    let gaps = gaps(&upstream);
    assert!(gaps[1] >= gaps[0] + SECOND, "paused, and repeated: {gaps:?}");
}

#[tokio::test]
async fn after_a_window_one_brings_word_and_then_the_others_go_and_none_is_refused() {
    let limit = Limit::fixed(5, 5 * SECOND);
    let upstream = Upstream::builder().limit(limit).says(Says::Trio).start().await;
    let client = Client::new();
    let get = async || client.get(upstream.url()).send().await.unwrap().bytes().await.unwrap();
    get().await;
    tokio::time::sleep(6 * SECOND).await;
    join_all((0..6).map(|_| get())).await;
    let gaps = gaps(&upstream);
    // One unit is left to others.
    assert!(gaps[3] < 7 * SECOND && gaps[4] >= 9 * SECOND, "{gaps:?}");
    assert_eq!(upstream.refused(), 0);
}

#[tokio::test]
async fn whoever_leaves_while_a_refusal_is_looked_into_the_others_hear_of_it() {
    let upstream = Upstream::builder().start().await;
    let slow = support::upstream::Body::chunks(2, 10, Duration::from_secs(30));
    upstream.script([Answer::status(429).header("retry-after", "1").body(slow).on("/refused")]);
    let client = Client::new();
    let leaves = tokio::spawn(client.get(upstream.at("/refused")).send());
    support::eventually(|| upstream.arrivals().first().is_some_and(|one| one.answered.is_some())).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    leaves.abort();
    let _ = leaves.await;
    client.get(upstream.url()).send().await.unwrap();
    assert!(gaps(&upstream)[0] >= SECOND, "{:?}", gaps(&upstream));
}
