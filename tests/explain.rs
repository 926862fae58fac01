//! What does `throttle explain` say? All that the library reads in 256 public responses, and a sentence about whatever it
//! cannot work with.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use reqwest_throttle::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest_throttle::{Hints, Limits, Quota, Scope, Signal, StatusCode};
use serde_json::Value;
use wiremock::matchers::{header, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

const RESPONSES: &str = include_str!("data/signals.jsonl");

/// Its resets are in milliseconds, and nothing in the response says so.
const IN_MILLIS: &str = "prisjakt-429-delta-ms";

const REFUSAL: &str = "HTTP/1.1 429 Too Many Requests\r\ndate: Mon, 11 May 2026 22:20:00 GMT\r\nratelimit-limit: 5000\r\n\
    ratelimit-policy: 5000;w=3600\r\nratelimit-remaining: 0\r\nratelimit-reset: 3063\r\nx-ratelimit-scope: user\r\n\r\n";

// --- running the program

struct Ended {
    status: ExitStatus,
    out: String,
    err: String,
}

impl Ended {
    /// What it says, having nothing to complain about.
    fn well(self) -> String {
        assert!(self.status.success() && self.err.is_empty(), "{}: {}", self.status, self.err);
        self.out
    }

    /// The sentence with which it refuses.
    fn refused(self) -> String {
        self.fails(2)
    }

    /// The sentence with which it ends.
    fn fails(self, code: i32) -> String {
        assert_eq!((self.status.code(), &*self.out), (Some(code), ""), "{}", self.err);
        let sentence = self.err.strip_prefix("throttle: ").and_then(|err| err.strip_suffix('\n'));
        let sentence = sentence.unwrap_or_else(|| panic!("{:?}", self.err));
        assert!(!sentence.contains('\n'), "{sentence}");
        sentence.to_owned()
    }
}

fn program(args: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_throttle"));
    program.arg("explain").args(args).env_remove("NO_COLOR").env("TERM", "xterm").env("THROTTLE_TEST_KEY", "s3cret");
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    program
}

fn explain(args: &[&str], input: impl AsRef<[u8]>) -> Ended {
    let mut child = program(args).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref();
    let output = std::thread::scope(|scope| {
        // Who refuses does not read it all.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    });
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { status: output.status, out: text(output.stdout), err: text(output.stderr) }
}

// --- the corpus

struct Case(Value);

impl Case {
    fn all() -> Vec<Self> {
        RESPONSES.lines().map(|line| Self(serde_json::from_str(line).unwrap())).collect()
    }

    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    fn status(&self) -> u16 {
        u16::try_from(self.0["status"].as_u64().unwrap()).unwrap()
    }

    fn now(&self) -> &str {
        self.0["now"].as_str().unwrap_or("1970-01-01T00:00:00Z")
    }

    fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.0["headers"].as_array().unwrap().iter();
        fields.map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
    }

    /// As `curl -si` prints it, with or without the length of the body.
    fn printed(&self, has_length: bool) -> String {
        let body = self.text("body");
        let fields = self.fields().map(|(name, value)| format!("{name}: {value}\r\n"));
        let length = has_length.then(|| format!("content-length: {}\r\n", body.len()));
        let head = fields.chain(length).collect::<Vec<_>>().concat();
        format!("HTTP/1.1 {} \r\n{head}\r\n{body}", self.status())
    }

    /// As the library reads it.
    fn read(&self) -> Signal {
        let mut headers = HeaderMap::new();
        for (name, value) in self.fields() {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value.as_bytes())) {
                headers.append(name, value);
            }
        }
        let now: jiff::Timestamp = self.now().parse().unwrap();
        let now = now.duration_since(jiff::Timestamp::UNIX_EPOCH).unsigned_abs();
        let mut hints = Hints::default();
        hints.resets_in_millis = self.text("id") == IN_MILLIS;
        Signal::read_with(
            StatusCode::from_u16(self.status()).unwrap(),
            &headers,
            self.text("body").as_bytes(),
            now,
            &hints,
        )
    }

    /// How an object differs from what a careful engineer concludes.
    fn faults(&self, told: &Value) -> Vec<String> {
        let (means, mut faults) = (&self.0["means"], Vec::new());
        let is_date = self.0["now"].is_string();
        if means["is_throttle"].is_boolean() && means["is_throttle"] != told["throttled"] {
            faults.push(format!("throttled: {}", told["throttled"]));
        }
        if !is_near(&means["retry_after_s"], &told["wait_s"], is_date) {
            faults.push(format!("wait_s: {}", told["wait_s"]));
        }
        let mut left = told["limits"].as_array().unwrap().clone();
        for expected in means["limits"].as_array().unwrap() {
            let is_it = |found: &Value| {
                let is_same = |key: &str| is_near(&expected[key], &found[key], is_date && key == "reset_after_s");
                ["limit", "remaining", "reset_after_s", "window_s"].into_iter().all(is_same)
            };
            match left.iter().position(is_it) {
                Some(at) => drop(left.remove(at)),
                None => faults.push(format!("no limit {expected}")),
            }
        }
        faults.extend(left.iter().map(|limit| format!("limit {limit}")));
        faults
    }
}

