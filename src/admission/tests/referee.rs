//! Each form of quota before a strict server on a jittery network, in virtual time. The referee has its own arithmetic:
//! plain lists of what was counted, and when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;

use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// The network, and how late its timers are, in nanoseconds at most.
#[derive(Clone, Copy)]
struct Net {
    before_counting: u64,
    after_counting: u64,
    body: u64,
    late: u64,
}

const QUIET: Net = Net { before_counting: 0, after_counting: 0, body: 0, late: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Counted(usize),
    Answered(usize),
    Ended(usize),
}

/// What one run came to: when each request left and was counted, and what it took.
#[derive(Default)]
struct Run {
    left: Vec<(u64, u64)>,
    counted: Vec<(u64, u64)>,
}

/// Saturated demand: whenever one goes, another asks.
struct Simulation {
    core: Admission,
    unit: Unit,
    costs: RangeInclusive<u64>,
    net: Net,
    random: fastrand::Rng,
    now: u64,
    waiting: Vec<(AskId, u64)>,
    grants: Vec<(Option<Grant>, u64)>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    run: Run,
}

fn run(limits: &str, unit: &str, costs: RangeInclusive<u64>, net: Net, for_nanos: u64, seed: u64) -> Run {
    let core = Admission::new(limits.parse::<Limits>().unwrap().into());
    let random = fastrand::Rng::with_seed(seed);
    let (now, waiting, grants, events, run) = (0, Vec::new(), Vec::new(), BinaryHeap::new(), Run::default());
    let unit = Unit::from(unit);
    let mut simulation = Simulation { core, unit, costs, net, random, now, waiting, grants, events, run };
    while simulation.now < for_nanos {
        simulation.demand();
        simulation.go_on();
    }
    simulation.run.counted.sort_unstable();
    simulation.run
}

impl Simulation {
    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    fn demand(&mut self) {
        while self.core.waiting() < 3 {
            let units = self.random.u64(self.costs.clone());
            let cost = Cost::from(0).and(self.unit.clone(), units);
            let deadline = Some(Time::from_nanos(u64::MAX));
            let wish = Want { cost, deadline, ..host() };
            let now = self.time();
            match ask(&mut self.core, wish, now).unwrap() {
                Asked::Granted(grant) => self.leave(grant, units),
                Asked::Waiting(id) => self.waiting.push((id, units)),
            }
        }
    }

    /// To the next instant at which the core or the network has something to do.
    fn go_on(&mut self) {
        let timer = self.core.next().map_or(u64::MAX, Time::as_nanos);
        let timer = timer.saturating_add(self.random.u64(0..=self.net.late));
        let event = self.events.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        self.now = self.now.max(timer.min(event));
        if timer < event {
            self.core.advance(self.time());
        } else if let Some(Reverse((_, event))) = self.events.pop() {
            self.happen(event);
        }
        while let Some(id) = self.core.pop_decided() {
            let place = self.waiting.iter().position(|(ask, _)| *ask == id).unwrap();
            let (id, units) = self.waiting.remove(place);
            let grant = self.core.collect(id).unwrap().unwrap();
            self.leave(grant, units);
        }
    }

    fn leave(&mut self, grant: Grant, units: u64) {
        assert!(self.core.send(&grant, self.time()), "sent at the instant of the grant");
        self.run.left.push((self.now, units));
        let id = self.grants.len();
        self.grants.push((Some(grant), units));
        let counted = self.now + self.random.u64(0..=self.net.before_counting);
        let answered = counted + self.random.u64(0..=self.net.after_counting);
        let ended = answered + self.random.u64(0..=self.net.body);
        self.events.push(Reverse((counted, Event::Counted(id))));
        self.events.push(Reverse((answered, Event::Answered(id))));
        self.events.push(Reverse((ended, Event::Ended(id))));
    }

    fn happen(&mut self, event: Event) {
        let time = self.time();
        match event {
            Event::Counted(id) => self.run.counted.push((self.now, self.grants[id].1)),
            Event::Answered(id) => self.core.answered(self.grants[id].0.as_mut().unwrap(), time),
            Event::Ended(id) => self.core.release(self.grants[id].0.take().unwrap(), time),
        }
    }
}

/// The most that fell into any window, by adding up each one anew.
fn worst_window(counted: &[(u64, u64)], window: u64) -> u64 {
    let ends = counted.iter().enumerate();
    let in_window = |(last, (end, _)): (usize, &(u64, u64))| {
        let from = counted[..=last].iter().rev().take_while(|(at, _)| at + window > *end);
        from.map(|(_, units)| units).sum()
    };
    ends.map(in_window).max().unwrap_or(0)
}

/// The most by which what left in any time exceeded `rate × time`, in units, rounded down.
fn worst_burst(left: &[(u64, u64)], count: u64, period: u64) -> u64 {
    let (mut level, mut last, mut worst) = (0_u128, 0, 0);
    for (at, units) in left {
        level =
            level.saturating_sub(u128::from(at - last) * u128::from(count)) + u128::from(*units) * u128::from(period);
        (last, worst) = (*at, worst.max(level));
    }
    u64::try_from(worst / u128::from(period)).unwrap()
}

