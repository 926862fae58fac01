//! What is left of a bucket or a window, by lists that are searched from end to end.

use super::{CREDIT, NOBODY};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum From {
    AnswerCapped,
    Answer,
    Send(i64),
    End,
}

/// A quota: of which unit, and how it counts.
#[derive(Clone, Debug)]
pub(in super::super) struct Quota {
    pub(in super::super) unit: usize,
    pub(in super::super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(in super::super) enum Kind {
    Bucket(Level),
    Window(Log, Option<Level>),
}

/// A bucket: when it will be full, if nothing more goes.
#[derive(Clone, Debug)]
pub(in super::super) struct Level {
    pub(in super::super) interval: i64,
    pub(in super::super) burst: i64,
    pub(in super::super) full_at: i64,
    pub(in super::super) now: i64,
    /// Who was charged how much and when, in order. A drain is nobody's.
    pub(in super::super) charges: Vec<(Option<usize>, i64, i64)>,
    /// When the last was charged.
    pub(in super::super) last: i64,
    pub(in super::super) reopens: i64,
}

/// A window's units: whose, how many, and the anchor if it is known.
#[derive(Clone, Debug)]
pub(in super::super) struct Log {
    pub(in super::super) most: i64,
    pub(in super::super) period: i64,
    pub(in super::super) from: From,
    pub(in super::super) units: Vec<(usize, i64, Option<i64>)>,
    /// When somebody was last taken, or answered.
    pub(in super::super) moved: i64,
    /// Since a reopening: when, and what was taken by whom.
    pub(in super::super) drained: Option<(i64, Vec<(usize, i64)>)>,
}

impl Level {
    pub(in super::super) fn new(interval: i64, burst: i64) -> Self {
        Self { interval, burst, full_at: 0, now: 0, charges: Vec::new(), last: 0, reopens: 0 }
    }

    pub(in super::super) fn holds(&self, cost: i64) -> bool {
        cost == 0 || self.level(self.now) >= cost * self.interval
    }

    /// When so much is there, if nothing else goes.
    pub(in super::super) fn ready(&self, cost: i64) -> i64 {
        if cost == 0 { self.now } else { self.now + (cost * self.interval - self.level(self.now)).max(0) }
    }

    /// In milliseconds of filling.
    pub(in super::super) fn level(&self, at: i64) -> i64 {
        self.interval * self.burst - (self.full_at - at).max(0)
    }

    pub(in super::super) fn charge(&mut self, who: usize, cost: i64, at: i64) {
        if cost > 0 {
            self.full_at = self.full_at.max(at) + cost * self.interval;
            self.last = self.last.max(at);
        }
        self.charges.push((Some(who), cost, at));
    }

    /// What others were charged since the first charge of this grant, as if the bucket had been full at the last charge,
    /// is the fullest that giving back may make it. Nothing from before a drain comes back.
    pub(in super::super) fn give_back(&mut self, who: usize, amount: i64) {
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
    pub(in super::super) fn sent(&mut self, who: usize, cost: i64) -> bool {
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

    pub(in super::super) fn drain(&mut self, at: i64) {
        self.full_at = self.full_at.max(at + (self.burst - 1) * self.interval);
        self.reopens = self.reopens.max(at);
        self.charges.push((None, 0, 0));
    }

    /// What was spent stays spent. One that is drained holds one at the reopening.
    pub(in super::super) fn retune(&mut self, burst: i64) {
        if self.reopens > self.now {
            self.full_at += (burst - self.burst) * self.interval;
        }
        self.burst = burst;
    }

    pub(in super::super) fn estimate(&self, cost: i64) -> i64 {
        self.now + (cost * self.interval - self.level(self.now)).max(0)
    }
}

impl Log {
    pub(in super::super) fn new(most: i64, period: i64, from: From) -> Self {
        Self { most, period, from, units: Vec::new(), moved: 0, drained: None }
    }

    pub(in super::super) fn forget(&mut self, now: i64) {
        self.units.retain(|(.., anchor)| anchor.is_none_or(|anchor| anchor + self.period > now));
        self.drained = self.drained.take().filter(|(from, _)| from + self.period > now);
    }

    pub(in super::super) fn used(&self) -> i64 {
        self.units.iter().map(|(_, units, _)| units).sum()
    }

    /// One more each W/n since the reopening.
    pub(in super::super) fn steady_at(&self, cost: i64) -> i64 {
        let Some((from, taken)) = &self.drained else { return 0 };
        let taken: i64 = taken.iter().map(|(_, units)| units).sum();
        from + (taken + cost - 1).min(self.most) * self.period / self.most
    }

    pub(in super::super) fn holds(&self, cost: i64, now: i64) -> bool {
        cost == 0 || (self.used() + cost <= self.most && self.steady_at(cost) <= now)
    }

    /// When so much is free, if nothing else goes; `None` if that depends on an answer.
    pub(in super::super) fn ready(&self, cost: i64, now: i64) -> Option<i64> {
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

    pub(in super::super) fn take(&mut self, who: usize, cost: i64, seen: bool, now: i64) {
        if let Some((_, taken)) = &mut self.drained {
            taken.push((who, cost));
        }
        let anchor = self.after_sending(seen).map(|after| now + after);
        self.moved = now;
        self.units.push((who, cost, anchor));
    }

    pub(in super::super) fn after_sending(&self, seen: bool) -> Option<i64> {
        match self.from {
            From::Send(pad) => Some(pad),
            _ if !seen => Some((self.period / 20).clamp(20, 1_000)),
            From::AnswerCapped => Some((self.period / 4).clamp(100, 1_000)),
            From::Answer | From::End => None,
        }
    }

    /// False if the units no longer count.
    pub(in super::super) fn sent(&mut self, who: usize, cost: i64, seen: bool, now: i64) -> bool {
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

    pub(in super::super) fn answered(&mut self, who: usize, now: i64) {
        if matches!(self.from, From::AnswerCapped | From::Answer) {
            self.ended_if(who, now, |anchor| anchor.is_none_or(|anchor| now < anchor));
        }
    }

    pub(in super::super) fn ended(&mut self, who: usize, now: i64) {
        self.answered(who, now);
        self.ended_if(who, now, |anchor| anchor.is_none());
    }

    pub(in super::super) fn ended_if(&mut self, who: usize, now: i64, is_open: impl Fn(Option<i64>) -> bool) {
        if let Some(mine) = self.units.iter_mut().find(|(by, _, anchor)| *by == who && is_open(*anchor)) {
            mine.2 = Some(now);
            self.moved = now;
        }
    }

    pub(in super::super) fn settle(&mut self, who: usize, actual: i64) {
        if let Some(mine) = self.units.iter_mut().find(|(by, ..)| *by == who) {
            mine.1 = actual;
        }
        let mine = |taken: &&mut (usize, i64)| taken.0 == who;
        if let Some(taken) = self.drained.as_mut().and_then(|(_, taken)| taken.iter_mut().find(mine)) {
            taken.1 = actual;
        }
    }

    pub(in super::super) fn give_back(&mut self, who: usize) {
        self.units.retain(|(by, ..)| *by != who);
        if let Some((_, taken)) = &mut self.drained {
            taken.retain(|(by, _)| *by != who);
        }
    }

    /// Unit by unit, each taking the place that comes free first, if all is answered at once.
    pub(in super::super) fn estimate(&self, cost: i64, now: i64) -> i64 {
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
    pub(in super::super) fn rise(&mut self, now: i64) {
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

    pub(in super::super) fn capacity(&self) -> i64 {
        match &self.kind {
            Kind::Bucket(level) => level.burst,
            Kind::Window(log, _) => log.most,
        }
    }

    /// Whether these can go one after the other, and leave so much.
    pub(in super::super) fn holds(&self, costs: &[i64], percent: i64, now: i64) -> bool {
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
    pub(in super::super) fn ready(&self, cost: i64, percent: i64, now: i64) -> Option<i64> {
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
    pub(in super::super) fn interval(&self, cost: i64) -> i64 {
        match &self.kind {
            Kind::Bucket(level) => cost * level.interval * 1_000_000,
            Kind::Window(log, _) => cost * log.period * 1_000_000 / log.most,
        }
    }

    /// Buckets are charged at the due instant, windows at the real one.
    pub(in super::super) fn take(&mut self, who: usize, cost: i64, seen: bool, due: i64, now: i64) {
        if let Some(log) = self.log() {
            log.take(who, cost, seen, now);
        }
        self.levels().for_each(|level| level.charge(who, cost, due));
    }

    pub(in super::super) fn estimate(&self, queued: i64, cost: i64, now: i64) -> i64 {
        match &self.kind {
            Kind::Bucket(level) => level.estimate(queued + cost),
            Kind::Window(log, pace) => {
                let paced = pace.as_ref().map_or(now, |pace| pace.estimate(queued + cost.min(pace.burst)));
                log.estimate(queued + cost, now).max(paced)
            }
        }
    }

    pub(in super::super) fn log(&mut self) -> Option<&mut Log> {
        match &mut self.kind {
            Kind::Bucket(_) => None,
            Kind::Window(log, _) => Some(log),
        }
    }

    pub(in super::super) fn levels(&mut self) -> impl Iterator<Item = &mut Level> {
        match &mut self.kind {
            Kind::Bucket(level) => Some(level),
            Kind::Window(_, pace) => pace.as_mut(),
        }
        .into_iter()
    }
}
