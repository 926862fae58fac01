//! Public bug reports of this field, each as what must hold here. `tests/scenarios.md` has their names.

use std::time::Duration;

use super::*;
use crate::quota::Quota;

/// A try of this cost at this instant.
fn tries(bench: &mut Bench, ms: u64, requests: u64) -> Result<Asked, Refused> {
    bench.now = ms;
    let wish = Want { cost: requests.into(), ..host() };
    ask(&mut bench.core, wish, at(ms))
}

fn succeed(bench: &mut Bench, ms: u64, times: usize) -> usize {
    (0..times).filter(|_| tries(bench, ms, 1).is_ok()).count()
}

/// Bench's `run_to`, told by the instants alone.
fn instants(bench: &mut Bench, until: u64) -> Vec<u64> {
    bench.run_to(until).into_iter().map(|(_, at)| at).collect()
}

fn waits(bench: &mut Bench, unit: &str, amount: u64, deadline: u64) -> Result<Asked, Refused> {
    let cost = Cost::new().and(unit, amount);
    let wish = Want { cost, deadline: Some(at(deadline)), ..host() };
    ask(&mut bench.core, wish, at(bench.now))
}

#[test]
fn leaving_and_other_limits_at_a_stale_instant_do_not_make_a_bucket_fill_faster() {
    for reconfigures in [false, true] {
        let mut bench = Bench::new("10/s burst 10");
        assert_eq!(succeed(&mut bench, 10_000, 20), 10);
        let id = bench.waiting();
        if reconfigures {
            bench.core.set_limits(0, "10/s burst 10".parse().unwrap(), at(5_000));
        }
        bench.core.leave(id, at(5_000));
        assert_eq!(succeed(&mut bench, 10_000, 20), 0);
        assert_eq!(succeed(&mut bench, 11_000, 20), 10);
    }
}

#[test]
fn requests_that_come_together_do_not_get_past_a_token_budget() {
    let mut bench = Bench::new("100 tokens/min burst 100");
    assert!(matches!(waits(&mut bench, "tokens", 60, FOREVER), Ok(Asked::Granted(_))));
    for _ in 0..4 {
        assert!(matches!(waits(&mut bench, "tokens", 60, FOREVER), Ok(Asked::Waiting(_))));
    }
    assert_eq!(instants(&mut bench, 130_000), [12_000, 48_000, 84_000, 120_000]);
}

#[test]
fn the_second_cycle_of_a_window_takes_no_more_than_the_first() {
    let mut bench = Bench::new("3 per 10s");
    let mut refused = 0;
    let mut first = Vec::new();
    for _ in 0..30 {
        match bench.ask_until(12_000) {
            Ok(Asked::Granted(grant)) => {
                bench.core.answered(&grant, at(0));
                first.push(grant);
            }
            Ok(Asked::Waiting(_)) => {}
            Err(_) => refused += 1,
        }
    }
    assert_eq!((first.len(), instants(&mut bench, 60_000), refused), (3, vec![10_000; 3], 24));
}

#[test]
fn a_refusal_takes_nothing_however_much_was_asked_for() {
    let mut bench = Bench::new("1/s burst 10");
    assert!(tries(&mut bench, 0, 8).is_ok());
    assert_eq!(tries(&mut bench, 0, 5).unwrap_err().reason, Reason::WouldWait);
    assert!(tries(&mut bench, 0, 2).is_ok());
    assert_eq!(tries(&mut bench, 0, 1_000_000).unwrap_err().reason, Reason::CostExceedsQuota);
    assert!(tries(&mut bench, 1_000, 1).is_ok());
}

#[test]
fn one_waits_for_what_is_missing_and_not_for_all_of_it() {
    let mut bench = Bench::new("1/s burst 3");
    assert!(tries(&mut bench, 0, 2).is_ok());
    assert_eq!(tries(&mut bench, 0, 2).unwrap_err().wait, Some(Duration::from_secs(1)));
    let mut bench = Bench::new("1/s burst 3");
    assert!(tries(&mut bench, 0, 1).is_ok());
    assert_eq!(tries(&mut bench, 0, 3).unwrap_err().wait, Some(Duration::from_secs(1)));
}

#[test]
fn a_refusal_says_exactly_how_long() {
    let mut bench = Bench::new("1/s burst 1");
    assert!(tries(&mut bench, 0, 1).is_ok());
    for (ms, wait) in [(200, 800), (999, 1)] {
        assert_eq!(tries(&mut bench, ms, 1).unwrap_err().wait, Some(Duration::from_millis(wait)));
    }
    assert!(tries(&mut bench, 1_000, 1).is_ok());
}

