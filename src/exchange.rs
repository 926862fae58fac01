//! The attempts of one request: pass the gates, send, heed the answer, and go again in the same place.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::HeaderMap;
use http::header::Entry;
use reqwest::{Request, Response, Url};
use smallvec::{SmallVec, smallvec};
use tokio::time::{Instant, timeout_at};

use crate::admission::{Arrival, GateName, Snapshot};
use crate::body;
use crate::context::Context;
use crate::error::Error;
use crate::key::Key;
use crate::limiter::Limiter;
use crate::permit::Permit;
use crate::refused::{Reason, Refused};
use crate::signal;
use crate::unread::Unread;
use crate::verdict::{self, Attempt};

/// How long the body of a refusal is waited for before the next attempt.
const READ_AHEAD: Duration = Duration::from_secs(1);

/// The limits of each host that has none of its own.
pub(crate) const EACH_HOST: usize = 0;
/// The limits of the whole client.
pub(crate) const WHOLE: usize = 1;
/// The limits of each key that requests name.
pub(crate) const EACH_KEY: usize = 2;
/// Those of the first host that has its own.
pub(crate) const FIRST_HOST: usize = 3;

/// So many hosts are known without looking their limits up again.
const MOST_KNOWN: usize = 1_000;

/// By which limits requests are counted.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// The hosts that have limits of their own, and by which rule those are.
    pub(crate) hosts: HashMap<Key, usize>,
    /// The key of the whole client, if it has limits.
    pub(crate) whole: Option<Key>,
    /// The gates of hosts, by name and port, for requests that name no key.
    known: RwLock<HashMap<String, Ports>>,
}

/// The ports of one host.
type Ports = Vec<(Option<u16>, Limiter)>;

impl Rules {
    pub(crate) fn new(hosts: HashMap<Key, usize>, whole: Option<Key>) -> Self {
        Self { hosts, whole, known: RwLock::default() }
    }

    /// The limiter of a request.
    fn limiter(&self, of: &Limiter, url: &Url, key: Option<&Key>) -> Limiter {
        let (host, port) = (url.host_str().unwrap_or_default(), url.port());
        if key.is_some() {
            return of.through(self.gates(host, port, key));
        }
        self.known(host, port).unwrap_or_else(|| {
            let limiter = of.through(self.gates(host, port, key));
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.entry(host.to_owned()).or_default().push((port, limiter.clone()));
            limiter
        })
    }

    fn known(&self, host: &str, port: Option<u16>) -> Option<Limiter> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(host)?.iter().find(|(other, _)| *other == port).map(|(_, limiter)| limiter.clone())
    }

    /// The gates of a request, that of its host first.
    fn gates(&self, host: &str, port: Option<u16>, key: Option<&Key>) -> SmallVec<[GateName; 1]> {
        let host = Key::host(host, port);
        let rule = self.hosts.get(&host).copied().unwrap_or(EACH_HOST);
        let mut gates = smallvec![GateName { rule, key: host }];
        gates.extend(self.whole.iter().map(|key| GateName { rule: WHOLE, key: key.clone() }));
        gates.extend(key.map(|key| GateName { rule: EACH_KEY, key: key.clone() }));
        gates
    }
}

/// What is asked for beside the request itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) context: Context,
    /// From the sending on, in the place of the context's deadline.
    pub(crate) budget: Option<Duration>,
    pub(crate) key: Option<Key>,
    /// It does not count as in flight once its head has come.
    pub(crate) release_on_headers: bool,
}

/// What sends requests: reqwest's client, behind the gates of its hosts.
pub(crate) struct Sender {
    pub(crate) http: reqwest::Client,
    pub(crate) limiter: Limiter,
    pub(crate) rules: Rules,
    pub(crate) headers: HeaderMap,
    pub(crate) most_attempts: usize,
    pub(crate) unread: Arc<Unread>,
}

