//! What has the server seen, and what did it decide? Plain state behind the server's one lock.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Method, Version};

use super::super::judge::{Judge, Verdict};
use super::answer::{Answer, Body, RetryAfter};
use super::others::{OtherClient, Turns};
use super::says::Says;

/// One request, as the server saw it. Instants are counted from the server's start.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The head was read.
    pub came: Duration,
    /// The limits, or the script, were asked: after the jitter before.
    pub counted: Option<Duration>,
    /// The head of the answer was handed over.
    pub answered: Option<Duration>,
    /// The body was handed over completely, or everything was dropped.
    pub ended: Option<Duration>,
    /// The jitter that was drawn for it, whether or not the clock lets it be slept.
    pub jitter: Jitter,
    /// What was decided when it was counted.
    pub fate: Option<Fate>,
    /// The request's method.
    pub method: Method,
    /// The request's path, without the query.
    pub path: String,
    /// The request's query.
    pub query: Option<String>,
    /// HTTP/1.1 or HTTP/2.
    pub version: Version,
    /// The answer's status.
    pub status: Option<u16>,
    /// The request's headers.
    pub headers: HeaderMap,
    /// The first [`BODY_KEPT`] bytes of the request's body.
    pub body: Bytes,
    /// How long the request's body was in all.
    pub body_length: u64,
    /// Which connection carried it; the first is 1.
    pub connection: u64,
}

/// How much of a request's body is kept.
pub const BODY_KEPT: usize = 1 << 20;

/// What was decided about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The limits counted it.
    Accepted,
    /// The limits gave it a 429.
    Refused,
    /// The script answered; the limits were not asked.
    Scripted,
}

/// The range from which a delay is drawn.
pub(super) type Range = RangeInclusive<Duration>;

/// What does not change while the server runs.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) before: Range,
    pub(super) after: Range,
    pub(super) retry_after: RetryAfter,
    pub(super) says: Says,
    pub(super) body: Body,
}

/// The delays of one request, drawn when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// Between the reading of its head and the counting.
    pub before: Duration,
    /// Between the counting and the answer.
    pub after: Duration,
}

#[derive(Debug)]
pub(super) struct Books {
    pub(super) settings: Settings,
    pub(super) script: VecDeque<Answer>,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) accepted: usize,
    pub(super) refused: usize,
    pub(super) others_accepted: Vec<Duration>,
    pub(super) others_refused: usize,
    pub(super) in_flight: usize,
    pub(super) peak_in_flight: usize,
    pub(super) connections: u64,
    pub(super) open_connections: usize,
    judge: Judge,
    others: Vec<Turns>,
    random: fastrand::Rng,
    /// Requests that came before the records were last reset: ids go on, places begin again.
    forgotten: usize,
}

impl Books {
    pub(super) fn new(settings: Settings, judge: Judge, seed: u64) -> Self {
        Self {
            settings,
            script: VecDeque::new(),
            arrivals: Vec::new(),
            accepted: 0,
            refused: 0,
            others_accepted: Vec::new(),
            others_refused: 0,
            in_flight: 0,
            peak_in_flight: 0,
            connections: 0,
            open_connections: 0,
            judge,
            others: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            forgotten: 0,
        }
    }

    /// A request's head was read. Returns its id.
    pub(super) fn came(&mut self, now: Duration, head: &Parts, connection: u64) -> (usize, Jitter) {
        let id = self.forgotten + self.arrivals.len();
        let before = draw(&mut self.random, &self.settings.before);
        let after = draw(&mut self.random, &self.settings.after);
        let jitter = Jitter { before, after };
        self.arrivals.push(Arrival::new(now, head, connection, jitter));
        (id, jitter)
    }

    /// Asks the script and the limits. Returns the answer to give.
    pub(super) fn count(&mut self, now: Duration, id: usize, path: &str) -> (Fate, Answer) {
        let scripted = self.script.iter().position(|answer| answer.suits(path));
        let (fate, answer) = match scripted {
            Some(place) if !self.script[place].judged => {
                (Fate::Scripted, self.script.remove(place).expect("a place in the script"))
            }
            _ => self.judge(now, scripted),
        };
        if fate != Fate::Refused {
            self.in_flight += 1;
            self.peak_in_flight = self.peak_in_flight.max(self.in_flight);
        }
        self.edit(id, |arrival| {
            arrival.counted = Some(now);
            arrival.fate = Some(fate);
        });
        (fate, answer)
    }

