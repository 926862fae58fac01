//! What the fields of language models say that no other fields do: the caps of subscriptions.

use std::time::Duration;

use smallvec::SmallVec;

use super::head::Head;
use super::limit::{Found, Scope, StatedLimit};
use super::list::bare;
use super::moment::when;
use super::name::period;

/// Beside the fields of Anthropic's keys, which are trios: `-status`, `-5h-status`, `-5h-reset`, and the share that is
/// SPENT.
const UNIFIED: &str = "anthropic-ratelimit-unified-";

#[derive(Debug, Default)]
struct Cap<'a> {
    claim: &'a str,
    reset: Option<Duration>,
    is_rejected: bool,
}

pub(super) fn is_ours(name: &str) -> bool {
    name.starts_with(UNIFIED)
}

pub(super) fn read(head: &Head, found: &mut Found) {
    let mut caps: SmallVec<[Cap; 3]> = SmallVec::new();
    let mut representative = None;
    for (name, value) in &head.fields {
        let Some(rest) = name.strip_prefix(UNIFIED) else { continue };
        let (claim, word) = rest.rsplit_once('-').unwrap_or(("", rest));
        let until = || when(bare(value), head.clock);
        match (claim, word) {
            // What may be paid for besides, and is not the cap.
            ("overage", _) => {}
            ("representative", "claim") => representative = Some(*value),
            (_, "reset") => cap(&mut caps, claim).reset = until(),
            (_, "status") => cap(&mut caps, claim).is_rejected = *value == "rejected",
            _ => {}
        }
    }
    // The cap without a claim repeats one of the others.
    let has_claims = caps.iter().any(|cap| !cap.claim.is_empty() && cap.reset.is_some());
    for cap in caps.iter().filter(|cap| cap.claim.is_empty() != has_claims && (cap.reset.is_some() || cap.is_rejected))
    {
        let claim = if cap.claim.is_empty() { representative.unwrap_or_default() } else { cap.claim };
        let name = if claim.is_empty() { "unified".to_owned() } else { format!("unified-{claim}") };
        let (remaining, reset_after) = (cap.is_rejected.then_some(0.0), cap.reset);
        found.push(StatedLimit { remaining, reset_after, window: period(claim), ..StatedLimit::named(name) });
        found.scope = Some(Scope::Account);
    }
}

fn cap<'c, 'a>(caps: &'c mut SmallVec<[Cap<'a>; 3]>, claim: &'a str) -> &'c mut Cap<'a> {
    let known = caps.iter().position(|cap| cap.claim == claim);
    let at = known.unwrap_or_else(|| {
        caps.push(Cap { claim, ..Cap::default() });
        caps.len() - 1
    });
    &mut caps[at]
}
