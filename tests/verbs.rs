//! Every verb of the limiter by exact instants, under paused time: what it takes, what it gives back, and when.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use reqwest_throttle::{Context, Limiter, Permit, Reason, Refused};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A limiter whose burst of one is spent: the next goes after 100 ms.
fn drained() -> Limiter {
    let limiter = Limiter::new("1 per 100ms burst 1").unwrap();
    drop(limiter.try_acquire().unwrap());
    limiter
}

/// A task that waits for a permit, and when it had it.
fn acquire(limiter: &Limiter, context: &Context, start: Instant) -> JoinHandle<Result<(Permit, u128), Refused>> {
    let asked = limiter.acquire(context);
    tokio::spawn(async move { asked.await.map(|permit| (permit, start.elapsed().as_millis())) })
}

async fn at(waiting: JoinHandle<Result<(Permit, u128), Refused>>) -> Result<u128, Reason> {
    waiting.await.unwrap().map(|(_, at)| at).map_err(|refused| refused.reason)
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_a_place_in_the_line_that_can_be_asked_given_up_and_awaited() {
    let (limiter, start) = (drained(), Instant::now());
    let context = Context::new();
    let [first, second, third] = [(); 3].map(|()| limiter.reserve(&context).unwrap());
    assert_eq!([first.delay(), second.delay(), third.delay()], [ms(100), ms(200), ms(300)]);
    assert_eq!(limiter.try_acquire().unwrap_err().reason, Reason::WouldWait, "nobody overtakes a reservation");
    first.cancel();
    assert_eq!([second.delay(), third.delay()], [ms(100), ms(200)], "those behind move up");
    limiter.set_limits("1 per 50ms burst 1").unwrap();
    assert_eq!(third.delay(), ms(100), "what limits there are is what counts");
    let permit = third.into_future();
    let second = second.await.unwrap();
    assert_eq!((start.elapsed(), second.waited()), (ms(50), ms(50)));
    drop(permit.await.unwrap());
    assert_eq!(start.elapsed(), ms(100));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_refused_at_once_for_what_a_permit_is_and_late_for_the_rest() {
    let limiter = drained();
    let refused = |context: &Context| limiter.reserve(context).map(drop).unwrap_err().reason;
    assert_eq!(refused(&Context::within(ms(50))), Reason::Deadline);
    assert_eq!(refused(&Context::new().cost("requests", 2)), Reason::CostExceedsQuota);
    let reserved = limiter.reserve(&Context::within(ms(150))).unwrap();
    limiter.pause_until(Instant::now() + ms(1_000));
    assert_eq!(reserved.await.unwrap_err().reason, Reason::Deadline);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_nobody_awaits_holds_its_slot_and_its_drop_frees_all() {
    let limiter = Limiter::new("1 in flight").unwrap();
    let permit = limiter.try_acquire().unwrap();
    let reserved = limiter.reserve(&Context::new()).unwrap();
    drop(permit);
    sleep(ms(1_000)).await;
    assert!(limiter.try_acquire().is_err(), "its turn has come, and it is in flight");
    assert_eq!(reserved.delay(), Duration::ZERO);
    drop(reserved);
    assert!(limiter.try_acquire().is_ok());
    assert_eq!(limiter.snapshot().gates[0].in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn who_awaits_a_reservation_long_after_its_turn_waits_again() {
    let (limiter, start) = (Limiter::new("1 per 100ms burst 1").unwrap(), Instant::now());
    let late = limiter.reserve(&Context::new()).unwrap();
    sleep(ms(10_000)).await;
    drop(limiter.try_acquire().unwrap());
    drop(late.await.unwrap());
    assert_eq!(start.elapsed(), ms(10_100), "and not both at once");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_token_leaves_the_line_at_once_and_takes_nothing() {
    let (limiter, start, token) = (drained(), Instant::now(), CancellationToken::new());
    let cancelled = acquire(&limiter, &Context::new().cancel_on(&token), start);
    yield_now().await;
    let next = acquire(&limiter, &Context::new(), start);
    sleep(ms(40)).await;
    token.cancel();
    assert_eq!(at(cancelled).await, Err(Reason::Cancelled));
    assert_eq!(start.elapsed(), ms(40));
    assert_eq!(at(next).await, Ok(100));
    sleep(ms(500)).await;
    let refused = limiter.acquire(&Context::new().cancel_on(&token)).await.unwrap_err();
    assert_eq!(refused.reason, Reason::Cancelled, "cancelled before it asked");
    assert!(limiter.try_acquire().is_ok(), "nothing was taken");
    let refused = limiter.acquire(&Context::new().cancel_on(&token).cost("requests", 5)).await.unwrap_err();
    assert_eq!(refused.reason, Reason::CostExceedsQuota, "what is never possible comes first");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_cancelled_at_the_instant_of_the_grant_gives_the_grant_back() {
    let (limiter, start, token) = (drained(), Instant::now(), CancellationToken::new());
    let cancelled = acquire(&limiter, &Context::new().cancel_on(&token), start);
    yield_now().await;
    let next = acquire(&limiter, &Context::new(), start);
    let (cancelled, cancel) = tokio::join!(cancelled, async {
        sleep_until(start + ms(100)).await;
        token.cancel();
    });
    let () = cancel;
    let went = cancelled.unwrap().is_ok();
    assert_eq!(at(next).await, Ok(if went { 200 } else { 100 }));
}

#[tokio::test(start_paused = true)]
async fn no_more_wait_than_may_and_nobody_longer() {
    let limiter = Limiter::builder("1 per 100ms burst 1").max_waiting(2).max_wait(ms(250)).build().unwrap();
    let start = Instant::now();
    drop(limiter.try_acquire().unwrap());
    let waiting = [(); 2].map(|()| acquire(&limiter, &Context::new(), start));
    yield_now().await;
    let full = limiter.acquire(&Context::new()).await.unwrap_err();
    // One deadline is nearer than that, one request could never go: those are said first.
    assert_eq!(full.reason, Reason::Deadline);
    let full = limiter.acquire(&Context::within(ms(10_000))).await.unwrap_err();
    assert_eq!((full.reason, full.ahead), (Reason::QueueFull, 2));
    assert_eq!(
        limiter.acquire(&Context::within(ms(10_000)).cost("requests", 2)).await.unwrap_err().reason,
        Reason::CostExceedsQuota
    );
    for (waiting, went) in waiting.into_iter().zip([100, 200]) {
        assert_eq!(at(waiting).await, Ok(went));
    }
}

#[tokio::test(start_paused = true)]
async fn closing_refuses_all_who_wait_at_once_and_leaves_the_permits() {
    let limiter = Limiter::builder("1 in flight").max_waiting(100_000).build().unwrap();
    let permit = limiter.try_acquire().unwrap();
    let start = Instant::now();
    let waiting: Vec<_> = (0..5_000).map(|_| acquire(&limiter, &Context::new(), start)).collect();
    yield_now().await;
    limiter.key("another").close();
    let refused = join_all(waiting).await;
    assert!(refused.into_iter().all(|refused| refused.unwrap().unwrap_err().reason == Reason::Closed));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(limiter.acquire(&Context::new()).await.unwrap_err().reason, Reason::Closed);
    assert_eq!(limiter.try_acquire().unwrap_err().reason, Reason::Closed);
    drop(permit);
    assert_eq!(limiter.snapshot().gates[0].in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn draining_lets_nobody_in_and_everybody_out() {
    let (limiter, start) = (Limiter::new("1 in flight, 1 per 100ms burst 1").unwrap(), Instant::now());
    let permit = limiter.try_acquire().unwrap();
    let waiting = acquire(&limiter, &Context::new(), start);
    yield_now().await;
    let drained = tokio::spawn({
        let limiter = limiter.clone();
        async move { (limiter.drain(Instant::now() + ms(10_000)).await, start.elapsed()) }
    });
    yield_now().await;
    assert_eq!(limiter.try_acquire().unwrap_err().reason, Reason::Closed);
    sleep(ms(300)).await;
    drop(permit);
    assert_eq!(at(waiting).await, Ok(300), "who waits still goes");
    assert_eq!(drained.await.unwrap(), (true, ms(300)), "and its permit has ended");
    assert!(limiter.drain(Instant::now()).await, "once more is no different");
}

#[tokio::test(start_paused = true)]
async fn at_its_deadline_a_drain_closes() {
    let (limiter, start) = (Limiter::new("1 in flight").unwrap(), Instant::now());
    let permit = limiter.try_acquire().unwrap();
    let waiting = acquire(&limiter, &Context::new(), start);
    yield_now().await;
    assert!(!limiter.drain(start + ms(500)).await);
    assert_eq!(start.elapsed(), ms(500));
    assert_eq!(at(waiting).await, Err(Reason::Closed));
    drop(permit);
    assert!(limiter.drain(Instant::now()).await);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_second_says_why_and_only_once() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = told.clone();
    let limiter = Limiter::builder("1 per 2500ms burst 1")
        .on_wait(move |waits| listener.lock().unwrap().push((waits.to_string(), waits.waited, waits.at_least)))
        .build()
        .unwrap();
    drop(limiter.try_acquire().unwrap());
    let start = Instant::now();
    assert_eq!(at(acquire(&limiter.key("quick"), &Context::new(), start)).await, Ok(0));
    let waiting = [(); 2].map(|()| acquire(&limiter, &Context::new(), start));
    for (waiting, went) in waiting.into_iter().zip([2_500, 5_000]) {
        assert_eq!(at(waiting).await, Ok(went));
    }
    let told = told.lock().unwrap();
    assert_eq!(
        told.iter().map(|told| (told.1, told.2)).collect::<Vec<_>>(),
        [(ms(1_000), ms(1_500)), (ms(1_000), ms(4_000))]
    );
    let text = "waits since 1s, with 1 ahead: the limit is 1 per 2500ms burst 1, for 1.5s; 4s more at least";
    assert_eq!(told[1].0, text);
}

#[tokio::test(start_paused = true)]
async fn keys_are_counted_by_themselves_and_share_what_the_limiter_is() {
    let limiter = Limiter::builder("1 per 100ms burst 1").max_keys(2).build().unwrap();
    let _held = [limiter.key("a").try_acquire().unwrap(), limiter.key("b").try_acquire().unwrap()];
    assert!(limiter.key("a").try_acquire().is_err());
    let refused = limiter.key("c").try_acquire().unwrap_err();
    assert_eq!((refused.reason, refused.limit.as_str()), (Reason::TooManyKeys, "c"));
    assert_eq!(Limiter::builder("1/s").max_keys(0).build().unwrap_err().field, "max_keys");
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_a_pause_recalls_is_given_back_and_one_that_was_sent_is_not() {
    let limiter = Limiter::new("1 per 100ms burst 3").unwrap();
    let (mut sent, mut unsent) = (limiter.try_acquire().unwrap(), limiter.try_acquire().unwrap());
    assert!(!sent.recalled());
    limiter.pause_until(Instant::now() + ms(1_000));
    assert!(unsent.recalled());
    unsent.give_back();
    sent.answered();
    drop(sent);
    let start = Instant::now();
    assert_eq!(at(acquire(&limiter, &Context::new(), start)).await, Ok(1_000));
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_is_there_for_the_next_at_once() {
    let (limiter, start) = (Limiter::new("2 per 1000ms").unwrap(), Instant::now());
    let (kept, unsent) = (limiter.try_acquire().unwrap(), limiter.try_acquire().unwrap());
    let mut waiting = Box::pin(limiter.acquire(&Context::new()));
    assert!(waiting.as_mut().now_or_never().is_none());
    sleep(ms(10)).await;
    unsent.give_back();
    assert!(waiting.await.is_ok());
    assert_eq!(start.elapsed(), ms(10));
    drop(kept);
}

#[tokio::test(start_paused = true)]
async fn a_try_can_cost_more_and_takes_all_or_nothing() {
    let limiter = Limiter::new("1 per 100ms burst 5, 10 tokens/s").unwrap();
    let context = |requests, tokens| Context::new().cost("requests", requests).cost("tokens", tokens);
    drop(limiter.try_acquire_with(&context(3, 8)).unwrap());
    let refused = limiter.try_acquire_with(&context(1, 3)).unwrap_err();
    assert_eq!((refused.reason, refused.quota.unwrap().to_string()), (Reason::WouldWait, "10 tokens/s".to_owned()));
    drop(limiter.try_acquire_with(&context(2, 2)).unwrap());
    assert_eq!(limiter.try_acquire_with(&context(6, 0)).unwrap_err().reason, Reason::CostExceedsQuota);
}

struct Noted;

impl std::task::Wake for Noted {
    fn wake(self: std::sync::Arc<Self>) {}
}

#[tokio::test(start_paused = true)]
async fn of_whoever_is_cancelled_nothing_is_kept() {
    let limiter = Limiter::new("1/min").unwrap();
    drop(limiter.try_acquire().unwrap());
    let (token, noted) = (CancellationToken::new(), std::sync::Arc::new(Noted));
    let waker = std::task::Waker::from(std::sync::Arc::clone(&noted));
    let mut waiting = Box::pin(limiter.wait(&Context::new().cancel_on(&token)));
    assert!(waiting.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    token.cancel();
    assert!(waiting.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_ready());
    drop((waiting, waker));
    assert_eq!(std::sync::Arc::strong_count(&noted), 1);
}
