//! The limits in a stack of tower's services: [`ThrottleLayer`], and the [`Throttle`] that it makes.

use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use http::header::HOST;
use http::uri::Authority;
use http::{Extensions, HeaderMap, Method, StatusCode};
use http_body::Body;
use reqwest::Url;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{self, Peeked, ThrottleBody};
use crate::client::Client;
use crate::context::Context;
use crate::error::{self, Error, Stop};
use crate::exchange::{Exchange, Terms};
use crate::key::Key;
use crate::limiter::Limiter;
use crate::permit::Permit;
use crate::unread::Unread;
use crate::verdict::{Failure, Outcome};
use crate::wire::{Answer, Copy, Letter, Wire};

/// What a service in a stack fails with.
pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Puts limits before a service of [`http`] requests, or of reqwest's: a tower [`Layer`]. Clones share the limits.
///
/// Each request waits until its limits let it go, then for the service below, and counts as in flight until the body of its
/// response has ended. A 429 pauses everybody who shares the limit. What a request asks for is a [`Context`] in its
/// extensions: deadline, cost, priority, flow, token. Those of a request of reqwest's can only be set while it is one of `http`'s,
/// which becomes one of reqwest's by `try_into`.
///
/// Requests wait inside the call: the service is always ready, and **does not press back**. To bound how many callers wait,
/// put [`LimiterBuilder::max_waiting`](crate::LimiterBuilder::max_waiting) into the limiter, or tower's `Buffer` and
/// `LoadShed`, or a concurrency limit, before this layer.
///
/// It sends each request once, unless [`repeating`](Self::repeating) says otherwise. Refusals by our own limits are this crate's
/// [`Error`] in the box; errors of the service pass through as they are.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use reqwest_throttle::{Context, Limiter, ThrottleLayer};
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let answers = service_fn(async |_: http::Request<String>| {
///     Ok::<_, std::convert::Infallible>(http::Response::new("pong".to_owned()))
/// });
/// let service = ServiceBuilder::new().layer(ThrottleLayer::new(Limiter::new("10/s")?)).service(answers);
/// let mut request = http::Request::get("http://example.com/").body("ping".to_owned())?;
/// request.extensions_mut().insert(Context::within(Duration::from_secs(5)));
/// let response = service.oneshot(request).await?;
/// assert_eq!(response.status(), 200);
/// # Ok(())
/// # }
/// ```
pub struct ThrottleLayer<R = Once> {
    exchange: Arc<Exchange>,
    key_of: Option<KeyOf>,
    repeats: PhantomData<fn() -> R>,
}

type KeyOf = Arc<dyn Fn(&HeaderMap) -> Option<String> + Send + Sync>;

/// Of a [`ThrottleLayer`] that sends each request once.
#[derive(Clone, Copy, Debug)]
pub enum Once {}

/// Of a [`ThrottleLayer`] that sends again what may be.
#[derive(Clone, Copy, Debug)]
pub enum Repeating {}

impl ThrottleLayer {
    /// The limits of a limiter: one gate for all requests, whatever their host, or one for each [key](Self::key_by). A refusal
    /// pauses all who share the gate; for several hosts take [`of`](Self::of).
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self::over(Arc::new(Exchange::of(limiter)))
    }

    /// The limits of a client, shared with it: those of each host, of the whole, and of each key.
    #[must_use]
    pub fn of(client: &Client) -> Self {
        Self::over(client.exchange())
    }

    fn over(exchange: Arc<Exchange>) -> Self {
        Self { exchange, key_of: None, repeats: PhantomData }
    }

    /// Sends again, in its place, what was refused because of traffic, or failed where doing it twice is as good as once: as
    /// the client does; four times in all and with the usual back-off, or as the client says that it was made
    /// [`of`](Self::of). Requests must be `Clone` for that; of reqwest's, those whose body is a stream are sent once, and what
    /// may have been led on by a redirect only goes again if doing it twice is as good as once.
    ///
    /// Where another layer outside repeats as well, the attempts multiply: repeat in one of them.
    #[must_use]
    pub fn repeating(self) -> ThrottleLayer<Repeating> {
        ThrottleLayer { exchange: self.exchange, key_of: self.key_of, repeats: PhantomData }
    }
}

impl<R> ThrottleLayer<R> {
    /// What a request is counted by besides: its key, by its headers.
    #[must_use]
    pub fn key_by(self, key_of: impl Fn(&HeaderMap) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { key_of: Some(Arc::new(key_of)), ..self }
    }
}

impl<S, R> Layer<S> for ThrottleLayer<R> {
    type Service = Throttle<S, R>;

    fn layer(&self, inner: S) -> Throttle<S, R> {
        Throttle { inner, layer: self.clone() }
    }
}

/// A service behind limits, made by a [`ThrottleLayer`]. Clones share the limits.
///
/// # Cancel safety
///
/// Dropping the future of a call leaves the line, or gives the attempt up; others move up at once.
pub struct Throttle<S, R = Once> {
    inner: S,
    layer: ThrottleLayer<R>,
}

/// What a call answers with.
pub(crate) type Calling<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

impl<S, R> Throttle<S, R> {
    /// Over a copy of the service, which is made ready only once the limits let the request go.
    pub(crate) fn exchange<Q>(
        &self,
        request: Q,
        context: Context,
        copy: fn(&Q) -> Option<Q>,
    ) -> Calling<<Inner<S, Q> as Wire>::Response>
    where
        Q: Letter + 'static,
        S: Clone + Send + 'static,
        Inner<S, Q>: Wire<Request = Q, Error = BoxError>,
    {
        let exchange = Arc::clone(&self.layer.exchange);
        let key = self.layer.key_of.as_ref().and_then(|key_of| key_of(request.headers())).map(|key| Key::new(&key));
        let mut wire = Inner { service: self.inner.clone(), copy };
        Box::pin(async move {
            let mut trip = exchange.begin(&Terms { context, ..Terms::default() });
            let ended = exchange.run(&mut wire, request, key.as_ref(), &mut trip).await?;
            Ok(exchange.hand_out(ended, &trip, false))
        })
    }
}

impl<S, B, P> Service<http::Request<B>> for Throttle<S, Once>
where
    S: Service<http::Request<B>, Response = http::Response<P>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Send + 'static,
    P: Body<Data: Send, Error: Send> + Send + 'static,
{
    type Response = http::Response<ThrottleBody<P>>;
    type Error = BoxError;
    type Future = Calling<Self::Response>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let context = context(request.extensions());
        self.exchange(request, context, |_| None)
    }
}

