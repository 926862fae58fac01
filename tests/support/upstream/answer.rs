//! What does the server answer? Ordinary bodies, refusals, and scripted misbehaviour.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{StatusCode, header};

use super::super::judge::Verdict;

/// What a refusal of the limits says about when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// No header.
    None,
    /// Always this many seconds.
    Seconds(u64),
    /// The seconds until it would be accepted, rounded up, at least 1.
    Exact,
}

impl RetryAfter {
    fn seconds(self, free_after: Option<Duration>) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Seconds(seconds) => Some(seconds),
            Self::Exact => Some(free_after.map_or(1, whole_seconds)),
        }
    }
}

fn whole_seconds(wait: Duration) -> u64 {
    let begun = u64::from(wait.subsec_nanos() > 0);
    (wait.as_secs() + begun).max(1)
}

/// A response's body: chunks, each a while after the one before.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pub(super) chunks: Vec<Chunk>,
}

#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) after: Duration,
    pub(super) bytes: Bytes,
}

impl Body {
    /// Nothing: the request has ended when its head is answered.
    pub fn empty() -> Self {
        Self::default()
    }

    /// All at once.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Self::empty();
        }
        Self { chunks: vec![Chunk { after: Duration::ZERO, bytes }] }
    }

    /// `count` chunks of `length` bytes. The first is due `after` the head, each other one `after`
    /// the one before was due.
    pub fn chunks(count: usize, length: usize, after: Duration) -> Self {
        assert!(length > 0, "an empty chunk is no chunk");
        let chunk = Chunk { after, bytes: vec![b'.'; length].into() };
        Self { chunks: vec![chunk; count] }
    }

    pub(super) fn length(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes.len()).sum()
    }

    /// The chunks that carry the first `limit` bytes.
    pub(super) fn first_bytes(mut self, limit: usize) -> Self {
        let mut left = limit;
        for chunk in &mut self.chunks {
            chunk.bytes.truncate(left);
            left -= chunk.bytes.len();
        }
        self.chunks.retain(|chunk| !chunk.bytes.is_empty());
        self
    }
}

/// One scripted answer. Unless it is [judged](Answer::judged), it is given without asking the limits.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) path: Option<String>,
    pub(super) judged: bool,
    pub(super) delay: Duration,
    pub(super) act: Act,
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    Reply(Reply),
    Reset,
    Close,
    Hang,
    Panic,
}

#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Body,
    pub(super) cut_after: Option<usize>,
}

impl Answer {
    /// This status with an empty body.
    pub fn status(status: u16) -> Self {
        let status = StatusCode::from_u16(status).expect("a status has three digits");
        let (headers, body) = (Vec::new(), Body::empty());
        Self::act(Act::Reply(Reply { status, headers, body, cut_after: None }))
    }

    /// Resets the connection (TCP RST), with everything else that is on it.
    pub fn reset() -> Self {
        Self::act(Act::Reset)
    }

    /// Closes the connection in good order (TCP FIN) without an answer.
    pub fn close() -> Self {
        Self::act(Act::Close)
    }

    /// Never answers, until the client goes away.
    pub fn hang() -> Self {
        Self::act(Act::Hang)
    }

    /// The server breaks, so that dropping its handle fails the test.
    pub fn panic() -> Self {
        Self::act(Act::Panic)
    }

    fn act(act: Act) -> Self {
        Self { path: None, judged: false, delay: Duration::ZERO, act }
    }

    /// Adds a header to the reply.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = name.parse().expect("a header name");
        let value = value.parse().expect("a header value");
        self.reply_mut().headers.push((name, value));
        self
    }

    /// The reply's body.
    pub fn body(mut self, body: Body) -> Self {
        self.reply_mut().body = body;
        self
    }

    /// Announces the whole body but breaks off after this many bytes (0: right after the head).
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.reply_mut().cut_after = Some(bytes);
        self
    }

    /// Waits this long, by the server's clock, before it answers (after the jitter).
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Only for requests of this path; others leave it where it is.
    pub fn on(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Asks the limits first: given, and counted, only to a request that they accept. A refused one
    /// gets its 429 and leaves this answer where it is.
    pub fn judged(mut self) -> Self {
        self.judged = true;
        self
    }

    /// What a refusal by the limits says.
    pub(super) fn refusal(verdict: &Verdict, retry_after: RetryAfter) -> Self {
        let Verdict::Refused { limit, free_after } = verdict else {
            panic!("not refused");
        };
        let mut answer = Self::status(429).body(Body::bytes(limit.clone()));
        if let Some(seconds) = retry_after.seconds(*free_after) {
            let header = (header::RETRY_AFTER, HeaderValue::from(seconds));
            answer.reply_mut().headers.push(header);
        }
        answer
    }

    pub(super) fn suits(&self, path: &str) -> bool {
        self.path.as_deref().is_none_or(|bound| bound == path)
    }

    fn reply_mut(&mut self) -> &mut Reply {
        match &mut self.act {
            Act::Reply(reply) => reply,
            other => panic!("{other:?} has neither headers nor a body"),
        }
    }
}
