//! Where a redirect leads, with which method and headers, and whether it is followed: [`Policy`].
//!
//! reqwest adds its default headers to whatever it executes, so its own redirects, issued one by one, would carry
//! credentials to other hosts. Hence the client keeps both to itself: each hop passes the gates of its host, and what is
//! sent along depends on where it goes.

use std::error::Error;
use std::fmt;

use http::header::{HOST, HeaderName, LOCATION, REFERER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use reqwest::Url;

/// How many redirects are followed, unless set.
const MOST_HOPS: usize = 10;

/// What describes a body, and goes with it, beside `content-…`.
const OF_THE_BODY: [&str; 4] = ["transfer-encoding", "digest", "expect", "trailer"];

/// What only the origin is to see that it was meant for, beside what is secret.
const OF_THE_ORIGIN: [HeaderName; 2] = [HOST, REFERER];

/// Of which words the names of headers are made that carry secrets: `authorization`, `x-api-key`, `private-token` and their kin.
const SECRET: [&str; 16] = [
    "auth",
    "authorization",
    "authenticate",
    "authentication",
    "token",
    "key",
    "apikey",
    "secret",
    "password",
    "cookie",
    "cookie2",
    "session",
    "credential",
    "credentials",
    "signature",
    "jwt",
];

fn is_of_the_body(name: &HeaderName) -> bool {
    name.as_str().starts_with("content-") || OF_THE_BODY.contains(&name.as_str())
}

/// An `idempotency-key` is none: it tells one request from the next.
fn is_usually_secret(name: &HeaderName) -> bool {
    name != "idempotency-key" && name.as_str().split(['-', '_']).any(|word| SECRET.contains(&word))
}

/// Which redirects are followed: ten in a row, unless set. The words are those of reqwest's.
///
/// # Examples
///
/// ```
/// use reqwest_throttle::{Client, redirect};
///
/// let same_host = redirect::Policy::custom(|attempt| {
///     let same = attempt.previous().last().and_then(|url| url.host_str()) == attempt.url().host_str();
///     if same { attempt.follow() } else { attempt.stop() }
/// });
/// let client = Client::builder().redirect(same_host).build()?;
/// # Ok::<(), reqwest_throttle::Error>(())
/// ```
pub struct Policy(Kind);

enum Kind {
    None,
    Limited(usize),
    Custom(Box<dyn Fn(Attempt<'_>) -> Action + Send + Sync>),
}

impl Policy {
    /// So many in a row are followed; one more is an error.
    #[must_use]
    pub fn limited(most: usize) -> Self {
        Self(Kind::Limited(most))
    }

    /// None is followed: the response is returned as it came.
    #[must_use]
    pub fn none() -> Self {
        Self(Kind::None)
    }

    /// Asks about each.
    pub fn custom<T>(policy: T) -> Self
    where
        T: Fn(Attempt<'_>) -> Action + Send + Sync + 'static,
    {
        Self(Kind::Custom(Box::new(policy)))
    }

    /// What is to be done about one.
    #[must_use]
    pub fn redirect(&self, attempt: Attempt<'_>) -> Action {
        match &self.0 {
            Kind::None => attempt.stop(),
            Kind::Limited(most) if attempt.previous.len() > *most => attempt.error(TooMany(*most)),
            Kind::Limited(_) => attempt.follow(),
            Kind::Custom(policy) => policy(attempt),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::limited(MOST_HOPS)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::None => f.write_str("Policy::none"),
            Kind::Limited(most) => write!(f, "Policy::limited({most})"),
            Kind::Custom(_) => f.write_str("Policy::custom"),
        }
    }
}

/// A redirect that may be followed.
#[derive(Debug)]
pub struct Attempt<'a> {
    status: StatusCode,
    url: &'a Url,
    previous: &'a [Url],
}

impl Attempt<'_> {
    /// The status of the response that redirects.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Where it leads.
    #[must_use]
    pub fn url(&self) -> &Url {
        self.url
    }

    /// All addresses that were requested so far.
    #[must_use]
    pub fn previous(&self) -> &[Url] {
        self.previous
    }

    /// Request it.
    #[must_use]
    pub fn follow(self) -> Action {
        Action(Done::Follow)
    }

    /// Return the response that redirects as it came.
    #[must_use]
    pub fn stop(self) -> Action {
        Action(Done::Stop)
    }

    /// Fail.
    #[must_use]
    pub fn error<E: Into<Box<dyn Error + Send + Sync>>>(self, error: E) -> Action {
        Action(Done::Error(error.into()))
    }
}

/// What is to be done about a redirect.
#[derive(Debug)]
pub struct Action(Done);

#[derive(Debug)]
enum Done {
    Follow,
    Stop,
    Error(Box<dyn Error + Send + Sync>),
}

#[derive(Debug)]
struct TooMany(usize);

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} redirects in a row", self.0)
    }
}

