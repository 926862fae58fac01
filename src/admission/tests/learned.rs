//! What is learned of a server's limits where servers mislead: sliding windows, tokens, small limits, penalties, lies, in virtual
//! time; and whether all of it is forgotten in the end.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

#[derive(Clone, Copy, Debug)]
enum Server {
    InAny(u64, u64),
    InEach(u64, u64),
    /// In units a second, and a burst; whether its reset is when it is full, or when the next is there.
    Bucket(f64, f64, bool),
}

#[derive(Clone, Debug)]
struct Case {
    server: Server,
    then: Option<(u64, Server)>,
    /// In units a second.
    others: f64,
    other_cost: u64,
    costs: (u64, u64),
    tokens: bool,
    precision: u64,
    rounds_down: bool,
    workers: usize,
    seconds: u64,
    /// At this instant it refuses one, and says so long.
    penalty: Option<(u64, u64)>,
    /// At this instant one answer says that the reset is so far away, and is right about all else.
    lie: Option<(u64, u64)>,
    latency: (u64, u64),
    /// What of that which others leave is to be used at the least, and which part of ours refused at most.
    least: f64,
    most: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum E {
    Arrives,
    Comes,
    Other,
}

struct Sim {
    case: Case,
    core: Admission,
    now: u64,
    taken: VecDeque<(u64, u64)>,
    level: (f64, u64),
    rng: fastrand::Rng,
    events: BinaryHeap<Reverse<(u64, usize, E)>>,
    grants: BTreeMap<usize, (Grant, u64)>,
    said: BTreeMap<usize, (Report, bool)>,
    next: usize,
    served: u64,
    others_took: u64,
    sent: usize,
    refused: Vec<u64>,
}

fn base() -> Case {
    Case {
        server: Server::InAny(20, S),
        then: None,
        others: 6.0,
        other_cost: 1,
        costs: (1, 1),
        tokens: false,
        precision: 100 * MS,
        rounds_down: false,
        workers: 50,
        seconds: 120,
        penalty: None,
        lie: None,
        latency: (MS, 6 * MS),
        least: 0.85,
        most: 0.01,
    }
}

impl Sim {
    fn counted(&mut self) -> (u64, u64, u64) {
        let now = self.now;
        match self.case.server {
            Server::InAny(most, w) => {
                while self.taken.front().is_some_and(|(at, _)| at + w <= now) {
                    self.taken.pop_front();
                }
                let used: u64 = self.taken.iter().map(|(_, u)| u).sum();
                let resets = self.taken.front().map_or(0, |(at, _)| at + w - now);
                (most, used, resets)
            }
            Server::InEach(most, w) => {
                let place = |at: u64| (at + 370 * MS) / w;
                self.taken.retain(|(at, _)| place(*at) == place(now));
                (most, self.taken.iter().map(|(_, u)| u).sum(), w - (now + 370 * MS) % w)
            }
            Server::Bucket(rate, burst, full) => {
                let (level, since) = self.level;
                let level = (level + (now - since) as f64 / 1e9 * rate).min(burst);
                self.level = (level, now);
                let resets = if full { (burst - level) / rate } else { (1.0 - level.fract()) / rate };
                (burst as u64, (burst as u64).saturating_sub(level.max(0.0) as u64), (resets * 1e9) as u64)
            }
        }
    }

    fn takes(&mut self, cost: u64) -> bool {
        let (most, used, _) = self.counted();
        let free = used + cost <= most;
        if free {
            self.taken.push_back((self.now, cost));
            self.level.0 -= cost as f64;
        }
        free
    }

    fn report(&mut self, refused: bool, wait: Option<u64>) -> Report {
        let (most, used, resets) = self.counted();
        let p = self.case.precision;
        let rounded = if self.case.rounds_down { resets / p * p } else { resets.div_ceil(p) * p };
        let (name, unit) = if self.case.tokens { ("tokens", Unit::TOKENS) } else { ("requests", Unit::REQUESTS) };
        Report {
            name: Arc::from(name),
            unit,
            left: if wait.is_some() { 0 } else { most.saturating_sub(used) },
            most: Some(most),
            resets_after: Some(Duration::from_nanos(wait.unwrap_or(rounded))),
            window: None,
            refused,
        }
    }

