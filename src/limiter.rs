//! Waiting for one's turn: [`Limiter`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tokio::time::{Instant, timeout_at};

use crate::admission::{Admission, Arrival, Asked, GateName, HandOver, Rule, Settings, Snapshot, Use, Wish};
use crate::context::Context;
use crate::cost::Cost;
use crate::driver::Shared;
use crate::entrance::Entrance;
use crate::invalid::Invalid;
use crate::key::Key;
use crate::limits::Limits;
use crate::observe::{Tell, Waits};
use crate::permit::Permit;
use crate::place::{Place, Turn};
use crate::refused::{Reason, Refused};
use crate::reservation::{Permitted, Reservation};
use crate::time::{Time, nanos};

/// A limiter has one set of limits, for all of its keys.
const RULE: usize = 0;

/// Nobody waits longer without having asked for it, unless set.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// A limiter: everybody who shares it goes as soon as its limits allow, in one order: the more urgent first, flows in turn,
/// and otherwise by arrival.
///
/// Clones share the limits. Who waits stands in a queue: whoever leaves it, by dropping its future, by a cancelled token
/// or at its deadline, leaves it as if it had never asked, and everybody behind moves up.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest_throttle::{Context, Limiter, Limits};
/// use std::time::Duration;
///
/// let limiter = Limiter::new(Limits::new().quota("10/s burst 5").in_flight(2))?;
/// let permit = limiter.acquire(&Context::within(Duration::from_secs(1))).await?;
/// // send the request, read its answer
/// drop(permit);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "rate limiter")]
#[doc(alias = "semaphore")]
#[derive(Clone)]
pub struct Limiter(Arc<Entrance>);

