//! reqwest's client in a stack of tower's services: as it is, and as [`ReqwestService`].

use std::pin::Pin;
use std::task::{self, Poll};

use reqwest::{Body, Client, Request, Response};
use tower_service::Service;

use crate::context::Context;
use crate::error::{Error, Stop};
use crate::layer::{BoxError, Calling, Inner, Once, Repeating, Throttle, context, failure};
use crate::verdict::Failure;
use crate::wire::{Copy, Wire};

/// A client of reqwest's as a service of [`http`]'s requests and responses, for stacks that speak those.
///
/// It follows redirects as it was told; what it sends of itself is not counted.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use reqwest_throttle::{Body, Limiter, ReqwestService, ThrottleLayer};
/// use tower::{Service, ServiceBuilder};
///
/// let client = ReqwestService::from(reqwest::Client::new());
/// let mut service = ServiceBuilder::new().layer(ThrottleLayer::new(Limiter::new("10/s")?)).service(client);
/// let answer = service.call(http::Request::get("https://example.com/").body(Body::default())?);
/// # drop(answer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReqwestService(Client);

impl From<Client> for ReqwestService {
    fn from(client: Client) -> Self {
        Self(client)
    }
}

impl Service<http::Request<Body>> for ReqwestService {
    type Response = http::Response<Body>;
    type Error = reqwest::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, reqwest::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), reqwest::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let sent = Request::try_from(request).map(|request| self.0.execute(request));
        Box::pin(async move { Ok(sent?.await?.into()) })
    }
}

impl<S> Service<Request> for Throttle<S, Once>
where
    S: Service<Request, Response = Response, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
{
    type Response = Response;
    type Error = BoxError;
    type Future = Calling<Response>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match with_context(request) {
            Ok((request, context)) => self.exchange(request, context, |_| None),
            Err(error) => Box::pin(async { Err(error.into()) }),
        }
    }
}

impl<S> Service<Request> for Throttle<S, Repeating>
where
    S: Service<Request, Response = Response, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
{
    type Response = Response;
    type Error = BoxError;
    type Future = Calling<Response>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match with_context(request) {
            Ok((request, context)) => self.exchange(request, context, Request::try_clone),
            Err(error) => Box::pin(async { Err(error.into()) }),
        }
    }
}

/// What is in a request's extensions can only be seen on the way through [`http`].
fn with_context(request: Request) -> reqwest::Result<(Request, Context)> {
    let request = http::Request::<Body>::try_from(request)?;
    let context = context(request.extensions());
    Ok((request.try_into()?, context))
}

impl<S> Wire for Inner<S, Request>
where
    S: Service<Request, Response = Response, Error: Into<BoxError>, Future: Send> + Send,
{
    type Request = Request;
    type Response = Response;
    type Error = BoxError;

    fn follows(&self) -> bool {
        true
    }

    fn copy(&self, request: &Request) -> Copy<Request> {
        match (self.copy)(request) {
            Some(copy) => Copy::new(request, Some(copy), true),
            None => Copy::head_of(request),
        }
    }

    async fn ready(&mut self) -> Result<(), BoxError> {
        self.until_ready().await
    }

    async fn send(&mut self, request: Request) -> Result<Response, BoxError> {
        self.service.call(request).await.map_err(Into::into)
    }

    fn failure(error: &BoxError) -> Failure {
        failure(&**error)
    }

    fn stopped(stop: Stop, request: Option<&Request>) -> BoxError {
        Error::stopped(stop, request.map(Request::url)).into()
    }
}
