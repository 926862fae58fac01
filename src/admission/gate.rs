//! The limits and the pause of one key.

use std::sync::Arc;

use super::block::{Block, Cause, Rarity};
use super::brake::Brake;
use super::lease::Lease;
use super::meter::{Meter, Receipt};
use super::pause::{Pass, Pause};
use super::slots::Slots;
use super::snapshot::QuotaSnapshot;
use crate::cost::{Cost, Costs};
use crate::limits::Limits;
use crate::priority::Priority;
use crate::quota::Quota;
use crate::refused::{Reason, Refused};
use crate::time::Time;

/// Which of the quotas that were there one takes over from: the same, then one of the same period, then any.
const ALIKE: [fn(&Quota, &Quota) -> bool; 3] =
    [|old, new| old == new, |old, new| old.period() == new.period(), |_, _| true];

/// The limits of all gates of one rule.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "none says anything about another")]
pub(crate) struct Rule {
    pub(crate) limits: Limits,
    /// Whether a store that other processes share lends the units.
    pub(crate) shared: bool,
    /// Whether refusals leave them as they are.
    pub(crate) fixed: bool,
    /// Whether a request goes without it where there are too many gates.
    pub(crate) optional: bool,
    /// Whether other limits that somebody has set count all that passes.
    pub(crate) counted: bool,
}

/// Everything that a request to one key must pass.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) meters: Vec<Meter>,
    pub(super) slots: Slots,
    pub(super) pause: Pause,
    /// In percent, by class, what it cannot take.
    reserved: [u64; 3],
    /// Whether a store lends the units.
    shared: bool,
    /// Whether other limits that somebody has set count all that passes.
    pub(super) counted: bool,
    /// How far refusals have brought the limits down; none, if they leave them as they are.
    pub(super) brake: Option<Brake>,
    /// Counts the meters that were ever made.
    pub(super) made: u32,
    /// Counts the lanes that pass here, and the grants that have not ended.
    pub(super) passing: usize,
    /// Of these grants, those whose answer is awaited.
    pub(super) unheard: u64,
}

/// How a grant passed here, as far as it can still change.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) at: Time,
    pub(super) pass: Pass,
    pub(super) answered: bool,
    /// Its answer has said something of limits.
    pub(super) reported: bool,
    /// And which one is used up.
    pub(super) told: bool,
}

/// The same with what it took.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    pub(super) usage: Use,
    pub(super) passage: &'a mut Passage,
    pub(super) receipts: &'a mut [Receipt],
}

/// How a grant is used: with a permit that reports its answer, or without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Use {
    #[default]
    Permit,
    Unseen,
}

impl Gate {
    pub(super) fn new(rule: &Rule) -> Self {
        let Rule { limits, shared, fixed, counted, .. } = rule;
        let slots = Slots::new(limits.most_in_flight());
        let (pause, reserved) = (Pause::default(), [0; 3]);
        let brake = (!fixed).then(Brake::default);
        let mut gate = Self {
            meters: Vec::new(),
            slots,
            pause,
            reserved,
            shared: *shared,
            counted: *counted,
            brake,
            made: 0,
            passing: 0,
            unheard: 0,
        };
        gate.meters = limits.quotas().iter().filter_map(|quota| gate.make(quota)).collect();
        gate.reserve(limits);
        gate
    }

    /// One of its own for somebody who passed this one, with others, up to now: nothing of what it may have taken here is
    /// there again. Who is in flight here ends here.
    pub(super) fn split(&self, now: Time) -> Self {
        let slots = Slots::new(self.slots.most());
        let meters = self.meters.iter().map(|meter| meter.split(now)).collect();
        Self { meters, slots, pause: self.pause.clone(), brake: self.brake.clone(), passing: 0, unheard: 0, ..*self }
    }

    fn make(&mut self, quota: &Quota) -> Option<Meter> {
        self.made += 1;
        if self.shared { Meter::lent(quota, self.made) } else { Meter::new(quota, self.made) }
    }

    fn reserve(&mut self, limits: &Limits) {
        self.reserved = Priority::ALL.map(|class| limits.reserved_above(class));
    }

    /// Nobody waits or passes, nothing is used, nothing is paused or to be probed: a fresh one is the same, but for what
    /// requests usually take.
    pub(super) fn is_at_rest(&mut self, now: Time) -> bool {
        self.passing == 0
            && self.pause.is_at_rest(now)
            && self.brake.as_ref().is_none_or(|brake| brake.is_at_rest(self.step_nanos(), now))
            && self.meters.iter_mut().all(|meter| meter.is_at_rest(now))
    }

    /// A lane passes here from now on.
    pub(super) fn enter(&mut self) {
        self.passing += 1;
    }

    pub(super) fn exit(&mut self) {
        self.passing -= 1;
    }

    // --- the decision

    pub(super) fn counts_in_flight(&self) -> bool {
        self.slots.most().is_some()
    }

