//! One quota of a gate: whichever way it counts.

use std::sync::Arc;
use std::time::Duration;

use super::bucket::{Bucket, Charge};
use super::lease::{Lease, Lent};
use super::report::Report;
use super::snapshot::StatedSnapshot;
use super::stated::{Sent, Stated};
use super::window::{Units, Window};
use crate::cost::{Cost, Unit};
use crate::quota::{Plan, Quota, Scale};
use crate::time::{Time, nanos};

/// A quota, and how much of it is used.
#[derive(Debug)]
pub(super) struct Meter {
    pub(super) quota: Arc<Quota>,
    counter: Counter,
    /// A window's, if it is to be spread evenly.
    pace: Option<Bucket>,
    /// Tells this pace from one that was there before.
    paces: u64,
    /// The steady rate: in so many nanoseconds, so many units.
    steady: (u64, u64),
    /// The most that can ever go at once, unless it is lowered.
    most: u64,
    /// Tells this meter from one that took its place.
    id: u32,
}

#[derive(Debug)]
enum Counter {
    Window(Window),
    Bucket(Bucket),
    Lease(Lease),
    /// As the server says.
    Stated(Stated),
}

/// What was taken from one meter, as far as it can still change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Receipt {
    meter: u32,
    units: u64,
    counted: Counted,
    /// Which pace, and what it was charged.
    paced: Option<(u64, Charge)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Window(Units),
    Bucket(Charge),
    Lease(Lent),
    Stated(Sent),
    Nothing,
}

impl Meter {
    /// `None` for a quota that is no limit. The plan of a checked quota is there.
    pub(super) fn new(quota: &Quota, id: u32) -> Option<Self> {
        let plan = quota.plan().ok()?;
        let steady = steady(&plan);
        let (counter, pace) = match plan {
            Plan::Unlimited => return None,
            Plan::Bucket(scale) => (Counter::Bucket(Bucket::new(scale)), None),
            Plan::Window { most, period, anchor, pace } => {
                (Counter::Window(Window::new(most, nanos(period), anchor)), pace.map(Bucket::new))
            }
        };
        let quota = Arc::new(quota.clone());
        let meter = Self { quota, counter, pace, paces: 0, steady, most: 0, id };
        Some(Self { most: meter.at_once(), ..meter })
    }

    /// One whose units a store lends.
    pub(super) fn lent(quota: &Quota, id: u32) -> Option<Self> {
        let meter = Self::new(quota, id)?;
        Some(Self { counter: Counter::Lease(Lease::new(meter.most)), pace: None, ..meter })
    }

    /// One of which only the server speaks.
    pub(super) fn stated(report: &Report, earlier: u64, is_counted: bool, id: u32) -> Self {
        let most = report.most.unwrap_or(report.left).max(1);
        let period = report.window.or(report.resets_after).unwrap_or_default().max(Duration::from_millis(1));
        let quota = Arc::new(Quota::window(most, period).of(report.unit.clone()));
        let stated = Stated::new(Arc::clone(&report.name), earlier);
        let counter = Counter::Stated(if is_counted { stated.counted() } else { stated });
        Self { quota, counter, pace: None, paces: 0, steady: (nanos(period), most), most: u64::MAX, id }
    }

    /// One of which only the server speaks, at another gate.
    pub(super) fn handed_over(self, id: u32) -> Self {
        match self.counter {
            Counter::Stated(stated) => Self { counter: Counter::Stated(stated.handed_over()), id, ..self },
            counter => Self { counter, id, ..self },
        }
    }

    /// What the server calls it, if only it speaks of it.
    pub(super) fn stated_name(&self) -> Option<&Arc<str>> {
        match &self.counter {
            Counter::Stated(stated) => Some(stated.name()),
            _ => None,
        }
    }

    /// Whether it is the one that the server calls by this name.
    pub(super) fn is_stated(&self, name: &str) -> bool {
        self.stated_name().is_some_and(|stated| **stated == *name)
    }

    /// Whether somebody has set it: not one that only the server speaks of.
    pub(super) fn is_set(&self) -> bool {
        !matches!(self.counter, Counter::Stated(_))
    }

