//! How far one request has come: what it may still do, and what has happened.

use std::time::Duration;

use http::Method;
use reqwest::{Request, Response, Url};
use tokio::time::{Instant, sleep};

use crate::admission::Arrival;
use crate::attempts::Attempts;
use crate::body;
use crate::context::Context;
use crate::error::Error;
use crate::permit::Permit;
use crate::verdict::Attempt;

/// How long the body of a response is waited for that is not the last.
const READ_AHEAD: Duration = Duration::from_secs(1);
/// And that of a redirect.
const READ_AWAY: Duration = Duration::from_millis(100);

/// A request on its way.
pub(crate) struct Trip {
    context: Context,
    /// How long it may wait in all, if it has no deadline: what the attempts take does not count.
    max_wait: Duration,
    /// Where it stands in the line.
    pub(crate) place: Option<Arrival>,
    /// How many times the present address was tried.
    tries: usize,
    retries: u32,
    /// The last answer, to be returned if it may not go again.
    pub(crate) answer: Option<Response>,
    /// The addresses that led to the present one.
    pub(crate) previous: Vec<Url>,
    pub(crate) attempts: Attempts,
}

/// A request to be sent after this one.
pub(crate) struct Copy {
    pub(crate) request: Request,
    /// Whether the body is there: a stream is sent once.
    pub(crate) is_whole: bool,
}

impl Copy {
    pub(crate) fn of(request: &Request) -> Self {
        if let Some(request) = request.try_clone() {
            return Self { request, is_whole: true };
        }
        let mut copy = Request::new(request.method().clone(), request.url().clone());
        *copy.headers_mut() = request.headers().clone();
        *copy.version_mut() = request.version();
        *copy.timeout_mut() = request.timeout().copied();
        Self { request: copy, is_whole: false }
    }

    /// Whether doing it twice is as good as once: by its method (RFC 9110, 9.2.2), or because it says by which key the server
    /// can tell.
    fn is_idempotent(&self) -> bool {
        let by_method = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE];
        by_method.contains(self.request.method()) || self.request.headers().contains_key("idempotency-key")
    }
}

impl Trip {
    pub(crate) fn new(context: Context, max_wait: Duration) -> Self {
        let (place, answer, previous, attempts) = (None, None, Vec::new(), Attempts::default());
        Self { context, max_wait, place, tries: 0, retries: 0, answer, previous, attempts }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// With a deadline for its waiting.
    pub(crate) fn waiting(&self) -> Context {
        self.context.waiting(self.patience())
    }

    /// How long it may wait yet.
    pub(crate) fn budget(&self) -> Duration {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.context.deadline().map_or_else(|| self.patience(), left)
    }

    fn patience(&self) -> Duration {
        self.max_wait.saturating_sub(self.attempts.in_line.saturating_add(self.attempts.backed_off))
    }

    /// Whether its deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        self.context.deadline().is_some_and(|deadline| deadline <= Instant::now())
    }

    /// It leaves.
    pub(crate) fn sets_out(&mut self, permit: &Permit) {
        self.place = permit.arrival();
        self.tries += 1;
        self.attempts.sent += 1;
        self.attempts.in_line += permit.waited();
    }

    /// What is known about the attempt that has just ended.
    pub(crate) fn attempt(&self, copy: &Copy, most: usize, trusts_503: bool, shut: Duration) -> Attempt {
        let (is_whole, is_idempotent) = (copy.is_whole, copy.is_idempotent());
        let left = most.saturating_sub(self.tries);
        let budget = self.budget();
        Attempt { is_whole, is_idempotent, trusts_503, left, retries: self.retries, shut, budget }
    }

    /// Waits of its own accord before it goes again.
    pub(crate) async fn back_off(&mut self, delay: Duration, url: &Url) -> Result<(), Error> {
        self.retries += 1;
        self.attempts.failed += 1;
        self.rest(delay, url).await
    }

    /// Lets a while pass.
    pub(crate) async fn rest(&mut self, delay: Duration, url: &Url) -> Result<(), Error> {
        self.attempts.backed_off += delay;
        if let Some(token) = self.context.cancellation() {
            let slept = token.run_until_cancelled(sleep(delay)).await;
            return slept.ok_or_else(|| Error::cancelled(Some(url.clone())));
        }
        sleep(delay).await;
        Ok(())
    }

    /// It goes on to another address.
    pub(crate) fn goes_on(&mut self) {
        (self.tries, self.retries) = (0, 0);
        self.attempts.redirects += 1;
    }

    /// Reads a response that is not the last, so that its connection can serve what comes next; `None` if it is large, or does
    /// not come.
    pub(crate) async fn read_ahead(&self, response: Response) -> Option<Response> {
        self.read_for(response, READ_AHEAD).await
    }

    /// The same with one that nobody will want.
    pub(crate) async fn read_away(&self, response: Response) {
        self.read_for(response, READ_AWAY).await;
    }

    async fn read_for(&self, response: Response, most: Duration) -> Option<Response> {
        let read = body::read_ahead(response, self.context.no_later_than(most));
        match self.context.cancellation() {
            Some(token) => token.run_until_cancelled(read).await.flatten(),
            None => read.await,
        }
    }
}
