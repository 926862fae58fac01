//! Which requests does the input ask for? Checked whole before anything is sent, if it is a file.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use super::ids::{Doubles, Id, Ids};
use super::line::{LONGEST, Line};
use crate::failure::Failure;

/// How lines are to be read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) input: Source,
    pub(crate) base: Option<String>,
    pub(crate) skips_bad: bool,
}

/// Where lines come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    File(PathBuf),
    Stream,
}

impl Source {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stream => "standard input".to_owned(),
        }
    }

    fn open(&self) -> Result<Lines, Failure> {
        let from: Box<dyn Read + Send> = match self {
            Self::File(path) => {
                let file = File::open(path).map_err(|error| self.unread(&error))?;
                // What comes through a pipe can be read once only.
                if !file.metadata().is_ok_and(|found| found.is_file()) {
                    let name = self.name();
                    return Err(Failure::usage(format!(
                        "{name} is no ordinary file; name one, or pipe requests into `-`"
                    )));
                }
                Box::new(file)
            }
            Self::Stream => Box::new(io::stdin()),
        };
        Ok(Lines { from: BufReader::with_capacity(64 << 10, from), number: 0, bytes: Vec::new() })
    }

    fn unread(&self, error: &io::Error) -> Failure {
        Failure::usage(format!("{} cannot be read ({error}); name a file that can, or `-`", self.name()))
    }
}

/// The lines of a file that are not empty, by number.
struct Lines {
    from: BufReader<Box<dyn Read + Send>>,
    number: u64,
    bytes: Vec<u8>,
}