impl Limiter {
    /// A limiter with these limits: a [`Limits`], a [`Quota`](crate::Quota), or a quota's text.
    ///
    /// # Errors
    ///
    /// When the limits cannot be read or cannot be kept: the error names the value and what is allowed.
    pub fn new<L>(limits: L) -> Result<Self, Invalid>
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        Self::builder(limits).build()
    }

    /// A limiter of which more is to be said.
    ///
    /// # Examples
    ///
    /// ```
    /// use reqwest_throttle::Limiter;
    /// use std::time::Duration;
    ///
    /// let limiter = Limiter::builder("10/s")
    ///     .max_wait(Duration::from_secs(60))
    ///     .max_waiting(1_000)
    ///     .on_wait(|waits| eprintln!("{waits}"))
    ///     .build()?;
    /// # Ok::<(), reqwest_throttle::Invalid>(())
    /// ```
    pub fn builder<L>(limits: L) -> LimiterBuilder
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        let limits = checked(limits);
        let settings = limits.map(Settings::from);
        LimiterBuilder { settings, max_wait: MAX_WAIT, on_wait: None }
    }

    /// The limiter of one key, a tenant, a host or a route: the same limits, counted by themselves. Keys are made on first
    /// use and forgotten when they are at rest; there are 100 000 at most, or what is set.
    ///
    /// # Examples
    ///
    /// ```
    /// use reqwest_throttle::Limiter;
    ///
    /// let tenants = Limiter::new("1/min")?;
    /// assert!(tenants.key("a").try_acquire().is_ok() && tenants.key("b").try_acquire().is_ok());
    /// assert!(tenants.key("a").try_acquire().is_err());
    /// # Ok::<(), reqwest_throttle::Invalid>(())
    /// ```
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.of(Key::new(key))
    }

    fn of(&self, key: Key) -> Self {
        self.through(smallvec![GateName { rule: RULE, key }])
    }

    /// The limiter of those who pass all of these gates. The first is the one that a refusal is about.
    pub(crate) fn through(&self, gates: SmallVec<[GateName; 1]>) -> Self {
        let Entrance { shared, max_wait, on_wait, .. } = &*self.0;
        Self(Arc::new(Entrance { shared: Arc::clone(shared), gates, max_wait: *max_wait, on_wait: on_wait.clone() }))
    }

    pub(crate) fn gates(&self) -> &SmallVec<[GateName; 1]> {
        &self.0.gates
    }

    /// What was learned of answers at a gate was not about everybody who passes there.
    pub(crate) fn hand_over(&self, what: &HandOver) {
        self.0.shared.with(|core, now| core.hand_over(what, now));
    }

    pub(crate) fn max_wait(&self) -> Duration {
        self.0.max_wait
    }

    /// What time it is, on the clock of those who wait.
    pub(crate) fn now(&self) -> Time {
        self.0.shared.time(Instant::now())
    }

    /// How many responses hold a place in flight that nobody reads.
    pub(crate) fn unread(&self) -> usize {
        self.0.shared.unread.load(Relaxed)
    }

    /// A permit, if one can be had without waiting and without overtaking anybody.
    ///
    /// # Errors
    ///
    /// [`Reason::WouldWait`](crate::Reason::WouldWait), with the limit that is in the way and the wait that it would take.
    pub fn try_acquire(&self) -> Result<Permit, Refused> {
        let cost = Cost::new();
        self.ask_at_once(&Wish::new(&self.0.gates, &cost))
    }

    /// As [`try_acquire`](Self::try_acquire), with the cost, the priority and the flow of a context. Its deadline does not
    /// matter.
    ///
    /// # Errors
    ///
    /// As there; and [`Reason::CostExceedsQuota`](crate::Reason::CostExceedsQuota).
    pub fn try_acquire_with(&self, context: &Context) -> Result<Permit, Refused> {
        self.ask_at_once(&Wish {
            class: context.urgency(),
            flow: context.flow_name().cloned(),
            cancelled: context.is_cancelled(),
            ..Wish::new(&self.0.gates, context.costs())
        })
    }

    fn ask_at_once(&self, wish: &Wish<'_>) -> Result<Permit, Refused> {
        match self.0.shared.with(|core, now| core.ask(wish, now))? {
            Asked::Granted(grant) => Ok(Permit::new(Arc::clone(&self.0), Some(grant), Duration::ZERO)),
            Asked::Waiting(_) => Err(Refused::new(Reason::WouldWait, "")),
        }
    }

    /// Waits for one's turn: wait, then send.
    ///
    /// The limiter does not hear when the answer comes. A window therefore counts the request from a while after its
    /// turn (a twentieth of the window, between 20 ms and 1 s): it is safe on a network whose delays differ by less
    /// than that. With [`acquire`](Self::acquire), or through [`Client`](crate::Client), it counts from the answer, as
    /// [`Anchor`](crate::Anchor) says.
    ///
    /// # Errors
    ///
    /// As soon as it is certain that the deadline of the context cannot be met, and at the deadline at the latest:
    /// [`Reason::Deadline`](crate::Reason::Deadline). When requests in flight are limited, which only a permit can
    /// count: [`Reason::NeedsPermit`](crate::Reason::NeedsPermit). When it would have to wait outside a tokio
    /// runtime: [`Reason::NoRuntime`](crate::Reason::NoRuntime). And [`Reason::QueueFull`](crate::Reason::QueueFull),
    /// [`Reason::Cancelled`](crate::Reason::Cancelled), [`Reason::Closed`](crate::Reason::Closed).
    ///
    /// # Panics
    ///
    /// When it has to wait on a tokio runtime whose timers are disabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line; nothing was taken.
    pub fn wait(&self, context: &Context) -> impl Future<Output = Result<(), Refused>> + Send + use<> {
        Turn(self.place(Use::Unseen, context, None))
    }

    /// Waits for a permit. Hold it until the request has ended: it counts as in flight, and its end is when windows take
    /// the answer to have come (or what their [`Anchor`](crate::Anchor) says, if that is earlier).
    ///
    /// # Errors
    ///
    /// As soon as it is certain that the deadline of the context cannot be met, and at the deadline at the latest:
    /// [`Reason::Deadline`](crate::Reason::Deadline). When it would have to wait outside a tokio runtime:
    /// [`Reason::NoRuntime`](crate::Reason::NoRuntime). And [`Reason::QueueFull`](crate::Reason::QueueFull),
    /// [`Reason::Cancelled`](crate::Reason::Cancelled), [`Reason::Closed`](crate::Reason::Closed).
    ///
    /// # Panics
    ///
    /// When it has to wait on a tokio runtime whose timers are disabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line; nothing was taken.
    pub fn acquire(&self, context: &Context) -> impl Future<Output = Result<Permit, Refused>> + Send + use<> {
        self.acquire_in_place(None, context)
    }

    /// As [`acquire`](Self::acquire), in the place of a permit that was recalled or refused.
    pub(crate) fn acquire_in_place(
        &self,
        arrival: Option<Arrival>,
        context: &Context,
    ) -> impl Future<Output = Result<Permit, Refused>> + Send + use<> {
        Permitted(self.place(Use::Permit, context, arrival))
    }

    /// Takes a place in the line now, to be awaited later. It can be asked how long that would be, and given up.
    ///
    /// # Errors
    ///
    /// At once what [`acquire`](Self::acquire) would be refused for at once; the rest when it is awaited.
    pub fn reserve(&self, context: &Context) -> Result<Reservation, Refused> {
        Reservation::new(self.place(Use::Permit, context, None))
    }

    fn place(&self, usage: Use, context: &Context, arrival: Option<Arrival>) -> Place {
        Place::new(Arc::clone(&self.0), usage, context.clone(), arrival)
    }

    /// Nobody passes before this instant; after it the first one goes ahead of the others, until its answer or for a
    /// second, and then they go at the steady rate. Whoever cannot wait that long is refused now. Of several pauses
    /// the longest holds.
    pub fn pause_until(&self, until: Instant) {
        let until = self.0.shared.time(until);
        // Of several gates, a client's, the first is the one that a refusal is about.
        self.0.shared.with(|core, now| core.pause(&self.0.gates[0], until, now));
    }

    /// Counts what an earlier run of the program, or another program, sent `ago`: it takes its units as if this limiter had let it
    /// go then, into debt if need be. Those that count already are best counted in the order in which they went.
    ///
    /// # Examples
    ///
    /// ```
    /// use reqwest_throttle::{Context, Limiter};
    /// use std::time::Duration;
    ///
    /// let limiter = Limiter::new("2/min")?;
    /// for seconds in [70, 50, 10] {
    ///     limiter.count_as_sent(&Context::new(), Duration::from_secs(seconds));
    /// }
    /// assert!(limiter.try_acquire().is_err(), "two of them were sent within this minute");
    /// # Ok::<(), reqwest_throttle::Invalid>(())
    /// ```
    pub fn count_as_sent(&self, context: &Context, ago: Duration) {
        let Entrance { shared, gates, .. } = &*self.0;
        shared.with(|core, now| core.count(gates, context.costs(), now.minus(nanos(ago)), now));
    }

    /// The key of the first of its gates.
    pub(crate) fn key_name(&self) -> &str {
        self.0.gates[0].key.as_str()
    }

    /// Other limits from now on, for everybody who shares this limiter, also for those who wait. What has been used
    /// under a quota stays used under the most similar one of the same unit that takes its place.
    ///
    /// # Errors
    ///
    /// When the limits cannot be read or cannot be kept; then the old ones stay.
    pub fn set_limits<L>(&self, limits: L) -> Result<(), Invalid>
    where
        L: TryInto<Limits>,
        L::Error: Into<Invalid>,
    {
        let limits = checked(limits)?;
        self.0.shared.with(|core, now| core.set_limits(RULE, limits, now));
        Ok(())
    }

    /// How each key stands: what is left, how many are in flight, who waits and for what.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.0.shared.with(Admission::snapshot)
    }

    /// Lets nobody new in, for all keys: they are refused with [`Reason::Closed`](crate::Reason::Closed). Waits until all
    /// who wait have gone and all permits have ended. If that is not so at the deadline, the limiter is
    /// [closed](Self::close), and the answer is false.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting; nobody new is let in all the same.
    pub async fn drain(&self, deadline: Instant) -> bool {
        self.0.shared.with(|core, _| core.drain());
        loop {
            let idle = self.0.shared.idle.notified();
            if self.0.shared.with(|core, _| core.is_drained()) {
                return true;
            }
            if timeout_at(deadline, idle).await.is_err() {
                self.close();
                return self.0.shared.with(|core, _| core.is_drained());
            }
        }
    }

    /// Lets nobody in any more, for all keys: they are refused with [`Reason::Closed`](crate::Reason::Closed), and so are
    /// all who wait, promptly. Permits that are out stay good.
    pub fn close(&self) {
        self.0.shared.with(Admission::close);
    }
}

