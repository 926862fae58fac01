//! What one request asks for: [`RequestBuilder`], reqwest's own with a wait budget.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Version};
use reqwest::{Body, Request, Response};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::cost::Unit;
use crate::error::Error;
use crate::exchange::Terms;
use crate::key::Key;
use crate::priority::Priority;
use crate::sender::Sender;
use crate::wire::host;

/// A request in the making, as [`reqwest::RequestBuilder`], with what its waiting asks for. [`send`](Self::send) waits for the
/// request's turn.
///
/// # Examples
///
/// ```no_run
/// # async fn run() -> Result<(), reqwest_throttle::Error> {
/// use reqwest_throttle::{Client, Priority};
/// use std::time::Duration;
///
/// let client = Client::builder().limit("50/s, 100_000 tokens/min").build()?;
/// let request = client.post("https://example.com/").body("a prompt").cost("tokens", 1_200);
/// let response = request.within(Duration::from_secs(5)).priority(Priority::Low).flow("tenant-7").send().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a request is only sent by `send`"]
pub struct RequestBuilder {
    pub(crate) sender: Arc<Sender>,
    inner: Result<reqwest::RequestBuilder, Error>,
    terms: Terms,
}

impl RequestBuilder {
    pub(crate) fn new(sender: Arc<Sender>, inner: Result<reqwest::RequestBuilder, Error>) -> Self {
        Self { sender, inner, terms: Terms::default() }
    }

    fn map(mut self, change: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder) -> Self {
        self.inner = self.inner.map(change);
        self
    }

    /// Adds a header.
    pub fn header<K, V>(self, key: K, value: V) -> Self
    where
        HeaderName: TryFrom<K>,
        <HeaderName as TryFrom<K>>::Error: Into<http::Error>,
        HeaderValue: TryFrom<V>,
        <HeaderValue as TryFrom<V>>::Error: Into<http::Error>,
    {
        self.map(|inner| inner.header(key, value))
    }

    /// Adds headers, in the place of those that are there already.
    pub fn headers(self, headers: HeaderMap) -> Self {
        self.map(|inner| inner.headers(headers))
    }

    /// Sets the header `Authorization: Bearer …`.
    pub fn bearer_auth<T: fmt::Display>(self, token: T) -> Self {
        self.map(|inner| inner.bearer_auth(token))
    }

    /// Sets the header `Authorization: Basic …`.
    pub fn basic_auth<U: fmt::Display, P: fmt::Display>(self, username: U, password: Option<P>) -> Self {
        self.map(|inner| inner.basic_auth(username, password))
    }

    /// Sets the version of HTTP.
    pub fn version(self, version: Version) -> Self {
        self.map(|inner| inner.version(version))
    }

    /// Sets the body. One that is in memory can be sent again after a refusal, a stream only once.
    pub fn body<T: Into<Body>>(self, body: T) -> Self {
        self.map(|inner| inner.body(body))
    }

    /// Sets the body to this value as JSON.
    #[cfg(feature = "json")]
    #[cfg_attr(docsrs, doc(cfg(feature = "json")))]
    pub fn json<T: serde::Serialize + ?Sized>(self, json: &T) -> Self {
        self.map(|inner| inner.json(json))
    }

    /// Adds this value to the query of the address.
    #[cfg(feature = "query")]
    #[cfg_attr(docsrs, doc(cfg(feature = "query")))]
    pub fn query<T: serde::Serialize + ?Sized>(self, query: &T) -> Self {
        self.map(|inner| inner.query(query))
    }

    /// Sets the body to this value as a form.
    #[cfg(feature = "form")]
    #[cfg_attr(docsrs, doc(cfg(feature = "form")))]
    pub fn form<T: serde::Serialize + ?Sized>(self, form: &T) -> Self {
        self.map(|inner| inner.form(form))
    }

    /// Sets the body to a form of several parts. reqwest sends it as a stream, so it is sent only once.
    #[cfg(feature = "multipart")]
    #[cfg_attr(docsrs, doc(cfg(feature = "multipart")))]
    pub fn multipart(self, multipart: reqwest::multipart::Form) -> Self {
        self.map(|inner| inner.multipart(multipart))
    }

