//! Is the strict upstream strict? The judge at exact instants, then the server over real sockets.

#![allow(clippy::unchecked_time_subtraction, reason = "a negative span of time has to fail the test")]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::{Client, ClientBuilder, Method, Response, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use support::eventually;
use support::judge::{Judge, Limit, Verdict, busiest_fixed, worst_window};
use support::upstream::{Answer, BODY_KEPT, Body, Builder, Fate, Jitter, OtherClient, RetryAfter, Upstream};

const SECOND: Duration = Duration::from_secs(1);

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn nanos(count: u64) -> Duration {
    Duration::from_nanos(count)
}

mod judging {
    use super::*;

    fn refused_for(judge: &mut Judge, now: Duration) -> Duration {
        match judge.arrive(now) {
            Verdict::Refused { free_after: Some(wait), .. } => wait,
            other => panic!("{other:?} at {now:?}"),
        }
    }

    fn accept(judge: &mut Judge, instants: &[Duration]) {
        for &now in instants {
            assert_eq!(judge.arrive(now), Verdict::Accepted, "at {now:?}");
        }
    }

    #[test]
    fn sliding_frees_a_place_exactly_one_window_later() {
        let mut judge = Judge::new([Limit::sliding(3, SECOND)]);
        accept(&mut judge, &[millis(0), millis(10), millis(20)]);
        assert_eq!(refused_for(&mut judge, millis(20)), millis(980));
        assert_eq!(refused_for(&mut judge, millis(999)), millis(1));
        assert_eq!(refused_for(&mut judge, SECOND - nanos(1)), nanos(1));
        accept(&mut judge, &[SECOND]);
        assert_eq!(refused_for(&mut judge, SECOND), millis(10));
        accept(&mut judge, &[millis(1010)]);
    }

    #[test]
    fn sliding_sees_the_burst_across_an_edge_that_fixed_allows() {
        let instants = [millis(999), millis(999), millis(1000), millis(1000)];
        accept(&mut Judge::new([Limit::fixed(2, SECOND)]), &instants);
        let mut sliding = Judge::new([Limit::sliding(2, SECOND)]);
        accept(&mut sliding, &instants[..2]);
        assert_eq!(refused_for(&mut sliding, instants[2]), millis(999));
    }

    #[test]
    fn fixed_begins_again_at_each_edge() {
        let mut judge = Judge::new([Limit::fixed(2, SECOND)]);
        accept(&mut judge, &[millis(400), millis(500)]);
        assert_eq!(refused_for(&mut judge, millis(500)), millis(500));
        assert_eq!(refused_for(&mut judge, millis(999)), millis(1));
        assert_eq!(refused_for(&mut judge, SECOND - nanos(1)), nanos(1));
        accept(&mut judge, &[SECOND, SECOND]);
        assert_eq!(refused_for(&mut judge, SECOND), SECOND);
        accept(&mut judge, &[millis(7300), millis(7300)]);
        assert_eq!(refused_for(&mut judge, millis(7300)), millis(700));
    }

    #[test]
    fn fixed_edges_move_with_the_phase() {
        for phase in [millis(250), millis(5250)] {
            let mut judge = Judge::new([Limit::fixed(1, SECOND).phase(phase)]);
            accept(&mut judge, &[millis(0)]);
            assert_eq!(refused_for(&mut judge, millis(249)), millis(1));
            accept(&mut judge, &[millis(250)]);
            assert_eq!(refused_for(&mut judge, millis(1249)), millis(1));
            accept(&mut judge, &[millis(1250)]);
        }
    }

    #[test]
    fn bucket_refills_exactly_though_the_period_does_not_divide() {
        let mut judge = Judge::new([Limit::bucket(3, SECOND, 2)]);
        accept(&mut judge, &[millis(0), millis(0)]);
        assert_eq!(refused_for(&mut judge, millis(0)), nanos(333_333_334));
        assert_eq!(refused_for(&mut judge, nanos(333_333_333)), nanos(1));
        accept(&mut judge, &[nanos(333_333_334)]);
        assert_eq!(refused_for(&mut judge, nanos(666_666_666)), nanos(1));
        accept(&mut judge, &[nanos(666_666_667)]);
        assert_eq!(refused_for(&mut judge, SECOND - nanos(1)), nanos(1));
        accept(&mut judge, &[SECOND]);
    }

    #[test]
    fn bucket_of_sevenths_drifts_by_nothing_in_a_million_tokens() {
        let mut judge = Judge::new([Limit::bucket(7, SECOND, 2)]);
        accept(&mut judge, &[millis(0); 2]);
        for token in 1..=1_000_000_u64 {
            let due = nanos((token * 1_000_000_000).div_ceil(7));
            assert_eq!(refused_for(&mut judge, due - nanos(1)), nanos(1), "token {token}");
            accept(&mut judge, &[due]);
        }
    }

