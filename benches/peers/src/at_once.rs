//! Nobody waits: one call, and the end of its permit where there is one.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::Instant;

use reqwest_throttle::Limiter;
use tokio::sync::Semaphore;

use crate::{go, median};

const ROUNDS: usize = 21;
const CALLS: u32 = 200_000;

/// Something that is called again and again.
struct Contender {
    name: &'static str,
    call: Box<dyn FnMut()>,
    nanos: Vec<f64>,
}

impl Contender {
    fn new(name: &'static str, call: impl FnMut() + 'static) -> Self {
        Self { name, call: Box::new(call), nanos: Vec::new() }
    }

    fn ours(name: &'static str, limits: &str) -> Self {
        let limiter = Limiter::new(limits).unwrap();
        Self::new(name, move || drop(black_box(limiter.try_acquire().unwrap())))
    }

    fn run(&mut self) {
        let began = Instant::now();
        for _ in 0..CALLS {
            (self.call)();
        }
        self.nanos.push(began.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }

    fn median(&self) -> f64 {
        median(self.nanos.iter().copied())
    }
}

fn contenders() -> Vec<Contender> {
    const MOST: u32 = 1_000_000_000;
    let governor = governor::RateLimiter::direct(governor::Quota::per_second(NonZeroU32::MAX));
    let throttle_net = throttle_net::Throttle::per_second(MOST);
    let leaky = leaky_bucket::RateLimiter::builder().initial(MOST as usize).max(MOST as usize).build();
    let (semaphore, mutex) = (Semaphore::new(1), Mutex::new(0_u64));
    vec![
        Contender::ours("ours, one bucket", "1000000000/s burst 1000000000"),
        Contender::ours("ours, one window", "1000000000/s"),
        Contender::ours(
            "ours, three buckets and a slot",
            "1000000000/s burst 1000000000, 900000000/s burst 1000000000, 5 tokens/s burst 5, 8 in flight",
        ),
        Contender::new("throttle-net", move || assert!(black_box(throttle_net.try_acquire()))),
        Contender::new("governor", move || black_box(governor.check()).unwrap()),
        Contender::new("leaky-bucket", move || assert!(black_box(leaky.try_acquire(1)))),
        Contender::new("tokio's semaphore", move || drop(black_box(semaphore.try_acquire().unwrap()))),
        Contender::new("to read the clock twice", || {
            black_box((Instant::now(), Instant::now()));
        }),
        Contender::new("to lock a mutex twice", move || {
            *black_box(mutex.lock().unwrap()) += 1;
            *black_box(mutex.lock().unwrap()) += 1;
        }),
    ]
}

pub fn run() {
    let mut all = contenders();
    for _ in 0..ROUNDS {
        all.iter_mut().for_each(Contender::run);
    }
    let ours = all[0].median();
    println!("one that goes at once, and its end: ns in the median, and ours, one bucket, as a multiple");
    for contender in &all {
        let median = contender.median();
        println!("  {:32} {median:>8.1} {:>8.2}", contender.name, ours / median);
    }
    match go::allow() {
        Some(nanos) => println!("  {:32} {nanos:>8.1} {:>8.2}", "Go's x/time/rate", ours / nanos),
        None => println!("  Go's x/time/rate: not here; it is there with golang-go and golang-golang-x-time-dev"),
    }
}
