//! What does one line of the output say of a request?

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest_throttle::header::HeaderMap;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::line::Print;
use super::outcome::{BAD_LINE, Kind};

/// What came of sending a request.
#[derive(Debug)]
pub(crate) enum Came {
    Answer { status: u16, headers: HeaderMap, body: Vec<u8> },
    Error(Fault),
}

/// Why there is no answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fault {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// A request and what became of it.
#[derive(Debug)]
pub(crate) struct Record {
    /// None, of a line that could not be sent.
    pub(crate) id: Option<String>,
    pub(crate) print: Print,
    pub(crate) came: Came,
    /// How many times it was sent, with the hops of redirects.
    pub(crate) attempts: usize,
    /// How long it waited for its turn, and between attempts.
    pub(crate) waited: Duration,
    /// How long the rest took.
    pub(crate) took: Duration,
}

#[derive(Serialize)]
struct Written<'a> {
    custom_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    response: Option<Response<'a>>,
    error: Option<&'a Fault>,
    attempts: usize,
    waited_ms: u64,
    took_ms: u64,
}

#[derive(Serialize)]
struct Response<'a> {
    status_code: u16,
    headers: BTreeMap<&'a str, Values>,
    body: &'a RawValue,
    /// Where the body is neither JSON nor text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_encoding: Option<&'static str>,
}

/// A header that stands once is a text; else a list.
#[derive(Serialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Many(Vec<String>),
}

impl Record {
    /// Of a line that cannot be sent.
    pub(crate) fn of_bad_line(number: u64, reason: &str) -> Self {
        let fault = Fault { code: BAD_LINE, message: format!("line {number}: {reason}") };
        let (came, none) = (Came::Error(fault), Duration::ZERO);
        Self { id: None, print: Print::default(), came, attempts: 0, waited: none, took: none }
    }

    pub(crate) fn kind(&self) -> Kind {
        match &self.came {
            Came::Answer { status, .. } => Kind::Status(*status),
            Came::Error(fault) => Kind::Error(fault.code.to_owned()),
        }
    }

    /// As one line. A body of JSON that not every reader would read again (nested too deep, numbers that nobody can hold) is
    /// written as the text that it is.
    pub(crate) fn line(&self) -> Result<Vec<u8>, serde_json::Error> {
        if let Came::Answer { body, .. } = &self.came
            && let Some(json) = json(body)
        {
            let line = self.written(&json, None)?;
            if serde_json::from_slice::<Readable>(&line).is_ok() {
                return Ok(line);
            }
        }
        match &self.came {
            Came::Answer { body, .. } if body.is_empty() => self.written(RawValue::NULL, None),
            Came::Answer { body, .. } => match std::str::from_utf8(body) {
                Ok(text) => self.written(&to_raw_value(text)?, None),
                Err(_) => self.written(&to_raw_value(&STANDARD.encode(body))?, Some("base64")),
            },
            Came::Error(_) => self.written(RawValue::NULL, None),
        }
    }

    fn written(&self, body: &RawValue, body_encoding: Option<&'static str>) -> Result<Vec<u8>, serde_json::Error> {
        let (response, error) = match &self.came {
            Came::Answer { status, headers: map, .. } => {
                (Some(Response { status_code: *status, headers: headers(map), body, body_encoding }), None)
            }
            Came::Error(fault) => (None, Some(fault)),
        };
        let request = (self.print != Print::default()).then(|| format!("{:08x}", self.print.0));
        let (waited_ms, took_ms) = (millis(self.waited), millis(self.took));
        let (custom_id, attempts) = (self.id.as_deref(), self.attempts);
        let mut line =
            serde_json::to_vec(&Written { custom_id, request, response, error, attempts, waited_ms, took_ms })?;
        line.push(b'\n');
        Ok(line)
    }
}

/// The beginning of each line, by which the torn rest of one is known.
pub(crate) const BEGINNING: &[u8] = b"{\"custom_id\":";

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn headers(map: &HeaderMap) -> BTreeMap<&str, Values> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let values = |name| {
        let mut all: Vec<_> = map.get_all(name).iter().map(|value| text(value.as_bytes())).collect();
        if all.len() == 1 { Values::One(all.remove(0)) } else { Values::Many(all) }
    };
    map.keys().map(|name| (name.as_str(), values(name))).collect()
}

/// The body as it was written, in one line: a new line in JSON is never inside a text.
fn json(body: &[u8]) -> Option<Box<RawValue>> {
    let _: &RawValue = serde_json::from_slice(body).ok()?;
    let in_one_line = body.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
    RawValue::from_string(String::from_utf8(in_one_line).ok()?).ok()
}

/// What ordinary readers of JSON read; nothing is kept of it.
struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

macro_rules! reads {
    ($($visit:ident: $value:ty),*) => {
        $(fn $visit<E>(self, _: $value) -> Result<Self, E> {
            Ok(self)
        })*
    };
}

impl<'de> Visitor<'de> for Readable {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    reads! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(body: &[u8]) -> serde_json::Value {
        let came = Came::Answer { status: 200, headers: HeaderMap::new(), body: body.to_vec() };
        let none = Duration::ZERO;
        let record = Record { id: Some("a".into()), print: Print(7), came, attempts: 1, waited: none, took: none };
        let line = record.line().unwrap();
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        assert!(line.starts_with(BEGINNING));
        serde_json::from_slice(&line).unwrap()
    }

    #[test]
    fn a_body_is_json_else_text_else_base64() {
        for (body, written) in [
            (&b"{\"a\":\n [1, 2]}"[..], serde_json::json!({"a": [1, 2]})),
            (b"", serde_json::Value::Null),
            (b"plain\ntext", "plain\ntext".into()),
            (b"{\"cut\":", "{\"cut\":".into()),
            (b"1e999", "1e999".into()),
            (b"\"\\ud800\"", "\"\\ud800\"".into()),
            (&[b'['; 200], "[".repeat(200).into()),
            (&[vec![b'['; 150], vec![b']'; 150]].concat(), format!("{}{}", "[".repeat(150), "]".repeat(150)).into()),
        ] {
            let response = &line(body)["response"];
            assert_eq!((&response["body"], &response["body_encoding"]), (&written, &serde_json::Value::Null));
        }
        let response = &line(b"\xff\x00")["response"];
        assert_eq!((&response["body"], &response["body_encoding"]), (&"/wA=".into(), &"base64".into()));
    }
}
