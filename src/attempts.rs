//! What has happened to a request until its response: [`Attempts`].

use std::time::Duration;

/// How often a request was sent, and what it waited for. In the extensions of the response.
///
/// # Examples
///
/// ```no_run
/// # async fn run() -> Result<(), reqwest_throttle::Error> {
/// use reqwest_throttle::{Attempts, Client};
///
/// let response = Client::new().get("https://example.com/").send().await?;
/// if let Some(attempts) = response.extensions().get::<Attempts>() {
///     println!("sent {} times, waited in line for {:?}", attempts.sent, attempts.in_line);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempts {
    /// How many requests were sent in all, with those that a redirect led to.
    pub sent: usize,
    /// How many of these the server refused because of traffic.
    pub refused: usize,
    /// How many of these failed otherwise, and were made again.
    pub failed: usize,
    /// How many redirects were followed.
    pub redirects: usize,
    /// How long it waited for its turn, with pauses that the server asked for.
    pub in_line: Duration,
    /// How long it waited between attempts of its own accord.
    pub backed_off: Duration,
}