#[test]
fn fractions_are_carried_from_one_millisecond_to_the_next() {
    for (rate, expected) in [("1999/s burst 100", 19_990), ("2000/s burst 100", 20_000), ("2001/s burst 100", 20_010)] {
        let mut bench = Bench::new(rate);
        assert_eq!(succeed(&mut bench, 0, 200), 100);
        let admitted: usize = (1..=10_000).map(|ms| succeed(&mut bench, ms, 10)).sum();
        assert!(admitted.abs_diff(expected) <= 20, "{rate}: {admitted}");
    }
}

#[test]
fn the_shortest_and_the_longest_periods_behave_or_are_refused() {
    let year = 365 * 86_400;
    for (count, period) in [
        (1, Duration::from_nanos(1)),
        (1, Duration::from_secs(99 * year)),
        (1, Duration::from_secs(300 * year)),
        (1, Duration::from_nanos(u64::MAX)),
        (u64::from(u32::MAX), Duration::from_nanos(1)),
        (u64::MAX, Duration::from_secs(99 * year)),
    ] {
        for quota in [Quota::window(count, period), Quota::every(period)] {
            if quota.plan().is_err() {
                continue;
            }
            let mut bench = Bench::new(quota);
            for ms in [0, 0, 1, FOREVER] {
                let _ = tries(&mut bench, ms, 1);
            }
            assert!(matches!(
                bench.ask_until(u64::MAX / 1_000_000),
                Ok(_) | Err(Refused { reason: Reason::Deadline, .. })
            ));
        }
    }
    assert!(Quota::every(Duration::from_secs(300 * year)).plan().is_err());
    assert!(Quota::bucket(1e-12, 1).plan().is_err());
}

#[test]
fn however_long_it_idled_a_bucket_is_full_and_no_more() {
    let (hour, day) = (3_600_000, 86_400_000);
    for quota in ["1000000000/s burst 1000000000", "1/d burst 1000000000"] {
        for idle in [12 * hour, 30 * day, 100 * 365 * day] {
            let mut bench = Bench::new(quota);
            assert!(tries(&mut bench, idle, 1_000_000_000).is_ok(), "{quota}, {idle} ms");
            assert!(tries(&mut bench, idle, 1).is_err());
        }
    }
}

/// A thousand callers a second, each of whom gives up after a millisecond.
#[test]
fn those_who_give_up_cost_those_who_come_after_nothing() {
    let mut bench = Bench::new("10/s burst 10");
    let mut admitted = 0;
    for ms in 0..10_000 {
        bench.now = ms;
        admitted += usize::from(matches!(bench.ask_until(ms + 1), Ok(Asked::Granted(_))));
        admitted += bench.decided().len();
    }
    assert!((100..=110).contains(&admitted), "{admitted}");
}

#[test]
fn a_number_in_flight_that_shrinks_below_what_is_in_use_is_reached_by_waiting() {
    let limits = |most| Limits::new().in_flight(most);
    let mut bench = Bench::new(limits(4));
    let mut held: Vec<_> = (0..4).map(|_| bench.granted()).collect();
    bench.core.set_limits(0, limits(2), at(0));
    for _ in 0..10 {
        bench.waiting();
    }
    let go = |bench: &mut Bench, held: &mut Vec<Grant>| {
        bench.core.state.assert_sound();
        let decided: Vec<_> = std::iter::from_fn(|| bench.core.pop_decided()).collect();
        held.extend(decided.iter().filter_map(|id| bench.core.collect(*id)?.ok()));
        decided.len()
    };
    for expected in [0, 0, 1, 1] {
        bench.core.release(held.remove(0), at(1));
        assert_eq!(go(&mut bench, &mut held), expected);
    }
    bench.core.set_limits(0, limits(6), at(2));
    assert_eq!((go(&mut bench, &mut held), held.len()), (4, 6));
    for most in [2, 6, 1, 2] {
        bench.core.set_limits(0, limits(most), at(3));
    }
    while let Some(grant) = held.pop() {
        bench.core.release(grant, at(4));
        go(&mut bench, &mut held);
    }
    assert_eq!((bench.in_use(), bench.core.waiting()), (0, 0));
}

#[test]
fn a_limit_that_is_lowered_holds_at_once() {
    let mut bench = Bench::new("1/s burst 10");
    assert_eq!(succeed(&mut bench, 0, 3), 3);
    bench.core.set_limits(0, "1/s burst 5".parse().unwrap(), at(0));
    assert!(succeed(&mut bench, 0, 10) <= 5);
}

/// One request at the gate of another key, which has ended.
fn touch(bench: &mut Bench, key: usize) -> Result<(), Refused> {
    let key = Key::new(&format!("key {key}"));
    let wish = Want { gates: vec![GateName { rule: 0, key }], ..host() };
    match ask(&mut bench.core, wish, at(bench.now))? {
        Asked::Granted(grant) => bench.core.release(grant, at(bench.now)),
        Asked::Waiting(_) => panic!("a try waits"),
    }
    Ok(())
}

