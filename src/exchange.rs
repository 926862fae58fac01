//! The attempts of one request at one address: pass the gates, send, heed the answer, and go again in the same place.
//!
//! The same for whatever sends: the client, a service of tower's, the rest of a chain of middleware.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http::StatusCode;
use tokio::time::Instant;

use crate::admission::Report;
use crate::backoff::{self, Backoff};
use crate::body::Peeked;
use crate::context::Context;
use crate::cost::Unit;
use crate::counting::{Course, Rules};
use crate::error::Stop;
use crate::key::Key;
use crate::known::About;
use crate::limiter::Limiter;
use crate::permit::Permit;
use crate::refused::{Reason, Refused};
use crate::retry_budget::RetryBudget;
use crate::signal::{Signal, StatedLimit};
use crate::time::Time;
use crate::trip::Trip;
use crate::unread::{UNREAD_FOR, Unread};
use crate::verdict::{self, Failure, Outcome, Verdict};
use crate::wait::Reply;
use crate::wire::{Answer, Copy, Letter, Wire, host};

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

/// The limits that requests wait for, and when they go again.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) limiter: Limiter,
    pub(crate) rules: Rules,
    pub(crate) retries: Retries,
    pub(crate) unread: Arc<Unread>,
    /// Whether what servers say is left is kept to.
    pub(crate) heeds_reports: bool,
}

/// When a request is sent again.
#[derive(Debug)]
pub(crate) struct Retries {
    pub(crate) most_attempts: usize,
    pub(crate) backoff: Backoff,
    pub(crate) trusts_503: bool,
    pub(crate) budget: Mutex<RetryBudget>,
}

/// What came of a request in the end.
pub(crate) enum Ended<W: Wire> {
    /// The answer to its last attempt.
    Last { answer: W::Response, permit: Permit, copy: Copy<W::Request>, signal: Signal },
    /// It might not go again: the answer that it had before.
    Earlier(W::Response),
}

/// Why a request was not sent.
enum Unsent<E> {
    Refused(Refused),
    /// What sends cannot.
    Wire(E),
    Stop(Stop),
}

impl<E> From<Refused> for Unsent<E> {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// What comes after an attempt.
enum Next<W: Wire> {
    Send(W::Request),
    Done(Ended<W>),
}

/// How many times a request is sent at most, unless set.
pub(crate) const MOST_ATTEMPTS: usize = 4;

/// So many limits are read off one response.
const MOST_REPORTS: usize = 16;

/// Of a hundred requests, and in ten seconds.
pub(crate) const RETRY_BUDGET: (u32, u32) = (20, 10);

impl Exchange {
    /// Over a limiter by itself, as usual otherwise.
    pub(crate) fn of(limiter: Limiter) -> Self {
        let budget = Mutex::new(RetryBudget::new(RETRY_BUDGET.0, RETRY_BUDGET.1));
        let (most_attempts, backoff) = (MOST_ATTEMPTS, Backoff::default());
        let retries = Retries { most_attempts, backoff, trusts_503: false, budget };
        Self { limiter, rules: Rules::one(), retries, unread: Arc::new(Unread::new(UNREAD_FOR)), heeds_reports: true }
    }

    /// Somebody else has sent a request.
    pub(crate) fn count_as_sent(&self, host: (&str, Option<u16>), terms: &Terms, ago: Duration) {
        let limiter = self.rules.limiter(&self.limiter, host, terms.key.as_ref());
        limiter.count_as_sent(&terms.context, ago);
    }

    /// How far a request has come that begins now.
    pub(crate) fn begin<A: Answer>(&self, terms: &Terms) -> Trip<A> {
        let context = terms.budget.map_or_else(|| terms.context.clone(), |budget| terms.context.but_within(budget));
        self.budget(RetryBudget::deposit);
        Trip::new(context, self.limiter.max_wait())
    }

