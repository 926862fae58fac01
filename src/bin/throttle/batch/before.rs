//! Which records of an output are being done again? A file beside it keeps them, so that each is lost only to the one that
//! replaces it, whatever ends the program.
//!
//! They are written down, by one rename, before they are taken out of the output, and put back when a run ends, or when the next
//! begins. Where an id stands in both, the output is right.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::beside::beside;
use super::kept::Kept;

/// What is being written of it.
pub(crate) struct Before {
    path: PathBuf,
    /// Only from the first on.
    file: Option<BufWriter<File>>,
}

impl Before {
    pub(crate) fn new(output: &Path) -> Self {
        Self { path: place(output), file: None }
    }

    /// Adds a line of an output, which is to keep the permissions of that.
    pub(crate) fn add(&mut self, line: &[u8], output: &File) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(self.begin(output)?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(line)?;
        // The last line of an output may lack its end.
        if line.last() == Some(&b'\n') { Ok(()) } else { file.write_all(b"\n") }
    }

    fn begin(&self, output: &File) -> io::Result<BufWriter<File>> {
        let path = unfinished(&self.path);
        // One that an earlier run has left.
        let _ = fs::remove_file(&path);
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        file.set_permissions(output.metadata()?.permissions())?;
        Ok(BufWriter::new(file))
    }

    /// Makes it what a later run finds.
    pub(crate) fn finish(self) -> io::Result<()> {
        let Some(file) = self.file else { return Ok(()) };
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(unfinished(&self.path), &self.path)
    }
}

/// Where the records of an output are that are being done again.
pub(crate) fn place(output: &Path) -> PathBuf {
    beside(output, ".before")
}

fn unfinished(path: &Path) -> PathBuf {
    beside(path, ".new")
}

/// What it keeps of an output that is not in it, by id.
pub(crate) struct Missing {
    file: Option<BufReader<File>>,
    ids: HashSet<String>,
}

impl Missing {
    /// All that it keeps; nothing, if there is no such file.
    pub(crate) fn of(output: &Path) -> io::Result<Self> {
        let open = || match File::open(place(output)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file.map(BufReader::new).map(Some),
        };
        let mut all = Self { file: open()?, ids: HashSet::new() };
        let mut ids = HashSet::new();
        while let Some((_, id, _)) = all.read()? {
            ids.insert(id);
        }
        Ok(Self { file: open()?, ids })
    }

    pub(crate) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// The output has this one.
    pub(crate) fn forget(&mut self, id: &str) {
        self.ids.remove(id);
    }

    /// The next that the output does not have; each id once.
    pub(crate) fn advance(&mut self) -> io::Result<Option<(Vec<u8>, Kept)>> {
        while let Some((line, id, kept)) = self.read()? {
            if self.ids.remove(&id) {
                return Ok(Some((line, kept)));
            }
        }
        Ok(None)
    }

    /// The next line, with its id. A line of somebody else's is none of ours to put back.
    fn read(&mut self) -> io::Result<Option<(Vec<u8>, String, Kept)>> {
        let Some(file) = &mut self.file else { return Ok(None) };
        loop {
            let mut line = Vec::new();
            if file.read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            if let Some(kept) = Kept::read(&line)
                && let Some(id) = kept.id.clone()
                && line.last() == Some(&b'\n')
            {
                return Ok(Some((line, id, kept)));
            }
        }
    }
}
