//! How far one request has come: what it may still do, and what has happened.

use std::time::Duration;

use reqwest::Url;
use tokio::time::{Instant, sleep, timeout_at};

use crate::admission::Arrival;
use crate::attempts::Attempts;
use crate::backoff::{Backoff, Delays};
use crate::body::Peeked;
use crate::context::Context;
use crate::error::Stop;
use crate::permit::Permit;
use crate::verdict::Attempt;
use crate::wire::{Answer, Copy};

/// How long the body of a response is waited for that is not the last.
const READ_AHEAD: Duration = Duration::from_secs(1);
/// And that of a redirect.
const READ_AWAY: Duration = Duration::from_millis(100);
/// And that of a refusal or a failure, for what it says.
const LOOK_INTO: Duration = Duration::from_millis(100);

/// A request on its way.
pub(crate) struct Trip<A> {
    context: Context,
    /// How long it may wait in all, if it has no deadline: what the attempts take does not count.
    max_wait: Duration,
    /// Where it stands in the line.
    pub(crate) place: Option<Arrival>,
    /// How many times the present address was tried.
    tries: usize,
    retries: u32,
    /// The last answer, to be returned if it may not go again.
    pub(crate) answer: Option<A>,
    /// The addresses that led to the present one.
    pub(crate) previous: Vec<Url>,
    pub(crate) attempts: Attempts,
    delays: Option<Delays>,
}

impl<A: Answer> Trip<A> {
    pub(crate) fn new(context: Context, max_wait: Duration) -> Self {
        let (place, answer, previous, delays) = (None, None, Vec::new(), None);
        let attempts = Attempts::default();
        Self { context, max_wait, place, tries: 0, retries: 0, answer, previous, attempts, delays }
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
    pub(crate) fn attempt<R>(&self, copy: &Copy<R>, most: usize, trusts_503: bool, shut: Duration) -> Attempt {
        let (is_whole, is_idempotent) = (copy.is_whole, copy.is_idempotent);
        let left = most.saturating_sub(self.tries);
        let budget = self.budget();
        Attempt { is_whole, is_idempotent, trusts_503, left, shut, budget }
    }

    /// What lies before the next attempt, if it has to wait of its own accord.
    pub(crate) fn delay(&mut self, backoff: &Backoff, random: u32) -> Option<Duration> {
        backoff.delay(&mut self.delays, self.retries, random)
    }

    /// Waits of its own accord before it goes again.
    pub(crate) async fn back_off(&mut self, delay: Duration) -> Result<(), Stop> {
        self.retries += 1;
        self.attempts.failed += 1;
        self.rest(delay).await
    }

    /// Lets a while pass.
    pub(crate) async fn rest(&mut self, delay: Duration) -> Result<(), Stop> {
        self.attempts.backed_off += delay;
        if let Some(token) = self.context.cancellation() {
            let slept = token.run_until_cancelled(sleep(delay)).await;
            return slept.ok_or(Stop::Cancelled);
        }
        sleep(delay).await;
        Ok(())
    }

    /// It goes on to another address.
    pub(crate) fn goes_on(&mut self) {
        (self.tries, self.retries, self.delays) = (0, 0, None);
        self.attempts.redirects += 1;
    }

    /// What is done meanwhile, unless its deadline comes or its token is cancelled.
    pub(crate) async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let (deadline, token) = (self.context.deadline(), self.context.cancellation());
        let in_time = async {
            match deadline {
                Some(deadline) => timeout_at(deadline, work).await.map_err(|_| Stop::Deadline),
                None => Ok(work.await),
            }
        };
        match token {
            Some(token) => token.run_until_cancelled(in_time).await.unwrap_or(Err(Stop::Cancelled)),
            None => in_time.await,
        }
    }

    /// Reads a response that is not the last, so that its connection can serve what comes next; `None` if it is large, or does
    /// not come.
    pub(crate) async fn read_ahead(&mut self, answer: A) -> Option<(A, Peeked)> {
        self.peek(answer, READ_AHEAD).await.filter(|(_, peeked)| peeked.is_whole)
    }

    /// The same with one that nobody will want.
    pub(crate) async fn read_away(&mut self, answer: A) {
        self.peek(answer, READ_AWAY).await;
    }

    /// As much of a response as is here, to see what it says.
    pub(crate) async fn look_into(&mut self, answer: A) -> Option<(A, Peeked)> {
        self.peek(answer, LOOK_INTO).await
    }

    /// `None` if it was cancelled meanwhile.
    async fn peek(&mut self, answer: A, most: Duration) -> Option<(A, Peeked)> {
        let peek = answer.peek(self.context.no_later_than(most));
        match self.context.cancellation() {
            Some(token) => token.run_until_cancelled(peek).await,
            None => Some(peek.await),
        }
    }
}
