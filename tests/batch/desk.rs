//! Where the program is run: a folder of its own, an input, an output.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::upstream::Upstream;

pub(crate) struct Desk {
    folder: PathBuf,
}

/// What a run has said.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Desk {
    /// An empty folder, named after the test.
    pub(crate) fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("batch").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    /// An input of so many requests, `/0`, `/1` and so on, with ids like these.
    pub(crate) fn requests(&self, server: &Upstream, count: usize) {
        let mut lines = String::new();
        for number in 0..count {
            writeln!(
                lines,
                r#"{{"custom_id": "{number}", "method": "GET", "url": "{}"}}"#,
                server.at(&format!("/{number}"))
            )
            .unwrap();
        }
        self.write("in", lines);
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_throttle"));
        command.current_dir(&self.folder).arg("batch").args(args).stdin(Stdio::null());
        command.env("NO_PROXY", "127.0.0.1").stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `throttle batch in -o out`, with these as well.
    pub(crate) fn begin(&self, args: &[&str]) -> Child {
        self.command(&[&["in", "-o", "out"], args].concat()).spawn().unwrap()
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Said {
        ended(self.begin(args)).await
    }

    pub(crate) async fn run_only(&self, args: &[&str]) -> Said {
        ended(self.command(args).spawn().unwrap()).await
    }

    pub(crate) fn output(&self) -> Vec<u8> {
        fs::read(self.path("out")).unwrap_or_default()
    }

    /// The records of the output, each of which is a line of JSON.
    pub(crate) fn records(&self) -> Vec<Value> {
        let output = String::from_utf8(self.output()).unwrap();
        assert!(output.is_empty() || output.ends_with('\n'));
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The record with this id, of which there must be one.
    pub(crate) fn record(&self, id: &str) -> Value {
        let mut records: Vec<_> = self.records().into_iter().filter(|record| record["custom_id"] == id).collect();
        assert_eq!(records.len(), 1, "records of {id}");
        records.remove(0)
    }

    /// All ids, sorted; `null` as nothing.
    pub(crate) fn ids(&self) -> Vec<String> {
        let text = |record: &Value| record["custom_id"].as_str().unwrap_or_default().to_owned();
        let mut ids: Vec<_> = self.records().iter().map(text).collect();
        ids.sort_unstable();
        ids
    }

    /// The ids of [`requests`](Self::requests), in the order of the output.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.records().iter().map(|record| record["custom_id"].as_str().unwrap().parse().unwrap()).collect()
    }

    /// Whether each of so many [`requests`](Self::requests) has one record.
    pub(crate) fn has_each_once(&self, count: usize) -> bool {
        let mut all: Vec<_> = (0..count).map(|number| number.to_string()).collect();
        all.sort_unstable();
        self.ids() == all
    }
}

/// Far above what any run takes, far below a hung test.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits without keeping the server from its work.
pub(crate) async fn ended(child: Child) -> Said {
    let id = child.id();
    let end = tokio::task::spawn_blocking(|| child.wait_with_output());
    let Ok(end) = tokio::time::timeout(PATIENCE, end).await else {
        let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
        panic!("it does not end");
    };
    let Output { status, stdout, stderr } = end.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// How often the server saw this path.
pub(crate) fn seen(server: &Upstream, path: &str) -> usize {
    server.arrivals().iter().filter(|arrival| arrival.path == path).count()
}

pub(crate) async fn plain_server() -> Upstream {
    Upstream::builder().start().await
}
