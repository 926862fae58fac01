//! `throttle`: requests under limits, for whoever writes no Rust.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod failure;
mod secret;
mod explain;
mod batch;

use failure::Failure;

/// Calls other people's HTTP APIs without tripping their limits.
#[derive(Debug, Parser)]
#[command(name = "throttle", version, propagate_version = true, arg_required_else_help = true)]
struct Throttle {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Batch(batch::Batch),
    Explain(explain::Explain),
}

fn main() -> ExitCode {
    let ended = match Throttle::parse().command {
        Command::Batch(batch) => batch.run(),
        Command::Explain(explain) => explain.run(),
    };
    ended.unwrap_or_else(|failure: Failure| {
        // Where nobody reads it any more there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "throttle: {failure}");
        failure.code()
    })
}
