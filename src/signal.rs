//! What a response said about limits.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

mod wait;

/// What one response told us.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signal {
    /// The server refused the request because of traffic, and so did nothing for it.
    pub(crate) throttled: bool,
    /// How long the server asks us to stay away.
    pub(crate) wait: Option<Duration>,
}

/// Reads a response's head.
pub(crate) fn read(status: StatusCode, headers: &HeaderMap) -> Signal {
    let throttled = status == StatusCode::TOO_MANY_REQUESTS;
    Signal { throttled, wait: if throttled { wait::stated(headers) } else { None } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_is_a_throttle() {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("2"));
        let wait = Some(Duration::from_secs(2));
        assert_eq!(read(StatusCode::TOO_MANY_REQUESTS, &headers), Signal { throttled: true, wait });
        assert_eq!(read(StatusCode::ACCEPTED, &headers), Signal::default());
    }
}
