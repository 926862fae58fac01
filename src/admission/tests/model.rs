//! The same, slow and obvious: whole milliseconds, lists that are searched from end to end, holds and turns that are
//! reckoned anew each time, and time that goes by one millisecond after the other. Written from the rules, and not from
//! the code that it judges.

use std::collections::{HashMap, HashSet};

/// The longest that what was due may lie back.
const CREDIT: i64 = 2;

const FOREVER: i64 = i64::MAX / 4;

const NOBODY: usize = usize::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    AnswerCapped,
    Answer,
    Send(i64),
    End,
}

/// A quota: of which unit, and how it counts.
#[derive(Clone, Debug)]
pub(super) struct Quota {
    pub(super) unit: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Bucket(Level),
    Window(Log, Option<Level>),
}

/// A bucket: when it will be full, if nothing more goes.
#[derive(Clone, Debug)]
pub(super) struct Level {
    interval: i64,
    burst: i64,
    full_at: i64,
    now: i64,
    /// Who was charged how much and when, in order. A drain is nobody's.
    charges: Vec<(Option<usize>, i64, i64)>,
    /// When the last was charged.
    last: i64,
    reopens: i64,
}

/// A window's units: whose, how many, and the anchor if it is known.
#[derive(Clone, Debug)]
pub(super) struct Log {
    most: i64,
    period: i64,
    from: From,
    units: Vec<(usize, i64, Option<i64>)>,
    /// When somebody was last taken, or answered.
    moved: i64,
    /// Since a reopening: when, and what was taken by whom.
    drained: Option<(i64, Vec<(usize, i64)>)>,
}

impl Level {
    pub(super) fn new(interval: i64, burst: i64) -> Self {
        Self { interval, burst, full_at: 0, now: 0, charges: Vec::new(), last: 0, reopens: 0 }
    }

    fn holds(&self, cost: i64) -> bool {
        cost == 0 || self.level(self.now) >= cost * self.interval
    }

    /// When so much is there, if nothing else goes.
    fn ready(&self, cost: i64) -> i64 {
        if cost == 0 { self.now } else { self.now + (cost * self.interval - self.level(self.now)).max(0) }
    }

    /// In milliseconds of filling.
    fn level(&self, at: i64) -> i64 {
        self.interval * self.burst - (self.full_at - at).max(0)
    }

    fn charge(&mut self, who: usize, cost: i64, at: i64) {
        if cost > 0 {
            self.full_at = self.full_at.max(at) + cost * self.interval;
            self.last = self.last.max(at);
        }
        self.charges.push((Some(who), cost, at));
    }

    /// What others were charged since the first charge of this grant, as if the bucket had been full at the last charge,
    /// is the fullest that giving back may make it. Nothing from before a drain comes back.
    fn give_back(&mut self, who: usize, amount: i64) {
        let Some(mine) = self.charges.iter().position(|(by, ..)| *by == Some(who)) else { return };
        let after = &self.charges[mine + 1..];
        if after.iter().any(|(by, ..)| by.is_none()) {
            return;
        }
        let since: i64 = after.iter().filter(|(by, ..)| *by != Some(who)).map(|(_, cost, _)| cost).sum();
        let plain = self.full_at - amount * self.interval;
        self.full_at = plain.max(self.full_at.min(self.last + since * self.interval));
    }

    /// What leaves later than it is credited for is charged anew; false if it is not there any more, and gone.
    fn sent(&mut self, who: usize, cost: i64) -> bool {
        let mine = self.charges.iter().find(|(by, ..)| *by == Some(who));
        let at = (self.now - CREDIT).max(0);
        if mine.is_none_or(|(.., charged)| *charged >= at) {
            return true;
        }
        self.give_back(who, cost);
        // The old charge is nobody's now, and nothing comes back for it.
        self.charges.iter_mut().filter(|(by, ..)| *by == Some(who)).for_each(|charge| charge.0 = Some(NOBODY));
        let there = cost == 0 || self.level(at) >= cost.min(self.burst) * self.interval;
        if there {
            self.charge(who, cost, at);
        }
        there
    }

    fn drain(&mut self, at: i64) {
        self.full_at = self.full_at.max(at + (self.burst - 1) * self.interval);
        self.reopens = self.reopens.max(at);
        self.charges.push((None, 0, 0));
    }

    /// What was spent stays spent. One that is drained holds one at the reopening.
    fn retune(&mut self, burst: i64) {
        if self.reopens > self.now {
            self.full_at += (burst - self.burst) * self.interval;
        }
        self.burst = burst;
    }

    fn estimate(&self, cost: i64) -> i64 {
        self.now + (cost * self.interval - self.level(self.now)).max(0)
    }
}

impl Log {
    pub(super) fn new(most: i64, period: i64, from: From) -> Self {
        Self { most, period, from, units: Vec::new(), moved: 0, drained: None }
    }

    fn forget(&mut self, now: i64) {
        self.units.retain(|(.., anchor)| anchor.is_none_or(|anchor| anchor + self.period > now));
        self.drained = self.drained.take().filter(|(from, _)| from + self.period > now);
    }

    fn used(&self) -> i64 {
        self.units.iter().map(|(_, units, _)| units).sum()
    }

