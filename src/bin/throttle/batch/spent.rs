//! What have earlier runs sent lately? A file beside the output says it, so that a run that follows at once does not find its
//! limits untouched.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest_throttle::{Client, Request};
use serde::{Deserialize, Serialize};

use super::beside::beside;
use crate::failure::Failure;

/// No file is written anew more often than this.
const RARELY: Duration = Duration::from_secs(10);

/// The file, to which each request is written when it leaves.
#[derive(Debug)]
pub(crate) struct Spent {
    path: PathBuf,
    /// For how long the limits remember.
    memory: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    /// When the oldest was sent that is in it, in milliseconds since 1970.
    oldest: u64,
    broken: Option<io::Error>,
}

#[derive(Deserialize, Serialize)]
struct Sent {
    /// In milliseconds since 1970.
    at: u64,
    /// The origin: no path, no query.
    to: String,
    costs: BTreeMap<String, u64>,
}

impl Spent {
    /// Opens the file beside an output, or makes one.
    pub(crate) fn open(output: &Path, memory: Duration) -> Result<Self, Failure> {
        let path = beside(output, ".limits");
        tell_garbled(&path).map_err(|error| unwritable(&path, &error))?;
        let (file, oldest) = written_anew(&path, memory).map_err(|error| unwritable(&path, &error))?;
        Ok(Self { path, memory, state: Mutex::new(State { file, oldest, broken: None }) })
    }

    /// Counts at a client's limits what was sent lately.
    pub(crate) fn count(&self, client: &Client) -> Result<(), Failure> {
        let now = now();
        let count = |sent: &Sent| {
            let request = client.get(&sent.to);
            let request =
                sent.costs.iter().fold(request, |request, (unit, amount)| request.cost(unit.as_str(), *amount));
            // A clock that was set back makes the past the future: then it was just now. What is no address was not written
            // by us.
            let _ = request.count_as_sent(Duration::from_millis(now.saturating_sub(sent.at)));
            Ok(())
        };
        young(&self.path, self.memory, count).map_err(|error| unwritable(&self.path, &error))
    }

    /// Writes down that a request leaves.
    pub(crate) fn add(&self, request: &Request, costs: &BTreeMap<String, u64>) {
        let (at, to) = (now(), request.url().origin().ascii_serialization());
        let Ok(mut line) = serde_json::to_vec(&Sent { at, to, costs: costs.clone() }) else { return };
        line.push(b'\n');
        let mut state = self.state();
        if let Err(error) = self.write(&mut state, &line, at) {
            state.broken.get_or_insert(error);
        }
    }

    fn write(&self, state: &mut State, line: &[u8], at: u64) -> io::Result<()> {
        let long = self.memory.saturating_mul(2).max(RARELY);
        if u128::from(at.saturating_sub(state.oldest)) > long.as_millis() {
            (state.file, state.oldest) = written_anew(&self.path, self.memory)?;
        }
        state.file.write_all(line)
    }

    /// Whether something could not be written down: from then on a later run would send too much.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.state().broken.take() {
            Some(error) => Err(Failure::unfinished(format!(
                "{} cannot be written any more ({error}); make room, and run the same command again",
                self.path.display()
            ))),
            None => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does something with each that was sent lately, in order. A line that is torn is none.
fn young(path: &Path, memory: Duration, mut act: impl FnMut(&Sent) -> io::Result<()>) -> io::Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let now = now();
    let is_young = |sent: &Sent| u128::from(now.saturating_sub(sent.at)) <= memory.as_millis();
    for line in BufReader::new(file).split(b'\n') {
        if let Some(sent) = serde_json::from_slice(&line?).ok().filter(is_young) {
            act(&sent)?;
        }
    }
    Ok(())
}

/// The beginning of each line.
const BEGINNING: &[u8] = b"{\"at\":";

/// Says how much of it cannot be read. A kill tears the last line, of which nothing is said.
fn tell_garbled(path: &Path) -> io::Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let (mut lines, mut line, mut garbled) = (BufReader::new(file), Vec::new(), 0_u64);
    while lines.read_until(b'\n', &mut line)? > 0 {
        let both = line.len().min(BEGINNING.len());
        let is_torn = line.last() != Some(&b'\n') && line[..both] == BEGINNING[..both];
        garbled += u64::from(!is_torn && serde_json::from_slice::<Sent>(&line).is_err());
        line.clear();
    }
    if garbled > 0 {
        let path = path.display();
        let _ = writeln!(
            io::stderr(),
            "{garbled} of the lines of {path} cannot be read: what they say was sent lately is not counted, and may be refused"
        );
    }
    Ok(())
}

/// The file with what was sent lately and nothing else, and when the oldest of that was.
fn written_anew(path: &Path, memory: Duration) -> io::Result<(File, u64)> {
    let unfinished = beside(path, ".new");
    let mut file = BufWriter::new(File::create(&unfinished)?);
    let began = now();
    let mut oldest = began;
    young(path, memory, |sent| {
        // Of a clock that was ahead for a while: it does not count as just now for ever.
        let sent = Sent { at: sent.at.min(began), to: sent.to.clone(), costs: sent.costs.clone() };
        oldest = oldest.min(sent.at);
        serde_json::to_writer(&mut file, &sent)?;
        file.write_all(b"\n")
    })?;
    file.flush()?;
    fs::rename(&unfinished, path)?;
    Ok((OpenOptions::new().append(true).open(path)?, oldest))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{} cannot be written ({error}); name an output elsewhere by -o", path.display()))
}