    /// The quota that could never let this go.
    pub(super) fn never_lets(&self, cost: &Cost, class: Priority) -> Option<Block> {
        let percent = self.reserved[class.place()];
        let place = self.meters.iter().position(|meter| meter.never_lets(cost, percent))?;
        Some(Block::open(Cause::Quota(place)))
    }

    /// What keeps these from going at `now`, one right after the other and as this class: what has no known end before
    /// what has, then the latest.
    pub(super) fn blocked(&mut self, costs: &[&Cost], class: Priority, now: Time) -> Option<Block> {
        let percent = self.reserved[class.place()];
        if !self.slots.are_free(costs.len(), self.reserved_slots(percent)) {
            return Some(Block::open(Cause::Slots));
        }
        if self.pause.is_starting_with(costs.len()) {
            return Some(Block::open(Cause::Pause));
        }
        let shut = self.shut_until(now);
        let mut latest = shut.map(|until| Block::known(Cause::Pause, until, true));
        for (place, meter) in self.meters.iter_mut().enumerate() {
            let cause = Cause::Quota(place);
            let Some(ready) = meter.ready_at(costs, percent, now) else { return Some(Block::open(cause)) };
            if ready > now && latest.is_none_or(|block| Some(ready) > block.until) {
                latest = Some(Block::known(cause, ready, shut.is_some()));
            }
        }
        latest
    }

    /// Whether nothing keeps this from going at `now`.
    pub(super) fn lets(&mut self, cost: &Cost, class: Priority, now: Time) -> bool {
        let percent = self.reserved[class.place()];
        !self.shared
            && self.slots.are_free(1, self.reserved_slots(percent))
            && !self.pause.is_starting_with(1)
            && self.shut_until(now).is_none()
            && self.meters.iter_mut().all(|meter| meter.lets(cost, percent, now))
    }

    fn reserved_slots(&self, percent: u64) -> usize {
        if percent == 0 {
            return 0;
        }
        let most = u64::try_from(self.slots.most().unwrap_or(0)).unwrap_or(u64::MAX);
        usize::try_from(most.saturating_mul(percent) / 100).unwrap_or(usize::MAX)
    }

    pub(super) fn shut_until(&self, now: Time) -> Option<Time> {
        self.pause.shut_until(now)
    }

    /// When it opens at the earliest.
    pub(super) fn opens(&self, now: Time) -> Time {
        self.pause.opens(now)
    }

    /// How often what a request needs comes in here, usually.
    pub(super) fn interval_nanos(&self, cost: &Cost) -> u64 {
        let meters = self.meters.iter().map(|meter| meter.interval_nanos(cost.of(meter.quota.unit())));
        meters.fold(self.slots.interval_nanos(), u64::max)
    }

    /// How often it does now: never, while the gate is shut, and less often the longer a slot or an answer is overdue. With
    /// it, when it is there at the earliest.
    pub(super) fn rarity(&mut self, cost: &Cost, class: Priority, now: Time) -> Rarity {
        let percent = self.reserved[class.place()];
        let interval = self.slots.late_interval_nanos(now).max(self.interval_nanos(cost));
        let changes_at = [self.shut_until(now), self.slots.later_at(now)].into_iter().flatten().min();
        let mut rarity = Rarity { interval, ready_at: now, changes_at };
        if self.shut_until(now).is_some() || self.pause.is_starting_with(1) {
            rarity.interval = u64::MAX;
        }
        for meter in &mut self.meters {
            if let Some(ready) = meter.ready_at(&[cost], percent, now) {
                rarity.ready_at = rarity.ready_at.max(ready);
            } else {
                let interval = meter.interval_nanos(cost.of(meter.quota.unit())).max(1);
                rarity.is_silent_since(meter.silent_since(), interval, now);
            }
        }
        rarity
    }

    /// Takes what one request needs. To be called when nothing blocks: at the instant `due`, which may lie a
    /// little before `now`. Buckets are charged at the former, windows at the latter.
    #[inline]
    pub(super) fn take(
        &mut self,
        cost: &Cost,
        usage: Use,
        due: Time,
        now: Time,
        receipts: &mut Vec<Receipt>,
    ) -> Passage {
        let seen = usage == Use::Permit;
        for meter in &mut self.meters {
            // What costs nothing may be settled to something.
            receipts.push(meter.take(cost.of(meter.quota.unit()), seen, due, now));
        }
        if seen {
            self.slots.take(now);
            self.unheard += 1;
        }
        self.passing += 1;
        if let Some(brake) = &mut self.brake {
            let used_up = brake.has_found() && self.meters.iter_mut().any(|meter| meter.level(now) == 0);
            brake.passed(used_up, now);
        }
        Passage { at: now, pass: self.pause.pass(seen, now), answered: false, reported: false, told: false }
    }

