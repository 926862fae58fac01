//! What comes after a refusal, by exact instants in milliseconds: the pause, the probe, the steady rate.

use std::time::Duration;

use super::*;

fn stated(ms: u64) -> Wait {
    Wait::Stated(Duration::from_millis(ms), 0)
}

/// A gate of one each 10 ms with a burst of 100, and `sent` requests under way.
fn gate_with(sent: usize) -> (Bench, Vec<Grant>) {
    let mut bench = Bench::fixed("1 per 10ms burst 100");
    let grants = (0..sent).map(|_| {
        let grant = bench.granted();
        assert!(bench.core.send(&grant, at(0)));
        grant
    });
    let grants = grants.collect();
    (bench, grants)
}

/// Goes on until somebody is granted, and answers with the grant and its instant.
fn next_grant(bench: &mut Bench, until: u64) -> Option<(Grant, u64)> {
    loop {
        if let Some(id) = bench.core.pop_decided() {
            let Some(Ok(grant)) = bench.core.collect(id) else { continue };
            return Some((grant, bench.now));
        }
        let next = bench.core.next().filter(|next| *next <= at(until))?;
        bench.now = bench.now.max(next.as_nanos().div_ceil(1_000_000));
        bench.core.advance(next);
        bench.core.state.assert_sound();
    }
}

#[test]
fn the_first_probes_and_its_success_opens_the_gate_at_the_steady_rate() {
    let (mut bench, sent) = gate_with(1);
    bench.core.refused(&sent[0], 0, stated(1_000), at(0));
    for _ in 0..4 {
        bench.waiting();
    }
    let (probe, went) = next_grant(&mut bench, 5_000).unwrap();
    assert_eq!(went, 1_000);
    assert!(next_grant(&mut bench, 1_039).is_none(), "nothing else goes before its answer");
    bench.now = 1_040;
    bench.core.answered(&probe, at(1_040));
    let went: Vec<_> = std::iter::from_fn(|| next_grant(&mut bench, 5_000)).map(|(_, at)| at).collect();
    // Four places have matured since the reopening, one of them the probe's.
    assert_eq!(went, [1_040, 1_040, 1_040]);
}

#[test]
fn after_a_stated_wait_a_slow_probe_holds_the_others_up_for_a_second() {
    let (mut bench, sent) = gate_with(1);
    bench.core.refused(&sent[0], 0, stated(1_000), at(0));
    for _ in 0..3 {
        bench.waiting();
    }
    let went: Vec<_> = std::iter::from_fn(|| next_grant(&mut bench, 9_000)).map(|(_, at)| at).collect();
    assert_eq!(went, [1_000, 2_000, 2_000]);
}

#[test]
fn after_an_unstated_wait_the_answer_decides_and_what_tells_nothing_makes_the_next_one_the_probe() {
    let (mut bench, sent) = gate_with(1);
    bench.core.refused(&sent[0], 0, Wait::Unstated(0), at(0));
    for _ in 0..4 {
        bench.waiting();
    }
    let (dropped, went) = next_grant(&mut bench, 9_000).unwrap();
    assert_eq!(went, 1_000);
    // Dropped without an answer: the next one probes, and takes too long; then the next one does.
    bench.now = 1_500;
    bench.core.release(dropped, at(1_500));
    let (slow, went) = next_grant(&mut bench, 9_000).unwrap();
    assert_eq!(went, 1_500);
    let (given_back, went) = next_grant(&mut bench, 9_000).unwrap();
    assert_eq!(went, 6_500);
    bench.core.give_back(given_back, at(6_600));
    bench.now = 6_600;
    let (good, went) = next_grant(&mut bench, 9_000).unwrap();
    assert_eq!(went, 6_600);
    // What comes late from one that no longer counts as the probe opens nothing.
    bench.core.release(slow, at(6_700));
    bench.now = 6_700;
    let last = bench.waiting();
    bench.core.answered(&good, at(6_800));
    assert_eq!(bench.core.pop_decided(), Some(last));
}

#[test]
fn a_probe_that_is_refused_doubles_an_unstated_wait_once_for_all_of_its_burst() {
    let most = u32::MAX;
    let (mut bench, sent) = gate_with(5);
    // Five refusals of one burst are one event: a second.
    for grant in &sent {
        bench.core.refused(grant, 0, Wait::Unstated(most), at(0));
    }
    let mut expected = 1_000;
    let mut now = 0;
    for doubled in [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
        bench.waiting();
        let (probe, went) = next_grant(&mut bench, now + 100_000).unwrap();
        assert_eq!(went, now + expected);
        bench.core.refused(&probe, 0, Wait::Unstated(most), at(went));
        bench.core.release(probe, at(went));
        (now, expected) = (went, doubled);
    }
    // A success begins anew.
    bench.waiting();
    let (probe, went) = next_grant(&mut bench, now + 100_000).unwrap();
    bench.core.answered(&probe, at(went));
    bench.now = went + 10;
    let next = bench.granted();
    bench.core.refused(&next, 0, Wait::Unstated(most), at(went + 10));
    bench.waiting();
    assert_eq!(next_grant(&mut bench, went + 100_000).unwrap().1, went + 1_010);
}

