//! Which fields of a head speak of limits.

use std::time::Duration;

use http::HeaderMap;
use smallvec::SmallVec;

use super::moment::Clock;

/// What a head says of limits, in its order; a repeated field is there repeatedly.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub(super) fields: SmallVec<[(&'a str, &'a str); 12]>,
    pub(super) clock: Clock<'a>,
    /// It comes out of a cache, and has been there for a while: what it says of limits is over.
    pub(super) is_stale: bool,
}

impl<'a> Head<'a> {
    /// In one pass.
    pub(super) fn read(headers: &'a HeaderMap, now: Duration) -> Self {
        let mut head = Self { fields: SmallVec::new(), clock: Clock { date: None, now }, is_stale: false };
        for (name, value) in headers {
            let name = name.as_str();
            if !matches!(name, "date" | "age") && !speaks(name) {
                continue;
            }
            // Go writes microseconds as `µs`, in UTF-8.
            let Ok(value) = std::str::from_utf8(value.as_bytes()) else { continue };
            match (name, value.trim()) {
                ("date", date) => head.clock.date = Some(date),
                ("age", age) => head.is_stale = age.parse::<u64>().is_ok_and(|age| age > 0),
                (name, value) => head.fields.push((name, value)),
            }
        }
        head
    }

    /// All values of a field.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(here, _)| *here == name).map(|(_, value)| *value)
    }
}

/// What is in the name of every such field: parts of `limit`, `quota`, `retry`, `remaining`, `x-mbx`, `usage`,
/// `concurrent`, `grpc` and `errortype`. A field without any of these is not looked at again.
fn speaks(name: &str) -> bool {
    let marks =
        |three: &[u8]| matches!(three, b"lim" | b"quo" | b"ret" | b"rem" | b"mbx" | b"usa" | b"ncu" | b"rpc" | b"rro");
    name.as_bytes().windows(3).any(marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_speak_of_limits_is_left_out() {
        for name in ["content-type", "server", "vary", "etag", "cache-control", "x-request-id", "via"] {
            assert!(!speaks(name), "{name}");
        }
        for name in ["ratelimit", "x-quota-left", "retry-after", "x-mbx-used-weight", "x-app-usage", "grpc-status"] {
            assert!(speaks(name), "{name}");
        }
    }
}