    fn ask(&mut self) {
        let cost = self.rng.u64(self.case.costs.0..=self.case.costs.1);
        let cost = if self.case.tokens { Cost::new().and("tokens", cost) } else { cost.into() };
        let want = Want { cost, deadline: Some(at(FOREVER)), ..host() };
        if let Asked::Granted(grant) = ask(&mut self.core, want, Time::from_nanos(self.now)).unwrap() {
            self.send(grant);
        }
    }

    fn send(&mut self, grant: Grant) {
        let now = Time::from_nanos(self.now);
        if !self.core.send(&grant, now) {
            self.core.give_back(grant, now);
            return self.ask();
        }
        self.sent += 1;
        self.next += 1;
        let cost = self.core.state.grants.at(&grant, 0).0;
        let _ = cost;
        let at = self.now + self.rng.u64(self.case.latency.0..self.case.latency.1);
        self.events.push(Reverse((at, self.next, E::Arrives)));
        let cost = self.cost_of(&grant);
        self.grants.insert(self.next, (grant, cost));
    }

    fn cost_of(&mut self, _: &Grant) -> u64 {
        // Any in the range does: what the server takes is what the client said, in the mean; exact where all are alike.
        self.case.costs.1
    }

    fn run(case: Case, seed: u64) -> (f64, usize, usize, u64) {
        let limits: Limits = "no limit".parse().unwrap();
        let level = if let Server::Bucket(_, burst, _) = case.server { burst } else { 0.0 };
        let end = case.seconds * S;
        let workers = case.workers;
        let mut sim = Self {
            case,
            core: Admission::new(limits.into()),
            now: S,
            taken: VecDeque::new(),
            level: (level, S),
            rng: fastrand::Rng::with_seed(seed),
            events: BinaryHeap::new(),
            grants: BTreeMap::new(),
            said: BTreeMap::new(),
            next: 0,
            served: 0,
            others_took: 0,
            sent: 0,
            refused: Vec::new(),
        };
        if sim.case.others > 0.0 {
            sim.other();
        }
        (0..workers).for_each(|_| sim.ask());
        let (mut capacity, mut last) = (0.0, S);
        while sim.now < end {
            let event = sim.events.peek().map(|Reverse((at, ..))| *at);
            let due = sim.core.next().map(Time::as_nanos);
            let Some(next) = event.into_iter().chain(due).min() else { panic!("hangs at {}", sim.now) };
            sim.now = next.max(sim.now);
            let rate = match sim.case.server {
                Server::InAny(most, w) | Server::InEach(most, w) => most as f64 / w as f64 * 1e9,
                Server::Bucket(rate, ..) => rate,
            };
            capacity += rate * (sim.now - last) as f64 / 1e9;
            last = sim.now;
            if sim.case.then.is_some_and(|(at, _)| at <= sim.now) {
                sim.case.server = sim.case.then.take().unwrap().1;
                sim.taken.clear();
                if let Server::Bucket(_, burst, _) = sim.case.server {
                    sim.level = (burst, sim.now);
                }
            }
            sim.core.advance(Time::from_nanos(sim.now));
            while sim.events.peek().is_some_and(|Reverse((at, ..))| *at <= sim.now) {
                let Reverse((_, who, what)) = sim.events.pop().unwrap();
                sim.happens(who, what);
            }
            while let Some(id) = sim.core.pop_decided() {
                let grant = sim.core.collect(id).unwrap().unwrap();
                sim.send(grant);
            }
        }
        let window = match sim.case.server {
            Server::InAny(_, w) | Server::InEach(_, w) => w,
            Server::Bucket(..) => S,
        };
        let late = sim.refused.iter().filter(|at| **at > S + 2 * window).count();
        let share = sim.served as f64 / (capacity - sim.others_took as f64);
        (share, sim.refused.len() - late, late, sim.sent as u64)
    }

