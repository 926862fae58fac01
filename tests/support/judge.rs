//! Would a strict server accept this request? Pure: every instant is an argument, counted from the
//! server's start. This is the referee of the limiter, so it shares no code with it and prefers the
//! obvious way to the fast one.

use std::collections::VecDeque;
use std::time::Duration;

/// What the judge says about one arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It counts, against every limit.
    Accepted,
    /// It counts nowhere.
    Refused {
        /// The limit that stays shut the longest.
        limit: String,
        /// How long until it would be accepted if nobody else came; `None` if time alone does not help.
        free_after: Option<Duration>,
    },
}

/// One limit of the server, with what it has counted so far.
#[derive(Clone, Debug)]
pub struct Limit {
    name: String,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    Sliding(Sliding),
    Fixed(Fixed),
    Bucket(Bucket),
    InFlight(InFlight),
}

impl Limit {
    /// At most `n` in any half-open window: an arrival exactly `window` after an older one no longer
    /// counts the older.
    pub fn sliding(n: usize, window: Duration) -> Self {
        assert!(!window.is_zero(), "a window has a length");
        let rule = Rule::Sliding(Sliding { n, window, accepted: VecDeque::new() });
        Self { name: format!("{n} in any {window:?}"), rule }
    }

    /// At most `n` in each of the windows that begin at the server's start (see [`Limit::phase`]).
    pub fn fixed(n: usize, window: Duration) -> Self {
        assert!(!window.is_zero(), "a window has a length");
        let fixed = Fixed { n, window, phase: Duration::ZERO, index: 0, count: 0 };
        Self { name: format!("{n} in each {window:?}"), rule: Rule::Fixed(fixed) }
    }

    /// A bucket of `burst` tokens, full at the start, that gains `n` tokens per `period`, evenly.
    pub fn bucket(n: u32, period: Duration, burst: u32) -> Self {
        assert!(n > 0 && !period.is_zero(), "a bucket has a rate");
        let bucket = Bucket::full(n.into(), period.as_nanos(), burst.into());
        Self { name: format!("{n} per {period:?}, burst {burst}"), rule: Rule::Bucket(bucket) }
    }

    /// At most `n` accepted and not yet ended.
    pub fn in_flight(n: usize) -> Self {
        let rule = Rule::InFlight(InFlight { n, open: 0 });
        Self { name: format!("{n} in flight"), rule }
    }

    /// Moves the edges of fixed windows to `phase`, `phase + window`, and so on.
    ///
    /// Panics for any other limit.
    pub fn phase(mut self, phase: Duration) -> Self {
        match &mut self.rule {
            Rule::Fixed(fixed) => fixed.phase = phase,
            _ => panic!("only fixed windows have a phase: {}", self.name),
        }
        self
    }

    /// The name that a refusal carries, in place of the one made from the numbers.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    fn room(&self, now: Duration) -> Room {
        match &self.rule {
            Rule::Sliding(sliding) => sliding.room(now),
            Rule::Fixed(fixed) => fixed.room(now),
            Rule::Bucket(bucket) => bucket.room(now),
            Rule::InFlight(in_flight) => in_flight.room(),
        }
    }

    /// What is left of how many, and when that changes for good: a window ends, the oldest request leaves it, the bucket is full.
    fn standing(&self, now: Duration) -> Option<Standing> {
        match &self.rule {
            Rule::Sliding(Sliding { n, window, accepted }) => {
                let counts: Vec<_> = accepted.iter().filter(|at| **at + *window > now).collect();
                let resets = counts.first().map_or(Duration::ZERO, |oldest| **oldest + *window - now);
                Some(Standing { left: n - counts.len(), most: *n, resets })
            }
            Rule::Fixed(fixed) => {
                let used = if fixed.index_at(now) == fixed.index { fixed.count } else { 0 };
                let resets = fixed.window - fixed.since_edge(now);
                Some(Standing { left: fixed.n - used, most: fixed.n, resets })
            }
            Rule::Bucket(bucket) => {
                let units = bucket.units(now);
                let whole = |units: u128| usize::try_from(units / bucket.cost).expect("a burst that fits");
                let resets = nanoseconds((bucket.capacity - units).div_ceil(bucket.gain));
                Some(Standing { left: whole(units), most: whole(bucket.capacity), resets })
            }
            Rule::InFlight(_) => None,
        }
    }

    fn take(&mut self, now: Duration) {
        match &mut self.rule {
            Rule::Sliding(sliding) => sliding.take(now),
            Rule::Fixed(fixed) => fixed.take(now),
            Rule::Bucket(bucket) => bucket.take(now),
            Rule::InFlight(in_flight) => in_flight.open += 1,
        }
    }

    fn ended(&mut self) {
        if let Rule::InFlight(in_flight) = &mut self.rule {
            in_flight.open -= 1;
        }
    }
}

