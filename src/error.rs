//! The client's error: one word, and no secret in it.

use std::fmt;

use http::StatusCode;
use reqwest::Url;

use crate::invalid::Invalid;
use crate::refused::{Reason, Refused};
use crate::verdict::{Failure, Outcome};

/// Why a request failed: the network, the server, or our own limits.
///
/// What [`reqwest::Error`] can be asked, this can be asked too. It prints no query string and no password.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use reqwest_throttle::Client;
///
/// let error = Client::new().get("example.com/path?key=secret").send().await.unwrap_err();
/// assert!(error.is_builder() && !error.is_refused());
/// assert!(error.to_string().starts_with("the address `example.com/path` cannot be requested"));
/// # }
/// ```
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: Kind,
    attempts: usize,
}

#[derive(Debug)]
enum Kind {
    Reqwest(reqwest::Error),
    Refused(Refused),
    Address {
        shown: String,
        source: Option<reqwest::Error>,
    },
    Setting(Invalid),
    Redirect {
        source: Box<dyn std::error::Error + Send + Sync>,
        url: Option<Url>,
    },
    /// An attempt was under way.
    Interrupted {
        by: By,
        url: Option<Url>,
    },
}

/// Why we stopped a request.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Our own limits do not let it go.
    Refused(Refused),
    /// Its deadline came while an attempt was under way.
    Deadline,
    /// Its token was cancelled meanwhile.
    Cancelled,
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Deadline,
    Token,
}

impl Error {
    /// An address that cannot be used. Its query, and whatever may be a password, are not repeated.
    pub(crate) fn bad_address(address: &str, source: Option<reqwest::Error>) -> Self {
        let shown = shown(address);
        Kind::Address { shown, source: source.map(reqwest::Error::without_url) }.into()
    }

    /// A redirect, by the response of this address, cannot be followed.
    pub(crate) fn redirect(source: Box<dyn std::error::Error + Send + Sync>, url: Url) -> Self {
        Kind::Redirect { source, url: Some(without_secrets(url)) }.into()
    }

    /// After so many attempts.
    pub(crate) fn after(mut self, attempts: usize) -> Self {
        self.inner.attempts = attempts;
        self
    }

    /// How many times the request was sent, or was about to be when it failed.
    #[must_use]
    pub fn attempts(&self) -> usize {
        self.inner.attempts
    }