    #[test]
    fn bucket_holds_no_more_than_its_burst() {
        let mut judge = Judge::new([Limit::bucket(10, SECOND, 4)]);
        accept(&mut judge, &[60 * SECOND; 4]);
        assert_eq!(refused_for(&mut judge, 60 * SECOND), millis(100));
    }

    #[test]
    fn in_flight_is_freed_by_an_end_and_not_by_time() {
        let mut judge = Judge::new([Limit::in_flight(2)]);
        accept(&mut judge, &[millis(0), millis(0)]);
        let refused = Verdict::Refused { limit: "2 in flight".into(), free_after: None };
        assert_eq!(judge.arrive(3600 * SECOND), refused);
        judge.ended(3600 * SECOND);
        accept(&mut judge, &[3600 * SECOND]);
        assert_eq!((judge.in_flight(), judge.arrive(3600 * SECOND)), (2, refused));
    }

    #[test]
    fn a_refusal_counts_nowhere() {
        for limit in [Limit::sliding(1, SECOND), Limit::fixed(1, SECOND), Limit::bucket(1, SECOND, 1)] {
            let mut judge = Judge::new([limit]);
            accept(&mut judge, &[millis(0)]);
            for early in 1..1000 {
                assert_eq!(refused_for(&mut judge, millis(early)), millis(1000 - early));
            }
            accept(&mut judge, &[SECOND]);
        }
    }

    #[test]
    fn several_limits_take_all_or_nothing() {
        let wide = Limit::sliding(3, 10 * SECOND).named("wide");
        let narrow = Limit::bucket(1, SECOND, 1).named("narrow");
        let mut judge = Judge::new([wide, narrow, Limit::in_flight(9)]);
        accept(&mut judge, &[millis(0)]);
        for _ in 0..5 {
            let refused = Verdict::Refused { limit: "narrow".into(), free_after: Some(SECOND) };
            assert_eq!(judge.arrive(millis(0)), refused);
        }
        accept(&mut judge, &[SECOND, 2 * SECOND]);
        let refused = Verdict::Refused { limit: "wide".into(), free_after: Some(8 * SECOND) };
        assert_eq!((judge.arrive(2 * SECOND), judge.in_flight()), (refused, 3));
        accept(&mut judge, &[10 * SECOND]);
    }

    #[test]
    fn a_limit_of_zero_is_never_free() {
        for limit in
            [Limit::sliding(0, SECOND), Limit::fixed(0, SECOND), Limit::bucket(1, SECOND, 0), Limit::in_flight(0)]
        {
            let verdict = Judge::new([limit.named("shut")]).arrive(60 * SECOND);
            assert_eq!(verdict, Verdict::Refused { limit: "shut".into(), free_after: None });
        }
    }

    #[test]
    fn without_limits_everything_is_accepted() {
        accept(&mut Judge::new([]), &[Duration::ZERO; 100]);
    }

    #[test]
    #[should_panic(expected = "time ran backwards")]
    fn time_does_not_run_backwards() {
        accept(&mut Judge::new([]), &[millis(2), millis(1)]);
    }

    #[test]
    #[should_panic(expected = "without having been accepted")]
    fn nothing_ends_twice() {
        let mut judge = Judge::new([]);
        accept(&mut judge, &[millis(0)]);
        judge.ended(millis(0));
        judge.ended(millis(0));
    }

    #[test]
    fn the_worst_window_is_half_open_and_takes_any_order() {
        assert_eq!(worst_window(&[], SECOND), 0);
        assert_eq!(worst_window(&[millis(5)], SECOND), 1);
        assert_eq!(worst_window(&[millis(0), SECOND], SECOND), 1);
        assert_eq!(worst_window(&[SECOND - nanos(1), millis(0)], SECOND), 2);
        let arrivals = [2500, 0, 1600, 900, 1000, 1700].map(millis);
        assert_eq!(worst_window(&arrivals, SECOND), 4);
        assert_eq!(worst_window(&arrivals, nanos(1)), 1);
        assert_eq!(worst_window(&[millis(3); 7], nanos(1)), 7);
    }

    #[test]
    fn the_busiest_fixed_window_is_aligned_to_the_start() {
        assert_eq!(busiest_fixed(&[], SECOND), 0);
        assert_eq!(busiest_fixed(&[millis(1000), millis(999)], SECOND), 1);
        assert_eq!(busiest_fixed(&[1999, 0, 1000, 2000].map(millis), SECOND), 2);
    }

    /// How many lie in `(end - window, end]`, by looking at each.
    fn ending_at(arrivals: &[Duration], end: Duration, window: Duration) -> usize {
        let inside = |at: &&Duration| **at <= end && **at + window > end;
        arrivals.iter().filter(inside).count()
    }

    fn random_arrivals(random: &mut fastrand::Rng) -> Vec<Duration> {
        let mut arrivals: Vec<_> = (0..60).map(|_| nanos(random.u64(0..200))).collect();
        arrivals.sort_unstable();
        arrivals
    }

