//! The attempts of one request: pass the gates, send, heed the answer, and go again in the same place, or where it leads.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::Entry;
use reqwest::{Request, Response, Url};
use tokio::time::{Instant, timeout_at};

use crate::admission::Snapshot;
use crate::backoff::{self, Backoff};
use crate::body;
use crate::context::Context;
use crate::counting::Rules;
use crate::error::Error;
use crate::key::Key;
use crate::limiter::Limiter;
use crate::permit::Permit;
use crate::redirect::Redirects;
use crate::refused::{Reason, Refused};
use crate::retry_budget::RetryBudget;
use crate::signal::{self, Signal};
use crate::time::Time;
use crate::trip::{Copy, Trip};
use crate::unread::Unread;
use crate::verdict::{self, Outcome, Verdict};
use crate::wait::{Reply, Wait};

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
    pub(crate) retries: Retries,
    /// Not where reqwest follows by itself.
    pub(crate) redirects: Option<Redirects>,
    pub(crate) unread: Arc<Unread>,
}

/// When a request is sent again.
#[derive(Debug)]
pub(crate) struct Retries {
    pub(crate) most_attempts: usize,
    pub(crate) backoff: Backoff,
    pub(crate) trusts_503: bool,
    pub(crate) budget: Mutex<RetryBudget>,
}

/// What comes after an attempt.
enum Next {
    Send(Request),
    Done(Response),
}

