//! What does an address answer? Asked once, and not again.

use std::time::Duration;

use reqwest_throttle::header::HeaderMap;
use reqwest_throttle::{Client, Error, Response, StatusCode, Url};

use crate::cause::told;
use crate::failure::Failure;
use crate::secret::Header;

/// What is read of a body: no more is looked at.
const LONGEST_BODY: usize = 64 << 10;

/// How long an answer may take, with its body.
const PATIENCE: Duration = Duration::from_secs(30);

/// The response of the last address, where the first leads on.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// As it is written in a rule.
    pub(crate) host: Option<String>,
}

impl Asked {
    pub(crate) fn of(url: &str, headers: &[Header]) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::usage(format!("cannot ask: {error}; try again")))?;
        runtime.block_on(get(url, headers)).map_err(|error| unanswered(&error))
    }
}

async fn get(url: &str, headers: &[Header]) -> Result<Asked, Error> {
    let agent = concat!("throttle/", env!("CARGO_PKG_VERSION"));
    let client = Client::builder().max_attempts(1).timeout(PATIENCE).user_agent(agent).build()?;
    let headers = headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect();
    let mut response = client.get(url).headers(headers).send().await?;
    let body = start_of_body(&mut response).await;
    let (status, headers, host) = (response.status(), response.headers().clone(), host(response.url()));
    Ok(Asked { status, headers, body, host })
}

/// As much as comes: the head has been said.
async fn start_of_body(response: &mut Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < LONGEST_BODY
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body
}

fn host(url: &Url) -> Option<String> {
    let name = url.host_str()?;
    Some(url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}")))
}

fn unanswered(error: &Error) -> Failure {
    if error.is_builder() {
        return Failure::usage(error);
    }
    let said = told(error);
    Failure::unfinished(format!("{said}; see whether the address is right and can be reached from here"))
}