    /// Sends a request when its gates let it go; again if it was refused because of traffic, or failed and may be repeated.
    ///
    /// One deadline covers everything: the waits in the line, the server's pauses, and the attempts. A wait that it cannot
    /// cover is not begun: before the first attempt that is an error, after an answer that answer is returned.
    pub(crate) async fn run<W: Wire>(
        &self,
        wire: &mut W,
        mut request: W::Request,
        key: Option<&Key>,
        trip: &mut Trip<W::Response>,
    ) -> Result<Ended<W>, W::Error> {
        loop {
            match self.attempt(wire, request, key, trip).await? {
                Next::Send(again) => request = again,
                Next::Done(ended) => return Ok(ended),
            }
        }
    }

    /// The answer, holding the permit until its body has ended, and what has happened.
    pub(crate) fn hand_out<W: Wire>(&self, ended: Ended<W>, trip: &Trip<W::Response>, at_once: bool) -> W::Response {
        let mut answer = match ended {
            Ended::Last { mut answer, permit, copy, signal } => {
                if !signal.is_plain() {
                    answer.extensions_mut().insert(signal);
                }
                if at_once { answer } else { answer.hold(&copy.method, permit, &self.unread) }
            }
            Ended::Earlier(answer) => answer,
        };
        answer.extensions_mut().insert(trip.attempts);
        answer
    }

    async fn attempt<W: Wire>(
        &self,
        wire: &mut W,
        request: W::Request,
        key: Option<&Key>,
        trip: &mut Trip<W::Response>,
    ) -> Result<Next<W>, W::Error> {
        let is_first = trip.attempts.sent == 0 && trip.place.is_none();
        let mut course = self.rules.course(&self.limiter, &request, key, is_first);
        // What comes too late anyway is not sent.
        let late = |course: &Course| Err(Refused::new(Reason::Deadline, course.limiter.key_name()).into());
        let passed = if trip.is_late() { late(&course) } else { self.pass(&mut course, wire, trip).await };
        let permit = match passed {
            Ok(permit) => permit,
            Err(Unsent::Wire(error)) => return Err(error),
            Err(Unsent::Stop(stop)) => return Err(W::stopped(stop, Some(&request))),
            Err(Unsent::Refused(refused)) => {
                return had(trip.answer.take(), refused).map(Next::Done).map_err(|stop| W::stopped(stop, None));
            }
        };
        trip.sets_out(&permit);
        let copy = wire.copy(&request);
        match trip.unless_stopped(wire.send(request)).await {
            Ok(Ok(answer)) => self.after_answer(wire.follows(), answer, permit, copy, &course, trip).await,
            Ok(Err(error)) => self.after_error(wire.follows(), error, permit, copy, trip).await,
            Err(stop) => Err(W::stopped(stop, copy.request.as_ref())),
        }
    }