impl<S, B, P> Service<http::Request<B>> for Throttle<S, Repeating>
where
    S: Service<http::Request<B>, Response = http::Response<P>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Clone + Send + 'static,
    P: Body<Data: Send, Error: Send> + Send + 'static,
{
    type Response = http::Response<ThrottleBody<P>>;
    type Error = BoxError;
    type Future = Calling<Self::Response>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let context = context(request.extensions());
        self.exchange(request, context, |request| Some(request.clone()))
    }
}

pub(crate) fn context(extensions: &Extensions) -> Context {
    extensions.get::<Context>().cloned().unwrap_or_default()
}

/// The service below, as what an exchange goes over.
pub(crate) struct Inner<S, Q> {
    pub(crate) service: S,
    pub(crate) copy: fn(&Q) -> Option<Q>,
}

impl<S, Q> Inner<S, Q> {
    pub(crate) async fn until_ready(&mut self) -> Result<(), BoxError>
    where
        S: Service<Q, Error: Into<BoxError>>,
    {
        poll_fn(|cx| self.service.poll_ready(cx)).await.map_err(Into::into)
    }
}

impl<S, B, P> Wire for Inner<S, http::Request<B>>
where
    S: Service<http::Request<B>, Response = http::Response<P>, Error: Into<BoxError>, Future: Send> + Send,
    B: Send,
    P: Body<Data: Send, Error: Send> + Send,
{
    type Request = http::Request<B>;
    type Response = http::Response<ThrottleBody<P>>;
    type Error = BoxError;

    /// Whoever lets it follow does so outside.
    fn follows(&self) -> bool {
        false
    }

    fn copy(&self, request: &http::Request<B>) -> Copy<http::Request<B>> {
        let copy = (self.copy)(request);
        let is_whole = copy.is_some();
        Copy::new(request, copy, is_whole)
    }

    async fn ready(&mut self) -> Result<(), BoxError> {
        self.until_ready().await
    }

    async fn send(&mut self, request: http::Request<B>) -> Result<Self::Response, BoxError> {
        let response = self.service.call(request).await.map_err(Into::into)?;
        Ok(response.map(ThrottleBody::new))
    }

    fn failure(error: &BoxError) -> Failure {
        failure(&**error)
    }

    fn stopped(stop: Stop, _: Option<&http::Request<B>>) -> BoxError {
        Error::stopped(stop, None).into()
    }
}