/// For "n per window W" no more than n fall into any W of the server's, whatever the delays up to what the anchor bears.
#[test]
fn a_window_is_never_exceeded_at_the_server() {
    let net = |before, after, body| Net {
        before_counting: before * MS,
        after_counting: after * MS,
        body: body * MS,
        late: 2 * MS,
    };
    for (limits, unit, costs, net, most, window) in [
        ("50/s", "requests", 1..=1, net(250, 300, 0), 50, SECOND),
        ("5/s", "requests", 1..=1, net(250, 3_000, 0), 5, SECOND),
        ("100/min", "requests", 1..=1, net(1_000, 20_000, 0), 100, 60 * SECOND),
        ("50/s paced", "requests", 1..=1, net(250, 100, 0), 50, SECOND),
        ("50/s at most 5", "requests", 1..=1, net(250, 100, 0), 50, SECOND),
        ("50/s headroom 10%", "requests", 1..=1, net(250, 100, 0), 45, SECOND),
        ("2000 tokens/s", "tokens", 1..=90, net(250, 100, 0), 2_000, SECOND),
        ("1000 tokens/s paced", "tokens", 1..=300, net(250, 100, 0), 1_000, SECOND),
        ("20/s counted from answer", "requests", 1..=1, net(5_000, 1_000, 0), 20, SECOND),
        ("20 points/s counted from end", "points", 1..=3, net(1_000, 1_000, 2_000), 20, SECOND),
        ("20/s counted from send + 90ms", "requests", 1..=1, net(90, 5_000, 0), 20, SECOND),
        ("40/s, 100 per 10s, 6 in flight", "requests", 1..=1, net(100, 100, 50), 40, SECOND),
        ("40/s, 100 per 10s, 6 in flight", "requests", 1..=1, net(100, 100, 50), 100, 10 * SECOND),
    ] {
        for seed in 0..5 {
            let run = run(limits, unit, costs.clone(), net, 8 * window.max(4 * SECOND), seed);
            let worst = worst_window(&run.counted, window);
            assert!(worst <= most && worst + 90 > most, "{limits}: {worst} in a window");
        }
    }
}

/// For "rate r, burst b" at most `b + r (t + 2 ms)` leave in any t, rounded up to a whole unit.
#[test]
fn a_bucket_is_never_exceeded_at_the_departure() {
    for (limits, unit, costs, count, period, burst) in [
        ("10/s burst 20", "requests", 1..=1, 10, SECOND, 20),
        ("1000/s burst 1", "requests", 1..=1, 1_000, SECOND, 1),
        ("0.5/s burst 2", "requests", 1..=1, 1, 2 * SECOND, 2),
        ("7/min burst 3", "requests", 1..=1, 7, 60 * SECOND, 3),
        ("1000 tokens/s burst 500", "tokens", 1..=500, 1_000, SECOND, 500),
        ("50/s burst 11 jitter 100ms", "requests", 1..=1, 50, SECOND, 5),
        ("10/s burst 20 headroom 50%", "requests", 1..=1, 5, SECOND, 10),
        ("10/s burst 20 at most 4", "requests", 1..=1, 10, SECOND, 4),
        ("2000000 units/s burst 10000", "units", 1..=5_000, 2_000_000, SECOND, 10_000),
    ] {
        for late in [0, 2 * MS, 40 * MS] {
            let run = run(limits, unit, costs.clone(), Net { late, ..QUIET }, 20 * period, 1);
            let credit = (2 * MS * count).div_ceil(period);
            let worst = worst_burst(&run.left, count, period);
            assert!(worst <= burst + credit, "{limits}, {late} late: {worst} at once");
        }
    }
}

/// With timers that are never late, nothing is wasted: the kth goes at the very instant at which it may.
#[test]
fn in_virtual_time_everything_is_used() {
    let left = |limits, net, periods: u64| {
        let run = run(limits, "requests", 1..=1, net, periods * SECOND, 3);
        run.left.into_iter().map(|(at, _)| at).filter(|at| *at < periods * SECOND).collect::<Vec<_>>()
    };
    let bucket = left("10/s burst 4", QUIET, 100);
    for (k, at) in (0..).zip(&bucket) {
        assert_eq!(*at, 100 * MS * u64::saturating_sub(k, 3));
    }
    assert_eq!(bucket.len(), 4 + 999);
    // Answers at once: n at each multiple of W.
    let window = left("5/s", QUIET, 100);
    for (k, at) in (0..).zip(&window) {
        assert_eq!(*at, k / 5 * SECOND);
    }
    // Answers after 0 to 200 ms: each place goes round in W and its own round trip.
    let net = Net { before_counting: 100 * MS, after_counting: 100 * MS, ..QUIET };
    let window = run("5/s", "requests", 1..=1, net, 1_000 * SECOND, 3);
    let possible = 5.0 * 1_000.0 / 1.1;
    let used = f64::from(u32::try_from(window.left.len()).unwrap()) / possible;
    assert!((0.995..1.01).contains(&used), "{used}");
    // Slow answers, which count from a quarter of a window after the sending.
    let net = Net { before_counting: 0, after_counting: 0, body: 0, late: 0 };
    let slow =
        run("5/s, 1000 in flight", "requests", 1..=1, Net { after_counting: 9 * SECOND, ..net }, 100 * SECOND, 3);
    assert!(slow.left.len() >= 5 * 80, "{}", slow.left.len());
}
