//! The attempts of one request: pass the gates, send, heed the answer, and go again in the same place, or where it leads.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::Entry;
use reqwest::{Request, Response, Url};
use tokio::time::{Instant, timeout_at};

use crate::admission::{Arrival, Snapshot};
use crate::body;
use crate::context::Context;
use crate::counting::Rules;
use crate::error::Error;
use crate::key::Key;
use crate::limiter::Limiter;
use crate::permit::Permit;
use crate::redirect::Redirects;
use crate::refused::{Reason, Refused};
use crate::signal;
use crate::unread::Unread;
use crate::verdict::{self, Attempt};

/// How long the body of a refusal is waited for before the next attempt.
const READ_AHEAD: Duration = Duration::from_secs(1);

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
    /// Not where reqwest follows by itself.
    pub(crate) redirects: Option<Redirects>,
    pub(crate) unread: Arc<Unread>,
}

/// A request on its way: how long it may wait, and what has happened.
struct Trip {
    context: Context,
    /// The same, with a deadline for its waiting.
    waiting: Context,
    /// Where it stands in the line.
    place: Option<Arrival>,
    sent: usize,
    /// How many times the present address was tried.
    tries: usize,
    /// The answer, if it may not go again.
    refusal: Option<Response>,
    /// The addresses that led to the present one.
    previous: Vec<Url>,
}

/// What comes after an attempt.
enum Next {
    /// The same again.
    Again(Request),
    /// Where the response leads.
    Hop(Request),
    Done,
}

/// A request to be sent after this one.
struct Copy {
    request: Request,
    /// Whether the body is there: a stream is sent once.
    is_whole: bool,
}

impl Copy {
    fn of(request: &Request) -> Self {
        if let Some(request) = request.try_clone() {
            return Self { request, is_whole: true };
        }
        let mut copy = Request::new(request.method().clone(), request.url().clone());
        *copy.headers_mut() = request.headers().clone();
        *copy.version_mut() = request.version();
        *copy.timeout_mut() = request.timeout().copied();
        Self { request: copy, is_whole: false }
    }
}

impl Sender {
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.limiter.snapshot()
    }

    /// Sends a request when its gates let it go; again if the server refuses it because of traffic, and on to where a redirect
    /// leads.
    ///
    /// One deadline covers everything: the waits in the line, the server's pauses, the attempts, and the hops. A wait that it
    /// cannot cover is not begun: before the first attempt that is an error, after a refusal the refusal is the answer.
    pub(crate) async fn send(&self, mut request: Request, terms: &Terms) -> Result<Response, Error> {
        let context = terms.budget.map_or_else(|| terms.context.clone(), |budget| terms.context.but_within(budget));
        let waiting = context.waiting(self.limiter.max_wait());
        self.add_headers(request.headers_mut());
        let (place, refusal, previous) = (None, None, Vec::new());
        let mut trip = Trip { context, waiting, place, sent: 0, tries: 0, refusal, previous };
        loop {
            let limiter = self.rules.limiter(&self.limiter, request.url(), terms.key.as_ref());
            let mut permit = match self.pass(&limiter, &trip).await {
                Ok(permit) => permit,
                Err(refused) => return answer(trip.refusal, refused).map_err(|error| error.after(trip.sent)),
            };
            let copy = Copy::of(&request);
            let method = request.method().clone();
            (trip.sent, trip.tries, trip.place) = (trip.sent + 1, trip.tries + 1, permit.arrival());
            let response = match execute(&self.http, request, &trip.context).await {
                Ok(response) => response,
                Err(error) => {
                    // Nobody was there: the server has counted nothing.
                    if error.is_connect() {
                        permit.give_back();
                    }
                    return Err(error.after(trip.sent));
                }
            };
            let next = self.next(&mut trip, &mut permit, &response, copy).map_err(|error| error.after(trip.sent))?;
            (trip.refusal, request) = match next {
                Next::Done if terms.release_on_headers => return Ok(response),
                Next::Done => return Ok(body::hold(response, &method, permit, &self.unread)),
                Next::Again(next) => (read_ahead(response, &trip).await, next),
                Next::Hop(next) => {
                    read_ahead(response, &trip).await;
                    (None, next)
                }
            };
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
    async fn pass(&self, limiter: &Limiter, trip: &Trip) -> Result<Permit, Refused> {
        let mut place = trip.place;
        loop {
            let mut acquire = pin!(limiter.acquire_in_place(place, &trip.waiting));
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

    /// What a response says holds for everybody at the gate, at once. Answers what this request does about it.
    fn next(&self, trip: &mut Trip, permit: &mut Permit, response: &Response, copy: Copy) -> Result<Next, Error> {
        let signal = signal::read(response.status(), response.headers());
        match verdict::wait(signal, fastrand::u32(..)) {
            Some(wait) => permit.refused(wait),
            None => permit.answered(),
        }
        let now = Instant::now();
        let budget = trip.waiting.waits_until(now, self.limiter.max_wait()).saturating_duration_since(now);
        let left = self.most_attempts.saturating_sub(trip.tries);
        if copy.is_whole && verdict::again(signal, Attempt { left, budget }) {
            return Ok(Next::Again(copy.request));
        }
        self.hop(trip, response, copy)
    }

    /// Where a response leads.
    fn hop(&self, trip: &mut Trip, response: &Response, copy: Copy) -> Result<Next, Error> {
        let (Some(redirects), true) = (&self.redirects, response.status().is_redirection()) else {
            return Ok(Next::Done);
        };
        let here = response.url();
        trip.previous.push(here.clone());
        let Copy { mut request, is_whole } = copy;
        let hop = redirects.next(request.method(), response.status(), response.headers(), &trip.previous);
        let hop = hop.map_err(|source| Error::redirect(source, here.clone()))?;
        let Some(hop) = hop.filter(|hop| is_whole || !hop.with_body) else { return Ok(Next::Done) };
        redirects.carry_over(request.headers_mut(), &hop, here);
        if !hop.with_body {
            *request.body_mut() = None;
        }
        (*request.method_mut(), *request.url_mut()) = (hop.method, hop.url);
        trip.tries = 0;
        Ok(Next::Hop(request))
    }
}

/// The response in memory, so that its connection can serve what comes next; `None` if it is large, or does not come.
async fn read_ahead(response: Response, trip: &Trip) -> Option<Response> {
    body::read_ahead(response, trip.context.no_later_than(READ_AHEAD)).await
}

/// What whoever may not go again is told: the refusal that it had, if that is why it would go again in vain.
fn answer(refusal: Option<Response>, refused: Refused) -> Result<Response, Error> {
    match refusal {
        Some(refusal) if !matches!(refused.reason, Reason::Cancelled | Reason::Closed) => Ok(refusal),
        _ => Err(refused.into()),
    }
}

async fn execute(http: &reqwest::Client, request: Request, context: &Context) -> Result<Response, Error> {
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
