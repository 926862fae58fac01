//! The drop-in: [`Client`], and the [`ClientBuilder`] that sets its limits.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Method};
use reqwest::{IntoUrl, Request, Response, Url, retry};

use crate::admission::Snapshot;
use crate::backoff::Backoff;
use crate::counting::Rules;
use crate::error::Error;
use crate::exchange::{Exchange, MOST_ATTEMPTS, RETRY_BUDGET, Retries, Terms};
use crate::invalid::Invalid;
use crate::key::Key;
use crate::known::{EACH_HOST, FIRST_HOST, LEARNED, WHOLE};
use crate::limiter::{Limiter, LimiterBuilder};
use crate::limits::Limits;
use crate::observe::Tell;
use crate::redirect::Redirects;
use crate::request::RequestBuilder;
use crate::retry_budget::RetryBudget;
use crate::sender::Sender;
use crate::unread::{UNREAD_FOR, Unread};

/// How many requests to one host are in flight at most, of one who is careful.
const CAREFUL: usize = 4;

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

    /// Settings for a client over one of reqwest's, or over its builder.
    ///
    /// It sends as it was told: redirects that it follows and retries of its own are requests that are not counted, and its
    /// default headers go out with them. With [`Client::builder`] none of that happens.
    ///
    /// # Examples
    ///
    /// ```
    /// use reqwest_throttle::Client;
    ///
    /// let http = reqwest::Client::new();
    /// let client = Client::from_reqwest(http).limit("10/s").build()?;
    /// # Ok::<(), reqwest_throttle::Error>(())
    /// ```
    pub fn from_reqwest(http: impl Into<ClientBuilder>) -> ClientBuilder {
        http.into()
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
        let parsed =
            Url::parse(url.as_str()).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let inner = match parsed {
            Some(url) => Ok(self.sender.http.request(method, url)),
            None => Err(bad_address(url)),
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
        async move { sender.send(request, &Terms::default()).await }
    }

    pub(crate) fn exchange(&self) -> Arc<Exchange> {
        Arc::clone(&self.sender.exchange)
    }

    /// How each host, each key and the whole client stand: what is left, how many are in flight, who waits and for what.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.sender.snapshot()
    }
}

