//! What does a line of the output say that an earlier run has left?

use serde::Deserialize;

use super::line::Print;
use super::outcome::{BAD_LINE, Kind};

/// A record of an earlier run, as far as it matters.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) id: Option<String>,
    pub(crate) print: Print,
    pub(crate) kind: Kind,
}

#[derive(Deserialize)]
struct Found {
    // Nothing may stand there, but it has to be said.
    #[serde(deserialize_with = "Option::deserialize")]
    custom_id: Option<String>,
    request: Option<String>,
    response: Option<FoundResponse>,
    error: Option<FoundError>,
}

#[derive(Deserialize)]
struct FoundResponse {
    status_code: u16,
}

#[derive(Deserialize)]
struct FoundError {
    code: String,
}

impl Kept {
    /// Reads a line of the output; `None` if it is none.
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        let found: Found = serde_json::from_slice(line).ok()?;
        let kind = match (found.response, found.error) {
            (Some(response), None) => Kind::Status(response.status_code),
            (None, Some(error)) => Kind::Error(error.code),
            _ => return None,
        };
        if found.custom_id.is_none() && kind != Kind::Error(BAD_LINE.to_owned()) {
            return None;
        }
        let print = found.request.and_then(|print| u32::from_str_radix(&print, 16).ok());
        Some(Self { id: found.custom_id, print: Print(print.unwrap_or_default()), kind })
    }
}