    /// One more each W/n since the reopening.
    fn steady_at(&self, cost: i64) -> i64 {
        let Some((from, taken)) = &self.drained else { return 0 };
        let taken: i64 = taken.iter().map(|(_, units)| units).sum();
        from + (taken + cost - 1).min(self.most) * self.period / self.most
    }

    fn holds(&self, cost: i64, now: i64) -> bool {
        cost == 0 || (self.used() + cost <= self.most && self.steady_at(cost) <= now)
    }

    /// When so much is free, if nothing else goes; `None` if that depends on an answer.
    fn ready(&self, cost: i64, now: i64) -> Option<i64> {
        let mut anchors: Vec<_> =
            self.units.iter().filter_map(|(_, units, anchor)| anchor.map(|at| (at, *units))).collect();
        anchors.sort_unstable();
        let (mut used, mut free) = (self.used(), now);
        let mut anchors = anchors.into_iter();
        while used + cost > self.most {
            let (at, units) = anchors.next()?;
            used -= units;
            free = free.max(at + self.period);
        }
        Some(free.max(self.steady_at(cost)))
    }

    fn take(&mut self, who: usize, cost: i64, seen: bool, now: i64) {
        if let Some((_, taken)) = &mut self.drained {
            taken.push((who, cost));
        }
        let anchor = self.after_sending(seen).map(|after| now + after);
        self.moved = now;
        self.units.push((who, cost, anchor));
    }

    fn after_sending(&self, seen: bool) -> Option<i64> {
        match self.from {
            From::Send(pad) => Some(pad),
            _ if !seen => Some((self.period / 20).clamp(20, 1_000)),
            From::AnswerCapped => Some((self.period / 4).clamp(100, 1_000)),
            From::Answer | From::End => None,
        }
    }

    /// False if the units no longer count.
    fn sent(&mut self, who: usize, cost: i64, seen: bool, now: i64) -> bool {
        let after = self.after_sending(seen);
        if cost == 0 && !self.units.iter().any(|(by, ..)| *by == who) {
            // Nothing is never too late, and may be settled to something.
            self.units.push((who, 0, Some(now)));
        }
        let Some(mine) = self.units.iter_mut().find(|(by, ..)| *by == who) else { return false };
        if mine.2.is_some() {
            mine.2 = after.map(|after| now + after);
        }
        true
    }

    fn answered(&mut self, who: usize, now: i64) {
        if matches!(self.from, From::AnswerCapped | From::Answer) {
            self.ended_if(who, now, |anchor| anchor.is_none_or(|anchor| now < anchor));
        }
    }

    fn ended(&mut self, who: usize, now: i64) {
        self.answered(who, now);
        self.ended_if(who, now, |anchor| anchor.is_none());
    }

    fn ended_if(&mut self, who: usize, now: i64, is_open: impl Fn(Option<i64>) -> bool) {
        if let Some(mine) = self.units.iter_mut().find(|(by, _, anchor)| *by == who && is_open(*anchor)) {
            mine.2 = Some(now);
            self.moved = now;
        }
    }

    fn settle(&mut self, who: usize, actual: i64) {
        if let Some(mine) = self.units.iter_mut().find(|(by, ..)| *by == who) {
            mine.1 = actual;
        }
        let mine = |taken: &&mut (usize, i64)| taken.0 == who;
        if let Some(taken) = self.drained.as_mut().and_then(|(_, taken)| taken.iter_mut().find(mine)) {
            taken.1 = actual;
        }
    }

    fn give_back(&mut self, who: usize) {
        self.units.retain(|(by, ..)| *by != who);
        if let Some((_, taken)) = &mut self.drained {
            taken.retain(|(by, _)| *by != who);
        }
    }

    /// Unit by unit, each taking the place that comes free first, if all is answered at once.
    fn estimate(&self, cost: i64, now: i64) -> i64 {
        let free = |anchor: Option<i64>| anchor.map_or(now, |anchor| anchor.min(now)) + self.period;
        let mut places: Vec<i64> =
            self.units.iter().flat_map(|(_, units, anchor)| (0..*units).map(|_| free(*anchor))).collect();
        places.resize(places.len().max(usize::try_from(self.most).unwrap()), i64::MIN);
        places.sort_unstable();
        // Debt: so many places must come free before one more goes.
        let debt = places.len() - usize::try_from(self.most).unwrap();
        places.drain(..debt);
        let mut last = now;
        for _ in 0..cost {
            last = places.remove(0).max(now);
            let again = last + self.period;
            places.insert(places.partition_point(|place| *place <= again), again);
        }
        last.max(self.steady_at(cost))
    }
}

impl Quota {
    fn rise(&mut self, now: i64) {
        match &mut self.kind {
            Kind::Bucket(level) => level.now = now,
            Kind::Window(log, pace) => {
                log.forget(now);
                if let Some(pace) = pace {
                    pace.now = now;
                }
            }
        }
    }

    fn capacity(&self) -> i64 {
        match &self.kind {
            Kind::Bucket(level) => level.burst,
            Kind::Window(log, _) => log.most,
        }
    }

