//! An existing program that calls an API with reqwest: only the import and the line that builds the client changed.

#[path = "../tests/support/mod.rs"]
mod support;

use reqwest_throttle::Client;
use support::judge::Limit;
use support::upstream::Upstream;

/// As it was, but for `reqwest::Error`.
async fn status_of(client: &Client, url: String) -> Result<String, Box<dyn std::error::Error>> {
    let response = client.get(url).bearer_auth("secret").header("accept", "text/plain").send().await?;
    Ok(response.error_for_status()?.text().await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Somebody else's API, which takes 10 requests a second.
    let api = Upstream::builder().limit(Limit::sliding(10, std::time::Duration::from_secs(1))).start().await;

    // Before: let client = reqwest::Client::new();
    let client = Client::builder().each_host("10/s").build()?;

    for n in 1..=25 {
        println!("{n:>2}: {} after {:.2?}", status_of(&client, api.at("/status")).await?, api.now());
    }
    println!("429s earned: {}", api.refused());
    assert_eq!(api.refused(), 0, "the limits were on our side of the wire");
    Ok(())
}
