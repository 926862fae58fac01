//! What refusals teach a gate: by exact instants in milliseconds, and 50 workers before strict servers in virtual time.
//! The servers have their own arithmetic: a plain list of what they took, and when.

use super::world::{Counts, World, ratio};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn refused(bench: &mut Bench, grant: &Grant, millis: u64) {
    bench.core.refused(grant, 0, Wait::Stated(Duration::from_millis(millis), 0), at(bench.now));
    bench.core.state.assert_sound();
}

fn answered(bench: &mut Bench, grant: Grant) {
    bench.core.answered(&grant, at(bench.now));
    bench.core.release(grant, at(bench.now));
    bench.core.state.assert_sound();
}

/// The one gate as it is shown.
fn shown(bench: &mut Bench) -> GateSnapshot {
    bench.core.snapshot(at(bench.now)).gates.remove(0)
}

fn lowered_to(bench: &mut Bench) -> Option<u8> {
    shown(bench).lowered_to_percent
}

#[test]
fn a_configured_limit_comes_down_by_three_tenths_for_each_event_and_up_by_a_hundredth_a_second() {
    let mut bench = Bench::new("20/s burst 20");
    let burst = [bench.granted(), bench.granted(), bench.granted()];
    refused(&mut bench, &burst[0], 1_000);
    refused(&mut bench, &burst[1], 1_000);
    assert_eq!(lowered_to(&mut bench), Some(70), "two refusals of one burst are one event");
    bench.now = 1_000;
    let probe = bench.granted();
    answered(&mut bench, probe);
    let waiting: Vec<_> = (0..3).map(|_| bench.waiting()).collect();
    let went: Vec<_> =
        bench.run_to(1_250).into_iter().filter(|(id, _)| waiting.contains(id)).map(|(_, at)| at).collect();
    assert_eq!(went, [1_071, 1_142, 1_214], "14 in a second");
    for (now, percent) in [(1_999, Some(70)), (2_000, Some(71)), (2_900, Some(71)), (12_000, Some(81))] {
        bench.now = now;
        let grant = bench.granted();
        answered(&mut bench, grant);
        assert_eq!(lowered_to(&mut bench), percent, "{now}");
    }
    let again = bench.granted();
    refused(&mut bench, &again, 1_000);
    assert_eq!(lowered_to(&mut bench), Some(56));
    for (now, percent) in [(13_500, Some(56)), (56_000, Some(99)), (57_000, None)] {
        bench.now = now;
        let grant = bench.granted();
        answered(&mut bench, grant);
        assert_eq!(lowered_to(&mut bench), percent, "{now}");
    }
    assert_eq!(shown(&mut bench).quotas[0].left, 19, "the burst is what it was");
}

#[test]
fn a_window_lets_go_fewer_and_one_of_a_single_request_takes_longer() {
    let mut bench = Bench::new("10/s");
    let grant = bench.granted();
    refused(&mut bench, &grant, 5_000);
    bench.core.release(grant, at(0));
    bench.now = 20_000;
    assert_eq!(shown(&mut bench).quotas[0].left, 7);
    assert_eq!(shown(&mut bench).to_string(), "host: 7 left of 10/s, 0 in flight, 0 waiting, lowered to 70 %");
    let mut bench = Bench::new("1/s");
    let grant = bench.granted();
    refused(&mut bench, &grant, 5_000);
    bench.core.release(grant, at(0));
    bench.now = 20_000;
    let grant = bench.granted();
    bench.core.send(&grant, at(20_000));
    bench.core.release(grant, at(20_000));
    bench.waiting();
    // 1 / 0.7, rounded up.
    assert_eq!(bench.run_to(30_000), [(0, 21_428)]);
}

