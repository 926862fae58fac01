//! Leave to send one request: [`Permit`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::admission::{Admission, Arrival, GateName, Grant, Report};
use crate::cost::Unit;
use crate::entrance::Entrance;
use crate::wait::Reply;

/// Leave to send one request, from [`Limiter::acquire`](crate::Limiter::acquire) or
/// [`Limiter::try_acquire`](crate::Limiter::try_acquire). Dropping it ends the request: its slot is free again, and what a
/// window has not heard the answer of is answered now.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest_throttle::{Context, Limiter};
///
/// let limiter = Limiter::new("10/s, 1000 tokens/min, 2 in flight")?;
/// let mut permit = limiter.acquire(&Context::new().cost("tokens", 100)).await?;
/// if !permit.recalled() {
///     // send the request; when its head is there:
///     permit.answered();
///     // when its body has told what it took:
///     permit.settle("tokens", 130);
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a permit that is dropped counts as a request that has ended"]
pub struct Permit {
    entrance: Arc<Entrance>,
    /// Only gone while it is being ended.
    grant: Option<Grant>,
    waited: Duration,
    /// The gate that its answer was about, if that is not the first.
    about: Option<GateName>,
}

impl Permit {
    pub(crate) fn new(entrance: Arc<Entrance>, grant: Option<Grant>, waited: Duration) -> Self {
        Self { entrance, grant, waited, about: None }
    }

    /// To be asked right before the request is sent. True if it must not be sent any more: a pause has come in between, or
    /// so much time that what was taken is not there any more. Then [`give_back`](Self::give_back) the permit, and ask for
    /// another one.
    #[must_use]
    pub fn recalled(&mut self) -> bool {
        let grant = self.grant.as_ref();
        grant.is_some_and(|grant| !self.entrance.shared.with(|core, now| core.send(grant, now)))
    }

    /// The server took the request: windows count from now, unless their [`Anchor`](crate::Anchor) says otherwise, and a
    /// gate that was paused is open.
    pub fn answered(&mut self) {
        self.heard(Reply::Taken);
    }

    /// What the answer says, or that there was none in time, about the gate that it spoke of before, or else the first.
    pub(crate) fn heard(&mut self, reply: Reply) {
        let gate = self.about.take().unwrap_or_else(|| self.entrance.gates[0].clone());
        self.heard_about(reply, gate, &[]);
    }

    /// What the answer says: of its refusal at one gate, and what it says is left at some. It may not have passed them.
    pub(crate) fn heard_about(&mut self, reply: Reply, gate: GateName, reports: &[(GateName, Vec<Report>)]) {
        let Some(grant) = &self.grant else { return };
        let refusal = self.about.insert(gate);
        let first = &self.entrance.gates[0];
        let place = |core: &Admission, name| if name == first { Some(0) } else { core.place(grant, name) };
        self.entrance.shared.with(|core, now| {
            for (gate, reports) in reports.iter().filter(|(_, reports)| !reports.is_empty()) {
                match place(core, gate) {
                    Some(place) => core.report(grant, place, reports, now),
                    None => core.report_of_another(gate, reports, now),
                }
            }
            match (reply, place(core, refusal)) {
                (Reply::Taken, _) => core.answered(grant, now),
                (Reply::Failed(wait), _) => core.failed(grant, 0, wait, now),
                (Reply::Refused(wait), Some(place)) => core.refused(grant, place, wait, now),
                (Reply::Refused(wait), None) => core.refused_by_another(grant, refusal, wait, now),
            }
        });
    }

    /// The request took so much of a unit, and not what it was taken to cost. More goes into debt, which those who come
    /// next wait for; less is there for others.
    pub fn settle(&mut self, unit: impl Into<Unit>, actual: u64) {
        if let Some(grant) = &self.grant {
            let unit = unit.into();
            self.entrance.shared.with(|core, now| core.settle(grant, &unit, actual, now));
        }
    }

    /// The request was never sent, as when nobody took the connection: it is as if the permit had never been had.
    pub fn give_back(self) {
        self.return_unsent();
    }

    /// Answers its place in the line.
    pub(crate) fn return_unsent(mut self) -> Option<Arrival> {
        let grant = self.grant.take()?;
        let arrival = grant.arrival;
        self.entrance.shared.with(|core, now| core.give_back(grant, now));
        Some(arrival)
    }

    /// For how long nobody passes the first of its gates, or the one that its answer was about, as things stand.
    pub(crate) fn shut_for(&self) -> Duration {
        let gates = self.about.iter().chain(self.entrance.gates.first());
        self.entrance.shared.with(|core, now| {
            gates.filter_map(|gate| core.opens(gate, now)).max().map_or(Duration::ZERO, |at| at.since(now))
        })
    }

    /// Whether anybody waits, at whatever gate.
    pub(crate) fn somebody_waits(&self) -> bool {
        self.entrance.shared.somebody_waits()
    }

    /// The response that holds it is one that nobody reads, or not any more.
    pub(crate) fn note_unread(&self, is_unread: bool) {
        let unread = &self.entrance.shared.unread;
        if is_unread {
            unread.fetch_add(1, Relaxed);
        } else {
            unread.fetch_sub(1, Relaxed);
        }
    }

    /// The first of the keys that it passed.
    pub(crate) fn key(&self) -> &str {
        self.entrance.gates[0].key.as_str()
    }

    /// How long it was waited for.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// The place in the line, for another attempt of the same request.
    pub(crate) fn arrival(&self) -> Option<Arrival> {
        self.grant.as_ref().map(|grant| grant.arrival)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.entrance.shared.end(grant);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("waited", &self.waited).finish_non_exhaustive()
    }
}
