//! Whether what servers say about limits is read as a careful engineer would read it: 256 public responses, and what
//! becomes of them when bytes are lost.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use reqwest_throttle::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest_throttle::{Hints, Signal, StatedLimit, StatusCode};
use serde_json::Value;

const RESPONSES: &str = include_str!("data/signals.jsonl");

/// Servers of whom something must be known beforehand: their resets are in milliseconds, and nothing in the response
/// says so.
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

/// A proxy may sort them.
#[test]
fn the_order_of_the_fields_is_nothing() {
    for case in Case::all() {
        let mut fields = case.fields();
        fields.sort_by_key(|(name, _)| std::cmp::Reverse(name.to_ascii_lowercase()));
        let now = case.now();
        let signal = Signal::read(case.status(), &headers(&fields), case.text("body").as_bytes(), now);
        if !IN_MILLIS.contains(&case.text("id")) {
            assert_eq!(case.faults(&signal), Vec::<String>::new(), "{}", case.text("id"));
        }
    }
}

/// Counts what this thread asks of the allocator.
mod counted {
    #![allow(unsafe_code)]

    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    struct Counted;

    #[global_allocator]
    static ALLOCATOR: Counted = Counted;

    thread_local! {
        static ASKED: Cell<usize> = const { Cell::new(0) };
    }

    // SAFETY: the system's allocator does it all; the count beside it touches no memory of its.
    unsafe impl GlobalAlloc for Counted {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            ASKED.with(|asked| asked.set(asked.get() + 1));
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            unsafe { System.dealloc(memory, layout) }
        }
    }

    pub(crate) fn by<T>(work: impl FnOnce() -> T) -> (T, usize) {
        let before = ASKED.with(Cell::get);
        let done = work();
        (done, ASKED.with(Cell::get) - before)
    }
}

fn head(fields: &[(&str, &str)]) -> HeaderMap {
    headers(&fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect::<Vec<_>>())
}

const PLAIN: [(&str, &str); 6] = [
    ("date", "Mon, 30 Nov 2026 12:00:00 GMT"),
    ("content-type", "application/json"),
    ("server", "nginx"),
    ("cache-control", "max-age=0, private"),
    ("x-request-id", "4f1c7f0a"),
    ("strict-transport-security", "max-age=31536000"),
];

#[test]
fn a_response_that_says_nothing_of_limits_costs_no_memory() {
    let now = Duration::from_secs(1_796_040_000);
    let read = |fields: &[(&str, &str)]| {
        let headers = head(fields);
        let body = br#"{"items": [{"id": 1, "name": "limits of growth"}]}"#;
        counted::by(|| Signal::read(StatusCode::OK, &headers, &body[..20], now))
    };
    assert_eq!(read(&PLAIN), (Signal::default(), 0));
    let (plain, began) = (head(&PLAIN), std::time::Instant::now());
    (0..100_000).for_each(|_| drop(std::hint::black_box(Signal::read(StatusCode::OK, &plain, b"", now))));
    println!("a head of six fields that say nothing of limits: {:?}", began.elapsed() / 100_000);
    let says_nothing = ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| (name, "unlimited"));
    let beside = [("retry-after", "soon"), ("x-ratelimit-reset", "0"), ("x-request-id", "1"), ("age", "0")];
    let (signal, count) = read(&[&says_nothing[..], &beside[..3], &beside[3..]].concat());
    assert_eq!((signal.limits.len(), signal.throttled, count), (0, false, 0));
    let trio = [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "59"), ("x-ratelimit-reset", "1796040012")];
    let (signal, count) = read(&trio);
    assert_eq!((signal.limits.len(), signal.to_string()), (1, "not refused: 59 of 60 requests left".into()));
    assert!(count <= 1, "{count}");
}

