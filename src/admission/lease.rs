//! Units that a store lends, which several processes share: spent here, and asked for again when they are gone.

use crate::time::Time;

/// What is left of what was lent. The store has already counted it: what is spent here was allowed there.
#[derive(Debug)]
pub(super) struct Lease {
    capacity: u64,
    units: u64,
    /// Settled beyond what was there: of the next loan, so much is gone.
    owed: u64,
    /// Until when the units may be spent.
    until: Time,
    /// Counts the loans: what comes back of an old one is the store's.
    loans: u64,
    /// What somebody wants and nobody has asked the store for.
    wanted: u64,
    asked: bool,
    /// Before this it is no use to ask.
    denied_until: Time,
    unspent: u64,
}

/// What was spent of one loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lent {
    loan: u64,
}

impl Lease {
    pub(super) fn new(capacity: u64) -> Self {
        let (until, denied_until) = (Time::ZERO, Time::ZERO);
        Self { capacity, units: 0, owed: 0, until, loans: 0, wanted: 0, asked: false, denied_until, unspent: 0 }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn level(&self, now: Time) -> u64 {
        if now < self.until { self.units } else { 0 }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.units == 0 && self.owed == 0 && self.unspent == 0 && !self.asked
    }

    /// When `cost` can go, if that is known; what is missing is wanted.
    pub(super) fn ready_at(&mut self, cost: u64, now: Time) -> Option<Time> {
        if now >= self.until {
            self.lapse();
        }
        if cost <= self.units {
            return Some(now);
        }
        self.wanted = self.wanted.max((cost - self.units).saturating_add(self.owed));
        Some(self.denied_until).filter(|until| now < *until)
    }

    /// The units are the store's again.
    pub(super) fn lapse(&mut self) {
        self.unspent = self.unspent.saturating_add(std::mem::take(&mut self.units));
        self.loans += 1;
    }

    /// When they are, if there are any.
    pub(super) fn lapses_at(&self) -> Option<Time> {
        (self.units > 0).then_some(self.until)
    }

    /// What to ask the store for now.
    pub(super) fn ask(&mut self, now: Time) -> Option<u64> {
        if self.wanted == 0 || self.asked || now < self.denied_until {
            return None;
        }
        self.asked = true;
        Some(std::mem::take(&mut self.wanted))
    }

    /// What to tell the store that was not spent.
    pub(super) fn unspent(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.unspent)).filter(|units| *units > 0)
    }

    /// The store lends so much, to be spent by then. What is left of an older loan stays as long.
    pub(super) fn borrowed(&mut self, units: u64, until: Time) {
        let paid = units.min(self.owed);
        self.owed -= paid;
        self.units = self.units.saturating_add(units - paid);
        (self.until, self.asked, self.wanted) = (until, false, 0);
    }

    /// The store has nothing to lend before then.
    pub(super) fn denied(&mut self, until: Time) {
        (self.denied_until, self.asked, self.wanted) = (until, false, 0);
    }

    /// Takes what is there.
    pub(super) fn take(&mut self, units: u64) -> Lent {
        self.spend(units);
        Lent { loan: self.loans }
    }

    fn spend(&mut self, units: u64) {
        self.owed = self.owed.saturating_add(units.saturating_sub(self.units));
        self.units = self.units.saturating_sub(units);
    }

    /// Whether what was taken may still leave.
    pub(super) fn sent(&self, lent: Lent, now: Time) -> bool {
        lent.loan == self.loans && now < self.until
    }

    /// So much was taken, and so much it is after all. What comes back of a loan that has lapsed is not counted here.
    pub(super) fn settle(&mut self, lent: Lent, taken: u64, actual: u64) {
        if actual > taken {
            self.spend(actual - taken);
        } else if lent.loan == self.loans {
            self.units = self.units.saturating_add(taken - actual);
        }
    }

    pub(super) fn retune(&mut self, capacity: u64) {
        self.capacity = capacity;
    }
}
