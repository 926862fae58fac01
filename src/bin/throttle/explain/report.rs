//! How is it told what responses state? In words, or an object a line.

use std::io::{self, Write};
use std::time::Duration;

use reqwest_throttle::{Hints, Signal};

use super::answers::Answer;
use super::json::Json;
use super::paint::Paint;
use super::words::Words;

/// How to read responses, and how to tell what they state.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) json: bool,
    pub(crate) host: Option<String>,
    pub(crate) hints: Hints,
    /// Since 1970.
    pub(crate) now: Duration,
    pub(crate) paint: Paint,
}

impl Report {
    /// One response, the `nth` from zero.
    pub(crate) fn tell(&self, out: &mut impl Write, nth: usize, answer: &Answer) -> io::Result<()> {
        let signal = Signal::read_with(answer.status, &answer.headers, answer.body, self.now, &self.hints);
        if self.json {
            serde_json::to_writer(&mut *out, &Json(&signal))?;
            return writeln!(out);
        }
        if nth > 0 {
            writeln!(out)?;
        }
        let words = Words { status: answer.status, signal: &signal, host: self.host.as_deref(), paint: self.paint };
        writeln!(out, "{words}")
    }
}