    /// Whether these can go one after the other, and leave so much.
    fn holds(&self, costs: &[i64], percent: i64, now: i64) -> bool {
        let (cost, left) = (costs.iter().sum::<i64>(), self.capacity() * percent / 100);
        let at_once = |pace: &Level| costs.iter().map(|cost| (*cost).min(pace.burst)).sum();
        cost == 0
            || match &self.kind {
                Kind::Bucket(level) => level.holds(cost + left),
                Kind::Window(log, pace) => {
                    log.holds(cost + left, now) && pace.as_ref().is_none_or(|pace| pace.holds(at_once(pace)))
                }
            }
    }

    /// When it does; `None` if that depends on an answer.
    fn ready(&self, cost: i64, percent: i64, now: i64) -> Option<i64> {
        let left = self.capacity() * percent / 100;
        match &self.kind {
            _ if cost == 0 => Some(now),
            Kind::Bucket(level) => Some(level.ready(cost + left)),
            Kind::Window(log, pace) => {
                let paced = pace.as_ref().map_or(now, |pace| pace.ready(cost.min(pace.burst)));
                Some(log.ready(cost + left, now)?.max(paced))
            }
        }
    }

    /// In nanoseconds, the time in which so many come in.
    fn interval(&self, cost: i64) -> i64 {
        match &self.kind {
            Kind::Bucket(level) => cost * level.interval * 1_000_000,
            Kind::Window(log, _) => cost * log.period * 1_000_000 / log.most,
        }
    }

    /// Buckets are charged at the due instant, windows at the real one.
    fn take(&mut self, who: usize, cost: i64, seen: bool, due: i64, now: i64) {
        if let Some(log) = self.log() {
            log.take(who, cost, seen, now);
        }
        self.levels().for_each(|level| level.charge(who, cost, due));
    }

    fn estimate(&self, queued: i64, cost: i64, now: i64) -> i64 {
        match &self.kind {
            Kind::Bucket(level) => level.estimate(queued + cost),
            Kind::Window(log, pace) => {
                let paced = pace.as_ref().map_or(now, |pace| pace.estimate(queued + cost.min(pace.burst)));
                log.estimate(queued + cost, now).max(paced)
            }
        }
    }

    fn log(&mut self) -> Option<&mut Log> {
        match &mut self.kind {
            Kind::Bucket(_) => None,
            Kind::Window(log, _) => Some(log),
        }
    }

    fn levels(&mut self) -> impl Iterator<Item = &mut Level> {
        match &mut self.kind {
            Kind::Bucket(level) => Some(level),
            Kind::Window(_, pace) => pace.as_mut(),
        }
        .into_iter()
    }
}

/// Whose request it is, and what it wants.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) id: usize,
    pub(super) gates: Vec<usize>,
    pub(super) cost: [i64; 2],
    pub(super) seen: bool,
    /// 0 is the most urgent.
    pub(super) class: usize,
    /// 0 is that of all who name none.
    pub(super) flow: usize,
    /// As which one it arrived, and when.
    pub(super) arrival: Option<(u64, i64)>,
    pub(super) deadline: Option<i64>,
}

impl Ask {
    fn number(&self) -> u64 {
        self.arrival.unwrap().0
    }
}

#[derive(Clone, Debug)]
struct Lane {
    gates: Vec<usize>,
    class: usize,
    flow: usize,
    stands: usize,
    asks: Vec<Ask>,
    /// How far which head has gone up, and with which tag.
    aged: (u64, usize, i64),
}

#[derive(Clone, Debug)]
struct Grant {
    ask: Ask,
    /// By gate: in which epoch, and as which probe.
    passes: Vec<(u64, Option<u64>)>,
    at: i64,
    answered: bool,
    /// How far it moved its flow on, and in which period.
    turn: (i64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    NotNeeded,
    Next,
    /// Which one, until when it holds up others, and whether it will be heard of.
    Out(u64, i64, bool),
}

/// What was decided on somebody who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Granted,
    TooLate,
    TooMuch,
}

/// All limits of one key.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) quotas: Vec<Quota>,
    pub(super) slots: Option<usize>,
    /// In percent, by class, what it must leave.
    reserved: [i64; 3],
    used: usize,
    mean_nanos: i64,
    usual_nanos: i64,
    moved: i64,
    until: i64,
    epoch: u64,
    probe: Probe,
    stated: bool,
    probes: u64,
}

impl Gate {
    pub(super) fn new(quotas: Vec<Quota>, slots: Option<usize>, reserved: [i64; 3]) -> Self {
        Self {
            quotas,
            slots,
            reserved,
            used: 0,
            mean_nanos: 1_000_000_000,
            usual_nanos: 1_000_000_000,
            moved: 0,
            until: 0,
            epoch: 0,
            probe: Probe::NotNeeded,
            stated: false,
            probes: 0,
        }
    }

    /// What is usual is not known of a gate that is made anew.
    pub(super) fn forget(&mut self) {
        (self.mean_nanos, self.usual_nanos, self.moved) = (1_000_000_000, 1_000_000_000, 0);
    }

    fn shut_until(&self, due: i64) -> Option<i64> {
        let probed = if let Probe::Out(_, until, _) = self.probe { until } else { 0 };
        Some(self.until.max(probed)).filter(|until| due < *until)
    }

