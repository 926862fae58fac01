//! What a gate makes of what is heard of those who passed: that they left, what came of them, and what that teaches.

use super::brake::Brake;
use super::gate::{Gate, Taken, Use};
use super::meter::{Meter, Receipt};
use super::report::Report;
use crate::cost::{Cost, Unit};
use crate::time::Time;
use crate::wait::Wait;

/// So many limits that only a server speaks of are believed, for each gate.
const MOST_STATED: usize = 8;

impl Gate {
    /// Whether it matters to others that somebody is sent, answered or ends: not where there are only buckets.
    pub(super) fn heeds_ends(&self) -> bool {
        self.counts_in_flight()
            || self.pause.is_probed()
            || self.pause.is_starting()
            || self.brake.as_ref().is_some_and(Brake::is_on)
            || !self.meters.iter().all(Meter::is_bucket)
    }

    /// The request leaves now. False if it must not: a pause came in between, or it waited so long with its
    /// grant in hand that what it took is free again. And whether anything was charged anew.
    pub(super) fn send(&mut self, taken: &mut Taken<'_>, now: Time) -> (bool, bool) {
        let (mut held, mut anew) = (self.pause.send(&mut taken.passage.pass, now), false);
        let seen = taken.usage == Use::Permit;
        each(&mut self.meters, taken.receipts, |meter, receipt| {
            let before = *receipt;
            held &= meter.sent(receipt, seen, now);
            anew |= before != *receipt;
        });
        (held, anew)
    }

    /// The server took it.
    pub(super) fn answered(&mut self, taken: &mut Taken<'_>, now: Time) {
        if self.anchor(taken, true, now) {
            self.pause.succeeded(taken.passage.pass, now);
            let step = self.step_nanos();
            if self.brake.as_mut().is_some_and(|brake| brake.took(step, now)) {
                self.apply_brake(now);
            }
        }
    }

    /// The server refused it: nobody passes for a while, and then at the steady rate; where none is known, one after the
    /// other and then more.
    pub(super) fn refused(&mut self, taken: &mut Taken<'_>, wait: Wait, now: Time) {
        self.anchor(taken, false, now);
        let pass = taken.passage.pass;
        let told = taken.passage.told;
        let (is_event, known) = (self.pause.is_event(pass), told || self.has_quotas() || self.brake.is_none());
        let reopens = self.pause.refused(pass, wait, known, now).max(now);
        if let Some(brake) = self.brake.as_mut().filter(|_| is_event && !told) {
            let stated = if let Wait::Stated(wait, _) = wait { wait } else { reopens.since(now) };
            brake.refused(known, stated, reopens, now);
            self.apply_brake(now);
        }
        if known {
            self.drain(reopens);
        }
    }

    /// The server could not do it, and asks to be left alone for a while, or for none.
    pub(super) fn failed(&mut self, taken: &mut Taken<'_>, wait: Option<Wait>, now: Time) {
        self.anchor(taken, false, now);
        let pass = taken.passage.pass;
        let limited = self.meters.iter().any(Meter::is_set);
        if limited && self.brake.as_mut().is_some_and(|brake| brake.failed(taken.passage.at, now)) {
            self.apply_brake(now);
        }
        self.pause.ended_unanswered(pass);
        if let Some(wait) = wait {
            let reopens = self.pause.refused(pass, wait, true, now);
            self.drain(reopens.max(now));
        }
    }

    /// The server refused it because of another gate: of this one nothing is known.
    pub(super) fn refused_elsewhere(&mut self, taken: &mut Taken<'_>, now: Time) {
        self.anchor(taken, false, now);
        self.pause.ended_unanswered(taken.passage.pass);
    }

    /// True if nothing was heard of it before.
    fn anchor(&mut self, taken: &mut Taken<'_>, took: bool, now: Time) -> bool {
        let first = !std::mem::replace(&mut taken.passage.answered, true);
        if first {
            self.over(taken);
        }
        each(&mut self.meters, taken.receipts, |meter, receipt| {
            meter.answered(receipt, took, now);
        });
        first
    }

    /// Something is heard of it for the first time, or nothing will be.
    fn over(&mut self, taken: &Taken<'_>) {
        self.pause.over(taken.passage.pass);
        self.unheard -= u64::from(taken.usage == Use::Permit);
        if !taken.passage.reported {
            self.earlier_ended(taken.receipts, &[]);
        }
    }

    /// The limits of which the server first spoke after it was sent are told that it is not on its way any more.
    fn earlier_ended(&mut self, receipts: &[Receipt], heard: &[Report]) {
        for meter in self.meters.iter_mut().filter(|meter| !meter.is_set()) {
            if !receipts.iter().any(|receipt| meter.issued(receipt)) {
                meter.earlier_ended(heard.iter().any(|report| meter.is_stated(&report.name)));
            }
        }
    }

    fn apply_brake(&mut self, now: Time) {
        let Some((found, percent)) = self.brake.as_ref().map(|brake| (brake.found(), brake.percent())) else { return };
        if let Some(quota) = found {
            if let Some(meter) = self.meters.iter_mut().find(|meter| meter.is_set()) {
                meter.retune(&quota, now);
            } else {
                self.made += 1;
                self.meters.extend(Meter::new(&quota, self.made));
            }
        }
        self.meters.iter_mut().for_each(|meter| meter.lower(percent, now));
    }

