//! What the client sends over: reqwest's, attempt after attempt, and on to where a redirect leads.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use http::HeaderMap;
use http::header::Entry;
use reqwest::{Request, Response};

use crate::admission::Snapshot;
use crate::error::{Error, Stop};
use crate::exchange::{Ended, Exchange, Terms};
use crate::observe::Tell;
use crate::redirect::{self, Redirects};
use crate::trip::Trip;
use crate::verdict::{self, Failure};
use crate::wire::{Copy, Wire};

/// Where an answer leads: to another address, or nowhere.
type Onward = ControlFlow<Ended<Http>, Request>;

/// What sends requests: reqwest's client, behind the gates of its hosts.
pub(crate) struct Sender {
    pub(crate) http: reqwest::Client,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) headers: HeaderMap,
    /// Not where reqwest follows by itself.
    pub(crate) redirects: Option<Redirects>,
    pub(crate) on_send: Option<Tell<Request>>,
}

impl Sender {
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.exchange.limiter.snapshot()
    }

    /// Sends a request, and on to where redirects lead, each hop at its own host's gates and all within one budget.
    pub(crate) async fn send(&self, mut request: Request, terms: &Terms) -> Result<Response, Error> {
        self.add_headers(request.headers_mut());
        let (client, follows, on_send) = (self.http.clone(), self.redirects.is_none(), self.on_send.clone());
        let (mut trip, mut wire) = (self.exchange.begin(terms), Http { client, follows, on_send });
        loop {
            let ended = self.exchange.run(&mut wire, request, terms.key.as_ref(), &mut trip).await;
            match self.follow(ended.map_err(|error| error.after(trip.attempts.sent))?, &mut trip).await {
                Ok(Continue(next)) => request = next,
                Ok(Break(ended)) => return Ok(self.exchange.hand_out(ended, &trip, terms.release_on_headers)),
                Err(error) => return Err(error.after(trip.attempts.sent)),
            }
        }
    }

    /// Where an answer leads that is not to be repeated: to the caller, or to another address.
    async fn follow(&self, ended: Ended<Http>, trip: &mut Trip<Response>) -> Result<Onward, Error> {
        let Ended::Last { answer, permit, copy, signal } = ended else { return Ok(Break(ended)) };
        let wait = verdict::before_a_hop(&signal, trip.budget()).filter(|_| answer.status().is_redirection());
        let hop = if wait.is_some() { self.hop(&answer, &copy, trip)? } else { None };
        let (wait, (redirects, hop), mut next) = match (wait, hop, copy.request) {
            (Some(wait), Some(hop), Some(next)) => (wait, hop, next),
            (.., request) => {
                let copy = Copy { request, ..copy };
                return Ok(Break(Ended::Last { answer, permit, copy, signal }));
            }
        };
        redirects.carry_over(next.headers_mut(), &hop, answer.url());
        if !hop.with_body {
            *next.body_mut() = None;
        }
        (*next.method_mut(), *next.url_mut()) = (hop.method, hop.url);
        trip.goes_on();
        trip.answer = None;
        trip.read_away(answer).await;
        drop(permit);
        trip.rest(wait).await.map_err(|stop| Error::stopped(stop, Some(next.url())))?;
        Ok(Continue(next))
    }

    /// The next address, if there is one and what it takes is there.
    fn hop(
        &self,
        answer: &Response,
        copy: &Copy<Request>,
        trip: &mut Trip<Response>,
    ) -> Result<Option<(&Redirects, redirect::Hop)>, Error> {
        let Some(redirects) = &self.redirects else { return Ok(None) };
        let here = answer.url();
        trip.previous.push(here.clone());
        let hop = redirects.next(&copy.method, answer.status(), answer.headers(), &trip.previous);
        let hop = hop.map_err(|source| Error::redirect(source, here.clone()))?;
        Ok(hop.filter(|hop| copy.is_whole || !hop.with_body).map(|hop| (redirects, hop)))
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

/// reqwest's client, as what an exchange goes over.
struct Http {
    client: reqwest::Client,
    follows: bool,
    on_send: Option<Tell<Request>>,
}

impl Wire for Http {
    type Request = Request;
    type Response = Response;
    type Error = Error;

    fn follows(&self) -> bool {
        self.follows
    }

    fn copy(&self, request: &Request) -> Copy<Request> {
        Copy::of(request)
    }

    async fn send(&mut self, request: Request) -> Result<Response, Error> {
        if let Some(Tell(tell)) = &self.on_send {
            tell(&request);
        }
        Ok(self.client.execute(request).await?)
    }

    fn failure(error: &Error) -> Failure {
        error.failure()
    }

    fn stopped(stop: Stop, request: Option<&Request>) -> Error {
        Error::stopped(stop, request.map(Request::url))
    }
}
