//! What a response said about limits.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

mod limit;
mod list;
mod moment;
mod name;
mod head;
mod wait;
mod structured;
mod policies;
mod record;
mod fields;
mod llm;
mod compact;
mod trios;
mod codes;
mod prose;
mod terminal;
mod aws;
mod said;
mod body;
mod outcome;

pub use limit::{Hints, Scope, StatedLimit};

use codes::Meaning;
use head::Head;
use limit::Found;
use outcome::Outcome;

/// What a response says about limits, whoever sends it: that it refuses, for how long, and what is left of what.
///
/// It is in the extensions of a response that came through the client, a layer or a middleware, unless it says nothing.
///
/// It is read from the status, the head, and as much of the body as is there: `RateLimit` as the IETF drafts have it,
/// the `X-RateLimit-…` fields in their dialects, those of language models, the codes and messages of refusals. What is
/// malformed is as if absent.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use reqwest_throttle::{Signal, StatusCode, header::HeaderMap};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("x-ratelimit-limit", "60".parse()?);
/// headers.insert("x-ratelimit-remaining", "0".parse()?);
/// headers.insert("x-ratelimit-reset", "12".parse()?);
///
/// let signal = Signal::read(StatusCode::TOO_MANY_REQUESTS, &headers, b"", Duration::ZERO);
/// assert!(signal.throttled);
/// assert_eq!(signal.retry_after(), Some(Duration::from_secs(12)));
/// assert_eq!(signal.limits[0].limit, Some(60.0));
/// assert_eq!(signal.to_string(), "refused: 0 of 60 requests left, again in 12s");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Signal {
    /// The server refused the request because of traffic, and so did nothing for it; or it asks for a pause.
    pub throttled: bool,
    /// It refused, and will again however long we wait: there is no money, or the request is larger than the limit.
    pub terminal: bool,
    /// The server, or one before it, could not do it just now; something may have been done all the same.
    pub fault: Option<Fault>,
    /// How long everybody is to stay away; `None` if that is not said, or if it is said of something else.
    pub wait: Option<Duration>,
    /// What it says about going again at all.
    pub should_retry: Option<bool>,
    /// The next request must be expected to be refused.
    pub exhausted: bool,
    /// The limits that it states, in the order in which it does.
    pub limits: Vec<StatedLimit>,
    /// For what they hold, if it says so.
    pub scope: Option<Scope>,
    pub(crate) after: Option<Duration>,
}

/// Why a server could not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Something went wrong.
    Broken,
    /// It took too long for one before it.
    TooSlow,
    /// It says that it cannot do anything just now.
    Unavailable,
}

/// A response, as far as it is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    /// As much of it as there is.
    pub(crate) body: &'a [u8],
    /// Since 1970, for what it says in dates, if it does not say what its own clock shows.
    pub(crate) now: Duration,
    pub(crate) hints: &'a Hints,
}

impl Signal {
    /// Reads a response: its status and head, as much of its body as is there (of which 64 KiB are looked at), and `now`
    /// since 1970, which is only asked if the response does not say what its own clock shows.
    ///
    /// A body is read if the response refuses, or if it has a word in it that refusals inside a success have.
    #[must_use]
    pub fn read(status: StatusCode, headers: &HeaderMap, body: &[u8], now: Duration) -> Self {
        Self::read_with(status, headers, body, now, &Hints::default())
    }

    /// The same, where something is known of the server that its responses do not say.
    #[must_use]
    pub fn read_with(status: StatusCode, headers: &HeaderMap, body: &[u8], now: Duration, hints: &Hints) -> Self {
        decide(View { status, headers, body, now, hints })
    }

    /// Whether it says nothing that anybody would want to know.
    pub(crate) fn is_plain(&self) -> bool {
        !self.throttled && !self.terminal && self.fault.is_none() && self.after.is_none() && self.limits.is_empty()
    }

    /// How long the response asks to stay away, also where this is not about a limit: a 202 says when the result may be
    /// there. It may be zero.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.after
    }
}

/// The order: what is stated, what no wait changes, the wait, and what is left.
fn decide(view: View) -> Signal {
    let head = Head::read(view.headers, view.now);
    let mut found = Found::default();
    let is_refused = view.status.as_u16() >= 400;
    let is_outdated = head.is_stale && view.status.is_success();
    if !head.fields.is_empty() && !is_outdated {
        trios::read(&head, is_refused, view.hints, &mut found);
    }
    let mut said = body::read(view.status, view.body, &head, &mut found);
    said.meanings.extend(aws::meaning_of_head(&head));
    let stated = wait::stated(&head);
    let outcome = outcome::of(view.status.as_u16(), &head, &found, &said, stated);
    let throttled = outcome == Outcome::Throttled;
    let is_done = view.status.is_success() || view.status.is_redirection();
    let own = stated.filter(|_| throttled || !view.status.is_success() || view.status == StatusCode::ACCEPTED);
    let in_body = said.wait.filter(|_| throttled || is_refused);
    let after = own.or(found.wait.filter(|_| throttled)).or(in_body).or_else(|| reset(&found).filter(|_| throttled));
    let pauses = throttled || view.status == StatusCode::SERVICE_UNAVAILABLE || view.status.is_redirection();
    let is_about_us = throttled && !found.blames_service && !said.means(Meaning::Lagging);
    let is_empty = found.limits().any(StatedLimit::is_exhausted);
    Signal {
        throttled,
        terminal: matches!(outcome, Outcome::Final { .. }),
        fault: fault(view.status),
        // Going again at once would earn the next refusal.
        wait: after.filter(|wait| pauses && !(throttled && wait.is_zero())),
        should_retry: wait::should_retry(&head).filter(|_| !is_done).or((outcome == Outcome::Unlucky).then_some(true)),
        exhausted: is_empty || is_about_us || outcome == Outcome::Final { is_spent: true },
        scope: found.scope.take().or_else(|| view.hints.scope.clone()),
        limits: found.into_limits(),
        after,
    }
}

