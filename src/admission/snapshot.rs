//! What is going on: [`Snapshot`], in words.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::quota::Quota;
use crate::time::readable;

/// How all gates stood at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Each gate that anybody used lately.
    pub gates: Vec<GateSnapshot>,
}

/// How one gate stood: the limits of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateSnapshot {
    /// Its key: the host, for a client; empty for the whole client, or a bare limiter.
    pub key: String,
    /// Its quotas.
    pub quotas: Vec<QuotaSnapshot>,
    /// How many requests were in flight, or had leave to be.
    pub in_flight: usize,
    /// How many may be.
    pub most_in_flight: Option<usize>,
    /// How many waited that have to pass here, wherever they stood.
    pub waiting: usize,
    /// How long nobody was going to pass, after the server had asked for a pause or while one request went ahead.
    pub paused_for: Option<Duration>,
    /// Of how many percent of its quotas it made use, after refusals or failures; `None` if of all.
    pub lowered_to_percent: Option<u8>,
    /// Whether it has no quotas that anybody set: what is shown is what the server took before it refused.
    pub found: bool,
    /// Who stood here, in order: at most the first 16 lanes.
    pub standing: Vec<LaneSnapshot>,
}

/// How much of a quota was left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaSnapshot {
    /// Which.
    pub quota: Arc<Quota>,
    /// How many units could go at once.
    pub left: u64,
    /// What the server said of it, if it is one that only the server speaks of.
    pub stated: Option<StatedSnapshot>,
}

/// What a server said last of one of its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatedSnapshot {
    /// Which limit.
    pub name: Arc<str>,
    /// How long ago that was.
    pub ago: Duration,
    /// How many units were left, less what went since without a word.
    pub left: u64,
    /// Of how many.
    pub most: u64,
    /// In how long there are that many again, as far as the server says.
    pub resets_in: Duration,
    /// How many units others took that use the same key, at the least.
    pub taken_by_others: u64,
}

/// Those who waited for the same gates, with the same priority, in the same flow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneSnapshot {
    /// The keys of all of its gates.
    pub keys: Vec<String>,
    /// Its priority, and whether it has aged.
    pub priority: &'static str,
    /// Its flow, if it named one.
    pub flow: Option<Arc<str>>,
    /// How many they were.
    pub waiting: usize,
    /// What the first of them waited for.
    pub why: String,
    /// How long that was going to keep it at the least, if that was known.
    pub wait: Option<Duration>,
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gates.is_empty() {
            return f.write_str("nothing used, nobody waits");
        }
        for (place, gate) in self.gates.iter().enumerate() {
            write!(f, "{}{gate}", if place == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl fmt::Display for GateSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<_> = self.quotas.iter().map(ToString::to_string).collect();
        parts.push(match self.most_in_flight {
            Some(most) => format!("{} of {most} in flight", self.in_flight),
            None => format!("{} in flight", self.in_flight),
        });
        parts.push(format!("{} waiting", self.waiting));
        parts.extend(self.paused_for.map(|wait| format!("paused for {:?}", readable(wait))));
        parts.extend(self.lowered_to_percent.map(|percent| format!("lowered to {percent} %")));
        parts.extend(self.found.then(|| "limit found by being refused".to_owned()));
        write!(f, "{}: {}", shown(&self.key), parts.join(", "))?;
        self.standing.iter().try_for_each(|lane| write!(f, "\n  {lane}"))
    }
}

impl fmt::Display for QuotaSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stated {
            Some(stated) => stated.fmt(f),
            None => write!(f, "{} left of {}", self.left, self.quota),
        }
    }
}

impl fmt::Display for StatedSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, ago, left, most, resets_in, taken_by_others } = self;
        let (ago, resets_in) = (readable(*ago), readable(*resets_in));
        write!(f, "stated by the server {ago:?} ago: {left} left of {most} {name}, resets in {resets_in:?}")?;
        if *taken_by_others > 0 {
            write!(f, ", {taken_by_others} taken by others")?;
        }
        Ok(())
    }
}

impl fmt::Display for LaneSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.waiting, self.priority)?;
        if let Some(flow) = &self.flow {
            write!(f, " of {flow}")?;
        }
        if self.keys.len() > 1 {
            let keys: Vec<_> = self.keys.iter().map(|key| shown(key)).collect();
            write!(f, " for {}", keys.join(" + "))?;
        }
        write!(f, ": {}", self.why)
    }
}

/// The key of what everybody passes is empty.
fn shown(key: &str) -> &str {
    if key.is_empty() { "all" } else { key }
}