/// Null stands for any.
fn is_near(expected: &Value, found: &Value, is_date: bool) -> bool {
    let Some(expected) = expected.as_f64() else { return true };
    found.as_f64().is_some_and(|found| (found - expected).abs() <= if is_date { 1.0 } else { 0.001 })
}

/// The object that a signal is told as.
fn object(signal: &Signal) -> Value {
    let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
    let limits = signal.limits.iter().map(|limit| {
        serde_json::json!({
            "name": limit.name, "limit": limit.limit, "remaining": limit.remaining,
            "reset_after_s": seconds(limit.reset_after), "window_s": seconds(limit.window),
        })
    });
    let scope = signal.scope.as_ref().map(|scope| match scope {
        Scope::Bucket(name) => format!("bucket:{name}"),
        plain => format!("{plain:?}").to_lowercase(),
    });
    serde_json::json!({
        "throttled": signal.throttled, "terminal": signal.terminal, "wait_s": seconds(signal.retry_after()),
        "scope": scope, "limits": limits.collect::<Vec<_>>(),
    })
}

/// Numbers compare by what they are: 5 is 5.0.
fn in_fractions(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(values) => values.into_iter().map(in_fractions).collect(),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (key, in_fractions(value))).collect())
        }
        other => other,
    }
}

#[test]
fn the_corpus_is_told_as_the_library_reads_it() {
    let cases = Case::all();
    assert_eq!(cases.len(), 256);
    let mut runs = BTreeMap::<_, Vec<&Case>>::new();
    for case in &cases {
        runs.entry((case.now(), case.text("id") == IN_MILLIS)).or_default().push(case);
    }
    for ((now, in_millis), cases) in runs {
        for has_length in [true, false] {
            let millis = in_millis.then_some("--resets-in-millis");
            let args: Vec<_> = ["--json", "--now", now, "-"].into_iter().chain(millis).collect();
            let text = cases.iter().map(|case| case.printed(has_length)).collect::<String>();
            let out = explain(&args, text).well();
            assert_eq!(out.lines().count(), cases.len());
            for (line, case) in out.lines().zip(&cases) {
                let told: Value = serde_json::from_str(line).unwrap();
                assert_eq!(case.faults(&told), Vec::<String>::new(), "{}", case.text("id"));
                assert_eq!(in_fractions(told), in_fractions(object(&case.read())), "{}", case.text("id"));
            }
        }
    }
}

#[test]
fn every_quota_to_write_can_be_read() {
    let text = Case::all().iter().map(|case| case.printed(true)).collect::<String>();
    let out = explain(&["--host", "api.example.com"], text).well();
    assert_eq!(out.split("\n\n").count(), 256);
    let rules: Vec<_> = out.lines().filter_map(|line| line.strip_prefix("  Write: --rate \"")).collect();
    assert!(rules.len() > 50, "only {}", rules.len());
    for rule in rules {
        let (flags, rust) = rule.split_once("\", or in Rust .host(\"api.example.com\", \"").unwrap();
        let (limits, _) = rust.split_once("\")").unwrap();
        assert_eq!(limits.parse::<Limits>().map(|limits| limits.to_string()).as_deref(), Ok(limits));
        assert_eq!(flags.replace("\" --rate \"", ", "), limits);
        limits.split(", ").for_each(|quota| assert!(quota.parse::<Quota>().is_ok(), "{quota}"));
    }
}

// --- words

#[test]
fn a_refusal_in_words() {
    let expected = "\
HTTP 429: refused because of traffic.
  requests: 0 of 5000 left in each hour, resets in 51min 3s
  Retrying helps after 51min 3s: whoever goes sooner is refused again.
  Whose: all that one user does, at api.github.com.
  Write: --rate \"5000/h\", or in Rust .host(\"api.github.com\", \"5000/h\")
";
    assert_eq!(explain(&["--host", "api.github.com", "-"], REFUSAL).well(), expected);
    let without = explain(&[], REFUSAL).well();
    assert!(without.contains(".each_host(\"5000/h\")") && without.contains("user does.\n"), "{without}");
}

