//! Whether a refusal is one that no wait changes, by what its message says.

use super::codes::Meaning;

/// What is said where there is no money. `credit` and `upgrade` alone are no sign: plain refusals have them too, and so is
/// `check your plan and billing details`.
const OF_MONEY: [&str; 12] = [
    "insufficient balance",
    "insufficient account balance",
    "insufficient credit",
    "insufficient funds",
    "credit balance is too low",
    "spend limit",
    "spending limit",
    "billing hard limit",
    "recharge your",
    "out of credits",
    "not enough credits",
    "no credits left",
];

const OF_A_MONTH: [&str; 7] =
    ["/ month", "/month", "per month", "monthly limit", "monthly quota", "monthly usage", "monthly request"];

const OF_A_COUNT: [&str; 3] = ["cannot exceed quota", "maximum number of", "limit of resources"];

/// What a message in lower case says.
pub(super) fn meaning(message: &str) -> Option<Meaning> {
    let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    if has(&OF_MONEY) {
        return Some(Meaning::Unpaid);
    }
    has(&OF_A_COUNT).then_some(Meaning::Counted)
}

/// It speaks of the allowance of a month.
pub(super) fn is_monthly(message: &str) -> bool {
    OF_A_MONTH.iter().any(|part| message.contains(part))
}

/// More was asked for at once than there ever is.
pub(super) fn is_too_large(message: &str) -> bool {
    let after = |word: &str| super::prose::number_after(message, word);
    matches!((after("requested "), after("limit ")), (Some(requested), Some(limit)) if requested > limit)
}
