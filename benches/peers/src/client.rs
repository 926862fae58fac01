//! What the client adds to a request over loopback.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

use reqwest_throttle::{Client, Limits};
use tokio::runtime::{Builder, Runtime};

use crate::{counted, median};

const ROUNDS: usize = 15;
const REQUESTS: u32 = 2_000;

/// What one request took.
#[derive(Clone, Copy)]
struct Took {
    /// On the client's thread.
    busy_micros: f64,
    allocations: f64,
    per_second: f64,
}

pub fn run() {
    let url = answers();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let bare = reqwest::Client::builder().no_proxy().build().unwrap();
    let limits = Limits::new().quota("1000000000/s burst 1000000000").in_flight(8);
    let ours = Client::builder().each_host(limits).no_proxy().build().unwrap();
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let get = async || bare.get(&url).send().await.unwrap().bytes().await.unwrap().len();
        took[0].push(measure(&runtime, get));
        let get = async || ours.get(&url).send().await.unwrap().bytes().await.unwrap().len();
        took[1].push(measure(&runtime, get));
    }
    let [bare, ours] = took.map(|took| Took {
        busy_micros: median(took.iter().map(|took| took.busy_micros)),
        allocations: median(took.iter().map(|took| took.allocations)),
        per_second: median(took.iter().map(|took| took.per_second)),
    });
    println!("a request over loopback, one after the other, in the median");
    for (name, Took { busy_micros, allocations, per_second }) in [("reqwest", bare), ("ours", ours)] {
        println!(
            "  {name:10} {busy_micros:>6.1} us of processor, {allocations:>6.1} allocations, {per_second:.0} a second"
        );
    }
    let more = (ours.busy_micros - bare.busy_micros, ours.allocations - bare.allocations);
    println!("  added      {:>6.1} us of processor, {:>6.1} allocations", more.0, more.1);
}

fn measure(runtime: &Runtime, get: impl AsyncFn() -> usize) -> Took {
    let (began, busy, asked) = (Instant::now(), busy_nanos(), counted::allocations());
    runtime.block_on(async {
        for _ in 0..REQUESTS {
            assert_eq!(get().await, 2);
        }
    });
    let requests = f64::from(REQUESTS);
    Took {
        busy_micros: (busy_nanos() - busy) / requests / 1_000.0,
        allocations: (counted::allocations() - asked) as f64 / requests,
        per_second: requests / began.elapsed().as_secs_f64(),
    }
}

/// What this thread has used.
fn busy_nanos() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default()
}

/// A server that asks for no memory while it answers.
fn answers() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for peer in listener.incoming() {
            let mut peer = peer.unwrap();
            peer.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let mut bytes = [0; 8_192];
                while peer.read(&mut bytes).is_ok_and(|read| read > 0) {
                    peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
                }
            });
        }
    });
    url
}