    #[test]
    fn sliding_agrees_with_a_count_of_everything() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..1000 {
            let (n, window) = (random.usize(1..9), nanos(random.u64(1..60)));
            let mut judge = Judge::new([Limit::sliding(n, window)]);
            let mut accepted = Vec::new();
            for now in random_arrivals(&mut random) {
                let fits = ending_at(&accepted, now, window) < n;
                assert_eq!(judge.arrive(now) == Verdict::Accepted, fits, "{now:?} of {judge:?}");
                if fits {
                    accepted.push(now);
                }
            }
            assert!(worst_window(&accepted, window) <= n);
        }
    }

    #[test]
    fn the_worst_window_agrees_with_a_look_at_each() {
        let mut random = fastrand::Rng::with_seed(12);
        for _ in 0..1000 {
            let arrivals = random_arrivals(&mut random);
            let window = nanos(random.u64(1..60));
            let worst = arrivals.iter().map(|&end| ending_at(&arrivals, end, window)).max();
            assert_eq!(Some(worst_window(&arrivals, window)), worst);
        }
    }

    /// For any mix of limits: refused until the very nanosecond that a refusal names.
    #[test]
    fn a_refusal_knows_when_it_would_be_accepted() {
        let mut random = fastrand::Rng::with_seed(13);
        for _ in 0..1000 {
            let mut judge = Judge::new([
                Limit::sliding(random.usize(1..9), nanos(random.u64(1..60))),
                Limit::fixed(random.usize(1..9), nanos(random.u64(1..60))),
                Limit::bucket(random.u32(1..9), nanos(random.u64(1..60)), random.u32(1..9)),
            ]);
            for now in random_arrivals(&mut random) {
                if judge.clone().arrive(now) == Verdict::Accepted {
                    accept(&mut judge, &[now]);
                    continue;
                }
                let free_after = refused_for(&mut judge, now);
                let free_at = now + free_after;
                assert_eq!(refused_for(&mut judge.clone(), free_at - nanos(1)), nanos(1));
                accept(&mut judge.clone(), &[free_at]);
            }
        }
    }
}

/// Whatever hangs fails after a while.
fn client_builder() -> ClientBuilder {
    Client::builder().no_proxy().timeout(support::PATIENCE)
}

fn client() -> Client {
    client_builder().build().expect("a client")
}

fn h2_client() -> Client {
    client_builder().http2_prior_knowledge().build().expect("a client")
}

/// The connection broke; nobody just lost patience.
fn assert_broken(error: &reqwest::Error) {
    assert!(!error.is_timeout() && !error.is_status(), "{error:?}");
}

async fn get(client: &Client, url: String) -> Response {
    client.get(url).send().await.expect("an answer")
}

/// Gets `/`, reads all of the body, and returns the status.
async fn status(client: &Client, upstream: &Upstream) -> u16 {
    let response = get(client, upstream.url()).await;
    let status = response.status().as_u16();
    response.bytes().await.expect("the whole body");
    status
}

async fn statuses(client: &Client, upstream: &Upstream, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(status(client, upstream).await);
    }
    statuses
}

fn retry_after(response: &Response) -> Option<&str> {
    response.headers().get("retry-after").map(|value| value.to_str().expect("ASCII"))
}

mod strictness {
    use super::*;

    /// `n` fit at 0; one more is refused until 1 ms before `free_at` and accepted at `free_at`.
    async fn one_too_many(limit: Limit, n: usize, free_at: Duration) {
        for client in [client(), h2_client()] {
            let upstream = Upstream::builder().limit(limit.clone()).manual_clock().start().await;
            assert_eq!(statuses(&client, &upstream, n).await, vec![200; n]);
            upstream.advance(free_at - millis(1));
            assert_eq!(status(&client, &upstream).await, 429);
            upstream.advance(millis(1));
            assert_eq!(status(&client, &upstream).await, 200);
            assert_eq!((upstream.accepted(), upstream.refused()), (n + 1, 1));
            let mut instants = vec![Duration::ZERO; n];
            instants.push(free_at);
            assert_eq!(upstream.accepted_at(), instants);
        }
    }

    #[tokio::test]
    async fn sliding_catches_one_too_many_by_a_millisecond() {
        one_too_many(Limit::sliding(5, SECOND), 5, SECOND).await;
    }

    #[tokio::test]
    async fn fixed_catches_one_too_many_by_a_millisecond() {
        one_too_many(Limit::fixed(5, SECOND), 5, SECOND).await;
        let phased = Limit::fixed(5, SECOND).phase(millis(300));
        one_too_many(phased, 5, millis(300)).await;
    }

    #[tokio::test]
    async fn bucket_catches_one_too_many_by_a_millisecond() {
        one_too_many(Limit::bucket(10, SECOND, 5), 5, millis(100)).await;
    }

