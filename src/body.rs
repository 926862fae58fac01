//! A body that holds its place in flight until it ends, and one that was read ahead: [`ThrottleBody`].

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Instant, timeout_at};

use crate::permit::Permit;
use crate::signal::Signal;
use crate::unread::{Hold, Unread};
use crate::verdict;
use crate::wait::Reply;

/// A refusal's body is read ahead up to this, so that its connection can serve the next attempt.
const MOST_READ_AHEAD: usize = 64 * 1_024;

/// What trailers say, as those of gRPC do.
fn said(trailers: &HeaderMap) -> Reply {
    let signal = Signal::read(StatusCode::OK, trailers, &[], Duration::ZERO);
    verdict::reply(&signal, fastrand::u32(..))
}

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
        /// So much of it is in memory; then comes the rest.
        Peeked { frames: Frames<B>, rest: Option<Pin<Box<B>>> },
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

    /// The same, with as much of it in memory as comes before `until`, and is not too large; and whether that is all.
    pub(crate) async fn peek(self, until: Instant) -> (Self, Peeked) {
        let (mut frames, rest) = match self.source {
            Source::Live { body } => (VecDeque::new(), Some(Box::pin(body))),
            Source::Peeked { frames, rest } => (frames, rest),
        };
        let rest = match rest {
            Some(mut body) => {
                let ended = timeout_at(until, read_on(body.as_mut(), &mut frames)).await == Ok(true);
                Some(body).filter(|_| !ended)
            }
            None => None,
        };
        let peeked = Peeked { bytes: bytes_of::<B>(&frames), is_whole: rest.is_none() };
        (Self { source: Source::Peeked { frames, rest }, hold: self.hold }, peeked)
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

/// What is in memory of a body.
pub(crate) struct Peeked {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_whole: bool,
}

/// All frames until the end or the first error, which is one; false if they are more than is kept.
async fn read_on<B: Body>(mut body: Pin<&mut B>, frames: &mut Frames<B>) -> bool {
    let mut size: usize = frames.iter().map(length::<B>).sum();
    while size <= MOST_READ_AHEAD {
        let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await else { return true };
        size += length::<B>(&frame);
        let failed = frame.is_err();
        frames.push_back(frame);
        if failed {
            // Some bodies answer with the same error for ever.
            return true;
        }
    }
    false
}

/// The data of a frame; of one in pieces, the first.
fn data<B: Body>(frame: &Result<Frame<B::Data>, B::Error>) -> &[u8] {
    frame.as_ref().ok().and_then(Frame::data_ref).map_or(&[], Buf::chunk)
}

fn length<B: Body>(frame: &Result<Frame<B::Data>, B::Error>) -> usize {
    frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Buf::remaining)
}

fn bytes_of<B: Body>(frames: &Frames<B>) -> Vec<u8> {
    frames.iter().flat_map(data::<B>).copied().collect()
}

impl<B: Body> Body for ThrottleBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(hold) = this.hold.as_mut() else { return this.source.poll_frame(cx) };
        let frame = this.source.as_mut().poll_frame(&mut Context::from_waker(hold.begin_read(cx.waker())));
        hold.has_read(frame.is_pending());
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(trailers) = frame.trailers_ref()
            && let reply @ Reply::Refused(_) = said(trailers)
        {
            hold.has_heard(reply);
        }
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
            SourceProject::Peeked { frames, rest } => match (frames.pop_front(), rest) {
                (Some(frame), _) => Poll::Ready(Some(frame)),
                (None, Some(rest)) => rest.as_mut().poll_frame(cx),
                (None, None) => Poll::Ready(None),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Live { body } => body.is_end_stream(),
            Self::Peeked { frames, rest } => frames.is_empty() && rest.as_ref().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Live { body } => body.size_hint(),
            Self::Peeked { frames, rest } => {
                let read = frames.iter().map(|frame| length::<B>(frame) as u64).sum::<u64>();
                let hint = rest.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint);
                let mut all = SizeHint::new();
                all.set_lower(hint.lower() + read);
                if let Some(upper) = hint.upper() {
                    all.set_upper(upper + read);
                }
                all
            }
        }
    }
}

impl<B: Body> fmt::Debug for ThrottleBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleBody").field("holds", &self.hold.is_some()).finish_non_exhaustive()
    }
}
