//! How are all of them sent? So many at once, each record written when it is there, until all are or somebody stops it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use reqwest_throttle::{LaneSnapshot, Quota};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use super::forecast::{Costs, at_best};
use super::input::{Pending, Todo};
use super::journal::Journal;
use super::outcome::Kind;
use super::progress::{Progress, View};
use super::record::Record;

use super::room::{Place, Room};
use super::send::Terms;
use super::spent::Spent;
use super::summary::{Summary, Tally};
use crate::failure::Failure;

/// How often it is looked whether nothing is in flight any more, once it is to end.
const SOON: Duration = Duration::from_millis(50);

/// What is to be done, and with what.
pub(crate) struct Work {
    pub(crate) terms: Terms,
    pub(crate) journal: Journal,
    /// What the output says.
    pub(crate) tally: Tally,
    pub(crate) spent: Option<Arc<Spent>>,
    pub(crate) progress: Progress,
    pub(crate) quotas: Vec<Quota>,
    /// How many requests there are in all, and what they take; of a stream it is not known.
    pub(crate) whole: Option<(u64, Costs)>,
    /// How many have left us.
    pub(crate) count: Arc<AtomicU64>,
    pub(crate) is_ordered: bool,
}

/// How it ended.
pub(crate) struct Ended {
    pub(crate) summary: Summary,
    /// Why nothing more could be read.
    pub(crate) failure: Option<Failure>,
}

/// One that was read, with its number among those that were.
type Read = Result<(u64, Todo, Place), Failure>;

/// One that came to its end; without a line, if it was given up.
struct Finished {
    number: u64,
    line: Option<(Vec<u8>, Kind)>,
    refused: usize,
    _place: Place,
}

/// Those that came before an earlier one did. There is no more of them than there is room.
#[derive(Default)]
struct Order {
    next: u64,
    held: BTreeMap<u64, Finished>,
}

struct Run {
    work: Work,
    /// `None`, if each is written when it comes.
    order: Option<Order>,
    tasks: JoinSet<Result<Finished, serde_json::Error>>,
    begun: Instant,
    kept: u64,
    refused: u64,
    /// Nothing more comes.
    is_read: bool,
    failure: Option<Failure>,
    /// How often somebody wanted it to stop.
    stops: usize,
}

impl Work {
    pub(crate) async fn run(self, pending: Pending) -> Result<Ended, Failure> {
        if let Some(spent) = &self.spent {
            spent.count(&self.terms.client)?;
        }
        let (mut todo, mut stops) = (read_ahead(pending)?, stops());
        let mut run = Run::new(self);
        let mut ticks = interval(run.work.progress.every());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut soon = interval(SOON);
        soon.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while run.goes_on() {
            tokio::select! {
                Some(finished) = run.tasks.join_next() => run.finish(finished)?,
                read = todo.recv(), if !run.is_read && run.stops == 0 => run.take(read)?,
                Some(()) = stops.recv() => run.stop(),
                _ = ticks.tick(), if run.work.progress.is_told() => run.tell(),
                _ = soon.tick(), if run.stops > 0 => run.give_up_if_idle(),
            }
        }
        run.write_held()?;
        run.put_back()?;
        Ok(run.end())
    }
}

impl Run {
    fn new(work: Work) -> Self {
        let (order, kept) = (work.is_ordered.then(Order::default), work.tally.total());
        let (tasks, begun) = (JoinSet::new(), Instant::now());
        Self { work, order, tasks, begun, kept, refused: 0, is_read: false, failure: None, stops: 0 }
    }

    fn goes_on(&self) -> bool {
        match self.stops {
            0 => !self.is_read || !self.tasks.is_empty(),
            1 => !self.tasks.is_empty(),
            _ => false,
        }
    }

    /// Begins with what was read.
    fn take(&mut self, read: Option<Read>) -> Result<(), Failure> {
        match read {
            Some(Ok((number, Todo::Request(line), place))) => {
                let terms = self.work.terms.clone();
                self.tasks.spawn(async move {
                    let Some(sent) = terms.send(*line).await else {
                        return Ok(Finished { number, line: None, refused: 0, _place: place });
                    };
                    let line = Some((sent.record.line()?, sent.record.kind()));
                    Ok(Finished { number, line, refused: sent.refused, _place: place })
                });
                Ok(())
            }
            Some(Ok((number, Todo::Bad(line, reason), place))) => {
                let record = Record::of_bad_line(line, &reason);
                let line = record.line().map_err(unfinished)?;
                self.put(Finished { number, line: Some((line, record.kind())), refused: 0, _place: place })
            }
            Some(Err(failure)) => {
                (self.failure, self.is_read) = (Some(failure), true);
                Ok(())
            }
            None => {
                self.is_read = true;
                Ok(())
            }
        }
    }

    fn finish(&mut self, finished: Result<Result<Finished, serde_json::Error>, JoinError>) -> Result<(), Failure> {
        let finished = finished.map_err(unfinished)?.map_err(unfinished)?;
        self.put(finished)?;
        self.work.spent.as_ref().map_or(Ok(()), |spent| spent.check())
    }

    /// Writes what is there, and in its turn.
    fn put(&mut self, finished: Finished) -> Result<(), Failure> {
        self.refused += finished.refused as u64;
        let Some(order) = &mut self.order else { return self.write(finished) };
        order.held.insert(finished.number, finished);
        while let Some(order) = &mut self.order
            && let Some(first) = order.held.first_entry().filter(|first| *first.key() == order.next)
        {
            let first = first.remove();
            order.next += 1;
            self.write(first)?;
        }
        Ok(())
    }

