//! One gate, slow and obvious: whole milliseconds, lists that are searched from end to end, and time that goes by one
//! millisecond after the other. Written from the rules, and not from the code that it judges.

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
        Self { most, period, from, units: Vec::new(), drained: None }
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

    fn take(&mut self, who: usize, cost: i64, seen: bool, now: i64) {
        if let Some((_, taken)) = &mut self.drained {
            taken.push((who, cost));
        }
        let anchor = self.after_sending(seen).map(|after| now + after);
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

    fn holds(&self, cost: i64, now: i64) -> bool {
        match &self.kind {
            Kind::Bucket(level) => level.holds(cost),
            Kind::Window(log, pace) => {
                log.holds(cost, now) && pace.as_ref().is_none_or(|pace| pace.holds(cost.min(pace.burst)))
            }
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

#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) id: usize,
    arrival: u64,
    cost: [i64; 2],
    seen: bool,
    deadline: i64,
}

#[derive(Clone, Debug)]
struct Grant {
    id: usize,
    arrival: u64,
    cost: [i64; 2],
    seen: bool,
    epoch: u64,
    probe: Option<u64>,
    sent: i64,
    answered: bool,
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

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) quotas: Vec<Quota>,
    pub(super) slots: Option<usize>,
    used: usize,
    line: Vec<Ask>,
    grants: Vec<Grant>,
    until: i64,
    epoch: u64,
    probe: Probe,
    stated: bool,
    probes: u64,
    arrivals: u64,
    now: i64,
    due: i64,
    pub(super) decided: Vec<(usize, Decision)>,
}

impl Model {
    pub(super) fn new(quotas: Vec<Quota>, slots: Option<usize>) -> Self {
        Self {
            quotas,
            slots,
            used: 0,
            line: Vec::new(),
            grants: Vec::new(),
            until: 0,
            epoch: 0,
            probe: Probe::NotNeeded,
            stated: false,
            probes: 0,
            arrivals: 0,
            now: 0,
            due: 0,
            decided: Vec::new(),
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.line.len()
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
        self.quotas.iter_mut().for_each(|quota| quota.rise(due));
        self.expire(due - 1);
        loop {
            while let Some(head) = self.line.first().filter(|head| self.may_go(head.cost)).cloned() {
                self.line.remove(0);
                self.grant(&head);
                self.decided.push((head.id, Decision::Granted));
            }
            if !self.expire(due) {
                return;
            }
        }
    }

    fn expire(&mut self, until: i64) -> bool {
        let before = self.line.len();
        while let Some(first) =
            self.line.iter().map(|ask| (ask.deadline, ask.id)).min().filter(|first| first.0 <= until)
        {
            self.line.retain(|ask| ask.id != first.1);
            self.decided.push((first.1, Decision::TooLate));
        }
        self.line.len() < before
    }

    fn is_shut(&self) -> bool {
        self.due < self.until || matches!(self.probe, Probe::Out(_, until, _) if self.due < until)
    }

    fn may_go(&self, cost: [i64; 2]) -> bool {
        !self.is_shut()
            && self.slots.is_none_or(|slots| self.used < slots)
            && self.quotas.iter().all(|quota| quota.holds(cost[quota.unit], self.due))
    }

    fn grant(&mut self, ask: &Ask) {
        let needed = match self.probe {
            Probe::NotNeeded => false,
            Probe::Next => true,
            Probe::Out(_, _, heard) => heard && !self.stated,
        };
        self.probe = Probe::NotNeeded;
        if needed {
            self.probes += 1;
            let patience = if self.stated || !ask.seen { 1_000 } else { 5_000 };
            self.probe = Probe::Out(self.probes, self.now + patience, ask.seen);
        }
        for quota in &mut self.quotas {
            quota.take(ask.id, ask.cost[quota.unit], ask.seen, self.due, self.now);
        }
        self.used += usize::from(ask.seen);
        let probe = needed.then_some(self.probes);
        let Ask { id, arrival, cost, seen, .. } = *ask;
        self.grants.push(Grant { id, arrival, cost, seen, epoch: self.epoch, probe, sent: self.now, answered: false });
    }

    /// `Ok(true)` if granted at once, `Ok(false)` if it waits.
    pub(super) fn ask(
        &mut self,
        id: usize,
        cost: [i64; 2],
        seen: bool,
        again: Option<u64>,
        deadline: Option<i64>,
    ) -> Result<bool, Decision> {
        let arrival = again.unwrap_or_else(|| {
            self.arrivals += 1;
            self.arrivals
        });
        let ask = Ask { id, arrival, cost, seen, deadline: deadline.unwrap_or(FOREVER) };
        if self.quotas.iter().any(|quota| cost[quota.unit] > quota.capacity()) {
            return Err(Decision::TooMuch);
        }
        let place = self.line.iter().filter(|other| other.arrival < arrival).count();
        if place == 0 && self.may_go(cost) {
            self.grant(&ask);
            return Ok(true);
        }
        let deadline = deadline.ok_or(Decision::TooLate)?;
        if deadline <= self.now || self.estimate(&ask, place == self.line.len()) > deadline {
            return Err(Decision::TooLate);
        }
        self.line.insert(place, ask);
        self.settle_at_due();
        Ok(false)
    }

    /// The latest of what each limit by itself would take, with all who wait before if this is the last.
    fn estimate(&self, ask: &Ask, last: bool) -> i64 {
        let shut = if self.is_shut() { self.until.max(self.due) } else { self.due };
        let quotas = self.quotas.iter().filter(|quota| ask.cost[quota.unit] > 0).map(|quota| {
            let before = self.line.iter().filter(|other| last && other.arrival < ask.arrival);
            let queued = before.map(|other| other.cost[quota.unit]).sum();
            quota.estimate(queued, ask.cost[quota.unit], self.due)
        });
        quotas.fold(shut, i64::max)
    }

    fn grant_of(&mut self, id: usize) -> Option<usize> {
        self.grants.iter().position(|grant| grant.id == id)
    }

    pub(super) fn arrival_of(&self, id: usize) -> Option<u64> {
        self.grants.iter().find(|grant| grant.id == id).map(|grant| grant.arrival)
    }

    pub(super) fn leave(&mut self, id: usize) {
        if self.grant_of(id).is_some() {
            return self.give_back(id);
        }
        self.line.retain(|ask| ask.id != id);
        self.settle_at_due();
    }

    pub(super) fn send(&mut self, id: usize) -> bool {
        let (now, epoch, until) = (self.now, self.epoch, self.until);
        let Some(place) = self.grant_of(id) else { return false };
        let grant = &mut self.grants[place];
        grant.sent = now;
        let mut held = grant.epoch == epoch && until <= now;
        let (cost, seen) = (grant.cost, grant.seen);
        for quota in &mut self.quotas {
            let cost = cost[quota.unit];
            held &= quota.log().is_none_or(|log| log.sent(id, cost, seen, now));
            quota.levels().for_each(|level| held &= level.sent(id, cost));
        }
        self.settle_at_due();
        held
    }

    pub(super) fn answered(&mut self, id: usize) {
        let Some(grant) = self.anchor(id) else { return };
        if matches!(self.probe, Probe::Out(probe, ..) if grant.probe == Some(probe)) {
            self.probe = Probe::NotNeeded;
        }
        self.settle_at_due();
    }

    fn anchor(&mut self, id: usize) -> Option<Grant> {
        let now = self.now;
        let place = self.grant_of(id)?;
        self.grants[place].answered = true;
        self.quotas.iter_mut().filter_map(Quota::log).for_each(|log| log.answered(id, now));
        Some(self.grants[place].clone())
    }

    /// `wait` in milliseconds; one that is not stated is a second here, for chance is taken out of scripts.
    pub(super) fn refused(&mut self, id: usize, wait: Option<i64>) {
        let Some(grant) = self.anchor(id) else { return };
        let event = grant.epoch == self.epoch;
        if event {
            self.epoch += 1;
            self.stated = wait.is_some();
        }
        if event || self.probe == Probe::NotNeeded {
            self.probe = Probe::Next;
        }
        self.until = self.until.max(self.now + wait.unwrap_or(1_000));
        self.after_pause();
    }

    pub(super) fn pause(&mut self, until: i64) {
        self.epoch += 1;
        self.stated = true;
        self.probe = Probe::Next;
        self.until = self.until.max(until);
        self.after_pause();
    }

    fn after_pause(&mut self) {
        let reopens = self.until.max(self.now);
        for quota in &mut self.quotas {
            if let Some(log) = quota.log() {
                log.drained = Some((reopens, Vec::new()));
            }
            quota.levels().for_each(|level| level.drain(reopens));
        }
        self.expire(self.until.max(self.now) - 1);
        self.settle_at_due();
    }

    pub(super) fn settle(&mut self, id: usize, unit: usize, actual: i64) {
        let Some(place) = self.grant_of(id) else { return };
        let charged = std::mem::replace(&mut self.grants[place].cost[unit], actual);
        let now = self.now;
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
        self.settle_at_due();
    }

    pub(super) fn release(&mut self, id: usize) {
        let Some(place) = self.grant_of(id) else { return };
        let grant = self.grants.remove(place);
        if grant.seen {
            let now = self.now;
            self.quotas.iter_mut().filter_map(Quota::log).for_each(|log| log.ended(id, now));
            self.probe_is_gone(&grant, grant.answered);
            self.used -= 1;
        }
        self.settle_at_due();
    }

    pub(super) fn give_back(&mut self, id: usize) {
        let Some(place) = self.grant_of(id) else { return };
        let grant = self.grants.remove(place);
        for quota in &mut self.quotas {
            let cost = grant.cost[quota.unit];
            if let Some(log) = quota.log() {
                log.give_back(id);
            }
            quota.levels().for_each(|level| level.give_back(id, cost));
        }
        self.probe_is_gone(&grant, false);
        self.used -= usize::from(grant.seen);
        self.settle_at_due();
    }

    fn probe_is_gone(&mut self, grant: &Grant, answered: bool) {
        if !answered && matches!(self.probe, Probe::Out(probe, ..) if grant.probe == Some(probe)) {
            self.probe = Probe::Next;
        }
    }

    /// Other numbers for the quotas that are there: bursts, and what a window lets go.
    pub(super) fn retune(&mut self, slots: Option<usize>, numbers: &[i64]) {
        self.slots = slots;
        for (quota, number) in self.quotas.iter_mut().zip(numbers) {
            match &mut quota.kind {
                Kind::Bucket(level) => level.retune(*number),
                Kind::Window(log, _) => log.most = *number,
            }
        }
        let line = self.line.clone();
        for ask in line {
            let too_much = self.quotas.iter().any(|quota| ask.cost[quota.unit] > quota.capacity());
            let is_head = self.line.first().is_some_and(|head| head.id == ask.id);
            let late = is_head && self.estimate(&ask, self.line.len() == 1) > ask.deadline;
            if too_much || late {
                self.line.retain(|other| other.id != ask.id);
                let decision = if too_much { Decision::TooMuch } else { Decision::TooLate };
                self.decided.push((ask.id, decision));
            }
        }
        self.settle_at_due();
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
