//! How fast is it, and how large does it grow? `./test batch` asks for more than the tests that run each time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};

use super::desk::{Desk, ended, plain_server};
use crate::support::eventually;
use crate::support::judge::Limit;
use crate::support::upstream::Upstream;

/// A number that the environment may set.
fn set(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// When the last request can go at the earliest: each of the window's places is free again a window and a round trip after it was
/// taken, but no later than the cap, and each place in flight a round trip after.
fn ideal(server: &Upstream, per_second: usize, in_flight: usize) -> Duration {
    let (window, cap) = (Duration::from_secs(1), Duration::from_millis(250));
    let places = |count| (0..count).map(|_| Reverse(Duration::ZERO)).collect::<BinaryHeap<_>>();
    let (mut free, mut slots, mut last) = (places(per_second), places(in_flight), Duration::ZERO);
    for arrival in server.arrivals() {
        last = free.pop().unwrap().0.max(slots.pop().unwrap().0);
        let round_trip = arrival.answered.unwrap().saturating_sub(arrival.came);
        free.push(Reverse(last + window + round_trip.min(cap)));
        slots.push(Reverse(last + round_trip));
    }
    last
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_are_sent_at_the_rate_that_is_allowed_and_none_is_refused() {
    let count = set("BATCH_REQUESTS", 5_000);
    let delay = || Duration::from_millis(1)..=Duration::from_millis(20);
    let limits = Upstream::builder().limit(Limit::sliding(200, Duration::from_secs(1))).limit(Limit::in_flight(16));
    let (desk, server) =
        (Desk::new("five_thousand"), limits.jitter_before(delay()).jitter_after(delay()).start().await);
    desk.requests(&server, count);
    let said = desk.run(&["--rate", "200/s", "--in-flight", "16"]).await;
    assert_eq!((said.code, server.refused(), desk.has_each_once(count)), (Some(0), 0, true), "{}", said.err);
    let arrivals = server.arrivals();
    let took = arrivals[count - 1].came.checked_sub(arrivals[0].came).unwrap();
    let share = ideal(&server, 200, 16).as_secs_f64() / took.as_secs_f64();
    println!(
        "{count} at 200/s, 16 in flight: 0 refused, {:.2} % of the possible; {}",
        share * 100.0,
        said.err.trim_end()
    );
    assert!(share >= 0.98, "{share}");
}

/// By how many times a bare loop over reqwest is as fast, with as many in flight: the median of so many rounds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_limits_it_is_about_as_fast_as_a_bare_loop() {
    let (rounds, count) = (set("BATCH_ROUNDS", 1), set("BATCH_REQUESTS", 2_000));
    let (desk, server) = (Desk::new("bare"), plain_server().await);
    desk.requests(&server, count);
    let mut shares = Vec::new();
    for _ in 0..rounds {
        server.reset_records();
        let _ = fs::remove_file(desk.path("out"));
        assert_eq!(desk.run(&["--in-flight", "64"]).await.code, Some(0));
        let ours = span(&server);
        server.reset_records();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let send = async |number: usize| {
            http.get(server.at(&format!("/{number}"))).send().await.unwrap().bytes().await.unwrap()
        };
        stream::iter(0..count).map(send).buffer_unordered(64).count().await;
        shares.push(span(&server).as_secs_f64() / ours.as_secs_f64());
    }
    shares.sort_by(f64::total_cmp);
    let median = shares[rounds / 2];
    println!("{median:.2} × a bare loop, median of {rounds}: {shares:.2?}");
    assert!(median >= if rounds >= 9 { 0.75 } else { 0.3 }, "{shares:?}");
}

/// From the first arrival to the last answer.
fn span(server: &Upstream) -> Duration {
    let arrivals = server.arrivals();
    let last = arrivals.iter().filter_map(|arrival| arrival.answered).max().unwrap();
    last.checked_sub(arrivals[0].came).unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn millions_of_lines_take_little_memory() {
    let lines = set("BATCH_LINES", 50_000);
    let (desk, server) = (Desk::new("memory"), plain_server().await);
    desk.requests(&server, lines);
    // All but a few thousand are answered already, so that both files are read.
    let answered = lines - lines / 100;
    let record =
        |id: usize| format!("{{\"custom_id\":\"{id}\",\"response\":{{\"status_code\":200}},\"error\":null}}\n");
    desk.write("out", (0..answered).map(record).collect::<Vec<_>>().concat());
    let begun = Instant::now();
    let child = desk.begin(&[]);
    let peak = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0)
    };
    let mut most = 0;
    while server.accepted() < (lines - answered) / 2 {
        assert!(begun.elapsed() < Duration::from_secs(300));
        tokio::time::sleep(Duration::from_millis(20)).await;
        most = most.max(peak());
    }
    eventually(|| server.accepted() == lines - answered).await;
    let said = ended(child).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    println!("{lines} lines, {answered} answered: {} MiB at most, {:?}", most >> 10, begun.elapsed());
    assert!(most > 0 && most >> 10 < 100, "{most} KiB");
}
