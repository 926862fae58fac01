//! The limits and the pause of one key.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::bucket::{Bucket, Charge};
use super::order::{Arrival, AskId};
use super::slots::Slots;
use super::window::{Units, Window};
use crate::key::Key;
use crate::quota::{Limits, Quota};
use crate::refused::{Reason, Refused};
use crate::time::{Time, nanos};

/// So many of those ahead of somebody who has stood in the line are counted, and no more.
const MOST_COUNTED: usize = 1_024;

/// Everything that a request to one key must pass, and those who wait to.
#[derive(Debug)]
pub(super) struct Gate {
    key: Key,
    meters: Vec<(Quota, Meter)>,
    slots: Slots,
    paused_until: Time,
    /// Counts the pauses: what was granted before one and not yet sent is recalled by it.
    epoch: u64,
    /// Who waits, in order.
    line: BTreeMap<Arrival, AskId>,
    /// Until when those who wait will.
    deadlines: BTreeSet<(Time, AskId)>,
    /// The instant at which this gate stands in the core's timers.
    pub(super) timer: Option<Time>,
}

#[derive(Debug)]
enum Meter {
    Window(Window),
    Bucket(Bucket),
}

/// What a grant took, as far as it can still change.
#[derive(Debug)]
pub(super) struct Taken {
    receipts: SmallVec<[Receipt; 2]>,
    epoch: u64,
}

#[derive(Clone, Copy, Debug)]
enum Receipt {
    Window(Units),
    Bucket(Charge),
    Nothing,
}

/// How a grant is used: with a permit that reports its answer, or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Permit,
    Unseen,
}

/// What stands in the way, and until when if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    cause: Cause,
    pub(super) until: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Pause,
    Slots,
    Quota(Quota),
}

impl Gate {
    pub(super) fn new(key: Key, limits: &Limits) -> Self {
        Self {
            key,
            meters: limits.quotas().iter().map(|quota| (*quota, Meter::new(quota))).collect(),
            slots: Slots::new(limits.most_in_flight()),
            paused_until: Time::ZERO,
            epoch: 0,
            line: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            timer: None,
        }
    }

    pub(super) fn stand(&mut self, arrival: Arrival, deadline: Time, ask: AskId) {
        self.line.insert(arrival, ask);
        self.deadlines.insert((deadline, ask));
    }

    pub(super) fn leave(&mut self, arrival: Arrival, deadline: Time, ask: AskId) {
        self.line.remove(&arrival);
        self.deadlines.remove(&(deadline, ask));
    }

    pub(super) fn head(&self) -> Option<AskId> {
        self.line.first_key_value().map(|(_, ask)| *ask)
    }

    pub(super) fn first_deadline(&self) -> Option<(Time, AskId)> {
        self.deadlines.first().copied()
    }

    /// How many wait ahead of a place: exact for a newcomer, for others counted up to a bound.
    pub(super) fn ahead_of(&self, arrival: Arrival) -> usize {
        match self.line.last_key_value() {
            Some((last, _)) if *last >= arrival => self.line.range(..arrival).take(MOST_COUNTED).count(),
            _ => self.line.len(),
        }
    }

    pub(super) fn counts_in_flight(&self) -> bool {
        self.slots.most().is_some()
    }

    /// What keeps one request from going at `now`: what has no known end before what has, then the latest.
    pub(super) fn blocked(&mut self, now: Time) -> Option<Block> {
        let pause = (self.paused_until > now).then_some((Cause::Pause, Some(self.paused_until)));
        let slots = (!self.slots.is_free()).then_some((Cause::Slots, None));
        let quotas = self.meters.iter_mut().filter_map(|(quota, meter)| {
            let ready = meter.ready_at(now);
            (ready > now).then_some((Cause::Quota(*quota), Some(ready)))
        });
        slots
            .into_iter()
            .chain(pause)
            .chain(quotas)
            .map(|(cause, until)| Block { cause, until })
            .reduce(|worst, block| if block.is_worse_than(worst) { block } else { worst })
    }

    /// Takes what one request needs. To be called when nothing blocks: at the instant `due`, which may lie a
    /// little before `now`. Buckets are charged at the former, windows at the latter.
    pub(super) fn take(&mut self, usage: Use, due: Time, now: Time) -> Taken {
        let receipts = self.meters.iter_mut().map(|(_, meter)| meter.take(usage, due, now)).collect();
        if usage == Use::Permit {
            self.slots.take();
        }
        Taken { receipts, epoch: self.epoch }
    }

