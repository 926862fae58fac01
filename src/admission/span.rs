//! How long is the time of a limit of which only the server speaks, and does it begin anew or slide?
//!
//! Where it slides, each unit comes back a window after it was counted. That shows in what is left after a reset: little, and
//! no more than those of ours let be that still count.

use std::collections::VecDeque;

use super::report::Report;
use crate::time::{Time, nanos};

/// So many of ours are known by the instant at which they were taken.
const MOST_TAKEN: usize = 256;

/// What is stated in whole seconds may be a second off.
const SECOND_NANOS: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Span {
    /// The longest that a reset was away, as two answers said one after the other.
    longest_nanos: u64,
    /// How far away the last one said that it is.
    last_nanos: u64,
    /// Whether one was stated in parts of a second.
    is_fine: bool,
    /// How much goes in it.
    most: Option<u64>,
    slides: bool,
    /// When ours were taken lately, and how many.
    taken: VecDeque<(Time, u64)>,
}

impl Span {
    pub(super) fn slides(&self) -> bool {
        self.slides
    }

    /// How far off a stated reset may be.
    pub(super) fn rounding_nanos(&self) -> u64 {
        if self.is_fine { self.longest_nanos / 5 } else { SECOND_NANOS }
    }

    /// Whether all of it lies ahead.
    pub(super) fn begins_anew(&self, report: &Report) -> bool {
        report.resets_after.is_none_or(|resets| nanos(resets) >= self.longest_nanos / 10 * 9)
    }

    /// How long it is. The wait of a refusal may be a penalty, and one answer alone about something else; a limit of another size
    /// is another one.
    pub(super) fn note(&mut self, report: &Report, resets_nanos: u64) {
        if report.most.is_some()
            && std::mem::replace(&mut self.most, report.most).is_some_and(|most| report.most != Some(most))
        {
            (self.longest_nanos, self.last_nanos, self.slides) = (0, 0, false);
        }
        if !report.refused {
            self.longest_nanos = self.longest_nanos.max(resets_nanos.min(self.last_nanos));
            self.last_nanos = resets_nanos;
        }
        self.is_fine |= !resets_nanos.is_multiple_of(SECOND_NANOS);
    }

    /// So much of ours was taken.
    pub(super) fn note_taken(&mut self, units: u64, now: Time) {
        while self.taken.front().is_some_and(|(at, _)| at.plus(self.length_nanos()) <= now) {
            self.taken.pop_front();
        }
        if self.taken.len() >= MOST_TAKEN {
            self.taken.pop_front();
        }
        self.taken.push_back((now, units));
    }

    /// One that went ahead after a reset is back, of a limit of so much.
    pub(super) fn learn(&mut self, report: &Report, most: u64, now: Time) {
        let is_early =
            report.refused && report.resets_after.is_none_or(|resets| nanos(resets) <= self.rounding_nanos());
        let counted = self.ours_since(now.minus(self.longest_nanos / 10 * 9));
        let has_come_back = report.left.saturating_add(counted) > most;
        let is_little = report.left < most / 2 && !self.begins_anew(report) && !is_early;
        let is_whole = report.left >= most - most / 4 && self.begins_anew(report) && !report.refused;
        self.slides = !has_come_back && !is_whole && (self.slides || is_little);
    }

    /// How many of ours were taken since then, at the least.
    fn ours_since(&self, then: Time) -> u64 {
        let recent = self.taken.iter().rev().take_while(|(at, _)| *at > then);
        recent.fold(0, |sum, (_, units)| sum.saturating_add(*units))
    }

    /// When so many of ours have come back since then. What comes back of others' they take themselves, in the mean.
    pub(super) fn comes_back(&self, mut missing: u64, since: Time) -> Time {
        let all = since.plus(self.length_nanos());
        let mut back = self.taken.iter().map(|(at, units)| (at.plus(self.length_nanos()), *units));
        let enough = back.find(|(at, units)| {
            missing = if *at > since { missing.saturating_sub(*units) } else { missing };
            missing == 0
        });
        enough.map_or(all, |(at, _)| at.min(all))
    }

    fn length_nanos(&self) -> u64 {
        self.longest_nanos.saturating_add(if self.is_fine { 0 } else { SECOND_NANOS })
    }
}
