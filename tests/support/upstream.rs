//! Which server do the tests talk to? A strict one: it counts on its own clock, refuses what is one
//! too many, misbehaves on demand, and remembers every request.

mod answer;
mod books;
mod clock;
mod others;
mod outgoing;
mod says;
mod serve;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

pub use answer::{Answer, Body, RetryAfter};
pub use books::{Arrival, BODY_KEPT, Fate, Jitter};
pub use others::OtherClient;
pub use says::Says;

use super::judge::{Judge, Limit};
use books::{Books, Settings};
use clock::Clock;
use serve::Shared;

/// A running server. It stops when this is dropped, and fails the test if it had broken.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// How a server shall be. By default: no limits, no jitter, a small body, no `Retry-After`.
#[derive(Debug)]
pub struct Builder {
    limits: Vec<Limit>,
    settings: Settings,
    seed: u64,
    clock: fn() -> Clock,
}

impl Builder {
    /// One more limit: a request has to fit into all of them.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limits.push(limit);
        self
    }

    /// A random delay between the reading of the head and the counting.
    pub fn jitter_before(mut self, delay: RangeInclusive<Duration>) -> Self {
        self.settings.before = delay;
        self
    }

    /// A random delay between the counting and the answer.
    pub fn jitter_after(mut self, delay: RangeInclusive<Duration>) -> Self {
        self.settings.after = delay;
        self
    }

    /// Makes the delays repeat, by order of arrival; 0 unless set.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What a refusal by the limits carries.
    pub fn retry_after(mut self, retry_after: RetryAfter) -> Self {
        self.settings.retry_after = retry_after;
        self
    }

    /// What each answer says of the limits.
    pub fn says(mut self, says: Says) -> Self {
        self.settings.says = says;
        self
    }

    /// The body of accepted requests.
    pub fn body(mut self, body: Body) -> Self {
        self.settings.body = body;
        self
    }

    /// The clock moves by [`Upstream::advance`] only. Jitter is not slept; scripted delays and the
    /// pauses of bodies wait for this clock.
    pub fn manual_clock(mut self) -> Self {
        self.clock = Clock::manual;
        self
    }

    /// Listens on a free port, inside the caller's runtime.
    pub async fn start(self) -> Upstream {
        self.start_at(0).await
    }

    /// Listens on this port.
    pub async fn start_at(self, port: u16) -> Upstream {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let books = Books::new(self.settings, Judge::new(self.limits), self.seed);
        let shared = Shared::new((self.clock)(), books);
        shared.spawn(serve::accept(shared.clone(), listener));
        Upstream { address, shared }
    }
}

impl Upstream {
    /// A server to be described.
    pub fn builder() -> Builder {
        let settings = Settings {
            before: Duration::ZERO..=Duration::ZERO,
            after: Duration::ZERO..=Duration::ZERO,
            retry_after: RetryAfter::None,
            says: Says::Nothing,
            body: Body::bytes("ok"),
        };
        Builder { limits: Vec::new(), settings, seed: 0, clock: Clock::real }
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The URL of a path, which begins with a slash.
    pub fn at(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The time by the server's clock, counted from its start.
    pub fn now(&self) -> Duration {
        self.shared.clock.now()
    }

    /// Moves the manual clock. Panics if the clock is the real one.
    pub fn advance(&self, by: Duration) {
        self.shared.clock.advance(by);
    }

    /// Appends scripted answers. Each request takes the first that suits its path.
    pub fn script(&self, answers: impl IntoIterator<Item = Answer>) {
        self.shared.with(|books, _| books.script.extend(answers));
    }

    /// Scripted answers that nobody has taken yet.
    pub fn script_left(&self) -> usize {
        self.shared.with(|books, _| books.script.len())
    }

    /// Another client begins to use the same limits.
    pub fn other_client(&self, client: OtherClient) {
        self.shared.with(|books, now| books.add_other_client(now, client));
    }

    /// When requests of other clients were accepted, up to now.
    pub fn others_accepted(&self) -> Vec<Duration> {
        self.shared.with(|books, now| {
            books.let_others_come(now);
            books.others_accepted.clone()
        })
    }

    /// How many requests of other clients were refused, up to now.
    pub fn others_refused(&self) -> usize {
        self.shared.with(|books, now| {
            books.let_others_come(now);
            books.others_refused
        })
    }

    /// Every request, in the order in which the heads came.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.with(|books, _| books.arrivals.clone())
    }

    /// When the limits accepted requests, in order of arrival.
    pub fn accepted_at(&self) -> Vec<Duration> {
        self.shared.with(|books, _| {
            let accepted = books.arrivals.iter().filter(|one| one.fate == Some(Fate::Accepted));
            accepted.filter_map(|one| one.counted).collect()
        })
    }

    /// Requests that the limits accepted.
    pub fn accepted(&self) -> usize {
        self.shared.with(|books, _| books.accepted)
    }

    /// Requests that the limits refused; a scripted 429 is none of them.
    pub fn refused(&self) -> usize {
        self.shared.with(|books, _| books.refused)
    }

    /// Requests that were accepted, or answered by the script, and have not ended.
    pub fn in_flight(&self) -> usize {
        self.shared.with(|books, _| books.in_flight)
    }

    /// The most that [`Upstream::in_flight`] has been.
    pub fn peak_in_flight(&self) -> usize {
        self.shared.with(|books, _| books.peak_in_flight)
    }

    /// Connections opened so far.
    pub fn connections(&self) -> u64 {
        self.shared.with(|books, _| books.connections)
    }

    /// Connections open now.
    pub fn open_connections(&self) -> usize {
        self.shared.with(|books, _| books.open_connections)
    }

    /// Forgets arrivals, counters and the peak. Limits, script and other clients go on.
    pub fn reset_records(&self) {
        self.shared.with(|books, _| books.reset_records());
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let panicked = self.shared.stop();
        assert!(!panicked || std::thread::panicking(), "the upstream itself panicked");
    }
}
