//! How far is it? Told on standard error while it goes on.

use std::collections::VecDeque;
use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reqwest_throttle::Quota;

use crate::explain::span::told;

/// When it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal; elsewhere, long pauses.
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
    /// How many wait, what for, and for how long at the least, if that is known.
    pub(crate) waiting: Option<(usize, String, Option<Duration>)>,
    /// How long nobody goes of those who wait.
    pub(crate) pause: Duration,
    pub(crate) refused: u64,
    /// How much longer it takes at best.
    pub(crate) at_best: Option<Duration>,
}

/// Tells it.
#[derive(Debug)]
pub(crate) struct Progress {
    way: Option<Way>,
    /// How many were sent at the latest moments, by which the rate is reckoned.
    lately: VecDeque<(Instant, u64)>,
    /// The shortest window of those that count requests: a rate is that of whole windows.
    window: Option<Duration>,
}

#[derive(Debug)]
enum Way {
    Bar(ProgressBar),
    Lines,
    Pauses(Silence),
}

/// Since when nothing was finished, and when that was told.
#[derive(Debug)]
struct Silence {
    done: u64,
    since: Instant,
    told: Option<Instant>,
}

/// A rate is that of so many moments, and of no less than so long.
const MOMENTS: u32 = 20;
const LEAST: Duration = Duration::from_secs(10);

/// After so long without an end somebody wants to know why.
const SILENT: Duration = Duration::from_secs(10);

/// And no more often than this.
const RARELY: Duration = Duration::from_secs(60);

/// With fewer columns there is no room for a bar.
const WIDE: u16 = 100;

impl Progress {
    pub(crate) fn new(when: When, quotas: &[Quota]) -> Self {
        let now = Instant::now();
        let way = match (when, stderr().is_terminal()) {
            (When::Never, _) => None,
            (When::Auto, false) => Some(Way::Pauses(Silence { done: 0, since: now, told: None })),
            (When::Always, false) => Some(Way::Lines),
            _ => Some(Way::Bar(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()))),
        };
        let of_requests = quotas.iter().filter(|quota| quota.unit().name() == "requests" && quota.count() > 0);
        Self { way, lately: [(now, 0)].into(), window: of_requests.map(Quota::period).min() }
    }

    /// How often there is something to tell; rarely, if there is nobody.
    pub(crate) fn every(&self) -> Duration {
        Duration::from_millis(if matches!(self.way, Some(Way::Bar(_))) { 200 } else { 1_000 })
    }

    pub(crate) fn is_told(&self) -> bool {
        self.way.is_some()
    }

    pub(crate) fn tell(&mut self, view: &View) {
        let now = Instant::now();
        self.look_at(now, view.sent);
        let (pace, rate) = self.pace_and_rate(now, view.sent).unzip();
        let told = Told { view, pace, rate };
        match &mut self.way {
            Some(Way::Bar(bar)) => {
                bar.set_style(style(Term::stderr().size().1, view.total));
                bar.set_length(view.total.unwrap_or(view.done));
                bar.set_position(view.done);
                bar.set_message(told.to_string());
            }
            // Where nobody reads it any more there is nobody to tell.
            Some(Way::Lines) => _ = writeln!(stderr(), "{told}"),
            Some(Way::Pauses(silence)) => silence.tell(now, &told),
            None => {}
        }
    }

    /// Remembers a moment, and forgets those that are too long ago: the first that is left is the oldest of a span.
    fn look_at(&mut self, now: Instant, sent: u64) {
        let span = self.span();
        if self.lately.back().is_none_or(|(last, _)| now.duration_since(*last) >= span / MOMENTS) {
            self.lately.push_back((now, sent));
        }
        while self.lately.len() > 1 && self.lately.front().is_some_and(|(first, _)| now.duration_since(*first) > span) {
            self.lately.pop_front();
        }
    }

    /// Of how long a rate is: so many windows, all of them whole.
    fn span(&self) -> Duration {
        let window = self.window.unwrap_or(LEAST).max(Duration::from_millis(1));
        let windows = u32::try_from(LEAST.as_nanos().div_ceil(window.as_nanos())).unwrap_or(u32::MAX);
        window.saturating_mul(windows.max(1))
    }

    /// How many go in a second, and how many of them count: a window that has begun has all of its own, so that it counts as a
    /// whole one.
    fn pace_and_rate(&self, now: Instant, sent: u64) -> Option<(f64, f64)> {
        let (first, before) = self.lately.front()?;
        let seconds = now.duration_since(*first).as_secs_f64();
        let more = f64::from(u32::try_from(sent.saturating_sub(*before)).unwrap_or(u32::MAX));
        let window = self.window.map_or(0.0, |window| window.as_secs_f64());
        let whole = if window > 0.0 { (seconds / window).ceil() * window } else { seconds };
        // The first go at once, which is no rate.
        (seconds > 0.5).then(|| (more / seconds, more / whole))
    }

    /// Leaves the terminal as it was.
    pub(crate) fn end(&self) {
        if let Some(Way::Bar(bar)) = &self.way {
            bar.finish_and_clear();
        }
    }
}