    #[tokio::test]
    async fn refused_requests_are_not_counted() {
        let limit = Limit::sliding(2, SECOND);
        let upstream = Upstream::builder().limit(limit).manual_clock().start().await;
        let client = client();
        assert_eq!(statuses(&client, &upstream, 2).await, [200; 2]);
        upstream.advance(millis(999));
        assert_eq!(statuses(&client, &upstream, 20).await, [429; 20]);
        upstream.advance(millis(1));
        assert_eq!(statuses(&client, &upstream, 3).await, [200, 200, 429]);
        let fates = upstream.arrivals().iter().filter(|one| one.fate == Some(Fate::Refused)).count();
        assert_eq!((upstream.refused(), fates), (21, 21));
        assert_eq!(upstream.peak_in_flight(), 1);
    }

    #[tokio::test]
    async fn the_one_in_flight_too_many_waits_for_a_body_to_end() {
        for client in [client(), h2_client()] {
            let builder = Upstream::builder().limit(Limit::in_flight(3)).manual_clock();
            let upstream = builder.body(Body::chunks(2, 10, SECOND)).start().await;
            let mut open = Vec::new();
            for _ in 0..3 {
                open.push(get(&client, upstream.url()).await);
                upstream.advance(millis(100));
            }
            assert_eq!((status(&client, &upstream).await, upstream.in_flight()), (429, 3));
            upstream.advance(millis(1699));
            assert_eq!((status(&client, &upstream).await, upstream.in_flight()), (429, 3));
            upstream.advance(millis(1));
            let body = open.remove(0).bytes().await.expect("the whole body");
            assert_eq!(body.len(), 20);
            let next = get(&client, upstream.url()).await;
            assert_eq!(next.status(), 200);
            assert_eq!((upstream.peak_in_flight(), upstream.refused()), (3, 2));
        }
    }

    #[tokio::test]
    async fn the_real_clock_judges_too() {
        let limit = Limit::sliding(10, millis(1500));
        let upstream = Upstream::builder().limit(limit).start().await;
        let client = client();
        let asks = (0..10).map(|_| status(&client, &upstream));
        assert_eq!(join_all(asks).await, [200; 10]);
        assert_eq!(status(&client, &upstream).await, 429);
        let first = *upstream.accepted_at().iter().max().expect("ten");
        eventually(|| upstream.now() >= first + millis(1500)).await;
        assert_eq!(statuses(&client, &upstream, 10).await, [200; 10]);
        assert_eq!(worst_window(&upstream.accepted_at(), millis(1500)), 10);
    }

    #[tokio::test]
    async fn retry_after_says_what_was_asked_for() {
        let modes = [
            (RetryAfter::None, [None, None]),
            (RetryAfter::Seconds(7), [Some("7"), Some("7")]),
            (RetryAfter::Exact, [Some("3"), Some("1")]),
        ];
        for (mode, expected) in modes {
            let builder = Upstream::builder().limit(Limit::sliding(1, millis(2001)));
            let upstream = builder.retry_after(mode).manual_clock().start().await;
            let client = client();
            let accepted = get(&client, upstream.url()).await;
            assert_eq!((accepted.status().as_u16(), retry_after(&accepted)), (200, None));
            let refused = get(&client, upstream.url()).await;
            assert_eq!(retry_after(&refused), expected[0]);
            upstream.advance(millis(2000));
            let refused = get(&client, upstream.url()).await;
            assert_eq!(retry_after(&refused), expected[1]);
            assert_eq!(refused.text().await.expect("a body"), "1 in any 2.001s");
        }
    }

    #[tokio::test]
    async fn in_flight_refusals_say_one_second() {
        let builder = Upstream::builder().limit(Limit::in_flight(0));
        let upstream = builder.retry_after(RetryAfter::Exact).start().await;
        assert_eq!(retry_after(&get(&client(), upstream.url()).await), Some("1"));
    }
}

mod other_clients {
    use super::*;

    #[tokio::test]
    async fn they_take_from_the_same_limit_at_exact_instants() {
        let limit = Limit::sliding(5, SECOND);
        let upstream = Upstream::builder().limit(limit).manual_clock().start().await;
        upstream.other_client(OtherClient::At(vec![millis(300), millis(100), millis(200)]));
        upstream.advance(millis(250));
        assert_eq!(statuses(&client(), &upstream, 4).await, [200, 200, 200, 429]);
        upstream.advance(millis(850));
        assert_eq!(status(&client(), &upstream).await, 200);
        assert_eq!(status(&client(), &upstream).await, 429);
        assert_eq!(upstream.others_accepted(), [millis(100), millis(200)]);
        assert_eq!((upstream.others_refused(), upstream.refused()), (1, 2));
    }

    #[tokio::test]
    async fn at_a_rate_they_come_evenly_from_when_they_began() {
        let limit = Limit::sliding(100, SECOND);
        let upstream = Upstream::builder().limit(limit).manual_clock().start().await;
        upstream.advance(SECOND);
        upstream.other_client(OtherClient::PerSecond(3));
        upstream.other_client(OtherClient::PerSecond(1));
        upstream.advance(SECOND);
        let instants = [1_333_333_333, 1_666_666_666, 2_000_000_000, 2_000_000_000].map(nanos);
        assert_eq!(upstream.others_accepted(), instants);
    }