    fn has_slots(&self, wanted: usize, percent: i64) -> bool {
        self.slots.is_none_or(|slots| {
            let reserved = i64::try_from(slots).unwrap() * percent / 100;
            self.used + wanted + usize::try_from(reserved).unwrap() <= slots
        })
    }

    /// Whether these can go here one after the other.
    fn lets(&self, costs: &[[i64; 2]], class: usize, due: i64) -> bool {
        let percent = self.reserved[class];
        let of = |unit: usize| costs.iter().map(|cost| cost[unit]).collect::<Vec<_>>();
        self.shut_until(due).is_none()
            && self.has_slots(costs.len(), percent)
            && self.quotas.iter().all(|quota| quota.holds(&of(quota.unit), percent, due))
    }

    /// How long one is blocked here: what nobody knows the end of is longest.
    fn weight(&self, cost: [i64; 2], class: usize, due: i64) -> i64 {
        let percent = self.reserved[class];
        if self.shut_until(due).is_some() || !self.has_slots(1, percent) {
            return FOREVER;
        }
        let ready = self.quotas.iter().map(|quota| quota.ready(cost[quota.unit], percent, due).unwrap_or(FOREVER));
        ready.max().unwrap_or(due)
    }

    fn slot_interval(&self) -> i64 {
        let whole = |nanos: i64, of: i64| (nanos + of * 1_000_000 - 1) / (of * 1_000_000) * 1_000_000;
        self.slots.map_or(0, |slots| whole(self.usual_nanos, i64::try_from(slots).unwrap()))
    }

    fn interval(&self, cost: [i64; 2]) -> i64 {
        let quotas = self.quotas.iter().map(|quota| quota.interval(cost[quota.unit]));
        quotas.max().unwrap_or(0).max(self.slot_interval())
    }

    /// Whether somebody who stands here may hold something of this interval elsewhere: not of a pause, which has no known
    /// end; nor if a slot or an answer is overdue by doublings; nor long before it can go here.
    fn lets_hold(&self, interval: i64, cost: [i64; 2], class: usize, due: i64) -> bool {
        if self.shut_until(due).is_some() {
            return false;
        }
        let overdue = |mut usual: i64, since: i64| {
            while 2 * usual <= (due - since) * 1_000_000 {
                usual *= 2;
            }
            usual
        };
        let mut rare = self.interval(cost);
        if self.slots.is_some_and(|slots| self.used >= slots) {
            rare = rare.max(overdue(self.slot_interval(), self.moved));
        }
        let mut ready_at = due;
        for quota in &self.quotas {
            let cost = cost[quota.unit];
            match (quota.ready(cost, self.reserved[class], due), &quota.kind) {
                (Some(ready), _) => ready_at = ready_at.max(ready),
                (None, Kind::Window(log, _)) => rare = rare.max(overdue(quota.interval(cost), log.moved)),
                (None, Kind::Bucket(_)) => {}
            }
        }
        interval >= rare && (ready_at - due) * 1_000_000 <= interval
    }

    fn rise(&mut self, due: i64) {
        self.quotas.iter_mut().for_each(|quota| quota.rise(due));
    }

    /// In which epoch and as which probe somebody passes.
    fn pass(&mut self, ask: &Ask, due: i64, now: i64) -> (u64, Option<u64>) {
        let needed = match self.probe {
            Probe::NotNeeded => false,
            Probe::Next => true,
            Probe::Out(_, _, heard) => heard && !self.stated,
        };
        self.probe = Probe::NotNeeded;
        if needed {
            self.probes += 1;
            let patience = if self.stated || !ask.seen { 1_000 } else { 5_000 };
            self.probe = Probe::Out(self.probes, now + patience, ask.seen);
        }
        for quota in &mut self.quotas {
            quota.take(ask.id, ask.cost[quota.unit], ask.seen, due, now);
        }
        if ask.seen {
            (self.used, self.moved) = (self.used + 1, now);
        }
        (self.epoch, needed.then_some(self.probes))
    }

    fn answered(&mut self, id: usize, now: i64) {
        self.quotas.iter_mut().filter_map(Quota::log).for_each(|log| log.answered(id, now));
    }

    /// The probe is over: it tells that the gate is open, or nothing.
    fn probed(&mut self, (_, probe): (u64, Option<u64>), open: bool) {
        if matches!(self.probe, Probe::Out(out, ..) if probe == Some(out)) {
            self.probe = if open { Probe::NotNeeded } else { Probe::Next };
        }
    }

    fn drain(&mut self, now: i64) {
        let reopens = self.until.max(now);
        for quota in &mut self.quotas {
            if let Some(log) = quota.log() {
                log.drained = Some((reopens, Vec::new()));
            }
            quota.levels().for_each(|level| level.drain(reopens));
        }
    }

    /// Whether it may still leave.
    fn send(&mut self, ask: &Ask, (epoch, _): (u64, Option<u64>), now: i64) -> bool {
        let mut held = epoch == self.epoch && self.until <= now;
        for quota in &mut self.quotas {
            let cost = ask.cost[quota.unit];
            held &= quota.log().is_none_or(|log| log.sent(ask.id, cost, ask.seen, now));
            quota.levels().for_each(|level| held &= level.sent(ask.id, cost));
        }
        held
    }