    /// Waits for a permit, and for what sends, until the permit still holds when the request leaves: a pause that came in
    /// between recalls it, and what was learned of whose limits there are may send it to other gates.
    async fn pass<W: Wire>(
        &self,
        course: &mut Course,
        wire: &mut W,
        trip: &mut Trip<W::Response>,
    ) -> Result<Permit, Unsent<W::Error>> {
        let (mut place, waiting) = (trip.place, trip.waiting());
        loop {
            let limiter = course.limiter.clone();
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
                    let unsent = match trip.unless_stopped(wire.ready()).await {
                        Ok(Ok(())) => None,
                        Ok(Err(error)) => Some(Unsent::Wire(error)),
                        Err(stop) => Some(Unsent::Stop(stop)),
                    };
                    if let Some(unsent) = unsent {
                        permit.give_back();
                        return Err(unsent);
                    }
                    if !self.rules.has_moved(&limiter, course) && !permit.recalled() {
                        return Ok(permit);
                    }
                    place = permit.return_unsent();
                }
                // Whoever does not wait is not waited for by the one who looks after them.
                Err(refused) if refused.is_for_room() && self.unread.give_up() => {}
                Err(refused) if refused.in_flight.is_some() => {
                    return Err(Refused { unread: limiter.unread(), ..refused }.into());
                }
                Err(refused) => return Err(refused.into()),
            }
        }
    }

    async fn after_error<W: Wire>(
        &self,
        follows: bool,
        error: W::Error,
        mut permit: Permit,
        copy: Copy<W::Request>,
        trip: &mut Trip<W::Response>,
    ) -> Result<Next<W>, W::Error> {
        let Failure { outcome, is_connect, is_silence } = W::failure(&error);
        // Where it follows by itself, what nobody took may have been the second part of what the first one did.
        let outcome = if outcome == Outcome::Untouched && follows { Outcome::Unknown } else { outcome };
        if outcome == Outcome::Untouched && is_connect {
            // The server has counted nothing. What it gave back it may have.
            permit.give_back();
        } else {
            if is_silence {
                permit.heard(Reply::Failed(None));
            }
            drop(permit);
        }
        trip.answer = None;
        let (Verdict::After(delay), Some(again)) =
            (self.decide(follows, outcome, &copy, Duration::ZERO, trip), copy.request)
        else {
            return Err(error);
        };
        trip.back_off(delay).await.map_err(|stop| W::stopped(stop, Some(&again)))?;
        Ok(Next::Send(again))
    }

    /// What an answer says holds for everybody at the gate, at once.
    async fn after_answer<W: Wire>(
        &self,
        follows: bool,
        answer: W::Response,
        permit: Permit,
        copy: Copy<W::Request>,
        course: &Course,
        trip: &mut Trip<W::Response>,
    ) -> Result<Next<W>, W::Error> {
        let head = Signal::read(answer.status(), answer.headers(), &[], since_1970());
        let reading = Reading { exchange: self, course, heard: Some((permit, head)) };
        let Some((answer, with_body)) = look_into(answer, trip).await else {
            return Err(W::stopped(Stop::Cancelled, copy.request.as_ref()));
        };
        let Some((mut permit, head)) = reading.done() else {
            return Err(W::stopped(Stop::Cancelled, copy.request.as_ref()));
        };
        let signal = with_body.unwrap_or(head);
        let reply = verdict::reply(&signal, fastrand::u32(..));
        trip.attempts.refused += usize::from(signal.throttled);
        let here = copy.request.as_ref().map(Letter::host);
        if let Some(elsewhere) = answer.url().map(host).filter(|there| here.is_some_and(|here| here != *there)) {
            // It has followed: what the other host says is not about this one, nor to be asked of it again.
            permit.answered();
            self.shut(elsewhere, reply);
            return Ok(Next::Done(Ended::Last { answer, permit, copy, signal }));
        }
        let shut = self.hear(&mut permit, course, reply, &signal);
        // Only this status proves that nothing was done.
        let proves = signal.throttled && answer.status() == StatusCode::TOO_MANY_REQUESTS;
        let copy = Copy { is_whole: copy.is_whole && (proves || !signal.throttled || copy.is_idempotent), ..copy };
        let verdict = self.decide(follows, Outcome::Answered(&signal), &copy, shut, trip);
        let again = match (verdict, copy.request) {
            (Verdict::Done, request) | (_, request @ None) => {
                return Ok(Next::Done(Ended::Last { answer, permit, copy: Copy { request, ..copy }, signal }));
            }
            (_, Some(again)) => again,
        };
        if let Some((answer, body)) = trip.read_ahead(answer).await {
            // What comes late may say that going again is no use.
            if said(&answer, &body).terminal {
                return Ok(Next::Done(Ended::Earlier(answer)));
            }
            trip.answer = Some(answer);
        }
        if let Verdict::After(delay) = verdict {
            // Its place in flight is free meanwhile.
            drop(permit);
            trip.back_off(delay).await.map_err(|stop| W::stopped(stop, Some(&again)))?;
        }
        Ok(Next::Send(again))
    }

    /// Tells the gate that an answer is about what it says. Answers for how long nobody passes now.
    fn hear(&self, permit: &mut Permit, course: &Course, reply: Reply, signal: &Signal) -> Duration {
        let About { refusal, limits } = self.rules.learn(course, signal);
        let limits = limits.into_iter().filter(|_| self.heeds_reports);
        let reports: Vec<_> = limits.map(|(gate, limits)| (gate, reports(&limits, signal))).collect();
        permit.heard_about(reply, refusal, &reports);
        if reply == Reply::Taken { Duration::ZERO } else { permit.shut_for() }
    }

    /// Nobody goes to a host for a while that was asked by way of another one.
    fn shut(&self, host: (&str, Option<u16>), reply: Reply) {
        let wait = match reply {
            Reply::Refused(wait) | Reply::Failed(Some(wait)) => wait,
            Reply::Failed(None) | Reply::Taken => return,
        };
        let wait = backoff::pause(wait, 0);
        self.rules.limiter(&self.limiter, host, None).pause_until(Instant::now() + wait);
    }

    /// Whether it goes again. What no server has asked for draws on what the traffic has earned.
    fn decide<R, A: Answer>(
        &self,
        follows: bool,
        outcome: Outcome<'_>,
        copy: &Copy<R>,
        shut: Duration,
        trip: &mut Trip<A>,
    ) -> Verdict {
        let Retries { most_attempts, backoff, trusts_503, .. } = &self.retries;
        let mut attempt = trip.attempt(copy, *most_attempts, *trusts_503, shut);
        // Where it follows by itself, what an answer says may be about the second part of what the first one did.
        attempt.is_whole &= !follows || attempt.is_idempotent;
        let verdict = verdict::decide(outcome, attempt, || trip.delay(backoff, fastrand::u32(..)));
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
}

