//! A body that holds its place in flight until it ends, and one that was read ahead.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use pin_project_lite::pin_project;
use reqwest::{Body, Response, ResponseBuilderExt};
use tokio::time::{Instant, timeout_at};

use crate::permit::Permit;
use crate::unread::{Hold, Unread};

/// A refusal's body is read ahead up to this, so that its connection can serve the next attempt.
const MOST_READ_AHEAD: usize = 64 * 1_024;

/// The response to a request with this method, holding the permit until its body has ended, failed, or been dropped, or
/// nobody has read it for too long.
pub(crate) fn hold(response: Response, method: &Method, permit: Permit, unread: &Arc<Unread>) -> Response {
    if has_no_body(&response, method) {
        return response;
    }
    with_body(response, |body| Body::wrap(Held { body, hold: Some(unread.hold(permit)) }))
}

/// A decoder does not say that its body has ended before it was asked for a frame, so the head is asked too (RFC 9112,
/// 6.3).
fn has_no_body(response: &Response, method: &Method) -> bool {
    *method == Method::HEAD
        || response.content_length() == Some(0)
        || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || response.headers().get(CONTENT_LENGTH).is_some_and(|length| length == "0")
}

/// The response as it came, its body in memory; `None` if that is large, or has not come before `until`, and was dropped.
pub(crate) async fn read_ahead(response: Response, until: Instant) -> Option<Response> {
    let mut body = None;
    let response = with_body(response, |inner| {
        body = Some(inner);
        Body::default()
    });
    let body = body?;
    let hint = body.size_hint();
    let frames = timeout_at(until, read_all(body)).await.ok()??;
    Some(with_body(response, |_| Body::wrap(InMemory { frames, hint })))
}

/// All frames until the end or the first error; `None` if they are more than is kept.
async fn read_all(mut body: Body) -> Option<VecDeque<Result<Frame<Bytes>, reqwest::Error>>> {
    let (mut frames, mut size) = (VecDeque::new(), 0);
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        size += frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
        let failed = frame.is_err();
        frames.push_back(frame);
        if failed {
            // Some bodies answer with the same error for ever.
            break;
        }
        if size > MOST_READ_AHEAD {
            return None;
        }
    }
    Some(frames)
}

/// Replaces the body, and keeps everything else: the address too, which reqwest loses on the way through `http`.
fn with_body(mut response: Response, change: impl FnOnce(Body) -> Body) -> Response {
    let mut head = http::Response::builder();
    if let Some(extensions) = head.extensions_mut() {
        std::mem::swap(extensions, response.extensions_mut());
    }
    let mut head = head.url(response.url().clone());
    if let Some(extensions) = head.extensions_mut() {
        std::mem::swap(extensions, response.extensions_mut());
    }
    http::Response::<Body>::from(response).map(change).into()
}

pin_project! {
    struct Held {
        #[pin]
        body: Body,
        hold: Option<Hold>,
    }
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        let mut this = self.project();
        let Some(hold) = this.hold.as_mut() else { return this.body.poll_frame(cx) };
        let frame = this.body.as_mut().poll_frame(&mut Context::from_waker(hold.begin_read(cx.waker())));
        hold.has_read(frame.is_pending());
        // Not every reader asks again after the last frame.
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) || this.body.is_end_stream() {
            *this.hold = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that has been read.
struct InMemory {
    frames: VecDeque<Result<Frame<Bytes>, reqwest::Error>>,
    /// What was known of its size before.
    hint: SizeHint,
}

impl http_body::Body for InMemory {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        Poll::Ready(self.frames.pop_front())
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}