    fn release(&mut self, ask: &Ask, taken: i64, now: i64) {
        self.quotas.iter_mut().filter_map(Quota::log).for_each(|log| log.ended(ask.id, now));
        (self.used, self.moved) = (self.used - 1, now);
        self.mean_nanos = self.mean_nanos - self.mean_nanos / 16 + (now - taken) * 1_000_000 / 16;
        if self.mean_nanos >= 2 * self.usual_nanos || self.mean_nanos <= self.usual_nanos / 2 {
            self.usual_nanos = (self.mean_nanos.max(1) + 999_999) / 1_000_000 * 1_000_000;
        }
    }

    fn give_back(&mut self, ask: &Ask, now: i64) {
        for quota in &mut self.quotas {
            let cost = ask.cost[quota.unit];
            if let Some(log) = quota.log() {
                log.give_back(ask.id);
            }
            quota.levels().for_each(|level| level.give_back(ask.id, cost));
        }
        if ask.seen {
            (self.used, self.moved) = (self.used - 1, now);
        }
    }

    fn settle(&mut self, id: usize, unit: usize, charged: i64, actual: i64, now: i64) {
        for quota in self.quotas.iter_mut().filter(|quota| quota.unit == unit) {
            if let Some(log) = quota.log() {
                log.settle(id, actual);
            }
            for level in quota.levels() {
                if actual > charged {
                    level.charge(id, actual - charged, now);
                } else {
                    level.give_back(id, charged - actual);
                }
            }
        }
    }

    fn never_lets(&self, cost: [i64; 2], class: usize) -> bool {
        let left = |quota: &Quota| quota.capacity() - quota.capacity() * self.reserved[class] / 100;
        self.quotas.iter().any(|quota| cost[quota.unit] > left(quota))
    }

    fn estimate(&self, cost: [i64; 2], queued: [i64; 2], due: i64) -> i64 {
        let shut = self.shut_until(due).map_or(due, |_| self.until.max(due));
        let quotas = self.quotas.iter().filter(|quota| cost[quota.unit] > 0);
        quotas.map(|quota| quota.estimate(queued[quota.unit], cost[quota.unit], due)).fold(shut, i64::max)
    }
}

/// One flow's turn in one class.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    at: i64,
    served: i64,
}

/// The turns of one class, since somebody last waited in it.
#[derive(Clone, Debug, Default)]
struct Turns {
    clock: i64,
    largest: i64,
    flows: HashMap<usize, Tag>,
    period: u64,
}

/// Who is senior: the class it has come to, then the tag, then the arrival.
type Rank = (usize, i64, u64);

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) gates: Vec<Gate>,
    age: i64,
    lanes: Vec<Lane>,
    grants: Vec<Grant>,
    turns: [Turns; 3],
    arrivals: u64,
    now: i64,
    due: i64,
    pub(super) decided: Vec<(usize, Decision)>,
}

