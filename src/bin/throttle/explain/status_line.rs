//! Where does a response begin? At its status line, as `curl -i` prints it, or `curl -v` behind `< `.

use reqwest_throttle::StatusCode;

/// So many bytes of a status line are looked at: what is longer costs no more.
const LONGEST: usize = 1024;

const PROTOCOL: &[u8] = b"HTTP/";
const VERBOSE: &[u8] = b"< ";

/// What a proxy says that has opened one.
const TUNNEL: &[u8] = b"connection established";

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
        let (status, reason) = read(rest)?;
        let verbose = before.strip_suffix(VERBOSE).filter(|before| ends_line(before));
        let is_line = if verbose.is_some() || ends_line(before) { is_to_its_end(reason) } else { is_glued(reason) };
        let is_tunnel =
            reason.trim_ascii_start().get(..TUNNEL.len()).is_some_and(|word| word.eq_ignore_ascii_case(TUNNEL));
        let end = || place(rest, b"\n").map_or(text.len(), |length| at + length + 1);
        let start = verbose.unwrap_or(before).len();
        is_line.then(|| Self { status, is_tunnel, is_verbose: verbose.is_some(), start, end: end() })
    }
}

/// The status, and what comes after it, if it is one: a protocol, a version, three digits.
fn read(text: &[u8]) -> Option<(StatusCode, &[u8])> {
    let rest = text.strip_prefix(PROTOCOL)?;
    let length = rest.iter().take(4).position(|byte| *byte == b' ')?;
    let (version, rest) = rest.split_at(length);
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    let (status, reason) = rest[spaces..].split_at_checked(3)?;
    let is_whole = reason.first().is_none_or(u8::is_ascii_whitespace);
    let is_version = version.first()?.is_ascii_digit();
    Some((StatusCode::from_bytes(status).ok().filter(|_| is_version && is_whole)?, reason))
}

/// Whether the line of this reason has an end, and no other sign of one before that.
fn is_to_its_end(reason: &[u8]) -> bool {
    let line = reason.iter().take(LONGEST).position(|byte| *byte == b'\n').map_or(reason, |length| &reason[..length]);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    !line.iter().take(LONGEST).any(|byte| *byte == b'\r')
}

/// Whether this reason is that of a head that follows a body on the same line, as where curl is called twice: plain words, the
/// end of the line, and then a field, or nothing.
fn is_glued(reason: &[u8]) -> bool {
    let is_word = |byte: &&u8| byte.is_ascii_alphanumeric() || b" -'".contains(byte);
    let Some(next) = reason[reason.iter().take_while(is_word).count()..].strip_prefix(b"\r\n") else { return false };
    let name = next.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)).count();
    next.starts_with(b"\r\n") || (name > 0 && next.get(name) == Some(&b':'))
}

fn ends_line(text: &[u8]) -> bool {
    text.is_empty() || text.ends_with(b"\n")
}

/// Where the first of such words is.
pub(crate) fn place(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}
