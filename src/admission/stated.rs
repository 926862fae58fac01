//! What a server says is left of a limit, believed as far as it can be.
//!
//! Each answer says how much was left when the server counted its request, at some moment of that request's life. Of two
//! answers whose lives overlap nobody knows which was counted last, so the lesser counts; an answer to a request that was
//! sent after another was heard was counted later, and takes its place. From that goes what is under way, which may have
//! been counted or not, and one unit more, for others who use the same key.
//!
//! When the limit is to be reset, one goes ahead and brings word: a stated second is a rounded one, and clocks differ. In a
//! sliding window little comes back then, and whoever is first has it: there one goes ahead when enough of ours have come back.

use std::collections::VecDeque;
use std::sync::Arc;

use super::report::Report;
use super::snapshot::StatedSnapshot;
use super::span::Span;
use crate::time::{Time, nanos};

/// So much is left to others, where nobody has set a limit; up to a tenth more where that was too little, and less again after a while.
const HEADROOM: u64 = 1;
const LESS_HEADROOM_AFTER_NANOS: u64 = 60_000_000_000;

/// Where no reset is stated, one goes ahead after this; and after one that has not brought word for as long.
const PATIENCE_NANOS: u64 = 1_000_000_000;

/// A reset is believed to be no further away than a day; one that no refusal has confirmed, than an hour.
const LONGEST_NANOS: u64 = 86_400_000_000_000;
const LONGEST_UNCONFIRMED_NANOS: u64 = 3_600_000_000_000;

/// How much later than a stated reset one goes, where some were refused.
const LEAST_MARGIN_NANOS: u64 = 50_000_000;
const MOST_MARGIN_NANOS: u64 = 1_000_000_000;

/// So much is to be there in a sliding window before one goes ahead that takes one.
const ENOUGH: u64 = 3;

/// So often nothing may be left again before a limit is not believed any more.
const MOST_DOUBTS: u32 = 3;

/// What is past its reset is forgotten after this, at a gate where nothing happens.
const FORGOTTEN_AFTER_NANOS: u64 = 600_000_000_000;

/// So many answers are kept that may be the last that the server counted. They overlap, so there are as many in flight.
const MOST_HEARD: usize = 256;

/// What is known of one limit.
#[derive(Clone, Debug)]
pub(super) struct Stated {
    name: Arc<str>,
    /// Requests that were sent before anybody listened, and have not been answered.
    earlier: u64,
    /// Units of ours that were taken, and whose answer is not here.
    out: u64,
    /// Counts what was sent and heard.
    clock: u64,
    /// The answers that may be the last that the server counted, in the order in which they came, the least first.
    heard: VecDeque<Heard>,
    /// When the latest was sent of those that were heard: what was heard before that was counted before it.
    latest: u64,
    /// Units that were answered without a word about this limit.
    silent: u64,
    /// Units that were heard of, and of whom.
    ours: u64,
    others: u64,
    most: u64,
    /// One that goes ahead, until it brings word or has taken too long.
    scout: Option<(u64, Time)>,
    /// Whether a refusal has said so, too.
    confirmed: bool,
    /// How many went ahead, and were taken, one after the other, though nothing was left again.
    doubts: u32,
    /// How much later than the stated reset it does: the more, the more of them were refused.
    margin_nanos: u64,
    /// How long its time is, and what comes back in it.
    span: Span,
    /// How much is left to others: the more, the more of ours were refused that should have gone.
    headroom: u64,
    /// And so much at the least.
    leaves: u64,
    /// When that was last changed, and when it last became more.
    adapted: Time,
    raised: u64,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    clock: u64,
    left: u64,
    /// How much was silent, and how much ours, by then.
    silent: u64,
    ours: u64,
    at: Time,
    /// When the limit is reset, or asked for again.
    until: Time,
}

/// When something was sent, as far as its answer needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    clock: u64,
    /// Whether its answer will be heard.
    seen: bool,
}

impl Stated {
    /// A limit of which nothing is known yet. So many requests are on their way already.
    pub(super) fn new(name: Arc<str>, earlier: u64) -> Self {
        Self {
            name,
            earlier,
            out: 0,
            clock: 0,
            heard: VecDeque::new(),
            latest: 0,
            silent: 0,
            ours: 0,
            others: 0,
            most: 0,
            scout: None,
            confirmed: false,
            doubts: 0,
            margin_nanos: 0,
            span: Span::default(),
            headroom: HEADROOM,
            leaves: HEADROOM,
            adapted: Time::ZERO,
            raised: 0,
        }
    }

