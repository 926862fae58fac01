//! Whether a strict server on a jittery network ever refuses us, and whether we use what it allows: a thousand
//! requests at 50/s, delayed by up to 100 ms before they are counted and again before they are answered.

mod support;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest_throttle::Client;
use support::judge::{Limit, worst_window};
use support::upstream::{RetryAfter, Upstream};

const REQUESTS: usize = 1_000;
const WINDOW: Duration = Duration::from_secs(1);
const JITTER: Duration = Duration::from_millis(100);

/// A window of a second counts a request from its answer, or from this after its sending.
const LATENCY_CAP: Duration = Duration::from_millis(250);

async fn upstream(limit: Limit) -> Upstream {
    let (least, most) = (Duration::ZERO, JITTER);
    Upstream::builder().limit(limit).jitter_before(least..=most).jitter_after(least..=most).seed(1).start().await
}

/// Sends a thousand requests at once, and sees them all answered.
async fn send_all(client: &Client, upstream: &Upstream) {
    let send = async || {
        let request = client.get(upstream.url()).within(Duration::from_secs(90));
        request.send().await.unwrap().error_for_status().unwrap().bytes().await.unwrap()
    };
    join_all((0..REQUESTS).map(|_| send())).await;
    assert_eq!((upstream.refused(), upstream.accepted()), (0, REQUESTS));
}

/// How much of the time that the last request needed at the least, given what each round trip took, it took.
fn share(upstream: &Upstream, ideal: Duration) -> f64 {
    let arrivals = upstream.arrivals();
    let took = arrivals[REQUESTS - 1].came.checked_sub(arrivals[0].came).unwrap();
    ideal.as_secs_f64() / took.as_secs_f64()
}

/// A window's n places, each taken again one window after its answer, or after the cap if that comes first.
fn ideal(upstream: &Upstream, places: usize) -> Duration {
    let mut free: BinaryHeap<_> = (0..places).map(|_| Reverse(Duration::ZERO)).collect();
    let mut last = Duration::ZERO;
    for arrival in upstream.arrivals() {
        last = free.pop().unwrap().0;
        let round_trip = arrival.answered.unwrap().checked_sub(arrival.came).unwrap();
        free.push(Reverse(last + WINDOW + round_trip.min(LATENCY_CAP)));
    }
    last
}

#[tokio::test]
async fn fifty_in_any_second_are_never_refused_and_used_to_99_percent() {
    let upstream = upstream(Limit::sliding(50, WINDOW)).await;
    let client = Client::builder().each_host("50/s").build().unwrap();
    send_all(&client, &upstream).await;
    assert!(worst_window(&upstream.accepted_at(), WINDOW) <= 50);
    let share = share(&upstream, ideal(&upstream, 50));
    println!("50/s sliding: 0 refused, {:.2} % of the possible", share * 100.0);
    assert!(share >= 0.99, "{share}");
}

/// Fifty workers, who know no limit, before a server that takes twenty in any second and says `Retry-After: 1`.
#[tokio::test]
async fn fifty_workers_find_the_limit_of_a_server_that_refuses() {
    const ALL: usize = 900;
    let limit = Limit::sliding(20, WINDOW);
    let upstream = Upstream::builder().limit(limit).retry_after(RetryAfter::Seconds(1)).start().await;
    let client = Client::builder().max_attempts(20).build().unwrap();
    let left = AtomicUsize::new(ALL);
    let work = async || {
        while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 200);
        }
    };
    join_all((0..50).map(|_| work())).await;
    let arrivals = upstream.arrivals();
    let took = arrivals[arrivals.len() - 1].came.checked_sub(arrivals[0].came).unwrap();
    let refused =
        f64::from(u32::try_from(upstream.refused()).unwrap()) / f64::from(u32::try_from(arrivals.len()).unwrap());
    let slower = took.as_secs_f64() / 44.0;
    println!("20/s, unknown: {:.1} % refused, {slower:.3} of the shortest time", refused * 100.0);
    assert!(upstream.accepted() == ALL && refused <= 0.08 && slower <= 1.1, "{refused} {slower}");
}

#[tokio::test]
async fn fifty_in_each_second_are_never_refused_and_used_to_99_percent() {
    let upstream = upstream(Limit::fixed(50, WINDOW)).await;
    let client = Client::builder().each_host("50/s").build().unwrap();
    send_all(&client, &upstream).await;
    let share = share(&upstream, ideal(&upstream, 50));
    println!("50/s fixed: 0 refused, {:.2} % of the possible", share * 100.0);
    assert!(share >= 0.99, "{share}");
}

/// What leaves in a burst can arrive in a larger one: the server's burst must exceed ours by what goes in the time
/// by which delays differ, here 50/s × (100 ms + 2 ms) = 5.1.
#[tokio::test]
async fn a_bucket_is_never_refused_by_a_server_whose_burst_has_the_slack_of_the_jitter() {
    let upstream = upstream(Limit::bucket(50, WINDOW, 11)).await;
    let client = Client::builder().each_host("50/s burst 5").build().unwrap();
    send_all(&client, &upstream).await;
    let share = share(&upstream, WINDOW * u32::try_from(REQUESTS - 5).unwrap() / 50);
    println!("50/s burst 5: 0 refused, {:.2} % of the possible", share * 100.0);
    assert!(share >= 0.99, "{share}");
}