    /// One that was sent before anybody listened was answered, or will not be.
    pub(super) fn earlier_ended(&mut self, heard: bool) {
        if let Counter::Stated(stated) = &mut self.counter {
            stated.earlier_ended(heard);
        }
    }

    /// What the server said last.
    pub(super) fn last_word(&self, now: Time) -> Option<StatedSnapshot> {
        match &self.counter {
            Counter::Stated(stated) => stated.last_word(now),
            _ => None,
        }
    }

    /// The server has said something about it, with the answer to what was taken, if anything was.
    pub(super) fn report(&mut self, receipt: Option<&mut Receipt>, report: &Report, now: Time) {
        let Counter::Stated(stated) = &mut self.counter else { return };
        let sent = receipt.and_then(|receipt| match std::mem::replace(&mut receipt.counted, Counted::Nothing) {
            Counted::Stated(sent) => Some((sent, receipt.units)),
            _ => None,
        });
        stated.report(sent, report, now);
    }

    /// One of its own for somebody who was counted by this one up to now.
    pub(super) fn split(&self, now: Time) -> Self {
        let counter = match &self.counter {
            Counter::Window(window) => Counter::Window(window.split(now)),
            Counter::Bucket(bucket) => Counter::Bucket(bucket.split()),
            Counter::Lease(_) => Counter::Lease(Lease::new(self.most)),
            Counter::Stated(stated) => Counter::Stated(Stated::new(Arc::clone(stated.name()), 0)),
        };
        Self { quota: Arc::clone(&self.quota), counter, pace: self.pace.as_ref().map(Bucket::split), ..*self }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn issued(&self, receipt: &Receipt) -> bool {
        self.id == receipt.meter
    }

    /// Whether it counts no ends.
    pub(super) fn is_bucket(&self) -> bool {
        matches!(self.counter, Counter::Bucket(_))
    }

    /// The same as things stand.
    fn at_once(&self) -> u64 {
        match &self.counter {
            Counter::Window(window) => window.capacity(),
            Counter::Bucket(bucket) => bucket.capacity(),
            Counter::Lease(lease) => lease.capacity(),
            Counter::Stated(_) => u64::MAX,
        }
    }

    /// How many could go now.
    pub(super) fn level(&mut self, now: Time) -> u64 {
        match &mut self.counter {
            Counter::Window(window) => window.level(now),
            Counter::Bucket(bucket) => bucket.level(now),
            Counter::Lease(lease) => lease.level(now),
            Counter::Stated(stated) => stated.level(),
        }
    }

    /// In which time so many come in at the steady rate.
    pub(super) fn interval_nanos(&self, cost: u64) -> u64 {
        let (nanos, units) = self.steady;
        u64::try_from(u128::from(cost) * u128::from(nanos) / u128::from(units)).unwrap_or(u64::MAX - 1)
    }

    /// In which time all that can go at once comes in, unless it is lowered.
    pub(super) fn turn_nanos(&self) -> u64 {
        if !self.is_set() {
            return 0;
        }
        let whole = u128::from(self.most) * self.quota.period().as_nanos() / u128::from(self.quota.count().max(1));
        u64::try_from(whole).unwrap_or(u64::MAX)
    }

    /// Since when whoever waits for an answer here has waited for it; for ever, if it is a store's.
    pub(super) fn silent_since(&self) -> Time {
        match &self.counter {
            Counter::Window(window) => window.moved(),
            _ => Time::ZERO,
        }
    }

    /// What was lent and is left, of a meter that is given up.
    pub(super) fn gone(&mut self) -> Option<(u32, u64)> {
        let id = self.id;
        let lease = self.lease()?;
        lease.lapse();
        lease.unspent().map(|units| (id, units))
    }

    pub(super) fn lease(&mut self) -> Option<&mut Lease> {
        match &mut self.counter {
            Counter::Lease(lease) => Some(lease),
            _ => None,
        }
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn assert_sound(&self, now: Time) {
        match &self.counter {
            Counter::Window(window) => window.assert_sound(),
            Counter::Bucket(bucket) => bucket.assert_sound(now),
            Counter::Lease(_) => {}
            Counter::Stated(stated) => stated.assert_sound(),
        }
        self.pace.iter().for_each(|pace| pace.assert_sound(now));
    }

    /// Nothing of it is used.
    pub(super) fn is_at_rest(&mut self, now: Time) -> bool {
        let counter = match &mut self.counter {
            Counter::Window(window) => window.is_at_rest(now),
            Counter::Bucket(bucket) => bucket.is_full(now),
            Counter::Lease(lease) => lease.is_at_rest(),
            Counter::Stated(stated) => stated.is_at_rest(now),
        };
        counter && self.pace.as_ref().is_none_or(|pace| pace.is_full(now))
    }

    /// When `costs` can go one right after the other, if nothing else does first, and leave `percent` of what ever goes at
    /// once; `None` if that depends on an answer. What costs nothing goes at any time.
    pub(super) fn ready_at(&mut self, costs: &[&Cost], percent: u64, now: Time) -> Option<Time> {
        // What is more than a pace or a lowered limit lets go at once goes all the same.
        let paced_at_once = self.pace.as_ref().map_or(u64::MAX, Bucket::capacity);
        let at_once = self.at_once();
        let reserved = if self.is_set() { share(at_once, percent) } else { 0 };
        // Who does not say how many tokens it takes takes some.
        let at_least = u64::from(!self.is_set() && *self.quota.unit() != Unit::REQUESTS);
        let (mut cost, mut paced) = (0_u64, 0_u64);
        for one in costs {
            let one = one.of(self.quota.unit()).max(at_least);
            cost = cost.saturating_add(one.min(at_once - reserved));
            paced = paced.saturating_add(one.min(paced_at_once));
        }
        if cost == 0 {
            return Some(now);
        }
        let cost = cost.saturating_add(reserved);
        let counted = match &mut self.counter {
            Counter::Window(window) => window.ready_at(cost, now)?,
            Counter::Bucket(bucket) => bucket.ready_at(cost, now),
            Counter::Lease(lease) => lease.ready_at(cost, now)?,
            Counter::Stated(stated) => stated.ready_at(cost, now),
        };
        let paced = self.pace.as_ref().map_or(now, |pace| pace.ready_at(paced, now));
        Some(counted.max(paced))
    }

    /// Whether so much can never go, and leave `percent`.
    pub(super) fn never_lets(&self, cost: &Cost, percent: u64) -> bool {
        // Rounded down: something is left for everybody.
        cost.of(self.quota.unit()) > self.most - share(self.most, percent)
    }

    /// Whether it can go now.
    pub(super) fn lets(&mut self, cost: &Cost, percent: u64, now: Time) -> bool {
        !self.never_lets(cost, percent) && self.ready_at(&[cost], percent, now) == Some(now)
    }

    /// Takes `cost`, which is there: buckets at the instant that was due, windows at the real one.
    #[inline]
    pub(super) fn take(&mut self, cost: u64, seen: bool, due: Time, now: Time) -> Receipt {
        let counted = match &mut self.counter {
            Counter::Window(window) => Counted::Window(window.take(cost, seen, now)),
            Counter::Bucket(bucket) => Counted::Bucket(bucket.charge(cost, due)),
            Counter::Lease(lease) => Counted::Lease(lease.take(cost)),
            Counter::Stated(stated) => Counted::Stated(stated.take(cost, seen, now)),
        };
        // What is more than may go at once goes all the same, and the next waits the longer.
        let paced = self.pace.as_mut().map(|pace| (self.paces, pace.charge(cost, due)));
        Receipt { meter: self.id, units: cost, counted, paced }
    }

    /// Takes `cost` for what somebody else sent `at` some time before, whether it is there or not.
    pub(super) fn count(&mut self, cost: u64, at: Time) {
        match &mut self.counter {
            Counter::Window(window) => window.count(cost, at),
            Counter::Bucket(bucket) => bucket.count(cost, at),
            Counter::Lease(_) | Counter::Stated(_) => {}
        }
        self.pace.iter_mut().for_each(|pace| pace.count(cost, at));
    }

    /// When the last of what is `queued` ahead and `cost` can go at the earliest.
    pub(super) fn estimate(&self, cost: u64, queued: u64, now: Time) -> Time {
        let counted = match &self.counter {
            Counter::Window(window) => window.estimate(queued.saturating_add(cost), now),
            Counter::Bucket(bucket) => bucket.estimate(queued.saturating_add(cost), now),
            Counter::Lease(_) => now,
            Counter::Stated(stated) => stated.estimate(cost, now),
        };
        let paced = self.pace.as_ref().map_or(now, |pace| {
            let at_once = cost.min(pace.capacity());
            pace.estimate(queued.saturating_add(at_once), now)
        });
        counted.max(paced)
    }

    /// What was taken leaves only now. False if it came too late for that; then part of it is gone.
    pub(super) fn sent(&mut self, receipt: &mut Receipt, seen: bool, now: Time) -> bool {
        let cost = receipt.units;
        let counted = match (&mut self.counter, receipt.counted) {
            (Counter::Window(window), Counted::Window(mut units)) => {
                window.sent(&mut units, seen, now).then_some(Counted::Window(units))
            }
            (Counter::Bucket(bucket), Counted::Bucket(charge)) => bucket.sent(cost, charge, now).map(Counted::Bucket),
            (Counter::Lease(lease), Counted::Lease(lent)) => lease.sent(lent, now).then_some(Counted::Lease(lent)),
            (Counter::Stated(_), counted) => Some(counted),
            _ => None,
        };
        let held = counted.is_some();
        receipt.counted = counted.unwrap_or(Counted::Nothing);
        let Some((pace, charge)) = self.paced(receipt) else { return held };
        let paced = pace.sent(cost, charge, now);
        receipt.paced = receipt.paced.and_then(|(paces, _)| Some((paces, paced?)));
        held && paced.is_some()
    }

    /// An answer is here; of a server that has `taken` it, or not.
    pub(super) fn answered(&mut self, receipt: &mut Receipt, taken: bool, now: Time) {
        match (&mut self.counter, &mut receipt.counted) {
            (Counter::Window(window), Counted::Window(units)) => window.answered(units, now),
            (Counter::Stated(stated), Counted::Stated(sent)) => {
                stated.silent(*sent, receipt.units, taken, now);
                receipt.counted = Counted::Nothing;
            }
            _ => {}
        }
    }

    pub(super) fn ended(&mut self, receipt: &mut Receipt, now: Time) {
        self.answered(receipt, false, now);
        if let (Counter::Window(window), Counted::Window(units)) = (&mut self.counter, &mut receipt.counted) {
            window.ended(units, now);
        }
    }

    /// The request took `actual` units, and not what it was taken to cost.
    pub(super) fn settle(&mut self, receipt: &mut Receipt, actual: u64, now: Time) {
        match (&mut self.counter, &mut receipt.counted) {
            (Counter::Window(window), Counted::Window(units)) => window.settle(units, actual),
            (Counter::Bucket(bucket), Counted::Bucket(charge)) => {
                settle(bucket, charge, receipt.units, actual, now);
            }
            (Counter::Lease(lease), Counted::Lease(lent)) => lease.settle(*lent, receipt.units, actual),
            (Counter::Stated(stated), Counted::Stated(sent)) => stated.settle(*sent, receipt.units, actual),
            _ => {}
        }
        let units = std::mem::replace(&mut receipt.units, actual);
        if let Some((pace, mut charge)) = self.paced(receipt) {
            settle(pace, &mut charge, units, actual, now);
            receipt.paced = receipt.paced.map(|(paces, _)| (paces, charge));
        }
    }

    /// The pace that was charged, if it is still there.
    fn paced(&mut self, receipt: &Receipt) -> Option<(&mut Bucket, Charge)> {
        let (_, charge) = receipt.paced.filter(|(paces, _)| *paces == self.paces)?;
        Some((self.pace.as_mut()?, charge))
    }

    pub(super) fn give_back(&mut self, receipt: &Receipt) {
        match (&mut self.counter, receipt.counted) {
            (Counter::Window(window), Counted::Window(units)) => window.give_back(units),
            (Counter::Bucket(bucket), Counted::Bucket(charge)) => bucket.give_back(receipt.units, charge),
            (Counter::Lease(lease), Counted::Lease(lent)) => lease.settle(lent, receipt.units, 0),
            (Counter::Stated(stated), Counted::Stated(sent)) => stated.give_back(sent, receipt.units),
            _ => {}
        }
        if let Some((pace, charge)) = self.paced(receipt) {
            pace.give_back(receipt.units, charge);
        }
    }

    /// After a pause: the steady rate from this instant on.
    pub(super) fn drain(&mut self, at: Time) {
        match &mut self.counter {
            Counter::Window(window) => window.drain(at),
            Counter::Bucket(bucket) => bucket.drain(at),
            Counter::Lease(lease) => lease.lapse(),
            Counter::Stated(_) => {}
        }
        if let Some(pace) = &mut self.pace {
            pace.drain(at);
        }
    }

    /// In the place of one that counted in another way: nothing is there, and from now on it comes in at the rate.
    pub(super) fn begin_empty(&mut self, now: Time) {
        match &mut self.counter {
            Counter::Window(window) => window.begin_empty(now),
            Counter::Bucket(bucket) => bucket.begin_empty(now),
            Counter::Lease(_) | Counter::Stated(_) => {}
        }
        if let Some(pace) = &mut self.pace {
            pace.begin_empty(now);
        }
    }

    /// Takes over another quota of the same unit, with what has been used. False if it counts in another way.
    pub(super) fn retune(&mut self, quota: &Quota, now: Time) -> bool {
        let Ok(plan) = quota.plan() else { return false };
        let same = self.quota.unit() == quota.unit() && self.count_by(plan, now);
        if same {
            (self.quota, self.most) = (Arc::new(quota.clone()), self.at_once());
        }
        same
    }

    /// Lets go so many percent of its quota. What a store lends it counts by itself.
    pub(super) fn lower(&mut self, percent: u64, now: Time) {
        if let (Counter::Bucket(_) | Counter::Window(_), Ok(plan)) = (&self.counter, self.quota.plan()) {
            self.count_by(plan.lowered(percent), now);
        }
    }

    fn count_by(&mut self, plan: Plan, now: Time) -> bool {
        match (&mut self.counter, plan) {
            (Counter::Bucket(bucket), Plan::Bucket(scale)) => bucket.retune(scale, now),
            (Counter::Window(window), Plan::Window { most, period, anchor, pace }) => {
                window.retune(most, nanos(period), anchor, now);
                self.retune_pace(pace, now);
            }
            (Counter::Lease(lease), Plan::Bucket(scale)) => lease.retune(scale.capacity()),
            (Counter::Lease(lease), Plan::Window { most, .. }) => lease.retune(most),
            _ => return false,
        }
        self.steady = steady(&plan);
        true
    }

    /// One that was not there begins empty.
    fn retune_pace(&mut self, scale: Option<Scale>, now: Time) {
        if let (Some(pace), Some(scale)) = (&mut self.pace, scale) {
            return pace.retune(scale, now);
        }
        self.paces += 1;
        self.pace = scale.map(Bucket::new);
        if let Some(pace) = &mut self.pace {
            pace.begin_empty(now);
        }
    }
}

/// So many percent of an amount, rounded down.
fn share(amount: u64, percent: u64) -> u64 {
    if percent == 0 {
        return 0;
    }
    u64::try_from(u128::from(amount) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// In so many nanoseconds, so many units.
fn steady(plan: &Plan) -> (u64, u64) {
    match plan {
        Plan::Unlimited => (0, 1),
        Plan::Bucket(scale) => (scale.interval_ticks.saturating_mul(scale.tick_nanos), scale.grain),
        Plan::Window { most, period, .. } => (nanos(*period), *most),
    }
}

fn settle(bucket: &mut Bucket, charge: &mut Charge, charged: u64, actual: u64, now: Time) {
    if actual > charged {
        *charge = bucket.charge_more(actual - charged, *charge, now);
    } else {
        bucket.give_back(charged - actual, *charge);
    }
}