impl Model {
    pub(super) fn new(gates: Vec<Gate>, age: i64) -> Self {
        Self {
            gates,
            age,
            lanes: Vec::new(),
            grants: Vec::new(),
            turns: Default::default(),
            arrivals: 0,
            now: 0,
            due: 0,
            decided: Vec::new(),
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.lanes.iter().map(|lane| lane.asks.len()).sum()
    }

    /// One millisecond after the other; what was due longer ago than the credit is due at its end.
    pub(super) fn advance(&mut self, now: i64) {
        self.now = self.now.max(now);
        for due in self.due.max(self.now - CREDIT)..=self.now {
            self.due = due;
            self.settle_at_due();
        }
    }

    /// Nobody who may go waits, and nobody waits past the deadline.
    fn settle_at_due(&mut self) {
        let due = self.due;
        self.gates.iter_mut().for_each(|gate| gate.rise(due));
        self.expire(due - 1);
        self.age_heads();
        loop {
            while self.act() {}
            if !self.expire(due) {
                return;
            }
        }
    }

    /// Refuses those whose deadline comes by then, or before one of their gates reopens.
    fn expire(&mut self, until: i64) -> bool {
        let mut any = false;
        for place in 0..self.lanes.len() {
            let gates = self.lanes[place].gates.clone();
            let until = gates.iter().map(|gate| self.gates[*gate].until.max(self.due) - 1).fold(until, i64::max);
            let (gone, kept) = self.lanes[place].asks.drain(..).partition(|ask| ask.deadline.unwrap() <= until);
            self.lanes[place].asks = kept;
            any |= !gone.is_empty();
            self.decided.extend(gone.into_iter().map(|ask: Ask| (ask.id, Decision::TooLate)));
        }
        self.drop_empty();
        self.age_heads();
        any
    }

    /// A lane in which nobody waits is gone; a class in which nobody does begins anew.
    fn drop_empty(&mut self) {
        let before: Vec<_> = self.lanes.iter().map(|lane| lane.class).collect();
        self.lanes.retain(|lane| !lane.asks.is_empty());
        for class in 0..3 {
            if before.contains(&class) && !self.lanes.iter().any(|lane| lane.class == class) {
                let Turns { clock, period, .. } = self.turns[class];
                self.turns[class] = Turns { clock, period: period + 1, ..Turns::default() };
            }
        }
    }

    // --- who is senior

    fn waits_in(&self, class: usize, flow: usize) -> bool {
        self.lanes.iter().any(|lane| lane.class == class && lane.flow == flow)
    }

    /// How many classes somebody has gone up.
    fn ages(&self, class: usize, flow: usize, at: i64) -> usize {
        let served = self.turns[class].flows.get(&flow).map_or(0, |tag| tag.served);
        let served = if flow > 0 && self.waits_in(class, flow) { served } else { 0 };
        usize::try_from((self.due - at.max(served)) / self.age).unwrap().min(class)
    }

    /// The rank of somebody who does not wait.
    fn rank(&self, class: usize, flow: usize, (number, at): (u64, i64)) -> Rank {
        let (turns, ages) = (&self.turns[class], self.ages(class, flow, at));
        let known = turns.flows.get(&flow).map_or(0, |tag| tag.at);
        let tag = match ages {
            0 if self.waits_in(class, flow) => known,
            0 => known.max(turns.clock),
            _ => self.turns[class - ages].clock,
        };
        (class - ages, tag, number)
    }

    fn rank_of(&self, lane: usize) -> Rank {
        let Lane { class, flow, asks, aged, .. } = &self.lanes[lane];
        let (number, ages, tag) = *aged;
        assert_eq!(number, asks[0].number(), "each head has been looked at");
        (class - ages, if ages == 0 { self.turns[*class].flows[flow].at } else { tag }, number)
    }

    /// Whoever has gone up a class takes up at its clock.
    fn age_heads(&mut self) {
        for lane in 0..self.lanes.len() {
            let Lane { class, flow, asks, aged, .. } = &self.lanes[lane];
            let Some(head) = asks.first() else { continue };
            let ages = self.ages(*class, *flow, head.arrival.unwrap().1);
            if (head.number(), ages) != (aged.0, aged.1) {
                self.lanes[lane].aged = (head.number(), ages, self.turns[class - ages].clock);
            }
        }
    }

    /// The most senior of those who stand at a gate.
    fn first_at(&self, gate: usize) -> Option<usize> {
        (0..self.lanes.len()).filter(|lane| self.lanes[*lane].stands == gate).min_by_key(|lane| self.rank_of(*lane))
    }

    /// Those who hold a gate: the first of another one, if that is no slower for them.
    fn holders(&self, gate: usize) -> Vec<usize> {
        let holds = |lane: &usize| {
            let Lane { gates, stands, asks, .. } = &self.lanes[*lane];
            *stands != gate
                && gates.contains(&gate)
                && self.first_at(*stands) == Some(*lane)
                && self.gates[*stands].lets_hold(
                    self.gates[gate].interval(asks[0].cost),
                    asks[0].cost,
                    self.rank_of(*lane).0,
                    self.due,
                )
        };
        (0..self.lanes.len()).filter(holds).collect()
    }

    // --- the decision

    /// How long somebody is blocked at a gate, if it is: for somebody senior the shortest.
    fn blocked_at(&self, gate: usize, cost: [i64; 2], rank: Rank) -> Option<i64> {
        let here = &self.gates[gate];
        if !here.lets(&[cost], rank.0, self.due) {
            return Some(here.weight(cost, rank.0, self.due));
        }
        if self.first_at(gate).is_some_and(|first| self.rank_of(first) < rank) {
            return Some(i64::MIN);
        }
        let senior = self.holders(gate).into_iter().map(|lane| (self.rank_of(lane), lane)).min()?;
        let held = self.lanes[senior.1].asks[0].cost;
        (senior.0 < rank && !here.lets(&[cost, held], senior.0.0, self.due)).then_some(i64::MIN)
    }

    /// The gate that blocks somebody longest.
    fn stands(&self, gates: &[usize], cost: [i64; 2], rank: Rank) -> Option<usize> {
        let mut longest: Option<(i64, usize)> = None;
        for gate in gates {
            let Some(weight) = self.blocked_at(*gate, cost, rank) else { continue };
            if longest.is_none_or(|(other, _)| weight > other) {
                longest = Some((weight, *gate));
            }
        }
        longest.map(|(_, gate)| gate)
    }

    /// The most senior of those who are the first where they stand, and are not blocked there, goes or stands elsewhere.
    fn act(&mut self) -> bool {
        let mut firsts: Vec<_> = (0..self.gates.len()).filter_map(|gate| self.first_at(gate)).collect();
        firsts.sort_by_key(|lane| self.rank_of(*lane));
        let free = |lane: &usize| {
            let (rank, Lane { stands, asks, .. }) = (self.rank_of(*lane), &self.lanes[*lane]);
            self.blocked_at(*stands, asks[0].cost, rank).is_none()
        };
        let Some(lane) = firsts.into_iter().find(free) else { return false };
        let (rank, Lane { gates, asks, .. }) = (self.rank_of(lane), &self.lanes[lane]);
        if let Some(stands) = self.stands(gates, asks[0].cost, rank) {
            self.lanes[lane].stands = stands;
            return true;
        }
        let ask = self.lanes[lane].asks.remove(0);
        self.decided.push((ask.id, Decision::Granted));
        self.age_heads();
        self.grant(ask);
        self.drop_empty();
        self.age_heads();
        true
    }

    fn grant(&mut self, ask: Ask) {
        let passes = ask.gates.iter().map(|gate| self.gates[*gate].pass(&ask, self.due, self.now)).collect();
        let turn = self.serve(&ask);
        self.grants.push(Grant { ask, passes, at: self.now, answered: false, turn });
    }

    /// The turn of a flow moves on, unless nobody waits or there is no other.
    fn serve(&mut self, ask: &Ask) -> (i64, u64) {
        let Ask { class, flow, cost, .. } = *ask;
        // The lane of whoever waited until now is still there, though it may be empty.
        if !self.lanes.iter().any(|lane| lane.class == class) {
            return (0, self.turns[class].period);
        }
        self.take_up(class, flow);
        let amount = cost[0].max(1) << 16;
        let waiting: HashSet<_> = self.lanes.iter().filter(|lane| lane.class == class).map(|lane| lane.flow).collect();
        let turns = &mut self.turns[class];
        let alone = turns.flows.len() == 1;
        let tag = turns.flows.get_mut(&flow).unwrap();
        tag.served = self.due;
        if alone {
            return (0, turns.period);
        }
        turns.largest = turns.largest.max(amount);
        let share = amount / i64::try_from(waiting.len()).unwrap();
        turns.clock = (turns.clock + share.max(1)).max(tag.at);
        tag.at = tag.at.max(turns.clock - 2 * turns.largest) + amount;
        (amount, turns.period)
    }

    /// Somebody takes a turn at a gate that is not in the model.
    pub(super) fn passes_by(&mut self) {
        let (gates, cost, seen, class, flow) = (Vec::new(), [1, 0], true, 1, 0);
        self.serve(&Ask { id: NOBODY, gates, cost, seen, class, flow, arrival: None, deadline: None });
        self.settle_at_due();
    }

    /// A flow in which nobody waits takes up at the clock.
    fn take_up(&mut self, class: usize, flow: usize) {
        let waits = self.waits_in(class, flow);
        let turns = &mut self.turns[class];
        let clock = turns.clock;
        let tag = turns.flows.entry(flow).or_default();
        if !waits {
            (tag.served, tag.at) = (0, tag.at.max(clock));
        }
    }

    /// `Ok(true)` if granted at once, `Ok(false)` if it waits.
    pub(super) fn ask(&mut self, mut ask: Ask) -> Result<bool, Decision> {
        if ask.arrival.is_none() {
            self.arrivals += 1;
            ask.arrival = Some((self.arrivals, self.now));
        }
        let Ask { class, flow, cost, .. } = ask;
        if ask.gates.iter().any(|gate| self.gates[*gate].never_lets(cost, class)) {
            return Err(Decision::TooMuch);
        }
        let rank = self.rank(class, flow, ask.arrival.unwrap());
        let Some(stands) = self.stands(&ask.gates, cost, rank) else {
            self.grant(ask);
            self.settle_at_due();
            return Ok(true);
        };
        let deadline = ask.deadline.ok_or(Decision::TooLate)?;
        let gates = ask.gates.clone();
        let same = |lane: &Lane| lane.gates == gates && lane.class == class && lane.flow == flow;
        let lane = self.lanes.iter().position(same);
        let ahead = lane.map_or(&[][..], |lane| &self.lanes[lane].asks);
        let last = ahead.last().is_none_or(|last| last.number() < ask.number());
        let queued = [0, 1].map(|unit| if last { ahead.iter().map(|ask| ask.cost[unit]).sum() } else { 0 });
        if deadline <= self.now || self.estimate(&ask, queued) > deadline {
            return Err(Decision::TooLate);
        }
        if lane.is_none() {
            self.take_up(class, flow);
            let (gates, aged) = (ask.gates.clone(), (0, 0, 0));
            self.lanes.push(Lane { gates, class, flow, stands, asks: Vec::new(), aged });
        }
        let asks = &mut self.lanes.iter_mut().find(|lane| same(lane)).unwrap().asks;
        let place = asks.iter().filter(|other| other.number() < ask.number()).count();
        asks.insert(place, ask);
        self.age_heads();
        self.settle_at_due();
        Ok(false)
    }

    fn estimate(&self, ask: &Ask, queued: [i64; 2]) -> i64 {
        ask.gates.iter().map(|gate| self.gates[*gate].estimate(ask.cost, queued, self.due)).max().unwrap()
    }

    // --- the life of a grant

    fn grant_of(&mut self, id: usize) -> Option<usize> {
        self.grants.iter().position(|grant| grant.ask.id == id)
    }

    pub(super) fn ask_of(&self, id: usize) -> Option<Ask> {
        self.grants.iter().find(|grant| grant.ask.id == id).map(|grant| grant.ask.clone())
    }

    pub(super) fn leave(&mut self, id: usize) {
        if self.grant_of(id).is_some() {
            return self.give_back(id);
        }
        self.lanes.iter_mut().for_each(|lane| lane.asks.retain(|ask| ask.id != id));
        self.drop_empty();
        self.age_heads();
        self.settle_at_due();
    }

    pub(super) fn send(&mut self, id: usize) -> bool {
        let Some(place) = self.grant_of(id) else { return false };
        let Grant { ask, passes, .. } = &self.grants[place];
        let mut held = true;
        for (gate, pass) in ask.gates.iter().zip(passes) {
            held &= self.gates[*gate].send(ask, *pass, self.now);
        }
        self.settle_at_due();
        held
    }

    pub(super) fn answered(&mut self, id: usize) {
        let Some(place) = self.grant_of(id) else { return };
        self.grants[place].answered = true;
        let Grant { ask, passes, .. } = &self.grants[place];
        for (gate, pass) in ask.gates.iter().zip(passes) {
            self.gates[*gate].answered(id, self.now);
            self.gates[*gate].probed(*pass, true);
        }
        self.settle_at_due();
    }

    /// By one of its gates, by place. `wait` in milliseconds; one that is not stated is a second here, for chance is taken
    /// out of scripts.
    pub(super) fn refused(&mut self, id: usize, place: usize, wait: Option<i64>) {
        let Some(grant) = self.grant_of(id) else { return };
        self.grants[grant].answered = true;
        let Grant { ask, passes, .. } = &self.grants[grant];
        for (nth, (gate, pass)) in ask.gates.iter().zip(passes).enumerate() {
            let gate = &mut self.gates[*gate];
            gate.answered(id, self.now);
            if nth != place {
                gate.probed(*pass, false);
                continue;
            }
            let event = pass.0 == gate.epoch;
            if event {
                gate.epoch += 1;
                gate.stated = wait.is_some();
            }
            if event || gate.probe == Probe::NotNeeded {
                gate.probe = Probe::Next;
            }
            gate.until = gate.until.max(self.now + wait.unwrap_or(1_000));
            gate.drain(self.now);
        }
        self.settle_at_due();
    }

    pub(super) fn pause(&mut self, gate: usize, until: i64) {
        let gate = &mut self.gates[gate];
        gate.epoch += 1;
        gate.stated = true;
        gate.probe = Probe::Next;
        gate.until = gate.until.max(until);
        gate.drain(self.now);
        self.settle_at_due();
    }

    pub(super) fn settle(&mut self, id: usize, unit: usize, actual: i64) {
        let Some(place) = self.grant_of(id) else { return };
        let charged = std::mem::replace(&mut self.grants[place].ask.cost[unit], actual);
        for gate in &self.grants[place].ask.gates {
            self.gates[*gate].settle(id, unit, charged, actual, self.now);
        }
        self.settle_at_due();
    }

    pub(super) fn release(&mut self, id: usize) {
        let Some(place) = self.grant_of(id) else { return };
        let Grant { ask, passes, at, answered, .. } = self.grants.remove(place);
        for (gate, pass) in ask.gates.iter().zip(passes).filter(|_| ask.seen) {
            self.gates[*gate].release(&ask, at, self.now);
            if !answered {
                self.gates[*gate].probed(pass, false);
            }
        }
        self.settle_at_due();
    }

    pub(super) fn give_back(&mut self, id: usize) {
        let Some(place) = self.grant_of(id) else { return };
        let Grant { ask, passes, turn, .. } = self.grants.remove(place);
        for (gate, pass) in ask.gates.iter().zip(passes) {
            self.gates[*gate].give_back(&ask, self.now);
            self.gates[*gate].probed(pass, false);
        }
        let turns = &mut self.turns[ask.class];
        if let Some(tag) = turns.flows.get_mut(&ask.flow).filter(|_| turns.period == turn.1) {
            tag.at = (tag.at - turn.0).max(0);
        }
        self.settle_at_due();
    }

    // --- other limits

    /// Other numbers for the quotas of a gate: bursts, and what a window lets go.
    pub(super) fn retune(&mut self, gate: usize, slots: Option<usize>, numbers: &[i64]) {
        let here = &mut self.gates[gate];
        (here.slots, here.moved) = (slots, self.now);
        for (quota, number) in here.quotas.iter_mut().zip(numbers) {
            match &mut quota.kind {
                Kind::Bucket(level) => level.retune(*number),
                Kind::Window(log, _) => log.most = *number,
            }
        }
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].gates.contains(&gate) {
                self.look_again(lane);
            }
        }
        self.drop_empty();
        self.age_heads();
        self.settle_at_due();
    }

    /// Whoever can never go any more, or certainly not in time, learns it now.
    fn look_again(&mut self, lane: usize) {
        let class = self.lanes[lane].class;
        let mut queued = [0, 0];
        for ask in std::mem::take(&mut self.lanes[lane].asks) {
            let too_much = ask.gates.iter().any(|gate| self.gates[*gate].never_lets(ask.cost, class));
            if too_much || self.estimate(&ask, queued) > ask.deadline.unwrap() {
                self.decided.push((ask.id, if too_much { Decision::TooMuch } else { Decision::TooLate }));
            } else {
                queued = [queued[0] + ask.cost[0], queued[1] + ask.cost[1]];
                self.lanes[lane].asks.push(ask);
            }
        }
    }

    /// Whether anything would be decided if it were this late: a poll, on a copy.
    pub(super) fn would_decide_by(&self, now: i64) -> bool {
        let mut copy = self.clone();
        for instant in copy.now..=now {
            copy.advance(instant);
        }
        copy.decided.len() > self.decided.len()
    }
}