    // --- what the server says

    /// The answer says what is left of some limits. To be heard before whether it was taken.
    pub(super) fn report(&mut self, taken: &mut Taken<'_>, reports: &[Report], now: Time) {
        if taken.passage.answered || std::mem::replace(&mut taken.passage.reported, true) {
            return;
        }
        self.earlier_ended(taken.receipts, reports);
        for report in reports {
            let meter = self.stated(report, self.unheard - 1);
            let receipt = taken.receipts.iter_mut().find(|receipt| meter.issued(receipt));
            meter.report(receipt, report, now);
            taken.passage.told |= report.left == 0;
        }
        self.forget_oldest();
    }

    /// The same of an answer to one that did not pass here, for nobody knew that it had to.
    pub(super) fn report_of_another(&mut self, reports: &[Report], now: Time) {
        for report in reports {
            let meter = self.stated(report, 0);
            meter.earlier_ended(true);
            meter.report(None, report, now);
        }
        self.forget_oldest();
    }

    /// The limit that a report is about, of which so many on their way do not know yet if nobody has spoken of it before.
    fn stated(&mut self, report: &Report, earlier: u64) -> &mut Meter {
        let place = self.meters.iter().position(|meter| meter.is_stated(&report.name));
        let place = place.unwrap_or_else(|| {
            let is_counted = self.counted || self.has_quotas();
            self.made += 1;
            self.meters.push(Meter::stated(report, earlier, is_counted, self.made));
            self.meters.len() - 1
        });
        &mut self.meters[place]
    }

    fn forget_oldest(&mut self) {
        while self.meters.iter().filter(|meter| !meter.is_set()).count() > MOST_STATED {
            let oldest = self.meters.iter().position(|meter| !meter.is_set());
            oldest.map(|place| self.meters.remove(place));
        }
    }

    /// What the server says of limits by these names was not about everybody who passes: it is another gate's.
    pub(super) fn give_up_stated(&mut self, is_anothers: impl Fn(&str) -> bool) -> Vec<Meter> {
        let is = |meter: &mut Meter| meter.stated_name().is_some_and(|name| is_anothers(name));
        self.meters.extract_if(.., is).collect()
    }

    /// One that another gate has given up.
    pub(super) fn adopt(&mut self, meter: Meter) {
        if meter.stated_name().is_none_or(|name| !self.meters.iter().any(|other| other.is_stated(name))) {
            self.made += 1;
            self.meters.push(meter.handed_over(self.made));
        }
    }

    /// What refusals have taught was not about everybody who passes: it is another gate's. While it is paused, it stays so.
    pub(super) fn give_up_found(&mut self, to: &mut Self, now: Time) {
        self.pause.hand_over(&mut to.pause);
        if self.is_found() {
            self.meters.retain(|meter| !meter.is_set());
            std::mem::swap(&mut self.brake, &mut to.brake);
            to.apply_brake(now);
            to.drain(now);
        }
    }

    /// Somebody else sent a request here.
    pub(super) fn count(&mut self, cost: &Cost, at: Time) {
        for meter in &mut self.meters {
            meter.count(cost.of(meter.quota.unit()), at);
        }
    }

    /// The request took `actual` of a unit.
    pub(super) fn settle(&mut self, taken: &mut Taken<'_>, unit: &Unit, actual: u64, now: Time) {
        each(&mut self.meters, taken.receipts, |meter, receipt| {
            if meter.quota.unit() == unit {
                meter.settle(receipt, actual, now);
            }
        });
    }

    /// The request has ended. True if that changes how long requests usually take.
    pub(super) fn release(&mut self, taken: &mut Taken<'_>, now: Time) -> bool {
        self.passing -= 1;
        if taken.usage == Use::Unseen {
            return false;
        }
        each(&mut self.meters, taken.receipts, |meter, receipt| {
            meter.ended(receipt, now);
        });
        if !taken.passage.answered {
            self.pause.ended_unanswered(taken.passage.pass);
            self.over(taken);
        }
        self.slots.release(taken.passage.at, now)
    }

    /// The same where nobody [heeds](Self::heeds_ends) it.
    #[inline]
    pub(super) fn release_unheeded(&mut self, taken: &Taken<'_>, now: Time) {
        self.passing -= 1;
        if taken.usage == Use::Permit {
            if !taken.passage.answered {
                self.over(taken);
            }
            self.slots.give_back(now);
        }
    }

    /// The request was never sent.
    pub(super) fn give_back(&mut self, taken: &mut Taken<'_>, now: Time) {
        each(&mut self.meters, taken.receipts, |meter, receipt| {
            meter.give_back(receipt);
        });
        self.pause.ended_unanswered(taken.passage.pass);
        self.passing -= 1;
        if taken.usage == Use::Permit {
            if !taken.passage.answered {
                self.over(taken);
            }
            self.slots.give_back(now);
        }
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