    /// The same where limits are set that count all that goes: nothing is left to others until they are seen.
    pub(super) fn counted(self) -> Self {
        Self { headroom: 0, leaves: 0, ..self }
    }

    /// The same at another gate, where nobody hears what comes of those who are on their way: the answers say it.
    pub(super) fn handed_over(self) -> Self {
        Self { earlier: 0, out: 0, scout: None, ..self }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How much may go now, as far as anybody knows.
    pub(super) fn level(&self) -> u64 {
        self.base()
            .map_or(u64::MAX, |base| self.left(base).saturating_sub(self.under_way()).saturating_sub(self.headroom))
    }

    /// What may have been counted, or not.
    fn under_way(&self) -> u64 {
        self.out.saturating_add(self.earlier)
    }

    /// What is known: the least of those that may be the last.
    fn base(&self) -> Option<&Heard> {
        self.heard.front().filter(|_| self.doubts < MOST_DOUBTS)
    }

    /// What an answer said was left, less what went without a word since.
    fn left(&self, heard: &Heard) -> u64 {
        heard.left.saturating_sub(self.silent.saturating_sub(heard.silent))
    }

    /// When so much can go, or one goes ahead, if nothing else does first.
    pub(super) fn ready_at(&self, cost: u64, now: Time) -> Time {
        let Some(base) = self.base().filter(|_| self.level() < cost) else { return now };
        let until = self.until(base, cost);
        if until > now {
            return until;
        }
        match self.scout {
            Some((_, until)) if until > now => until,
            _ => now,
        }
    }

    /// When one goes ahead.
    fn until(&self, base: &Heard, cost: u64) -> Time {
        if !self.span.slides() {
            return base.until.plus(self.margin_nanos);
        }
        // One is there then, whoever else comes.
        let missing = cost.saturating_add(ENOUGH - 1).saturating_sub(self.left(base)).max(1);
        base.until.max(self.span.comes_back(missing, base.at))
    }

    /// When so much can go at the earliest. While nothing is under way, nothing changes before the reset.
    pub(super) fn estimate(&self, cost: u64, now: Time) -> Time {
        let base = self.base().filter(|_| self.level() < cost && self.under_way() == 0);
        base.map_or(now, |base| base.until.max(now))
    }

    pub(super) fn take(&mut self, units: u64, seen: bool, now: Time) -> Sent {
        self.clock += 1;
        // Who does not say what it takes takes something.
        if self.level() < units.max(1) && self.base().is_some_and(|base| self.until(base, units) <= now) {
            self.scout = Some((self.clock, now.plus(PATIENCE_NANOS)));
        }
        if seen {
            self.out = self.out.saturating_add(units);
        } else {
            self.silent = self.silent.saturating_add(units);
        }
        Sent { clock: self.clock, seen }
    }

    /// One that was sent before anybody listened was answered, or will not be: with a word about this limit, or without.
    pub(super) fn earlier_ended(&mut self, heard: bool) {
        self.earlier = self.earlier.saturating_sub(1);
        self.silent = self.silent.saturating_add(u64::from(!heard));
    }

    /// The server has said something about this one, which was `sent` then, or before anybody listened.
    pub(super) fn report(&mut self, sent: Option<(Sent, u64)>, report: &Report, now: Time) {
        let (sent, units) = sent.map_or((0, 0), |(sent, units)| (sent.clock, units));
        self.out = self.out.saturating_sub(units);
        self.ours = self.ours.saturating_add(units);
        if !report.refused {
            self.span.note_taken(units, now);
        }
        self.clock += 1;
        if report.refused {
            self.doubts = 0;
        }
        if self.scout.is_some_and(|(scout, _)| scout == sent) {
            // They are of a time that is over.
            self.earlier = 0;
            self.learn_from_scout(report, now);
        } else if self.raised < sent {
            self.learn(report, now);
        }
        self.back(sent);
        self.confirmed |= report.refused && report.left == 0;
        let most = if self.confirmed { LONGEST_NANOS } else { LONGEST_UNCONFIRMED_NANOS };
        let resets_nanos = report.resets_after.map_or(PATIENCE_NANOS, nanos).min(most);
        self.span.note(report, resets_nanos);
        let until = now.plus(resets_nanos);
        if self.base().is_none() {
            self.raised = self.clock;
        }
        let heard =
            Heard { clock: self.clock, left: report.left, silent: self.silent, ours: self.ours, at: now, until };
        self.note_others(&heard, sent);
        self.latest = self.latest.max(sent);
        while self.heard.back().is_some_and(|last| self.left(last) >= heard.left) {
            self.heard.pop_back();
        }
        self.heard.push_back(heard);
        while self.heard.len() > 1 && self.heard[0].clock < self.latest {
            self.heard.pop_front();
        }
        if self.heard.len() > MOST_HEARD {
            self.heard.remove(1);
        }
        self.most = report.most.unwrap_or(self.most).max(report.left);
    }

    /// One that was refused went too early: a second was rounded down, or others took what came free. A limit of which nothing is
    /// left again and again at the beginning of its time, and that takes those who go ahead, is none.
    fn learn_from_scout(&mut self, report: &Report, now: Time) {
        let anew = self.span.begins_anew(report);
        let in_vain = !report.refused && !self.confirmed && report.left <= self.headroom && anew;
        self.doubts = if in_vain { self.doubts + 1 } else { 0 };
        self.span.learn(report, self.most, now);
        let margin = self.margin_nanos;
        let most = self.span.rounding_nanos().clamp(LEAST_MARGIN_NANOS, MOST_MARGIN_NANOS);
        let longer = margin.saturating_mul(2).clamp(LEAST_MARGIN_NANOS, most);
        self.margin_nanos = if report.refused { longer } else { margin - margin / 64 };
    }

    /// One that was refused where something should have been left: others took it meanwhile.
    fn learn(&mut self, report: &Report, now: Time) {
        if report.refused {
            self.headroom = (self.headroom + 1).min(HEADROOM + self.most / 10);
            (self.adapted, self.raised) = (now, self.clock);
        } else if self.headroom > self.leaves && self.adapted.plus(LESS_HEADROOM_AFTER_NANOS) <= now {
            self.headroom -= 1;
            self.adapted = now;
        }
    }

    /// What went since the last word and was not ours, at the least.
    fn note_others(&mut self, heard: &Heard, sent: u64) {
        let Some(base) = self.base().filter(|base| base.clock < sent && heard.at < base.until) else { return };
        let silent = self.silent.saturating_sub(base.silent);
        let ours = (self.ours - base.ours).saturating_add(silent).saturating_add(self.under_way());
        let others = base.left.saturating_sub(heard.left).saturating_sub(ours);
        self.others = self.others.saturating_add(others);
    }

    /// It ended without a word about this limit, and counted all the same. If it was `taken` after the reset, there is no such
    /// limit any more.
    pub(super) fn silent(&mut self, sent: Sent, units: u64, taken: bool, now: Time) {
        self.out = self.out.saturating_sub(units);
        self.silent = self.silent.saturating_add(units);
        self.back(sent.clock);
        if taken && self.base().is_some_and(|base| base.until <= now && base.clock < sent.clock) {
            self.heard.clear();
        }
    }

    pub(super) fn give_back(&mut self, sent: Sent, units: u64) {
        self.settle(sent, units, 0);
        self.back(sent.clock);
    }

    pub(super) fn settle(&mut self, sent: Sent, from: u64, to: u64) {
        let counted = if sent.seen { &mut self.out } else { &mut self.silent };
        *counted = counted.saturating_sub(from).saturating_add(to);
    }

    /// The one that went ahead is back.
    fn back(&mut self, sent: u64) {
        self.scout = self.scout.filter(|(scout, _)| *scout != sent);
    }

    pub(super) fn is_at_rest(&self, now: Time) -> bool {
        let past = |base: &Heard| base.until.plus(FORGOTTEN_AFTER_NANOS) <= now;
        self.out == 0 && self.base().is_none_or(past)
    }

    /// What the server said last, and what others took.
    pub(super) fn last_word(&self, now: Time) -> Option<StatedSnapshot> {
        let base = self.base()?;
        Some(StatedSnapshot {
            name: Arc::clone(&self.name),
            ago: now.since(base.at),
            left: self.left(base),
            most: self.most,
            resets_in: base.until.since(now),
            taken_by_others: self.others,
        })
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn assert_sound(&self) {
        let lefts = self.heard.iter().map(|heard| self.left(heard));
        assert!(lefts.is_sorted(), "the least first");
        assert!(self.heard.len() <= MOST_HEARD, "bounded");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cost::Unit;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * MS)
    }

    fn word(left: u64, resets_ms: u64) -> Report {
        Report {
            name: Arc::from("requests"),
            unit: Unit::REQUESTS,
            left,
            most: Some(20),
            resets_after: Some(Duration::from_millis(resets_ms)),
            window: None,
            refused: false,
        }
    }

    #[test]
    fn what_is_under_way_and_one_more_go_from_what_is_left() {
        let mut stated = Stated::new(Arc::from("requests"), 0);
        assert_eq!((stated.level(), stated.ready_at(1, at(0))), (u64::MAX, at(0)));
        let [first, second] = [0, 0].map(|ms| stated.take(1, true, at(ms)));
        stated.report(Some((first, 1)), &word(10, 1_000), at(5));
        assert_eq!(stated.level(), 8, "the second may have been counted, or not");
        stated.report(Some((second, 1)), &word(9, 1_000), at(6));
        assert_eq!(stated.level(), 8);
    }

    #[test]
    fn of_answers_whose_lives_overlap_the_least_counts_whatever_their_order() {
        let mut stated = Stated::new(Arc::from("requests"), 0);
        let sent = [0; 3].map(|_| stated.take(1, true, at(0)));
        for (sent, left) in sent.into_iter().zip([7, 9, 8]) {
            stated.report(Some((sent, 1)), &word(left, 1_000), at(10));
        }
        assert_eq!(stated.level(), 6);
        // One that was sent after these were heard was counted after them.
        let later = stated.take(1, true, at(20));
        stated.report(Some((later, 1)), &word(15, 1_000), at(30));
        assert_eq!(stated.level(), 14);
    }

    #[test]
    fn after_the_reset_one_goes_ahead() {
        let mut stated = Stated::new(Arc::from("requests"), 0);
        let sent = stated.take(1, true, at(0));
        stated.report(Some((sent, 1)), &word(0, 100), at(10));
        assert_eq!((stated.ready_at(1, at(10)), stated.estimate(1, at(10))), (at(110), at(110)));
        let scout = stated.take(1, true, at(110));
        assert_eq!(stated.ready_at(1, at(111)), at(1_110), "until it brings word, or is late");
        stated.report(Some((scout, 1)), &word(19, 1_000), at(120));
        assert_eq!((stated.ready_at(18, at(120)), stated.level()), (at(120), 18));
    }

    #[test]
    fn an_answer_without_a_word_counts_and_after_the_reset_ends_it() {
        let mut stated = Stated::new(Arc::from("requests"), 0);
        let [first, second] = [0, 0].map(|ms| stated.take(1, true, at(ms)));
        stated.report(Some((first, 1)), &word(10, 100), at(5));
        stated.silent(second, 1, true, at(6));
        assert_eq!(stated.level(), 8);
        let third = stated.take(1, true, at(200));
        let mut cancelled = stated.clone();
        cancelled.silent(third, 1, false, at(210));
        assert_eq!(cancelled.level(), 7, "nobody has said anything");
        stated.silent(third, 1, true, at(210));
        assert_eq!(stated.level(), u64::MAX);
    }

    #[test]
    fn a_limit_of_which_nothing_is_ever_left_is_not_believed_for_long() {
        let mut stated = Stated::new(Arc::from("requests"), 0);
        for nth in 0..4 {
            let now = at(nth * 60_000);
            assert_eq!(stated.ready_at(1, now), now);
            let sent = stated.take(1, true, now);
            stated.report(Some((sent, 1)), &word(0, 60_000), now);
        }
        assert_eq!(stated.ready_at(1, at(180_001)), at(180_001));
    }

    #[test]
    fn in_a_sliding_window_one_goes_ahead_when_enough_of_ours_have_come_back() {
        let mut stated = Stated::new(Arc::from("requests"), 0);
        let ask = |stated: &mut Stated, ms, left, resets| {
            let sent = stated.take(1, true, at(ms));
            stated.report(Some((sent, 1)), &word(left, resets), at(ms));
        };
        // Four of ours, and others at 300 ms; the window is a second.
        for (ms, left) in [(0, 19), (0, 18), (200, 17), (500, 0)] {
            ask(&mut stated, ms, left, 1_000 - ms);
        }
        assert_eq!(stated.ready_at(1, at(600)), at(1_000));
        ask(&mut stated, 1_000, 0, 200);
        assert_eq!(stated.ready_at(1, at(1_050)), at(2_000), "ours of 200, 500 and 1000 ms");
        ask(&mut stated, 1_200, 1, 300);
        assert_eq!(stated.ready_at(1, at(1_250)), at(2_000), "ours of 500 and 1000 ms");
        ask(&mut stated, 1_500, 18, 500);
        assert!(stated.span.slides());
        // More is left than those of ours that would still count let be: it is none.
        (0..10).for_each(|nth| ask(&mut stated, 1_550 + 50 * nth, 9 - nth, 450 - 45 * nth));
        assert_eq!(stated.ready_at(1, at(2_010)), at(2_550));
        ask(&mut stated, 2_550, 19, 1_000);
        assert!(!stated.span.slides());
    }

    #[test]
    fn a_window_that_begins_anew_is_known_again_though_others_came_first_once() {
        let mut stated = Stated::new(Arc::from("requests"), 0);
        let ask = |stated: &mut Stated, ms, left, resets| {
            let sent = stated.take(1, true, at(ms));
            stated.report(Some((sent, 1)), &word(left, resets), at(ms));
            stated.span.slides()
        };
        for (ms, left) in [(0, 19), (0, 18), (200, 0)] {
            assert!(!ask(&mut stated, ms, left, 1_000 - ms));
        }
        assert!(ask(&mut stated, 1_352, 7, 648), "late, and others have been there");
        assert!(ask(&mut stated, 1_700, 0, 300));
        assert!(!ask(&mut stated, 2_700, 16, 950));
    }

    #[test]
    fn what_others_took_is_seen() {
        let mut stated = Stated::new(Arc::from("requests"), 0);
        let first = stated.take(1, true, at(0));
        stated.report(Some((first, 1)), &word(10, 1_000), at(5));
        let second = stated.take(1, true, at(10));
        stated.report(Some((second, 1)), &word(6, 1_000), at(15));
        assert_eq!(stated.last_word(at(20)).unwrap().taken_by_others, 3);
    }

    /// A server that counts in fixed windows, alone with us, whose answers come in any order and seconds late: what may go
    /// is never more than what it would still take after everything that is on its way. A million reports.
    #[test]
    fn however_answers_are_reordered_nothing_is_loosened_wrongly() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut reports, mut loose) = (0_u64, 0_u64);
        while reports < 1_000_000 {
            let (most, window) = (random.u64(2..30), random.u64(50..2_000));
            let (mut stated, mut now, mut used, mut of_window) = (Stated::new(Arc::from("requests"), 0), 0, 0, 0);
            let (mut sent, mut counted) = (Vec::new(), Vec::new());
            for _ in 0..2_000 {
                now += random.u64(0..6);
                if now / window != of_window {
                    (of_window, used) = (now / window, 0);
                }
                match random.u8(0..4) {
                    0 | 1 => {
                        while stated.ready_at(1, at(now)) == at(now) && sent.len() < 40 && random.u8(0..8) > 0 {
                            sent.push(stated.take(1, true, at(now)));
                        }
                    }
                    2 if !sent.is_empty() => {
                        let one = sent.swap_remove(random.usize(..sent.len()));
                        let left = most - used;
                        used += u64::from(left > 0);
                        counted.push((one, left.saturating_sub(1), now + window - now % window));
                    }
                    _ if !counted.is_empty() => {
                        let (one, left, resets_at) = counted.swap_remove(random.usize(..counted.len()));
                        stated.report(Some((one, 1)), &word(left, u64::saturating_sub(resets_at, now)), at(now));
                        stated.assert_sound();
                        reports += 1;
                    }
                    _ => {}
                }
                let (level, on_the_way) = (stated.level(), u64::try_from(sent.len()).unwrap());
                if level != u64::MAX && level > 0 {
                    loose += 1;
                    assert!(level + HEADROOM + on_the_way <= most - used, "{level} of {}", most - used);
                }
            }
        }
        assert!(loose > 100_000, "{loose}");
    }
}
