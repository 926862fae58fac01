//! Tasks that wait for their turn at 20 000/s, and a semaphore that a timer feeds at the same rate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest_throttle::{Context, Limiter};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::{counted, go, median};

const TASKS: u32 = 100_000;
const RATE: f64 = 20_000.0;
const ROUNDS: usize = 5;

/// What a crowd took.
#[derive(Clone, Copy)]
struct Took {
    seconds: f64,
    /// In user and system mode.
    busy: f64,
    /// For each task, when all of them wait.
    bytes: f64,
}

type Run = fn(&Runtime) -> Took;

pub fn run() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let contenders: [(&str, Run); 4] = [
        ("a semaphore and a timer", semaphore),
        ("ours, burst 1", |runtime| ours(runtime, "20000/s burst 1")),
        ("ours, burst 100 (5 ms)", |runtime| ours(runtime, "20000/s burst 100")),
        ("throttle-net", throttle_net),
    ];
    let mut took = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        for (took, (_, run)) in took.iter_mut().zip(contenders) {
            took.push(run(&runtime));
        }
    }
    println!("{TASKS} tasks that wait at {RATE}/s, in the median, and as a multiple of the semaphore");
    let medians = took.map(|took| Took {
        seconds: median(took.iter().map(|took| took.seconds)),
        busy: median(took.iter().map(|took| took.busy)),
        bytes: median(took.iter().map(|took| took.bytes)),
    });
    for ((name, _), Took { seconds, busy, bytes }) in contenders.iter().zip(medians) {
        let floor = medians[0];
        let of_rate = f64::from(TASKS) / RATE / seconds * 100.0;
        println!(
            "  {name:28} {of_rate:>6.2} % of the rate, processor {busy:.2} s ({:.2}), {bytes:.0} bytes a task ({:.2})",
            busy / floor.busy,
            bytes / floor.bytes
        );
    }
    if let Some((seconds, busy)) = go::crowd() {
        let of_rate = f64::from(TASKS) / RATE / seconds * 100.0;
        println!("  {:28} {of_rate:>6.2} % of the rate, processor {busy:.2} s", "Go's x/time/rate");
    }
}

fn ours(runtime: &Runtime, limits: &str) -> Took {
    let limiter = Limiter::builder(limits).max_waiting(TASKS as usize).build().unwrap();
    runtime.block_on(crowd(move || {
        let limiter = limiter.clone();
        async move { limiter.wait(&Context::new()).await.unwrap() }
    }))
}

fn throttle_net(runtime: &Runtime) -> Took {
    let limiter = Arc::new(throttle_net::Throttle::builder().per_second(RATE as u32).burst(1).build());
    runtime.block_on(crowd(move || {
        let limiter = limiter.clone();
        async move { limiter.acquire().await.unwrap() }
    }))
}

fn semaphore(runtime: &Runtime) -> Took {
    let semaphore = Arc::new(Semaphore::new(0));
    let feed = semaphore.clone();
    let feeder = runtime.spawn(async move {
        let (began, mut fed) = (tokio::time::Instant::now(), 0);
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let due = (began.elapsed().as_secs_f64() * RATE) as usize;
            feed.add_permits(due - fed);
            fed = due;
        }
    });
    let took = runtime.block_on(crowd(move || {
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap().forget() }
    }));
    feeder.abort();
    took
}

async fn crowd<F: Future<Output = ()> + Send + 'static>(mut task: impl FnMut() -> F) -> Took {
    let (began, busy, before) = (Instant::now(), processor_seconds(), counted::in_use());
    let mut tasks = Vec::with_capacity(TASKS as usize);
    tasks.extend((0..TASKS).map(|_| tokio::spawn(task())));
    // Nearly all of them wait: those who have gone since gave their memory back.
    let waiting = f64::from(TASKS) - began.elapsed().as_secs_f64() * RATE;
    let handles = tasks.capacity() * size_of::<tokio::task::JoinHandle<()>>();
    let bytes = (counted::in_use() - before - handles) as f64 / waiting;
    for task in tasks {
        task.await.unwrap();
    }
    Took { seconds: began.elapsed().as_secs_f64(), busy: processor_seconds() - busy, bytes }
}

/// What this process has used.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.rsplit(')').next().unwrap_or_default().split(' ').skip(12).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}
