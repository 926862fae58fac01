//! Where do the responses come from? A file, or what is piped in.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use crate::failure::Failure;

/// So much is read, in bytes: more is no list of responses.
const LONGEST: u64 = 256 << 20;

/// What is in a file, or in what is piped in: `-`, or no file.
pub(crate) fn read(file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let Some(path) = file.filter(|path| *path != Path::new("-")) else { return read_piped(file.is_some()) };
    let cannot = |error| Failure::usage(format!("cannot read `{}`: {error}; name a file that can be", path.display()));
    read_from(File::open(path).map_err(cannot)?).map_err(cannot).and_then(checked)
}

fn read_piped(is_asked_for: bool) -> Result<Vec<u8>, Failure> {
    if io::stdin().is_terminal() && !is_asked_for {
        return Err(Failure::usage(
            "nothing is piped in: give it what curl prints, as in `curl -si URL | throttle explain -`",
        ));
    }
    let cannot =
        |error| Failure::usage(format!("cannot read what is piped in: {error}; write it to a file and name that"));
    read_from(io::stdin()).map_err(cannot).and_then(checked)
}

fn read_from(source: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(LONGEST + 1).read_to_end(&mut text)?;
    Ok(text)
}

fn checked(text: Vec<u8>) -> Result<Vec<u8>, Failure> {
    if text.len() as u64 > LONGEST {
        return Err(Failure::usage("the input is longer than 256 MiB: give it fewer responses at a time"));
    }
    Ok(text)
}

/// Why nothing can be explained in a text without a head.
pub(crate) fn headless(text: &[u8]) -> Failure {
    Failure::usage(if text.trim_ascii().is_empty() {
        "there is nothing in the input: give it what `curl -si URL` prints, and where curl prints nothing, `curl -sSi URL` says why"
    } else if text.starts_with(b"\xff\xfe") {
        "the input is UTF-16, as `>` of PowerShell writes it: pipe it into `throttle explain -`, or write it by `curl -o FILE`"
    } else {
        "there is no head of a response in the input: give it what `curl -si URL` prints, -i keeps the head"
    })
}
