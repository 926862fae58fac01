//! A body that holds its permit until it ends, and one that was read ahead.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use pin_project_lite::pin_project;
use reqwest::{Body, Response, ResponseBuilderExt};
use tokio::time::{Instant, timeout_at};

use crate::limiter::Permit;

/// A refusal's body is read ahead up to this, so that its connection can serve the next attempt.
const MOST_READ_AHEAD: u64 = 64 * 1_024;

/// The response to a request with this method, holding the permit until its body has ended, failed, or been dropped.
pub(crate) fn hold(response: Response, method: &Method, permit: Permit) -> Response {
    if has_no_body(&response, method) {
        return response;
    }
    with_body(response, |body| Body::wrap(Held { body, permit: Some(permit) }))
}

/// A decoder does not say that its body has ended before it was asked for a frame, so the head is asked too (RFC 9112,
/// 6.3).
fn has_no_body(response: &Response, method: &Method) -> bool {
    *method == Method::HEAD
        || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || response.headers().get(CONTENT_LENGTH).is_some_and(|length| length == "0")
}

/// The response as it came, its body in memory if it is small and comes before `until`.
pub(crate) async fn read_ahead(response: Response, until: Instant) -> Response {
    let mut body = None;
    let response = with_body(response, |inner| {
        body = Some(inner);
        Body::default()
    });
    let mut read = ReadAhead { frames: VecDeque::new(), rest: body };
    // Whatever has not come by then stays in `rest`.
    let _ = timeout_at(until, read.fill()).await;
    with_body(response, |_| Body::wrap(read))
}

/// Replaces the body, and keeps everything else: the address too, which reqwest loses on the way through `http`.
fn with_body(response: Response, change: impl FnOnce(Body) -> Body) -> Response {
    let url = response.url().clone();
    let mut response = http::Response::<Body>::from(response).map(change);
    if let Ok(address) = http::Response::builder().url(url).body(()) {
        response.extensions_mut().extend(address.into_parts().0.extensions);
    }
    response.into()
}

pin_project! {
    struct Held {
        #[pin]
        body: Body,
        permit: Option<Permit>,
    }
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        // Not every reader asks again after the last frame.
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            *this.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Frames that came already, and the rest of the body if it has not ended.
struct ReadAhead {
    frames: VecDeque<Result<Frame<Bytes>, reqwest::Error>>,
    rest: Option<Body>,
}

impl ReadAhead {
    /// Reads until the end, an error, or the bound. Can be dropped at any point: what was read is kept.
    async fn fill(&mut self) {
        while self.buffered() <= MOST_READ_AHEAD {
            let Some(body) = &mut self.rest else { return };
            match std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
                Some(frame) => self.frames.push_back(frame),
                None => self.rest = None,
            }
        }
    }

    fn buffered(&self) -> u64 {
        let data = self.frames.iter().flatten().filter_map(Frame::data_ref);
        data.map(|bytes| bytes.len() as u64).sum()
    }
}

impl http_body::Body for ReadAhead {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(frame));
        }
        match &mut self.rest {
            Some(rest) => Pin::new(rest).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + self.buffered());
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + self.buffered());
        }
        hint
    }
}