    fn judge(&mut self, now: Duration, scripted: Option<usize>) -> (Fate, Answer) {
        self.let_others_come(now);
        let verdict = self.judge.arrive(now);
        if verdict != Verdict::Accepted {
            self.refused += 1;
            let refusal = Answer::refusal(&verdict, self.settings.retry_after);
            return (Fate::Refused, self.with_standing(now, refusal));
        }
        self.accepted += 1;
        let scripted = scripted.and_then(|place| self.script.remove(place));
        let ordinary = || Answer::status(200).body(self.settings.body.clone());
        let answer = scripted.unwrap_or_else(|| self.with_standing(now, ordinary()));
        (Fate::Accepted, answer)
    }

    /// An answer that says how the limits stand.
    fn with_standing(&self, now: Duration, answer: Answer) -> Answer {
        let headers = self.judge.standing(now).map(|standing| self.settings.says.headers(standing));
        headers.into_iter().flatten().fold(answer, |answer, (name, value)| answer.header(name, &value))
    }

    /// The head is handed over. Returns when.
    pub(super) fn answered(&mut self, now: Duration, id: usize, status: u16) -> Duration {
        self.edit(id, |arrival| {
            arrival.answered = Some(now);
            arrival.status = Some(status);
        });
        now
    }

    /// Nothing more will happen to this request.
    pub(super) fn ended(&mut self, now: Duration, id: usize, fate: Option<Fate>) {
        if fate == Some(Fate::Accepted) {
            self.let_others_come(now);
            self.judge.ended(now);
        }
        if matches!(fate, Some(Fate::Accepted | Fate::Scripted)) {
            self.in_flight -= 1;
        }
        self.edit(id, |arrival| arrival.ended = Some(now));
    }

    pub(super) fn received(&mut self, id: usize, data: &Bytes, kept: &mut Vec<u8>) {
        let room = BODY_KEPT.saturating_sub(kept.len());
        kept.extend_from_slice(&data[..room.min(data.len())]);
        self.edit(id, |arrival| arrival.body_length += data.len() as u64);
    }

    pub(super) fn received_all(&mut self, id: usize, kept: Vec<u8>) {
        self.edit(id, |arrival| arrival.body = kept.into());
    }

    pub(super) fn add_other_client(&mut self, now: Duration, client: OtherClient) {
        self.let_others_come(now);
        self.others.push(Turns::new(client, now));
    }

    /// Judges the other clients' requests up to `now`, each at its own instant and in their order.
    /// Called before the judge hears of anything else, so that it sees one growing clock.
    pub(super) fn let_others_come(&mut self, now: Duration) {
        while let Some((at, who)) = self.next_other().filter(|(at, _)| *at <= now) {
            self.others[who].advance();
            if self.judge.arrive(at) == Verdict::Accepted {
                self.judge.ended(at);
                self.others_accepted.push(at);
            } else {
                self.others_refused += 1;
            }
        }
    }

    fn next_other(&self) -> Option<(Duration, usize)> {
        let turns = self.others.iter().enumerate();
        turns.filter_map(|(who, turns)| Some((turns.next()?, who))).min()
    }

    /// Forgets the records and the counters; the limits keep what they have counted.
    pub(super) fn reset_records(&mut self) {
        self.forgotten += self.arrivals.len();
        self.arrivals.clear();
        self.others_accepted.clear();
        (self.accepted, self.refused, self.others_refused) = (0, 0, 0);
        self.peak_in_flight = self.in_flight;
    }

    fn edit(&mut self, id: usize, edit: impl FnOnce(&mut Arrival)) {
        let place = id.checked_sub(self.forgotten);
        if let Some(arrival) = place.and_then(|place| self.arrivals.get_mut(place)) {
            edit(arrival);
        }
    }
}

impl Arrival {
    fn new(came: Duration, head: &Parts, connection: u64, jitter: Jitter) -> Self {
        Self {
            came,
            counted: None,
            answered: None,
            ended: None,
            jitter,
            fate: None,
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().map(str::to_owned),
            version: head.version,
            status: None,
            headers: head.headers.clone(),
            body: Bytes::new(),
            body_length: 0,
            connection,
        }
    }
}

fn draw(random: &mut fastrand::Rng, range: &Range) -> Duration {
    let nanos = |wait: &Duration| u64::try_from(wait.as_nanos()).expect("a short delay");
    Duration::from_nanos(random.u64(nanos(range.start())..=nanos(range.end())))
}
