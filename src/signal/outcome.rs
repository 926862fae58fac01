//! What a response amounts to: a refusal because of traffic, one for good, or nothing of the kind.

use std::time::Duration;

use super::codes::Meaning;
use super::head::Head;
use super::limit::{Found, StatedLimit};
use super::said::Said;
use super::{prose, terminal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Nothing,
    Throttled,
    /// No wait changes it.
    Final {
        /// What there was is used up, so that the next request meets the same.
        is_spent: bool,
    },
    /// It may be repeated, and slower is no better.
    Unlucky,
}

/// What no wait changes goes before everything; then what is not about traffic; then traffic. `wait` is what the head
/// asks for.
pub(super) fn of(status: u16, head: &Head, found: &Found, said: &Said, wait: Option<Duration>) -> Outcome {
    let means = |meaning| said.means(meaning);
    // Of other failures a message may speak of money and limits as well.
    let may_be_final = matches!(status, 200..=299 | 400 | 402 | 403 | 409 | 413 | 429 | 509);
    if matches!(status, 402 | 509)
        || (may_be_final && means(Meaning::Unpaid))
        || is_allowance(status, found, said, wait)
    {
        Outcome::Final { is_spent: true }
    } else if may_be_final && (means(Meaning::Barred) || terminal::is_too_large(&said.messages)) {
        Outcome::Final { is_spent: false }
    } else if means(Meaning::Unlucky) {
        Outcome::Unlucky
    } else if is_throttled(status, head, found, said, wait) {
        Outcome::Throttled
    } else if may_be_final && status >= 400 && means(Meaning::Counted) {
        Outcome::Final { is_spent: false }
    } else {
        Outcome::Nothing
    }
}

/// It is the allowance of a month that is used up, and nobody says for how long to wait.
fn is_allowance(status: u16, found: &Found, said: &Said, wait: Option<Duration>) -> bool {
    let mut empty = found.limits().filter(|limit| limit.is_exhausted()).peekable();
    let is_stated = empty.peek().is_some()
        && empty.all(|limit| limit.window.is_some_and(|window| window >= terminal::AN_ALLOWANCE));
    wait.is_none() && matches!(status, 403 | 429) && (is_stated || terminal::is_monthly(&said.messages))
}

fn is_throttled(status: u16, head: &Head, found: &Found, said: &Said, wait: Option<Duration>) -> bool {
    let says_so = said.means(Meaning::Throttled)
        || said.means(Meaning::Lagging)
        || (said.means(Meaning::Counted) && prose::speaks_of_traffic(&said.messages));
    let is_empty = || found.limits().any(StatedLimit::is_exhausted);
    match status {
        420 | 429 => true,
        418 => says_so || wait.is_some(),
        403 => says_so || wait.is_some() || is_empty(),
        // As such a service away for all; some gateways and archives say so when they refuse one.
        503 => says_so || is_empty() || said.messages.starts_with("retry after "),
        400 | 409 => says_so || found.wait.is_some(),
        200..=299 => says_so || head.all("grpc-status").any(|status| status == "8"),
        _ => false,
    }
}