    /// True if our own limits did not let the request go, or not again: [`attempts`](Self::attempts) says how often it was sent
    /// before. Mostly that is never.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.refused().is_some()
    }

    /// The refusal by our own limits, with the limit, the wait and the number ahead.
    #[must_use]
    pub fn refused(&self) -> Option<&Refused> {
        match &self.inner.kind {
            Kind::Refused(refused) => Some(refused),
            _ => None,
        }
    }

    /// True if a time-out, or the deadline of the request, ran out while an attempt was under way. One that could not
    /// go in time is [refused](Self::is_refused), and was not sent.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.was_interrupted(By::Deadline) || self.asks(reqwest::Error::is_timeout)
    }

    /// True if its token was cancelled, while it waited or while an attempt was under way. In the first case it is
    /// [refused](Self::is_refused), and nothing was sent.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let waiting = || self.refused().is_some_and(|refused| refused.reason == Reason::Cancelled);
        self.was_interrupted(By::Token) || waiting()
    }

    /// True if a redirect could not be followed.
    #[must_use]
    pub fn is_redirect(&self) -> bool {
        matches!(&self.inner.kind, Kind::Redirect { .. }) || self.asks(reqwest::Error::is_redirect)
    }

    /// True if the name of the host could not be found.
    #[must_use]
    pub fn is_dns(&self) -> bool {
        self.asks(reqwest::Error::is_dns)
    }

    /// True if the connection could not be upgraded.
    #[must_use]
    pub fn is_upgrade(&self) -> bool {
        self.asks(reqwest::Error::is_upgrade)
    }

    /// True if the connection could not be made.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        self.asks(reqwest::Error::is_connect)
    }

    /// True if the request could not be built: a bad address, header, body or setting.
    #[must_use]
    pub fn is_builder(&self) -> bool {
        matches!(&self.inner.kind, Kind::Address { .. } | Kind::Setting(_)) || self.asks(reqwest::Error::is_builder)
    }

    /// True if the request could not be sent.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.asks(reqwest::Error::is_request)
    }

    /// True if `error_for_status` made it.
    #[must_use]
    pub fn is_status(&self) -> bool {
        self.asks(reqwest::Error::is_status)
    }

    /// True if the body of the request or the response failed.
    #[must_use]
    pub fn is_body(&self) -> bool {
        self.asks(reqwest::Error::is_body)
    }

    /// True if the body of the response could not be decoded.
    #[must_use]
    pub fn is_decode(&self) -> bool {
        self.asks(reqwest::Error::is_decode)
    }

    /// The status, if `error_for_status` made it.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.reqwest().and_then(reqwest::Error::status)
    }

    /// The address that it is about, without its query and password.
    #[must_use]
    pub fn url(&self) -> Option<&Url> {
        match &self.inner.kind {
            Kind::Reqwest(error) => error.url(),
            Kind::Interrupted { url, .. } | Kind::Redirect { url, .. } => url.as_ref(),
            _ => None,
        }
    }

    /// The address that it is about, to be changed.
    pub fn url_mut(&mut self) -> Option<&mut Url> {
        match &mut self.inner.kind {
            Kind::Reqwest(error) => error.url_mut(),
            Kind::Interrupted { url, .. } | Kind::Redirect { url, .. } => url.as_mut(),
            _ => None,
        }
    }

    /// The same about another address.
    #[must_use]
    pub fn with_url(mut self, url: Url) -> Self {
        self.inner.kind = match self.inner.kind {
            Kind::Reqwest(error) => Kind::Reqwest(error.with_url(url)),
            Kind::Interrupted { by, .. } => Kind::Interrupted { by, url: Some(url) },
            Kind::Redirect { source, .. } => Kind::Redirect { source, url: Some(url) },
            other => other,
        };
        self
    }

    /// The same without the address, which may be a secret.
    #[must_use]
    pub fn without_url(mut self) -> Self {
        self.inner.kind = match self.inner.kind {
            Kind::Reqwest(error) => Kind::Reqwest(error.without_url()),
            Kind::Address { source, .. } => Kind::Address { shown: "…".to_owned(), source },
            Kind::Interrupted { by, .. } => Kind::Interrupted { by, url: None },
            Kind::Redirect { source, .. } => Kind::Redirect { source, url: None },
            other => other,
        };
        self
    }

    /// What reqwest said, if it is an error of its.
    #[must_use]
    pub fn reqwest(&self) -> Option<&reqwest::Error> {
        match &self.inner.kind {
            Kind::Reqwest(error) => Some(error),
            _ => None,
        }
    }

    /// Of a request that we stopped.
    pub(crate) fn stopped(stop: Stop, url: Option<&Url>) -> Self {
        let interrupted = |by| Kind::Interrupted { by, url: url.cloned().map(without_secrets) }.into();
        match stop {
            Stop::Refused(refused) => refused.into(),
            Stop::Deadline => interrupted(By::Deadline),
            Stop::Cancelled => interrupted(By::Token),
        }
    }

    /// What it says about what was done.
    pub(crate) fn failure(&self) -> Failure {
        self.reqwest().map_or(FINAL, failure)
    }

    fn was_interrupted(&self, by: By) -> bool {
        matches!(&self.inner.kind, Kind::Interrupted { by: found, .. } if *found == by)
    }

    fn asks(&self, question: impl FnOnce(&reqwest::Error) -> bool) -> bool {
        self.reqwest().is_some_and(question)
    }
}