impl Sender {
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.limiter.snapshot()
    }

    /// Sends a request when its gates let it go, and again if the server refuses it because of traffic.
    ///
    /// One deadline covers everything: the waits in the line, the server's pauses, and the attempts. A wait that it
    /// cannot cover is not begun: before the first attempt that is an error, after a refusal the refusal is the answer.
    pub(crate) async fn send(&self, mut request: Request, terms: &Terms) -> Result<Response, Error> {
        let context = terms.budget.map_or_else(|| terms.context.clone(), |budget| terms.context.but_within(budget));
        let limiter = self.rules.limiter(&self.limiter, request.url(), terms.key.as_ref());
        self.add_headers(request.headers_mut());
        let waiting = context.waiting(limiter.max_wait());
        let (mut place, mut refusal, mut sent) = (None, None, 0);
        loop {
            let mut permit = match self.pass(&limiter, place, &waiting).await {
                Ok(permit) => permit,
                Err(refused) => return answer(refusal, refused).map_err(|error| error.after(sent)),
            };
            sent += 1;
            place = permit.arrival();
            let left = self.most_attempts.saturating_sub(sent);
            let method = request.method().clone();
            let replay = if left > 0 { request.try_clone() } else { None };
            let response = match attempt(&self.http, request, &context).await {
                Ok(response) => response,
                Err(error) => {
                    // Nobody was there: the server has counted nothing.
                    if error.is_connect() {
                        permit.give_back();
                    }
                    return Err(error.after(sent));
                }
            };
            let now = Instant::now();
            let budget = waiting.waits_until(now, limiter.max_wait()).saturating_duration_since(now);
            match heed(&mut permit, &response, Attempt { left, budget }, replay) {
                Some(next) => request = next,
                None if terms.release_on_headers => return Ok(response),
                None => return Ok(body::hold(response, &method, permit, &self.unread)),
            }
            refusal = body::read_ahead(response, context.no_later_than(READ_AHEAD)).await;
        }
    }

    /// Those that a request has none of its own for.
    fn add_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.headers {
            if let Entry::Vacant(entry) = headers.entry(name) {
                entry.insert(value.clone());
            }
        }
    }

    /// Waits for a permit that still holds when the request leaves: a pause that came in between recalls it.
    async fn pass(&self, limiter: &Limiter, mut place: Option<Arrival>, waiting: &Context) -> Result<Permit, Refused> {
        loop {
            let mut acquire = pin!(limiter.acquire_in_place(place, waiting));
            let permit = poll_fn(|cx| {
                let permit = acquire.as_mut().poll(cx);
                if permit.is_pending() {
                    self.unread.look_after();
                }
                permit
            });
            let mut permit = permit.await.map_err(|refused| match refused.in_flight {
                Some(_) => Refused { unread: limiter.unread(), ..refused },
                None => refused,
            })?;
            if !permit.recalled() {
                return Ok(permit);
            }
            place = permit.return_unsent();
        }
    }
}

/// What whoever may not go again is told: the refusal that it had, if that is why it would go again in vain.
fn answer(refusal: Option<Response>, refused: Refused) -> Result<Response, Error> {
    match refusal {
        Some(refusal) if !matches!(refused.reason, Reason::Cancelled | Reason::Closed) => Ok(refusal),
        _ => Err(refused.into()),
    }
}

async fn attempt(http: &reqwest::Client, request: Request, context: &Context) -> Result<Response, Error> {
    let (deadline, token) = (context.deadline(), context.cancellation());
    if deadline.is_none() && token.is_none() {
        return Ok(http.execute(request).await?);
    }
    let url = request.url().clone();
    let in_time = async {
        let Some(deadline) = deadline else { return Some(http.execute(request).await) };
        timeout_at(deadline, http.execute(request)).await.ok()
    };
    let done = match token {
        Some(token) => token.run_until_cancelled(in_time).await,
        None => Some(in_time.await),
    };
    match done {
        Some(Some(answer)) => Ok(answer?),
        Some(None) => Err(Error::deadline(url)),
        None => Err(Error::cancelled(url)),
    }
}

/// What a response says holds for everybody at the gate, at once. Answers the request that is to go again.
fn heed(permit: &mut Permit, response: &Response, attempt: Attempt, replay: Option<Request>) -> Option<Request> {
    let signal = signal::read(response.status(), response.headers());
    match verdict::wait(signal, fastrand::u32(..)) {
        Some(wait) => permit.refused(wait),
        None => permit.answered(),
    }
    replay.filter(|_| verdict::again(signal, attempt))
}
