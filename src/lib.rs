//! A client that never trips the other side's limits: [`reqwest`], with the limits on our side of the wire.
//!
//! A request waits its turn, in order of arrival, for as long as its caller allows, and goes out at the first moment at
//! which the server will take it. A 429 silences everybody who calls that host until the time that the server stated.
//! Dropping a future is cancelling it, exactly: everybody behind moves up, as if it had never asked.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use reqwest_throttle::{Client, Limits};
//! use std::time::Duration;
//!
//! let client = Client::builder().each_host(Limits::new().quota("10/s").in_flight(4)).build()?;
//! let response = client.get("https://example.com/").within(Duration::from_secs(5)).send().await?;
//! println!("{}", response.error_for_status()?.text().await?);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Client`] takes the place of [`reqwest::Client`]: its calls stay as they are.
//! - [`Limiter`] is what it waits on, for whatever else you send: `wait`, `acquire`, `try_acquire`, `reserve`; by
//!   [`Priority`], with [flows](Context::flow) in turn, with a [deadline](Context::within) or a
//!   [token](Context::cancel_on).
//! - [`ThrottleLayer`] puts the limits into a stack of tower's services, `ThrottleMiddleware` into a chain of reqwest-middleware.
//! - [`Quota`] and [`Limits`] say how much: `"50/s"` is at most 50 in any second, as the server counts; `"50/s burst 5"`
//!   is a token bucket; `"200_000 tokens/min"` counts what a [`Cost`] or [`Context::cost`] says.
//! - [`Error`] is the client's, [`Refused`] says which limit of ours was in the way, and [`Invalid`] what is wrong with
//!   a setting.
//!
//! # Coming from x/time/rate
//!
//! | there | here | what differs |
//! |---|---|---|
//! | `NewLimiter(r, b)` | [`Quota::bucket`]`(r, b)`, `"10/s burst 20"` | whole nanoseconds, rounded up: no drift, no overflow; what can never go (0, NaN, centuries) is refused when built |
//! | `Every(d)`, `Inf` | [`Quota::every`], [`Quota::unlimited`] | |
//! | `Allow` | [`Limiter::try_acquire`] | never overtakes who waits; the refusal says which limit and how long |
//! | `Wait(ctx)`, `WaitN(ctx, n)` | [`Limiter::wait`], with [`Context::within`] and [`Context::cost`]`("requests", n)` | one line in order of arrival; units are spent when one goes, not when one asks |
//! | `ctx` done | drop the future | exact: everybody behind moves up. There the place of one in the middle is lost: of 4 at 10/s, 3, 1 and 1 wait; the 3 and the last leave at 0.1 s; the next 3 go at 0.5 s there, and at 0.4 s here |
//! | `n > burst` | [`Reason::CostExceedsQuota`] | at once, and nobody is held up |
//! | deadline too near | [`Reason::Deadline`] | at once, as there, with the wait and the number ahead; also after a pause or a change of limits |
//! | `SetLimit` | [`Limiter::set_limits`] | those who wait see it. There what was reserved stays: 2 at 5/s wait for 0.4 s, the rate becomes 10/s at 0.2 s; they go at 0.4 s there, and at 0.3 s here |
//! | `AllowN(t, n)` | [`Limiter::try_acquire_with`] and [`Context::cost`]`("requests", n)` | the time is tokio's |
//! | `Reserve`, `ReserveN` | [`Limiter::reserve`] | a place in the line: nothing is spent until its turn comes |
//! | `r.OK()` | the `Result` of it | says why not |
//! | `r.Delay()`, `r.DelayFrom` | [`Reservation::delay`] | as things stand; it may change either way, and can be asked again |
//! | `r.Cancel()` | [`Reservation::cancel`], or drop it | gives everything back, always: those behind move up. There only what no later reservation has built on |
//! | `Tokens`, `Limit`, `Burst` | [`Limiter::snapshot`] | also who waits, and for what |
//! | `Sometimes` | | no counterpart |
//! | `SetBurst` | [`Limiter::set_limits`] | what was spent stays spent, so a larger burst has room at once, and there and back again mints nothing; there a larger burst comes empty |
//!
//! # Coming from tower, governor, or a semaphore
//!
//! | there | here | what differs |
//! |---|---|---|
//! | tower's `RateLimit`, `Buffer` before it | [`Limiter::wait`] | clones share; any window of the period, not the one that the first call opens; a caller that leaves takes its place along |
//! | tower's `ConcurrencyLimit` | `in_flight`, [`Limiter::acquire`] | the place is held until the permit is dropped, not until the head is there; nothing is taken before it is needed |
//! | tower's `LoadShed`, `Timeout` | [`Limiter::try_acquire`], [`Context::within`] | refused as soon as it is certain, with the reason |
//! | governor's `check`, `check_n` | [`Limiter::try_acquire`] | never overtakes who waits |
//! | governor's `until_ready`, `until_n_ready` | [`Limiter::wait`] | in order: there waiters wake when they could go and race |
//! | governor's keyed limiters, `retain_recent` | [`Limiter::key`] | forgotten by themselves, never more than so many |
//! | governor's `Quota` | [`Quota::bucket`], or `From` | a bare `"50/s"` is a window; the bucket is said |
//! | tokio's `Semaphore`, `acquire`, `acquire_many` | [`Limits::in_flight`], [`Limiter::acquire`] | one place each; several only as a quota |
//! | `Semaphore::close` | [`Limiter::close`], [`Limiter::drain`] | the second lets those who wait go first |
//! | `Semaphore::add_permits`, `forget_permits` | [`Limiter::set_limits`] | nobody is cut off; those who wait see it |
//!
//! # Features
//!
//! | feature | what it does |
//! |---|---|
//! | `serde` | [`Quota`] as its text in settings |
//! | `cli` | the program `throttle` |
//! | `middleware` | `ThrottleMiddleware`, for reqwest-middleware 0.5 |
//! | `backoff` | `Backoff::from_backoff`, for the crate of that name |
//! | `default-tls`, `http2`, `charset`, `system-proxy` | on by default, as in reqwest |
//! | `json`, `query`, `form`, `multipart` | the methods of that name on [`RequestBuilder`] |
//! | `stream`, `gzip`, `brotli`, `deflate`, `zstd`, `cookies`, `hickory-dns`, `socks`, `rustls…`, `native-tls…` | as in reqwest |
//!
//! # Watching it
//!
//! [`Limiter::snapshot`] and [`Client::snapshot`] say how everything stands. Events of `tracing`:
//!
//! | target | level | when |
//! |---|---|---|
//! | `reqwest_throttle::wait` | info | somebody has waited for a second; once for each wait, with what it waits for ([`Waits`]) |
//! | `reqwest_throttle::body` | warn | nobody reads a response: it does not count as in flight any more |
//!
//! # Time
//!
//! All waiting is on tokio's clock, so tests with paused time work. A tokio timer fires up to a millisecond or so late;
//! a bucket is charged at the instant that was due, up to 2 ms before, so that no rate is lost. In any time `t` a bucket
//! therefore lets at most `burst + rate × (t + 2 ms)` go.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

