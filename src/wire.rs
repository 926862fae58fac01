//! What an exchange goes over: a request, a response, and what sends the one and answers the other.

use std::future::ready;
use std::sync::Arc;

use http::{Extensions, HeaderMap, Method, StatusCode};
use reqwest::{Body, Request, Response, ResponseBuilderExt, Url};
use tokio::time::Instant;

use crate::body::{self, Peeked, ThrottleBody};
use crate::error::Stop;
use crate::permit::Permit;
use crate::unread::Unread;
use crate::verdict::Failure;

/// Something that sends requests and answers with responses, or errors.
pub(crate) trait Wire: Send {
    type Request: Letter;
    type Response: Answer;
    type Error: Send;

    /// Whether it may follow redirects by itself.
    fn follows(&self) -> bool;

    /// What is kept of a request that leaves.
    fn copy(&self, request: &Self::Request) -> Copy<Self::Request>;

    /// Waits until it can send.
    fn ready(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        ready(Ok(()))
    }

    fn send(&mut self, request: Self::Request) -> impl Future<Output = Result<Self::Response, Self::Error>> + Send;

    /// What an error says.
    fn failure(error: &Self::Error) -> Failure;

    /// The error of a request that we stopped.
    fn stopped(stop: Stop, request: Option<&Self::Request>) -> Self::Error;
}

/// A request.
pub(crate) trait Letter: Send {
    fn method(&self) -> &Method;

    fn headers(&self) -> &HeaderMap;

    /// The name of its host, and its port unless that is the usual one.
    fn host(&self) -> (&str, Option<u16>);

    fn path(&self) -> &str;
}

/// A response.
pub(crate) trait Answer: Send + Sized {
    fn status(&self) -> StatusCode;

    fn headers(&self) -> &HeaderMap;

    fn extensions_mut(&mut self) -> &mut Extensions;

    /// Where it came from, if that is known: whatever sends may have followed a redirect.
    fn url(&self) -> Option<&Url>;

    /// As it came, with as much of its body in memory as comes before `until`, and is not too large.
    fn peek(self, until: Instant) -> impl Future<Output = (Self, Peeked)> + Send;

    /// The answer to a request with this method, holding the permit until its body has ended.
    fn hold(self, method: &Method, permit: Permit, unread: &Arc<Unread>) -> Self;
}

/// What is known of a request that has left.
pub(crate) struct Copy<R> {
    /// To be sent after this one.
    pub(crate) request: Option<R>,
    /// Whether the body is there: a stream is sent once.
    pub(crate) is_whole: bool,
    pub(crate) method: Method,
    /// Whether doing it twice is as good as once.
    pub(crate) is_idempotent: bool,
}

impl<R: Letter> Copy<R> {
    pub(crate) fn new(of: &R, request: Option<R>, is_whole: bool) -> Self {
        let by_method = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE];
        let is_idempotent = by_method.contains(of.method()) || of.headers().contains_key("idempotency-key");
        Self { request, is_whole, method: of.method().clone(), is_idempotent }
    }
}

impl Copy<Request> {
    /// Without its body, if that is a stream.
    pub(crate) fn of(request: &Request) -> Self {
        match request.try_clone() {
            Some(copy) => Self::new(request, Some(copy), true),
            None => Self::head_of(request),
        }
    }

    /// Without its body.
    pub(crate) fn head_of(request: &Request) -> Self {
        let mut copy = Request::new(request.method().clone(), request.url().clone());
        *copy.headers_mut() = request.headers().clone();
        *copy.version_mut() = request.version();
        *copy.timeout_mut() = request.timeout().copied();
        Self::new(request, Some(copy), false)
    }
}

impl Letter for Request {
    fn method(&self) -> &Method {
        self.method()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn host(&self) -> (&str, Option<u16>) {
        host(self.url())
    }

    fn path(&self) -> &str {
        self.url().path()
    }
}

pub(crate) fn host(url: &Url) -> (&str, Option<u16>) {
    (url.host_str().unwrap_or_default(), url.port())
}

impl Answer for Response {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn extensions_mut(&mut self) -> &mut Extensions {
        self.extensions_mut()
    }

    fn url(&self) -> Option<&Url> {
        Some(self.url())
    }

    async fn peek(self, until: Instant) -> (Self, Peeked) {
        let mut body = Body::default();
        let response = with_body(self, |inner| std::mem::replace(&mut body, inner));
        let (body, peeked) = ThrottleBody::new(body).peek(until).await;
        (with_body(response, |_| Body::wrap(body)), peeked)
    }

    fn hold(self, method: &Method, permit: Permit, unread: &Arc<Unread>) -> Self {
        if body::is_none(method, self.status(), self.headers(), self.content_length()) {
            return self;
        }
        with_body(self, |body| Body::wrap(ThrottleBody::new(body).hold(permit, unread)))
    }
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
