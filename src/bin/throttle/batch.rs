//! `throttle batch`: a file of requests, sent under limits, into a file of answers.

use std::fs;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use reqwest_throttle::header::HeaderMap;
use reqwest_throttle::{Client, Quota, Request, Url};

use crate::address::shown;
use crate::failure::Failure;
use crate::secret::Header;

mod help;
mod beside;
mod period;
mod line;
mod ids;
mod room;
mod input;
mod outcome;
mod record;
mod kept;
mod before;
mod summary;
mod forecast;
mod mending;
mod journal;
mod spent;
mod send;
mod progress;
mod plan;
mod work;

use forecast::memory;
use help::{EXAMPLES, FORMS};
use ids::Ids;
use input::{Reading, Source, Whole};
use journal::{Journal, Policy, look, look_for_ids};
use plan::Plan;
use progress::{Progress, When};
use send::{Stop, Terms, on_send};
use spent::Spent;
use summary::Tally;
use work::{Ended, Work};

/// How long a request waits for its turn without --deadline: as long as it takes.
const ANY_TIME: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Some failed, or are left.
const SOME_FAILED: u8 = 1;

/// As a shell says it of a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// Sends a file of requests, each as soon as the limits allow, and writes what came of them
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags")]
#[command(after_help = EXAMPLES, after_long_help = format!("{FORMS}{EXAMPLES}"))]
pub(crate) struct Batch {
    /// The requests: a file of JSON lines, or `-` for standard input
    input: PathBuf,

    /// The answers: a file of JSON lines, which a later run goes on from
    #[arg(short, long, required_unless_present = "dry_run")]
    output: Option<PathBuf>,

    /// What a `url` follows that is not whole: `https://api.example.com` before `/v1/things`
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,

    /// A limit, as `50/s`, `1000/h`, `200_000 tokens/min` or `10/s burst 20`; may be given several times
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    rate: Vec<Quota>,

    /// How many requests may be in flight at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    in_flight: u32,

    /// Until when each request has to be answered, from its turn in the program on, with its waiting; any time unless set
    #[arg(long, value_name = "TIME", value_parser = period::read)]
    deadline: Option<Duration>,

    /// How long one attempt may take, from its sending to the end of its answer
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = period::read)]
    timeout: Duration,

    /// How many times a request is sent at most within this run
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,

    /// A header of all requests that have none of that name, whatever their host; `env:KEY` stands for that variable
    #[arg(short = 'H', long, value_name = "HEADER")]
    header: Vec<String>,

    /// How many MiB an answer's body may have, which is in memory until it is written
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_body: u32,

    /// Go on without lines that cannot be sent; they are in the output with `custom_id` null
    #[arg(long)]
    skip_bad: bool,

    /// Do again whatever has failed in earlier runs
    #[arg(long)]
    retry_failed: bool,

    /// Write what this run adds in the order of the input; up to 1024 answers wait for an earlier one
    #[arg(long)]
    ordered: bool,

    /// Check the input, say how much is to be done and how long that takes at best, and send nothing
    #[arg(long)]
    dry_run: bool,

    /// When to say on standard error how far it is
    #[arg(long, value_enum, default_value_t)]
    progress: When,

    /// How to say how it ended: for people on standard error, or for programs on standard output
    #[arg(long, value_enum, default_value_t)]
    summary: Form,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    #[default]
    Text,
    Json,
}