impl Silence {
    /// Tells what all wait for, once it is long.
    fn tell(&mut self, now: Instant, told: &Told<'_>) {
        let view = told.view;
        if view.done != self.done || view.in_flight > 0 {
            (self.done, self.since) = (view.done, now);
        }
        let was_told = self.told.is_some_and(|told| now.duration_since(told) < RARELY);
        if view.waiting.is_some() && now.duration_since(self.since) >= SILENT && !was_told {
            self.told = Some(now);
            let _ = writeln!(stderr(), "{told}");
        }
    }
}

/// A bar, where there is room for it and its end is known.
fn style(columns: u16, total: Option<u64>) -> ProgressStyle {
    let template = if columns >= WIDE && total.is_some() { "{bar:20} {wide_msg}" } else { "{wide_msg}" };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// What matters most is first: the end of a line may be cut off.
struct Told<'a> {
    view: &'a View,
    pace: Option<f64>,
    rate: Option<f64>,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let View { done, total, allowed, in_flight, waiting, refused, .. } = self.view;
        match total {
            Some(total) => write!(f, "{done}/{total}")?,
            None => write!(f, "{done}")?,
        }
        self.left().map_or(Ok(()), |left| write!(f, ", {} to go", told(left)))?;
        write!(f, ", {refused} refused")?;
        if let Some(rate) = self.rate {
            write!(f, ", {rate:.1}/s")?;
            write!(f, "{}", if allowed.is_empty() { String::new() } else { format!(" of {allowed}") })?;
        }
        write!(f, ", {in_flight} in flight")?;
        let Some((count, why, wait)) = waiting else { return Ok(()) };
        write!(f, ", {count} waiting: {why}")?;
        wait.map_or(Ok(()), |wait| write!(f, ", for {}", told(whole_seconds(wait))))
    }
}

impl Told<'_> {
    /// By the limits; where they would let it go sooner than it goes, by how fast it goes; no sooner than a pause ends.
    fn left(&self) -> Option<Duration> {
        let left = u32::try_from(self.view.total?.saturating_sub(self.view.done)).ok()?;
        let by_pace = self.pace.filter(|pace| *pace > 0.0).map(|pace| f64::from(left) / pace);
        let by_pace = by_pace.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let pause = Some(self.view.pause).filter(|pause| !pause.is_zero() && left > 0);
        let longest = by_pace.into_iter().chain(self.view.at_best).chain(pause).max()?;
        Some(whole_seconds(longest))
    }
}

fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_within_eighty_columns() {
        let why = "the server asked for a pause".to_owned();
        let view = View {
            done: 123_456,
            total: Some(2_000_000),
            allowed: "200/s, 200000 tokens/min".to_owned(),
            waiting: Some((960, why, Some(Duration::from_millis(1_797_120)))),
            pause: Duration::from_millis(1_797_120),
            refused: 3,
            at_best: Some(Duration::from_secs(5)),
            ..View::default()
        };
        let told = Told { view: &view, pace: None, rate: Some(199.5) }.to_string();
        assert!(told.starts_with("123456/2000000, 29min 58s to go, 3 refused, 199.5/s of 200/s"), "{told}");
        assert!(told.ends_with("960 waiting: the server asked for a pause, for 29min 58s"), "{told}");
    }

    #[test]
    fn no_rate_is_more_than_what_whole_windows_let_go() {
        let mut progress = Progress::new(When::Never, &["200/s".parse().unwrap()]);
        let begun = progress.lately[0].0;
        for moment in 1..200_u64 {
            let now = begun + Duration::from_millis(200 * moment);
            let sent = 200 * (moment * 200 / 1_005 + 1);
            progress.look_at(now, sent);
            if let Some((_, rate)) = progress.pace_and_rate(now, sent) {
                assert!((150.0..=200.0).contains(&rate), "{moment}: {rate}");
            }
        }
    }
}
