//! The drop-in: [`Client`], and the [`ClientBuilder`] that sets its limits.

use std::fmt;
use std::sync::Arc;

use http::Method;
use reqwest::{IntoUrl, Request, Response, redirect, retry};

use crate::context::Context;
use crate::error::Error;
use crate::exchange::Sender;
use crate::invalid::Invalid;
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::request::RequestBuilder;

/// A client that waits until its limits let a request go. Clones share the limits and the connections.
///
/// # Examples
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest_throttle::{Client, Limits};
///
/// let client = Client::builder().each_host(Limits::new().quota("10/s").in_flight(4)).build()?;
/// let text = client.get("https://example.com/").send().await?.error_for_status()?.text().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    sender: Arc<Sender>,
}

impl Client {
    /// A client without limits of its own. It still heeds a 429 for everybody who shares it.
    ///
    /// # Panics
    ///
    /// As [`reqwest::Client::new`]: when there is no TLS to be had. [`Client::builder`] answers with an error instead.
    #[must_use]
    #[expect(clippy::expect_used, reason = "as reqwest's, whose place it takes")]
    pub fn new() -> Self {
        Self::builder().build().expect("a client without settings fails only for lack of TLS")
    }

    /// A client with settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// A `GET` request.
    pub fn get<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// A `POST` request.
    pub fn post<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// A `PUT` request.
    pub fn put<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// A `PATCH` request.
    pub fn patch<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// A `DELETE` request.
    pub fn delete<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }

    /// A `HEAD` request.
    pub fn head<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::HEAD, url)
    }

    /// A request with any method.
    pub fn request<U: IntoUrl>(&self, method: Method, url: U) -> RequestBuilder {
        let address = url.as_str().to_owned();
        let inner = match url.into_url() {
            Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(self.sender.http().request(method, url)),
            Ok(_) => Err(Error::bad_address(&address, None)),
            Err(error) => Err(Error::bad_address(&address, Some(error))),
        };
        RequestBuilder::new(Arc::clone(&self.sender), inner)
    }

    /// Waits for the turn of a request that is built already, and sends it. As [`RequestBuilder::send`].
    ///
    /// # Errors
    ///
    /// As [`RequestBuilder::send`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, or gives the attempt up; others move up at once.
    pub fn execute(&self, request: Request) -> impl Future<Output = Result<Response, Error>> + Send + use<> {
        let sender = Arc::clone(&self.sender);
        async move { sender.send(request, &Context::new()).await }
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// The settings of a [`Client`]. Setters never fail: what cannot be kept is refused by [`build`](Self::build).
///
/// # Examples
///
/// ```
/// use reqwest_throttle::Client;
/// use std::error::Error as _;
/// use std::time::Duration;
///
/// let client = Client::builder().each_host("10/s, 4 in flight").reqwest(|http| http.timeout(Duration::from_secs(30))).build();
/// assert!(client.is_ok());
/// let error = Client::builder().each_host("0/s").build().unwrap_err();
/// assert!(error.source().unwrap().to_string().starts_with("each_host: quota `0/s` cannot be kept"));
/// ```
#[must_use = "a client is only made by `build`"]
pub struct ClientBuilder {
    http: reqwest::ClientBuilder,
    each_host: Result<Limits, Invalid>,
}

impl ClientBuilder {
    /// No limits, and reqwest's own settings.
    pub fn new() -> Self {
        Self { http: reqwest::Client::builder(), each_host: Ok(Limits::new()) }
    }

    /// The limits of each host (with its port, whatever the scheme), every host counted by itself: a [`Limits`], a [`Quota`](crate::Quota), or a quota's
    /// text, as in `"10/s"`.
    pub fn each_host<L>(mut self, limits: L) -> Self
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        self.each_host = limits.try_into().map_err(Into::into);
        self
    }

    /// Sets what reqwest's own builder sets: time-outs, proxies, default headers, TLS.
    ///
    /// Its redirects and its retries stay off, whatever is set here: they would send requests that nobody counted.
    pub fn reqwest(mut self, change: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder) -> Self {
        self.http = change(self.http);
        self
    }

    /// Builds the client.
    ///
    /// # Errors
    ///
    /// When a limit cannot be kept, with the setting, its value and what is allowed; when reqwest cannot be set up.
    pub fn build(self) -> Result<Client, Error> {
        let limiter = self.each_host.and_then(Limiter::new).map_err(|invalid| invalid.inside("each_host"))?;
        let http = self.http.redirect(redirect::Policy::none()).retry(retry::never()).build()?;
        Ok(Client { sender: Arc::new(Sender::new(http, limiter)) })
    }
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("each_host", &self.each_host).finish_non_exhaustive()
    }
}
