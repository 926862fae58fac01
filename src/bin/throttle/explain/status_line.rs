//! Where does a response begin? At its status line, as `curl -i` prints it, or `curl -v` behind `< `.

use reqwest_throttle::StatusCode;

/// So many bytes of a status line are looked at: what is longer costs no more.
const LONGEST: usize = 1024;

const PROTOCOL: &[u8] = b"HTTP/";
const VERBOSE: &[u8] = b"< ";

/// A status line, and where it stands in the text in which it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatusLine {
    pub(crate) status: StatusCode,
    /// A proxy has opened a tunnel: the answer of the server comes after this.
    pub(crate) is_tunnel: bool,
    /// The lines of this head begin with `<`.
    pub(crate) is_verbose: bool,
    pub(crate) start: usize,
    /// Where the next line begins.
    pub(crate) end: usize,
}

impl StatusLine {
    /// The first in a text, which begins at the start of a line.
    pub(crate) fn find(text: &[u8]) -> Option<Self> {
        let mut from = 0;
        while let Some(at) = place(&text[from..], PROTOCOL) {
            let found = Self::at(text, from + at);
            if found.is_some() {
                return found;
            }
            from += at + PROTOCOL.len();
        }
        None
    }

    /// Whether a text begins with one.
    pub(crate) fn begins(text: &[u8]) -> bool {
        let at = if text.starts_with(VERBOSE) { VERBOSE.len() } else { 0 };
        text[at..].starts_with(PROTOCOL) && Self::at(text, at).is_some()
    }

    fn at(text: &[u8], at: usize) -> Option<Self> {
        let (before, rest) = text.split_at(at);
        let line = rest[..rest.len().min(LONGEST)].split(|byte| *byte == b'\n').next()?;
        let (status, reason) = read(line)?;
        let verbose = before.strip_suffix(VERBOSE).filter(|before| ends_line(before));
        // Two calls in a row: no line ends between the body of the first and the head of the second.
        if verbose.is_none() && !ends_line(before) && !(line.ends_with(b"\r") && is_in_head(&rest[line.len()..])) {
            return None;
        }
        let is_tunnel = reason.eq_ignore_ascii_case(b"connection established");
        let end = place(rest, b"\n").map_or(text.len(), |length| at + length + 1);
        Some(Self { status, is_tunnel, is_verbose: verbose.is_some(), start: verbose.unwrap_or(before).len(), end })
    }
}

/// The status and the reason, if it is a status line: a protocol, a version, three digits, and whatever there is.
fn read(line: &[u8]) -> Option<(StatusCode, &[u8])> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let rest = line.strip_prefix(PROTOCOL)?;
    let (version, rest) = rest.split_at(rest.iter().position(|byte| *byte == b' ')?);
    let rest = rest.trim_ascii_start();
    let (status, reason) = rest.split_at_checked(3)?;
    let is_version = version.first()?.is_ascii_digit() && version.len() <= 3;
    let is_whole = reason.is_empty() || reason.starts_with(b" ");
    let is_line = is_version && is_whole && !reason.contains(&b'\r');
    Some((StatusCode::from_bytes(status).ok().filter(|_| is_line)?, reason.trim_ascii()))
}

fn ends_line(text: &[u8]) -> bool {
    text.is_empty() || text.ends_with(b"\n")
}

/// Whether the line after this one is of a head: a name and a colon, or nothing.
fn is_in_head(text: &[u8]) -> bool {
    let Some(line) = text.strip_prefix(b"\n") else { return false };
    let name =
        line.iter().take(LONGEST).take_while(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)).count();
    line.starts_with(b"\r\n") || (name > 0 && line.get(name) == Some(&b':'))
}

/// Where the first of such words is.
pub(crate) fn place(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}
