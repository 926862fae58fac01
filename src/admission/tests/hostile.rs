//! What attacks on the believing of servers came to: requests that end without an answer, and what nobody would state.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn word(left: u64, most: Option<u64>, resets_ms: Option<u64>) -> Report {
    Report {
        name: Arc::from("requests"),
        unit: Unit::REQUESTS,
        left,
        most,
        resets_after: resets_ms.map(Duration::from_millis),
        window: None,
        refused: false,
    }
}

fn tokens(report: &Report) -> Report {
    Report { name: Arc::from("tokens"), unit: Unit::TOKENS, ..report.clone() }
}

fn heard(core: &mut Admission, grant: Grant, reports: &[Report], now: Time) {
    core.report(&grant, 0, reports, now);
    core.answered(&grant, now);
    core.release(grant, now);
    core.state.assert_sound();
}

#[test]
fn requests_that_ended_without_an_answer_are_not_on_their_way_for_ever() {
    for limits in ["no limit", "1000/s burst 1000"] {
        let mut bench = Bench::new(limits);
        for _ in 0..100 {
            let grant = bench.granted();
            bench.core.send(&grant, at(0));
            bench.core.release(grant, at(0));
        }
        let grant = bench.granted();
        heard(&mut bench.core, grant, &[word(60, Some(60), Some(1_000))], at(0));
        // 59 may go, though the server would take 60.
        let free = (0..50).filter(|_| matches!(bench.ask_until(FOREVER), Ok(Asked::Granted(_)))).count();
        assert_eq!((limits, free), (limits, 50));
    }
}

#[test]
fn requests_that_ended_without_an_answer_slow_nobody_down() {
    let mut bench = Bench::new("no limit");
    for _ in 0..100 {
        let grant = bench.granted();
        bench.core.release(grant, at(0));
    }
    let mut served = 0;
    // A server that takes 60 a second, and always has plenty left: 30 s.
    let mut now = 0;
    while now < 30_000 {
        bench.now = now;
        if let Ok(Asked::Granted(grant)) = bench.try_ask() {
            heard(&mut bench.core, grant, &[word(59, Some(60), Some(1_000))], at(now));
            served += 1;
        }
        now += 20;
    }
    assert!(served > 1_000, "{served} of 1500");
}

#[test]
fn a_gate_whose_requests_ended_without_an_answer_is_at_rest_in_the_end() {
    let mut bench = Bench::new("no limit");
    let grant = bench.granted();
    bench.core.release(grant, at(0));
    let grant = bench.granted();
    heard(&mut bench.core, grant, &[word(60, Some(60), Some(1_000))], at(0));
    let id = bench.core.state.gates.find(&name(HOST)).unwrap();
    assert!(bench.core.state.gates[id].is_at_rest(at(10_000_000)));
}

/// A turn without a permit (`Limiter::turn`) that is granted and not collected is given back to a stated limit from whose
/// `out` it was never added.
#[test]
fn an_unseen_turn_that_nobody_collects_underflows_nothing() {
    let mut bench = Bench::new("no limit");
    let grant = bench.granted();
    heard(&mut bench.core, grant, &[word(0, Some(60), Some(1_000))], at(0));
    let wish = Want { usage: Use::Unseen, deadline: Some(at(FOREVER)), ..host() };
    let Ok(Asked::Waiting(id)) = ask(&mut bench.core, wish, at(0)) else { panic!() };
    bench.core.advance(at(2_000));
    bench.core.leave(id, at(2_000));
    bench.now = 2_000;
    let grant = bench.granted();
    heard(&mut bench.core, grant, &[word(30, Some(60), Some(1_000))], at(2_000));
    let more = (0..20).filter(|_| matches!(bench.ask_until(FOREVER), Ok(Asked::Granted(_)))).count();
    assert_eq!(more, 20);
}

/// After the reset of a token limit, those who do not say what they cost all go ahead at once.
#[test]
fn one_goes_ahead_to_a_token_limit_even_if_it_does_not_say_its_cost() {
    let mut bench = Bench::new("no limit");
    let grant = bench.granted();
    heard(&mut bench.core, grant, &[tokens(&word(0, Some(1_000), Some(700)))], at(0));
    for _ in 0..50 {
        bench.waiting();
    }
    let went = bench.run_to(1_000);
    assert_eq!(went.len(), 1, "one goes ahead");
}

/// The same of requests whose cost is known: as a control.
#[test]
fn control_one_goes_ahead_to_a_limit_of_requests() {
    let mut bench = Bench::new("no limit");
    let grant = bench.granted();
    heard(&mut bench.core, grant, &[word(0, Some(1_000), Some(700))], at(0));
    for _ in 0..50 {
        bench.waiting();
    }
    assert_eq!(bench.run_to(1_000).len(), 1, "one goes ahead");
}

/// How long a stated reset holds up: it has no end.
#[test]
fn a_reset_that_is_years_away_does_not_stop_a_client_for_years() {
    let mut bench = Bench::new("no limit");
    let grant = bench.granted();
    heard(&mut bench.core, grant, &[word(0, Some(100), Some(99_999_999_000))], at(0));
    let refused = bench.ask_until(3_600_000);
    assert!(refused.is_ok(), "{refused:?}");
}