    /// How long one attempt may take, from its sending to the end of its body. Waiting for one's turn does not count:
    /// that is [`within`](Self::within).
    pub fn timeout(self, timeout: Duration) -> Self {
        self.map(|inner| inner.timeout(timeout))
    }

    /// How long everything may take until the response is there, from [`send`](Self::send) on: waiting for its turn,
    /// pauses that the server asks for, and all attempts. Without it, the waiting takes five minutes at most.
    pub fn within(mut self, budget: Duration) -> Self {
        self.terms.budget = Some(budget);
        self
    }

    /// The same as an instant: until when the response has to be there.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.terms.budget = None;
        self.change(|context| context.until(deadline))
    }

    /// What it takes beside one request: so much of a unit that quotas count, as `tokens`.
    pub fn cost(self, unit: impl Into<Unit>, amount: u64) -> Self {
        self.change(|context| context.cost(unit, amount))
    }

    /// Counts it against this key too, a tenant or an account, by the limits that
    /// [`ClientBuilder::each_key`](crate::ClientBuilder::each_key) says.
    pub fn key(mut self, key: &str) -> Self {
        self.terms.key = Some(Key::new(key));
        self
    }

    /// How urgent it is. [`Priority::Normal`] unless said.
    pub fn priority(self, priority: Priority) -> Self {
        self.change(|context| context.priority(priority))
    }

    /// For whom it is: those of the same priority take turns, as [`Context::flow`] says.
    pub fn flow(self, name: impl Into<Arc<str>>) -> Self {
        self.change(|context| context.flow(name))
    }

    /// Gives it up when this token is cancelled, whether it waits or an attempt is under way.
    pub fn cancel_on(self, token: &CancellationToken) -> Self {
        self.change(|context| context.cancel_on(token))
    }

    /// Deadline, cost, priority, flow and token in one, in the place of those that were set before.
    pub fn context(mut self, context: &Context) -> Self {
        self.terms.budget = None;
        self.terms.context = context.clone();
        self
    }

    /// It does not count as in flight any more once the head of its response has come; else it does until its body has
    /// ended.
    pub fn release_on_headers(mut self) -> Self {
        self.terms.release_on_headers = true;
        self
    }

    fn change(mut self, change: impl FnOnce(Context) -> Context) -> Self {
        self.terms.context = change(self.terms.context);
        self
    }

    /// Counts it as sent by an earlier run of the program, or by another program, `ago`: at the limits of the whole client, of its
    /// host and of its key, as [`Limiter::count_as_sent`](crate::Limiter::count_as_sent). Nothing is sent.
    ///
    /// # Errors
    ///
    /// When the request cannot be built.
    pub fn count_as_sent(self, ago: Duration) -> Result<(), Error> {
        let request = self.inner?.build()?;
        self.sender.exchange.count_as_sent(host(request.url()), &self.terms, ago);
        Ok(())
    }

    /// Builds the request, to be sent with [`Client::execute`](crate::Client::execute). What its waiting asks for is not part
    /// of it, nor are the client's default headers.
    ///
    /// # Errors
    ///
    /// When the address, a header or the body cannot be used.
    pub fn build(self) -> Result<Request, Error> {
        Ok(self.inner?.build()?)
    }

    /// A second one like it. `None` if its body is a stream, or it cannot be built.
    #[must_use]
    pub fn try_clone(&self) -> Option<Self> {
        let inner = self.inner.as_ref().ok()?.try_clone()?;
        Some(Self { sender: Arc::clone(&self.sender), inner: Ok(inner), terms: self.terms.clone() })
    }

    /// Waits for the request's turn, and sends it; again, in its place, if it is refused because of traffic, or fails where doing
    /// it twice is as good as once; and on to where a redirect leads. A refusal pauses the host for everybody who uses this
    /// client (or a clone of it). The last answer is returned as it came, with its [`Attempts`](crate::Attempts) in the extensions.
    ///
    /// # Errors
    ///
    /// When our own limits do not let it go in time ([`Error::is_refused`]), when the request cannot be built, and when the
    /// network fails. [`Error::attempts`] says how many requests were sent before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, or gives the attempt up; others move up at once.
    pub async fn send(self) -> Result<Response, Error> {
        self.sender.send(self.inner?.build()?, &self.terms).await
    }
}

impl fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBuilder").field("terms", &self.terms).finish_non_exhaustive()
    }
}
