//! At most n in any window W, as the server counts.
//!
//! The server counted a request at some moment between its sending and its answer. A unit therefore comes free W
//! after its *anchor*, which its [`Anchor`] names.

use std::collections::BTreeMap;

use crate::quota::Anchor;
use crate::time::{Time, nanos};

/// Windows for more than this keep their anchors on a grid of `W / MOST_EXACT`, rounded up: bounded memory for
/// any n, at the price of a two-thousandth of the rate.
const MOST_EXACT: u64 = 1_024;

/// Where anchors lie long after the sending, as measured by the window, the grid is as wide as this many need.
const MOST_ANCHORS: u64 = 8_192;

/// The bounds of the while after the sending: a quarter of the window, within these.
const LEAST_LATENCY_CAP_NANOS: u64 = 100_000_000;
const MOST_LATENCY_CAP_NANOS: u64 = 1_000_000_000;

/// The bounds of the allowance for a request whose answer nobody will report: a twentieth of the window, within these.
const LEAST_PAD_NANOS: u64 = 20_000_000;
const MOST_PAD_NANOS: u64 = 1_000_000_000;

/// A window. Empty to begin with.
#[derive(Debug)]
pub(super) struct Window {
    most: u64,
    period_nanos: u64,
    anchor: Anchor,
    grid_nanos: u64,
    used: u64,
    /// The used by anchor, as long as they count, but for those whose anchor is not known before an answer comes.
    anchors: BTreeMap<Time, u64>,
    drained: Option<Drained>,
    /// Counts the drains.
    drains: u64,
    /// When a unit was last taken, or its answer came.
    moved: Time,
}

/// After a pause the window goes on as if it had been full at the steady rate: one more each W/n.
#[derive(Clone, Copy, Debug)]
struct Drained {
    /// Tells it from others that began at the same instant.
    id: u64,
    from: Time,
    taken: u64,
}

/// Units that were taken, as far as moving or returning them needs it. Without an anchor they are unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Units {
    amount: u64,
    anchor: Option<Time>,
    /// The drain after which they were taken, while its steady rate counts.
    drained: Option<u64>,
}

impl Window {
    pub(super) fn new(most: u64, period_nanos: u64, anchor: Anchor) -> Self {
        let (used, anchors, drained, drains, moved) = (0, BTreeMap::new(), None, 0, Time::ZERO);
        let mut window = Self { most, period_nanos, anchor, grid_nanos: 1, used, anchors, drained, drains, moved };
        window.set_grid();
        window
    }

    fn set_grid(&mut self) {
        let span = self.period_nanos.saturating_add(self.after_sending(true).unwrap_or(0));
        let grid = self.period_nanos.div_ceil(MOST_EXACT).max(span.div_ceil(MOST_ANCHORS));
        self.grid_nanos = if self.most > MOST_EXACT { grid } else { 1 };
    }

    /// The most that can ever go at once.
    pub(super) fn capacity(&self) -> u64 {
        self.most
    }

    /// How many could go now.
    pub(super) fn level(&mut self, now: Time) -> u64 {
        self.forget(now);
        let free = self.most.saturating_sub(self.used);
        let Some(Drained { from, taken, .. }) = self.drained else { return free };
        let gained = u128::from(now.nanos_since(from)) * u128::from(self.most) / u128::from(self.period_nanos) + 1;
        let steady = if from > now { 0 } else { u64::try_from(gained).unwrap_or(u64::MAX).saturating_sub(taken) };
        free.min(steady)
    }

    /// One for somebody who was counted by this one up to now. Of what has no answer here, none will come there.
    pub(super) fn split(&self, now: Time) -> Self {
        let mut split = Self { anchors: self.anchors.clone(), ..*self };
        let unanswered = self.used - self.anchors.values().sum::<u64>();
        split.used -= unanswered;
        split.insert(Units { amount: unanswered, anchor: Some(now), drained: None });
        split
    }