    fn write(&mut self, finished: Finished) -> Result<(), Failure> {
        if let Some((line, kind)) = finished.line {
            self.work.journal.append(&line)?;
            self.work.tally.add(kind);
        }
        Ok(())
    }

    /// Nothing more is begun. What is in flight may end, and each is written in its turn.
    fn stop(&mut self) {
        self.stops += 1;
        self.work.terms.stop.unsent.cancel();
    }

    /// What has ended and waits for one that nobody waits for any more: in order, past the gaps.
    fn write_held(&mut self) -> Result<(), Failure> {
        while let Some(finished) = self.tasks.try_join_next() {
            self.finish(finished)?;
        }
        let held = self.order.take().map(|order| order.held).unwrap_or_default();
        held.into_values().try_for_each(|finished| self.write(finished))
    }

    /// What was to be done again and was not has its old record again.
    fn put_back(&mut self) -> Result<(), Failure> {
        let old = self.work.journal.put_back()?;
        self.kept += old.total();
        self.work.tally.add_all(old);
        Ok(())
    }

    /// What is not in flight by now waits for its next turn.
    fn give_up_if_idle(&mut self) {
        if self.in_flight() == 0 {
            self.work.terms.stop.all.cancel();
        }
    }

    /// The client has a limit of its own, so that all are counted at its gate.
    fn in_flight(&self) -> usize {
        let snapshot = self.work.terms.client.snapshot();
        snapshot.gates.iter().filter(|gate| gate.key.is_empty()).map(|gate| gate.in_flight).sum()
    }

    fn tell(&mut self) {
        let snapshot = self.work.terms.client.snapshot();
        let whole = snapshot.gates.iter().filter(|gate| gate.key.is_empty());
        let lanes = || snapshot.gates.iter().flat_map(|gate| &gate.standing);
        let waiting: usize = lanes().map(|lane| lane.waiting).sum();
        let view = View {
            done: self.work.tally.total(),
            total: self.work.whole.as_ref().map(|(total, _)| *total),
            sent: self.work.count.load(Relaxed),
            allowed: self.work.quotas.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            in_flight: whole.map(|gate| gate.in_flight).sum(),
            waiting: lanes().next().map(|first| (waiting, why(first), first.wait)),
            pause: lanes().map(|lane| lane.wait.unwrap_or_default()).min().unwrap_or_default(),
            refused: self.refused,
            at_best: self.at_best(),
        };
        self.work.progress.tell(&view);
    }

    /// How long what is left takes at best, if each takes as much as the others.
    fn at_best(&self) -> Option<Duration> {
        let (total, costs) = self.work.whole.as_ref()?;
        let left = u128::from(self.left());
        let share = |(unit, amount): (&String, &u128)| (unit.clone(), amount * left / u128::from(*total).max(1));
        at_best(&self.work.quotas, &costs.iter().map(share).collect()).map(|(time, _)| time)
    }

    /// How many have no record, as far as that is known.
    fn left(&self) -> u64 {
        let outstanding = self.tasks.len() as u64;
        let total = self.work.whole.as_ref().map(|(total, _)| total.saturating_sub(self.work.tally.total()));
        total.unwrap_or(outstanding)
    }

    fn end(self) -> Ended {
        self.work.progress.end();
        let summary = Summary {
            kept: self.kept,
            sent: self.work.count.load(Relaxed),
            refused: self.refused,
            left: self.left(),
            took: self.begun.elapsed(),
            is_interrupted: self.stops > 0,
            tally: self.work.tally,
        };
        Ended { summary, failure: self.failure }
    }
}

/// Without how long, which is told in words.
fn why(lane: &LaneSnapshot) -> String {
    let why = lane.why.as_str();
    let without = lane.wait.and_then(|_| why.rsplit_once(", for "));
    without.map_or(why, |(what, _)| what).to_owned()
}

/// What this program's own parts should never do.
fn unfinished(error: impl std::fmt::Display) -> Failure {
    Failure::unfinished(format!("a record could not be made ({error}); run the same command again"))
}

/// Reads on a thread of its own, for a read of standard input cannot be broken off; as far ahead as there is room.
fn read_ahead(mut pending: Pending) -> Result<UnboundedReceiver<Read>, Failure> {
    let (put, take) = unbounded_channel();
    let room = Arc::new(Room::default());
    let read = move || {
        for number in 0.. {
            let read = match pending.advance() {
                Ok(None) => return,
                Ok(Some((todo, bytes))) => Ok((number, todo, room.take(bytes))),
                Err(failure) => Err(failure),
            };
            let is_last = read.is_err();
            if put.send(read).is_err() || is_last {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("reader".to_owned()).spawn(read);
    thread
        .map(|_| take)
        .map_err(|error| Failure::unfinished(format!("no thread can be begun ({error}); end other programs")))
}

/// Says each time that somebody wants the program to stop.
fn stops() -> UnboundedReceiver<()> {
    let (put, take) = unbounded_channel();
    let interrupts = put.clone();
    tokio::spawn(async move { while tokio::signal::ctrl_c().await.is_ok() && interrupts.send(()).is_ok() {} });
    #[cfg(unix)]
    tokio::spawn(async move {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut terminations) = signal(SignalKind::terminate()) else { return };
        while terminations.recv().await.is_some() && put.send(()).is_ok() {}
    });
    take
}
