//! How far is it? Told on standard error while it goes on.

use std::collections::VecDeque;
use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// When it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal.
    #[default]
    Auto,
    /// Elsewhere too, in a line each second.
    Always,
    Never,
}

/// How things stand.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) done: u64,
    pub(crate) total: Option<u64>,
    pub(crate) sent: u64,
    /// What the limits allow, as they are written.
    pub(crate) allowed: String,
    pub(crate) in_flight: usize,
    /// How many wait, and what for.
    pub(crate) waiting: Option<String>,
    pub(crate) refused: u64,
    /// How much longer it takes at best.
    pub(crate) at_best: Option<Duration>,
}

/// Tells it.
#[derive(Debug)]
pub(crate) struct Progress {
    way: Way,
    /// How many were sent at the latest moments, by which the rate is reckoned.
    lately: VecDeque<(Instant, u64)>,
}

#[derive(Debug)]
enum Way {
    Bar(ProgressBar),
    Lines,
    None,
}

/// A rate is that of so many moments.
const MOMENTS: usize = 20;

impl Progress {
    pub(crate) fn new(when: When) -> Self {
        let way = match (when, stderr().is_terminal()) {
            (When::Never, _) | (When::Auto, false) => Way::None,
            (When::Always, false) => Way::Lines,
            _ => Way::Bar(bar()),
        };
        Self { way, lately: [(Instant::now(), 0)].into() }
    }

    /// How often there is something to tell; rarely, if there is nobody.
    pub(crate) fn every(&self) -> Duration {
        Duration::from_millis(if matches!(self.way, Way::Bar(_)) { 200 } else { 1_000 })
    }

    pub(crate) fn is_told(&self) -> bool {
        !matches!(self.way, Way::None)
    }

    pub(crate) fn tell(&mut self, view: &View) {
        self.lately.push_back((Instant::now(), view.sent));
        if self.lately.len() > MOMENTS {
            self.lately.pop_front();
        }
        let told = Told { view, per_second: self.per_second() };
        match &self.way {
            Way::Bar(bar) => {
                bar.set_length(view.total.unwrap_or(view.done));
                bar.set_position(view.done);
                bar.set_message(told.to_string());
            }
            // Where nobody reads it any more there is nobody to tell.
            Way::Lines => _ = writeln!(stderr(), "{told}"),
            Way::None => {}
        }
    }

    fn per_second(&self) -> Option<f64> {
        let ((first, before), (last, sent)) = (self.lately.front()?, self.lately.back()?);
        let seconds = last.duration_since(*first).as_secs_f64();
        let more = u32::try_from(sent.saturating_sub(*before)).unwrap_or(u32::MAX);
        // The first go at once, which is no rate.
        (seconds > 0.5).then(|| f64::from(more) / seconds)
    }

    /// Leaves the terminal as it was.
    pub(crate) fn end(&self) {
        if let Way::Bar(bar) = &self.way {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:20} {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar
}

struct Told<'a> {
    view: &'a View,
    per_second: Option<f64>,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let View { done, total, allowed, in_flight, waiting, refused, .. } = self.view;
        match total {
            Some(total) => write!(f, "{done}/{total}")?,
            None => write!(f, "{done}")?,
        }
        if let Some(per_second) = self.per_second {
            write!(f, ", {per_second:.1}/s")?;
            write!(f, "{}", if allowed.is_empty() { String::new() } else { format!(" of {allowed}") })?;
        }
        write!(f, ", {in_flight} in flight")?;
        waiting.iter().try_for_each(|waiting| write!(f, ", waiting {waiting}"))?;
        write!(f, ", {refused} refused")?;
        self.left().map_or(Ok(()), |left| write!(f, ", {left:?} to go"))
    }
}

impl Told<'_> {
    /// By the limits; where they would let it go sooner than it goes, by how fast it goes.
    fn left(&self) -> Option<Duration> {
        let left = u32::try_from(self.view.total?.saturating_sub(self.view.done)).ok()?;
        let by_rate = self.per_second.filter(|rate| *rate > 0.0).map(|rate| f64::from(left) / rate);
        let by_rate = by_rate.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let longer = by_rate.into_iter().chain(self.view.at_best).max()?;
        Some(Duration::from_secs(longer.as_secs() + u64::from(longer.subsec_nanos() > 0)))
    }
}