    fn other(&mut self) {
        let rate = self.case.others / self.case.other_cost as f64;
        let gap = -(1.0 - self.rng.f64()).ln() / rate;
        self.events.push(Reverse((self.now + (gap * 1e9) as u64, 0, E::Other)));
    }

    fn happens(&mut self, who: usize, what: E) {
        match what {
            E::Other => {
                if self.takes(self.case.other_cost) {
                    self.others_took += self.case.other_cost;
                }
                self.other();
            }
            E::Arrives => {
                let cost = self.grants[&who].1;
                let penalty = self.case.penalty.filter(|(at, _)| *at <= self.now);
                let wait = penalty.map(|(_, wait)| wait);
                if penalty.is_some() {
                    self.case.penalty = None;
                }
                let refused = penalty.is_some() || !self.takes(cost);
                let mut report = self.report(refused, wait);
                if let Some((_, far)) = self.case.lie.filter(|(at, _)| *at <= self.now && !refused && report.left > 5) {
                    self.case.lie = None;
                    report.resets_after = Some(Duration::from_nanos(far));
                }
                self.said.insert(who, (report, refused));
                let at = self.now + self.rng.u64(self.case.latency.0..self.case.latency.1);
                self.events.push(Reverse((at, who, E::Comes)));
            }
            E::Comes => {
                let ((grant, cost), (report, refused)) =
                    (self.grants.remove(&who).unwrap(), self.said.remove(&who).unwrap());
                let now = Time::from_nanos(self.now);
                self.core.report(&grant, 0, std::slice::from_ref(&report), now);
                if refused {
                    self.refused.push(self.now);
                    let wait = report.resets_after.filter(|wait| !wait.is_zero()).unwrap_or(Duration::from_secs(1));
                    self.core.refused(&grant, 0, Wait::Stated(wait, self.rng.u32(..)), now);
                } else {
                    self.served += cost;
                    self.core.answered(&grant, now);
                }
                self.core.release(grant, now);
                self.ask();
            }
        }
    }
}

/// The worst of four runs: the share of what others leave, and the part of ours that was refused after it had learned.
fn worst(name: &str, case: &Case) -> (f64, f64) {
    let runs: Vec<_> = (0..4).map(|seed| Sim::run(case.clone(), seed)).collect();
    let share = runs.iter().map(|run| run.0).fold(9.0, f64::min);
    let refused = runs.iter().map(|run| run.2 as f64 / run.3 as f64).fold(0.0, f64::max);
    println!("{name:40} {:.0} %, {:.1} % refused", share * 100.0, refused * 100.0);
    (share, refused)
}

/// A server, and who asks it beside others. What small limits lose is the unit that is left to others; what penalties do, the pause.
#[rustfmt::skip]
fn cases() -> Vec<(&'static str, Case)> {
    let b = base;
    vec![
        ("sliding 20/s others 6", b()),
        ("sliding 20/s others 14", Case { others: 14.0, ..b() }),
        ("sliding 1/s alone", Case { server: Server::InAny(1, S), others: 0.0, ..b() }),
        ("sliding 2/s alone", Case { server: Server::InAny(2, S), others: 0.0, least: 0.49, ..b() }),
        ("sliding 3/s alone", Case { server: Server::InAny(3, S), others: 0.0, least: 0.65, ..b() }),
        ("sliding 3/s others 1", Case { server: Server::InAny(3, S), others: 1.0, least: 0.58, ..b() }),
        ("sliding 5/s others 1.5", Case { server: Server::InAny(5, S), others: 1.5, least: 0.70, ..b() }),
        ("sliding 10/10s others .3", Case { server: Server::InAny(10, 10 * S), others: 0.3, seconds: 600, ..b() }),
        ("fixed 2/s alone", Case { server: Server::InEach(2, S), others: 0.0, least: 0.49, ..b() }),
        ("fixed 3/s alone", Case { server: Server::InEach(3, S), others: 0.0, least: 0.65, ..b() }),
        ("fixed 5/s others 1.5", Case { server: Server::InEach(5, S), others: 1.5, ..b() }),
        ("sliding 100/min others 30%, 1s up", Case { server: Server::InAny(100, 60 * S), others: 0.5, precision: S, seconds: 1_800, ..b() }),
        ("sliding 100/min others 30%, 1s down", Case { server: Server::InAny(100, 60 * S), others: 0.5, precision: S, rounds_down: true, seconds: 1_800, ..b() }),
        ("sliding 1000/h others 30%", Case { server: Server::InAny(1000, 3600 * S), others: 0.0833, precision: S, seconds: 36_000, ..b() }),
        ("sliding 100/min alone", Case { server: Server::InAny(100, 60 * S), others: 0.0, precision: S, seconds: 1_800, ..b() }),
        ("fixed 100/min others 70%", Case { server: Server::InEach(100, 60 * S), others: 1.16, precision: S, seconds: 1_800, ..b() }),
        ("bucket 20/s b20 full others 6", Case { server: Server::Bucket(20.0, 20.0, true), ..b() }),
        ("bucket 20/s b20 full others 14", Case { server: Server::Bucket(20.0, 20.0, true), others: 14.0, ..b() }),
        ("bucket 20/s b20 next others 6", Case { server: Server::Bucket(20.0, 20.0, false), ..b() }),
        ("bucket 20/s b20 next alone ms", Case { server: Server::Bucket(20.0, 20.0, false), others: 0.0, precision: MS, ..b() }),
        ("bucket 2/s b100 full others .6", Case { server: Server::Bucket(2.0, 100.0, true), others: 0.6, precision: S, seconds: 1_200, ..b() }),
        ("bucket 2/s b100 full alone", Case { server: Server::Bucket(2.0, 100.0, true), others: 0.0, precision: S, seconds: 1_200, ..b() }),
        ("fixed then sliding", Case { server: Server::InEach(20, S), then: Some((60 * S, Server::InAny(20, S))), ..b() }),
        ("sliding then fixed", Case { server: Server::InAny(20, S), then: Some((60 * S, Server::InEach(20, S))), ..b() }),
        ("sliding 10s then sliding 1s", Case { server: Server::InAny(200, 10 * S), then: Some((60 * S, Server::InAny(20, S))), seconds: 240, least: 0.80, most: 0.02, ..b() }),
        ("sliding then bucket", Case { server: Server::InAny(20, S), then: Some((60 * S, Server::Bucket(20.0, 20.0, true))), ..b() }),
        ("sliding 20/s penalty 60s at 5s", Case { penalty: Some((5 * S, 60 * S)), seconds: 600, least: 0.80, ..b() }),
        ("fixed 20/s others 12 penalty 60s", Case { server: Server::InEach(20, S), others: 12.0, penalty: Some((5 * S, 60 * S)), seconds: 600, ..b() }),
        ("sliding 20/s one says 1h", Case { lie: Some((5 * S, 3_600 * S)), seconds: 600, ..b() }),
        ("fixed 20/s others 12 one says 1h", Case { server: Server::InEach(20, S), others: 12.0, lie: Some((5 * S, 3_600 * S)), seconds: 600, ..b() }),
        ("bucket 20/s full others 12 penalty 60s", Case { server: Server::Bucket(20.0, 20.0, true), others: 12.0, penalty: Some((5 * S, 60 * S)), seconds: 600, ..b() }),
        ("bucket next others 12 penalty 60s", Case { server: Server::Bucket(20.0, 20.0, false), others: 12.0, penalty: Some((5 * S, 60 * S)), seconds: 600, most: 0.06, ..b() }),
        ("fixed 20/s alone penalty 60s", Case { server: Server::InEach(20, S), others: 0.0, penalty: Some((5 * S, 60 * S)), seconds: 600, ..b() }),
        ("sliding 20/s alone penalty 60s", Case { others: 0.0, penalty: Some((5 * S, 60 * S)), seconds: 600, least: 0.80, ..b() }),
        ("sliding 100/min others 30 penalty 1h", Case { server: Server::InAny(100, 60 * S), others: 0.5, precision: S, penalty: Some((100 * S, 3_600 * S)), seconds: 36_000, ..b() }),
        ("sliding 100/min -> 20/s", Case { server: Server::InAny(100, 60 * S), others: 0.5, then: Some((300 * S, Server::InAny(20, S))), precision: S, seconds: 900, ..b() }),
        ("sliding 20/s penalty 600s at 5s", Case { penalty: Some((5 * S, 600 * S)), seconds: 3_600, least: 0.75, ..b() }),
        ("tokens sliding 10000/min cost 500 o30%", Case { server: Server::InAny(10_000, 60 * S), tokens: true, costs: (500, 500), others: 50.0, other_cost: 500, precision: S, seconds: 1_800, ..b() }),
        ("tokens sliding 10000/min cost 2500 o30%", Case { server: Server::InAny(10_000, 60 * S), tokens: true, costs: (2_500, 2_500), others: 50.0, other_cost: 100, precision: S, seconds: 1_800, least: 0.78, most: 0.04, ..b() }),
        ("tokens sliding 10000/10s cost 900 alone", Case { server: Server::InAny(10_000, 10 * S), tokens: true, costs: (900, 900), others: 0.0, seconds: 600, ..b() }),
        ("tokens fixed 10000/10s cost 900 o30%", Case { server: Server::InEach(10_000, 10 * S), tokens: true, costs: (900, 900), others: 300.0, other_cost: 100, seconds: 600, ..b() }),
        ("tokens fixed 10000/10s cost 4000 alone", Case { server: Server::InEach(10_000, 10 * S), tokens: true, costs: (4_000, 4_000), others: 0.0, seconds: 600, least: 0.79, ..b() }),
        ("slow answers sliding 20/s", Case { latency: (100 * MS, 900 * MS), least: 0.28, most: 0.02, ..b() }),
        ("slow answers bucket", Case { server: Server::Bucket(20.0, 20.0, true), latency: (100 * MS, 900 * MS), ..b() }),
        ("sliding 600/min others 20% 200 workers", Case { server: Server::InAny(600, 60 * S), others: 2.0, precision: S, workers: 200, seconds: 1_800, ..b() }),
    ]
}

#[test]
fn what_others_leave_is_used_whatever_the_server_says() {
    for (name, case) in cases() {
        let (share, refused) = worst(name, &case);
        assert!(share >= case.least && refused <= case.most, "{name}");
    }
}

#[test]
fn costs_beyond_measure() {
    let case = Case {
        server: Server::InAny(100, S),
        tokens: true,
        costs: (u64::MAX / 2 + 1, u64::MAX / 2 + 1),
        others: 0.0,
        workers: 3,
        seconds: 20,
        ..base()
    };
    let mut core = Admission::new("no limit".parse::<Limits>().unwrap().into());
    let _ = case;
    for nth in 0..6_u64 {
        let now = at(1_000 + nth * 300);
        let want = Want { cost: Cost::new().and("tokens", u64::MAX / 2 + 1), deadline: Some(at(FOREVER)), ..host() };
        let Asked::Granted(grant) = ask(&mut core, want, now).unwrap() else { return };
        let report = Report {
            name: Arc::from("tokens"),
            unit: Unit::TOKENS,
            left: 0,
            most: Some(100),
            resets_after: Some(Duration::from_millis(if nth % 2 == 0 { 200 } else { 50 })),
            window: None,
            refused: false,
        };
        core.report(&grant, 0, &[report], now);
        core.answered(&grant, now);
        core.release(grant, now);
    }
}

/// What one long path does to what is known of routes.
#[test]
fn one_long_path_takes_little_memory() {
    use crate::buckets::Buckets;
    use crate::route::Route;
    use http::{HeaderMap, Method, StatusCode};
    let headers: HeaderMap =
        [("x-ratelimit-resource", "core"), ("x-ratelimit-remaining", "5"), ("x-ratelimit-limit", "9")]
            .into_iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
    let signal = crate::signal::Signal::read(StatusCode::OK, &headers, b"", Duration::ZERO);
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4 / 1_024
    };
    let before = resident();
    let began = std::time::Instant::now();
    let mut buckets = Buckets::default();
    let route = Route::of(&Method::GET, &"/a".repeat(16_000), str::to_owned);
    buckets.learn(&route, None, &signal);
    let after = resident();
    println!("{} MB for a path of 32 kB, {:?}", after - before, began.elapsed());
    assert!(after - before < 16, "{} MB", after - before);
}

