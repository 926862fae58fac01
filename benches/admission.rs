//! What the admission core costs, from a thousand who wait to a million: `cargo bench --bench admission`.
//!
//! Each figure is the median of several runs, with the small and the large crowd in turns. The core is not part of the
//! public interface, so its sources are taken in here.

#![allow(dead_code, unused_imports, unreachable_pub, missing_docs, clippy::pedantic)]

#[path = "../src"]
mod src {
    pub(crate) mod admission;
    pub(crate) mod backoff;
    pub(crate) mod cost;
    pub(crate) mod invalid;
    pub(crate) mod key;
    pub(crate) mod limits;
    pub(crate) mod priority;
    pub(crate) mod quota;
    pub(crate) mod refused;
    pub(crate) mod time;
    pub(crate) mod wait;
}

use std::time::{Duration, Instant};

use src::{admission, backoff, cost, invalid, key, limits, priority, quota, refused, time, wait};

use admission::{Admission, Asked, GateName, Rule, Settings, Wish};
use cost::Cost;
use key::Key;
use limits::Limits;
use time::Time;

const FAR: u64 = 1 << 60;

/// So long one waits at most, as everybody does who says nothing.
const PATIENCE: Duration = Duration::from_secs(100_000);

/// Which crowd: all in one lane, a hundred in each of many lanes behind one gate, or each in its own.
#[derive(Clone, Copy)]
enum Crowd {
    OneLane,
    Hundreds,
    OwnLanes,
}

struct Run {
    enqueue: f64,
    grant: f64,
    bytes: f64,
}

fn core() -> Admission {
    let rule = |limits: &str| Rule { limits: limits.parse::<Limits>().unwrap(), ..Rule::default() };
    let rules = vec![rule("100000/s burst 1"), rule("100000/s burst 10")];
    Admission::new(Settings { rules, most_keys: 2_000_000, most_waiting: 2_000_000, ..Settings::default() })
}

fn courses(crowd: Crowd, count: usize) -> Vec<Vec<GateName>> {
    let client = GateName { rule: 0, key: Key::new("") };
    let host = |n: usize| GateName { rule: 1, key: Key::new(&format!("host {n}")) };
    match crowd {
        Crowd::OneLane => vec![vec![client]],
        Crowd::Hundreds => (0..count / 100).map(|n| vec![client.clone(), host(n)]).collect(),
        Crowd::OwnLanes => (0..count).map(|n| vec![client.clone(), host(n)]).collect(),
    }
}

fn fill(core: &mut Admission, crowd: Crowd, count: usize) -> (Vec<usize>, Duration) {
    let (courses, cost) = (courses(crowd, count), Cost::new());
    let mut ids = Vec::with_capacity(count);
    let began = Instant::now();
    for n in 0..=count {
        let deadline = Some(Time::ZERO.plus(time::nanos(PATIENCE)));
        let wish = Wish { deadline, ..Wish::new(&courses[n % courses.len()], &cost) };
        match core.ask(&wish, Time::ZERO).unwrap() {
            Asked::Granted(grant) => core.release(grant, Time::ZERO),
            Asked::Waiting(id) => ids.push(id),
        }
    }
    (ids, began.elapsed())
}

/// Resident bytes of this process.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.map_or(f64::NAN, |pages| pages * 4_096.0)
}

