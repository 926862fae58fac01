//! The attempts of one request: pass the gate, send, heed the answer, and go again in the same place.

use std::time::Duration;

use reqwest::{Request, Response};
use tokio::time::{Instant, timeout_at};

use crate::admission::Arrival;
use crate::body;
use crate::context::Context;
use crate::error::Error;
use crate::key::Key;
use crate::limiter::Limiter;
use crate::permit::Permit;
use crate::refused::Refused;
use crate::signal;
use crate::verdict::{self, Attempt};

const MOST_ATTEMPTS: usize = 4;

/// How long the body of a refusal is waited for before the next attempt.
const READ_AHEAD: Duration = Duration::from_secs(1);

/// What sends requests: reqwest's client, behind the gates of its hosts.
pub(crate) struct Sender {
    http: reqwest::Client,
    each_host: Limiter,
}

impl Sender {
    pub(crate) fn new(http: reqwest::Client, each_host: Limiter) -> Self {
        Self { http, each_host }
    }

    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// Sends a request when the gate of its host lets it go, up to four times if the server refuses it because of
    /// traffic.
    ///
    /// One deadline covers everything: the waits in the line, the server's pauses, and the attempts. A wait that it
    /// cannot cover is not begun: before the first attempt that is an error, after a refusal the refusal is the answer.
    pub(crate) async fn send(&self, mut request: Request, context: &Context) -> Result<Response, Error> {
        let url = request.url();
        let limiter = self.each_host.of(Key::host(url.host_str().unwrap_or_default(), url.port()));
        let waiting = context.waiting(limiter.max_wait());
        let (mut place, mut refusal) = (None, None);
        let mut left = MOST_ATTEMPTS;
        loop {
            let mut permit = match pass(&limiter, place, &waiting).await {
                Ok(permit) => permit,
                Err(refused) => return refusal.ok_or_else(|| refused.into()),
            };
            left -= 1;
            place = permit.arrival();
            let method = request.method().clone();
            let replay = if left > 0 { request.try_clone() } else { None };
            let response = match attempt(&self.http, request, context).await {
                Ok(response) => response,
                Err(error) => {
                    // Nobody was there: the server has counted nothing.
                    if error.is_connect() {
                        permit.return_unsent();
                    }
                    return Err(error);
                }
            };
            let now = Instant::now();
            let budget = waiting.waits_until(now, limiter.max_wait()).saturating_duration_since(now);
            match heed(&mut permit, &response, Attempt { left, budget }, replay) {
                Some(next) => request = next,
                None => return Ok(body::hold(response, &method, permit)),
            }
            refusal = body::read_ahead(response, context.no_later_than(READ_AHEAD)).await;
        }
    }
}

/// Waits for a permit that still holds when the request leaves: a pause that came in between recalls it.
async fn pass(limiter: &Limiter, mut place: Option<Arrival>, waiting: &Context) -> Result<Permit, Refused> {
    loop {
        let mut permit = limiter.acquire_in_place(place, waiting).await?;
        if !permit.recalled() {
            return Ok(permit);
        }
        place = permit.return_unsent();
    }
}

async fn attempt(http: &reqwest::Client, request: Request, context: &Context) -> Result<Response, Error> {
    let Some(deadline) = context.deadline() else { return Ok(http.execute(request).await?) };
    let url = request.url().clone();
    match timeout_at(deadline, http.execute(request)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::deadline(url)),
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
