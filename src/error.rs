//! The client's error: one word, and no secret in it.

use std::fmt;

use http::StatusCode;
use reqwest::Url;

use crate::invalid::Invalid;
use crate::refused::Refused;

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
enum Inner {
    Reqwest(reqwest::Error),
    Refused(Refused),
    Address { shown: String, source: Option<reqwest::Error> },
    Setting(Invalid),
    Deadline { url: Url },
}

impl Error {
    /// An address that cannot be used. Its query, and whatever may be a password, are not repeated.
    pub(crate) fn bad_address(address: &str, source: Option<reqwest::Error>) -> Self {
        let shown = address.split(['?', '#']).next().unwrap_or_default();
        let shown = shown.rsplit_once('@').map_or_else(|| shown.to_owned(), |(_, rest)| format!("…@{rest}"));
        Inner::Address { shown, source: source.map(reqwest::Error::without_url) }.into()
    }

    /// The deadline of the whole request came while an attempt was under way.
    pub(crate) fn deadline(url: Url) -> Self {
        Inner::Deadline { url: without_secrets(url) }.into()
    }

    /// True if our own limits did not let the request go. Nothing was sent then.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.refused().is_some()
    }

    /// The refusal by our own limits, with the limit, the wait and the number ahead.
    #[must_use]
    pub fn refused(&self) -> Option<&Refused> {
        match &*self.inner {
            Inner::Refused(refused) => Some(refused),
            _ => None,
        }
    }

    /// True if a time-out, or the deadline of the request, ran out while an attempt was under way. One that could not
    /// go in time is [refused](Self::is_refused), and was not sent.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(&*self.inner, Inner::Deadline { .. }) || self.asks(reqwest::Error::is_timeout)
    }

    /// True if the connection could not be made.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        self.asks(reqwest::Error::is_connect)
    }

    /// True if the request could not be built: a bad address, header, body or setting.
    #[must_use]
    pub fn is_builder(&self) -> bool {
        matches!(&*self.inner, Inner::Address { .. } | Inner::Setting(_)) || self.asks(reqwest::Error::is_builder)
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
        match &*self.inner {
            Inner::Reqwest(error) => error.url(),
            Inner::Deadline { url } => Some(url),
            _ => None,
        }
    }

    /// What reqwest said, if it is an error of its.
    #[must_use]
    pub fn reqwest(&self) -> Option<&reqwest::Error> {
        match &*self.inner {
            Inner::Reqwest(error) => Some(error),
            _ => None,
        }
    }

    fn asks(&self, question: impl FnOnce(&reqwest::Error) -> bool) -> bool {
        self.reqwest().is_some_and(question)
    }
}

fn without_secrets(mut url: Url) -> Url {
    url.set_query(None);
    url.set_fragment(None);
    // These fail only for addresses that cannot have them.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url
}

impl From<Inner> for Error {
    fn from(inner: Inner) -> Self {
        Self { inner: Box::new(inner) }
    }
}

impl From<reqwest::Error> for Error {
    fn from(mut error: reqwest::Error) -> Self {
        if let Some(url) = error.url_mut() {
            *url = without_secrets(url.clone());
        }
        Inner::Reqwest(error).into()
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Inner::Refused(refused).into()
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Inner::Setting(invalid).into()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Error").field(&self.inner).finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.inner {
            Inner::Reqwest(error) => error.fmt(f),
            Inner::Refused(_) => f.write_str("our own limits did not let the request go"),
            Inner::Address { shown, .. } => {
                write!(f, "the address `{shown}` cannot be requested; write it whole, as in `https://example.com/path`")
            }
            Inner::Setting(_) => f.write_str("the client cannot be built"),
            Inner::Deadline { url } => write!(f, "the request's deadline came before the answer of {url}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.inner {
            Inner::Reqwest(error) => error.source(),
            Inner::Refused(refused) => Some(refused),
            Inner::Address { source, .. } => source.as_ref().map(|source| source as _),
            Inner::Setting(invalid) => Some(invalid),
            Inner::Deadline { .. } => None,
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
        let shown = Error::deadline(url).to_string();
        assert!(shown.ends_with("https://example.com/path"), "{shown}");
    }
}