/// It would end in the same way again.
pub(crate) const FINAL: Failure = Failure { outcome: Outcome::Final, is_connect: false, is_silence: false };

/// What an error of reqwest's says about what was done.
pub(crate) fn failure(error: &reqwest::Error) -> Failure {
    let outcome = if error.is_connect() || gave_back(error) {
        Outcome::Untouched
    } else if error.is_timeout() || error.is_request() && !error.is_body() {
        Outcome::Unknown
    } else {
        Outcome::Final
    };
    Failure { outcome, is_connect: error.is_connect(), is_silence: error.is_timeout() }
}

/// An error and what it comes from, and so on.
pub(crate) fn sources<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// Whether the server says that it did nothing with the request: it refused the stream, or closes the connection in peace.
#[cfg(feature = "http2")]
pub(crate) fn gave_back(error: &(dyn std::error::Error + 'static)) -> bool {
    sources(error).filter_map(|source| source.downcast_ref::<h2::Error>()).any(|error| {
        let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (refused || error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR))
    })
}

#[cfg(not(feature = "http2"))]
pub(crate) fn gave_back(_: &(dyn std::error::Error + 'static)) -> bool {
    false
}

/// An address as it may be printed: without its query, and without what may be a password, also one that has a `?` or a `#` in it.
pub(crate) fn shown(address: &str) -> String {
    let visible = address.split(['?', '#']).next().unwrap_or_default();
    let hidden = &address[visible.len()..];
    if hidden.contains('@') {
        return visible.split_once("://").map_or_else(|| "…".to_owned(), |(scheme, _)| format!("{scheme}://…"));
    }
    visible.rsplit_once('@').map_or_else(|| visible.to_owned(), |(_, rest)| format!("…@{rest}"))
}

fn without_secrets(mut url: Url) -> Url {
    url.set_query(None);
    url.set_fragment(None);
    // These fail only for addresses that cannot have them.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self { inner: Box::new(Inner { kind, attempts: 0 }) }
    }
}

impl From<reqwest::Error> for Error {
    fn from(mut error: reqwest::Error) -> Self {
        if let Some(url) = error.url_mut() {
            *url = without_secrets(url.clone());
        }
        Kind::Reqwest(error).into()
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Kind::Refused(refused).into()
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Kind::Setting(invalid).into()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Error").field(&self.inner).finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner.kind {
            Kind::Reqwest(error) => error.fmt(f),
            Kind::Refused(refused) => match self.inner.attempts {
                0 => write!(f, "not sent: {refused}"),
                attempts => write!(f, "not sent again after {attempts} attempts: {refused}"),
            },
            Kind::Address { shown, .. } => {
                write!(f, "the address `{shown}` cannot be requested; write it whole, as in `https://example.com/path`")
            }
            Kind::Setting(invalid) => write!(f, "the client cannot be built: {invalid}"),
            Kind::Redirect { url, .. } => {
                f.write_str("a redirect cannot be followed")?;
                url.iter().try_for_each(|url| write!(f, ", from {url}"))
            }
            Kind::Interrupted { by, url } => {
                f.write_str(match by {
                    By::Deadline => "the request's deadline came before the answer",
                    By::Token => "the request was cancelled before the answer came",
                })?;
                url.iter().try_for_each(|url| write!(f, ", of {url}"))
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.inner.kind {
            Kind::Reqwest(error) => error.source(),
            Kind::Address { source, .. } => source.as_ref().map(|source| source as _),
            Kind::Redirect { source, .. } => Some(&**source),
            Kind::Setting(_) | Kind::Refused(_) | Kind::Interrupted { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_word() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        let url = Url::parse("https://me:PW123@example.com/path?key=SECRET123#f").unwrap();
        let shown = Error::stopped(Stop::Deadline, Some(&url)).to_string();
        assert!(shown.ends_with("https://example.com/path"), "{shown}");
    }
}