/// Sums of what servers and callers say.
#[test]
fn absurd_numbers_do_not_panic() {
    // Others, by a server that says 10^18 and 0 in turn.
    let others = catch_unwind(AssertUnwindSafe(|| {
        let mut bench = Bench::new("no limit");
        for nth in 0..60 {
            bench.now += 2_000;
            let grant = bench.granted();
            let left = if nth % 2 == 0 { 999_999_999_999_999_999 } else { 0 };
            heard(&mut bench.core, grant, &[word(left, None, Some(100_000))], at(bench.now));
            bench.now += 200_000;
        }
        for _ in 0..40 {
            for left in [999_999_999_999_999_999, 2] {
                bench.now += 1;
                if let Ok(Asked::Granted(grant)) = bench.try_ask() {
                    heard(&mut bench.core, grant, &[word(left, None, Some(100))], at(bench.now));
                } else {
                    bench.now += 2_000;
                }
            }
        }
    }));
    // Settled to absurd costs.
    let settled = catch_unwind(AssertUnwindSafe(|| {
        let mut bench = Bench::new("no limit");
        let grant = bench.granted();
        heard(&mut bench.core, grant, &[tokens(&word(1_000, Some(1_000), Some(700)))], at(0));
        let want = |tokens| Want { cost: Cost::new().and(Unit::TOKENS, tokens), ..host() };
        let mut grants = Vec::new();
        for _ in 0..4 {
            let Ok(Asked::Granted(grant)) = ask(&mut bench.core, want(5), at(0)) else { panic!("not granted") };
            grants.push(grant);
        }
        bench.core.settle(&grants[0], &Unit::TOKENS, u64::MAX, at(0));
        bench.core.settle(&grants[1], &Unit::TOKENS, u64::MAX, at(0));
        for grant in grants {
            heard(&mut bench.core, grant, &[tokens(&word(1_000, Some(1_000), Some(700)))], at(1));
        }
    }));
    // Asked for.
    let asked = catch_unwind(AssertUnwindSafe(|| {
        let mut bench = Bench::new("no limit");
        let grant = bench.granted();
        heard(&mut bench.core, grant, &[tokens(&word(1_000, Some(1_000), Some(700)))], at(0));
        for now in [1_000, 3_000] {
            let want = Want { cost: Cost::new().and(Unit::TOKENS, u64::MAX), ..host() };
            let Ok(Asked::Granted(grant)) = ask(&mut bench.core, want, at(now)) else { panic!("not granted") };
            heard(&mut bench.core, grant, &[tokens(&word(1_000, Some(1_000), Some(700)))], at(now));
        }
    }));
    assert_eq!((others.is_ok(), settled.is_ok(), asked.is_ok()), (true, true, true), "others, settled, asked");
}

/// One early refusal with a long wait, and the limit that is found from it.
#[test]
fn one_early_refusal_does_not_stop_a_client_for_hours() {
    let mut served = Vec::new();
    for (taken, wait_ms) in [(0, 600_000), (1, 600_000), (1, 60_000), (5, 60_000), (5, 600_000)] {
        let mut bench = Bench::new("no limit");
        for _ in 0..taken {
            let grant = bench.granted();
            bench.now += 20;
            heard(&mut bench.core, grant, &[], at(bench.now));
        }
        let grant = bench.granted();
        bench.core.refused(&grant, 0, Wait::Stated(Duration::from_millis(wait_ms), 0), at(bench.now));
        bench.core.release(grant, at(bench.now));
        let (from, mut hours) = (bench.now + wait_ms, [0; 6]);
        let mut now = from;
        // The server takes whatever comes.
        while now < from + 6 * 3_600_000 {
            bench.now = now;
            if let Ok(Asked::Granted(grant)) = bench.try_ask() {
                heard(&mut bench.core, grant, &[], at(now));
                hours[usize::try_from((now - from) / 3_600_000).unwrap()] += 1;
            }
            now += 100;
        }
        println!("{taken} taken, then a refusal for {} s: by hours {hours:?} of 36000", wait_ms / 1_000);
        served.push(hours);
    }
    assert!(served.iter().all(|hours| hours[1] > 1_000), "{served:?}");
}

/// And a gate with such a reset never rests.
#[test]
fn gates_with_resets_that_are_years_away_do_not_fill_the_table() {
    let rules = vec![Rule::default()];
    let mut core = Admission::new(Settings { rules, most_keys: 10, ..Settings::default() });
    for nth in 0..10 {
        let gates = vec![name(&format!("host{nth}"))];
        let Ok(Asked::Granted(grant)) = ask(&mut core, Want { gates, ..host() }, at(0)) else { panic!() };
        heard(&mut core, grant, &[word(50, Some(100), Some(99_999_999_000))], at(0));
    }
    let gates = vec![name("one more")];
    let asked = ask(&mut core, Want { gates, ..host() }, at(7 * 86_400_000));
    assert!(asked.is_ok(), "a week later: {asked:?}");
}
