//! `throttle`: requests under limits, for whoever writes no Rust.

use std::io::{Write, stderr};
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{Parser, Subcommand};

mod failure;
mod address;
mod cause;
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
    let ended = match Throttle::try_parse() {
        Ok(Throttle { command: Command::Batch(batch) }) => batch.run(),
        Ok(Throttle { command: Command::Explain(explain) }) => explain.run(),
        Err(error) if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::usage(in_one_sentence(&error)))
        }
        Err(help) => help.exit(),
    };
    ended.unwrap_or_else(|failure| {
        // Where nobody reads it any more there is nobody to tell.
        let _ = writeln!(stderr(), "throttle: {failure}");
        failure.code()
    })
}

/// What clap says in several lines, without the usage.
fn in_one_sentence(error: &clap::Error) -> String {
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    if error.kind() == ErrorKind::UnknownArgument && argument.is_some_and(|argument| !argument.starts_with('-')) {
        // It may be half of a header, and is not repeated.
        return "there is one argument too many; put in quotes what belongs together, `--help` says what there is"
            .to_owned();
    }
    let told = error.render().to_string();
    let lines = told.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<_> = lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more")).collect();
    let told = lines.join(" ").replace(" tip: ", "; ");
    format!("{}; `--help` says what there is", told.strip_prefix("error: ").unwrap_or(&told))
}
