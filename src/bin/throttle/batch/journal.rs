//! Which requests are answered? The output says it: it is the journal.
//!
//! A record is appended by one write of one line, so that whatever ends the program tears the last line at most. What is torn is
//! mended, and what is to be done again is taken out, before anything is appended: no id ever stands twice. What is taken out is
//! kept beside it until there is another record in its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};

use fs4::{FileExt, TryLockError};

use super::before::{self, Missing};
use super::ids::Ids;
use super::kept::Kept;
use super::mending::{End, Looking, Mending, Sink, mend, unfinished};
use super::outcome::Outcome;
use super::record::BEGINNING;
use super::summary::Tally;
use crate::failure::Failure;

/// How many times it is opened again that another run has replaced meanwhile.
const MOST_TRIES: usize = 5;

/// The output, open to this run alone.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// The one that was there before it was mended, locked still: another run may have opened it.
    replaced: Option<File>,
    /// How long it is, of whole lines.
    length: u64,
}

/// What is to be done with the records of earlier runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// The requests are those of a file, so that an id that is not there is of another.
    pub(crate) knows_all: bool,
    pub(crate) retries_failed: bool,
}

impl Journal {
    /// Opens an output, or makes one, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        // A link is followed here, so that mending replaces the file and not the link.
        let path =
            if path.is_symlink() { fs::canonicalize(path).ok() } else { None }.unwrap_or_else(|| path.to_owned());
        check_kind(&path)?;
        for _ in 0..MOST_TRIES {
            let options = OpenOptions::new().read(true).append(true).create(true).open(&path);
            let file = options.map_err(|error| unwritable(&path, &error))?;
            lock(&file, &path)?;
            if is_at(&file, &path) {
                let mut journal = Self { path, file, replaced: None, length: 0 };
                journal.put_back()?;
                return Ok(journal);
            }
        }
        Err(in_use(&path))
    }

    /// Where it is, if it was named by a link.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The ids of its records: all that are known, where the input is a stream.
    pub(crate) fn own_ids(&self) -> Result<Ids, Failure> {
        own_ids(&self.file, &self.path)
    }

    /// Reads what earlier runs have left, marks what is answered, and mends the rest.
    pub(crate) fn resume(&mut self, ids: &mut Ids, policy: Policy) -> Result<Tally, Failure> {
        let broken = |error: io::Error| unwritable(&self.path, &error);
        let mut mending = Mending::new(&self.path, &self.file);
        let (tally, end) = read(&self.file, &self.path, ids, policy, &mut mending)?;
        let mended = mending.finish(&end).map_err(broken)?;
        if let Some(mended) = mended {
            lock(&mended, &self.path)?;
            fs::rename(unfinished(&self.path), &self.path).map_err(broken)?;
            self.replaced = Some(std::mem::replace(&mut self.file, mended));
        }
        self.length = self.file.metadata().map_err(broken)?.len();
        Ok(tally)
    }

    /// Puts back what was taken out to be done again, and was not. Says what that was.
    pub(crate) fn put_back(&mut self) -> Result<Tally, Failure> {
        let path = self.path.clone();
        let broken = |error: io::Error| unwritable(&before::place(&path), &error);
        let (mut tally, mut missing) = (Tally::default(), Missing::of(&path).map_err(broken)?);
        if !missing.is_there() {
            return Ok(tally);
        }
        let end = forget_those_of(&self.file, &path, &mut missing)?;
        mend(&self.file, &end).map_err(broken)?;
        self.length = self.file.metadata().map_err(broken)?.len();
        while let Some((line, kept)) = missing.advance().map_err(broken)? {
            self.append(&line)?;
            tally.add(kept.kind);
        }
        // Not taken away before it is there.
        self.file.sync_all().and_then(|()| fs::remove_file(before::place(&path))).map_err(broken)?;
        Ok(tally)
    }

    /// Appends a line by one write. If that fails, what was written of it is taken back.
    pub(crate) fn append(&mut self, line: &[u8]) -> Result<(), Failure> {
        let written = self.file.write(line).and_then(|count| self.file.write_all(&line[count..]));
        written.map_err(|error| {
            // If this fails too, the next run mends it.
            let _ = self.file.set_len(self.length);
            let path = self.path.display();
            Failure::unfinished(format!(
                "{path} cannot be written any more ({error}); what is in it is whole: make room, and run the same command again"
            ))
        })?;
        self.length += line.len() as u64;
        Ok(())
    }
}

/// What an output says, without changing it or locking it.
pub(crate) fn look(path: &Path, ids: &mut Ids, policy: Policy) -> Result<Tally, Failure> {
    if !path.exists() {
        return check_folder(path).map(|()| Tally::default());
    }
    check_kind(path)?;
    let failed = |error: io::Error| unwritable(path, &error);
    let (file, mut missing) = (File::open(path).map_err(failed)?, Missing::of(path).map_err(failed)?);
    let (mut tally, _) = read(&file, path, ids, policy, &mut Looking)?;
    forget_those_of(&file, path, &mut missing)?;
    while let Some((_, kept)) = missing.advance().map_err(failed)? {
        if stays(&kept, ids, policy, path)? {
            tally.add(kept.kind);
        }
    }
    Ok(tally)
}

/// As [`Journal::own_ids`], without locking it.
pub(crate) fn look_for_ids(path: &Path) -> Result<Ids, Failure> {
    let Ok(file) = File::open(path) else { return Ok(Ids::new()) };
    let failed = |error: io::Error| unwritable(path, &error);
    let (mut ids, mut missing) = (own_ids(&file, path)?, Missing::of(path).map_err(failed)?);
    forget_those_of(&file, path, &mut missing)?;
    while let Some((_, kept)) = missing.advance().map_err(failed)? {
        kept.id.iter().for_each(|id| ids.add(ids.hash(id), kept.print));
    }
    ids.sort();
    Ok(ids)
}

