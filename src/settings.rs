//! What a client is set to: its limits, how it waits, when it goes again, what it follows.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use reqwest::{Request, Url};

use crate::backoff::Backoff;
use crate::client::{ClientBuilder, Http};
use crate::error::shown;
use crate::invalid::Invalid;
use crate::key::Key;
use crate::limiter::checked;
use crate::limits::Limits;
use crate::observe::{Tell, Waits};
use crate::redirect::Policy;

impl ClientBuilder {
    // --- limits

    /// A limit of the whole client, beside those of its hosts: a [`Limits`], a [`Quota`](crate::Quota), or a quota's text,
    /// as in `"10/s"`. Set again, it is one more.
    pub fn limit<L>(mut self, limits: L) -> Self
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        let limits = self.kept("limit", limits);
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
        self.each_host = self.kept("each_host", limits);
        self
    }

    /// The limits of one host, as in `"api.example.com"` or `"localhost:8080"`, in the place of those of
    /// [`each_host`](Self::each_host). A name without a port is that of the usual ports, 80 and 443, and of no other.
    pub fn host<L>(mut self, host: &str, limits: L) -> Self
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        let limits = self.kept("host", limits);
        let keys = host_keys(host);
        if keys.is_empty() {
            self.refuse(Invalid::new("host", shown(host), "a host as in `api.example.com` or `localhost:8080`"));
        }
        self.hosts.retain(|(others, _)| others.iter().all(|other| !keys.contains(other)));
        self.hosts.push((keys, limits));
        self
    }

    /// The limits of each key that requests name with [`RequestBuilder::key`](crate::RequestBuilder::key), every key counted by itself.
    pub fn each_key<L>(mut self, limits: L) -> Self
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        self.each_key = self.kept("each_key", limits);
        self
    }

    fn kept<L>(&mut self, setting: &'static str, limits: L) -> Limits
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        checked(limits).unwrap_or_else(|invalid| {
            self.refuse(invalid.inside(setting));
            Limits::new()
        })
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

    /// How many requests may wait in all, as [`LimiterBuilder::max_waiting`](crate::LimiterBuilder::max_waiting). 10 000 unless set.
    pub fn max_waiting(mut self, most: usize) -> Self {
        self.limiter = self.limiter.max_waiting(most);
        self
    }

    /// How many hosts and keys there may be that are not at rest, as [`LimiterBuilder::max_keys`](crate::LimiterBuilder::max_keys). 100 000 unless set; at least 3,
    /// for a request passes up to as many.
    pub fn max_keys(mut self, most: usize) -> Self {
        if most < 3 {
            self.refuse(Invalid::new("max_keys", most.to_string(), "at least 3: a request passes up to as many"));
        }
        self.limiter = self.limiter.max_keys(most);
        self
    }

    /// Tells why a request waits, once it has waited for a second, as [`LimiterBuilder::on_wait`](crate::LimiterBuilder::on_wait).
    pub fn on_wait(mut self, tell: impl Fn(&Waits) + Send + Sync + 'static) -> Self {
        self.limiter = self.limiter.on_wait(tell);
        self
    }

    // --- what servers say

    /// Tells each request that leaves, when it does: each attempt, and each hop where a redirect leads. What a client of reqwest's
    /// follows by itself is not told. It is called by the task that sends, and must not block.
    pub fn on_send(mut self, tell: impl Fn(&Request) + Send + Sync + 'static) -> Self {
        self.on_send = Some(Tell(Arc::new(tell)));
        self
    }

    /// Whether what a server says is left of its limits is kept to, host by host: nobody goes for whom nothing is left, and one goes
    /// ahead when it is to be reset. It is, unless set to false. A refusal is heeded either way.
    pub fn heed_reports(mut self, heeds: bool) -> Self {
        self.heeds_reports = heeds;
        self
    }

    /// No more than 4 requests in flight to each host that has no limits of its own, from the first on. Without it a host is
    /// asked at full speed until it says something.
    pub fn careful(mut self) -> Self {
        self.careful = true;
        self
    }

    // --- going again

    /// How many times a request is sent at most to one address, if it is refused because of traffic, or fails and may be
    /// repeated. Four times unless set; at least once.
    pub fn max_attempts(mut self, most: usize) -> Self {
        self.most_attempts = most.max(1);
        self
    }

    /// How long a request waits before it is repeated, where no server says how long: half a second that doubles up to 30 s,
    /// with full jitter, unless set.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
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
    /// read that waits for the server counts as reading, also if whoever began it has given it up and kept the response:
    /// until something comes, the two look the same.
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
    /// ([`Client::from_reqwest`](crate::Client::from_reqwest)): they would send requests that nobody counted. Default headers that are set here and not with
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