    /// The request leaves now. False if it must not: a pause came in between, or it waited so long with its
    /// grant in hand that its units count as free again.
    pub(super) fn send(&mut self, taken: &mut Taken, now: Time) -> bool {
        let mut held = self.epoch == taken.epoch;
        for (window, units) in windows(&mut self.meters, &mut taken.receipts) {
            held &= window.sent(units, now);
        }
        held
    }

    pub(super) fn answered(&mut self, taken: &mut Taken, now: Time) {
        for (window, units) in windows(&mut self.meters, &mut taken.receipts) {
            window.answered(units, now);
        }
    }

    /// The request has ended.
    pub(super) fn release(&mut self) {
        self.slots.release();
    }

    /// The request was never sent.
    pub(super) fn give_back(&mut self, taken: &Taken) {
        for ((_, meter), receipt) in self.meters.iter_mut().zip(&taken.receipts) {
            match (meter, receipt) {
                (Meter::Window(window), Receipt::Window(units)) => window.give_back(*units),
                (Meter::Bucket(bucket), Receipt::Bucket(charge)) => bucket.give_back(*charge),
                _ => {}
            }
        }
    }

    /// Nobody passes before `until`. Of several pauses the longest holds.
    pub(super) fn pause(&mut self, until: Time) {
        self.epoch += 1;
        self.paused_until = self.paused_until.max(until);
    }

    /// When one request with `ahead` others before it can go at the earliest, and what decides that.
    pub(super) fn estimate(&self, ahead: usize, now: Time) -> Block {
        let units = ahead as u64 + 1;
        let slots = (!self.slots.is_free()).then_some((Cause::Slots, now));
        let pause = (self.paused_until > now).then_some((Cause::Pause, self.paused_until));
        let quotas = self.meters.iter().map(|(quota, meter)| (Cause::Quota(*quota), meter.estimate(units, now)));
        let latest = slots
            .into_iter()
            .chain(pause)
            .chain(quotas)
            .reduce(|latest, (cause, at)| if at > latest.1 { (cause, at) } else { latest });
        let (cause, until) = latest.unwrap_or((Cause::Pause, now));
        Block { cause, until: Some(until) }
    }

    /// The refusal of a request that `block` keeps from going.
    pub(super) fn refusal(&self, reason: Reason, block: Block, ahead: usize, now: Time) -> Refused {
        let mut refused = Refused::new(reason, self.key.as_str());
        match block.cause {
            Cause::Pause => {}
            Cause::Slots => refused.in_flight = self.slots.most(),
            Cause::Quota(quota) => refused.quota = Some(quota),
        }
        let known = block.until.filter(|_| block.cause != Cause::Slots);
        refused.wait = known.map(|until| until.since(now));
        refused.ahead = ahead;
        refused
    }

    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.slots.used()
    }
}

impl Meter {
    fn new(quota: &Quota) -> Self {
        // A checked quota's burst fits.
        let burst = quota.burst().map(|burst| u32::try_from(burst).unwrap_or(u32::MAX));
        match burst {
            Some(burst) => Self::Bucket(Bucket::new(quota.interval_nanos(), burst)),
            None => Self::Window(Window::new(quota.count(), nanos(quota.period()))),
        }
    }

    fn ready_at(&mut self, now: Time) -> Time {
        match self {
            Self::Window(window) => window.ready_at(1, now),
            Self::Bucket(bucket) => bucket.ready_at(1, now),
        }
    }

    fn take(&mut self, usage: Use, due: Time, now: Time) -> Receipt {
        match self {
            Self::Window(window) if usage == Use::Unseen => Receipt::Window(window.take_unseen(1, now)),
            Self::Window(window) => Receipt::Window(window.take(1, now)),
            Self::Bucket(bucket) => bucket.take(1, due).map_or(Receipt::Nothing, Receipt::Bucket),
        }
    }

    fn estimate(&self, units: u64, now: Time) -> Time {
        match self {
            Self::Window(window) => window.estimate(units, now),
            Self::Bucket(bucket) => bucket.estimate(units, now),
        }
    }
}

impl Block {
    fn is_worse_than(self, other: Self) -> bool {
        match (self.until, other.until) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(mine), Some(others)) => mine > others,
        }
    }
}

/// The windows among a gate's meters, each with what a grant took from it.
fn windows<'a>(
    meters: &'a mut [(Quota, Meter)],
    receipts: &'a mut [Receipt],
) -> impl Iterator<Item = (&'a mut Window, &'a mut Units)> {
    meters.iter_mut().zip(receipts).filter_map(|((_, meter), receipt)| match (meter, receipt) {
        (Meter::Window(window), Receipt::Window(units)) => Some((window, units)),
        _ => None,
    })
}
