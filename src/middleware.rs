//! The limits in a chain of reqwest-middleware: [`ThrottleMiddleware`].

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error as ChainError, Middleware, Next};

use crate::client::Client;
use crate::context::Context;
use crate::error::{self, Error, FINAL, Stop};
use crate::exchange::{Exchange, Terms};
use crate::limiter::Limiter;
use crate::verdict::Failure;
use crate::wire::{Copy, Wire};

/// Limits in a chain of [`reqwest_middleware`]. Clones share them.
///
/// Each request that comes this way waits until its limits let it go, and counts as in flight until the body of its response has
/// ended. A 429 pauses everybody who shares the limit. What a request asks for is a [`Context`] in its extensions
/// (`with_extension`): deadline, cost, priority, flow, token.
///
/// It sends each request once, so that it does not multiply with `reqwest-retry`, which belongs outside of it: then each attempt
/// passes the limits. [`repeating`](Self::repeating) makes it repeat by itself. Refusals by our own limits are this crate's
/// [`Error`](crate::Error) inside [`reqwest_middleware::Error::Middleware`].
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_throttle::{Context, Limiter, ThrottleMiddleware};
/// use std::time::Duration;
///
/// let throttle = ThrottleMiddleware::new(Limiter::new("10/s")?);
/// let client = ClientBuilder::new(reqwest::Client::new()).with(throttle).build();
/// let request = client.get("https://example.com/").with_extension(Context::within(Duration::from_secs(5)));
/// # drop(request);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ThrottleMiddleware {
    exchange: Arc<Exchange>,
    repeats: bool,
}

impl ThrottleMiddleware {
    /// The limits of a limiter: one gate for all requests.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self { exchange: Arc::new(Exchange::of(limiter)), repeats: false }
    }

    /// The limits of a client, shared with it: those of each host, and of the whole. What a request's key is, it does not know.
    #[must_use]
    pub fn of(client: &Client) -> Self {
        Self { exchange: client.exchange(), repeats: false }
    }

    /// Sends again, in its place, what was refused because of traffic, or failed where doing it twice is as good as once: as
    /// the client does, four times in all unless the client says otherwise.
    #[must_use]
    pub fn repeating(self) -> Self {
        Self { repeats: true, ..self }
    }
}

#[async_trait]
impl Middleware for ThrottleMiddleware {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, ChainError> {
        let context = extensions.get::<Context>().cloned().unwrap_or_default();
        let mut trip = self.exchange.begin(&Terms { context, ..Terms::default() });
        let mut wire = Rest { next, extensions, repeats: self.repeats };
        let ended = self.exchange.run(&mut wire, request, None, &mut trip).await?;
        Ok(self.exchange.hand_out(ended, &trip, false))
    }
}

/// The rest of the chain, as what an exchange goes over.
struct Rest<'a> {
    next: Next<'a>,
    extensions: &'a mut Extensions,
    repeats: bool,
}

impl Wire for Rest<'_> {
    type Request = Request;
    type Response = Response;
    type Error = ChainError;

    fn follows(&self) -> bool {
        true
    }

    fn copy(&self, request: &Request) -> Copy<Request> {
        if self.repeats { Copy::of(request) } else { Copy::head_of(request) }
    }

    async fn send(&mut self, request: Request) -> Result<Response, ChainError> {
        self.next.clone().run(request, self.extensions).await
    }

    fn failure(error: &ChainError) -> Failure {
        match error {
            ChainError::Reqwest(error) => error::failure(error),
            ChainError::Middleware(_) => FINAL,
        }
    }

    fn stopped(stop: Stop, request: Option<&Request>) -> ChainError {
        ChainError::middleware(Error::stopped(stop, request.map(Request::url)))
    }
}

impl fmt::Debug for ThrottleMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleMiddleware").field("limiter", &self.exchange.limiter).finish_non_exhaustive()
    }
}