fn own_ids(file: &File, path: &Path) -> Result<Ids, Failure> {
    let (mut ids, mut lines, mut line) = (Ids::new(), BufReader::new(file), Vec::new());
    while lines.read_until(b'\n', &mut line).map_err(|error| unwritable(path, &error))? > 0 {
        if let Some(Kept { id: Some(id), print, .. }) = Kept::read(&line) {
            ids.add(ids.hash(&id), print);
        }
        line.clear();
    }
    ids.sort();
    Ok(ids)
}

fn read(
    file: &File,
    path: &Path,
    ids: &mut Ids,
    policy: Policy,
    sink: &mut impl Sink,
) -> Result<(Tally, End), Failure> {
    let mut tally = Tally::default();
    let end = each(file, path, |line, at, kept| {
        let stays = stays(&kept, ids, policy, path)?;
        let done = match &kept.id {
            _ if stays => sink.keep(line),
            // Another one has its id.
            Some(id) if ids.look_up(&ids.hash(id)).is_some_and(|(is_answered, _)| is_answered) => sink.leave_out(at),
            // A line that could not be sent is written anew by whoever reads it.
            None => sink.leave_out(at),
            Some(_) => sink.leave_out(at).and_then(|()| sink.put_aside(line)),
        };
        if stays {
            tally.add(kept.kind);
        }
        done.map_err(|error| unwritable(path, &error)).map(|()| stays)
    })?;
    Ok((tally, end))
}

fn forget_those_of(file: &File, path: &Path, missing: &mut Missing) -> Result<End, Failure> {
    each(file, path, |_, _, kept| {
        kept.id.iter().for_each(|id| missing.forget(id));
        Ok(true)
    })
}

/// Hands over each record, with its line and where that begins, and is told whether it stays. How the last that does ends.
fn each(
    file: &File,
    path: &Path,
    mut act: impl FnMut(&[u8], u64, Kept) -> Result<bool, Failure>,
) -> Result<End, Failure> {
    let failed = |error: io::Error| unwritable(path, &error);
    let (mut lines, mut line, mut at, mut number) = (BufReader::new(file), Vec::new(), 0, 0);
    let mut end = End::Whole;
    lines.rewind().map_err(failed)?;
    while lines.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        number += 1;
        let is_whole = line.last() == Some(&b'\n');
        match Kept::read(&line) {
            Some(kept) => {
                if act(&line, at, kept)? {
                    end = if is_whole { End::Whole } else { End::Open };
                }
            }
            None if !is_whole && is_torn(&line) => end = End::Torn(at),
            None => return Err(foreign(path, number)),
        }
        at += line.len() as u64;
        line.clear();
    }
    Ok(end)
}

/// Whether a record stays as it is. It is done again if that may end in another way, or if it was of another request then.
fn stays(kept: &Kept, ids: &mut Ids, policy: Policy, path: &Path) -> Result<bool, Failure> {
    // A line that could not be sent is looked at anew.
    let Some(id) = &kept.id else { return Ok(false) };
    let hash = ids.hash(id);
    let outcome = kept.kind.outcome();
    let (is_answered, is_same) = match ids.look_up(&hash) {
        Some((is_answered, print)) => (is_answered, print.may_be(kept.print)),
        None if policy.knows_all => return Err(another_input(path, id, "which the input does not have")),
        None => (false, true),
    };
    if outcome == Outcome::Done && !is_same {
        return Err(another_input(path, id, "which asks for something else in this input"));
    }
    let is_final = match outcome {
        Outcome::Done => true,
        Outcome::Permanent => !policy.retries_failed,
        Outcome::Transient => false,
    };
    let stays = is_final && is_same && !is_answered;
    if stays {
        ids.mark_answered(&hash);
    }
    Ok(stays)
}

/// Whether it is the beginning of one of our lines, and not the end of somebody else's file. What was not on the disk yet when the
/// power went is zeros.
fn is_torn(line: &[u8]) -> bool {
    let length = line.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let line = &line[..length];
    let both = line.len().min(BEGINNING.len());
    line[..both] == BEGINNING[..both]
}

/// A stream cannot be read again.
fn check_kind(path: &Path) -> Result<(), Failure> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(Failure::usage(format!(
            "{} is no ordinary file; name one by -o: the output is also what a later run goes on from",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// One can be made there.
fn check_folder(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::read_dir(folder).map(drop).map_err(|error| unwritable(path, &error))
}

fn lock(file: &File, path: &Path) -> Result<(), Failure> {
    FileExt::try_lock(file).map_err(|error| match error {
        TryLockError::WouldBlock => in_use(path),
        TryLockError::Error(error) => unwritable(path, &error),
    })
}

/// Whether it is still what is there by that name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |found: io::Result<fs::Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
    of(file.metadata()).is_some_and(|file| Some(file) == of(fs::metadata(path)))
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

fn in_use(path: &Path) -> Failure {
    Failure::usage(format!("another run writes to {}; wait for its end, or name another file by -o", path.display()))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{} cannot be written ({error}); name another file by -o", path.display()))
}

fn foreign(path: &Path, number: u64) -> Failure {
    Failure::usage(format!(
        "line {number} of {} was not written by `throttle batch`; name another file by -o, or take that line out",
        path.display()
    ))
}

fn another_input(path: &Path, id: &str, why: &str) -> Failure {
    let id: String = id.chars().take(60).collect();
    let (path, id) = (path.display(), id.escape_debug());
    Failure::usage(format!(
        "{path} has an answer to `{id}`, {why}; it belongs to another input: name another file by -o"
    ))
}
