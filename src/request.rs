//! What one request asks for: [`RequestBuilder`], reqwest's own with a wait budget.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Version};
use reqwest::{Body, Request, Response};

use crate::context::Context;
use crate::cost::Unit;
use crate::error::Error;
use crate::exchange::Sender;

/// A request in the making, as [`reqwest::RequestBuilder`], with a budget for the wait. [`send`](Self::send) waits for the
/// request's turn.
#[must_use = "a request is only sent by `send`"]
pub struct RequestBuilder {
    sender: Arc<Sender>,
    inner: Result<reqwest::RequestBuilder, Error>,
    budget: Option<Duration>,
    context: Context,
}

impl RequestBuilder {
    pub(crate) fn new(sender: Arc<Sender>, inner: Result<reqwest::RequestBuilder, Error>) -> Self {
        Self { sender, inner, budget: None, context: Context::new() }
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

    /// How long one attempt may take, from its sending to the end of its body. Waiting for one's turn does not count:
    /// that is [`within`](Self::within).
    pub fn timeout(self, timeout: Duration) -> Self {
        self.map(|inner| inner.timeout(timeout))
    }

    /// How long everything may take until the response is there, from [`send`](Self::send) on: waiting for its turn,
    /// pauses that the server asks for, and all attempts. Without it, the waiting takes five minutes at most.
    pub fn within(mut self, budget: Duration) -> Self {
        self.budget = Some(budget);
        self
    }

    /// What it takes beside one request: so much of a unit that quotas count, as `tokens`.
    pub fn cost(mut self, unit: impl Into<Unit>, amount: u64) -> Self {
        self.context = self.context.cost(unit, amount);
        self
    }

    /// Builds the request, to be sent with [`Client::execute`](crate::Client::execute). A budget that was set with
    /// [`within`](Self::within) is not part of it.
    ///
    /// # Errors
    ///
    /// When the address, a header or the body cannot be used.
    pub fn build(self) -> Result<Request, Error> {
        Ok(self.inner?.build()?)
    }

    /// Waits for the request's turn, and sends it. A 429 pauses the host for everybody who uses this client (or a clone
    /// of it) and is repeated, in its place, up to three times; the last answer is returned as it came.
    ///
    /// # Errors
    ///
    /// When our own limits do not let it go in time ([`Error::is_refused`]; nothing was sent), when the request cannot
    /// be built, and when the network fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, or gives the attempt up; others move up at once.
    pub async fn send(self) -> Result<Response, Error> {
        let context = self.budget.map_or_else(|| self.context.clone(), |budget| self.context.but_within(budget));
        let request = self.inner?.build()?;
        self.sender.send(request, &context).await
    }
}

impl fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBuilder").field("budget", &self.budget).finish_non_exhaustive()
    }
}