    /// When a request can go at the earliest, with what is queued ahead of it in its lane, and what decides that.
    pub(super) fn estimate(&self, cost: &Cost, queued: &Costs, now: Time) -> Block {
        let slots = (!self.slots.are_free(1, 0)).then_some((Cause::Slots, now));
        let paused = self.shut_until(now).map(|_| (Cause::Pause, self.opens(now)));
        let costly = self.meters.iter().enumerate().filter(|(_, meter)| cost.of(meter.quota.unit()) > 0);
        let quotas = costly.map(|(place, meter)| {
            let unit = meter.quota.unit();
            (Cause::Quota(place), meter.estimate(cost.of(unit), queued.of(unit), now))
        });
        let all = slots.into_iter().chain(paused).chain(quotas);
        let latest = all.reduce(|latest, next| if next.1 > latest.1 { next } else { latest });
        let (cause, until) = latest.unwrap_or((Cause::Senior, now));
        Block::known(cause, until, false)
    }

    /// The refusal of a request that `block` keeps from going.
    pub(super) fn refusal(&self, key: &str, reason: Reason, block: Block, now: Time) -> Refused {
        let mut refused = Refused::new(reason, key);
        let known = !matches!(block.cause, Cause::Slots | Cause::Senior);
        refused.wait = block.until.filter(|_| known).map(|until| until.since(now));
        match block.cause {
            Cause::Senior => {}
            Cause::Pause => refused.paused = true,
            Cause::Slots => refused.in_flight = self.slots.most(),
            Cause::Quota(place) => {
                refused.quota = self.quota(place).cloned();
                refused.stated = refused.quota.is_none();
            }
        }
        refused
    }

    // --- what refusals have taught

    /// Whether it has limits of its own, besides one that was found.
    pub(super) fn has_quotas(&self) -> bool {
        self.meters.iter().any(Meter::is_set) && !self.is_found()
    }

    /// Whether what it counts is what a server took before it refused.
    pub(super) fn is_found(&self) -> bool {
        self.brake.as_ref().is_some_and(Brake::has_found)
    }

    /// In how long a rate goes up by a hundredth: a tenth of what the slowest of its quotas needs for all of itself.
    pub(super) fn step_nanos(&self) -> u64 {
        self.meters.iter().map(|meter| meter.turn_nanos() / 10).max().unwrap_or(0)
    }

    /// In percent, how much of its quotas it may use.
    pub(super) fn lowered_to(&self) -> Option<u64> {
        self.brake.as_ref().map(Brake::percent).filter(|percent| *percent < 100)
    }
    /// Nobody passes before `until`. Of several pauses the longest holds.
    pub(super) fn pause(&mut self, until: Time, now: Time) {
        let reopens = self.pause.until(until);
        self.drain(reopens.max(now));
    }

    pub(super) fn drain(&mut self, at: Time) {
        for meter in &mut self.meters {
            meter.drain(at);
        }
    }

    /// Other limits from now on. Answers what was lent under quotas that are gone. A quota takes over what was used under the most similar one of the same unit that counts
    /// in the same way; one that takes the place of another begins empty, one of a new unit full.
    pub(super) fn retune(&mut self, limits: &Limits, now: Time) -> Vec<(u32, u64)> {
        self.slots.retune(limits.most_in_flight(), now);
        self.reserve(limits);
        self.brake = self.brake.take().map(|_| Brake::default());
        let (stated, mut old) =
            std::mem::take(&mut self.meters).into_iter().partition::<Vec<_>, _>(|meter| !meter.is_set());
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
        self.meters.extend(stated);
        old.iter_mut().filter_map(Meter::gone).collect()
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

    // --- units that a store lends

    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    /// The leases, each with its meter's number.
    pub(super) fn leases(&mut self) -> impl Iterator<Item = (u32, Arc<Quota>, &mut Lease)> {
        self.meters.iter_mut().filter_map(|meter| {
            let (id, quota) = (meter.id(), Arc::clone(&meter.quota));
            meter.lease().map(|lease| (id, quota, lease))
        })
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn assert_sound(&self, lanes: usize, now: Time) {
        assert!(self.passing >= lanes + self.slots.used(), "who passes is known");
        self.meters.iter().for_each(|meter| meter.assert_sound(now));
    }

    // --- to be seen

    /// Each quota, and how many could go now; of the server's only those of which it has said something that holds.
    pub(super) fn levels(&mut self, now: Time) -> Vec<QuotaSnapshot> {
        let shown = |meter: &mut Meter| {
            let stated = meter.last_word(now);
            let quota = QuotaSnapshot { quota: Arc::clone(&meter.quota), left: meter.level(now), stated };
            Some(quota).filter(|quota| meter.is_set() || quota.stated.is_some())
        };
        self.meters.iter_mut().filter_map(shown).collect()
    }

    /// How many are in flight, and how many may be.
    pub(super) fn in_flight(&self) -> (usize, Option<usize>) {
        (self.slots.used(), self.slots.most())
    }

    /// `None` of one that only the server speaks of.
    pub(super) fn quota(&self, place: usize) -> Option<&Arc<Quota>> {
        self.meters.get(place).filter(|meter| meter.is_set()).map(|meter| &meter.quota)
    }
}
