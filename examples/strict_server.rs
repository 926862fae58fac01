//! The strict server, for programs in any language: at 127.0.0.1:8050 it takes 50 requests in any second, says what is left, and
//! answers each one more with a 429. `cargo run --example strict_server`, and Ctrl-C to end it.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use support::judge::Limit;
use support::upstream::{RetryAfter, Says, Upstream};

const PORT: u16 = 8050;

#[tokio::main]
async fn main() {
    let server = Upstream::builder().limit(Limit::sliding(50, Duration::from_secs(1))).says(Says::Structured);
    let server = server.retry_after(RetryAfter::Exact).start_at(PORT).await;
    println!("{} takes 50 requests in any second; Ctrl-C ends it", server.url());
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if server.accepted() + server.refused() > 0 {
            println!("{} taken, {} refused", server.accepted(), server.refused());
            server.reset_records();
        }
    }
}
