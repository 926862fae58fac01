//! The limits and the pause of one key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::meter::{Meter, Receipt};
use super::order::{Arrival, AskId};
use super::pause::{Pass, Pause};
use super::slots::Slots;
use crate::cost::{Cost, Unit};
use crate::key::Key;
use crate::limits::Limits;
use crate::quota::Quota;
use crate::refused::{Reason, Refused};
use crate::time::Time;
use crate::wait::Wait;

/// So many of those ahead of somebody who has stood in the line are counted, and no more.
const MOST_COUNTED: usize = 64;

/// Which of the quotas that were there one takes over from: the same, then one of the same period, then any.
const ALIKE: [fn(&Quota, &Quota) -> bool; 3] =
    [|old, new| old == new, |old, new| old.period() == new.period(), |_, _| true];

/// Everything that a request to one key must pass, and those who wait to.
#[derive(Debug)]
pub(super) struct Gate {
    key: Key,
    meters: Vec<Meter>,
    slots: Slots,
    pause: Pause,
    /// Who waits, in order.
    line: BTreeMap<Arrival, AskId>,
    /// Until when those who wait will.
    deadlines: BTreeSet<(Time, AskId)>,
    /// Whoever has a deadline up to then cannot go before it, and is to be told.
    pub(super) hopeless_until: Time,
    /// The instant at which this gate stands in the core's timers.
    pub(super) timer: Option<Time>,
    /// Counts the meters that were ever made.
    made: u32,
    /// Counts the grants that have not ended.
    passing: usize,
}

/// What a grant took, as far as it can still change.
#[derive(Debug)]
pub(super) struct Taken {
    usage: Use,
    pass: Pass,
    receipts: SmallVec<[Receipt; 1]>,
    answered: bool,
}

/// How a grant is used: with a permit that reports its answer, or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Permit,
    Unseen,
}

/// What stands in the way, and until when if that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    cause: Cause,
    pub(super) until: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    Pause,
    Slots,
    Quota(Arc<Quota>),
}

impl Gate {
    pub(super) fn new(key: Key, limits: &Limits) -> Self {
        let mut gate = Self {
            key,
            meters: Vec::new(),
            slots: Slots::new(limits.most_in_flight()),
            pause: Pause::default(),
            line: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            hopeless_until: Time::ZERO,
            timer: None,
            made: 0,
            passing: 0,
        };
        gate.meters = limits.quotas().iter().filter_map(|quota| gate.make(quota)).collect();
        gate
    }

