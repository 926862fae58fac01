//! A rate-limited HTTP client.

#![cfg_attr(docsrs, feature(doc_cfg))]

// words and arithmetic: no clock, lock, async or randomness; `now` and `random` are arguments
mod time;
mod key;
mod quota;
mod refused;
mod backoff;
mod signal;
mod verdict;

// admission: who goes, when; a state machine without I/O
mod admission;

// settings
mod context;

// waiting: the async shell round admission
mod driver;
mod limiter;

// HTTP
mod error;
mod body;
mod exchange;

// clients
mod request;
mod client;

pub use client::{Client, ClientBuilder};
pub use context::Context;
pub use error::Error;
pub use limiter::{Limiter, Permit};
pub use quota::{Invalid, Limits, Quota};
pub use refused::{Reason, Refused};
pub use request::RequestBuilder;