#[test]
fn what_costs_more_than_a_lowered_limit_holds_goes_when_it_is_full() {
    let mut bench = Bench::new("10 tokens/s");
    let want = |tokens| Want { cost: Cost::new().and(Unit::TOKENS, tokens), deadline: Some(at(FOREVER)), ..host() };
    let Ok(Asked::Granted(grant)) = ask(&mut bench.core, want(1), at(0)) else { panic!() };
    refused(&mut bench, &grant, 1_000);
    bench.core.release(grant, at(0));
    bench.now = 10_000;
    let Ok(Asked::Granted(grant)) = ask(&mut bench.core, want(10), at(10_000)) else { panic!("seven are there") };
    bench.core.release(grant, at(10_000));
    assert!(matches!(
        ask(&mut bench.core, want(11), at(10_000)),
        Err(Refused { reason: Reason::CostExceedsQuota, .. })
    ));
}

#[test]
fn a_failure_lowers_by_a_tenth_and_what_was_sent_before_it_by_nothing_more() {
    let mut bench = Bench::new("20/s burst 20");
    let burst = [bench.granted(), bench.granted()];
    bench.now = 10;
    bench.core.failed(&burst[0], 0, None, at(10));
    bench.core.failed(&burst[1], 0, None, at(10));
    assert_eq!((lowered_to(&mut bench), shown(&mut bench).paused_for), (Some(90), None));
    let later = bench.granted();
    bench.core.failed(&later, 0, Some(Wait::Stated(SECOND, 0)), at(10));
    assert_eq!((lowered_to(&mut bench), shown(&mut bench).paused_for), (Some(81), Some(SECOND)));
    let mut free = Bench::new("8 in flight");
    let grant = free.granted();
    free.core.failed(&grant, 0, None, at(0));
    assert_eq!(lowered_to(&mut free), None, "where there is no rate, there is none to lower");
}

#[test]
fn other_limits_begin_anew() {
    let mut bench = Bench::new("10/s");
    let grant = bench.granted();
    refused(&mut bench, &grant, 1_000);
    bench.core.set_limits(0, "12/s".parse().unwrap(), at(0));
    assert_eq!(lowered_to(&mut bench), None);
}

#[test]
fn where_no_limit_was_set_what_the_server_took_before_it_refused_is_the_limit() {
    let mut bench = Bench::new("8 in flight");
    let sent: Vec<_> = (0..6).map(|_| bench.granted()).collect();
    let mut sent = sent.into_iter();
    bench.now = 100;
    sent.by_ref().take(2).for_each(|grant| answered(&mut bench, grant));
    let too_many = sent.next().unwrap();
    refused(&mut bench, &too_many, 1_000);
    // It was taken before, and is heard of later.
    bench.now = 110;
    sent.by_ref().take(1).for_each(|grant| answered(&mut bench, grant));
    let one_more = sent.next().unwrap();
    refused(&mut bench, &one_more, 1_000);
    let gate = shown(&mut bench);
    assert_eq!(gate.quotas[0].quota.to_string(), "3 per 1100ms");
    assert!(gate.found, "{gate}");
    [too_many, one_more].into_iter().chain(sent).for_each(|grant| bench.core.release(grant, at(110)));
    // One, then two more for each answer, and then as many as were found.
    bench.now = 1_110;
    let probe = bench.granted();
    let waiting = [bench.waiting(), bench.waiting(), bench.waiting()];
    bench.now = 1_120;
    answered(&mut bench, probe);
    let mut went = Vec::new();
    while let Some(id) = bench.core.pop_decided() {
        went.push((id, bench.core.collect(id).unwrap().unwrap()));
    }
    assert_eq!([went[0].0, went[1].0], waiting[..2]);
    assert_eq!(bench.run_to(2_000), [], "nothing was heard of either");
    for (_, grant) in went {
        answered(&mut bench, grant);
    }
    // Three of the window are used, the first of them 1 100 ms after its answer no longer.
    assert_eq!(bench.run_to(3_000), [(waiting[2], 2_220)]);
}