    fn make(&mut self, quota: &Quota) -> Option<Meter> {
        self.made += 1;
        Meter::new(quota, self.made)
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Nobody waits, nobody passes, nothing is used, nothing is paused or to be probed: a fresh one is the same.
    pub(super) fn is_at_rest(&mut self, now: Time) -> bool {
        self.line.is_empty()
            && self.passing == 0
            && self.pause.is_at_rest(now)
            && self.meters.iter_mut().all(|meter| meter.is_at_rest(now))
    }

    // --- the line

    pub(super) fn stand(&mut self, arrival: Arrival, deadline: Time, ask: AskId, cost: &Cost) {
        self.line.insert(arrival, ask);
        self.deadlines.insert((deadline, ask));
        for meter in &mut self.meters {
            meter.stand(cost.of(meter.quota.unit()));
        }
    }

    pub(super) fn leave(&mut self, arrival: Arrival, deadline: Time, ask: AskId, cost: &Cost) {
        self.line.remove(&arrival);
        self.deadlines.remove(&(deadline, ask));
        for meter in &mut self.meters {
            meter.leave(cost.of(meter.quota.unit()));
        }
    }

    pub(super) fn head(&self) -> Option<AskId> {
        self.line.first_key_value().map(|(_, ask)| *ask)
    }

    pub(super) fn line(&self) -> impl Iterator<Item = AskId> {
        self.line.values().copied()
    }

    pub(super) fn first_deadline(&self) -> Option<(Time, AskId)> {
        self.deadlines.first().copied()
    }

    fn is_last(&self, arrival: Arrival) -> bool {
        self.line.last_key_value().is_none_or(|(last, _)| *last < arrival)
    }

    /// How many wait ahead of a place: exact for a newcomer, for others counted up to a bound.
    pub(super) fn ahead_of(&self, arrival: Arrival) -> usize {
        if self.is_last(arrival) {
            return self.line.len();
        }
        self.line.range(..arrival).take(MOST_COUNTED).count()
    }

    // --- the decision

    pub(super) fn counts_in_flight(&self) -> bool {
        self.slots.most().is_some()
    }

    /// The quota that could never let this go.
    pub(super) fn never_lets(&self, cost: &Cost) -> Option<Block> {
        let meter = self.meters.iter().find(|meter| cost.of(meter.quota.unit()) > meter.capacity())?;
        Some(Block { cause: Cause::Quota(Arc::clone(&meter.quota)), until: None })
    }

    /// What keeps a request from going at `now`: what has no known end before what has, then the latest.
    pub(super) fn blocked(&mut self, cost: &Cost, now: Time) -> Option<Block> {
        if !self.slots.is_free() {
            return Some(Block { cause: Cause::Slots, until: None });
        }
        let mut latest = self.pause.shut_until(now).map(|until| (None, until));
        for (place, meter) in self.meters.iter_mut().enumerate() {
            let quota = |meter: &Meter| Cause::Quota(Arc::clone(&meter.quota));
            let Some(ready) = meter.ready_at(cost.of(meter.quota.unit()), now) else {
                return Some(Block { cause: quota(meter), until: None });
            };
            if ready > now && latest.is_none_or(|(_, at)| ready > at) {
                latest = Some((Some(place), ready));
            }
        }
        let (place, until) = latest?;
        let cause = place.map_or(Cause::Pause, |place| Cause::Quota(Arc::clone(&self.meters[place].quota)));
        Some(Block { cause, until: Some(until) })
    }

    /// Takes what one request needs. To be called when nothing blocks: at the instant `due`, which may lie a
    /// little before `now`. Buckets are charged at the former, windows at the latter.
    pub(super) fn take(&mut self, cost: &Cost, usage: Use, due: Time, now: Time) -> Taken {
        let seen = usage == Use::Permit;
        // What costs nothing may be settled to something.
        let costs = self.meters.iter_mut().map(|meter| (cost.of(meter.quota.unit()), meter));
        let receipts = costs.map(|(cost, meter)| meter.take(cost, seen, due, now)).collect();
        if seen {
            self.slots.take();
        }
        self.passing += 1;
        Taken { usage, pass: self.pause.pass(seen, now), receipts, answered: false }
    }

    /// When a request can go at the earliest, and what decides that. Whoever comes last has all that wait before it, but
    /// while decisions are due of which a call could do only so many, nobody knows who does.
    pub(super) fn estimate(&self, cost: &Cost, arrival: Arrival, now: Time) -> Block {
        let ahead = self.is_last(arrival) && self.timer.is_none_or(|at| at > now);
        let slots = (!self.slots.is_free()).then_some((Cause::Slots, now));
        let paused = self.pause.shut_until(now).map(|_| (Cause::Pause, self.pause.opens(now)));
        let quotas = self.meters.iter().filter(|meter| cost.of(meter.quota.unit()) > 0).map(|meter| {
            let estimate = meter.estimate(cost.of(meter.quota.unit()), ahead, now);
            (Cause::Quota(Arc::clone(&meter.quota)), estimate)
        });
        let all = slots.into_iter().chain(paused).chain(quotas);
        let latest = all.reduce(|latest, next| if next.1 > latest.1 { next } else { latest });
        let (cause, until) = latest.unwrap_or((Cause::Pause, now));
        Block { cause, until: Some(until) }
    }

    /// The refusal of a request that `block` keeps from going.
    pub(super) fn refusal(&self, reason: Reason, block: Block, ahead: usize, now: Time) -> Refused {
        let mut refused = Refused::new(reason, self.key.as_str());
        refused.ahead = ahead;
        refused.wait = block.until.filter(|_| block.cause != Cause::Slots).map(|until| until.since(now));
        match block.cause {
            Cause::Pause => {}
            Cause::Slots => refused.in_flight = self.slots.most(),
            Cause::Quota(quota) => refused.quota = Some(quota),
        }
        refused
    }

    // --- the life of a grant

    /// The request leaves now. False if it must not: a pause came in between, or it waited so long with its
    /// grant in hand that what it took is free again.
    pub(super) fn send(&mut self, taken: &mut Taken, now: Time) -> bool {
        let (mut held, seen) = (self.pause.send(&mut taken.pass, now), taken.usage == Use::Permit);
        each(&mut self.meters, &mut taken.receipts, |meter, receipt| {
            held &= meter.sent(receipt, seen, now);
        });
        held
    }

    /// The server took it.
    pub(super) fn answered(&mut self, taken: &mut Taken, now: Time) {
        self.anchor(taken, now);
        self.pause.succeeded(taken.pass, now);
    }

    /// The server refused it: nobody passes for a while, and then at the steady rate.
    pub(super) fn refused(&mut self, taken: &mut Taken, wait: Wait, now: Time) {
        self.anchor(taken, now);
        let reopens = self.pause.refused(taken.pass, wait, now);
        self.drain(reopens.max(now));
    }

    fn anchor(&mut self, taken: &mut Taken, now: Time) {
        taken.answered = true;
        each(&mut self.meters, &mut taken.receipts, |meter, receipt| {
            meter.answered(receipt, now);
        });
    }

    /// The request took `actual` of a unit.
    pub(super) fn settle(&mut self, taken: &mut Taken, unit: &Unit, actual: u64, now: Time) {
        each(&mut self.meters, &mut taken.receipts, |meter, receipt| {
            if meter.quota.unit() == unit {
                meter.settle(receipt, actual, now);
            }
        });
    }

    /// The request has ended.
    pub(super) fn release(&mut self, mut taken: Taken, now: Time) {
        self.passing -= 1;
        if taken.usage == Use::Unseen {
            return;
        }
        each(&mut self.meters, &mut taken.receipts, |meter, receipt| {
            meter.ended(receipt, now);
        });
        if !taken.answered {
            self.pause.ended_unanswered(taken.pass);
        }
        self.slots.release();
    }

    /// The request was never sent.
    pub(super) fn give_back(&mut self, mut taken: Taken) {
        each(&mut self.meters, &mut taken.receipts, |meter, receipt| {
            meter.give_back(receipt);
        });
        self.pause.ended_unanswered(taken.pass);
        self.passing -= 1;
        if taken.usage == Use::Permit {
            self.slots.release();
        }
    }

    /// Nobody passes before `until`. Of several pauses the longest holds.
    pub(super) fn pause(&mut self, until: Time, now: Time) {
        let reopens = self.pause.until(until);
        self.drain(reopens.max(now));
    }

    fn drain(&mut self, at: Time) {
        for meter in &mut self.meters {
            meter.drain(at);
        }
    }

    /// Other limits from now on. A quota takes over what was used under the most similar one of the same unit that counts
    /// in the same way; one that takes the place of another begins empty, one of a new unit full.
    pub(super) fn retune(&mut self, limits: &Limits, now: Time) {
        self.slots.retune(limits.most_in_flight());
        let mut old = std::mem::take(&mut self.meters);
        let known: Vec<_> = old.iter().map(|meter| meter.quota.unit().clone()).collect();
        let mut kept: Vec<_> = limits.quotas().iter().map(|quota| (quota, None)).collect();
        for alike in ALIKE {
            for (quota, meter) in kept.iter_mut().filter(|(_, meter)| meter.is_none()) {
                let same = old.iter_mut().position(|meter| alike(&meter.quota, quota) && meter.retune(quota, now));
                *meter = same.map(|place| old.remove(place));
            }
        }
        for (quota, meter) in kept {
            let meter = meter.or_else(|| self.replace(quota, known.contains(quota.unit()), now));
            self.meters.extend(meter);
        }
    }

    /// A new meter while others are in use.
    fn replace(&mut self, quota: &Quota, known: bool, now: Time) -> Option<Meter> {
        let mut meter = self.make(quota)?;
        let reopens = self.pause.opens(now);
        if reopens > now {
            meter.drain(reopens);
        } else if known {
            meter.begin_empty(now);
        }
        Some(meter)
    }

    /// What those who wait will take, counted anew.
    pub(super) fn recount(&mut self, costs: &[&Cost]) {
        for meter in &mut self.meters {
            meter.recount(costs);
        }
    }

    pub(super) fn paused_until(&self, now: Time) -> Time {
        self.pause.opens(now)
    }

    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.slots.used()
    }
}

/// What was taken, each with the meter that it was taken from, as far as that is still there.
fn each(meters: &mut [Meter], receipts: &mut [Receipt], mut act: impl FnMut(&mut Meter, &mut Receipt)) {
    for receipt in receipts {
        if let Some(meter) = meters.iter_mut().find(|meter| meter.issued(receipt)) {
            act(meter, receipt);
        }
    }
}