impl Sender {
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.limiter.snapshot()
    }

    /// Sends a request when its gates let it go; again if it was refused because of traffic, or failed and may be repeated; and
    /// on to where a redirect leads.
    ///
    /// One deadline covers everything: the waits in the line, the server's pauses, the attempts, and the hops. A wait that it
    /// cannot cover is not begun: before the first attempt that is an error, after an answer that answer is returned.
    pub(crate) async fn send(&self, mut request: Request, terms: &Terms) -> Result<Response, Error> {
        let context = terms.budget.map_or_else(|| terms.context.clone(), |budget| terms.context.but_within(budget));
        let mut trip = Trip::new(context, self.limiter.max_wait());
        self.add_headers(request.headers_mut());
        self.budget(RetryBudget::deposit);
        loop {
            match self.attempt(request, terms, &mut trip).await {
                Ok(Next::Send(next)) => request = next,
                Ok(Next::Done(mut response)) => {
                    response.extensions_mut().insert(trip.attempts);
                    return Ok(response);
                }
                Err(error) => return Err(error.after(trip.attempts.sent)),
            }
        }
    }

    async fn attempt(&self, request: Request, terms: &Terms, trip: &mut Trip) -> Result<Next, Error> {
        let limiter = self.rules.limiter(&self.limiter, request.url(), terms.key.as_ref());
        // What comes too late anyway is not sent.
        let late = || Err(Refused::new(Reason::Deadline, limiter.key_name()));
        let permit = match if trip.is_late() { late() } else { self.pass(&limiter, trip).await } {
            Ok(permit) => permit,
            Err(refused) => return answer(trip.answer.take(), refused).map(Next::Done),
        };
        trip.sets_out(&permit);
        let copy = Copy::of(&request);
        match execute(&self.http, request, trip.context()).await {
            Ok(response) => self.after_response(response, permit, copy, terms, trip).await,
            Err(error) => self.after_error(error, permit, copy, trip).await,
        }
    }

    /// Waits for a permit that still holds when the request leaves: a pause that came in between recalls it.
    async fn pass(&self, limiter: &Limiter, trip: &Trip) -> Result<Permit, Refused> {
        let (mut place, waiting) = (trip.place, trip.waiting());
        loop {
            let mut acquire = pin!(limiter.acquire_in_place(place, &waiting));
            let permit = poll_fn(|cx| {
                let permit = acquire.as_mut().poll(cx);
                if permit.is_pending() {
                    self.unread.look_after();
                }
                permit
            });
            match permit.await {
                Ok(mut permit) => {
                    if !permit.recalled() {
                        return Ok(permit);
                    }
                    place = permit.return_unsent();
                }
                // Whoever does not wait is not waited for by the one who looks after them.
                Err(refused) if refused.is_for_room() && self.unread.give_up() => {}
                Err(refused) if refused.in_flight.is_some() => {
                    return Err(Refused { unread: limiter.unread(), ..refused });
                }
                Err(refused) => return Err(refused),
            }
        }
    }

    async fn after_error(&self, error: Error, mut permit: Permit, copy: Copy, trip: &mut Trip) -> Result<Next, Error> {
        // Where reqwest follows, what nobody took may have been the second part of what the first one did.
        let outcome = match error.outcome() {
            Outcome::Untouched if self.redirects.is_none() => Outcome::Unknown,
            outcome => outcome,
        };
        if outcome == Outcome::Untouched && error.is_connect() {
            // The server has counted nothing. What it gave back it may have.
            permit.give_back();
        } else {
            if error.is_silence() {
                permit.heard(Reply::Failed(None));
            }
            drop(permit);
        }
        trip.answer = None;
        match self.decide(outcome, &copy, Duration::ZERO, trip) {
            Verdict::After(delay) => {
                trip.back_off(delay, copy.request.url()).await?;
                Ok(Next::Send(copy.request))
            }
            Verdict::AtTheGate { .. } | Verdict::Done => Err(error),
        }
    }

    /// What a response says holds for everybody at the gate, at once.
    async fn after_response(
        &self,
        response: Response,
        mut permit: Permit,
        copy: Copy,
        terms: &Terms,
        trip: &mut Trip,
    ) -> Result<Next, Error> {
        let signal = signal::read(response.status(), response.headers(), since_1970());
        let reply = verdict::reply(&signal, fastrand::u32(..));
        trip.attempts.refused += usize::from(signal.throttled);
        if !same_host(response.url(), copy.request.url()) {
            // reqwest has followed: what the other host says is not about this one, nor to be asked of it again.
            permit.answered();
            self.shut(response.url(), reply);
            return self.lead_on(response, permit, copy, &signal, terms, trip).await;
        }
        permit.heard(reply);
        let shut = if reply == Reply::Taken { Duration::ZERO } else { permit.shut_for() };
        match self.decide(Outcome::Answered(&signal), &copy, shut, trip) {
            Verdict::Done => return self.lead_on(response, permit, copy, &signal, terms, trip).await,
            Verdict::AtTheGate { .. } => trip.answer = trip.read_ahead(response).await,
            Verdict::After(delay) => {
                trip.answer = trip.read_ahead(response).await;
                // Its place in flight is free meanwhile.
                drop(permit);
                trip.back_off(delay, copy.request.url()).await?;
            }
        }
        Ok(Next::Send(copy.request))
    }

    /// Where a response leads that is not to be repeated: to the caller, or to another address.
    async fn lead_on(
        &self,
        response: Response,
        permit: Permit,
        copy: Copy,
        signal: &Signal,
        terms: &Terms,
        trip: &mut Trip,
    ) -> Result<Next, Error> {
        let method = copy.request.method().clone();
        if let Some(wait) = verdict::before_a_hop(signal, trip.budget())
            && let Some(next) = self.hop(&response, copy, trip)?
        {
            trip.answer = None;
            trip.read_away(response).await;
            drop(permit);
            trip.rest(wait, next.url()).await?;
            return Ok(Next::Send(next));
        }
        if terms.release_on_headers {
            return Ok(Next::Done(response));
        }
        Ok(Next::Done(body::hold(response, &method, permit, &self.unread)))
    }

    fn hop(&self, response: &Response, copy: Copy, trip: &mut Trip) -> Result<Option<Request>, Error> {
        let Some(redirects) = self.redirects.as_ref().filter(|_| response.status().is_redirection()) else {
            return Ok(None);
        };
        let here = response.url();
        trip.previous.push(here.clone());
        let Copy { mut request, is_whole } = copy;
        let hop = redirects.next(request.method(), response.status(), response.headers(), &trip.previous);
        let hop = hop.map_err(|source| Error::redirect(source, here.clone()))?;
        let Some(hop) = hop.filter(|hop| is_whole || !hop.with_body) else { return Ok(None) };
        redirects.carry_over(request.headers_mut(), &hop, here);
        if !hop.with_body {
            *request.body_mut() = None;
        }
        (*request.method_mut(), *request.url_mut()) = (hop.method, hop.url);
        trip.goes_on();
        Ok(Some(request))
    }

    /// Nobody goes to a host for a while that was asked by way of another one.
    fn shut(&self, url: &Url, reply: Reply) {
        let wait = match reply {
            Reply::Refused(Wait::Stated(wait, random)) | Reply::Failed(Some(Wait::Stated(wait, random))) => {
                backoff::after_stated(wait, random)
            }
            Reply::Refused(Wait::Unstated(random)) => backoff::unstated(0, random),
            Reply::Failed(_) | Reply::Taken => return,
        };
        self.rules.limiter(&self.limiter, url, None).pause_until(Instant::now() + wait);
    }

    /// Whether it goes again. What no server has asked for draws on what the traffic has earned.
    fn decide(&self, outcome: Outcome<'_>, copy: &Copy, shut: Duration, trip: &Trip) -> Verdict {
        let Retries { most_attempts, backoff, trusts_503, .. } = self.retries;
        let mut attempt = trip.attempt(copy, most_attempts, trusts_503, shut);
        // Where reqwest follows, what an answer says may be about the second part of what the first one did.
        attempt.is_whole &= self.redirects.is_some() || attempt.is_idempotent;
        let verdict = verdict::decide(outcome, attempt, backoff, fastrand::u32(..));
        match verdict {
            Verdict::Done | Verdict::AtTheGate { stated: true } => verdict,
            _ if self.budget(RetryBudget::withdraw) => verdict,
            _ => Verdict::Done,
        }
    }

    fn budget<R>(&self, act: impl FnOnce(&mut RetryBudget, Time) -> R) -> R {
        let now = self.limiter.now();
        act(&mut self.retries.budget.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// Those that a request has none of its own for.
    fn add_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.headers {
            if let Entry::Vacant(entry) = headers.entry(name) {
                entry.insert(value.clone());
            }
        }
    }
}

/// What whoever may not go again is told: the answer that it had, if waiting longer is all that it could do.
fn answer(answer: Option<Response>, refused: Refused) -> Result<Response, Error> {
    match answer {
        Some(answer) if !matches!(refused.reason, Reason::Cancelled | Reason::Closed) => Ok(answer),
        _ => Err(refused.into()),
    }
}

fn same_host(one: &Url, other: &Url) -> bool {
    (one.host_str(), one.port_or_known_default()) == (other.host_str(), other.port_or_known_default())
}

/// By the wall clock, for responses that do not say what theirs shows.
fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
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
        None => Err(Error::cancelled(Some(url))),
    }
}
