//! Whether this crate takes reqwest's place: the same program behaves the same, and no method is missing.
#![cfg(all(
    feature = "json",
    feature = "query",
    feature = "form",
    feature = "multipart",
    feature = "stream",
    feature = "cookies",
    feature = "gzip"
))]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use wiremock::matchers::{any, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

mod with_reqwest {
    use std::collections::HashMap;
    use std::time::Duration;

    use futures_util::StreamExt;
    use reqwest::{Body, Client, Method, RequestBuilder, Response, Result, Url, Version, header, multipart};

    include!("support/program.rs");
}

mod with_ours {
    use std::collections::HashMap;
    use std::time::Duration;

    use futures_util::StreamExt;
    use reqwest_throttle::{Body, Client, Method, RequestBuilder, Response, Result, Url, Version, header, multipart};

    include!("support/program.rs");
}

/// `hello from gzip`, compressed.
const GZIP: [u8; 35] = [
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0x48, 0x2b, 0xca,
    0xcf, 0x55, 0x48, 0xaf, 0xca, 0x2c, 0x00, 0x00, 0x64, 0xaa, 0x8e, 0xb5, 0x0f, 0x00, 0x00, 0x00,
];

/// What was sent, as text.
fn echo(request: &Request) -> ResponseTemplate {
    let headers = request.headers.iter().filter(|(name, _)| *name != "host");
    let headers: BTreeSet<_> = headers.map(|(name, value)| format!("{name}={value:?}")).collect();
    let query = request.url.query().unwrap_or_default();
    let text = format!("{} ?{query} {headers:?} {:?}", request.method, String::from_utf8_lossy(&request.body));
    ResponseTemplate::new(200).insert_header("x-answer", "1").set_body_string(text)
}

async fn server() -> MockServer {
    let server = MockServer::start().await;
    let answers = [
        ("/gzip", ResponseTemplate::new(200).insert_header("content-encoding", "gzip").set_body_bytes(GZIP)),
        ("/large", ResponseTemplate::new(200).set_body_bytes(vec![7; 300_000])),
        ("/cookie", ResponseTemplate::new(200).insert_header("set-cookie", "session=1; Path=/")),
        ("/missing", ResponseTemplate::new(404)),
        ("/answer.json", ResponseTemplate::new(200).set_body_string(r#"{"a":"b"}"#)),
        ("/slow", ResponseTemplate::new(200).set_delay(Duration::from_secs(5))),
    ];
    for (at, answer) in answers {
        Mock::given(path(at)).respond_with(answer).with_priority(1).mount(&server).await;
    }
    Mock::given(any()).respond_with(echo).with_priority(9).mount(&server).await;
    server
}

#[tokio::test]
async fn a_program_behaves_the_same_when_only_its_import_is_changed() {
    let server = server().await;
    let theirs = with_reqwest::run(&server.uri()).await.unwrap();
    let ours = with_ours::run(&server.uri()).await.unwrap();
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs, ours);
    }
    assert_eq!((theirs.len(), ours.len()), (25, 25));
    assert!(ours.iter().any(|line| line.contains("hello from gzip")) && ours.iter().any(|line| line == "300000 bytes"));
}

/// Where the sources of reqwest are that this is built with.
fn reqwest() -> PathBuf {
    // What other platforms need is not here.
    let rustc = Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let host =
        String::from_utf8(rustc).unwrap().lines().find_map(|line| line.strip_prefix("host: ").map(str::to_owned));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform"]).args(host);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    let metadata: serde_json::Value = serde_json::from_slice(&cargo.output().unwrap().stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let reqwest = packages.iter().find(|package| package["name"] == "reqwest").unwrap();
    Path::new(reqwest["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
}

/// The public methods of a type, in a file's `impl` blocks of it and what follows them; of a macro's list, too.
fn methods(file: &Path, of: &str) -> BTreeSet<String> {
    let source = std::fs::read_to_string(file).unwrap();
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in source.lines() {
        if line.starts_with("impl") {
            inside = line.starts_with(&format!("impl {of} "));
        }
        let listed = line.trim_start().strip_prefix("fn ").filter(|rest| rest.ends_with(';'));
        let public =
            ["pub fn ", "pub async fn "].iter().find_map(|prefix| line.strip_prefix("    ")?.strip_prefix(prefix));
        if let Some(rest) = public.filter(|_| inside).or(listed) {
            found.insert(rest.split(['(', '<']).next().unwrap().to_owned());
        }
    }
    found
}

#[test]
fn every_method_of_reqwest_is_here_or_named_with_its_reason() {
    let (theirs, ours) = (reqwest().join("src/async_impl"), Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let left_out = [
        // reqwest's own retries are off: nobody would count them.
        "retry",
        // Their bounds have no public name; `ClientBuilder::reqwest` reaches them.
        "dns_resolver",
        "connector_layer",
        // Only on some systems; `ClientBuilder::reqwest` reaches them.
        "interface",
        "tcp_user_timeout",
        "unix_socket",
        "windows_named_pipe",
        // Not stable in reqwest.
        "http3_prior_knowledge",
        "http3_max_idle_timeout",
        "http3_stream_receive_window",
        "http3_conn_receive_window",
        "http3_send_window",
        "http3_congestion_bbr",
        "http3_max_field_section_size",
        "http3_send_grease",
        "tls_early_data",
    ];
    let mut missing = BTreeSet::new();
    for (of, file, here) in [
        ("RequestBuilder", "request.rs", vec!["request.rs", "client.rs"]),
        ("Client", "client.rs", vec!["client.rs"]),
        ("ClientBuilder", "client.rs", vec!["client.rs", "settings.rs", "reqwest_settings.rs"]),
    ] {
        let theirs = methods(&theirs.join(file), of);
        assert!(theirs.len() > 8, "{of}: {theirs:?}");
        let here: BTreeSet<_> = here.iter().flat_map(|file| methods(&ours.join(file), of)).collect();
        missing.extend(theirs.difference(&here).cloned());
    }
    assert_eq!(missing, left_out.map(str::to_owned).into());
}

#[test]
fn every_question_to_reqwests_error_can_be_asked() {
    let theirs = methods(&reqwest().join("src/error.rs"), "Error");
    let ours = methods(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/error.rs"), "Error");
    assert!(theirs.len() > 12 && theirs.is_subset(&ours), "{:?}", theirs.difference(&ours));
}
