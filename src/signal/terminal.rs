//! Whether a refusal is one that no wait changes, by what its message says.

use std::time::Duration;

use super::codes::Meaning;
use super::prose;

/// What is said where there is no money. `credit`, `upgrade`, and `check your plan and billing details` are no sign:
/// plain refusals have them too.
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

/// A limit on so long a time is an allowance, and nothing that one waits for.
pub(super) const AN_ALLOWANCE: Duration = Duration::from_secs(28 * 86_400);

const OF_A_MONTH: [&str; 5] =
    ["monthly limit", "monthly quota", "monthly usage", "monthly request", "monthly included"];

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
    let is_stated =
        || prose::limit(message).and_then(|limit| limit.window).is_some_and(|window| window >= AN_ALLOWANCE);
    OF_A_MONTH.iter().any(|part| message.contains(part)) || is_stated()
}

/// More was asked for at once than there ever is.
pub(super) fn is_too_large(message: &str) -> bool {
    let after = |word: &str| prose::number_after(message, word);
    matches!((after("requested "), after("limit ")), (Some(requested), Some(limit)) if requested > limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_told_from_advice() {
        for message in ["insufficient account balance. please recharge", "your credit balance is too low"] {
            assert_eq!(meaning(message), Some(Meaning::Unpaid), "{message}");
        }
        for message in [
            "you exceeded your current quota, please check your plan and billing details.",
            "reduced while you have less than $5.0 in credit",
            "please wait or upgrade your subscription",
        ] {
            assert_eq!(meaning(message), None, "{message}");
        }
        assert!(
            is_monthly("limited to 1000 api calls / month. you can") && is_monthly("you exceeded the monthly quota")
        );
        assert!(!is_monthly("rate limited: 5 calls / minute. upgrade for $20/month"));
    }

    #[test]
    fn what_is_larger_than_the_limit_never_fits() {
        assert!(is_too_large("on tokens per min (tpm): limit 6000, requested 8123, please reduce"));
        assert!(!is_too_large("on tokens per min (tpm): limit 30000, used 29588, requested 1075."));
    }
}
