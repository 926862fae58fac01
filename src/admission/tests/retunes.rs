//! Other limits while grants are out, somebody waits, or the gate is paused.

use super::*;

fn set(bench: &mut Bench, limits: &str) {
    bench.core.set_limits(0, limits.parse().unwrap(), at(bench.now));
}

/// How many single requests go at this instant.
fn burst(bench: &mut Bench, ms: u64) -> usize {
    bench.now = ms;
    (0..1_000).take_while(|_| bench.try_ask().is_ok()).count()
}

#[test]
fn a_quota_that_stays_keeps_its_own_wherever_it_stands_in_the_list() {
    for (before, after) in [
        ("10/s, 20/h", "20/h, 10/s"),
        ("10/s, 20/h", "20/h"),
        ("20/h", "10/s, 20/h"),
        ("1/h burst 20, 10/s burst 10", "10/s burst 10, 1/h burst 20"),
        ("10/s, 20/h", "11/s, 20/h"),
        ("10/s, 20/h", "21/h, 10/s"),
    ] {
        let mut bench = Bench::new(before);
        let used: usize = (0..10).map(|n| burst(&mut bench, n * 2_000)).sum();
        assert!((20..=21).contains(&used), "{before}: {used}");
        bench.now = 20_000;
        set(&mut bench, after);
        let more: usize = (10..60).map(|n| burst(&mut bench, n * 2_000)).sum();
        assert!(more <= 1, "{before}, then {after}: {more} more in the same hour");
    }
}

#[test]
fn changing_the_kind_of_a_quota_to_and_fro_mints_nothing() {
    let mut bench = Bench::new("10/h burst 10");
    assert_eq!(burst(&mut bench, 0), 10);
    for n in 0..99 {
        set(&mut bench, if n % 2 == 0 { "10/h" } else { "10/h burst 10" });
        assert_eq!(burst(&mut bench, 0), 0);
    }
}

/// A window that begins empty is not short of a place for ever.
#[test]
fn a_window_in_the_place_of_a_bucket_has_all_of_its_places() {
    for anchor in ["", " counted from answer", " counted from end"] {
        let mut bench = Bench::new("5/s burst 5");
        set(&mut bench, &format!("5/s{anchor}"));
        let went: usize = (0..=10).map(|n| burst(&mut bench, n * 100)).sum();
        assert_eq!(went, 5, "{anchor}");
        assert_eq!(bench.try_ask().unwrap_err().quota.unwrap().count(), 5);
    }
}

#[test]
fn a_quota_that_is_new_during_a_pause_holds_one_at_the_reopening() {
    for after in ["1 per 100ms burst 100", "100 per 10s", "100 per 10s, 50 tokens/s"] {
        let mut bench = Bench::new("10/s");
        bench.core.pause(&name(HOST), at(60_000), at(0));
        set(&mut bench, after);
        let _ = bench.waiting();
        let went = bench.run_to(60_000);
        assert_eq!(went.len(), 1, "{after}");
        // The probe is answered, and what follows comes at the steady rate.
        assert_eq!(burst(&mut bench, 62_000), 20, "{after}");
    }
    let mut bench = Bench::new("10/s");
    bench.core.pause(&name(HOST), at(60_000), at(0));
    set(&mut bench, "10/s, 1 token per 20ms burst 50");
    let (cost, deadline) = (Cost::new().and(Unit::TOKENS, 10), Some(at(FOREVER)));
    let wish = Want { cost, deadline, ..host() };
    let Ok(Asked::Waiting(id)) = ask(&mut bench.core, wish, at(0)) else { panic!("it is paused") };
    assert_eq!(bench.run_to(70_000), [(id, 60_180)]);
}

#[test]
fn a_pace_that_was_taken_away_and_set_again_owes_nothing_to_the_first_one() {
    let mut bench = Bench::new("1000/h at most 10");
    // Both are drained once, the first by a pause and the second because it begins empty, and both let eleven go.
    bench.core.pause(&name(HOST), at(0), at(0));
    let probe = bench.granted();
    bench.core.answered(&probe, at(0));
    bench.now = 36_000;
    let mut grants: Vec<_> = (0..10).map(|_| bench.granted()).collect();
    set(&mut bench, "1000/h");
    set(&mut bench, "1000/h at most 10");
    assert_eq!(burst(&mut bench, 72_000), 10);
    bench.core.give_back(grants.pop().unwrap(), at(72_000));
    assert_eq!(burst(&mut bench, 72_000), 0);
}

