//! How does a body leave, and when has its request ended?

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::body::{Bytes, Frame, SizeHint};

use super::answer::{Body, Chunk};
use super::serve::Visit;

/// How long the bytes before a cut have to reach the socket: hyper throws away what it has not
/// flushed when a body fails.
const FLUSH: Duration = Duration::from_millis(5);

/// A body on its way out. The visit ends when the last frame is handed to hyper, which is before
/// the client can read it: a client that sends its next request at once is judged fairly.
pub(super) struct Outgoing {
    pub(super) visit: Visit,
    /// What is announced and not yet handed over; a cut leaves some of it unsent.
    left: u64,
    steps: VecDeque<Step>,
    /// When the first of `steps` is due, by the server's clock.
    due: Duration,
    pause: Option<BoxFuture<'static, ()>>,
}

enum Step {
    Chunk(Chunk),
    Cut,
}

impl Outgoing {
    /// A body whose head was answered at `now`.
    pub(super) fn new(visit: Visit, now: Duration, body: Body, cut_after: Option<usize>) -> Self {
        let left = body.length() as u64;
        let (chunks, cut) = match cut_after {
            Some(limit) => (body.first_bytes(limit).chunks, Some(Step::Cut)),
            None => (body.chunks, None),
        };
        let steps = chunks.into_iter().map(Step::Chunk).chain(cut).collect();
        let mut outgoing = Self { visit, left, steps, due: now, pause: None };
        outgoing.prepare();
        outgoing
    }

    /// Ends the visit or sets the pause before the next step. A chunk is timed from when the one
    /// before was due, not from when somebody looked, so that a manual clock may jump.
    fn prepare(&mut self) {
        self.pause = match self.steps.front() {
            Some(Step::Chunk(chunk)) if chunk.after.is_zero() => None,
            Some(Step::Chunk(chunk)) => {
                self.due += chunk.after;
                Some(self.visit.shared.clock.sleep_until(self.due))
            }
            Some(Step::Cut) => Some(Box::pin(tokio::time::sleep(FLUSH))),
            None => {
                self.visit.end();
                None
            }
        };
    }

    fn step(&mut self) -> Option<Result<Frame<Bytes>, io::Error>> {
        let step = self.steps.pop_front()?;
        self.prepare();
        Some(match step {
            Step::Cut => Err(io::Error::other("cut, as scripted")),
            Step::Chunk(Chunk { bytes, .. }) => {
                self.left -= bytes.len() as u64;
                Ok(Frame::data(bytes))
            }
        })
    }
}

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let body = self.get_mut();
        if let Some(pause) = &mut body.pause {
            ready!(pause.as_mut().poll(context));
            body.pause = None;
        }
        Poll::Ready(body.step())
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