fn run(crowd: Crowd, count: usize) -> Run {
    let mut core = core();
    let before = resident();
    let (ids, enqueue) = fill(&mut core, crowd, count);
    let bytes = (resident() - before) / count as f64;
    assert_eq!((ids.len(), core.waiting()), (count, count));
    let grants = count.min(100_000);
    let began = Instant::now();
    let mut granted = 0;
    while granted < grants {
        let next = core.next().unwrap();
        core.advance(next);
        while let Some(id) = core.pop_decided() {
            granted += 1;
            let grant = core.collect(id).unwrap().unwrap();
            core.release(grant, next);
        }
    }
    let each = |time: Duration, count: usize| time.as_nanos() as f64 / count as f64;
    Run { enqueue: each(enqueue, count), grant: each(began.elapsed(), granted), bytes }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn crowds() {
    println!("{:28} {:>9} {:>12} {:>10} {:>10}", "who waits", "count", "enqueue ns", "grant ns", "bytes each");
    for (name, crowd) in [
        ("one lane", Crowd::OneLane),
        ("a hundred a lane, two gates", Crowd::Hundreds),
        ("a lane each, two gates", Crowd::OwnLanes),
    ] {
        // Each lane of its own has a gate of its own, and of those there are 100 000 at most.
        let counts = [1_000, if matches!(crowd, Crowd::OwnLanes) { 100_000 } else { 1_000_000 }];
        let mut runs: [Vec<Run>; 2] = Default::default();
        for _ in 0..5 {
            // The small crowd as often as it takes to be measured.
            for _ in 0..20 {
                runs[0].push(run(crowd, counts[0]));
            }
            runs[1].push(run(crowd, counts[1]));
        }
        let of = |at: usize, what: fn(&Run) -> f64| median(runs[at].iter().map(what).collect());
        for (at, count) in counts.iter().enumerate() {
            let bytes = if at == 0 { "-".to_owned() } else { format!("{:.0}", runs[1][0].bytes) };
            println!(
                "{name:28} {count:>9} {:>12.0} {:>10.0} {bytes:>10}",
                of(at, |run| run.enqueue),
                of(at, |run| run.grant)
            );
        }
        println!("{:28} {:>9} {:>12} {:>10.2}", "", "ratio", "", of(1, |run| run.grant) / of(0, |run| run.grant));
    }
}

/// Half of a million leave in random order; the rest go in theirs.
fn cancels() {
    let mut core = core();
    let (mut ids, _) = fill(&mut core, Crowd::OneLane, 1_000_000);
    let order = ids.clone();
    fastrand::Rng::with_seed(1).shuffle(&mut ids);
    let began = Instant::now();
    let mut worst = Duration::ZERO;
    for id in &ids[..500_000] {
        let call = Instant::now();
        core.leave(*id, Time::ZERO);
        worst = worst.max(call.elapsed());
    }
    let took = began.elapsed();
    let gone: std::collections::HashSet<_> = ids[..500_000].iter().collect();
    let mut rest = order.iter().filter(|id| !gone.contains(id));
    let mut now = Time::ZERO;
    while core.waiting() > 0 {
        now = core.next().unwrap();
        core.advance(now);
        while let Some(id) = core.pop_decided() {
            assert_eq!(Some(&id), rest.next());
            let grant = core.collect(id).unwrap().unwrap();
            core.release(grant, now);
        }
    }
    println!(
        "500 000 of 1 000 000 cancelled in random order: {:.0} ns each, the worst call {:.2} ms; the rest in order, {:.2} % of the rate",
        took.as_nanos() as f64 / 5e5,
        worst.as_secs_f64() * 1e3,
        500_000.0 / (now.as_nanos() as f64 / 1e9 * 1e5) * 100.0
    );
}

/// Nobody waits: what one request pays.
fn at_once() {
    let rule = |limits: &str| Rule { limits: limits.parse::<Limits>().unwrap(), ..Rule::default() };
    for (name, limits) in [
        ("one bucket", "1000000/s burst 1000000"),
        ("one window", "1000000000/s"),
        (
            "three buckets, a slot",
            "1000000/s burst 1000000, 2000000/s burst 1000000, 500000 tokens/s burst 1000000, 8 in flight",
        ),
    ] {
        let mut core = Admission::new(Settings { rules: vec![rule(limits)], ..Settings::default() });
        let (gates, cost) = ([GateName { rule: 0, key: Key::new("") }], Cost::new());
        let each = (0..9).map(|round| {
            let began = Instant::now();
            for n in 0..100_000_u64 {
                let now = Time::ZERO.plus((round * 100_000 + n) * 2_000);
                if let Ok(Asked::Granted(grant)) = core.ask(&Wish::new(&gates, &cost), now) {
                    core.release(grant, now);
                }
            }
            began.elapsed().as_nanos() as f64 / 1e5
        });
        println!("asked, granted at once and released, {name}: {:.0} ns", median(each.collect()));
    }
}

/// All of them, or those that are named: `-- at_once`.
fn main() {
    let named: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for (name, bench) in [("at_once", at_once as fn()), ("crowds", crowds), ("cancels", cancels)] {
        if named.is_empty() || named.iter().any(|other| other == name) {
            bench();
        }
    }
}