#[test]
fn where_nothing_was_taken_before_the_refusal_eight_a_second_go_and_then_twice_as_many() {
    let mut bench = Bench::new("99 in flight");
    let grant = bench.granted();
    refused(&mut bench, &grant, 2_000);
    bench.core.release(grant, at(0));
    bench.now = 2_000;
    let mut went = Vec::new();
    for second in 0..3 {
        let until = 2_000 + (second + 1) * 1_020;
        let mut count = 0;
        while bench.now < until {
            if let Ok(Asked::Granted(grant)) = bench.try_ask() {
                count += 1;
                answered(&mut bench, grant);
            }
            bench.now += 1;
        }
        went.push(count);
    }
    assert_eq!(went, [9, 16, 33], "the first at the reopening, and then one by one");
    bench.now += 100;
    let grant = bench.granted();
    refused(&mut bench, &grant, 2_000);
    assert_eq!(shown(&mut bench).quotas[0].quota.to_string(), "36 per 2s", "now something was taken");
}

#[test]
fn a_gate_that_is_refused_again_and_again_goes_on_and_comes_up_again() {
    let mut bench = Bench::new("no limit");
    for _ in 0..20 {
        let grant = bench.granted();
        refused(&mut bench, &grant, 1_000);
        bench.core.release(grant, at(bench.now));
        bench.now += 1_001;
    }
    for _ in 0..50 {
        let grant = bench.granted();
        answered(&mut bench, grant);
        bench.now += 1_001;
    }
    let gate = shown(&mut bench);
    assert!(gate.quotas[0].left > 1 && gate.lowered_to_percent.is_none(), "{gate}");
}

#[test]
fn a_gate_that_learned_is_remembered_for_ten_minutes() {
    let mut bench = Bench::new("8 in flight");
    let grant = bench.granted();
    refused(&mut bench, &grant, 1_000);
    bench.core.release(grant, at(0));
    bench.now = 1_000;
    let probe = bench.granted();
    answered(&mut bench, probe);
    let id = bench.core.state.gates.find(&name(HOST)).unwrap();
    for (now, rests) in [(600_000, false), (601_000, true)] {
        assert_eq!(bench.core.state.gates[id].is_at_rest(at(now)), rests, "{now}");
    }
}

#[test]
fn fifty_workers_without_a_limit_find_that_of_the_server() {
    let servers = [Counts::InAny(20, SECOND), Counts::InEach(20, SECOND), Counts::Bucket(20.0, 20.0)];
    for (place, server) in servers.into_iter().enumerate() {
        for seed in 0..5 {
            let world = World::new("no limit", server, seed).run(|world| world.served == 1_000);
            let (refused, took) = (ratio(world.refused, world.sent), world.now.since(Time::ZERO));
            // Twenty at once, and then twenty a second.
            let slower = took.as_secs_f64() / 49.0;
            println!("{place} {seed}: {:.1} % refused, {slower:.3} of the shortest time", refused * 100.0);
            assert!(refused <= 0.08 && slower <= 1.1, "{place} {seed}: {refused} {slower}");
            let world = World::new("20/s", server, seed).run(|world| world.served == 1_000);
            assert_eq!(world.refused, 0, "with the limit set");
        }
    }
}

#[test]
fn of_a_hundred_thousand_requests_none_is_sent_before_a_stated_time() {
    let mut world = World::new("no limit", Counts::InAny(20, SECOND), 7);
    world.others();
    let world = world.run(|world| world.sent >= 100_000);
    println!(
        "{} refused, {} a second",
        world.refused,
        ratio(world.served, 1) / world.now.since(Time::ZERO).as_secs_f64()
    );
    assert!(world.refused > 1_000);
}

#[test]
fn beside_others_on_the_same_key_a_refusal_a_second_is_the_most_and_most_of_what_they_leave_is_used() {
    const RUNS: u32 = 8;
    for server in [Counts::InAny(20, SECOND), Counts::InEach(20, SECOND), Counts::Bucket(20.0, 20.0)] {
        let runs = (0..RUNS).map(|seed| {
            let mut world = World::new("no limit", server, seed.into());
            world.others();
            let world = world.run(|world| world.now >= at(60_000));
            (ratio(world.refused, 1), ratio(world.served, 60 * 14))
        });
        let (refused, share) = runs.fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
        let (refused, share) = (refused / f64::from(RUNS), share / f64::from(RUNS));
        println!("{refused} refused in a minute, {:.1} % of what is left", share * 100.0);
        assert!(refused <= 60.0 && share >= 0.8, "{refused} {share}");
    }
}

