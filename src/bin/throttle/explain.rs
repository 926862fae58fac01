//! `throttle explain`.

use std::process::ExitCode;

use clap::Args;

use crate::failure::Failure;

/// (to be written)
#[derive(Debug, Args)]
pub(crate) struct Explain {}

impl Explain {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        Err(Failure::usage("not built"))
    }
}
