//! The drop-in: [`Client`], and the [`ClientBuilder`] that sets its limits.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, HeaderName, Method};
use reqwest::{IntoUrl, Request, Response, Url, retry};

use crate::admission::Snapshot;
use crate::backoff::Backoff;
use crate::counting::{FIRST_HOST, Rules};
use crate::error::{Error, shown};
use crate::exchange::{Retries, Sender, Terms};
use crate::invalid::Invalid;
use crate::key::Key;
use crate::limiter::{Limiter, LimiterBuilder};
use crate::limits::Limits;
use crate::observe::Waits;
use crate::redirect::{Policy, Redirects};
use crate::request::RequestBuilder;
use crate::retry_budget::RetryBudget;
use crate::unread::{UNREAD_FOR, Unread};

/// How many times a request is sent at most, unless set.
const MOST_ATTEMPTS: usize = 4;

/// Of a hundred requests, and in ten seconds.
const RETRY_BUDGET: (u32, u32) = (20, 10);

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
/// use std::error::Error as _;
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
/// assert!(error.source().unwrap().to_string().starts_with("each_host: quota `0/s` cannot be kept"));
/// ```
#[must_use = "a client is only made by `build`"]
pub struct ClientBuilder {
    http: Http,
    headers: HeaderMap,
    whole: Option<Limits>,
    each_host: Limits,
    each_key: Limits,
    /// Each with the keys that its addresses may have.
    hosts: Vec<(Vec<Key>, Limits)>,
    limiter: LimiterBuilder,
    most_attempts: usize,
    backoff: Backoff,
    trusts_503: bool,
    retry_budget: (u32, u32),
    unread_for: Duration,
    redirects: Redirects,
    /// The first setting that cannot be kept.
    invalid: Option<Invalid>,
}