/// How a limit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub left: usize,
    pub most: usize,
    pub resets: Duration,
}

/// Whether one more fits. The order says which refusal outlasts which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Room {
    Now,
    After(Duration),
    NotByTime,
}

#[derive(Clone, Debug)]
struct Sliding {
    n: usize,
    window: Duration,
    accepted: VecDeque<Duration>,
}

impl Sliding {
    fn room(&self, now: Duration) -> Room {
        let counts = |&&at: &&Duration| at + self.window > now;
        if self.accepted.iter().filter(counts).count() < self.n {
            return Room::Now;
        }
        match self.accepted.len().checked_sub(self.n).and_then(|i| self.accepted.get(i)) {
            Some(&must_leave) => Room::After(must_leave + self.window - now),
            None => Room::NotByTime,
        }
    }

    fn take(&mut self, now: Duration) {
        while self.accepted.front().is_some_and(|&at| at + self.window <= now) {
            self.accepted.pop_front();
        }
        self.accepted.push_back(now);
    }
}

#[derive(Clone, Debug)]
struct Fixed {
    n: usize,
    window: Duration,
    phase: Duration,
    index: u128,
    count: usize,
}

impl Fixed {
    fn room(&self, now: Duration) -> Room {
        let used = if self.index_at(now) == self.index { self.count } else { 0 };
        match (used < self.n, self.n) {
            (true, _) => Room::Now,
            (false, 0) => Room::NotByTime,
            (false, _) => Room::After(self.window - self.since_edge(now)),
        }
    }

    fn take(&mut self, now: Duration) {
        let index = self.index_at(now);
        self.count = if index == self.index { self.count + 1 } else { 1 };
        self.index = index;
    }

    fn index_at(&self, now: Duration) -> u128 {
        self.shifted(now) / self.window.as_nanos()
    }

    fn since_edge(&self, now: Duration) -> Duration {
        nanoseconds(self.shifted(now) % self.window.as_nanos())
    }

    /// `now` counted from the edge before the server's start, so that no instant is negative.
    fn shifted(&self, now: Duration) -> u128 {
        let window = self.window.as_nanos();
        now.as_nanos() + window - self.phase.as_nanos() % window
    }
}

/// One token is `cost` units and each nanosecond brings `gain` units: whole numbers, no rounding.
#[derive(Clone, Debug)]
struct Bucket {
    gain: u128,
    cost: u128,
    capacity: u128,
    units: u128,
    units_at: Duration,
}

impl Bucket {
    fn full(gain: u128, cost: u128, burst: u128) -> Self {
        let capacity = cost * burst;
        Self { gain, cost, capacity, units: capacity, units_at: Duration::ZERO }
    }

    fn units(&self, now: Duration) -> u128 {
        let gained = (now - self.units_at).as_nanos() * self.gain;
        self.capacity.min(self.units + gained)
    }