/// What each of such responses has in its words.
#[test]
fn what_retrying_does_is_said() {
    let quota = r#"{"error":{"code":"insufficient_quota"}}"#;
    let cases = [
        ("200 OK\r\n\r\n".to_owned(), "not refused. It states no limits.\n"),
        ("202 Accepted\r\nretry-after: 5\r\n\r\n".into(), "may be there in 5s: that is no limit."),
        ("302 Found\r\nretry-after: 5\r\n\r\n".into(), "It asks to wait 5s before going on."),
        ("200 OK\r\nx-ratelimit-limit: 9\r\nx-ratelimit-remaining: 0\r\n\r\n".into(), "Nothing is left"),
        (
            "404 Not Found\r\n\r\n".into(),
            "not because of traffic. It states no limits.\n  Retrying does not help unless",
        ),
        ("409 Conflict\r\nx-should-retry: true\r\n\r\n".into(), "says that sending it again helps"),
        (
            "429 No\r\nretry-after: 5\r\nx-should-retry: false\r\n\r\n".into(),
            "Others may go after 5s.\n  The server says not to send it",
        ),
        ("423 Locked\r\nretry-after: 90\r\n\r\n".into(), "It asks to wait 1min 30s before this is sent again."),
        ("429 No\r\n\r\n".into(), "How long to wait is not stated"),
        ("429 No\r\nretry-after: 0\r\n\r\n".into(), "Retrying at once, as it says, earns the next refusal"),
        (format!("429 No\r\n\r\n{quota}"), "refused for good. It states no limits.\n  Retrying does not help, however"),
        ("500 No\r\n\r\n".into(), "failed. It states no limits.\n  Retrying may help, where"),
        (
            "503 No\r\nretry-after: 172801\r\n\r\n".into(),
            "unavailable just now. It states no limits.\n  Retrying may help, after 2d 1s,",
        ),
        ("504 No\r\n\r\n".into(), "took too long."),
        (
            "200 OK\r\nratelimit-limit: 9\r\nratelimit-remaining: 8\r\nratelimit-reset: 1\r\n\r\n".into(),
            "No quota for requests: in how long",
        ),
        ("429 No\r\nretry-after-ms: 1\r\n\r\n".into(), "helps after 0.001s"),
        (
            "200 OK\r\nratelimit-policy: \"a\";q=6000;w=60\r\nratelimit: \"tokens\";r=5;t=0\r\n\r\n".into(),
            "resets at once",
        ),
    ];
    for (response, expected) in cases {
        let out = explain(&[], format!("HTTP/1.1 {response}")).well();
        assert!(out.contains(expected), "{response}: {out}");
    }
}

/// A server could write over a screen.
#[test]
fn a_name_has_no_power_over_a_terminal() {
    let text = "HTTP/1.1 200 OK\n\n";
    let body = r#"{"error":{"details":[{"quotaId":"a\u001b[2J\u009bb\n","quotaValue":"1"}]}}"#;
    let out = explain(&[], format!("{}{body}", text.replace("200 OK", "429 No"))).well();
    assert!(out.contains("a?[2J?b?") && !out.contains('\x1b'), "{out:?}");
}

// --- objects and flags

#[test]
fn an_object_has_whole_numbers_and_nulls_in_order() {
    let text = "HTTP/1.1 429 No\r\nx-ratelimit-limit: 60\r\nx-ratelimit-remaining: 0\r\n\
                x-ratelimit-next: 2026-05-11T22:20:03.1Z\r\n\r\n";
    let now = "2026-05-12T00:20:01+02:00";
    let expected = r#"{"throttled":true,"terminal":false,"wait_s":2.1,"scope":null,"limits":[{"name":"requests","limit":60,"remaining":0,"reset_after_s":2.1,"window_s":null}]}"#;
    assert_eq!(explain(&["--json", "--now", now], text).well(), format!("{expected}\n"));
    let plain = "HTTP/2 200 \r\n\r\n";
    let nothing = r#"{"throttled":false,"terminal":false,"wait_s":null,"scope":null,"limits":[]}"#;
    assert_eq!(explain(&["--json"], format!("{plain}{plain}")).well(), format!("{nothing}\n{nothing}\n"));
}

#[test]
fn moments_are_measured_from_now_where_there_is_no_date() {
    let soon = jiff::Timestamp::now().as_second() + 1_000;
    let text = format!("HTTP/1.1 429 No\r\nx-ratelimit-remaining: 0\r\nx-ratelimit-reset: {soon}\r\n\r\n");
    let out: Value = serde_json::from_str(&explain(&["--json"], text).well()).unwrap();
    assert!((900.0..=1_000.0).contains(&out["wait_s"].as_f64().unwrap()), "{out}");
}