#[test]
fn a_limit_that_is_set_too_high_comes_down_until_it_is_hardly_refused() {
    for seed in 0..5 {
        let world = World::new("30/s", Counts::InAny(20, SECOND), seed).run(|world| world.served == 1_000);
        let (refused, slower) = (ratio(world.refused, world.sent), world.now.since(Time::ZERO).as_secs_f64() / 49.0);
        println!("{seed}: {:.1} % refused, {slower:.3} of the shortest time", refused * 100.0);
        assert!(refused <= 0.04 && slower <= 1.35, "{seed}: {refused} {slower}");
    }
}

/// A few hundred random events at gates that learn: nobody who may go waits, and in the end everybody has gone.
#[test]
fn whatever_is_refused_and_when_nobody_is_left_waiting() {
    const LIMITS: [&str; 5] =
        ["no limit", "3 in flight", "5 per 100ms", "1 per 20ms burst 4", "6 tokens per 80ms, 2 in flight"];
    for seed in 0..3_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let rules: Vec<_> =
            (0..random.usize(1..4)).map(|_| LIMITS[random.usize(..LIMITS.len())].parse().unwrap()).collect();
        let count = rules.len();
        let rules = rules.into_iter().map(|limits| Rule { limits, ..Rule::default() }).collect();
        let mut core = Admission::new(Settings { rules, ..Settings::default() });
        let (mut waiting, mut out, mut now) = (Vec::new(), Vec::new(), Time::ZERO);
        for step in 0..400 {
            let next = core.next().filter(|next| random.bool() && *next < now.plus(5_000_000_000));
            now = now.max(next.unwrap_or(now.plus(random.u64(0..30) * 1_000_000)));
            let asks = step < 200 && random.u8(0..3) > 0;
            if asks {
                let gates: Vec<_> = (0..count)
                    .filter(|_| random.u8(0..3) > 0)
                    .map(|rule| GateName { rule, key: Key::new(HOST) })
                    .collect();
                let cost = Cost::new().and(Unit::TOKENS, random.u64(0..5));
                let want = Want { gates, cost, deadline: Some(at(FOREVER)), ..host() };
                match ask(&mut core, want, now).unwrap_or_else(|error| panic!("{seed} {step} {now:?} {error:?}")) {
                    Asked::Granted(grant) => out.push(grant),
                    Asked::Waiting(id) => waiting.push(id),
                }
            } else if !out.is_empty() {
                let grant = out.swap_remove(random.usize(..out.len()));
                let place = random.usize(0..2);
                let wait = Wait::Stated(Duration::from_millis(random.u64(1..300)), random.u32(..));
                match random.u8(0..if step < 200 { 8 } else { 3 }) {
                    0..=2 => core.answered(&grant, now),
                    3 => core.refused(&grant, place, wait, now),
                    4 => core.refused(&grant, place, Wait::Unstated(random.u32(..)), now),
                    5 => core.failed(&grant, place, random.bool().then_some(wait), now),
                    _ => {}
                }
                if random.u8(0..6) == 0 { core.give_back(grant, now) } else { core.release(grant, now) }
            }
            core.advance(now);
            core.state.assert_sound();
            while let Some(id) = core.pop_decided() {
                out.extend(core.collect(id).unwrap());
            }
        }
        while core.waiting() > 0 || !out.is_empty() {
            out.drain(..).for_each(|grant| {
                core.answered(&grant, now);
                core.release(grant, now);
            });
            now = core.next().unwrap_or(now).max(now);
            core.advance(now);
            while let Some(id) = core.pop_decided() {
                out.extend(core.collect(id).unwrap());
            }
        }
        drop(waiting);
    }
}
