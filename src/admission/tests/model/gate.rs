//! All limits of one key, its pause and its probe.

use super::quota::{Kind, Quota};
use super::{Ask, FOREVER};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Probe {
    NotNeeded,
    Next,
    /// Which one, until when it holds up others, and whether it will be heard of.
    Out(u64, i64, bool),
}

/// All limits of one key.
#[derive(Clone, Debug)]
pub(in super::super) struct Gate {
    pub(in super::super) quotas: Vec<Quota>,
    pub(in super::super) slots: Option<usize>,
    /// In percent, by class, what it must leave.
    pub(in super::super) reserved: [i64; 3],
    pub(in super::super) used: usize,
    pub(in super::super) mean_nanos: i64,
    pub(in super::super) usual_nanos: i64,
    pub(in super::super) moved: i64,
    pub(in super::super) until: i64,
    pub(in super::super) epoch: u64,
    pub(in super::super) probe: Probe,
    pub(in super::super) stated: bool,
    pub(in super::super) probes: u64,
}

impl Gate {
    pub(in super::super) fn new(quotas: Vec<Quota>, slots: Option<usize>, reserved: [i64; 3]) -> Self {
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
    pub(in super::super) fn forget(&mut self) {
        (self.mean_nanos, self.usual_nanos, self.moved) = (1_000_000_000, 1_000_000_000, 0);
    }

    pub(in super::super) fn shut_until(&self, due: i64) -> Option<i64> {
        let probed = if let Probe::Out(_, until, _) = self.probe { until } else { 0 };
        Some(self.until.max(probed)).filter(|until| due < *until)
    }

    pub(in super::super) fn has_slots(&self, wanted: usize, percent: i64) -> bool {
        self.slots.is_none_or(|slots| {
            let reserved = i64::try_from(slots).unwrap() * percent / 100;
            self.used + wanted + usize::try_from(reserved).unwrap() <= slots
        })
    }

    /// Whether these can go here one after the other.
    pub(in super::super) fn lets(&self, costs: &[[i64; 2]], class: usize, due: i64) -> bool {
        let percent = self.reserved[class];
        let of = |unit: usize| costs.iter().map(|cost| cost[unit]).collect::<Vec<_>>();
        self.shut_until(due).is_none()
            && self.has_slots(costs.len(), percent)
            && self.quotas.iter().all(|quota| quota.holds(&of(quota.unit), percent, due))
    }

    /// How long one is blocked here: what nobody knows the end of is longest.
    pub(in super::super) fn weight(&self, cost: [i64; 2], class: usize, due: i64) -> i64 {
        let percent = self.reserved[class];
        if self.shut_until(due).is_some() || !self.has_slots(1, percent) {
            return FOREVER;
        }
        let ready = self.quotas.iter().map(|quota| quota.ready(cost[quota.unit], percent, due).unwrap_or(FOREVER));
        ready.max().unwrap_or(due)
    }

    pub(in super::super) fn slot_interval(&self) -> i64 {
        let whole = |nanos: i64, of: i64| (nanos + of * 1_000_000 - 1) / (of * 1_000_000) * 1_000_000;
        self.slots.map_or(0, |slots| whole(self.usual_nanos, i64::try_from(slots).unwrap()))
    }

    pub(in super::super) fn interval(&self, cost: [i64; 2]) -> i64 {
        let quotas = self.quotas.iter().map(|quota| quota.interval(cost[quota.unit]));
        quotas.max().unwrap_or(0).max(self.slot_interval())
    }

    /// Whether somebody who stands here may hold something of this interval elsewhere: not of a pause, which has no known
    /// end; nor if a slot or an answer is overdue by doublings; nor long before it can go here.
    pub(in super::super) fn lets_hold(&self, interval: i64, cost: [i64; 2], class: usize, due: i64) -> bool {
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

    pub(in super::super) fn rise(&mut self, due: i64) {
        self.quotas.iter_mut().for_each(|quota| quota.rise(due));
    }

    /// In which epoch and as which probe somebody passes.
    pub(in super::super) fn pass(&mut self, ask: &Ask, due: i64, now: i64) -> (u64, Option<u64>) {
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

    pub(in super::super) fn answered(&mut self, id: usize, now: i64) {
        self.quotas.iter_mut().filter_map(Quota::log).for_each(|log| log.answered(id, now));
    }

    /// The probe is over: it tells that the gate is open, or nothing.
    pub(in super::super) fn probed(&mut self, (_, probe): (u64, Option<u64>), open: bool) {
        if matches!(self.probe, Probe::Out(out, ..) if probe == Some(out)) {
            self.probe = if open { Probe::NotNeeded } else { Probe::Next };
        }
    }

    pub(in super::super) fn drain(&mut self, now: i64) {
        let reopens = self.until.max(now);
        for quota in &mut self.quotas {
            if let Some(log) = quota.log() {
                log.drained = Some((reopens, Vec::new()));
            }
            quota.levels().for_each(|level| level.drain(reopens));
        }
    }

    /// Whether it may still leave.
    pub(in super::super) fn send(&mut self, ask: &Ask, (epoch, _): (u64, Option<u64>), now: i64) -> bool {
        let mut held = epoch == self.epoch && self.until <= now;
        for quota in &mut self.quotas {
            let cost = ask.cost[quota.unit];
            held &= quota.log().is_none_or(|log| log.sent(ask.id, cost, ask.seen, now));
            quota.levels().for_each(|level| held &= level.sent(ask.id, cost));
        }
        held
    }

    pub(in super::super) fn release(&mut self, ask: &Ask, taken: i64, now: i64) {
        self.quotas.iter_mut().filter_map(Quota::log).for_each(|log| log.ended(ask.id, now));
        (self.used, self.moved) = (self.used - 1, now);
        if self.slots.is_none() {
            return;
        }
        self.mean_nanos = self.mean_nanos - self.mean_nanos / 16 + (now - taken) * 1_000_000 / 16;
        if self.mean_nanos >= 2 * self.usual_nanos || self.mean_nanos <= self.usual_nanos / 2 {
            self.usual_nanos = (self.mean_nanos.max(1) + 999_999) / 1_000_000 * 1_000_000;
        }
    }

    pub(in super::super) fn give_back(&mut self, ask: &Ask, now: i64) {
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

    pub(in super::super) fn settle(&mut self, id: usize, unit: usize, charged: i64, actual: i64, now: i64) {
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

    pub(in super::super) fn never_lets(&self, cost: [i64; 2], class: usize) -> bool {
        let left = |quota: &Quota| quota.capacity() - quota.capacity() * self.reserved[class] / 100;
        self.quotas.iter().any(|quota| cost[quota.unit] > left(quota))
    }

    pub(in super::super) fn estimate(&self, cost: [i64; 2], queued: [i64; 2], due: i64) -> i64 {
        let shut = self.shut_until(due).map_or(due, |_| self.until.max(due));
        let quotas = self.quotas.iter().filter(|quota| cost[quota.unit] > 0);
        quotas.map(|quota| quota.estimate(queued[quota.unit], cost[quota.unit], due)).fold(shut, i64::max)
    }
}