impl Batch {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.input.to_str().is_some_and(|input| input.contains("://")) {
            return Err(Failure::usage("the input is an address; name a file of requests, each with its `url`"));
        }
        if let Some(output) = &self.output {
            check_output(&self.input, output)?;
        }
        self.base_url.as_deref().map_or(Ok(()), check_base)?;
        // What is wrong with a setting is said before the input is read.
        drop(self.client(|_| ())?);
        match &self.output {
            Some(output) if !self.dry_run => self.send_all(output),
            output => self.tell_plan(output.as_deref()),
        }
    }

    fn reading(&self) -> Reading {
        let input = if self.input == Path::new("-") { Source::Stream } else { Source::File(self.input.clone()) };
        Reading { input, base: self.base_url.clone(), skips_bad: self.skip_bad }
    }

    fn send_all(&self, output: &Path) -> Result<ExitCode, Failure> {
        // The input is checked before an output is made, and the output is locked before it is read.
        let (reading, checked) = self.reading().checked()?;
        checked.iter().try_for_each(|(_, whole)| check_units(&self.rate, whole))?;
        let mut journal = Journal::open(output)?;
        let (mut ids, whole) = match checked {
            Some((ids, whole)) => (ids, Some(whole)),
            None => (journal.own_ids()?, None),
        };
        let tally = journal.resume(&mut ids, self.policy(whole.as_ref()))?;
        let memory = self.rate.iter().map(memory).max().filter(|memory| !memory.is_zero());
        let spent = memory.map(|memory| Spent::open(journal.path(), memory)).transpose()?.map(Arc::new);
        let count = Arc::default();
        let client = self.client(on_send(Arc::clone(&count), spent.clone()))?;
        let (doubled, whole) = whole.map(|whole| (whole.doubled, (whole.lines, whole.costs))).unzip();
        let pending = reading.pending(ids, doubled)?;
        let most_body = usize::try_from(self.max_body).unwrap_or(usize::MAX) << 20;
        let terms = Terms { client, within: self.deadline, most_body, stop: Stop::default() };
        let (progress, quotas, is_ordered) =
            (Progress::new(self.progress, &self.rate), self.rate.clone(), self.ordered);
        let work = Work { terms, journal, tally, spent, progress, quotas, whole, count, is_ordered };
        // One thread: requests go in the order of the input, and it is other people's servers that are waited for.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime
            .map_err(|error| Failure::unfinished(format!("no runtime can be begun ({error}); end other programs")))?;
        let ended = runtime.block_on(work.run(pending));
        // Not waiting for names that are being looked up.
        runtime.shutdown_background();
        self.tell_end(ended?)
    }

    fn tell_end(&self, Ended { summary, failure }: Ended) -> Result<ExitCode, Failure> {
        match self.summary {
            // Where nobody reads it any more there is nobody to tell.
            Form::Text => _ = writeln!(stderr(), "{summary}"),
            Form::Json => _ = writeln!(stdout(), "{}", summary.json()),
        }
        if summary.is_interrupted {
            let _ = writeln!(stderr(), "interrupted; run the same command again to go on");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        match failure {
            Some(failure) => Err(failure),
            None if summary.tally.failed() + summary.left > 0 => Ok(ExitCode::from(SOME_FAILED)),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    fn client(&self, on_send: impl Fn(&Request) + Send + Sync + 'static) -> Result<Client, Failure> {
        let mut headers = HeaderMap::new();
        for header in &self.header {
            // Not read by clap, which would repeat what it cannot read.
            let Header { name, value, .. } =
                header.parse().map_err(|error| Failure::usage(format!("--header: {error}")))?;
            headers.append(name, value);
        }
        let builder = Client::builder()
            .max_in_flight(usize::try_from(self.in_flight).unwrap_or(usize::MAX))
            .max_wait(ANY_TIME)
            .max_attempts(usize::try_from(self.attempts).unwrap_or(usize::MAX))
            .timeout(self.timeout)
            .default_headers(headers)
            .on_send(on_send);
        let builder = self.rate.iter().fold(builder, |builder, quota| builder.limit(quota.clone()));
        builder.build().map_err(Failure::usage)
    }

    /// What to do with records of earlier runs, given what is known of the input.
    fn policy(&self, whole: Option<&Whole>) -> Policy {
        Policy { knows_all: whole.is_some(), retries_failed: self.retry_failed }
    }

    fn tell_plan(&self, output: Option<&Path>) -> Result<ExitCode, Failure> {
        let (reading, checked) = self.reading().checked()?;
        checked.iter().try_for_each(|(_, whole)| check_units(&self.rate, whole))?;
        let (mut ids, whole) = match checked {
            Some((ids, whole)) => (ids, Some(whole)),
            None => (output.map_or_else(|| Ok(Ids::new()), look_for_ids)?, None),
        };
        let policy = self.policy(whole.as_ref());
        let tally = output.map_or_else(|| Ok(Tally::default()), |path| look(path, &mut ids, policy))?;
        let mut pending = reading.pending(ids, whole.map(|whole| whole.doubled))?;
        let mut plan = Plan::new(&self.rate, tally.total())?;
        while let Some((todo, _)) = pending.advance()? {
            plan.add(&todo);
        }
        let _ = match self.summary {
            Form::Text => writeln!(stdout(), "{plan}"),
            Form::Json => writeln!(stdout(), "{}", plan.json()),
        };
        Ok(ExitCode::from(if plan.never > 0 { SOME_FAILED } else { 0 }))
    }
}

/// What is read must not be what is written.
fn check_output(input: &Path, output: &Path) -> Result<(), Failure> {
    if output == Path::new("-") {
        return Err(Failure::usage(
            "the output cannot be standard output, for a later run goes on from it; name a file, as in `-o answers.jsonl`",
        ));
    }
    match (fs::canonicalize(input), fs::canonicalize(output)) {
        (Ok(input), Ok(output)) if input == output => {
            Err(Failure::usage(format!("{} is both input and output; name another file by -o", input.display())))
        }
        _ => Ok(()),
    }
}

/// An address that others can follow. Not checked by clap, which would repeat a key in it.
fn check_base(text: &str) -> Result<(), Failure> {
    let wrong = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() && text.contains("://") => {
            match (url.query().or(url.fragment()), text.trim() == text) {
                (None, true) => return Ok(()),
                (None, false) => "has a space before or after it",
                (Some(_), _) => "has a query",
            }
        }
        _ => "is no address of HTTP",
    };
    let shown = shown(text);
    Err(Failure::usage(format!("--base-url: `{shown}` {wrong}; write it as in `https://api.example.com`")))
}

/// A limit on what no request takes is a mistake: it would let everything go.
fn check_units(quotas: &[Quota], whole: &Whole) -> Result<(), Failure> {
    let is_taken = |quota: &&Quota| whole.lines == 0 || whole.costs.contains_key(&quota.unit().to_string());
    match quotas.iter().find(|quota| !is_taken(quota)) {
        None => Ok(()),
        Some(quota) => Err(Failure::usage(format!(
            "--rate: `{quota}` limits nothing, for no request has a cost in `{0}`; write it as `\"cost\": {{\"{0}\": 1}}`, or leave the limit out",
            quota.unit()
        ))),
    }
}
