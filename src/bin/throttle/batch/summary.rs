//! How did it end? So many answered, so many failed, and of what.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::json;

use super::outcome::{Kind, Outcome};

/// What the records of an output say, by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    kinds: BTreeMap<Kind, u64>,
}

impl Tally {
    pub(crate) fn add(&mut self, kind: Kind) {
        *self.kinds.entry(kind).or_default() += 1;
    }

    pub(crate) fn add_all(&mut self, other: Self) {
        for (kind, count) in other.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.kinds.values().sum()
    }

    pub(crate) fn done(&self) -> u64 {
        self.kinds.iter().filter(|(kind, _)| kind.outcome() == Outcome::Done).map(|(_, count)| count).sum()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.total() - self.done()
    }

    fn failures(&self) -> impl Iterator<Item = (String, u64)> {
        let failed = self.kinds.iter().filter(|(kind, _)| kind.outcome() != Outcome::Done);
        failed.map(|(kind, count)| match kind {
            Kind::Status(status) => (status.to_string(), *count),
            Kind::Error(code) => (code.clone(), *count),
        })
    }
}

/// A run and its output.
#[derive(Debug)]
pub(crate) struct Summary {
    /// All records of the output, with those of earlier runs.
    pub(crate) tally: Tally,
    /// How many records earlier runs have left.
    pub(crate) kept: u64,
    /// Requests that this run sent, with attempts and redirects.
    pub(crate) sent: u64,
    /// Of these, refused because of traffic.
    pub(crate) refused: u64,
    /// Requests without a record, as far as the input was read.
    pub(crate) left: u64,
    pub(crate) took: Duration,
    pub(crate) is_interrupted: bool,
}

impl Summary {
    /// For programs: one line of JSON.
    pub(crate) fn json(&self) -> String {
        json!({
            "total": self.tally.total() + self.left,
            "ok": self.tally.done(),
            "failed": self.tally.failed(),
            "left": self.left,
            "failures": self.tally.failures().collect::<BTreeMap<_, _>>(),
            "kept": self.kept,
            "sent": self.sent,
            "refused": self.refused,
            "seconds": (self.took.as_secs_f64() * 1e3).round() / 1e3,
            "interrupted": self.is_interrupted,
        })
        .to_string()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tally, kept, sent, refused, left, took, .. } = self;
        write!(f, "{} total, {} ok, {} failed", tally.total() + left, tally.done(), tally.failed())?;
        let failures: Vec<_> = tally.failures().map(|(what, count)| format!("{what}: {count}")).collect();
        if !failures.is_empty() {
            write!(f, " ({})", failures.join(", "))?;
        }
        if *left > 0 {
            write!(f, ", {left} left")?;
        }
        if *kept > 0 {
            write!(f, "; {kept} {} there already", if *kept == 1 { "was" } else { "were" })?;
        }
        write!(f, "; {sent} sent in {:.1} s, {refused} refused", took.as_secs_f64())
    }
}
