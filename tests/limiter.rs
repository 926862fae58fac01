//! What whoever waits on a limiter can rely on: exact instants under paused time, and nobody held up by anybody.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{join_all, poll_immediate};
use futures_util::stream::FuturesUnordered;
use reqwest_throttle::{Context, Limiter, Limits, Permit, Priority, Quota, Reason, Refused};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A limiter whose burst of one is spent: the next goes after one interval.
fn drained(interval_ms: u64) -> Limiter {
    let limiter = Limiter::new(Quota::every(ms(interval_ms))).unwrap();
    drop(limiter.try_acquire().unwrap());
    limiter
}

/// A task that waits, and the milliseconds since `start` at which it went; `None` if it was refused.
fn waiter(limiter: &Limiter, context: Context, start: Instant) -> JoinHandle<Option<u128>> {
    let limiter = limiter.clone();
    tokio::spawn(async move {
        let went = limiter.wait(&context).await.ok();
        went.map(|()| start.elapsed().as_millis())
    })
}

/// Tasks that stand in the line in this order.
async fn waiters(limiter: &Limiter, count: usize, start: Instant) -> Vec<JoinHandle<Option<u128>>> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        tasks.push(waiter(limiter, Context::new(), start));
        yield_now().await;
    }
    tasks
}

async fn went(tasks: impl IntoIterator<Item = JoinHandle<Option<u128>>>) -> Vec<Option<u128>> {
    join_all(tasks).await.into_iter().map(Result::unwrap).collect()
}

fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn waiters_go_in_order_each_at_its_instant() {
    let (limiter, start) = (drained(100), Instant::now());
    let tasks = waiters(&limiter, 20, start).await;
    assert_eq!(went(tasks).await, (1..=20).map(|n| Some(n * 100)).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_window_of_bare_waits_counts_a_while_after_the_turn() {
    let (limiter, start) = (Limiter::new("2/s").unwrap(), Instant::now());
    let tasks = waiters(&limiter, 5, start).await;
    assert_eq!(went(tasks).await, [0, 0, 1_050, 1_050, 2_100].map(Some));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_leaves_the_line_and_the_others_move_up_exactly() {
    for leaving in 0..5 {
        let (limiter, start) = (drained(100), Instant::now());
        let mut tasks = waiters(&limiter, 5, start).await;
        sleep(ms(50)).await;
        tasks.remove(leaving).abort();
        assert_eq!(went(tasks).await, [100, 200, 300, 400].map(Some), "the {leaving}th left");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_fires_leaves_the_line_and_the_others_move_up_exactly() {
    let limiter = Limiter::new(Limits::new().quota("1 per 100ms burst 1").in_flight(1)).unwrap();
    let (permit, start) = (limiter.try_acquire().unwrap(), Instant::now());
    let goes = |context: Context| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire(&context).await.map(|_| start.elapsed().as_millis()) })
    };
    let hopeful = goes(Context::within(ms(150)));
    yield_now().await;
    let patient = goes(Context::new());
    let watched = tokio::spawn(async move {
        let refused = hopeful.await.unwrap().unwrap_err();
        (refused.reason, refused.in_flight, start.elapsed())
    });
    sleep(ms(151)).await;
    assert_eq!(watched.await.unwrap(), (Reason::Deadline, Some(1), ms(150)));
    drop(permit);
    assert_eq!(patient.await.unwrap().unwrap(), 151);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_cannot_be_met_is_refused_at_once_and_costs_nothing() {
    let (limiter, start) = (drained(10_000), Instant::now());
    let refused = limiter.wait(&Context::within(ms(3_000))).await.unwrap_err();
    assert_eq!((start.elapsed(), refused.reason, refused.wait), (ms(0), Reason::Deadline, Some(ms(10_000))));
    assert_eq!(refused.quota, Some(Quota::every(ms(10_000)).into()));
    limiter.wait(&Context::within(ms(12_000))).await.unwrap();
    assert_eq!(start.elapsed(), ms(10_000));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_over_five_minutes_without_having_asked_for_it() {
    let (limiter, start) = (drained(301_000), Instant::now());
    assert_eq!(limiter.wait(&Context::new()).await.unwrap_err().reason, Reason::Deadline);
    limiter.wait(&Context::within(Duration::MAX)).await.unwrap();
    assert_eq!(start.elapsed(), ms(301_000));
}

#[tokio::test(start_paused = true)]
async fn trying_takes_nothing_when_it_is_refused_and_says_how_long() {
    let limiter = Limiter::new("1 per 100ms burst 2").unwrap();
    let first = limiter.try_acquire();
    let second = limiter.try_acquire();
    assert!(first.is_ok() && second.is_ok());
    for _ in 0..100 {
        let refused = limiter.try_acquire().unwrap_err();
        assert_eq!((refused.reason, refused.wait), (Reason::WouldWait, Some(ms(100))));
    }
    sleep(ms(100)).await;
    assert!(limiter.try_acquire().is_ok());
}

#[test]
fn of_fifteen_threads_as_many_get_through_as_the_burst_lets() {
    let limiter = Limiter::new("1/h burst 5").unwrap();
    let went = thread::scope(|scope| {
        let tries: Vec<_> = (0..15).map(|_| scope.spawn(|| limiter.try_acquire().is_ok())).collect();
        tries.into_iter().map(|thread| thread.join().unwrap()).filter(|went| *went).count()
    });
    assert_eq!(went, 5);
}

#[tokio::test(start_paused = true)]
async fn trying_does_not_overtake_who_waits() {
    let limiter = Limiter::new(Limits::new().in_flight(1)).unwrap();
    for _ in 0..10_000 {
        let permit = limiter.try_acquire().unwrap();
        let context = Context::new();
        let mut waiting = pin!(limiter.acquire(&context));
        assert!(poll_immediate(waiting.as_mut()).await.is_none());
        drop(permit);
        assert_eq!(limiter.try_acquire().unwrap_err().reason, Reason::WouldWait);
        drop(waiting.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_bare_wait_is_refused_where_requests_in_flight_are_counted() {
    let limiter = Limiter::new(Limits::new().in_flight(1)).unwrap();
    assert_eq!(limiter.wait(&Context::new()).await.unwrap_err().reason, Reason::NeedsPermit);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_never_collected_goes_to_the_next() {
    let (limiter, start) = (drained(100), Instant::now());
    let context = Context::new();
    let mut unpolled = Box::pin(limiter.wait(&context));
    assert!(poll_immediate(unpolled.as_mut()).await.is_none());
    let next = waiter(&limiter, Context::new(), start);
    sleep(ms(150)).await;
    drop(unpolled);
    assert_eq!(next.await.unwrap(), Some(150));
}

/// A waiter that is alive, first in the line, and not polled: its `select!` is busy in the other branch.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_nobody_polls_delays_nobody() {
    let (limiter, start) = (drained(100), Instant::now());
    let context = Context::new();
    let mut asleep = pin!(limiter.wait(&context));
    tokio::select! {
        biased;
        _ = asleep.as_mut() => panic!("went before its time"),
        () = async {} => {}
    }
    let tasks = waiters(&limiter, 3, start).await;
    // The other branch is busy for ten seconds, and polls nobody.
    assert_eq!(went(tasks).await, [200, 300, 400].map(Some));
    sleep_until(start + ms(10_000)).await;
    asleep.await.unwrap();
    assert_eq!(start.elapsed(), ms(10_000));
}

/// Ten futures in a `select!` whose other branch is busy for a second: what was granted meanwhile does not all go at once.
#[tokio::test(start_paused = true)]
async fn grants_that_are_polled_late_do_not_go_all_at_once() {
    for (limit, expected) in [
        ("1 per 100ms burst 1", [0, 1_000, 1_100, 1_200, 1_300, 1_400, 1_500, 1_600, 1_700, 1_800]),
        ("2 per 100ms counted from send", [0, 0, 1_000, 1_000, 1_100, 1_100, 1_200, 1_200, 1_300, 1_300]),
    ] {
        let (limiter, start) = (Limiter::new(limit).unwrap(), Instant::now());
        let waits = async |_| {
            limiter.wait(&Context::new()).await.unwrap();
            start.elapsed().as_millis()
        };
        let mut all: FuturesUnordered<_> = (0..10).map(waits).collect();
        let mut went = Vec::new();
        while let Some(Some(at)) = poll_immediate(all.next()).await {
            went.push(at);
        }
        sleep(ms(1_000)).await;
        went.extend(all.collect::<Vec<_>>().await);
        assert_eq!(went, expected, "{limit}");
    }
}

/// A task ends its request and goes on computing; the other one goes all the same.
async fn ends_and_computes(permit: Permit, other: JoinHandle<Result<Duration, Refused>>) {
    let busy = tokio::spawn(async move {
        drop(permit);
        thread::sleep(ms(2_000));
    });
    let waited = other.await.unwrap().unwrap();
    assert!(waited < ms(1_500), "{waited:?}");
    busy.await.unwrap();
}

/// A worker that woke the driver, or spawned it, and goes on computing.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_task_that_computes_delays_nobody() {
    let limiter = Limiter::new("1 per 300ms").unwrap();
    let waits = || {
        let (limiter, start) = (limiter.clone(), Instant::now());
        tokio::spawn(async move { limiter.wait(&Context::new()).await.map(|()| start.elapsed()) })
    };
    // One ends a request, whose answer brings the next turn nearer.
    let permit = limiter.try_acquire().unwrap();
    let other = waits();
    sleep(ms(20)).await;
    ends_and_computes(permit, other).await;
    // One ends a request, and another has its slot.
    let slots = Limiter::new("1 in flight").unwrap();
    let (permit, start) = (slots.try_acquire().unwrap(), Instant::now());
    let next = slots.clone();
    let other = tokio::spawn(async move { next.acquire(&Context::new()).await.map(|_| start.elapsed()) });
    sleep(ms(20)).await;
    ends_and_computes(permit, other).await;
    // One is the first to wait, and does not.
    limiter.wait(&Context::new()).await.unwrap();
    let first = limiter.clone();
    let busy = tokio::spawn(async move {
        let mut first = Box::pin(first.wait(&Context::new()));
        assert!(poll_immediate(first.as_mut()).await.is_none());
        thread::sleep(ms(2_000));
    });
    sleep(ms(20)).await;
    let waited = waits().await.unwrap().unwrap();
    assert!(waited < ms(1_500), "{waited:?}");
    busy.await.unwrap();
}

/// More than is granted in one turn of the driver, and faster than timers tick.
#[tokio::test]
async fn a_fast_bucket_is_used() {
    let limiter = Limiter::builder("100000/s burst 1").max_waiting(20_000).build().unwrap();
    let tasks: Vec<_> = (0..20_000)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.wait(&Context::new()).await.unwrap() })
        })
        .collect();
    let start = Instant::now();
    join_all(tasks).await;
    let took = start.elapsed();
    assert!((ms(197)..ms(2_000)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_everybody_then_lets_one_go_first_and_then_the_steady_rate() {
    let (limiter, start) = (Limiter::new("1 per 100ms burst 5").unwrap(), Instant::now());
    limiter.pause_until(start + ms(1_000));
    assert_eq!(limiter.wait(&Context::within(ms(500))).await.unwrap_err().wait, Some(ms(1_000)));
    // Nobody reports an answer for a bare wait: the first holds up the others for a second.
    let tasks = waiters(&limiter, 3, start).await;
    assert_eq!(went(tasks).await, [1_000, 2_000, 2_000].map(Some));
}

#[tokio::test(start_paused = true)]
async fn other_limits_hold_for_those_who_wait() {
    let (limiter, start) = (drained(1_000), Instant::now());
    let tasks = waiters(&limiter, 3, start).await;
    sleep(ms(500)).await;
    // Half of one was there; the other half comes at the new rate.
    limiter.set_limits("1 per 100ms burst 1").unwrap();
    assert_eq!(limiter.set_limits("0/s").unwrap_err().value, "0/s");
    assert_eq!(went(tasks).await, [550, 650, 750].map(Some));
}

#[tokio::test(start_paused = true)]
async fn what_a_request_takes_is_counted_by_unit_and_settled() {
    let (limiter, start) = (Limiter::new("10/s burst 10, 1000 tokens/s burst 1000").unwrap(), Instant::now());
    let tokens = |amount| Context::new().cost("tokens", amount);
    let refused = limiter.acquire(&tokens(1_001)).await.unwrap_err();
    assert_eq!(
        (refused.reason, refused.quota.unwrap().to_string()),
        (Reason::CostExceedsQuota, "1000 tokens/s burst 1000".into())
    );
    let mut permit = limiter.acquire(&tokens(600)).await.unwrap();
    // It took less than thought, and another goes at once; then more than was there, and the next waits for it.
    permit.settle("tokens", 100);
    let mut more = limiter.acquire(&tokens(900)).await.unwrap();
    assert_eq!(start.elapsed(), ms(0));
    more.settle("tokens", 1_400);
    limiter.wait(&tokens(100)).await.unwrap();
    assert_eq!(start.elapsed(), ms(600));
    limiter.wait(&tokens(0)).await.unwrap();
    assert_eq!(start.elapsed(), ms(600));
}

#[tokio::test(start_paused = true)]
async fn with_nobody_waiting_no_task_exists() {
    let (limiter, before) = (drained(100), alive_tasks());
    limiter.wait(&Context::new()).await.unwrap();
    settled(before).await;
    // The driver sleeps until the far deadline of a waiter who leaves at once.
    let slots = Limiter::new(Limits::new().in_flight(1)).unwrap();
    let _held = slots.try_acquire().unwrap();
    let context = Context::within(ms(1_000_000));
    let mut leaving = Box::pin(slots.acquire(&context));
    assert!(poll_immediate(leaving.as_mut()).await.is_none());
    assert_eq!(alive_tasks(), before + 1, "one driver");
    let start = Instant::now();
    drop(leaving);
    settled(before).await;
    assert_eq!(start.elapsed(), ms(0));
}

/// A task that has nothing more to do needs a turn or two to end.
async fn settled(tasks: usize) {
    for _ in 0..10 {
        yield_now().await;
    }
    assert_eq!(alive_tasks(), tasks);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_who_give_up_after_half_a_second_leave_no_hole() {
    let (limiter, start) = (drained(10), Instant::now());
    let mut tasks = Vec::new();
    for n in 0..1_000 {
        let limiter = limiter.clone();
        tasks.push(tokio::spawn(async move {
            let context = Context::within(ms(1_000_000));
            let waiting = limiter.wait(&context);
            // Every second one is dropped after half a second, when fifty have gone.
            let patience = if n % 2 == 0 { ms(505) } else { ms(1_000_000) };
            timeout(patience, waiting).await.ok().map(|went| {
                went.unwrap();
                start.elapsed().as_millis()
            })
        }));
        yield_now().await;
    }
    let mut went: Vec<_> = went(tasks).await.into_iter().flatten().collect();
    went.sort_unstable();
    let expected: Vec<_> = (1..=went.len() as u128).map(|n| n * 10).collect();
    assert_eq!((went.len(), went), (525, expected));
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// A runtime whose task is the first in the line, and spawned the driver there. Real time: the clocks of two runtimes
/// cannot be paused together.
fn runtime_of_the_first(limiter: &Limiter) -> Runtime {
    let (runtime, first) = (current_thread(), limiter.clone());
    runtime.spawn(async move { first.wait(&Context::new()).await });
    runtime.block_on(async { sleep(ms(20)).await });
    runtime
}

fn assert_goes(waited: &mpsc::Receiver<Duration>) {
    let waited = waited.recv_timeout(Duration::from_secs(10)).expect("nobody drives the timer");
    assert!(waited < ms(2_000), "{waited:?}");
}

#[test]
fn a_runtime_that_ends_while_its_task_drives_the_timer_delays_nobody() {
    let limiter = drained(200);
    let dying = runtime_of_the_first(&limiter);
    let other = waits_on_its_own_runtime(&limiter);
    thread::sleep(ms(20));
    drop(dying);
    assert_goes(&other);
}

/// A current-thread runtime outside `block_on` is alive, and its tasks are not polled.
#[test]
fn a_runtime_that_nobody_polls_delays_nobody() {
    let limiter = drained(200);
    let idle = runtime_of_the_first(&limiter);
    assert_goes(&waits_on_its_own_runtime(&limiter));
    drop(idle);
}

fn waits_on_its_own_runtime(limiter: &Limiter) -> mpsc::Receiver<Duration> {
    let (limiter, (done, waited)) = (limiter.clone(), mpsc::channel());
    thread::spawn(move || {
        let start = std::time::Instant::now();
        current_thread().block_on(limiter.wait(&Context::new())).unwrap();
        done.send(start.elapsed()).unwrap();
    });
    waited
}

#[test]
fn without_a_runtime_one_goes_at_once_or_not_at_all() {
    let limiter = Limiter::new(Quota::every(ms(60_000))).unwrap();
    let context = Context::new();
    let poll = |future| futures_util::FutureExt::now_or_never(future).expect("it would wait for ever");
    assert!(poll(Box::pin(limiter.wait(&context))).is_ok());
    assert_eq!(poll(Box::pin(limiter.wait(&context))).unwrap_err().reason, Reason::NoRuntime);
}

/// A waker whose drop and whose wake use the limiter that it waits on, and panic.
#[tokio::test(start_paused = true)]
async fn a_waker_may_use_the_limiter_and_may_panic() {
    struct Nosy(Limiter, Arc<AtomicBool>);
    impl std::task::Wake for Nosy {
        fn wake(self: Arc<Self>) {
            let _ = self.0.try_acquire();
            self.1.store(true, SeqCst);
            panic!("a waker that panics");
        }
    }
    impl Drop for Nosy {
        fn drop(&mut self) {
            let _ = self.0.try_acquire();
        }
    }
    let (limiter, start, woken) = (drained(100), Instant::now(), Arc::new(AtomicBool::new(false)));
    let context = Context::new();
    let mut nosy = Box::pin(limiter.wait(&context));
    let waker = Arc::new(Nosy(limiter.clone(), Arc::clone(&woken))).into();
    assert!(nosy.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    drop(waker);
    // Another waker takes the place of the first, which is dropped.
    poll_fn(|cx| Poll::Ready(nosy.as_mut().poll(cx).is_pending())).await;
    let waker = Arc::new(Nosy(limiter.clone(), Arc::clone(&woken))).into();
    assert!(nosy.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    drop(waker);
    let next = waiter(&limiter, Context::new(), start);
    assert_eq!(next.await.unwrap(), Some(200));
    assert!(woken.load(SeqCst));
    nosy.await.unwrap();
}

#[test]
fn what_cannot_work_is_refused_when_it_is_built_with_value_and_remedy() {
    for (limits, value, remedy) in [
        (Limits::new().quota(Quota::per_second(0)), "0/s", "at least 1"),
        (Limits::new().quota("5 a second"), "5 a second", "as in `50/s`"),
        (Limits::new().quota(Quota::bucket(f64::NAN, 1)), "0/s burst 1", "at least 1"),
        (Limits::new().quota(Quota::bucket(10.0, 0)), "10/s burst 0", "burst of at least 1"),
        (Limits::new().in_flight(0), "0", "at least 1"),
    ] {
        let error = Limiter::new(limits).unwrap_err();
        assert_eq!(error.value, value);
        assert!(error.to_string().contains(value) && error.to_string().contains(remedy), "{error}");
    }
    assert!(Limiter::new("ten per second").is_err());
    assert!(Limiter::new(Limits::new()).unwrap().try_acquire().is_ok());
}

/// Sixteen workers through ten slots, with failures: none is lost, none too many, and it never stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_share_fewer_slots_without_overshoot_or_standstill() {
    let limiter = Limiter::new("10 in flight").unwrap();
    let (in_flight, most, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Instant::now());
    let last = Arc::new(Mutex::new((ended, Duration::ZERO)));
    let workers: Vec<_> = (0..16_u64)
        .map(|worker| {
            let (limiter, in_flight, most, last) = (limiter.clone(), in_flight.clone(), most.clone(), last.clone());
            tokio::spawn(async move {
                for task in 0..1_250 {
                    let permit = limiter.acquire(&Context::new()).await.unwrap();
                    most.fetch_max(in_flight.fetch_add(1, SeqCst) + 1, SeqCst);
                    match (worker + task) % 20 {
                        0 => {}
                        n if n % 2 == 0 => yield_now().await,
                        n => sleep(Duration::from_micros(n * 50)).await,
                    }
                    in_flight.fetch_sub(1, SeqCst);
                    drop(permit);
                    let mut last = last.lock().unwrap();
                    *last = (Instant::now(), last.1.max(last.0.elapsed()));
                }
            })
        })
        .collect();
    join_all(workers).await.into_iter().for_each(|worker| worker.unwrap());
    let longest = last.lock().unwrap().1;
    assert!(most.load(SeqCst) <= 10 && longest < ms(1_000), "{most:?} {longest:?}");
    assert_eq!(limiter.snapshot().gates[0].in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn the_more_urgent_go_first_and_flows_take_turns() {
    let (limiter, start) = (drained(100), Instant::now());
    let low = waiter(&limiter, Context::new().priority(Priority::Low), start);
    yield_now().await;
    let flows: Vec<_> = ["a", "a", "a", "b"].map(|flow| waiter(&limiter, Context::new().flow(flow), start)).into();
    yield_now().await;
    let high = waiter(&limiter, Context::new().priority(Priority::High), start);
    assert_eq!(high.await.unwrap(), Some(100));
    let turns: Vec<_> = join_all(flows).await.into_iter().map(|went| went.unwrap().unwrap()).collect();
    assert_eq!(turns, [200, 400, 500, 300], "b is not behind all of a");
    assert_eq!(low.await.unwrap(), Some(600));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_says_what_is_left_and_who_waits_for_what() {
    let limiter = drained(100);
    let waits = waiter(&limiter, Context::new().flow("tenant-7"), Instant::now());
    sleep(ms(40)).await;
    let text = limiter.snapshot().to_string();
    let (gate, lane) = text.split_once('\n').unwrap();
    assert_eq!(gate, "all: 0 left of 1 per 100ms burst 1, 0 in flight, 1 waiting");
    assert_eq!(lane.trim(), "1 normal of tenant-7: the limit is 1 per 100ms burst 1, for 60ms");
    waits.await.unwrap();
}

/// Callers that give up, some at the instant of their grant, some by their deadline, on all workers at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_thousand_tasks_with_random_patience_strand_nobody() {
    let limiter = Limiter::new("4000/s burst 5, 20 in flight").unwrap();
    let tasks: Vec<_> = (0..4_000_u64)
        .map(|n| {
            let (limiter, random) = (limiter.clone(), n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
            tokio::spawn(async move {
                let patience = Duration::from_micros(random % 900_000);
                let context = if n % 3 == 0 { Context::within(patience) } else { Context::new() };
                let permit = if n % 3 == 1 {
                    timeout(patience, limiter.acquire(&context)).await.ok()?
                } else {
                    limiter.acquire(&context).await
                };
                let permit = permit.ok()?;
                sleep(Duration::from_micros(random % 2_000)).await;
                drop(permit);
                Some(())
            })
        })
        .collect();
    let went = timeout(ms(30_000), join_all(tasks)).await.expect("somebody is left");
    let went = went.into_iter().filter(|went| went.as_ref().unwrap().is_some()).count();
    let gate = &limiter.snapshot().gates[0];
    assert!(went >= 1_333 && (gate.in_flight, gate.waiting) == (0, 0), "{went} {gate}");
}

/// Three times what the rate lets through, for ten seconds, by callers that time out; then less than it lets through.
#[tokio::test(start_paused = true)]
async fn after_a_spike_of_callers_that_time_out_every_second_is_fully_used() {
    let limiter = Limiter::new("100/s burst 1").unwrap();
    let (start, seconds) = (Instant::now(), Arc::new(Mutex::new([0; 25])));
    let mut tasks = Vec::new();
    let mut arrive = async |every: Duration, until: Duration| {
        while start.elapsed() < until {
            let (limiter, seconds) = (limiter.clone(), seconds.clone());
            tasks.push(tokio::spawn(async move {
                if let Ok(Ok(())) = timeout(ms(500), limiter.wait(&Context::new())).await {
                    let second = usize::try_from(start.elapsed().as_secs()).unwrap();
                    seconds.lock().unwrap()[second] += 1;
                }
            }));
            sleep(every).await;
        }
    };
    arrive(Duration::from_micros(3_333), ms(10_000)).await;
    arrive(Duration::from_micros(12_500), ms(20_000)).await;
    join_all(tasks).await;
    let seconds = *seconds.lock().unwrap();
    // A timer wakes at the next millisecond; a second begins and ends with one.
    assert!(seconds[..10].iter().all(|went| (99..=102).contains(went)), "{seconds:?}");
    assert!(seconds[13..20].iter().all(|went| (76..=81).contains(went)), "and nobody waits behind them: {seconds:?}");
}

/// The rest of a million go in order, once every other has left.
#[tokio::test(start_paused = true)]
async fn of_a_million_who_wait_half_leave_and_the_others_go_in_order() {
    let limiter = Limiter::builder("1000000/s burst 1").max_waiting(1_000_000).build().unwrap();
    drop(limiter.try_acquire().unwrap());
    let order = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..1_000_000)
        .map(|n: usize| {
            let (waits, order) = (limiter.wait(&Context::new()), order.clone());
            tokio::spawn(async move { waits.await.map(|()| (n, order.fetch_add(1, SeqCst))) })
        })
        .collect();
    while limiter.snapshot().gates[0].waiting < 1_000_000 {
        yield_now().await;
    }
    tasks.iter().skip(1).step_by(2).for_each(JoinHandle::abort);
    let mut went = 0;
    for task in tasks {
        if let Ok(turn) = task.await {
            let (n, place) = turn.unwrap();
            went += usize::from(n / 2 == place);
        }
    }
    assert_eq!(went, 500_000, "each in its place");
}

/// How many of 400 who all ask at once go within each of the first minutes.
async fn gone_in_minutes(limits: &str, minutes: usize) -> Vec<usize> {
    let (limiter, start) = (Limiter::new(limits).unwrap(), Instant::now());
    let within = Context::within(Duration::from_secs(3_600));
    let tasks = (0..400).map(|_| {
        let (limiter, within) = (limiter.clone(), within.clone());
        async move {
            let permit = limiter.acquire(&within).await.unwrap();
            drop(permit);
            start.elapsed()
        }
    });
    let went = join_all(tasks).await;
    let minute = |nth: usize| went.iter().filter(|at| at.as_nanos() / 60_000_000_000 == nth as u128).count();
    let crowded = |from: &Duration| went.iter().filter(|at| (*from..*from + ms(60_000)).contains(*at)).count();
    let most = went.iter().map(crowded).max().unwrap();
    (0..minutes).map(minute).chain([most]).collect()
}

#[tokio::test(start_paused = true)]
async fn sixty_a_minute_means_what_is_written() {
    assert_eq!(gone_in_minutes("60/min", 3).await, [60, 60, 60, 60], "in any minute no more than 60");
    assert_eq!(gone_in_minutes("60/min burst 1", 3).await, [60, 60, 60, 60], "one a second");
    assert_eq!(gone_in_minutes("60/min burst 60", 3).await, [119, 60, 60, 119], "a bucket holds its burst beside");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_many_have_come_and_gone_the_queue_counts_those_who_are_there() {
    let limiter = Limiter::builder(Limits::new().in_flight(1)).max_waiting(50).build().unwrap();
    let come_and_go = |seed| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..300 {
                let patience = Duration::from_micros(random.u64(0..2_000));
                let permit = timeout(patience, limiter.acquire(&Context::new())).await;
                yield_now().await;
                drop(permit);
            }
        })
    };
    for task in join_all((0..64).map(come_and_go)).await {
        task.unwrap();
    }
    assert!(limiter.snapshot().gates.iter().all(|gate| gate.in_flight == 0));
    let _held = limiter.try_acquire().unwrap();
    let waiting: Vec<_> = (0..50).map(|_| limiter.reserve(&Context::new()).unwrap()).collect();
    assert_eq!(limiter.reserve(&Context::new()).unwrap_err().reason, Reason::QueueFull);
    drop(waiting);
    assert!(limiter.reserve(&Context::new()).is_ok());
}