pub(crate) fn checked<L>(limits: L) -> Result<Limits, Invalid>
where
    L: TryInto<Limits>,
    L::Error: Into<Invalid>,
{
    let limits = limits.try_into().map_err(Into::into)?;
    limits.check()?;
    Ok(limits)
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("key", &self.0.gates[0].key).finish_non_exhaustive()
    }
}

/// What a [`Limiter`] is made with, from [`Limiter::builder`].
#[derive(Debug)]
pub struct LimiterBuilder {
    settings: Result<Settings, Invalid>,
    max_wait: Duration,
    on_wait: Option<Tell<Waits>>,
}

impl LimiterBuilder {
    /// Several limits, each for gates of their own, by number, in the place of those that it was begun with.
    pub(crate) fn rules(mut self, rules: impl IntoIterator<Item = Limits>) -> Self {
        if let Ok(settings) = &mut self.settings {
            settings.rules = rules.into_iter().map(|limits| Rule { limits, ..Rule::default() }).collect();
        }
        self
    }

    /// All that passes is counted by limits that somebody has set, of one rule or another.
    pub(crate) fn counted(mut self) -> Self {
        if let Ok(settings) = &mut self.settings {
            settings.rules.iter_mut().for_each(|rule| rule.counted = true);
        }
        self
    }