fn bad_address<U: IntoUrl>(url: U) -> Error {
    let address = url.as_str().to_owned();
    Error::bad_address(&address, url.into_url().err())
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

impl RequestBuilder {
    /// A request that is built already, to be sent by this client.
    pub fn from_parts(client: Client, request: Request) -> Self {
        let inner = reqwest::RequestBuilder::from_parts(client.sender.http.clone(), request);
        Self::new(client.sender, Ok(inner))
    }

    /// Builds the request, as [`build`](Self::build), and answers the client too.
    pub fn build_split(self) -> (Client, Result<Request, Error>) {
        (Client { sender: Arc::clone(&self.sender) }, self.build())
    }
}

/// The settings of a [`Client`]. Setters never fail: what cannot be kept is refused by [`build`](Self::build).
///
/// What reqwest's builder sets is set by the same names; [`reqwest`](Self::reqwest) reaches the rest of it.
///
/// # Examples
///
/// ```
/// use reqwest_throttle::{Client, Limits};
/// use std::time::Duration;
///
/// let client = Client::builder()
///     .limit("100/s")
///     .max_in_flight(8)
///     .host("api.github.com", Limits::new().quota("5000/hour").in_flight(50))
///     .each_host("5/s")
///     .timeout(Duration::from_secs(30))
///     .build();
/// assert!(client.is_ok());
/// let error = Client::builder().each_host("0/s").build().unwrap_err();
/// assert!(error.to_string().starts_with("the client cannot be built: each_host: quota `0/s` cannot be kept"));
/// ```
#[must_use = "a client is only made by `build`"]
pub struct ClientBuilder {
    pub(crate) http: Http,
    pub(crate) headers: HeaderMap,
    pub(crate) whole: Option<Limits>,
    pub(crate) each_host: Limits,
    pub(crate) each_key: Limits,
    /// Each with the keys that its addresses may have.
    pub(crate) hosts: Vec<(Vec<Key>, Limits)>,
    pub(crate) limiter: LimiterBuilder,
    pub(crate) most_attempts: usize,
    pub(crate) backoff: Backoff,
    pub(crate) trusts_503: bool,
    pub(crate) retry_budget: (u32, u32),
    pub(crate) unread_for: Duration,
    pub(crate) redirects: Redirects,
    pub(crate) heeds_reports: bool,
    pub(crate) careful: bool,
    pub(crate) on_send: Option<Tell<Request>>,
    /// The first setting that cannot be kept.
    pub(crate) invalid: Option<Invalid>,
}

/// What sends.
pub(crate) enum Http {
    /// A builder of ours: it follows nothing and repeats nothing.
    Ours(Box<reqwest::ClientBuilder>),
    /// A builder of somebody else's.
    Theirs(Box<reqwest::ClientBuilder>),
    Built(reqwest::Client),
}

impl ClientBuilder {
    /// No limits, and reqwest's own settings.
    pub fn new() -> Self {
        Self::over(Http::Ours(Box::new(reqwest::Client::builder())))
    }

    fn over(http: Http) -> Self {
        Self {
            http,
            headers: HeaderMap::new(),
            whole: None,
            each_host: Limits::new(),
            each_key: Limits::new(),
            hosts: Vec::new(),
            limiter: Limiter::builder(Limits::new()),
            most_attempts: MOST_ATTEMPTS,
            backoff: Backoff::default(),
            trusts_503: false,
            retry_budget: RETRY_BUDGET,
            unread_for: UNREAD_FOR,
            redirects: Redirects::default(),
            heeds_reports: true,
            careful: false,
            on_send: None,
            invalid: None,
        }
    }

    /// Builds the client.
    ///
    /// # Errors
    ///
    /// When a limit cannot be kept, with the setting, its value and what is allowed; when reqwest cannot be set up.
    pub fn build(self) -> Result<Client, Error> {
        if let Some(invalid) = self.invalid {
            return Err(invalid.into());
        }
        let numbers = (FIRST_HOST..).zip(&self.hosts);
        let numbers = numbers.flat_map(|(rule, (keys, _))| keys.iter().map(move |key| (key.clone(), rule)));
        let rules = Rules::new(numbers.collect(), self.whole.is_some().then(|| Key::new("")));
        let careful = if self.careful { Limits::new().in_flight(CAREFUL) } else { Limits::new() };
        let learned = Limits::new();
        let limits = [self.each_host.with(careful), self.whole.unwrap_or_default(), self.each_key, learned];
        let limits = limits.into_iter().chain(self.hosts.into_iter().map(|(_, limits)| limits));
        let limits: Vec<_> = limits.collect();
        let is_counted = [WHOLE, EACH_HOST].iter().any(|rule| !limits[*rule].quotas().is_empty());
        let limiter = self.limiter.rules(limits).optional(LEARNED);
        let limiter = if is_counted { limiter.counted() } else { limiter }.build()?;
        let (http, redirects) = match self.http {
            Http::Ours(http) => {
                let http = http.redirect(reqwest::redirect::Policy::none()).retry(retry::never());
                (http.build()?, Some(self.redirects))
            }
            Http::Theirs(http) => (http.build()?, None),
            Http::Built(http) => (http, None),
        };
        let (headers, (percent, floor)) = (self.headers, self.retry_budget);
        let (most_attempts, backoff, trusts_503) = (self.most_attempts, self.backoff, self.trusts_503);
        let budget = Mutex::new(RetryBudget::new(percent, floor));
        let retries = Retries { most_attempts, backoff, trusts_503, budget };
        let unread = Arc::new(Unread::new(self.unread_for));
        let heeds_reports = self.heeds_reports;
        let exchange = Arc::new(Exchange { limiter, rules, retries, unread, heeds_reports });
        Ok(Client { sender: Arc::new(Sender { http, exchange, headers, redirects, on_send: self.on_send }) })
    }
}

impl From<reqwest::Client> for ClientBuilder {
    fn from(http: reqwest::Client) -> Self {
        Self::over(Http::Built(http))
    }
}

impl From<reqwest::ClientBuilder> for ClientBuilder {
    fn from(http: reqwest::ClientBuilder) -> Self {
        Self::over(Http::Theirs(Box::new(http)))
    }
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whole, each_host, each_key, hosts, invalid, .. } = self;
        f.debug_struct("ClientBuilder")
            .field("limit", whole)
            .field("each_host", each_host)
            .field("each_key", each_key)
            .field("hosts", hosts)
            .field("invalid", invalid)
            .finish_non_exhaustive()
    }
}