impl Error for TooMany {}

#[derive(Debug)]
struct BadScheme;

impl fmt::Display for BadScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it leads to something that is neither http nor https")
    }
}

impl Error for BadScheme {}

/// How a client follows.
#[derive(Debug)]
pub(crate) struct Redirects {
    pub(crate) policy: Policy,
    /// Whether the next host is told where from.
    pub(crate) referer: bool,
    /// And these are not for other origins either.
    pub(crate) secret: Vec<HeaderName>,
}

impl Default for Redirects {
    fn default() -> Self {
        Self { policy: Policy::default(), referer: true, secret: Vec::new() }
    }
}

/// Where a request goes next.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) url: Url,
    pub(crate) method: Method,
    /// Whether the body goes along.
    pub(crate) with_body: bool,
}

impl Redirects {
    /// Where the response to a request with this method leads; `None` if it is no redirect, or none that is followed.
    /// `previous` are the addresses up to this one.
    pub(crate) fn next(
        &self,
        method: &Method,
        status: StatusCode,
        headers: &HeaderMap,
        previous: &[Url],
    ) -> Result<Option<Hop>, Box<dyn Error + Send + Sync>> {
        let Some((method, with_body)) = next_method(method, status) else { return Ok(None) };
        let Some(url) = location(headers, previous.last()) else { return Ok(None) };
        match self.policy.redirect(Attempt { status, url: &url, previous }).0 {
            Done::Stop => Ok(None),
            Done::Error(error) => Err(error),
            Done::Follow if !matches!(url.scheme(), "http" | "https") => Err(BadScheme.into()),
            Done::Follow => Ok(Some(Hop { url, method, with_body })),
        }
    }

    /// Leaves to the headers of the request before only what is for the next address.
    pub(crate) fn carry_over(&self, headers: &mut HeaderMap, hop: &Hop, previous: &Url) {
        let elsewhere = hop.url.origin() != previous.origin();
        let is_kept = |name: &HeaderName, value: &HeaderValue| {
            let stays = OF_THE_ORIGIN.contains(name) || is_usually_secret(name) || self.secret.contains(name);
            (hop.with_body || !is_of_the_body(name)) && !(elsewhere && (stays || value.is_sensitive()))
        };
        let left: Vec<_> =
            headers.iter().filter(|(name, value)| !is_kept(name, value)).map(|(name, _)| name.clone()).collect();
        for name in left {
            headers.remove(name);
        }
        if self.referer {
            headers.remove(REFERER);
            headers.extend(referer(previous, &hop.url).map(|referer| (REFERER, referer)));
        }
    }
}

/// The method after this status, and whether the body goes along (RFC 9110, 15.4): as all clients do, a `POST` becomes a `GET` after
/// 301 and 302.
fn next_method(method: &Method, status: StatusCode) -> Option<(Method, bool)> {
    match status {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => Some((method.clone(), true)),
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND if *method != Method::POST => Some((method.clone(), true)),
        StatusCode::SEE_OTHER if *method == Method::HEAD => Some((Method::HEAD, false)),
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => Some((Method::GET, false)),
        _ => None,
    }
}

/// Where it says, without a user and a password: whoever writes a redirect does not say who asks.
fn location(headers: &HeaderMap, previous: Option<&Url>) -> Option<Url> {
    let location = std::str::from_utf8(headers.get(LOCATION)?.as_bytes()).ok()?;
    let mut url = previous?.join(location).ok()?;
    // These fail only for addresses that cannot have them.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    if url.fragment().is_none() {
        url.set_fragment(previous?.fragment());
    }
    Some(url)
}

