//! Sends 300 requests to a strict server, first with bare reqwest and then with the limits of that server on our side
//! of the wire, and shows what became of them. Fails if ours earned a single 429.

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use reqwest_throttle::{Client, Limits};
use support::judge::Limit;
use support::upstream::{RetryAfter, Upstream};

const REQUESTS: usize = 300;
const PER_SECOND: usize = 50;
const IN_FLIGHT: usize = 8;
const WINDOW: Duration = Duration::from_secs(1);

/// 50 in any second, 8 in flight, 5 to 40 ms away in each direction.
async fn strict_server() -> Upstream {
    let delay = || Duration::from_millis(5)..=Duration::from_millis(40);
    let server = Upstream::builder().jitter_before(delay()).jitter_after(delay());
    let server = server.limit(Limit::sliding(PER_SECOND, WINDOW)).limit(Limit::in_flight(IN_FLIGHT));
    server.retry_after(RetryAfter::Seconds(1)).start().await
}

/// How much of the time that it took was needed. At best each of the window's places is taken again one window and one
/// round trip after it was taken, which makes `n / (window + round trip)`, and each place in flight one round trip after.
fn share(server: &Upstream, took: Duration, answered: usize) -> f64 {
    let arrivals = server.arrivals();
    let round_trips = arrivals.iter().filter_map(|arrival| arrival.answered?.checked_sub(arrival.came));
    let round_trip = round_trips.sum::<Duration>() / u32::try_from(arrivals.len()).unwrap_or(u32::MAX);
    let mut begun = Vec::new();
    while begun.len() < answered {
        let again = |places: usize, after| begun.len().checked_sub(places).map_or(Duration::ZERO, |n| begun[n] + after);
        begun.push(again(PER_SECOND, WINDOW + round_trip).max(again(IN_FLIGHT, round_trip)));
    }
    let needed = begun.last().map_or(Duration::ZERO, |last| *last + round_trip);
    100.0 * needed.as_secs_f64() / took.as_secs_f64()
}

/// Sends all requests, so many at once, and prints what became of them. Answers how many 429s the server gave.
async fn run<F: Future<Output = bool>>(name: &str, server: &Upstream, at_once: usize, send: impl Fn() -> F) -> usize {
    let begun = Instant::now();
    let answers: Vec<_> = stream::iter(0..REQUESTS).map(|_| send()).buffer_unordered(at_once).collect().await;
    let took = begun.elapsed();
    let answered = answers.into_iter().filter(|is_success| *is_success).count();
    let (seconds, share) = (took.as_secs_f64(), share(server, took, answered));
    println!("{name:<16} {answered:>12} {:>11} {seconds:>9.2} {share:>20.1} %", server.refused());
    server.refused()
}

#[tokio::main]
async fn main() -> ExitCode {
    println!("{REQUESTS} requests to a server that takes {PER_SECOND} in any second and {IN_FLIGHT} in flight\n");
    println!(
        "{:<16} {:>12} {:>11} {:>9} {:>22}",
        "client", "answers 2xx", "429s earned", "seconds", "share of the possible"
    );

    let server = strict_server().await;
    let bare = reqwest::Client::new();
    run("reqwest", &server, IN_FLIGHT, async || {
        let response = bare.get(server.url()).send().await;
        response.is_ok_and(|response| response.status().is_success())
    })
    .await;

    let server = strict_server().await;
    let limits = Limits::new().quota("50/s").in_flight(IN_FLIGHT);
    let client = match Client::builder().each_host(limits).build() {
        Ok(client) => client,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let earned = run("reqwest-throttle", &server, REQUESTS, async || {
        let response = client.get(server.url()).send().await;
        response.is_ok_and(|response| response.status().is_success())
    })
    .await;
    ExitCode::from(u8::from(earned > 0))
}
