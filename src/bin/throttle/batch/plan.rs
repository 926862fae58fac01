//! What would a run do? So many to be sent, so many answered already, so long at best.

use std::fmt;
use std::time::Duration;

use reqwest_throttle::{Context, Limiter, Limits, Quota, Reason};
use serde_json::json;

use super::forecast::{Costs, at_best};
use super::input::{Todo, add_costs};
use super::line::Line;
use crate::explain::span::told;
use crate::failure::Failure;

pub(crate) struct Plan<'a> {
    quotas: &'a [Quota],
    /// Has the limits of a run, and is asked whether something can ever go.
    limiter: Limiter,
    to_send: u64,
    /// What the output says of earlier runs.
    kept: u64,
    bad: u64,
    /// Requests that cost more than a limit ever lets go.
    pub(crate) never: u64,
    costs: Costs,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(quotas: &'a [Quota], kept: u64) -> Result<Self, Failure> {
        let limits = quotas.iter().fold(Limits::new(), |limits, quota| limits.quota(quota.clone()));
        let limiter = Limiter::new(limits).map_err(Failure::usage)?;
        Ok(Self { quotas, limiter, to_send: 0, kept, bad: 0, never: 0, costs: Costs::new() })
    }

    pub(crate) fn add(&mut self, todo: &Todo) {
        match todo {
            Todo::Bad(..) => self.bad += 1,
            Todo::Request(line) if self.never_goes(line) => self.never += 1,
            Todo::Request(line) => {
                self.to_send += 1;
                add_costs(&mut self.costs, line);
            }
        }
    }

    fn never_goes(&self, line: &Line) -> bool {
        let context = Context::new().priority(line.priority);
        let context = line.costs.iter().fold(context, |context, (unit, amount)| context.cost(unit.as_str(), *amount));
        let asked = self.limiter.try_acquire_with(&context);
        asked.is_err_and(|refused| refused.reason == Reason::CostExceedsQuota)
    }

    fn at_best(&self) -> Option<(Duration, &'a Quota)> {
        at_best(self.quotas, &self.costs)
    }

    /// For programs: one line of JSON.
    pub(crate) fn json(&self) -> String {
        let at_best_s = self.at_best().map(|(time, _)| time.as_secs_f64());
        json!({
            "to_send": self.to_send,
            "kept": self.kept,
            "bad": self.bad,
            "never": self.never,
            "at_best_s": at_best_s,
        })
        .to_string()
    }
}

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to_send, kept, bad, never, .. } = self;
        write!(f, "{to_send} to be sent, {kept} answered already")?;
        if *bad > 0 {
            write!(f, ", {bad} cannot be sent")?;
        }
        if *never > 0 {
            write!(f, ", {never} can never go: more than a limit lets go at once")?;
        }
        match self.at_best() {
            Some((Duration::ZERO, quota)) => write!(f, "; at best at once, by {quota}"),
            Some((time, quota)) => write!(f, "; at best in {}, by {quota}", told(time)),
            None => f.write_str("; as fast as the servers answer: there is no --rate"),
        }
    }
}