/// One refusal that states a long wait, of a server whose window is a second: ten minutes later all is as before it.
#[test]
fn one_long_wait_starves_nobody_afterwards() {
    for server in [Server::InAny(20, S), Server::InEach(20, S)] {
        for seed in 0..4 {
            let others = if matches!(server, Server::InAny(..)) { 6.0 } else { 12.0 };
            let case = Case { server, others, penalty: Some((5 * S, 60 * S)), seconds: 660, ..base() };
            let (share, ..) = Sim::run(case, seed);
            println!("{server:?} {seed}: {:.0} %", share * 100.0);
            assert!(
                share >= 0.75,
                "{server:?} {seed}: {:.0} % of what others leave, in ten minutes after a wait of one",
                share * 100.0
            );
        }
    }
}

/// Anything in any order at three gates; then all ends, and every gate comes to rest with nothing under way.
#[test]
#[expect(clippy::too_many_lines, reason = "a script of all that may happen")]
fn whatever_is_told_and_forgotten_gates_come_to_rest() {
    for seed in 0..3_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limits = ["no limit", "5/s", "3/s burst 4, 2 in flight", "100 tokens/s, 5/s"][rng.usize(..4)];
        let mut core = Admission::new(limits.parse::<Limits>().unwrap().into());
        let (mut now, mut grants, mut waits) = (1_000_u64, Vec::new(), Vec::new());
        let all = ["a", "b", "c"];
        let word = |rng: &mut fastrand::Rng| Report {
            name: Arc::from(["requests", "tokens", "x"][rng.usize(..3)]),
            unit: if rng.bool() { Unit::REQUESTS } else { Unit::TOKENS },
            left: rng.u64(0..5),
            most: Some(5),
            resets_after: rng.bool().then(|| Duration::from_millis(rng.u64(0..3_000))),
            window: None,
            refused: rng.bool(),
        };
        for _ in 0..200 {
            now += rng.u64(0..200);
            let time = at(now);
            match rng.u8(0..14) {
                0..=4 => {
                    let mut gates: Vec<_> = all.iter().filter(|_| rng.bool()).map(|key| name(key)).collect();
                    if gates.is_empty() {
                        gates.push(name("a"));
                    }
                    let cost = Cost::new().and("tokens", rng.u64(0..40));
                    match ask(
                        &mut core,
                        Want { gates, cost, deadline: Some(at(now + rng.u64(0..4_000))), ..host() },
                        time,
                    ) {
                        Ok(Asked::Granted(grant)) => grants.push((grant, false)),
                        Ok(Asked::Waiting(id)) => waits.push(id),
                        Err(_) => {}
                    }
                }
                5 if !grants.is_empty() => {
                    let nth = rng.usize(..grants.len());
                    if !core.send(&grants[nth].0, time) {
                        core.give_back(grants.swap_remove(nth).0, time);
                    }
                }
                6 | 7 if !grants.is_empty() => {
                    let nth = rng.usize(..grants.len());
                    let (grant, heard) = &mut grants[nth];
                    *heard = true;
                    let gates = core.gates_of(grant);
                    core.report(grant, rng.usize(..gates), &[word(&mut rng)], time);
                    if rng.bool() {
                        core.report_of_another(&name(all[rng.usize(..3)]), &[word(&mut rng), word(&mut rng)], time);
                    }
                    match rng.u8(0..4) {
                        0 => core.answered(grant, time),
                        1 => core.refused(
                            grant,
                            rng.usize(..gates),
                            Wait::Stated(Duration::from_millis(rng.u64(1..2_000)), 0),
                            time,
                        ),
                        2 => core.refused_by_another(
                            grant,
                            &name(all[rng.usize(..3)]),
                            Wait::Unstated(rng.u32(..)),
                            time,
                        ),
                        3 => core.failed(grant, 0, None, time),
                        _ => {}
                    }
                }
                8 if !grants.is_empty() => core.release(grants.swap_remove(rng.usize(..grants.len())).0, time),
                9 if !grants.is_empty() => {
                    let nth = rng.usize(..grants.len());
                    if grants[nth].1 {
                        core.settle(&grants[nth].0, &Unit::TOKENS, rng.u64(0..60), time);
                    } else {
                        core.give_back(grants.swap_remove(nth).0, time);
                    }
                }
                10 => core.hand_over(
                    &HandOver {
                        from: name(all[rng.usize(..3)]),
                        stated: vec![(None, name(all[rng.usize(..3)]))],
                        found: Some(name(all[rng.usize(..3)])),
                    },
                    time,
                ),
                11 => core.count(
                    &[name(all[rng.usize(..3)])],
                    &Cost::new().and("tokens", rng.u64(0..50)),
                    at(now.saturating_sub(rng.u64(0..3_000))),
                    time,
                ),
                12 if !waits.is_empty() => core.leave(waits.swap_remove(rng.usize(..waits.len())), time),
                _ => core.advance(time),
            }
            while let Some(id) = core.pop_decided() {
                waits.retain(|other| *other != id);
                if let Some(Ok(grant)) = core.collect(id) {
                    grants.push((grant, false));
                }
            }
            core.state.assert_sound();
        }
        waits.drain(..).for_each(|id| core.leave(id, at(now)));
        grants.drain(..).for_each(|(grant, _)| core.release(grant, at(now)));
        let later = at(now + 3_000_000);
        core.advance(later);
        for key in all {
            if let Some(id) = core.state.gates.find(&name(key)) {
                let gate = &mut core.state.gates[id];
                gate.pause = super::super::pause::Pause::default();
                let rests = gate.is_at_rest(later);
                if !rests {
                    let step = gate.step_nanos();
                    println!(
                        "passing {} unheard {} brake {:?} {:?}",
                        gate.passing,
                        gate.unheard,
                        gate.brake.as_ref().map(|b| b.is_at_rest(step, later)),
                        gate.meters
                    );
                }
                assert!(rests, "seed {seed}, {limits}, {key}: {}", core.snapshot(later));
            }
        }
    }
}

/// A key that was refused, and is never used again, makes room a week later.
#[test]
fn keys_that_were_refused_once_are_forgotten() {
    let settings = Settings { most_keys: 8, ..Settings::from("no limit".parse::<Limits>().unwrap()) };
    let mut core = Admission::new(settings);
    for nth in 0..8_u64 {
        let gates = vec![name(&format!("key{nth}"))];
        let Asked::Granted(grant) = ask(&mut core, Want { gates, ..host() }, at(1_000)).unwrap() else { panic!() };
        core.refused(&grant, 0, Wait::Stated(Duration::from_secs(1), 0), at(1_100));
        core.release(grant, at(1_200));
    }
    let week = at(7 * 86_400_000);
    let ninth = ask(&mut core, Want { gates: vec![name("ninth")], ..host() }, week);
    assert!(ninth.is_ok(), "{ninth:?}");
}