#[test]
fn who_only_waits_is_told_when_requests_in_flight_are_limited() {
    let mut bench = Bench::new("1/s burst 1");
    let wish = Want { usage: Use::Unseen, deadline: Some(at(FOREVER)), ..host() };
    let Ok(Asked::Granted(_)) = ask(&mut bench.core, wish.clone(), at(0)) else { panic!("a full bucket") };
    let Ok(Asked::Waiting(id)) = ask(&mut bench.core, wish, at(0)) else { panic!("an empty bucket") };
    set(&mut bench, "1/s burst 1, 1 in flight");
    assert_eq!(bench.core.pop_decided(), Some(id));
    assert_eq!(bench.core.collect(id).unwrap().unwrap_err().reason, Reason::NeedsPermit);
}

/// Tokens that are only known afterwards.
#[test]
fn what_was_taken_to_cost_nothing_can_be_settled_to_something() {
    let tokens = |amount| Cost::new().and(Unit::TOKENS, amount);
    let wish = |cost| Want { cost, ..host() };
    for limits in ["100 tokens/min, 10/s", "100 tokens/min burst 100", "100 tokens/min paced counted from end"] {
        let mut bench = Bench::new(limits);
        let Ok(Asked::Granted(grant)) = ask(&mut bench.core, wish(tokens(0)), at(0)) else {
            panic!("nothing costs nothing")
        };
        bench.core.answered(&grant, at(10));
        bench.core.settle(&grant, &Unit::TOKENS, 100, at(10));
        bench.core.release(grant, at(10));
        assert!(ask(&mut bench.core, wish(tokens(50)), at(20)).is_err(), "{limits}");
        assert!(ask(&mut bench.core, wish(tokens(50)), at(61_000)).is_ok(), "{limits}");
    }
}

#[test]
fn settling_more_and_then_less_takes_the_difference_once() {
    let mut bench = Bench::new("1 per 10ms burst 10");
    let ask = |bench: &mut Bench, requests: u64, ms: u64| {
        bench.now = ms;
        let wish = Want { cost: requests.into(), ..host() };
        let Ok(Asked::Granted(grant)) = ask(&mut bench.core, wish, at(ms)) else { panic!("not there") };
        grant
    };
    let old = ask(&mut bench, 5, 0);
    let _ = ask(&mut bench, 5, 1_000);
    bench.core.settle(&old, &Unit::REQUESTS, 6, at(1_000));
    bench.core.settle(&old, &Unit::REQUESTS, 0, at(1_000));
    assert_eq!(burst(&mut bench, 1_000), 5, "the bucket had been full since");
}

#[test]
fn settling_and_giving_back_keep_the_steady_rate_after_a_pause() {
    let mut bench = Bench::new("10/s");
    bench.core.pause(&name(HOST), at(1_000), at(0));
    bench.now = 1_000;
    let probe = bench.granted();
    bench.core.answered(&probe, at(1_000));
    bench.now = 1_300;
    let grant = bench.granted();
    bench.core.settle(&grant, &Unit::REQUESTS, 5, at(1_300));
    bench.core.give_back(grant, at(1_300));
    assert_eq!(burst(&mut bench, 1_300), 3);
}

#[test]
fn a_newcomer_does_not_wait_for_those_who_are_about_to_be_refused() {
    let mut bench = Bench::new("1000/s burst 1");
    let _ = bench.granted();
    for _ in 0..1_000 {
        assert!(matches!(bench.ask_until(1_500), Ok(Asked::Waiting(_))));
    }
    bench.core.pause(&name(HOST), at(2_000), at(0));
    // A call tells so many, and the rest are due.
    assert!(bench.core.waiting() > 700);
    let wish = Want { deadline: Some(at(2_001)), ..host() };
    assert!(matches!(ask(&mut bench.core, wish, at(0)), Ok(Asked::Waiting(_))));
    while bench.core.next() <= Some(at(0)) {
        bench.core.advance(at(0));
    }
    assert_eq!(bench.core.waiting(), 1);
}