// words and arithmetic: no clock, lock, async or randomness; `now` and `random` are arguments
mod time;
mod key;
mod invalid;
mod cost;
mod quota;
mod priority;
mod limits;
mod refused;
mod wait;
mod backoff;
mod retry_budget;
mod signal;
mod verdict;

// admission: who goes, when; a state machine without I/O
mod admission;

// settings
mod context;

// waiting: the async shell round admission
mod observe;
mod driver;
mod entrance;
mod permit;
mod place;
mod reservation;
mod limiter;

// HTTP
mod error;
mod attempts;
pub mod redirect;
mod unread;
mod body;
mod wire;
mod credential;
mod route;
mod buckets;
mod known;
mod counting;
mod trip;
mod exchange;

// clients
mod sender;
mod request;
mod client;
mod settings;
mod reqwest_settings;
mod layer;
mod over_reqwest;
#[cfg(feature = "middleware")]
mod middleware;

pub use admission::{GateSnapshot, LaneSnapshot, QuotaSnapshot, Snapshot, StatedSnapshot};
pub use attempts::Attempts;
pub use backoff::Backoff;
pub use body::ThrottleBody;
pub use client::{Client, ClientBuilder};
pub use context::Context;
pub use cost::{Cost, Unit};
pub use error::Error;
pub use invalid::Invalid;
pub use layer::{Once, Repeating, Throttle, ThrottleLayer};
pub use limiter::{Limiter, LimiterBuilder};
pub use limits::Limits;
#[cfg(feature = "middleware")]
#[cfg_attr(docsrs, doc(cfg(feature = "middleware")))]
pub use middleware::ThrottleMiddleware;
pub use observe::Waits;
pub use over_reqwest::ReqwestService;
pub use permit::Permit;
pub use priority::Priority;
pub use quota::{Anchor, Quota};
pub use refused::{Reason, Refused};
pub use request::RequestBuilder;
pub use reservation::{Reservation, Reserved};
pub use signal::{Fault, Hints, Scope, Signal, StatedLimit};

/// What reqwest's users import beside its client, so that only the crate's name changes.
pub use reqwest::{
    Body, IntoUrl, Method, NoProxy, Proxy, Request, Response, ResponseBuilderExt, StatusCode, Url, Version, dns, header,
};

#[cfg(feature = "cookies")]
#[cfg_attr(docsrs, doc(cfg(feature = "cookies")))]
pub use reqwest::cookie;
#[cfg(feature = "multipart")]
#[cfg_attr(docsrs, doc(cfg(feature = "multipart")))]
pub use reqwest::multipart;
#[cfg(any(
    feature = "default-tls",
    feature = "rustls",
    feature = "rustls-no-provider",
    feature = "native-tls",
    feature = "native-tls-no-alpn",
    feature = "native-tls-vendored",
    feature = "native-tls-vendored-no-alpn"
))]
pub use reqwest::{Certificate, Identity, tls};

/// What may fail with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDocTests;
