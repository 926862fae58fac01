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

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, number of fields and body of each.
    fn split(text: &str) -> Vec<(u16, usize, &str)> {
        let told = |answer: Answer<'static>| {
            (answer.status.as_u16(), answer.headers.len(), std::str::from_utf8(answer.body).unwrap())
        };
        let text: &'static str = text.to_owned().leak();
        Answers::new(text.as_bytes()).map(|answer| told(answer.unwrap())).collect()
    }

    #[test]
    fn a_body_is_as_long_as_it_says_where_that_is_true() {
        let head = |length: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let quoting = "HTTP/1.1 500 no\r\na: b\r\n\r\n";
        let next = "HTTP/2 429 \r\nretry-after: 5\r\n\r\n";
        let (whole, same) = (quoting.len(), (429, 1, ""));
        assert_eq!(split(&format!("{}{quoting}{next}", head(whole))), [(200, 1, quoting), same]);
        assert_eq!(split(&format!("{}{quoting}\n\n{next}", head(whole))), [(200, 1, quoting), same]);
        assert_eq!(split(&format!("{}compressed{next}", head(3))), [(200, 1, "compressed"), same], "--compressed");
        assert_eq!(split(&format!("{}{next}", head(3))), [(200, 1, ""), same], "-I");
        assert_eq!(split(&format!("{}cut", head(usize::MAX))), [(200, 1, "cut")]);
        assert_eq!(split("HTTP/1.1 204 No\ncontent-length: 7\n\nHTTP/1.1 304 No\n\n"), [(204, 1, ""), (304, 0, "")]);
    }

    #[test]
    fn a_head_begins_a_line_or_follows_a_body_at_once() {
        let next = "HTTP/2 429 \r\nretry-after: 5\r\n\r\n";
        let begin = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(split(&format!("{begin}{{}}{next}no")), [(200, 1, "{}"), (429, 1, "no")]);
        assert_eq!(split(&format!("{begin}{{}}HTTP/1.1 429 \r\n\r\nno")), [(200, 1, "{}"), (429, 0, "no")]);
        assert_eq!(split(&format!("{begin}a\n{next}")), [(200, 1, "a\n"), (429, 1, "")]);
        let quoting = "x HTTP/1.1 200 OK\\r\\n\\r\\n";
        assert_eq!(split(&format!("{begin}{quoting}{next}")), [(200, 1, quoting), (429, 1, "")]);
        for body in [
            "we speak HTTP/1.1 200 OK\nso: it is",
            "HTTP/1.1 is old\n",
            "a HTTP/2 429 \r\nno field",
            "HTTP/",
            "HTTP/1.1 99",
        ] {
            assert_eq!(split(&format!("{begin}{body}")), [(200, 1, body)]);
        }
        assert_eq!(split("nothing\nHTTP/1.1 2000 OK\nHTTP/x 200 OK\nHTTP/1.1 200 OK\rage: 1\r\r"), []);
    }

    #[test]
    fn a_head_is_read_as_it_comes() {
        let fields = |text: &str| Answers::new(text.as_bytes()).next().unwrap().unwrap().headers;
        let headers = fields("\u{feff}HTTP/1.1 200\nA:1\n\t2\na: 3\n b\nno field\n c\n: x\nd e: f\nX-In: 812.5\u{b5}s");
        assert_eq!(headers.get_all("a").iter().collect::<Vec<_>>(), ["1 2", "3 b"]);
        assert_eq!((headers.len(), headers["x-in"].as_bytes()), (3, "812.5\u{b5}s".as_bytes()));
        assert_eq!(split("HTTP/1.1 200 OK\na: 1\nHTTP/1.1 429 No\nb: 1"), [(200, 1, ""), (429, 1, "")]);
        let many = (0..100_000).map(|nth| format!("a{nth}:")).collect::<Vec<_>>().join("\n");
        assert!(split(&format!("HTTP/1.1 200 OK\n{many}\n\nbody"))[0].2 == "body");
        let long = format!("HTTP/1.1 200 OK\na: {}\n\n", "x".repeat(LONGEST_HEAD));
        assert!(matches!(Answers::new(long.as_bytes()).collect::<Vec<_>>()[..], [Err(TooLong)]));
    }

    #[test]
    fn what_comes_before_an_answer_is_left_out() {
        let tunnel = "HTTP/1.1 200 Connection established\r\n\r\n";
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/2 103 \r\nlink: </a>\r\n\r\n";
        let moved = "HTTP/1.1 301 Moved\r\nlocation: /b\r\n\r\n";
        let last = "HTTP/1.1 200 OK\r\n\r\nbody";
        assert_eq!(split(&format!("{tunnel}{interim}{moved}{last}")), [(301, 1, ""), (200, 0, "body")]);
        assert_eq!(split(tunnel), [(200, 0, "")]);
        let verbose = "* Trying\n> GET / HTTP/1.1\n> a: b\n>\n< HTTP/1.1 429 No\n* note\n< retry-after: 5\n<\n{ [2 bytes data]\n\
                       * Connection #0 to host a left intact\n< HTTP/2 200 \n< age: 1\n< \n{}* Connection #0 to host\n";
        assert_eq!(split(verbose), [(429, 1, "{ [2 bytes data]\n"), (200, 1, "{}")]);
    }

    /// What breaks parsers that split at lines, colons and digits.
    const HOSTILE: [&[u8]; 16] = [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/2 429 \r\na: b\r\n",
        b"< HTTP/1.1 503\n",
        b"HTTP/",
        b"HTTP/1.1 ",
        b"\r",
        b"\n",
        b"\r\n\r\n",
        b"\0",
        b"\xff\xfe",
        b":",
        b" ",
        b"content-length: 18446744073709551615\r\n",
        b"content-length: 3\r\n\r\n",
        b"* Connection #",
        b"\xef\xbb\xbf",
    ];

    #[test]
    fn whatever_is_given_it_ends() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut text = Vec::new();
            for _ in 0..random.usize(..20) {
                match random.u8(..4) {
                    0 => text.extend(std::iter::repeat_with(|| random.u8(..)).take(5)),
                    _ => text.extend_from_slice(random.choice(HOSTILE).unwrap()),
                }
            }
            let heads = text.windows(5).filter(|window| *window == b"HTTP/").count();
            let found: Vec<_> = Answers::new(&text).map(|answer| answer.unwrap().body.len()).collect();
            assert!(
                found.len() <= heads && found.iter().sum::<usize>() <= text.len(),
                "{:?}",
                String::from_utf8_lossy(&text)
            );
        }
    }
}