#[test]
fn a_flood_of_keys_resets_no_limit_and_is_refused_when_all_are_in_use() {
    let mut bench = Bench::new("5 per 60s");
    assert_eq!(succeed(&mut bench, 0, 10), 5);
    let refusals: Vec<_> = (0..MOST_KEYS + 50).filter_map(|key| touch(&mut bench, key).err()).collect();
    assert!(refusals.len() == 51 && refusals.iter().all(|refused| refused.reason == Reason::TooManyKeys));
    assert_eq!((succeed(&mut bench, 0, 10), bench.core.state.gates.len()), (0, MOST_KEYS));
    // When their windows have passed, they make room.
    bench.now = 120_000;
    for key in 0..1_000 {
        touch(&mut bench, MOST_KEYS + key).unwrap();
    }
    assert_eq!(succeed(&mut bench, 120_000, 10), 5);
}

#[test]
fn keys_that_are_at_rest_take_no_memory() {
    let mut bench = Bench::new("10/s burst 1");
    let mut most = 0;
    for key in 0..1_000_000 {
        bench.now += 1;
        touch(&mut bench, key).unwrap();
        most = most.max(bench.core.state.gates.len());
    }
    // A hundred are in use at any time.
    assert!(most < 300, "{most} gates");
}

fn crowd(most_keys: usize, limits: &str) -> Bench {
    let overflow = Overflow::Share;
    let settings = Settings { most_keys, overflow, ..Settings::from(limits.parse::<Limits>().unwrap()) };
    Bench { core: Admission::new(settings), now: 0 }
}

#[test]
fn keys_for_which_there_is_no_room_can_share_one_gate() {
    let mut bench = crowd(10, "2 per 1000ms");
    let mut granted = |key: usize, now| {
        bench.now = now;
        touch(&mut bench, key).is_ok()
    };
    assert!((0..10).all(|key| granted(key, 0)));
    let further = (10..20).filter(|key| granted(*key, 0)).count();
    assert_eq!(further, 2, "all together as much as one");
    assert!(granted(3, 0), "those that have their own keep it");
    // At rest again, all of them: there is room, also for who shared before.
    assert!((10..20).all(|key| granted(key, 5_000)));
}

#[test]
fn a_key_that_comes_to_a_gate_of_its_own_takes_with_it_what_it_may_have_used() {
    for (limits, shared_from, own_from, free_from) in
        [("2 per 1000ms", 500, 1_000, 1_500), ("1 per 500ms burst 2", 400, 500, 900)]
    {
        let mut bench = crowd(1, limits);
        touch(&mut bench, 0).unwrap();
        bench.now = shared_from;
        let used = (0..5).filter(|_| touch(&mut bench, 1).is_ok()).count();
        assert_eq!(used, 2, "{limits}");
        // The first key is at rest, and the second gets a gate of its own.
        for now in [own_from, free_from - 1, free_from] {
            bench.now = now;
            assert_eq!(touch(&mut bench, 1).is_ok(), now == free_from, "{limits} at {now}");
        }
        assert_eq!(bench.core.state.gates.key(bench.core.state.gates.find(&name("key 1")).unwrap()), "key 1");
    }
}

#[test]
fn a_snapshot_says_who_waits_for_what() {
    let rules = ["1 per 1000ms burst 2", "5 tokens/s, 2 in flight"];
    let rules = rules.map(|limits| Rule { limits: limits.parse().unwrap(), ..Rule::default() }).to_vec();
    let mut core = Admission::new(Settings { rules, ..Settings::default() });
    assert_eq!(core.snapshot(at(0)).to_string(), "nothing used, nobody waits");
    let [client, host] = [(0, ""), (1, "api.example.com")].map(|(rule, key)| GateName { rule, key: Key::new(key) });
    let want = |class, flow| Want {
        gates: vec![client.clone(), host.clone()],
        class,
        flow,
        deadline: Some(at(FOREVER)),
        ..super::host()
    };
    let _held = [(); 2].map(|()| ask(&mut core, want(Priority::Normal, None), at(0)).unwrap());
    for _ in 0..3 {
        ask(&mut core, want(Priority::Normal, None), at(0)).unwrap();
    }
    ask(&mut core, want(Priority::Low, Some("tenant-7")), at(0)).unwrap();
    core.pause(&client, at(3_000), at(500));
    assert_eq!(
        core.snapshot(at(1_000)).to_string(),
        "all: 0 left of 1/s burst 2, 2 in flight, 4 waiting, paused for 2s\n\
         api.example.com: 5 left of 5 tokens/s, 2 of 2 in flight, 4 waiting\n  \
         3 normal for all + api.example.com: all that may be are in flight\n  \
         1 low of tenant-7 for all + api.example.com: all that may be are in flight"
    );
}

