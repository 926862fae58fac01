//! What a limiter costs beside its peers: `cargo bench --bench limiter`.
//!
//! All in one run and in turns; read the ratios. A permit is dropped in each round.

#![allow(clippy::pedantic)]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use reqwest_throttle::{Context, Limiter};
use tokio::sync::Semaphore;

const ROUNDS: usize = 15;
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
        Self::new(name, move || drop(black_box(limiter.try_acquire().ok())))
    }

    fn run(&mut self) {
        let began = Instant::now();
        for _ in 0..CALLS {
            (self.call)();
        }
        self.nanos.push(began.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }

    fn median(&mut self) -> f64 {
        self.nanos.sort_by(f64::total_cmp);
        self.nanos[self.nanos.len() / 2]
    }
}

/// Nobody waits: one call and the end of its permit.
fn try_acquire() {
    let governor = governor::RateLimiter::direct(governor::Quota::per_second(NonZeroU32::MAX));
    let (semaphore, mutex) = (Semaphore::new(1), Mutex::new(0_u64));
    let mut all = [
        Contender::ours("one bucket", "1000000000/s burst 1000000000"),
        Contender::ours("one window", "1000000000/s"),
        Contender::ours(
            "three buckets and a slot",
            "1000000000/s burst 1000000000, 900000000/s burst 1000000000, 5 tokens/s burst 5, 8 in flight",
        ),
        Contender::new("governor, which hands out nothing", move || drop(black_box(governor.check()))),
        Contender::new("tokio's semaphore", move || drop(black_box(semaphore.try_acquire().unwrap()))),
        Contender::new("to read the clock", || {
            black_box(Instant::now());
        }),
        Contender::new("to lock a mutex", move || *black_box(mutex.lock().unwrap()) += 1),
    ];
    for _ in 0..ROUNDS {
        all.iter_mut().for_each(Contender::run);
    }
    println!("try_acquire and drop, ns a call:");
    for contender in &mut all {
        let median = contender.median();
        println!("  {:36} {median:>8.1}", contender.name);
    }
}

/// Tasks that wait for their turn at 20 000/s, and a semaphore that a timer feeds at the same rate.
fn waiting() {
    const TASKS: u32 = 100_000;
    const RATE: f64 = 20_000.0;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    println!("{TASKS} tasks that wait at {RATE}/s:");
    for round in 0..3 {
        let limiter = Limiter::builder("20000/s burst 1").max_waiting(200_000).build().unwrap();
        let ours = runtime.block_on(crowd(TASKS, move || {
            let waits = limiter.wait(&Context::new());
            async move { waits.await.unwrap() }
        }));
        let semaphore = Arc::new(Semaphore::new(0));
        let feed = semaphore.clone();
        let feeder = runtime.spawn(async move {
            let (began, mut fed) = (tokio::time::Instant::now(), 0);
            loop {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                let due = (began.elapsed().as_secs_f64() * RATE) as usize;
                feed.add_permits(due - fed);
                fed = due;
            }
        });
        let floor = runtime.block_on(crowd(TASKS, move || {
            let semaphore = semaphore.clone();
            async move { semaphore.acquire().await.unwrap().forget() }
        }));
        feeder.abort();
        for (name, (seconds, busy)) in [("ours", ours), ("a semaphore and a timer", floor)] {
            let of_rate = f64::from(TASKS) / RATE / seconds * 100.0;
            println!("  {round}: {name:28} {seconds:.3} s, {of_rate:.2} % of the rate, {busy:.2} s of processor time");
        }
    }
}

async fn crowd<F: Future<Output = ()> + Send + 'static>(tasks: u32, mut task: impl FnMut() -> F) -> (f64, f64) {
    let (began, busy) = (Instant::now(), processor_seconds());
    let tasks: Vec<_> = (0..tasks).map(|_| tokio::spawn(task())).collect();
    for task in tasks {
        task.await.unwrap();
    }
    (began.elapsed().as_secs_f64(), processor_seconds() - busy)
}

/// What this process has used, in user and system mode.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.rsplit(')').next().unwrap_or_default().split(' ').skip(12).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn main() {
    try_acquire();
    waiting();
}