    /// Since when nobody has been taken, or has answered.
    pub(super) fn moved(&self) -> Time {
        self.moved
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn assert_sound(&self) {
        let anchored = self.anchors.values().fold(0_u64, |sum, units| sum.saturating_add(*units));
        assert!(anchored <= self.used, "what is anchored is used");
        assert!(self.anchors.values().all(|units| *units > 0), "no anchor without a unit");
    }

    pub(super) fn is_at_rest(&mut self, now: Time) -> bool {
        self.forget(now);
        self.used == 0 && self.drained.is_none()
    }

    /// When `units` can go, if nothing else does first; `None` if that depends on an answer. Units that no longer count
    /// at `now` are forgotten.
    pub(super) fn ready_at(&mut self, units: u64, now: Time) -> Option<Time> {
        if units == 0 {
            return Some(now);
        }
        self.forget(now);
        let missing = self.used.saturating_add(units).saturating_sub(self.most);
        let free = if missing == 0 { now } else { self.nth_anchor(missing)?.plus(self.period_nanos) };
        Some(free.max(self.steady_at(units)))
    }

    fn forget(&mut self, now: Time) {
        if self.drained.is_some_and(|drained| drained.from.plus(self.period_nanos) <= now) {
            self.drained = None;
        }
        while let Some(first) = self.anchors.first_entry() {
            if first.key().plus(self.period_nanos) > now {
                return;
            }
            self.used -= first.remove();
        }
    }

    /// When the last of `units` that go one by one can go at the earliest: if each is answered at once, and
    /// whatever is unanswered now. So it is never too late.
    pub(super) fn estimate(&self, units: u64, now: Time) -> Time {
        let missing = self.used.saturating_add(units).saturating_sub(self.most);
        if missing == 0 || units == 0 {
            return now.max(self.steady_at(units));
        }
        // What goes first comes free first. Beyond what is used now, whatever goes is itself what must come free, one
        // period later: the whole allowance goes round once in each.
        let rounds = missing.saturating_sub(self.used).div_ceil(self.most);
        let nth = missing.saturating_sub(rounds.saturating_mul(self.most));
        let anchor = |nth| self.nth_anchor(nth).map_or(now, |anchor| anchor.min(now));
        let free = if nth == 0 { now } else { anchor(nth).plus(self.period_nanos).max(now) };
        free.plus(self.period_nanos.saturating_mul(rounds)).max(self.steady_at(units))
    }

    /// The anchor of the unit that comes free as the nth.
    fn nth_anchor(&self, nth: u64) -> Option<Time> {
        let mut freed = 0_u64;
        let mut enough = |units: u64| {
            freed = freed.saturating_add(units);
            freed >= nth
        };
        self.anchors.iter().find(|(_, units)| enough(**units)).map(|(anchor, _)| *anchor)
    }

    /// When the steady rate after a pause lets `units` go: the first at the reopening, each other W/n later.
    fn steady_at(&self, units: u64) -> Time {
        let Some(Drained { from, taken, .. }) = self.drained.filter(|_| units > 0) else { return Time::ZERO };
        let before = u128::from(taken.saturating_add(units) - 1).min(self.most.into());
        let after = (before * u128::from(self.period_nanos)).div_ceil(self.most.into());
        // At most n of W/n: no more than W.
        from.plus(u64::try_from(after).unwrap_or(self.period_nanos))
    }

    /// Takes units for a request whose answer will be reported, if `seen`; else one of which nothing more will be heard.
    pub(super) fn take(&mut self, units: u64, seen: bool, now: Time) -> Units {
        if let Some(drained) = &mut self.drained {
            drained.taken = drained.taken.saturating_add(units);
        }
        let (anchor, drained) = (self.latest_anchor(seen, now), self.drained.map(|drained| drained.id));
        self.moved = now;
        self.insert(Units { amount: units, anchor, drained })
    }

    /// Takes units for what somebody else sent at this instant. When it was answered nobody knows: no later than is usual.
    pub(super) fn count(&mut self, units: u64, at: Time) {
        let after = self.after_sending(true).unwrap_or_else(|| latency_cap(self.period_nanos));
        self.insert(Units { amount: units, anchor: Some(at.plus(after)), drained: None });
    }

    /// From when a request that is sent now counts at the latest; `None` if only its answer tells.
    fn latest_anchor(&self, seen: bool, now: Time) -> Option<Time> {
        self.after_sending(seen).map(|after| now.plus(after))
    }

    /// How long after its sending that is.
    fn after_sending(&self, seen: bool) -> Option<u64> {
        match self.anchor {
            Anchor::Send(pad) => Some(nanos(pad)),
            _ if !seen => Some((self.period_nanos / 20).clamp(LEAST_PAD_NANOS, MOST_PAD_NANOS)),
            Anchor::AnswerCapped => Some(latency_cap(self.period_nanos)),
            Anchor::Answer | Anchor::End => None,
        }
    }

    /// The request left only now: its while begins anew. False if it came too late, and its units are free again.
    pub(super) fn sent(&mut self, units: &mut Units, seen: bool, now: Time) -> bool {
        if units.anchor.is_none() {
            return true;
        }
        self.forget(now);
        let held = self.remove(*units);
        if held {
            *units = self.insert(Units { anchor: self.latest_anchor(seen, now), ..*units });
        }
        held
    }

    /// The answer is here: no need to assume it any later.
    pub(super) fn answered(&mut self, units: &mut Units, now: Time) {
        if matches!(self.anchor, Anchor::AnswerCapped | Anchor::Answer) {
            self.anchor_at(units, now);
        }
    }

    /// The body has ended, or nothing more will be heard: what has no anchor yet counts from now.
    pub(super) fn ended(&mut self, units: &mut Units, now: Time) {
        if units.anchor.is_none() {
            self.anchor_at(units, now);
        }
    }

    fn anchor_at(&mut self, units: &mut Units, now: Time) {
        if units.anchor.is_none_or(|anchor| now < anchor) && self.remove(*units) {
            self.moved = now;
            *units = self.insert(Units { anchor: Some(now), ..*units });
        }
    }

    /// The request took `actual` units: the difference is added where it stands, into debt if need be, or returned.
    pub(super) fn settle(&mut self, units: &mut Units, actual: u64) {
        if self.remove(*units) {
            self.count_after_drain(*units, actual);
            *units = self.insert(Units { amount: actual, ..*units });
        }
    }

    /// The request was never sent.
    pub(super) fn give_back(&mut self, units: Units) {
        self.remove(units);
        self.count_after_drain(units, 0);
    }

    /// What was taken since the last drain is `actual` now.
    fn count_after_drain(&mut self, units: Units, actual: u64) {
        if let Some(drained) = self.drained.as_mut().filter(|drained| Some(drained.id) == units.drained) {
            drained.taken = drained.taken.saturating_sub(units.amount).saturating_add(actual);
        }
    }

    /// From this instant on the window goes at its steady rate, as if it had been full of evenly spread units.
    pub(super) fn drain(&mut self, at: Time) {
        self.go_steadily(at, 0);
    }

    /// The same, with the first already gone.
    pub(super) fn begin_empty(&mut self, at: Time) {
        self.go_steadily(at, 1);
    }

    fn go_steadily(&mut self, from: Time, taken: u64) {
        self.drains += 1;
        self.drained = Some(Drained { id: self.drains, from, taken });
    }

    /// Another allowance or length: what counts is timed anew. What no longer counted under the old length is forgotten.
    pub(super) fn retune(&mut self, most: u64, period_nanos: u64, anchor: Anchor, now: Time) {
        self.forget(now);
        (self.most, self.period_nanos, self.anchor) = (most, period_nanos, anchor);
        self.set_grid();
    }

    fn insert(&mut self, mut taken: Units) -> Units {
        let on_grid = |at: Time| {
            let steps = at.as_nanos().div_ceil(self.grid_nanos);
            Time::from_nanos(steps.saturating_mul(self.grid_nanos)).max(at)
        };
        taken.anchor = taken.anchor.map(on_grid);
        // More than a u64 of units is debt beyond measure, and stops there.
        taken.amount = taken.amount.min(u64::MAX - self.used);
        self.used += taken.amount;
        if let Some(at) = taken.anchor.filter(|_| taken.amount > 0) {
            *self.anchors.entry(at).or_default() += taken.amount;
        }
        taken
    }

    /// False if they no longer count.
    fn remove(&mut self, Units { amount: units, anchor, .. }: Units) -> bool {
        let Some(at) = anchor else {
            self.used -= units;
            return true;
        };
        if units == 0 {
            return true;
        }
        let Some(held) = self.anchors.get_mut(&at).filter(|held| **held >= units) else { return false };
        *held -= units;
        if *held == 0 {
            self.anchors.remove(&at);
        }
        self.used -= units;
        true
    }
}

fn latency_cap(period_nanos: u64) -> u64 {
    (period_nanos / 4).clamp(LEAST_LATENCY_CAP_NANOS, MOST_LATENCY_CAP_NANOS)
}

#[cfg(test)]
mod tests;