#[test]
fn what_one_limit_refuses_takes_nothing_of_another() {
    // In both orders: a burst of tries, and then of those who are made to wait and give up.
    for limits in ["1000 per 86400s, 10/s", "10/s, 1000 per 86400s"] {
        let mut bench = Bench::new(limits);
        let admitted = (0..500).filter_map(|_| bench.try_ask().ok()).collect::<Vec<_>>();
        let waiting: Vec<_> = (0..100).map(|_| bench.waiting()).collect();
        for id in waiting {
            bench.core.leave(id, at(100));
        }
        let gate = &bench.core.snapshot(at(100)).gates[0];
        let left: Vec<_> = gate.quotas.iter().map(|quota| (quota.quota.count(), quota.left)).collect();
        assert_eq!(
            (admitted.len(), left.contains(&(1_000, 990)), left.contains(&(10, 0))),
            (10, true, true),
            "{left:?}"
        );
    }
}

#[test]
fn who_is_refused_by_one_limit_leaves_no_trace_in_another_and_each_refusal_names_its_own() {
    let mut bench = Bench::new("2 per 60s, 1 in flight");
    let first = bench.granted();
    assert_eq!(bench.try_ask().unwrap_err().in_flight, Some(1));
    bench.core.release(first, at(1_000));
    bench.now = 1_000;
    let third = bench.granted();
    bench.core.release(third, at(1_500));
    bench.now = 1_500;
    let refused = bench.try_ask().unwrap_err();
    assert_eq!((refused.quota.map(|quota| quota.to_string()), refused.in_flight), (Some("2/min".to_owned()), None));
}

#[test]
fn a_short_and_a_long_limit_are_both_waited_for() {
    let mut bench = Bench::new("1 per 7s, 5 per 60s");
    let mut granted = Vec::new();
    while granted.len() < 7 {
        let grant = match bench.ask_until(FOREVER).unwrap() {
            Asked::Granted(grant) => grant,
            Asked::Waiting(id) => {
                bench.now = bench.core.next().unwrap().as_nanos() / 1_000_000;
                bench.core.advance(at(bench.now));
                let decision = bench.core.collect(id);
                let Some(Ok(grant)) = decision else {
                    bench.core.leave(id, at(bench.now));
                    continue;
                };
                grant
            }
        };
        granted.push(bench.now / 1_000);
        bench.core.release(grant, at(bench.now));
    }
    assert_eq!(granted, [0, 7, 14, 21, 28, 60, 67]);
}

#[test]
fn any_name_of_a_key_is_a_key_like_others() {
    let mut bench = Bench::new("1 per 1000s burst 1");
    for key in ["(all further keys)", "another"] {
        let asked = ask(&mut bench.core, Want { gates: vec![name(key)], ..host() }, at(0));
        assert!(matches!(asked, Ok(Asked::Granted(_))), "{key} has a bucket of its own");
    }
}

#[test]
fn a_request_may_name_no_gate_and_the_same_one_twice_and_very_many() {
    let mut bench = Bench::new("1 per 1000s burst 1, 5 in flight");
    let gates = |count: usize| (0..count).map(|n| name(&format!("key {n}"))).collect::<Vec<_>>();
    let twice = [gates(1), gates(1)].concat();
    for gates in [gates(0), twice, gates(100)[1..].to_vec()] {
        let asked = ask(&mut bench.core, Want { gates, ..host() }, at(0));
        assert!(matches!(asked, Ok(Asked::Granted(_))));
    }
    for gates in [gates(1), gates(100)] {
        let asked = ask(&mut bench.core, Want { gates, deadline: Some(at(FOREVER)), ..host() }, at(0));
        assert!(matches!(asked, Ok(Asked::Waiting(_))));
    }
    bench.core.advance(at(1_000_000));
    assert_eq!(bench.decided().len(), 1);
    bench.core.advance(at(2_000_000));
    assert_eq!(bench.decided().len(), 1);
}

#[test]
fn costs_beyond_measure_do_not_upset_what_is_queued() {
    let mut bench = Bench::new("18446744073709551615/s");
    let most = |cost: u64| Want { cost: cost.into(), deadline: Some(at(FOREVER)), ..host() };
    let ids: Vec<_> = (0..4).map(|_| ask(&mut bench.core, most(u64::MAX - 7), at(0)).unwrap()).collect();
    for asked in ids {
        if let Asked::Waiting(id) = asked {
            bench.core.leave(id, at(1));
        }
    }
    assert_eq!(bench.core.waiting(), 0);
}