/// Those who only wait report no answer: one of them that probes holds up the others for a second, and opens the gate.
#[test]
fn bare_waits_open_a_gate_that_was_refused_without_a_stated_wait() {
    let (mut bench, sent) = gate_with(1);
    bench.core.refused(&sent[0], 0, Wait::Unstated(0), at(0));
    let wish = Want { usage: Use::Unseen, deadline: Some(at(FOREVER)), ..host() };
    for _ in 0..4 {
        assert!(matches!(ask(&mut bench.core, wish.clone(), at(0)), Ok(Asked::Waiting(_))));
    }
    let went: Vec<_> = std::iter::from_fn(|| next_grant(&mut bench, 9_000)).map(|(_, at)| at).collect();
    assert_eq!(went, [1_000, 2_000, 2_000, 2_000]);
}

#[test]
fn a_late_refusal_from_before_the_pause_extends_it_and_doubles_nothing() {
    let (mut bench, sent) = gate_with(2);
    bench.core.refused(&sent[0], 0, Wait::Unstated(u32::MAX), at(0));
    bench.waiting();
    let (probe, went) = next_grant(&mut bench, 5_000).unwrap();
    assert_eq!(went, 1_000);
    // While the probe is out, a refusal of the old burst asks for half a second more.
    bench.core.refused(&sent[1], 0, stated(500), at(1_100));
    bench.core.answered(&probe, at(1_200));
    bench.now = 1_200;
    bench.waiting();
    assert_eq!(next_grant(&mut bench, 5_000).unwrap().1, 1_600);
}

#[test]
fn a_drained_window_goes_on_one_each_nth() {
    let mut bench = Bench::fixed("10/s");
    let grants: Vec<_> = (0..3).map(|_| bench.granted()).collect();
    bench.core.refused(&grants[0], 0, stated(5_000), at(0));
    for _ in 0..12 {
        bench.waiting();
    }
    let (probe, went) = next_grant(&mut bench, 9_000).unwrap();
    assert_eq!(went, 5_000);
    bench.core.answered(&probe, at(5_000));
    let went: Vec<_> = std::iter::from_fn(|| next_grant(&mut bench, 6_000)).map(|(_, at)| at).collect();
    assert_eq!(went, [5_100, 5_200, 5_300, 5_400, 5_500, 5_600, 5_700, 5_800, 5_900, 6_000]);
}

#[test]
fn a_quota_that_shrinks_below_what_waits_says_so_in_the_same_call() {
    let mut bench = Bench::fixed("1 per 10ms burst 5, 2 in flight");
    let big = |bench: &mut Bench, requests: u64| {
        let deadline = Some(at(FOREVER));
        let wish = Want { cost: requests.into(), deadline, ..host() };
        ask(&mut bench.core, wish, at(bench.now)).unwrap()
    };
    let Asked::Granted(first) = big(&mut bench, 5) else { panic!("a full bucket") };
    let Asked::Waiting(too_big) = big(&mut bench, 4) else { panic!("an empty bucket") };
    let Asked::Waiting(small) = big(&mut bench, 2) else { panic!("an empty bucket") };
    bench.core.set_limits(0, "1 per 10ms burst 3, 1 in flight".parse().unwrap(), at(0));
    assert_eq!(bench.core.pop_decided(), Some(too_big));
    assert_eq!(bench.core.collect(too_big).unwrap().unwrap_err().reason, Reason::CostExceedsQuota);
    // One is in flight, and no more may be: nobody is cut off, and nobody goes.
    assert_eq!(bench.run_to(1_000), []);
    bench.core.release(first, at(1_000));
    assert_eq!(bench.decided(), [(small, 1_000)]);
}

#[test]
fn a_quota_in_the_place_of_one_that_counts_otherwise_begins_empty_and_one_of_a_new_unit_full() {
    let mut bench = Bench::new("2/s");
    let _ = bench.granted();
    bench.core.set_limits(0, "1 per 100ms burst 5, 3 tokens/s".parse().unwrap(), at(0));
    let ids: Vec<_> = (0..2).map(|_| bench.waiting()).collect();
    assert_eq!(bench.run_to(1_000), [(ids[0], 100), (ids[1], 200)]);
    let cost = Cost::from(0).and(Unit::TOKENS, 3);
    let wish = Want { cost, ..host() };
    assert!(matches!(ask(&mut bench.core, wish, at(1_000)), Ok(Asked::Granted(_))));
}

/// Retuned with a full line: whoever waits is timed anew, nothing is minted, nothing lost.
#[test]
fn a_full_line_is_timed_anew_by_other_limits() {
    let mut bench = Bench::bucket(100, 1);
    let _ = bench.granted();
    let ids: Vec<_> = (0..6).map(|_| bench.waiting()).collect();
    let mut went = bench.run_to(250);
    bench.core.set_limits(0, "1 per 10ms burst 1".parse().unwrap(), at(250));
    went.extend(bench.run_to(260));
    bench.core.set_limits(0, "1 per 1000ms burst 1".parse().unwrap(), at(260));
    went.extend(bench.run_to(9_000));
    // Half an interval was there at 250: the other half takes 5 ms. Half of one at 260: the other half takes 500 ms.
    assert_eq!(went, [(ids[0], 100), (ids[1], 200), (ids[2], 255), (ids[3], 760), (ids[4], 1_760), (ids[5], 2_760)]);
}