/// What an error of whatever service says about what was done. One of our own, from a layer below, will not change.
pub(crate) fn failure(error: &(dyn StdError + 'static)) -> Failure {
    if let Some(error) = error.downcast_ref::<Error>() {
        return error.failure();
    }
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return error::failure(error);
    }
    let of_kind =
        |kind| error::sources(error).any(|error| error.downcast_ref().map(std::io::Error::kind) == Some(kind));
    let is_connect = of_kind(ErrorKind::ConnectionRefused);
    let outcome = if is_connect || error::gave_back(error) { Outcome::Untouched } else { Outcome::Unknown };
    Failure { outcome, is_connect, is_silence: of_kind(ErrorKind::TimedOut) }
}

impl<B: Send> Letter for http::Request<B> {
    fn method(&self) -> &Method {
        self.method()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    /// By its address, or by its `Host`. A host is counted with its port, whatever the scheme.
    fn host(&self) -> (&str, Option<u16>) {
        let of_uri = self.uri().authority().map(|authority| (authority.host(), authority.port_u16()));
        let of_header = || {
            let host = self.headers().get(HOST)?.to_str().ok()?;
            let port = host.parse::<Authority>().ok()?.port_u16();
            Some((port.map_or(host, |_| host.rsplit_once(':').map_or(host, |(name, _)| name)), port))
        };
        let (host, port) = of_uri.or_else(of_header).unwrap_or_default();
        (host, port.filter(|port| !matches!(port, 80 | 443)))
    }

    fn path(&self) -> &str {
        self.uri().path()
    }
}

impl<P> Answer for http::Response<ThrottleBody<P>>
where
    P: Body<Data: Send, Error: Send> + Send,
{
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
        None
    }

    async fn peek(self, until: Instant) -> (Self, Peeked) {
        let (head, body) = self.into_parts();
        let (body, peeked) = body.peek(until).await;
        (Self::from_parts(head, body), peeked)
    }

    fn hold(self, method: &Method, permit: Permit, unread: &Arc<Unread>) -> Self {
        if body::is_none(method, self.status(), self.headers(), self.body().size_hint().exact()) {
            return self;
        }
        self.map(|body| body.hold(permit, unread))
    }
}

impl<R> Clone for ThrottleLayer<R> {
    fn clone(&self) -> Self {
        Self { exchange: Arc::clone(&self.exchange), key_of: self.key_of.clone(), repeats: PhantomData }
    }
}

impl<S: Clone, R> Clone for Throttle<S, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<R> fmt::Debug for ThrottleLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleLayer").field("limiter", &self.exchange.limiter).finish_non_exhaustive()
    }
}

impl<S: fmt::Debug, R> fmt::Debug for Throttle<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("inner", &self.inner).finish_non_exhaustive()
    }
}