/// Bytes that break parsers.
const HOSTILE: [&str; 24] = [
    "-1",
    "0",
    "NaN",
    "Infinity",
    "1e400",
    "99999999999999999999999999",
    "18446744073709551616",
    "0x10",
    "½",
    "\u{0}",
    ",",
    ";",
    "\"",
    "=",
    ":",
    "w=0",
    "-",
    "/",
    "P99999999999Y",
    "9999999999h",
    "{",
    "]",
    "<Code>",
    "retry after 99999999999999 years",
];

/// One of the ways in which bytes are lost, or made worse.
fn spoil(text: &mut Vec<u8>, random: &mut fastrand::Rng) {
    let at = random.usize(..=text.len());
    match random.u8(..8) {
        0 if at < text.len() => text[at] ^= 1 << random.u8(..8),
        1 => text.truncate(at),
        2 => text.extend_from_within(at..),
        3 if at < text.len() => drop(text.remove(at)),
        4 => *text = random.choice(HOSTILE).unwrap().into(),
        5 => {
            let from = random.usize(..=at);
            text.splice(from..at, random.choice(HOSTILE).unwrap().bytes());
        }
        6 => {
            let digits = std::iter::repeat_with(|| random.u8(b'0'..=b'9')).take(30).collect::<Vec<_>>();
            text.splice(at..at, digits.into_iter().take(at % 30));
        }
        _ => text.splice(at..at, [random.u8(..)]).for_each(drop),
    }
}

fn is_sane(signal: &Signal) -> bool {
    let most = Duration::from_secs(100_000_000);
    let is_count = |count: Option<f64>| count.is_none_or(|count| (0.0..=1e18).contains(&count));
    let is_span = |span: Option<Duration>| span.is_none_or(|span| span <= most);
    let is_limit = |limit: &StatedLimit| {
        is_count(limit.limit)
            && is_count(limit.remaining)
            && is_span(limit.reset_after)
            && limit.window != Some(Duration::ZERO)
    };
    signal.limits.iter().all(is_limit)
        && is_span(signal.wait)
        && is_span(signal.retry_after())
        && !(signal.throttled && signal.wait == Some(Duration::ZERO))
        && !(signal.throttled && signal.terminal)
        && !signal.to_string().contains('\n')
}

/// So many, always the same; or other ones for as many seconds as `FUZZ_SECONDS` says.
#[test]
fn whatever_is_sent_nothing_absurd_is_read() {
    let seconds = std::env::var("FUZZ_SECONDS").ok().map(|seconds| seconds.parse().expect("a number of seconds"));
    let (seed, most) = if seconds.is_some() { (fastrand::u64(..), u64::MAX) } else { (7, 2_000_000) };
    let until = std::time::Instant::now() + Duration::from_secs(seconds.unwrap_or(3_600));
    println!("seed {seed}");
    let (cases, mut random) = (Case::all(), fastrand::Rng::with_seed(seed));
    for nth in 0..most {
        if nth % 10_000 == 0 && std::time::Instant::now() >= until {
            println!("{nth} responses");
            break;
        }
        let case = &cases[random.usize(..cases.len())];
        let other = &cases[random.usize(..cases.len())];
        let (mut fields, mut body) = (case.fields(), case.text("body").as_bytes().to_vec());
        if random.bool() {
            fields.extend(other.fields());
        }
        for _ in 0..random.usize(1..4) {
            if random.bool() && !fields.is_empty() {
                let (to, from) = (random.usize(..fields.len()), random.usize(..fields.len()));
                if random.u8(..8) == 0 {
                    fields[to].1 = fields[from].1.clone();
                }
                let at = random.usize(..fields.len());
                spoil(&mut fields[at].1, &mut random);
            } else {
                spoil(&mut body, &mut random);
            }
        }
        let status = if random.bool() { case.status() } else { other.status() };
        let signal = Signal::read(status, &headers(&fields), &body, case.now());
        assert!(is_sane(&signal), "{status} {fields:?} {:?}: {signal:?}", String::from_utf8_lossy(&body));
    }
}