impl Lines {
    /// Moves on to the next, if there is one. Of a line that is too long only the beginning is kept.
    fn advance(&mut self) -> io::Result<bool> {
        loop {
            self.bytes.clear();
            let mut part = self.from.by_ref().take(LONGEST as u64 + 1);
            if part.read_until(b'\n', &mut self.bytes)? == 0 {
                return Ok(false);
            }
            if self.bytes.last() != Some(&b'\n') && self.bytes.len() > LONGEST {
                self.from.skip_until(b'\n')?;
            }
            self.number += 1;
            if !self.text().trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    /// Without a mark of the byte order, which some programs begin a file with.
    fn text(&self) -> &[u8] {
        let mark = if self.number <= 1 { "\u{feff}".as_bytes() } else { b"" };
        self.bytes.strip_prefix(mark).unwrap_or(&self.bytes)
    }
}

/// What the check of a file has found, beside its ids.
#[derive(Debug)]
pub(crate) struct Whole {
    /// Those that more than one line has.
    pub(crate) doubled: HashSet<Id>,
    /// Lines that are not empty.
    pub(crate) lines: u64,
    /// What all take together, by unit.
    pub(crate) costs: BTreeMap<String, u128>,
}

impl Reading {
    /// With what the check has found, of a file.
    pub(crate) fn checked(self) -> Result<(Self, Option<(Ids, Whole)>), Failure> {
        let checked = matches!(self.input, Source::File(_)).then(|| self.check()).transpose()?;
        Ok((self, checked))
    }

    /// Checks a file from its first line to its last.
    fn check(&self) -> Result<(Ids, Whole), Failure> {
        let (mut ids, mut costs) = (Ids::new(), BTreeMap::new());
        let (mut lines, mut count) = (self.input.open()?, 0);
        while lines.advance().map_err(|error| self.input.unread(&error))? {
            count += 1;
            match Line::read(lines.text(), lines.number, self.base.as_deref()) {
                Ok(line) => {
                    ids.add(ids.hash(&line.id), line.print);
                    add_costs(&mut costs, &line);
                }
                Err(_) if self.skips_bad => {}
                Err(reason) => return Err(self.bad(lines.number, &reason)),
            }
        }
        let doubled = ids.sort();
        if !doubled.is_empty() && !self.skips_bad {
            return Err(self.first_doubled(&ids, &doubled)?);
        }
        Ok((ids, Whole { doubled, lines: count, costs }))
    }

    fn bad(&self, number: u64, reason: &str) -> Failure {
        let name = self.input.name();
        Failure::usage(format!("{name}, line {number}: {reason}; or go on without such lines by --skip-bad"))
    }

    /// Only hashes were kept: which lines they are is read again.
    fn first_doubled(&self, ids: &Ids, doubled: &HashSet<Id>) -> Result<Failure, Failure> {
        let (mut first, mut lines) = (BTreeMap::new(), self.input.open()?);
        while lines.advance().map_err(|error| self.input.unread(&error))? {
            let Ok(line) = Line::read(lines.text(), lines.number, self.base.as_deref()) else { continue };
            let id = ids.hash(&line.id);
            if doubled.contains(&id)
                && let Some(before) = first.insert(id, lines.number)
            {
                return Ok(self.bad(lines.number, &twice(&line.id, Some(before))));
            }
        }
        Ok(self.changed())
    }

    fn changed(&self) -> Failure {
        Failure::unfinished(format!("{} has changed while it was read; run the same command again", self.input.name()))
    }

    /// What is to be sent: all but what is answered.
    pub(crate) fn pending(self, ids: Ids, doubled: Option<HashSet<Id>>) -> Result<Pending, Failure> {
        let lines = self.input.open()?;
        Ok(Pending { reading: self, lines, ids, doubles: Doubles::new(doubled), skipped: 0 })
    }
}

pub(crate) fn add_costs(costs: &mut BTreeMap<String, u128>, line: &Line) {
    for (unit, amount) in &line.costs {
        *costs.entry(unit.clone()).or_default() += u128::from(*amount);
    }
    if !line.costs.contains_key("requests") {
        *costs.entry("requests".to_owned()).or_default() += 1;
    }
}

fn twice(id: &str, before: Option<u64>) -> String {
    let shown: String = id.chars().take(60).collect();
    let place = before.map_or_else(|| "an earlier line".to_owned(), |number| format!("line {number}"));
    format!("its `custom_id` `{}` is that of {place}; give each request its own", shown.escape_debug())
}

/// The requests of the input that are not answered yet, in order.
pub(crate) struct Pending {
    reading: Reading,
    lines: Lines,
    ids: Ids,
    doubles: Doubles,
    /// How many were answered already.
    skipped: u64,
}

/// One line that something is to be done about.
#[derive(Debug)]
pub(crate) enum Todo {
    Request(Box<Line>),
    /// It cannot be sent, and why.
    Bad(u64, String),
}

impl Pending {
    /// The next that is to be done, and how long its line is.
    pub(crate) fn advance(&mut self) -> Result<Option<(Todo, usize)>, Failure> {
        while self.lines.advance().map_err(|error| self.reading.input.unread(&error))? {
            let number = self.lines.number;
            let line = Line::read(self.lines.text(), number, self.reading.base.as_deref());
            let todo = match line.and_then(|line| self.not_twice(line)) {
                Err(reason) if self.reading.skips_bad => Some(Todo::Bad(number, reason)),
                Err(reason) => return Err(self.reading.bad(number, &reason)),
                Ok(line) => self.not_answered(line)?,
            };
            if let Some(todo) = todo {
                return Ok(Some((todo, self.lines.bytes.len())));
            }
        }
        self.check_end()?;
        Ok(None)
    }

    fn not_twice(&mut self, line: Line) -> Result<Line, String> {
        if self.doubles.has_met(self.ids.hash(&line.id)) { Err(twice(&line.id, None)) } else { Ok(line) }
    }

    fn not_answered(&mut self, line: Line) -> Result<Option<Todo>, Failure> {
        match (self.ids.look_up(&self.ids.hash(&line.id)), &self.reading.input) {
            (Some((_, print)), _) if !print.may_be(line.print) => Err(self.other_request(&line.id)),
            (Some((true, _)), _) => {
                self.skipped += 1;
                Ok(None)
            }
            (None, Source::File(_)) => Err(self.reading.changed()),
            _ => Ok(Some(Todo::Request(Box::new(line)))),
        }
    }

    fn other_request(&self, id: &str) -> Failure {
        match self.reading.input {
            Source::File(_) => self.reading.changed(),
            Source::Stream => Failure::usage(format!(
                "the output has an answer to another request with the `custom_id` `{}`, so it belongs to another input; \
                 name another file by -o",
                id.chars().take(60).collect::<String>().escape_debug()
            )),
        }
    }

    /// Of a stream it only shows at its end whether it is the one that the output answers.
    fn check_end(&self) -> Result<(), Failure> {
        let is_stream = matches!(self.reading.input, Source::Stream);
        match self.ids.len() as u64 {
            answers if is_stream && self.skipped < answers => Err(Failure::usage(format!(
                "{} of the {answers} answers in the output are to no line of standard input; see whether it was the \
                 right one, and whether all of it came",
                answers - self.skipped
            ))),
            _ => Ok(()),
        }
    }
}