#[test]
fn a_file_is_read_too() {
    let file = std::env::temp_dir().join(format!("throttle-explain-{}.txt", std::process::id()));
    std::fs::write(&file, REFUSAL.repeat(2)).unwrap();
    let out = explain(&["--json", file.to_str().unwrap()], "").well();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(out.lines().count(), 2);
}

#[test]
fn help_has_examples_and_there_is_a_version() {
    let help = explain(&["--help"], "").well();
    for word in
        ["curl -si", "--json", "--now", "--host", "--url", "--header", "--resets-in-millis", "env:", "Exit status"]
    {
        assert!(help.contains(word), "{word}");
    }
    assert!(explain(&["--version"], "").well().ends_with(concat!(env!("CARGO_PKG_VERSION"), "\n")));
}

// --- refusals

#[test]
fn what_cannot_be_worked_with_is_refused_in_one_sentence() {
    let cases: [(&[&str], &[u8], &str); 16] = [
        (&[], b"", "there is nothing in the input"),
        (&["-"], b" \r\n\n", "`curl -sSi URL` says why"),
        (&[], b"{\"error\": 429}", "-i keeps the head"),
        (&[], b"\0\xff\x1b\r\r", "there is no head of a response"),
        (&[], b"HTTP/1.1 429 No\rretry-after: 5\r\r", "there is no head of a response"),
        (&[], b"HTTP/1.1 100 Continue\r\n\r\n", "there is no head of a response"),
        (&[], b"\xff\xfeH\0T\0T\0P\0", "the input is UTF-16"),
        (&["no such file"], b"", "cannot read `no such file`: "),
        (&["--now", "soon"], b"", "--now: `soon` is no moment since 1970: write it as in `2026-05-11T22:20:01Z`"),
        (&["--now", "1969-12-31T23:59:59Z"], b"", "is no moment since 1970"),
        (&["--now", "2026-05-11T22:20:01"], b"", "is no moment since 1970"),
        (&["--host", "a/b"], b"", "--host: `a/b` is no host: write it as in `api.github.com` or `localhost:8080`"),
        (&["--host", "a\", \"b"], b"", "is no host"),
        (&["--url", "http://127.0.0.1:9/", "-"], b"", "--url asks by itself: leave the file out"),
        (&["--header", "a: b"], b"", "--header is for asking: say whom with --url"),
        (
            &["--url", "example.com/a?key=s3cret"],
            b"",
            "the address `example.com/a` cannot be requested; write it whole",
        ),
    ];
    for (args, input, expected) in cases {
        let sentence = explain(args, input).refused();
        assert!(sentence.contains(expected) && !sentence.contains("s3cret"), "{args:?}: {sentence}");
    }
}

#[test]
fn a_head_without_end_is_refused_after_what_came_before() {
    let long = format!("{REFUSAL}HTTP/1.1 200 OK\r\na: {}", "x".repeat(2 << 20));
    let Ended { status, out, err } = explain(&["--json"], long);
    assert_eq!((status.code(), out.lines().count()), (Some(2), 1));
    assert!(err.contains("the head of response 2 is longer than 1 MiB"), "{err}");
}

#[test]
fn more_than_it_takes_is_refused() {
    let file = std::env::temp_dir().join(format!("throttle-explain-{}.large", std::process::id()));
    std::fs::File::create(&file).unwrap().set_len((256 << 20) + 1).unwrap();
    let sentence = explain(&[file.to_str().unwrap()], "").refused();
    std::fs::remove_file(&file).unwrap();
    assert!(sentence.contains("longer than 256 MiB: give it fewer responses at a time"), "{sentence}");
}

#[test]
fn an_unknown_flag_is_refused() {
    let ended = explain(&["--colour"], "");
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.err.contains("--colour") && ended.err.contains("--help"), "{}", ended.err);
}

