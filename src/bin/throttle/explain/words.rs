//! What does a response state, for people? A headline, and a line for whatever there is to say.

use std::fmt;
use std::time::Duration;

use reqwest_throttle::{Fault, Quota, Scope, Signal, StatedLimit, StatusCode, Unit};

use super::paint::Paint;
use super::quotas::Quotas;
use super::span::told;

/// So many letters of a name that the server gives are shown.
const LONGEST_NAME: usize = 60;

/// A response, in words.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    pub(crate) status: StatusCode,
    pub(crate) signal: &'a Signal,
    /// Who sent it, as it is written in a rule.
    pub(crate) host: Option<&'a str>,
    pub(crate) paint: Paint,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.paint.bold(&format!("HTTP {}", self.status.as_u16()));
        write!(f, "{status}: {}.", self.verdict())?;
        if self.signal.limits.is_empty() {
            f.write_str(" It states no limits.")?;
        }
        let limits = self.signal.limits.iter().map(limit);
        let lines = limits.chain(self.retrying()).chain(self.says_itself()).chain(self.whose()).chain(self.quotas());
        lines.into_iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl Words<'_> {
    fn verdict(&self) -> String {
        let signal = self.signal;
        match signal.fault {
            _ if signal.terminal => self.paint.red("refused for good"),
            _ if signal.throttled => self.paint.red("refused because of traffic"),
            Some(Fault::TooSlow) => self.paint.red("took too long"),
            Some(Fault::Unavailable) => self.paint.red("unavailable just now"),
            Some(_) => self.paint.red("failed"),
            None if self.is_error() => self.paint.red("not done, but not because of traffic"),
            None => self.paint.green("not refused"),
        }
    }

    fn is_error(&self) -> bool {
        self.status.is_client_error() || self.status.is_server_error()
    }

    /// Whether it helps, and after how long.
    fn retrying(&self) -> Option<String> {
        let after = self.signal.retry_after();
        let line = match after {
            _ if self.signal.terminal => TERMINAL.to_owned(),
            // What holds for this request need not for others.
            _ if self.signal.throttled && self.signal.should_retry == Some(false) => {
                return after.map(|wait| format!("Others may go after {}.", told(wait)));
            }
            _ if self.signal.throttled => refused(after),
            _ if self.signal.fault.is_some() => failed(after),
            Some(wait) if self.is_error() => format!("It asks to wait {} before this is sent again.", told(wait)),
            None if self.is_error() => return self.signal.should_retry.is_none().then(|| USELESS.to_owned()),
            Some(wait) if self.status.is_redirection() => format!("It asks to wait {} before going on.", told(wait)),
            Some(wait) => format!("What was asked for may be there in {}: that is no limit.", told(wait)),
            None if self.signal.exhausted => SPENT.to_owned(),
            None => return None,
        };
        Some(line)
    }

    fn says_itself(&self) -> Option<String> {
        match self.signal.should_retry? {
            true if self.signal.throttled => None,
            true => Some("The server says that sending it again helps.".to_owned()),
            false => Some("The server says not to send it again.".to_owned()),
        }
    }

    fn whose(&self) -> Option<String> {
        let says = !self.signal.limits.is_empty() || self.signal.throttled || self.signal.scope.is_some();
        let whose = match &self.signal.scope {
            None => "not stated".to_owned(),
            Some(Scope::Account) => "all that is done for one account, organization or key".to_owned(),
            Some(Scope::User) => "all that one user does".to_owned(),
            Some(Scope::Host) => "all that comes from one address".to_owned(),
            Some(Scope::Route) => "one path, method or endpoint".to_owned(),
            Some(Scope::Bucket(name)) => format!("what the server counts as `{}`", plain(name)),
            Some(other) => format!("{other:?}"),
        };
        let host = self.host.map(|host| format!(", at {host}")).unwrap_or_default();
        says.then(|| format!("Whose: {whose}{host}."))
    }

    fn quotas(&self) -> Vec<String> {
        let quotas = Quotas::of(&self.signal.limits);
        let units = quotas.written.iter().map(Quota::unit).filter(|unit| **unit != Unit::REQUESTS);
        let costs = units.map(|unit| format!("Say of each request how much it takes: .cost(\"{unit}\", n)"));
        let windows = lacking(&quotas.without_window, "in how long a time they may go");
        let counts = lacking(&quotas.without_count, "how many may go");
        self.rule(&quotas.written).into_iter().chain(costs).chain(windows).chain(counts).collect()
    }

    fn rule(&self, quotas: &[Quota]) -> Option<String> {
        let flags = quotas.iter().map(|quota| format!("--rate \"{quota}\"")).collect::<Vec<_>>().join(" ");
        let limits = quotas.iter().map(Quota::to_string).collect::<Vec<_>>().join(", ");
        let host = self.host.map_or_else(|| ".each_host(".to_owned(), |host| format!(".host(\"{host}\", "));
        let is_narrow = self.signal.scope == Some(Scope::Route);
        let warning = if is_narrow { "; too strict for the whole host, it counts one route" } else { "" };
        let rule = format!("Write: {flags}, or in Rust {host}\"{limits}\"){warning}");
        (!quotas.is_empty()).then_some(rule)
    }
}

const TERMINAL: &str =
    "Retrying does not help, however long one waits: the money is gone, or the request is larger than the limit.";
const USELESS: &str = "Retrying does not help unless something else changes.";
const SPENT: &str = "Nothing is left: expect the next request to be refused.";

fn refused(after: Option<Duration>) -> String {
    let doubling = "wait a second, and twice as long after each further refusal";
    match after {
        None => format!("Retrying helps later. How long to wait is not stated: {doubling}."),
        Some(Duration::ZERO) => format!("Retrying at once, as it says, earns the next refusal: {doubling}."),
        Some(wait) => format!("Retrying helps after {}: whoever goes sooner is refused again.", told(wait)),
    }
}

fn failed(after: Option<Duration>) -> String {
    let first = after.map(|wait| format!(", after {}", told(wait))).unwrap_or_default();
    format!("Retrying may help{first}, where doing it twice does no harm (GET, PUT, or with an Idempotency-Key).")
}

fn limit(limit: &StatedLimit) -> String {
    let count = match (limit.remaining, limit.limit) {
        (Some(left), Some(limit)) => format!("{left} of {limit} left"),
        (Some(left), None) => format!("{left} left"),
        (None, Some(limit)) => format!("at most {limit}"),
        (None, None) => "how many is not stated".to_owned(),
    };
    let window = limit.window.map(|window| format!(" in each {}", each(window))).unwrap_or_default();
    let reset = match limit.reset_after {
        None => String::new(),
        Some(Duration::ZERO) => ", resets at once".to_owned(),
        Some(reset) => format!(", resets in {}", told(reset)),
    };
    format!("{}: {count}{window}{reset}", plain(&limit.name))
}

fn each(window: Duration) -> String {
    match (window.as_secs(), window.subsec_nanos()) {
        (1, 0) => "second".to_owned(),
        (60, 0) => "minute".to_owned(),
        (3_600, 0) => "hour".to_owned(),
        (86_400, 0) => "day".to_owned(),
        _ => told(window),
    }
}

/// Of which limits a quota cannot be written.
fn lacking(names: &[&str], what: &str) -> Option<String> {
    let names = names.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| format!("No quota for {names}: {what} is not stated; look it up."))
}

/// What comes from the server, on one line, and nothing that a terminal would obey.
fn plain(name: &str) -> String {
    name.chars().take(LONGEST_NAME).map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}