    #[tokio::test]
    async fn on_the_real_clock_they_come_by_themselves() {
        let upstream = Upstream::builder().limit(Limit::sliding(3, 60 * SECOND)).start().await;
        upstream.other_client(OtherClient::PerSecond(1000));
        eventually(|| upstream.others_refused() > 10).await;
        assert_eq!(upstream.others_accepted().len(), 3);
        assert_eq!(status(&client(), &upstream).await, 429);
    }
}

mod delays {
    use super::*;

    const BEFORE: std::ops::RangeInclusive<Duration> = millis(10)..=millis(60);
    const AFTER: std::ops::RangeInclusive<Duration> = millis(30)..=millis(90);
    /// What a busy machine may add.
    const LATE: Duration = Duration::from_secs(2);

    fn jittery(seed: u64) -> Builder {
        Upstream::builder().jitter_before(BEFORE).jitter_after(AFTER).seed(seed)
    }

    #[tokio::test]
    async fn jitter_is_slept_before_and_after_counting() {
        let upstream = jittery(7).start().await;
        let client = client();
        join_all((0..20).map(|_| status(&client, &upstream))).await;
        let arrivals = upstream.arrivals();
        assert_eq!(arrivals.len(), 20);
        for one in arrivals {
            let counted = one.counted.expect("counted");
            let before = counted - one.came;
            let after = one.answered.expect("answered") - counted;
            assert!(one.jitter.before <= before && before < one.jitter.before + LATE);
            assert!(one.jitter.after <= after && after < one.jitter.after + LATE);
        }
    }

    /// The jitter of 200 requests, by order of arrival.
    async fn drawn(seed: u64) -> Vec<Jitter> {
        let upstream = jittery(seed).manual_clock().start().await;
        statuses(&client(), &upstream, 200).await;
        upstream.arrivals().iter().map(|one| one.jitter).collect()
    }

    #[tokio::test]
    async fn jitter_lies_in_its_ranges_and_is_repeated_by_its_seed() {
        let jitter = drawn(7).await;
        assert!(jitter.iter().all(|one| BEFORE.contains(&one.before) && AFTER.contains(&one.after)));
        let shortest = jitter.iter().map(|one| one.before).min().expect("some");
        let longest = jitter.iter().map(|one| one.before).max().expect("some");
        assert!(shortest < millis(15) && longest > millis(55), "{shortest:?} to {longest:?}");
        assert_eq!(drawn(7).await, jitter);
        assert_ne!(drawn(8).await, jitter);
    }

    #[tokio::test]
    async fn under_a_manual_clock_jitter_takes_no_time() {
        let hour = 3600 * SECOND;
        let builder = Upstream::builder().jitter_before(hour..=hour).jitter_after(hour..=hour);
        let upstream = builder.manual_clock().start().await;
        assert_eq!(status(&client(), &upstream).await, 200);
        let one = upstream.arrivals().remove(0);
        let instants = [Some(one.came), one.counted, one.answered, one.ended];
        assert_eq!(instants, [Some(Duration::ZERO); 4]);
    }

    #[tokio::test]
    async fn a_slow_body_ends_after_its_last_chunk() {
        for client in [client(), h2_client()] {
            let body = Body::chunks(4, 1000, millis(30));
            let upstream = Upstream::builder().body(body).start().await;
            let response = get(&client, upstream.url()).await;
            assert_eq!(response.content_length(), Some(4000));
            assert_eq!(upstream.in_flight(), 1);
            assert_eq!(response.bytes().await.expect("the whole body").len(), 4000);
            // No waiting here: who has read the end is known to have ended.
            assert_eq!(upstream.in_flight(), 0);
            let one = upstream.arrivals().remove(0);
            let lasted = one.ended.expect("ended") - one.answered.expect("answered");
            assert!(millis(120) <= lasted && lasted < millis(120) + LATE, "{lasted:?}");
        }
    }

    #[tokio::test]
    async fn scripted_delays_wait_for_the_manual_clock() {
        let upstream = Upstream::builder().manual_clock().start().await;
        upstream.script([Answer::status(200).delay(SECOND)]);
        let client = client();
        let answer = async {
            eventually(|| upstream.in_flight() == 1).await;
            upstream.advance(millis(999));
            tokio::task::yield_now().await;
            assert_eq!(upstream.arrivals()[0].answered, None);
            upstream.advance(millis(1));
        };
        let (status, ()) = tokio::join!(status(&client, &upstream), answer);
        assert_eq!((status, upstream.arrivals()[0].answered), (200, Some(SECOND)));
    }
}

mod endings {
    use super::*;