#[test]
fn who_reads_no_further_is_not_complained_to() {
    let mut child = program(&["--json"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writing = std::thread::spawn(move || stdin.write_all(REFUSAL.repeat(5_000).as_bytes()));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    writing.join().unwrap().unwrap();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(child.wait().unwrap().success() && err.is_empty() && line.contains("5000"), "{line} {err}");
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_is_complained_of() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = program(&[]).stdout(full).spawn().unwrap();
    child.stdin.take().unwrap().write_all(REFUSAL.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && err.contains("cannot write what there is to say"), "{err}");
}

// --- on a terminal

/// What is seen on one, by util-linux's `script`; `None` where there is none.
#[cfg(target_os = "linux")]
fn on_a_terminal(args: &str, settings: &[(&str, &str)]) -> Option<String> {
    let command = format!("{} explain {args}", env!("CARGO_BIN_EXE_throttle"));
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env_remove("NO_COLOR").env("TERM", "xterm");
    let output = script.envs(settings.iter().copied()).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8(output.stdout).unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn colours_are_for_terminals_that_want_them() {
    let file = std::env::temp_dir().join(format!("throttle-explain-{}.colours", std::process::id()));
    std::fs::write(&file, REFUSAL).unwrap();
    let seen = |settings: &[_]| on_a_terminal(file.to_str().unwrap(), settings);
    let has_colours =
        |settings: &[_]| seen(settings).map(|seen| seen.contains("\x1b[31mrefused because of traffic\x1b[0m"));
    let Some(plain) = has_colours(&[]) else { return eprintln!("not run: there is no `script`") };
    assert!(plain);
    assert_eq!(has_colours(&[("NO_COLOR", "1")]), Some(false));
    assert_eq!(has_colours(&[("TERM", "dumb")]), Some(false));
    std::fs::remove_file(&file).unwrap();
    assert!(!explain(&[], REFUSAL).well().contains('\x1b'));
    let nothing = on_a_terminal("", &[]).unwrap();
    assert!(nothing.contains("nothing is piped in: give it what curl prints"), "{nothing}");
}

// --- asking

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_asked_once_with_a_secret_that_nobody_sees() {
    let server = MockServer::start().await;
    let spent = ResponseTemplate::new(429).set_body_string(r#"{"error":{"code":"insufficient_quota"}}"#);
    let asked = Mock::given(path("/spent")).and(header("authorization", "Bearer s3cret")).and(header("x-a", "1"));
    asked.respond_with(spent).expect(1).mount(&server).await;
    let url = format!("{}/spent?key=hidden", server.uri());
    let headers = ["--header", "Authorization: Bearer env:THROTTLE_TEST_KEY", "--header", "X-A: 1"];
    let out = explain(&[&["--url", &url][..], &headers].concat(), "").well();
    assert!(out.contains("HTTP 429: refused for good"), "{out}");
    assert!(!out.contains("s3cret") && !out.contains("hidden"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_an_address_leads_on_the_last_is_explained() {
    let server = MockServer::start().await;
    let on = ResponseTemplate::new(302).insert_header("location", "/last");
    Mock::given(path("/first")).respond_with(on).mount(&server).await;
    let last = ResponseTemplate::new(200)
        .insert_header("ratelimit-policy", "\"a\";q=9;w=60")
        .insert_header("ratelimit", "\"a\";r=8;t=5");
    Mock::given(path("/last")).respond_with(last).mount(&server).await;
    let url = format!("{}/first", server.uri());
    let rule = format!(".host(\"{}\", \"9/min\")", server.address());
    let out = explain(&["--url", &url], "").well();
    assert!(out.contains(&rule) && out.contains("a: 8 of 9 left in each minute, resets in 5s"), "{out}");
    assert!(explain(&["--url", &url, "--host", "b.example"], "").well().contains(".host(\"b.example\", \"9/min\")"));
    let object: Value = serde_json::from_str(&explain(&["--url", &url, "--json"], "").well()).unwrap();
    assert_eq!(object["limits"][0]["window_s"], 60);
}

#[test]
fn who_cannot_be_asked_is_named_without_secrets() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://user:s3cret@{nobody}/a?key=s3cret");
    let sentence = explain(&["--url", &url], "").fails(1);
    assert!(
        sentence.contains(&format!("http://{nobody}/a")) && sentence.contains("see whether the address is right"),
        "{sentence}"
    );
    assert!(!sentence.contains("s3cret") && !sentence.contains("user"), "{sentence}");
}

#[test]
fn a_header_that_cannot_be_is_refused() {
    for (header, expected) in [
        ("Authorization", "--header: a header is written `Name: value`"),
        ("a b: c", "is no name of a header"),
        ("a: \u{7f}", "has signs in it that no header may have"),
        (
            "Authorization: Bearer env:THROTTLE_TEST_NO_SUCH",
            "the environment has no variable THROTTLE_TEST_NO_SUCH: set it",
        ),
    ] {
        let sentence = explain(&["--url", "http://127.0.0.1:9/", "--header", header], "").refused();
        assert!(sentence.contains(expected), "{sentence}");
    }
}