    /// The limits of this rule are gone without where there are too many keys.
    pub(crate) fn optional(mut self, rule: usize) -> Self {
        if let Ok(settings) = &mut self.settings {
            settings.rules[rule].optional = true;
        }
        self
    }

    /// How long somebody waits that has no deadline of its own. Five minutes unless set.
    #[must_use]
    pub fn max_wait(mut self, most: Duration) -> Self {
        self.max_wait = most;
        self
    }

    /// How many may wait in all; whoever is one too many is refused with [`Reason::QueueFull`](crate::Reason::QueueFull). 10 000
    /// unless set.
    #[must_use]
    pub fn max_waiting(mut self, most: usize) -> Self {
        if let Ok(settings) = &mut self.settings {
            settings.most_waiting = most;
        }
        self
    }

    /// How many keys there may be that are not at rest; one too many is refused with
    /// [`Reason::TooManyKeys`](crate::Reason::TooManyKeys). 100 000 unless set; at least 1.
    #[must_use]
    pub fn max_keys(mut self, most: usize) -> Self {
        if let Ok(settings) = &mut self.settings {
            settings.most_keys = most;
        }
        self
    }

    /// Tells why somebody waits, once it has waited for a second: called by its own task, once for each wait.
    #[must_use]
    pub fn on_wait(mut self, tell: impl Fn(&Waits) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Tell(Arc::new(tell)));
        self
    }

    /// The limiter.
    ///
    /// # Errors
    ///
    /// When the limits cannot be read or cannot be kept, or a setting is out of range: the error names the value and
    /// what is allowed.
    pub fn build(self) -> Result<Limiter, Invalid> {
        let settings = self.settings?;
        if settings.most_keys == 0 {
            return Err(Invalid::new("max_keys", "0", "at least 1"));
        }
        let shared = Arc::new(Shared::new(Admission::new(settings)));
        let gates = smallvec![GateName { rule: RULE, key: Key::new("") }];
        Ok(Limiter(Arc::new(Entrance { shared, gates, max_wait: self.max_wait, on_wait: self.on_wait })))
    }
}
