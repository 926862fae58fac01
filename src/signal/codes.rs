//! What an error code means, whoever sends it.

/// What a code or a message says of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It came too fast, or there were too many.
    Throttled,
    /// The server lags behind, and asks for a pause.
    Lagging,
    /// There is no money left, or the allowance of a month.
    Unpaid,
    /// The account may not, until somebody decides otherwise.
    Barred,
    /// A limit on how many there may be, which no wait changes; unless the message says something of a rate.
    Counted,
    /// Going again helps, but going slower does not.
    Unlucky,
}

/// What is in a code, without case and hyphens. The first that fits counts.
const PARTS: [(&str, Meaning); 33] = [
    ("entitlementsuspended", Meaning::Barred),
    ("insufficientquota", Meaning::Unpaid),
    ("insufficientbalance", Meaning::Unpaid),
    ("insufficientfunds", Meaning::Unpaid),
    ("insufficientcredit", Meaning::Unpaid),
    ("creditbalance", Meaning::Unpaid),
    ("spendlimit", Meaning::Unpaid),
    ("organizationusagelimit", Meaning::Unpaid),
    ("billinghardlimit", Meaning::Unpaid),
    ("billingnotactive", Meaning::Unpaid),
    ("billingdisabled", Meaning::Barred),
    ("paymentrequired", Meaning::Unpaid),
    ("overdailylimit", Meaning::Unpaid),
    ("locktimeout", Meaning::Unlucky),
    ("retryableerrordueto", Meaning::Unlucky),
    ("modelnotready", Meaning::Unlucky),
    ("maxlag", Meaning::Lagging),
    ("ratelimit", Meaning::Throttled),
    ("throttl", Meaning::Throttled),
    ("toomanyrequest", Meaning::Throttled),
    ("toomanycalls", Meaning::Throttled),
    ("toomanywrite", Meaning::Throttled),
    ("toomanyconcurrent", Meaning::Throttled),
    ("slowdown", Meaning::Throttled),
    ("requestlimitexceeded", Meaning::Throttled),
    ("resourceexhausted", Meaning::Throttled),
    ("throughputexceeded", Meaning::Throttled),
    ("overquerylimit", Meaning::Throttled),
    ("dailylimitexceeded", Meaning::Throttled),
    ("bandwidthlimitexceeded", Meaning::Throttled),
    ("complexitybudget", Meaning::Throttled),
    ("temporaryreducedcapacity", Meaning::Throttled),
    ("limitexceededexception", Meaning::Counted),
];

/// The same for the whole of a code.
const WHOLE: [&str; 4] =
    ["quotaexceeded", "transactioninprogressexception", "priorrequestnotcomplete", "abnormalusagedetected"];

/// Numbers that stand for it: of HTTP, JSON-RPC, and of vendors.
const NUMBERS: [i64; 8] = [429, -32_005, -1_003, -1_015, 613, 20_429, 10_006, 50_011];

/// Vendors write `com.example.v1#ThrottlingException` and `ThrottlingException:http://…`.
pub(super) fn meaning(code: &str) -> Option<Meaning> {
    let code = code.rsplit('#').next().unwrap_or(code);
    if code.len() > 200 || (code.contains("://") && !code.contains(":http")) {
        return None;
    }
    let code = code.split(":http").next().unwrap_or(code);
    let letters: String = code.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    if WHOLE.contains(&letters.as_str()) || letters.parse() == Ok(429_u16) {
        return Some(Meaning::Throttled);
    }
    PARTS.iter().find(|(part, _)| letters.contains(part)).map(|(_, meaning)| *meaning)
}

pub(super) fn meaning_of_number(code: i64) -> Option<Meaning> {
    (NUMBERS.contains(&code) || (80_000..=80_014).contains(&code)).then_some(Meaning::Throttled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_all_makes() {
        for (code, expected) in [
            ("rate_limit_exceeded", Some(Meaning::Throttled)),
            ("com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", Some(Meaning::Throttled)),
            ("ThrottlingException:http://internal.example.com/coral/", Some(Meaning::Throttled)),
            ("https://iana.org/assignments/http-problem-types#quota-exceeded", Some(Meaning::Throttled)),
            ("storageQuotaExceeded", None),
            ("insufficient_quota", Some(Meaning::Unpaid)),
            ("organization_spend_limit_exceeded", Some(Meaning::Unpaid)),
            ("lock_timeout", Some(Meaning::Unlucky)),
            ("https://example.com/docs/rate-limits", None),
            ("invalid_request_error", None),
        ] {
            assert_eq!(meaning(code), expected, "{code}");
        }
    }
}
