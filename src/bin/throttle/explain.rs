//! `throttle explain`: what do an API's answers say about its limits?

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use reqwest_throttle::{Hints, Url};

use crate::failure::Failure;
use crate::secret::Header;

mod status_line;
mod answers;
mod input;
pub(crate) mod span;
mod paint;
mod quotas;
mod words;
mod json;
mod report;
mod ask;

use answers::{Answer, Answers, TooLong};
use ask::Asked;
use paint::Paint;
use report::Report;

const EXAMPLES: &str = "\
Examples:
  curl -si https://api.github.com/zen | throttle explain -
  curl -si https://api.github.com/zen | throttle explain --json -
  throttle explain --now 2026-05-11T22:20:01Z --host api.github.com answers.txt
  throttle explain --url https://api.github.com/user \\
      --header 'Authorization: Bearer env:GITHUB_TOKEN'

Exit status: 0 if everything was explained, 1 if the address did not answer, 2 if the command or the input is wrong.";

/// Says what an API's answers state: its limits, what is left, how long to wait, and the quota to write.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Explain {
    /// What `curl -si URL` printed, one response or several in a row; `-` is what is piped in
    #[arg(value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// Write one object a response, a line each: throttled, terminal, `wait_s`, scope, limits
    #[arg(long)]
    json: bool,
    /// When the answers came, for those that state moments and have no `Date` [default: now]
    #[arg(long, value_name = "RFC3339")]
    now: Option<String>,
    /// Who sent them, for the quota to write [default: the host of the URL]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// This server counts its resets in milliseconds, which a number does not show
    #[arg(long)]
    resets_in_millis: bool,
    /// Ask this address, once, and explain what it answers
    #[arg(long)]
    url: Option<String>,
    /// A header to ask with, as often as there are some; `env:NAME` stands for what the environment has there
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    header: Vec<String>,
}

impl Explain {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        self.check()?;
        let mut report = self.report()?;
        if let Some(url) = &self.url {
            let asked = Asked::of(url, &self.headers()?)?;
            report.host = report.host.or(asked.host);
            let answer = Answer { status: asked.status, headers: asked.headers, body: &asked.body };
            return explain(&report, std::iter::once(Ok(answer))).map(|_| ExitCode::SUCCESS);
        }
        let text = input::read(self.file.as_deref())?;
        let told = explain(&report, Answers::new(&text))?;
        if told == 0 { Err(input::headless(&text)) } else { Ok(ExitCode::SUCCESS) }
    }

    fn check(&self) -> Result<(), Failure> {
        match (&self.url, &self.file) {
            (None, Some(file)) if file.to_str().is_some_and(|file| file.contains("://")) => {
                Err(Failure::usage("what is to be explained is an address; ask it by --url"))
            }
            (Some(_), Some(_)) => Err(Failure::usage("--url asks by itself: leave the file out, or --url")),
            (None, _) if !self.header.is_empty() => {
                Err(Failure::usage("--header is for asking: say whom with --url, or leave it out"))
            }
            _ => Ok(()),
        }
    }

    fn report(&self) -> Result<Report, Failure> {
        let now = self.now.as_deref().map_or_else(|| Ok(wall_clock()), moment)?;
        if let Some(host) = self.host.as_deref().filter(|host| !is_host(host)) {
            return Err(Failure::usage(format!(
                "--host: `{host}` is no host: write it as in `api.github.com` or `localhost:8080`"
            )));
        }
        let mut hints = Hints::default();
        hints.resets_in_millis = self.resets_in_millis;
        Ok(Report { json: self.json, host: self.host.clone(), hints, now, paint: Paint::of_stdout() })
    }

    fn headers(&self) -> Result<Vec<Header>, Failure> {
        let read = |text: &String| text.parse().map_err(|error| Failure::usage(format!("--header: {error}")));
        self.header.iter().map(read).collect()
    }
}

/// How many responses there were. Where nobody reads any more, it ends without a word.
fn explain<'a>(report: &Report, answers: impl Iterator<Item = Result<Answer<'a>, TooLong>>) -> Result<usize, Failure> {
    let (mut out, mut told) = (BufWriter::new(io::stdout().lock()), 0);
    for answer in answers {
        let answer = answer.map_err(|TooLong| too_long(told))?;
        let written = report.tell(&mut out, told, &answer);
        told += 1;
        if let Err(error) = written {
            return ended(&error, told);
        }
    }
    out.flush().map_or_else(|error| ended(&error, told), |()| Ok(told))
}

fn ended(error: &io::Error, told: usize) -> Result<usize, Failure> {
    match error.kind() {
        ErrorKind::BrokenPipe => Ok(told),
        _ => Err(Failure::usage(format!("cannot write what there is to say: {error}; write to somewhere else"))),
    }
}

fn too_long(told: usize) -> Failure {
    let nth = told + 1;
    Failure::usage(format!("the head of response {nth} is longer than 1 MiB: give it what `curl -si URL` prints"))
}

fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Since 1970.
fn moment(text: &str) -> Result<Duration, Failure> {
    let at = text.parse::<jiff::Timestamp>().ok().map(|at| at.duration_since(jiff::Timestamp::UNIX_EPOCH));
    let at = at.and_then(|since| Duration::try_from(since).ok());
    at.ok_or_else(|| {
        Failure::usage(format!("--now: `{text}` is no moment since 1970: write it as in `2026-05-11T22:20:01Z`"))
    })
}

/// What a rule can be for: a name or an address, and a port.
fn is_host(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || ".-_:[]".contains(letter);
    text.chars().all(is_plain) && Url::parse(&format!("http://{text}/")).is_ok_and(|url| url.has_host())
}