    /// A client that reads the end and comes back at once finds its place free, every time.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_fast_client_is_judged_fairly() {
        for client in [client(), h2_client()] {
            for body in [Body::bytes("ok"), Body::empty(), Body::bytes(vec![0; 300_000])] {
                let builder = Upstream::builder().limit(Limit::in_flight(1)).body(body);
                let upstream = builder.start().await;
                assert_eq!(statuses(&client, &upstream, 150).await, [200; 150]);
                assert_eq!((upstream.refused(), upstream.peak_in_flight()), (0, 1));
            }
        }
    }

    #[tokio::test]
    async fn a_head_alone_ends_when_it_is_answered() {
        let upstream = Upstream::builder().limit(Limit::in_flight(1)).start().await;
        let client = client();
        upstream.script([Answer::status(204).judged()]);
        assert_eq!(get(&client, upstream.url()).await.status(), 204);
        assert_eq!(upstream.in_flight(), 0);
        let head = client.head(upstream.url()).send().await.expect("an answer");
        assert_eq!(head.status(), 200);
        assert_eq!(head.headers()["content-length"], "2");
        assert_eq!(upstream.in_flight(), 0);
        assert_eq!(upstream.refused(), 0);
        assert!(upstream.arrivals().iter().all(|one| one.ended >= one.answered));
    }

    #[tokio::test]
    async fn a_dropped_body_is_no_longer_in_flight() {
        for client in [client(), h2_client()] {
            let body = Body::chunks(3, 10, 3600 * SECOND);
            let upstream = Upstream::builder().body(body).start().await;
            let response = get(&client, upstream.url()).await;
            assert_eq!(upstream.in_flight(), 1);
            drop(response);
            eventually(|| upstream.in_flight() == 0).await;
            let one = upstream.arrivals().remove(0);
            assert_eq!(one.status, Some(200));
            assert!(one.ended.is_some());
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_before_the_head_is_noticed() {
        for client in [client(), h2_client()] {
            let hour = 3600 * SECOND;
            let upstream = Upstream::builder().jitter_after(hour..=hour).start().await;
            let url = upstream.url();
            let asks = tokio::spawn(async move { client.get(url).send().await });
            eventually(|| upstream.in_flight() == 1).await;
            asks.abort();
            eventually(|| upstream.in_flight() == 0).await;
            let one = upstream.arrivals().remove(0);
            assert_eq!((one.answered, one.status, one.fate), (None, None, Some(Fate::Accepted)));
            assert!(one.ended > one.counted);
        }
    }

    #[tokio::test]
    async fn who_leaves_during_the_jitter_before_is_not_counted() {
        let hour = 3600 * SECOND;
        let upstream = Upstream::builder().jitter_before(hour..=hour).start().await;
        let url = upstream.url();
        let asks = tokio::spawn(async move { client().get(url).send().await });
        eventually(|| upstream.arrivals().len() == 1).await;
        asks.abort();
        eventually(|| upstream.arrivals()[0].ended.is_some()).await;
        let one = upstream.arrivals().remove(0);
        assert_eq!((one.counted, one.fate, upstream.peak_in_flight()), (None, None, 0));
    }

    #[tokio::test]
    async fn a_reset_is_a_real_one() {
        let upstream = Upstream::builder().start().await;
        upstream.script([Answer::reset(), Answer::close()]);
        let error = raw_exchange(&upstream).await.expect_err("a reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(raw_exchange(&upstream).await.expect("a clean end"), "");
        eventually(|| upstream.in_flight() == 0 && upstream.open_connections() == 0).await;
        assert!(raw_exchange(&upstream).await.expect("an answer").ends_with("\r\n\r\nok"));
        assert_eq!(upstream.connections(), 3);
    }

    /// One request on its own connection, and everything that comes back.
    async fn raw_exchange(upstream: &Upstream) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(upstream.addr()).await?;
        let request = b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        tokio::time::timeout(support::PATIENCE, read).await.expect("an end in time")?;
        Ok(answer)
    }

    #[tokio::test]
    async fn a_reset_is_an_error_for_either_protocol() {
        for client in [client(), h2_client()] {
            let upstream = Upstream::builder().limit(Limit::in_flight(1)).start().await;
            upstream.script([Answer::reset().judged()]);
            let error = client.get(upstream.url()).send().await.expect_err("a reset");
            assert_broken(&error);
            eventually(|| upstream.in_flight() == 0).await;
            assert_eq!(status(&client, &upstream).await, 200);
            let one = upstream.arrivals().remove(0);
            assert_eq!((one.status, one.fate), (None, Some(Fate::Accepted)));
        }
    }

    #[tokio::test]
    async fn a_hang_lasts_until_the_client_goes() {
        for client in [client(), h2_client()] {
            let upstream = Upstream::builder().start().await;
            upstream.script([Answer::hang()]);
            let asked = client.get(upstream.url()).timeout(millis(200)).send().await;
            assert!(asked.expect_err("a timeout").is_timeout());
            eventually(|| upstream.in_flight() == 0).await;
            assert_eq!(upstream.arrivals()[0].answered, None);
        }
    }

    #[tokio::test]
    async fn a_cut_body_is_cut_where_it_was_said() {
        for client in [client(), h2_client()] {
            for cut in [0, 5, 15, 30] {
                let upstream = Upstream::builder().start().await;
                let body = Body::chunks(3, 10, Duration::ZERO);
                upstream.script([Answer::status(200).body(body).cut_after(cut)]);
                let mut response = get(&client, upstream.url()).await;
                let mut read = 0;
                let end = loop {
                    match response.chunk().await {
                        Ok(Some(chunk)) => read += chunk.len(),
                        end => break end,
                    }
                };
                assert_eq!(read, cut);
                // What is whole in HTTP/1.1 has no end that could fail.
                assert!(end.is_err() || cut == 30, "{cut}");
                end.as_ref().err().into_iter().for_each(assert_broken);
                eventually(|| upstream.in_flight() == 0).await;
            }
        }
    }
}

mod scripts {
    use super::*;

    #[tokio::test]
    async fn answers_come_in_order_and_by_path() {
        let upstream = Upstream::builder().limit(Limit::sliding(1, 3600 * SECOND)).start().await;
        upstream.script([
            Answer::status(503).header("retry-after", "2").header("x-two", "1"),
            Answer::status(418).on("/tea").body(Body::bytes("short and stout")),
            Answer::status(500),
        ]);
        let client = client();
        let first = get(&client, upstream.at("/a?b=c")).await;
        assert_eq!((first.status().as_u16(), retry_after(&first)), (503, Some("2")));
        assert_eq!(get(&client, upstream.at("/a")).await.status(), 500);
        assert_eq!((status(&client, &upstream).await, upstream.script_left()), (200, 1));
        let tea = get(&client, upstream.at("/tea")).await;
        assert_eq!(tea.status(), 418);
        assert_eq!(tea.text().await.expect("a body"), "short and stout");
        assert_eq!(status(&client, &upstream).await, 429);
        assert_eq!((upstream.accepted(), upstream.refused(), upstream.script_left()), (1, 1, 0));
    }

    #[tokio::test]
    async fn a_scripted_429_is_no_refusal_by_the_limits() {
        let upstream = Upstream::builder().limit(Limit::sliding(1, SECOND)).start().await;
        upstream.script([Answer::status(429)]);
        assert_eq!(statuses(&client(), &upstream, 2).await, [429, 200]);
        assert_eq!((upstream.accepted(), upstream.refused()), (1, 0));
        assert_eq!(upstream.arrivals()[0].fate, Some(Fate::Scripted));
    }

    #[tokio::test]
    async fn judged_answers_ask_the_limits_first() {
        let limit = Limit::sliding(1, SECOND);
        let upstream = Upstream::builder().limit(limit).manual_clock().start().await;
        upstream.script([Answer::status(500).judged(), Answer::status(501).judged()]);
        let client = client();
        assert_eq!(statuses(&client, &upstream, 2).await, [500, 429]);
        upstream.advance(SECOND);
        assert_eq!(statuses(&client, &upstream, 1).await, [501]);
        assert_eq!((upstream.accepted(), upstream.refused()), (2, 1));
    }
}

mod records {
    use super::*;

    #[tokio::test]
    async fn a_request_is_recorded_whole() {
        let upstream = Upstream::builder().start().await;
        let ask = client().post(upstream.at("/a/b?c=d")).header("x-key", "k").body("hello");
        assert_eq!(ask.send().await.expect("an answer").text().await.expect("a body"), "ok");
        let one = upstream.arrivals().remove(0);
        assert_eq!((one.method, one.version), (Method::POST, Version::HTTP_11));
        assert_eq!((one.path.as_str(), one.query.as_deref()), ("/a/b", Some("c=d")));
        assert_eq!((one.headers["x-key"].as_bytes(), &one.body[..]), (&b"k"[..], &b"hello"[..]));
        assert_eq!((one.body_length, one.status, one.connection), (5, Some(200), 1));
        assert!(Some(one.came) <= one.counted && one.counted <= one.answered);
        assert!(one.answered <= one.ended && one.ended <= Some(upstream.now()));
    }

    #[tokio::test]
    async fn of_a_big_body_the_beginning_is_kept() {
        for client in [client(), h2_client()] {
            let upstream = Upstream::builder().start().await;
            let sent = vec![b'x'; 3 * BODY_KEPT + 17];
            let response = client.post(upstream.url()).body(sent.clone()).send().await;
            assert_eq!(response.expect("an answer").status(), 200);
            let one = upstream.arrivals().remove(0);
            assert_eq!(one.body_length, sent.len() as u64);
            assert_eq!(one.body, sent[..BODY_KEPT]);
        }
    }

    #[tokio::test]
    async fn http2_shares_one_connection_and_is_recorded_as_such() {
        let limit = Limit::in_flight(8);
        let upstream = Upstream::builder().limit(limit).manual_clock().start().await;
        upstream.script((0..8).map(|_| Answer::status(200).delay(SECOND)));
        let client = h2_client();
        let together = async {
            eventually(|| upstream.in_flight() == 8).await;
            upstream.advance(SECOND);
        };
        let asks = join_all((0..8).map(|_| status(&client, &upstream)));
        let (statuses, ()) = tokio::join!(asks, together);
        assert_eq!(statuses, [200; 8]);
        let arrivals = upstream.arrivals();
        assert!(arrivals.iter().all(|one| one.version == Version::HTTP_2));
        let on_one = arrivals.iter().filter(|one| one.connection == arrivals[0].connection).count();
        assert_eq!((on_one, upstream.connections(), upstream.peak_in_flight()), (8, 1, 8));
    }

    /// HTTP/2 would hold back by itself what is more than 200; the judge has to see it.
    #[tokio::test]
    async fn http2_does_not_throttle_for_the_limits() {
        let upstream = Upstream::builder().limit(Limit::in_flight(300)).start().await;
        let client = h2_client();
        assert_eq!(status(&client, &upstream).await, 200);
        upstream.script((0..300).map(|_| Answer::hang().judged()));
        let hanging = join_all((0..300).map(|_| client.get(upstream.url()).send()));
        let one_more = async {
            eventually(|| upstream.in_flight() == 300).await;
            status(&client, &upstream).await
        };
        tokio::select! {
            _ = hanging => panic!("they hang"),
            status = one_more => assert_eq!(status, 429),
        }
        eventually(|| upstream.in_flight() == 0).await;
        assert_eq!((upstream.connections(), status(&client, &upstream).await), (1, 200));
    }

    #[tokio::test]
    async fn connections_are_numbered_and_counted() {
        let upstream = Upstream::builder().start().await;
        let (one, two) = (client(), client());
        for client in [&one, &one, &two, &one] {
            status(client, &upstream).await;
        }
        let numbers: Vec<_> = upstream.arrivals().iter().map(|one| one.connection).collect();
        assert_eq!(numbers, [1, 1, 2, 1]);
        assert_eq!((upstream.connections(), upstream.open_connections()), (2, 2));
        drop(one);
        eventually(|| upstream.open_connections() == 1).await;
        assert_eq!(upstream.connections(), 2);
    }

    #[tokio::test]
    async fn a_reset_of_the_records_keeps_what_the_limits_know() {
        let upstream = Upstream::builder()
            .limit(Limit::sliding(2, 3600 * SECOND))
            .body(Body::chunks(2, 10, SECOND))
            .manual_clock()
            .start()
            .await;
        let client = client();
        let open = get(&client, upstream.url()).await;
        upstream.reset_records();
        assert_eq!((upstream.arrivals().len(), upstream.accepted()), (0, 0));
        assert_eq!((upstream.in_flight(), upstream.peak_in_flight()), (1, 1));
        let second = get(&client, upstream.url()).await;
        assert_eq!(status(&client, &upstream).await, 429);
        assert_eq!((upstream.accepted(), upstream.refused(), upstream.in_flight()), (1, 1, 2));
        drop(open);
        eventually(|| upstream.in_flight() == 1).await;
        assert_eq!(upstream.arrivals()[0].ended, None);
        drop(second);
        eventually(|| upstream.arrivals()[0].ended.is_some()).await;
    }
}

mod stopping {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_drop_stops_everything_and_does_not_wait() {
        for client in [client(), h2_client()] {
            let upstream = Upstream::builder().body(Body::chunks(9, 9, 3600 * SECOND)).start().await;
            let body = get(&client, upstream.url()).await;
            upstream.script([Answer::hang()]);
            let url = upstream.url();
            let hung = tokio::spawn(async move { client.get(url).send().await });
            eventually(|| upstream.in_flight() == 2).await;
            let (begun, address) = (Instant::now(), upstream.addr());
            drop(upstream);
            assert!(begun.elapsed() < SECOND);
            assert_broken(&body.bytes().await.expect_err("a body without an end"));
            assert_broken(&hung.await.expect("no panic").expect_err("no answer"));
            while TcpStream::connect(address).await.is_ok() {
                assert!(begun.elapsed() < support::PATIENCE, "still listening");
                tokio::time::sleep(millis(2)).await;
            }
        }
    }

    #[tokio::test]
    async fn a_server_that_panicked_fails_the_test() {
        for client in [client(), h2_client()] {
            let upstream = Upstream::builder().start().await;
            upstream.script([Answer::panic()]);
            client.get(upstream.url()).send().await.expect_err("no answer");
            eventually(|| upstream.in_flight() == 0).await;
            assert!(catch_unwind(AssertUnwindSafe(|| drop(upstream))).is_err());
        }
    }

    #[tokio::test]
    async fn a_test_that_fails_already_is_left_alone() {
        let upstream = Upstream::builder().start().await;
        upstream.script([Answer::panic()]);
        client().get(upstream.url()).send().await.expect_err("no answer");
        let failed = catch_unwind(AssertUnwindSafe(move || {
            let _upstream = upstream;
            panic!("the test's own reason");
        }));
        let reason = failed.expect_err("the panic");
        assert_eq!(reason.downcast_ref(), Some(&"the test's own reason"));
    }
}
