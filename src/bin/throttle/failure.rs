//! Why the program ends otherwise than well: one sentence, with what to do about it.

use std::fmt;
use std::process::ExitCode;

/// Something was begun and could not be done.
const UNFINISHED: u8 = 1;

/// The usage, or the input, cannot be worked with.
const USAGE: u8 = 2;

/// One sentence that names the place and the value, and says what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    sentence: String,
    code: u8,
}

impl Failure {
    /// The usage or the input is wrong.
    pub(crate) fn usage(sentence: impl fmt::Display) -> Self {
        Self { sentence: sentence.to_string(), code: USAGE }
    }

    /// What was begun cannot go on.
    pub(crate) fn unfinished(sentence: impl fmt::Display) -> Self {
        Self { sentence: sentence.to_string(), code: UNFINISHED }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}
