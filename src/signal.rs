//! What a response said about limits.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

mod wait;

/// What one response told us.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signal {
    /// The server refused the request because of traffic, and so did nothing for it.
    pub(crate) throttled: bool,
    /// The server, or one before it, could not do it just now; something may have been done all the same.
    pub(crate) fault: Option<Fault>,
    /// How long the server asks us to stay away.
    pub(crate) wait: Option<Duration>,
    /// What it says about going again at all.
    pub(crate) should_retry: Option<bool>,
}

/// Why a server could not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Something went wrong.
    Broken,
    /// It took too long for one before it.
    TooSlow,
    /// It says that it cannot do anything just now.
    Unavailable,
}

/// Reads a response's head. `now` since 1970, for what it says in dates.
pub(crate) fn read(status: StatusCode, headers: &HeaderMap, now: Duration) -> Signal {
    let throttled = status == StatusCode::TOO_MANY_REQUESTS;
    let fault = match status.as_u16() {
        408 | 500 | 502 => Some(Fault::Broken),
        503 => Some(Fault::Unavailable),
        504 => Some(Fault::TooSlow),
        _ => None,
    };
    let is_done = status.is_success() || status.is_redirection();
    let should_retry = if is_done { None } else { wait::should_retry(headers) };
    // A wait beside a redirect is to pass before it is followed (RFC 9110, 10.2.3); beside any other status it is about
    // something else: a 202 says when the result may be there.
    let heeds = throttled || fault == Some(Fault::Unavailable) || status.is_redirection();
    let wait = if heeds { wait::stated(headers, now) } else { None };
    Signal { throttled, fault, wait, should_retry }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_status_says() {
        let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, http::HeaderValue::from_static("2"))]);
        let wait = Some(Duration::from_secs(2));
        let read = |status| read(StatusCode::from_u16(status).unwrap(), &headers, Duration::ZERO);
        assert_eq!(read(429), Signal { throttled: true, wait, ..Signal::default() });
        let fault = |fault, wait| Signal { fault: Some(fault), wait, ..Signal::default() };
        assert_eq!(read(503), fault(Fault::Unavailable, wait));
        assert_eq!(read(504), fault(Fault::TooSlow, None));
        for status in [408, 500, 502] {
            assert_eq!(read(status), fault(Fault::Broken, None), "{status}");
        }
        assert_eq!(read(307), Signal { wait, ..Signal::default() });
        for status in [200, 202, 400, 404, 501] {
            assert_eq!(read(status), Signal::default(), "{status}");
        }
    }

    #[test]
    fn a_success_is_not_repeated_whatever_it_says() {
        let headers = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-should-retry"),
            http::HeaderValue::from_static("true"),
        )]);
        assert_eq!(read(StatusCode::OK, &headers, Duration::ZERO).should_retry, None);
        assert_eq!(read(StatusCode::SEE_OTHER, &headers, Duration::ZERO).should_retry, None);
        assert_eq!(read(StatusCode::CONFLICT, &headers, Duration::ZERO).should_retry, Some(true));
    }
}
