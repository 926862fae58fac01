//! A body that holds its place in flight until it ends, and one that was read ahead: [`ThrottleBody`].

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Instant, timeout_at};

use crate::permit::Permit;
use crate::unread::{Hold, Unread};

/// A refusal's body is read ahead up to this, so that its connection can serve the next attempt.
const MOST_READ_AHEAD: usize = 64 * 1_024;

/// The frames of a body.
type Frames<B> = VecDeque<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

pin_project! {
    /// The body of a response that has come through a [`Throttle`](crate::Throttle): it counts as in flight until it has ended,
    /// failed, been dropped, or not been read for too long.
    pub struct ThrottleBody<B: Body> {
        #[pin]
        source: Source<B>,
        hold: Option<Hold>,
    }
}

pin_project! {
    #[project = SourceProject]
    enum Source<B: Body> {
        Live { #[pin] body: B },
        Read { frames: Frames<B>, hint: SizeHint },
    }
}

impl<B: Body> ThrottleBody<B> {
    /// One that holds nothing yet.
    pub(crate) fn new(body: B) -> Self {
        Self { source: Source::Live { body }, hold: None }
    }

    /// Holds the permit from now on.
    pub(crate) fn hold(self, permit: Permit, unread: &Arc<Unread>) -> Self {
        Self { hold: Some(unread.hold(permit)), ..self }
    }

    /// As it came, in memory; `None` if it is large, or has not come before `until`, and was dropped.
    pub(crate) async fn read_ahead(self, until: Instant) -> Option<Self> {
        let hint = self.size_hint();
        let Source::Live { body } = self.source else { return Some(self) };
        let frames = timeout_at(until, read_all(body)).await.ok()??;
        Some(Self { source: Source::Read { frames, hint }, hold: self.hold })
    }
}

/// Whether a response to a request with this method has no body. A decoder does not say that its body has ended before it was
/// asked for a frame, so the head is asked too (RFC 9112, 6.3).
pub(crate) fn is_none(method: &Method, status: StatusCode, headers: &HeaderMap, length: Option<u64>) -> bool {
    *method == Method::HEAD
        || length == Some(0)
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length == "0")
}

/// All frames until the end or the first error; `None` if they are more than is kept.
async fn read_all<B: Body>(body: B) -> Option<Frames<B>> {
    let (mut frames, mut size, mut body) = (VecDeque::new(), 0, pin!(body));
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        size += frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Buf::remaining);
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

impl<B: Body> Body for ThrottleBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(hold) = this.hold.as_mut() else { return this.source.poll_frame(cx) };
        let frame = this.source.as_mut().poll_frame(&mut Context::from_waker(hold.begin_read(cx.waker())));
        hold.has_read(frame.is_pending());
        // Not every reader asks again after the last frame.
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) || this.source.is_end_stream() {
            *this.hold = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}

impl<B: Body> Body for Source<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project() {
            SourceProject::Live { body } => body.poll_frame(cx),
            SourceProject::Read { frames, .. } => Poll::Ready(frames.pop_front()),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Live { body } => body.is_end_stream(),
            Self::Read { frames, .. } => frames.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Live { body } => body.size_hint(),
            Self::Read { hint, .. } => *hint,
        }
    }
}

impl<B: Body> fmt::Debug for ThrottleBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleBody").field("holds", &self.hold.is_some()).finish_non_exhaustive()
    }
}