/// A permit while its answer is looked into. Whoever stops that meanwhile, the others hear what the head says.
struct Reading<'a> {
    exchange: &'a Exchange,
    course: &'a Course,
    heard: Option<(Permit, Signal)>,
}

impl Reading<'_> {
    fn done(mut self) -> Option<(Permit, Signal)> {
        self.heard.take()
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some((permit, head)) = &mut self.heard {
            let reply = verdict::reply(head, fastrand::u32(..));
            self.exchange.hear(permit, self.course, reply, head);
        }
    }
}

/// What a refusal or a failure says with its body, as far as that is here; nothing more, if there is none. `None` if it was cancelled
/// meanwhile.
async fn look_into<A: Answer>(answer: A, trip: &mut Trip<A>) -> Option<(A, Option<Signal>)> {
    let status = answer.status();
    if !status.is_client_error() && !status.is_server_error() {
        return Some((answer, None));
    }
    let (answer, body) = trip.look_into(answer).await?;
    let signal = (!body.bytes.is_empty()).then(|| said(&answer, &body));
    Some((answer, signal))
}

fn said<A: Answer>(answer: &A, body: &Peeked) -> Signal {
    Signal::read(answer.status(), answer.headers(), &body.bytes, since_1970())
}

/// What whoever may not go again is told: the answer that it had, if waiting longer is all that it could do.
fn had<W: Wire>(answer: Option<W::Response>, refused: Refused) -> Result<Ended<W>, Stop> {
    match answer {
        Some(answer) if !matches!(refused.reason, Reason::Cancelled | Reason::Closed) => Ok(Ended::Earlier(answer)),
        _ => Err(refused.into()),
    }
}

/// What limits say to those who come next.
fn reports(limits: &[StatedLimit], signal: &Signal) -> Vec<Report> {
    let same = |limit: &StatedLimit| limits.iter().filter(|other| other.name == limit.name).count() > 1;
    limits.iter().take(MOST_REPORTS).filter_map(|limit| report(limit, same(limit), signal)).collect()
}

/// What one limit says; nothing, if it does not say what is left. Of several by one name each is told by its time.
fn report(limit: &StatedLimit, by_window: bool, signal: &Signal) -> Option<Report> {
    let unit = if limit.name.contains("token") { Unit::TOKENS } else { Unit::REQUESTS };
    let window = limit.window.filter(|_| by_window);
    let name = window.map_or_else(|| Arc::from(&*limit.name), |window| format!("{} in {window:?}", limit.name).into());
    Some(Report {
        name,
        unit,
        left: whole(limit.remaining?),
        most: limit.limit.map(whole),
        // A stated wait goes before a reset, also where it is shorter.
        resets_after: signal.wait.filter(|_| signal.throttled).or(limit.reset_after),
        window: limit.window,
        refused: signal.throttled,
    })
}

/// Rounded down. What is no number is none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast stops at the ends")]
fn whole(number: f64) -> u64 {
    number as u64
}

/// By the wall clock, for responses that do not say what theirs shows.
fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
