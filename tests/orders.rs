//! All orders of what can happen to a few who wait: polls, cancels, grants, endings, the hand-over of the driver to another
//! runtime, a close. Whatever the order, nobody who may go is left, nothing is granted twice, and in the end nothing is
//! held.
//!
//! Everything that the limiter does happens under one lock; so the order in which these steps take it is all that there is
//! to try.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Cx, Poll, Wake, Waker};
use std::time::Duration;

use reqwest_throttle::{Context, Limiter, Permit, Reason, Refused};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

type Waiting = Pin<Box<dyn Future<Output = Result<Permit, Refused>>>>;

const WAITERS: usize = 3;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Somebody is polled, on one of two runtimes.
    Poll(usize, usize),
    Drop(usize),
    Cancel(usize),
    /// Whoever has a permit ends.
    End,
    /// Time goes by, and one runtime's driver runs.
    Time(usize),
    /// A runtime dies, and its driver with it.
    Die(usize),
    Pause,
    Close,
}

/// Who waits, and what became of them.
struct World {
    runtimes: [Option<Runtime>; 2],
    limiter: Limiter,
    token: CancellationToken,
    waiting: [Option<Waiting>; WAITERS],
    permits: Vec<Permit>,
    /// Whom a token would cancel.
    tied: usize,
    closed: bool,
}

struct Ignore;

impl Wake for Ignore {
    fn wake(self: Arc<Self>) {}
}

impl World {
    fn new() -> Self {
        let runtime = || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (runtimes, token) = ([runtime(), runtime()].map(Some), CancellationToken::new());
        let limiter = {
            let _in = runtimes[0].as_ref().unwrap().enter();
            Limiter::new("1 per 10ms burst 1, 1 in flight").unwrap()
        };
        let (waiting, tied) = ([const { None }; WAITERS], 1);
        Self { runtimes, limiter, token, waiting, permits: Vec::new(), tied, closed: false }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Poll(who, runtime) => self.poll(who, runtime),
            Step::Drop(who) => drop(self.waiting[who].take()),
            Step::Cancel(who) => {
                self.tied = who;
                self.token.cancel();
            }
            Step::End => self.within(0, |world| world.permits.clear()),
            Step::Time(runtime) => self.time(runtime),
            Step::Die(runtime) => drop(self.runtimes[runtime].take()),
            Step::Pause => self.within(0, |world| {
                world.limiter.pause_until(tokio::time::Instant::now() + Duration::from_millis(25));
            }),
            Step::Close => {
                self.closed = true;
                self.within(0, |world| world.limiter.close());
            }
        }
    }

    /// Does something where the clock is: each runtime that is paused has its own, so all of it is told to one.
    fn within(&mut self, runtime: usize, act: impl FnOnce(&mut Self)) {
        let handle = self.runtimes[runtime].as_ref().map(|runtime| runtime.handle().clone());
        let _in = handle.as_ref().map(|handle| handle.enter());
        act(self);
    }

    fn poll(&mut self, who: usize, runtime: usize) {
        if self.runtimes[runtime].is_none() {
            return;
        }
        self.within(runtime, |world| {
            let context = Context::new().cancel_on(&world.token);
            let context = if who == 1 { context } else { Context::new() };
            let limiter = world.limiter.clone();
            let waiting = world.waiting[who].get_or_insert_with(|| Box::pin(limiter.acquire(&context)));
            let waker = Waker::from(Arc::new(Ignore));
            if let Poll::Ready(decided) = waiting.as_mut().poll(&mut Cx::from_waker(&waker)) {
                world.waiting[who] = None;
                match decided {
                    Ok(permit) => world.permits.push(permit),
                    Err(refused) => assert!(matches!(refused.reason, Reason::Cancelled | Reason::Closed), "{refused}"),
                }
            }
        });
        assert!(self.permits.len() <= 1, "two in flight");
    }

    fn time(&mut self, runtime: usize) {
        if let Some(runtime) = &self.runtimes[runtime] {
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(12)).await });
        }
    }

    /// Whoever is left gets a turn, or is refused because it was closed or cancelled.
    fn end(mut self, steps: &[Step]) {
        for _ in 0..40 {
            if self.waiting.iter().all(Option::is_none) {
                break;
            }
            self.permits.clear();
            for runtime in 0..2 {
                self.time(runtime);
                (0..WAITERS).filter(|who| self.waiting[*who].is_some()).collect::<Vec<_>>().into_iter().for_each(
                    |who| {
                        self.poll(who, runtime);
                    },
                );
            }
        }
        let alive = self.runtimes.iter().any(Option::is_some);
        assert!(!alive || self.waiting.iter().all(Option::is_none), "somebody is left after {steps:?}");
        self.permits.clear();
        self.waiting = [const { None }; WAITERS];
        let gates = self.limiter.snapshot().gates;
        assert!(gates.iter().all(|gate| gate.in_flight == 0 && gate.waiting == 0), "something is held after {steps:?}");
    }
}

/// All sequences of these steps up to a length, each in a world of its own.
fn try_all(steps: &[Step], length: usize) -> usize {
    let count = steps.len().pow(u32::try_from(length).unwrap());
    for mut number in 0..count {
        let sequence: Vec<_> = (0..length)
            .map(|_| {
                let step = steps[number % steps.len()];
                number /= steps.len();
                step
            })
            .collect();
        let mut world = World::new();
        for step in &sequence {
            world.take(*step);
        }
        world.end(&sequence);
    }
    count
}

#[test]
fn in_every_order_of_polls_cancels_and_grants_nobody_is_left() {
    let steps = [
        Step::Poll(0, 0),
        Step::Poll(1, 0),
        Step::Poll(2, 0),
        Step::Drop(0),
        Step::Cancel(1),
        Step::End,
        Step::Time(0),
    ];
    assert_eq!(try_all(&steps, 6), 117_649);
}

#[test]
fn in_every_order_of_deaths_and_hand_overs_nobody_is_left() {
    let steps =
        [Step::Poll(0, 0), Step::Poll(0, 1), Step::Poll(2, 1), Step::Die(0), Step::Time(1), Step::End, Step::Drop(2)];
    assert_eq!(try_all(&steps, 5), 16_807);
}

#[test]
fn in_every_order_of_a_close_and_a_pause_nobody_is_left() {
    let steps = [Step::Poll(0, 0), Step::Poll(1, 0), Step::Pause, Step::Close, Step::Drop(0), Step::End, Step::Time(0)];
    assert_eq!(try_all(&steps, 5), 16_807);
}