/// The longest until a limit is there again of which nothing is left. One of which something is left has not refused.
fn reset(found: &Found) -> Option<Duration> {
    found.limits().filter(|limit| limit.is_exhausted()).filter_map(|limit| limit.reset_after).max()
}

fn fault(status: StatusCode) -> Option<Fault> {
    match status.as_u16() {
        408 | 500 | 502 => Some(Fault::Broken),
        503 => Some(Fault::Unavailable),
        504 => Some(Fault::TooSlow),
        _ => None,
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self { terminal: true, .. } => "refused for good",
            Self { throttled: true, .. } => "refused",
            Self { fault: Some(Fault::Broken), .. } => "failed",
            Self { fault: Some(Fault::TooSlow), .. } => "too slow",
            Self { fault: Some(Fault::Unavailable), .. } => "unavailable",
            Self { fault: None, .. } => "not refused",
        })?;
        let empty = self.limits.iter().find(|limit| limit.is_exhausted());
        if let Some(limit) = empty.or(self.limits.first()) {
            write!(f, ": {limit}")?;
        }
        match self.after {
            Some(wait) => write!(f, ", again in {wait:?}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (http::HeaderName::from_static(name), value.parse().unwrap())
        };
        fields.iter().map(field).collect()
    }

    #[test]
    fn what_a_status_says() {
        let headers = headers(&[("retry-after", "2")]);
        let wait = Some(Duration::from_secs(2));
        let read = |status| Signal::read(StatusCode::from_u16(status).unwrap(), &headers, &[], Duration::ZERO);
        let said = |status| {
            let Signal { throttled, fault, wait, .. } = read(status);
            (throttled, fault, wait)
        };
        assert_eq!(said(429), (true, None, wait));
        assert_eq!(said(503), (false, Some(Fault::Unavailable), wait));
        assert_eq!(said(504), (false, Some(Fault::TooSlow), None));
        for status in [408, 500, 502] {
            assert_eq!(said(status), (false, Some(Fault::Broken), None), "{status}");
        }
        assert_eq!(said(307), (false, None, wait));
        assert_eq!(said(403), (true, None, wait), "a permission does not come back after a while");
        for status in [200, 202, 400, 404, 501] {
            assert_eq!(said(status), (false, None, None), "{status}");
        }
        assert_eq!((read(202).retry_after(), read(200).retry_after()), (wait, None));
    }

    #[test]
    fn a_success_is_not_repeated_whatever_it_says() {
        let headers = headers(&[("x-should-retry", "true")]);
        let says = |status| Signal::read(status, &headers, &[], Duration::ZERO).should_retry;
        assert_eq!((says(StatusCode::OK), says(StatusCode::SEE_OTHER)), (None, None));
        assert_eq!(says(StatusCode::CONFLICT), Some(true));
    }

    #[test]
    fn a_refusal_has_no_wait_of_nothing() {
        let headers = headers(&[("retry-after", "0")]);
        let signal = Signal::read(StatusCode::TOO_MANY_REQUESTS, &headers, &[], Duration::ZERO);
        assert_eq!((signal.wait, signal.retry_after()), (None, Some(Duration::ZERO)));
    }

    #[test]
    fn it_is_said_in_one_line() {
        let says = |status, fields: &[_], body: &str| {
            Signal::read(StatusCode::from_u16(status).unwrap(), &headers(fields), body.as_bytes(), Duration::ZERO)
                .to_string()
        };
        assert_eq!(says(200, &[], ""), "not refused");
        assert_eq!(says(200, &[("ratelimit", "\"api\";r=5;t=1")], ""), "not refused: 5 api left");
        assert_eq!(says(503, &[("retry-after", "5")], ""), "unavailable, again in 5s");
        assert_eq!(says(402, &[], ""), "refused for good");
        assert_eq!(says(429, &[], r#"{"limit":{"remaining":0,"limit":9}}"#), "refused: 0 of 9 requests left");
        let name = r#"{"details":[{"quotaId":"a\nb","quotaValue":"1"}]}"#;
        assert_eq!(says(429, &[], name), "refused: 0 of 1 a?b left");
    }
}
