//! Whether what servers say about limits is read as a careful engineer would read it: 256 public responses, and what becomes
//! of them when bytes are lost.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use reqwest_throttle::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest_throttle::{Hints, Signal, StatedLimit, StatusCode};
use serde_json::Value;

const RESPONSES: &str = include_str!("data/signals.jsonl");

/// Servers of whom something must be known beforehand: their resets are in milliseconds, and nothing in the response says so.
const IN_MILLIS: [&str; 1] = ["prisjakt-429-delta-ms"];

/// What is not read as the list says, and why. Only where its source is not confirmed.
const EXCEPTIONS: [(&str, &str); 0] = [];

struct Case(Value);

impl Case {
    fn all() -> Vec<Self> {
        RESPONSES.lines().map(|line| Self(serde_json::from_str(line).unwrap())).collect()
    }

    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    fn status(&self) -> StatusCode {
        StatusCode::from_u16(u16::try_from(self.0["status"].as_u64().unwrap()).unwrap()).unwrap()
    }

    fn fields(&self) -> Vec<(String, Vec<u8>)> {
        let fields = self.0["headers"].as_array().unwrap().iter();
        fields.map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].as_str().unwrap().into())).collect()
    }

    fn now(&self) -> Duration {
        let at: Option<jiff::Timestamp> = self.0["now"].as_str().map(|now| now.parse().unwrap());
        at.map_or(Duration::ZERO, |at| at.duration_since(jiff::Timestamp::UNIX_EPOCH).unsigned_abs())
    }

    fn read(&self) -> Signal {
        let mut hints = Hints::default();
        hints.resets_in_millis = IN_MILLIS.contains(&self.text("id"));
        let headers = headers(&self.fields());
        Signal::read_with(self.status(), &headers, self.text("body").as_bytes(), self.now(), &hints)
    }

    /// How the reading differs from what is expected.
    fn faults(&self, signal: &Signal) -> Vec<String> {
        let (means, mut faults) = (&self.0["means"], Vec::new());
        let mut says = |what: &str, expected: &Value, found: bool| {
            if expected.as_bool().is_some_and(|expected| expected != found) {
                faults.push(format!("{what}: {found}"));
            }
        };
        says("is_throttle", &means["is_throttle"], signal.throttled);
        says("exhausted", &means["exhausted"], signal.exhausted);
        let is_date = self.0["now"].is_string();
        let after = signal.retry_after().map(|wait| wait.as_secs_f64());
        if !is_near(&means["retry_after_s"], after, is_date) {
            faults.push(format!("retry_after_s: {after:?} for {}", means["retry_after_s"]));
        }
        if signal.terminal && means["is_throttle"] == true {
            faults.push("terminal".into());
        }
        let mut left: Vec<_> = signal.limits.iter().collect();
        for expected in means["limits"].as_array().unwrap() {
            match left.iter().position(|found| self.is_limit(found, expected)) {
                Some(at) => drop(left.remove(at)),
                None => faults.push(format!("no limit {expected}")),
            }
        }
        faults.extend(left.iter().map(|limit| format!("limit {limit:?}")));
        faults
    }

    fn is_limit(&self, found: &StatedLimit, expected: &Value) -> bool {
        let is_date = self.0["now"].is_string();
        let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
        is_near(&expected["limit"], found.limit, false)
            && is_near(&expected["remaining"], found.remaining, false)
            && is_near(&expected["reset_after_s"], seconds(found.reset_after), is_date)
            && is_near(&expected["window_s"], seconds(found.window), false)
            && self.is_name(&found.name, expected["name"].as_str().unwrap())
    }

    /// A name that the response does not have is from elsewhere.
    fn is_name(&self, found: &str, expected: &str) -> bool {
        let plain = |text: &str| text.to_ascii_lowercase().replace(['_', ' '], "-");
        let response = plain(&format!("{} {}", self.0["headers"], self.text("body")));
        plain(found) == plain(expected) || (found == "requests" && !response.contains(&plain(expected)))
    }
}

/// Null stands for any.
fn is_near(expected: &Value, found: Option<f64>, is_date: bool) -> bool {
    let Some(expected) = expected.as_f64() else { return true };
    found.is_some_and(|found| (found - expected).abs() <= if is_date { 1.0 } else { 0.001 })
}

fn headers(fields: &[(String, Vec<u8>)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

#[test]
fn responses_are_read_as_a_careful_engineer_would() {
    let (mut families, mut report, mut scopes) = (BTreeMap::<_, (usize, usize)>::new(), String::new(), String::new());
    let cases = Case::all();
    assert_eq!(cases.len(), 256);
    for case in &cases {
        let signal = case.read();
        let faults = case.faults(&signal);
        let is_excepted = EXCEPTIONS.iter().any(|(id, _)| *id == case.text("id"));
        let (passed, failed) = families.entry(case.text("family").to_owned()).or_default();
        *if faults.is_empty() { passed } else { failed } += 1;
        assert!(!(is_excepted && faults.is_empty()), "{} is no exception any more", case.text("id"));
        if !faults.is_empty() && !is_excepted {
            writeln!(report, "{}: {}", case.text("id"), faults.join("; ")).unwrap();
        }
        writeln!(scopes, "{}: {:?} for {}", case.text("id"), signal.scope, case.0["means"]["scope"]).unwrap();
    }
    for (family, (passed, failed)) in families {
        println!("{family}: {passed} passed, {failed} failed");
    }
    println!("{}", if std::env::var("SCOPES").is_ok() { scopes } else { String::new() });
    assert!(report.is_empty(), "\n{report}");
}
