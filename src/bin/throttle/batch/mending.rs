//! What is left of an output once it is mended? What is torn and what is to be done again is not copied.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::before::Before;

use super::beside::beside;

/// Where records go while an output is read.
pub(crate) trait Sink {
    /// This line stays. It began at this byte.
    fn keep(&mut self, line: &[u8]) -> io::Result<()>;
    /// A line does not stay that began there.
    fn leave_out(&mut self, at: u64) -> io::Result<()>;
    /// What does not stay is to be kept until it is replaced.
    fn put_aside(&mut self, line: &[u8]) -> io::Result<()>;
}

/// Nothing is changed.
pub(crate) struct Looking;

impl Sink for Looking {
    fn keep(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn leave_out(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn put_aside(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// How the last line ended.
pub(crate) enum End {
    Whole,
    /// Without its new line.
    Open,
    /// It is torn, and began there.
    Torn(u64),
}

/// What takes the place of an output: as much of it as stays.
pub(crate) struct Mending<'a> {
    path: &'a Path,
    from: &'a File,
    /// Only from the first line on that does not stay.
    copy: Option<BufWriter<File>>,
    before: Before,
}

impl Sink for Mending<'_> {
    fn keep(&mut self, line: &[u8]) -> io::Result<()> {
        self.copy.as_mut().map_or(Ok(()), |copy| copy.write_all(line))
    }

    fn leave_out(&mut self, at: u64) -> io::Result<()> {
        if self.copy.is_none() {
            self.copy = Some(self.begin(at)?);
        }
        Ok(())
    }

    fn put_aside(&mut self, line: &[u8]) -> io::Result<()> {
        self.before.add(line, self.from)
    }
}

impl<'a> Mending<'a> {
    pub(crate) fn new(path: &'a Path, from: &'a File) -> Self {
        Self { path, from, copy: None, before: Before::new(path) }
    }

    fn begin(&self, up_to: u64) -> io::Result<BufWriter<File>> {
        let path = unfinished(self.path);
        // One that an earlier run has left.
        let _ = fs::remove_file(&path);
        let copy = OpenOptions::new().read(true).append(true).create_new(true).open(&path)?;
        copy.set_permissions(self.from.metadata()?.permissions())?;
        let mut copy = BufWriter::new(copy);
        // By the handle that holds the lock; the reading goes on where it was.
        let mut from = self.from;
        let place = from.stream_position()?;
        from.rewind()?;
        io::copy(&mut from.take(up_to), &mut copy)?;
        from.seek(SeekFrom::Start(place))?;
        Ok(copy)
    }

    /// What takes the output's place, if it cannot be mended where it is.
    pub(crate) fn finish(self, end: &End) -> io::Result<Option<File>> {
        let Some(copy) = self.copy else {
            mend(self.from, end)?;
            return Ok(None);
        };
        let copy = copy.into_inner().map_err(io::IntoInnerError::into_error)?;
        if matches!(end, End::Open) {
            mend(&copy, end)?;
        }
        copy.sync_all()?;
        // It is kept before the output is replaced, so that it is always in one of the two.
        self.before.finish()?;
        Ok(Some(copy))
    }
}

/// Makes the last line whole, or takes it away.
pub(crate) fn mend(mut file: &File, end: &End) -> io::Result<()> {
    match end {
        End::Whole => Ok(()),
        End::Open => file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(b"\n")),
        End::Torn(at) => file.set_len(*at),
    }
}

/// Where what takes an output's place is made.
pub(crate) fn unfinished(output: &Path) -> PathBuf {
    beside(output, ".mending")
}