    fn room(&self, now: Duration) -> Room {
        let missing = self.cost.saturating_sub(self.units(now));
        if missing == 0 {
            Room::Now
        } else if self.capacity < self.cost {
            Room::NotByTime
        } else {
            Room::After(nanoseconds(missing.div_ceil(self.gain)))
        }
    }

    fn take(&mut self, now: Duration) {
        self.units = self.units(now) - self.cost;
        self.units_at = now;
    }
}

#[derive(Clone, Debug)]
struct InFlight {
    n: usize,
    open: usize,
}

impl InFlight {
    fn room(&self) -> Room {
        if self.open < self.n { Room::Now } else { Room::NotByTime }
    }
}

/// All limits of one server. Without limits everything is accepted.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    limits: Vec<Limit>,
    open: usize,
    latest: Duration,
}

impl Judge {
    /// A server that has just started.
    pub fn new(limits: impl IntoIterator<Item = Limit>) -> Self {
        Self { limits: limits.into_iter().collect(), ..Self::default() }
    }

    /// Counts an arrival at `now` against every limit, or against none.
    ///
    /// Panics if `now` is before the instant of an earlier call.
    pub fn arrive(&mut self, now: Duration) -> Verdict {
        self.move_to(now);
        if let Some(refusal) = self.refusal(now) {
            return refusal;
        }
        for limit in &mut self.limits {
            limit.take(now);
        }
        self.open += 1;
        Verdict::Accepted
    }

    /// One accepted request is no longer in flight.
    ///
    /// Panics if none is, or if `now` is before the instant of an earlier call.
    pub fn ended(&mut self, now: Duration) {
        self.move_to(now);
        self.open = self.open.checked_sub(1).expect("ended without having been accepted");
        self.limits.iter_mut().for_each(Limit::ended);
    }

    /// How the first limit that counts requests stands.
    pub fn standing(&self, now: Duration) -> Option<Standing> {
        self.limits.iter().find_map(|limit| limit.standing(now))
    }

    /// Accepted and not yet ended.
    pub fn in_flight(&self) -> usize {
        self.open
    }

    fn refusal(&self, now: Duration) -> Option<Verdict> {
        let slowest = self.limits.iter().max_by_key(|limit| limit.room(now))?;
        let free_after = match slowest.room(now) {
            Room::Now => return None,
            Room::After(wait) => Some(wait),
            Room::NotByTime => None,
        };
        Some(Verdict::Refused { limit: slowest.name.clone(), free_after })
    }

    fn move_to(&mut self, now: Duration) {
        assert!(self.latest <= now, "time ran backwards: {now:?} after {:?}", self.latest);
        self.latest = now;
    }
}

/// The largest number of `arrivals` in any half-open window of this length: two that lie exactly
/// `window` apart are never in the same one. The arrivals may come in any order.
pub fn worst_window(arrivals: &[Duration], window: Duration) -> usize {
    assert!(!window.is_zero(), "a window has a length");
    let sorted = sorted(arrivals);
    let (mut worst, mut first) = (0, 0);
    for (last, &at) in sorted.iter().enumerate() {
        while at - sorted[first] >= window {
            first += 1;
        }
        worst = worst.max(last - first + 1);
    }
    worst
}

/// The largest number of `arrivals` in any window `[k * window, (k + 1) * window)`.
pub fn busiest_fixed(arrivals: &[Duration], window: Duration) -> usize {
    let index = |at: &Duration| at.as_nanos() / window.as_nanos();
    let sorted = sorted(arrivals);
    let windows = sorted.chunk_by(|a, b| index(a) == index(b));
    windows.map(<[_]>::len).max().unwrap_or(0)
}

fn sorted(arrivals: &[Duration]) -> Vec<Duration> {
    let mut sorted = arrivals.to_vec();
    sorted.sort_unstable();
    sorted
}

fn nanoseconds(count: u128) -> Duration {
    Duration::from_nanos(count.try_into().expect("less than 500 years"))
}