/// As browsers do ("strict-origin-when-cross-origin"): another origin is told the origin only, for the rest may be a secret,
/// and nothing where all can read it.
fn referer(previous: &Url, next: &Url) -> Option<HeaderValue> {
    if previous.scheme() == "https" && next.scheme() == "http" {
        return None;
    }
    if previous.origin() != next.origin() {
        return format!("{}/", previous.origin().ascii_serialization()).parse().ok();
    }
    let mut referer = previous.clone();
    let _ = referer.set_username("");
    let _ = referer.set_password(None);
    referer.set_fragment(None);
    referer.as_str().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(url: &str) -> Url {
        Url::parse(url).unwrap()
    }

    fn hop(method: &Method, status: u16, location: &str, previous: &str) -> Option<(String, Method, bool)> {
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_str(location).unwrap())]);
        let status = StatusCode::from_u16(status).unwrap();
        let hop = Redirects::default().next(method, status, &headers, &[url(previous)]).unwrap()?;
        Some((hop.url.into(), hop.method, hop.with_body))
    }

    #[test]
    fn methods_and_bodies_go_on_as_everywhere() {
        let next = |method: Method, status: u16| {
            hop(&method, status, "/b", "http://a.example/a").map(|(_, method, body)| (method, body))
        };
        for (status, method, expected) in [
            (301, Method::POST, (Method::GET, false)),
            (302, Method::POST, (Method::GET, false)),
            (303, Method::POST, (Method::GET, false)),
            (303, Method::PUT, (Method::GET, false)),
            (303, Method::HEAD, (Method::HEAD, false)),
            (301, Method::PUT, (Method::PUT, true)),
            (302, Method::GET, (Method::GET, true)),
            (307, Method::POST, (Method::POST, true)),
            (308, Method::DELETE, (Method::DELETE, true)),
        ] {
            assert_eq!(next(method.clone(), status), Some(expected), "{status} {method}");
        }
        for status in [200, 300, 304, 305, 306, 404, 429] {
            assert_eq!(next(Method::GET, status), None, "{status}");
        }
    }

    #[test]
    fn a_location_is_resolved_and_names_nobody() {
        let leads =
            |location| hop(&Method::GET, 302, location, "https://a.example:8443/x/y?z#part").map(|(url, ..)| url);
        assert_eq!(leads("w").as_deref(), Some("https://a.example:8443/x/w#part"));
        assert_eq!(leads("//b.example/").as_deref(), Some("https://b.example/#part"));
        assert_eq!(leads("?q#other").as_deref(), Some("https://a.example:8443/x/y?q#other"));
        assert_eq!(leads("http://me:PW@b.example/").as_deref(), Some("http://b.example/#part"));
        assert_eq!(leads("http://[").as_deref(), None);
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_bytes(b"/\xff").unwrap())]);
        assert_eq!(location(&headers, Some(&url("http://a.example/"))), None);
    }

    #[test]
    fn what_leads_elsewhere_than_to_the_web_is_an_error() {
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("file:///etc/passwd"))]);
        let error = Redirects::default().next(&Method::GET, StatusCode::FOUND, &headers, &[url("http://a.example/")]);
        assert!(error.unwrap_err().to_string().contains("neither http nor https"));
    }

    #[test]
    fn what_the_caller_says_of_where_it_comes_from_is_not_for_others_either() {
        let redirects = Redirects { referer: false, ..Redirects::default() };
        let mut headers = HeaderMap::from_iter([(REFERER, HeaderValue::from_static("http://a.example/?key=1"))]);
        let hop = Hop { url: url("http://b.example/"), method: Method::GET, with_body: true };
        redirects.carry_over(&mut headers, &hop, &url("http://a.example/"));
        assert!(headers.is_empty());
    }

    #[test]
    fn another_origin_sees_no_credentials() {
        let mut sensitive = HeaderValue::from_static("s");
        sensitive.set_sensitive(true);
        let redirects = Redirects { secret: vec![HeaderName::from_static("x-mine")], ..Redirects::default() };
        let kept = |next: &str| {
            let mut headers = HeaderMap::new();
            for name in [
                "authorization",
                "cookie",
                "proxy-authorization",
                "x-api-key",
                "x-mine",
                "accept",
                "content-type",
                "host",
                "x-vault-token",
                "idempotency-key",
                "content-md5",
                "expect",
            ] {
                headers.insert(name, HeaderValue::from_static("1"));
            }
            headers.insert("x-odd", sensitive.clone());
            let hop = Hop { url: url(next), method: Method::GET, with_body: false };
            redirects.carry_over(&mut headers, &hop, &url("https://me:PW@a.example/p?q#f"));
            let mut kept: Vec<_> = headers.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            kept.sort();
            kept
        };
        let same = kept("https://a.example/other");
        assert!(same.len() == 11 && same.contains(&"referer=\"https://a.example/p?q\"".to_owned()), "{same:?}");
        let elsewhere = ["accept=\"1\"", "idempotency-key=\"1\"", "referer=\"https://a.example/\""];
        assert_eq!(kept("https://b.example/"), elsewhere);
        assert_eq!(kept("https://a.example:8443/"), elsewhere);
        assert_eq!(kept("http://a.example/"), elsewhere[..2], "nor where from, where all can read it");
    }
}