/// What sends.
enum Http {
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
            invalid: None,
        }
    }

    // --- limits

    /// A limit of the whole client, beside those of its hosts: a [`Limits`], a [`Quota`](crate::Quota), or a quota's text,
    /// as in `"10/s"`. Set again, it is one more.
    pub fn limit<L>(mut self, limits: L) -> Self
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        let limits = self.checked("limit", limits);
        self.whole = Some(self.whole.unwrap_or_default().with(limits));
        self
    }

    /// How many requests of the whole client may be in flight at once, until their bodies have ended. For a host:
    /// [`Limits::in_flight`].
    pub fn max_in_flight(self, most: usize) -> Self {
        self.limit(Limits::new().in_flight(most))
    }

    /// The limits of each host (with its port, whatever the scheme) that has none of its own, every host counted by itself.
    pub fn each_host<L>(mut self, limits: L) -> Self
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        self.each_host = self.checked("each_host", limits);
        self
    }

    /// The limits of one host, as in `"api.example.com"` or `"localhost:8080"`, in the place of those of
    /// [`each_host`](Self::each_host).
    pub fn host<L>(mut self, host: &str, limits: L) -> Self
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        let limits = self.checked("host", limits);
        let keys = host_keys(host);
        if keys.is_empty() {
            self.refuse(Invalid::new("host", shown(host), "a host as in `api.example.com` or `localhost:8080`"));
        }
        self.hosts.retain(|(others, _)| others.iter().all(|other| !keys.contains(other)));
        self.hosts.push((keys, limits));
        self
    }

    /// The limits of each key that requests name with [`RequestBuilder::key`], every key counted by itself.
    pub fn each_key<L>(mut self, limits: L) -> Self
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        self.each_key = self.checked("each_key", limits);
        self
    }

    fn checked<L>(&mut self, setting: &'static str, limits: L) -> Limits
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        limits.try_into().map_err(Into::into).and_then(|limits| limits.check().map(|()| limits)).unwrap_or_else(
            |invalid| {
                self.refuse(invalid.inside(setting));
                Limits::new()
            },
        )
    }

    fn refuse(&mut self, invalid: Invalid) {
        self.invalid.get_or_insert(invalid);
    }

    // --- waiting

    /// How long a request waits that has no deadline of its own. Five minutes unless set.
    pub fn max_wait(mut self, most: Duration) -> Self {
        self.limiter = self.limiter.max_wait(most);
        self
    }

    /// How many requests may wait in all, as [`LimiterBuilder::max_waiting`]. 10 000 unless set.
    pub fn max_waiting(mut self, most: usize) -> Self {
        self.limiter = self.limiter.max_waiting(most);
        self
    }

    /// How many hosts and keys there may be that are not at rest, as [`LimiterBuilder::max_keys`]. 100 000 unless set; at least 3,
    /// for a request passes up to as many.
    pub fn max_keys(mut self, most: usize) -> Self {
        if most < 3 {
            self.refuse(Invalid::new("max_keys", most.to_string(), "at least 3: a request passes up to as many"));
        }
        self.limiter = self.limiter.max_keys(most);
        self
    }

    /// Tells why a request waits, once it has waited for a second, as [`LimiterBuilder::on_wait`].
    pub fn on_wait(mut self, tell: impl Fn(&Waits) + Send + Sync + 'static) -> Self {
        self.limiter = self.limiter.on_wait(tell);
        self
    }

    // --- going again

    /// How many times a request is sent at most to one address, if it is refused because of traffic, or fails and may be
    /// repeated. Four times unless set; at least once.
    pub fn max_attempts(mut self, most: usize) -> Self {
        self.most_attempts = most.max(1);
        self
    }

    /// How long a request waits before it is repeated, where no server says how long: anything up to `first`, which doubles
    /// with each time, up to `most` (exponential, with full jitter). Half a second and 30 s unless set.
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        self.backoff = Backoff { first, most };
        self
    }

    /// How many repetitions there may be that no server has asked for: so many for a hundred requests of the last ten seconds,
    /// and so many in ten seconds whatever the traffic. 20 and 10 unless set. Whoever is not repeated gets its answer as it came.
    pub fn retry_budget(mut self, percent: u32, floor: u32) -> Self {
        self.retry_budget = (percent, floor);
        self
    }

    /// Takes a 503 to say that nothing was done: it is repeated whatever the method. Unless set, only requests are that may be
    /// done twice, by their method or an `Idempotency-Key`.
    pub fn trust_503(mut self, trust: bool) -> Self {
        self.trusts_503 = trust;
        self
    }

    // --- responses

    /// For how long nobody has to read a response until it does not count as in flight any more. A minute unless set. A
    /// read that waits for the server counts as reading.
    pub fn unread_for(mut self, most: Duration) -> Self {
        self.unread_for = most;
        self
    }

    // --- redirects

    /// Which redirects are followed: ten in a row, unless set. Each hop waits for its turn at its own host. With one of
    /// reqwest's clients or builders, that follows as it was told.
    pub fn redirect(mut self, policy: Policy) -> Self {
        self.redirects.policy = policy;
        self
    }

    /// Whether the next address is told in `Referer` where from; it is unless set. Another origin is told no more than this
    /// one's.
    pub fn referer(mut self, enable: bool) -> Self {
        self.redirects.referer = enable;
        self
    }

    /// A header that no other origin is to see when a redirect leads there, as `authorization`, `cookie`, `x-api-key` and
    /// their kin are not, nor any value that is marked as sensitive.
    pub fn sensitive_header(mut self, name: HeaderName) -> Self {
        self.redirects.secret.push(name);
        self
    }

    // --- what reqwest's builder sets

    /// Headers that go out with each request, unless it has one of that name.
    pub fn default_headers(mut self, headers: HeaderMap) -> Self {
        for name in headers.keys() {
            self.headers.remove(name);
        }
        self.headers.extend(headers);
        self
    }

    /// Sets what reqwest's own builder sets, if it is not here by the same name.
    ///
    /// reqwest's own redirects and retries stay off, whatever is set here, unless it is a builder of somebody else's
    /// ([`Client::from_reqwest`]): they would send requests that nobody counted. Default headers that are set here and not with
    /// [`default_headers`](Self::default_headers) go out with every hop.
    pub fn reqwest(mut self, change: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder) -> Self {
        match &mut self.http {
            Http::Ours(http) | Http::Theirs(http) => **http = change(std::mem::take(&mut **http)),
            Http::Built(_) => self.refuse(Invalid::new(
                "reqwest",
                "a setting",
                "settings of a builder: `Client::from_reqwest` was given a client that is built already",
            )),
        }
        self
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
        let limits = [self.each_host, self.whole.unwrap_or_default(), self.each_key];
        let limits = limits.into_iter().chain(self.hosts.into_iter().map(|(_, limits)| limits));
        let limiter = self.limiter.rules(limits).build()?;
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
        Ok(Client { sender: Arc::new(Sender { http, limiter, rules, headers, retries, redirects, unread }) })
    }
}

/// The keys of a host, as the addresses of requests have them; none if it is no host. The port of a scheme goes without saying
/// there, and not with the other scheme.
fn host_keys(host: &str) -> Vec<Key> {
    let is_plain = |letter: char| !letter.is_whitespace() && !letter.is_control() && !"/?#@*\\".contains(letter);
    let url = Url::parse(&format!("http://{host}/")).ok().filter(|_| host.chars().all(is_plain));
    let Some((name, port)) = url.as_ref().and_then(|url| Some((url.host_str()?, url.port()))) else {
        return Vec::new();
    };
    match port {
        None if host.ends_with(":80") => vec![Key::host(name, None), Key::host(name, Some(80))],
        Some(443) => vec![Key::host(name, None), Key::host(name, port)],
        _ => vec![Key::host(name, port)],
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
