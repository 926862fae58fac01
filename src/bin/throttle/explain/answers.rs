//! What did curl print? Responses, one after the other: [`Answers`].

use reqwest_throttle::StatusCode;
use reqwest_throttle::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

use super::status_line::{StatusLine, place};

/// The longest head, in bytes.
const LONGEST_HEAD: usize = 1 << 20;

/// What `curl -v` says after a body, without a new line before it.
const AFTER_BODY: &[u8] = b"* Connection #";

/// A response: interim ones and those of proxies left out.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: StatusCode,
    /// What is no field is as if absent.
    pub(crate) headers: HeaderMap,
    pub(crate) body: &'a [u8],
}

/// A head that is longer than any server's.
#[derive(Debug)]
pub(crate) struct TooLong;

/// The responses of a text, in order. What is before the first, or between them, is left out.
#[derive(Debug)]
pub(crate) struct Answers<'a> {
    rest: &'a [u8],
}

impl<'a> Answers<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        // Windows writes a mark before everything.
        Self { rest: text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text) }
    }
}

impl<'a> Iterator for Answers<'a> {
    type Item = Result<Answer<'a>, TooLong>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = StatusLine::find(self.rest)?;
            let Ok((headers, rest)) = read_head(&self.rest[line.end..], line.is_verbose) else {
                self.rest = &[];
                return Some(Err(TooLong));
            };
            let (body, rest) = split_body(line, &headers, rest);
            self.rest = rest;
            let is_interim = line.status.is_informational() || (line.is_tunnel && body.is_empty() && !rest.is_empty());
            if !is_interim {
                return Some(Ok(Answer { status: line.status, headers, body }));
            }
        }
    }
}

/// The fields up to the empty line, or to the next head where that is missing, and what comes after them.
fn read_head(text: &[u8], is_verbose: bool) -> Result<(HeaderMap, &[u8]), TooLong> {
    let (mut fields, mut rest) = (Fields::default(), text);
    while !rest.is_empty() && !StatusLine::begins(rest) {
        let (line, after) = split_line(rest);
        if text.len() - after.len() > LONGEST_HEAD {
            return Err(TooLong);
        }
        rest = after;
        match if is_verbose { line.strip_prefix(b"<") } else { Some(line) } {
            Some(line) if line.trim_ascii().is_empty() => break,
            Some(line) if is_verbose => fields.push(line.strip_prefix(b" ").unwrap_or(line)),
            Some(line) => fields.push(line),
            // What curl says of itself.
            None => {}
        }
    }
    Ok((fields.finish(), rest))
}

fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    let length = text.iter().position(|byte| *byte == b'\n');
    let (line, rest) = length.map_or((text, &[][..]), |length| (&text[..length], &text[length + 1..]));
    (line.strip_suffix(b"\r").unwrap_or(line), rest)
}

/// A body is as long as its head says, if the text or a head ends there: a compressed one is not. Else it ends at the next
/// head.
fn split_body<'a>(line: StatusLine, headers: &HeaderMap, rest: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    if line.status.is_informational() || matches!(line.status.as_u16(), 204 | 304) {
        return (&[], rest);
    }
    let stated = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let stated = stated.and_then(|length| rest.split_at_checked(length));
    if let Some((body, after)) = stated.filter(|(_, after)| is_end(after)) {
        return (body, after);
    }
    let (body, after) = rest.split_at(StatusLine::find(rest).map_or(rest.len(), |next| next.start));
    let said = if line.is_verbose { place(body, AFTER_BODY) } else { None };
    (&body[..said.unwrap_or(body.len())], after)
}

/// A few line ends are the shell's.
fn is_end(text: &[u8]) -> bool {
    let newlines = text.iter().take(4).take_while(|byte| b"\r\n".contains(byte)).count();
    let rest = &text[newlines..];
    rest.is_empty() || rest.starts_with(AFTER_BODY) || StatusLine::begins(rest)
}

/// Fields as they come, a folded one being several lines.
#[derive(Default)]
struct Fields {
    headers: HeaderMap,
    last: Option<(HeaderName, Vec<u8>)>,
}

impl Fields {
    fn push(&mut self, line: &[u8]) {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            if let Some((_, value)) = &mut self.last {
                value.push(b' ');
                value.extend_from_slice(line.trim_ascii());
            }
            return;
        }
        self.keep_last();
        let colon = line.iter().position(|byte| *byte == b':');
        let name = colon.and_then(|colon| HeaderName::from_bytes(&line[..colon]).ok());
        self.last = name.zip(colon.map(|colon| line[colon + 1..].to_vec()));
    }

    fn keep_last(&mut self) {
        let Some((name, value)) = self.last.take() else { return };
        if let Ok(value) = HeaderValue::from_bytes(value.trim_ascii()) {
            // More than it can hold, no server sends.
            let _ = self.headers.try_append(name, value);
        }
    }

    fn finish(mut self) -> HeaderMap {
        self.keep_last();
        self.headers
    }
}
