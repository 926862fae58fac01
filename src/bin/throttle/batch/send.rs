//! What comes of sending one request?

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use reqwest_throttle::{Attempts, Client, Error, Reason, Request, Response};
use tokio_util::sync::CancellationToken;

use super::line::Line;
use super::record::{Came, Fault, Record};
use super::spent::Spent;
use crate::cause::told;

/// What all requests are sent with.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) client: Client,
    /// Until when each has to be answered, from its turn in the program on.
    pub(crate) within: Option<Duration>,
    /// How long a body may be.
    pub(crate) most_body: usize,
    pub(crate) stop: Stop,
}

/// Whether requests are to be given up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    /// Those that were not sent yet.
    pub(crate) unsent: CancellationToken,
    /// All others too.
    pub(crate) all: CancellationToken,
}

/// The request that a task sends.
struct Sending {
    costs: BTreeMap<String, u64>,
    first_sent: Cell<Option<Instant>>,
    attempts: Cell<usize>,
}

tokio::task_local! {
    static SENDING: Sending;
}

/// What a client is to do with each request that leaves: count it, and write it down for a later run.
pub(crate) fn on_send(count: Arc<AtomicU64>, spent: Option<Arc<Spent>>) -> impl Fn(&Request) + Send + Sync {
    move |request| {
        count.fetch_add(1, Relaxed);
        // The task that sends is always one of ours.
        let _ = SENDING.try_with(|sending| {
            if let Some(spent) = &spent {
                spent.add(request, &sending.costs);
            }
            sending.first_sent.set(sending.first_sent.get().or_else(|| Some(Instant::now())));
            sending.attempts.set(sending.attempts.get() + 1);
        });
    }
}

/// What came of a request, and how often the server refused it because of traffic.
pub(crate) struct Sent {
    pub(crate) record: Record,
    pub(crate) refused: usize,
}

impl Terms {
    /// Sends a request. `None` if it was given up.
    pub(crate) async fn send(&self, line: Line) -> Option<Sent> {
        let costs = line.costs.clone();
        let sending = Sending { costs, first_sent: Cell::new(None), attempts: Cell::new(0) };
        let given_up_or_sent = async {
            tokio::select! {
                biased;
                sent = self.ask(line) => Some(sent),
                () = self.is_given_up() => None,
            }
        };
        SENDING.scope(sending, given_up_or_sent).await
    }

    async fn is_given_up(&self) {
        self.stop.unsent.cancelled().await;
        if SENDING.with(|sending| sending.attempts.get() > 0) {
            self.stop.all.cancelled().await;
        }
    }

    async fn ask(&self, line: Line) -> Sent {
        let begun = Instant::now();
        let (id, print, secret) = (Some(line.id.clone()), line.print, line.url.query().map(str::to_owned));
        let (came, seen) = match self.answer(line).await {
            Ok((came, seen)) => (came, seen),
            Err(error) => (Came::Error(fault(&error, secret.as_deref())), None),
        };
        let whole = begun.elapsed();
        let waited = seen.map_or_else(|| before_sending(begun, whole), |seen| seen.in_line + seen.backed_off);
        let (attempts, took) = (SENDING.with(|sending| sending.attempts.get()), whole.saturating_sub(waited));
        Sent {
            record: Record { id, print, came, attempts, waited, took },
            refused: seen.map_or(0, |seen| seen.refused),
        }
    }

    async fn answer(&self, line: Line) -> Result<(Came, Option<Attempts>), Error> {
        let mut request = self.client.request(line.method, line.url).headers(line.headers).priority(line.priority);
        for (unit, amount) in line.costs {
            request = request.cost(unit.as_str(), amount);
        }
        if let Some(flow) = line.flow {
            request = request.flow(flow);
        }
        if let Some(body) = line.body {
            request = request.body(body);
        }
        if let Some(within) = self.within {
            request = request.within(within);
        }
        let response = request.send().await?;
        let seen = response.extensions().get::<Attempts>().copied();
        Ok((self.read(response).await?, seen))
    }

    async fn read(&self, mut response: Response) -> Result<Came, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > self.most_body {
                let most = self.most_body >> 20;
                let message =
                    format!("the body is longer than {most} MiB; allow more by --max-body, and --retry-failed");
                return Ok(Came::Error(Fault { code: "body_too_large", message }));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Came::Answer { status: response.status().as_u16(), headers: std::mem::take(response.headers_mut()), body })
    }
}

/// How long a request waited that has no answer, as far as that is known.
fn before_sending(begun: Instant, whole: Duration) -> Duration {
    let first = SENDING.with(|sending| sending.first_sent.get());
    first.map_or(whole, |first| first.saturating_duration_since(begun))
}

/// What an error is called, and what it says with all that it comes from.
fn fault(error: &Error, secret: Option<&str>) -> Fault {
    let mut message = told(error);
    if let Some(secret) = secret.filter(|secret| !secret.is_empty()) {
        message = message.replace(secret, "…");
    }
    Fault { code: code(error), message }
}

fn code(error: &Error) -> &'static str {
    match error.refused().map(|refused| refused.reason) {
        Some(Reason::Deadline) => return "deadline",
        Some(Reason::CostExceedsQuota) => return "cost_exceeds_quota",
        Some(_) => return "refused",
        None => {}
    }
    let codes = [
        (error.is_timeout(), "timeout"),
        (error.is_dns(), "dns"),
        (error.is_connect(), "connect"),
        (error.is_redirect(), "redirect"),
        (error.is_builder(), "bad_request"),
        (error.is_body() || error.is_decode(), "body"),
    ];
    codes.into_iter().find(|(is, _)| *is).map_or("network", |(_, code)| code)
}
