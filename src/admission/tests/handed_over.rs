//! What is handed over from gate to gate: what is lost, left behind or broken thereby.

use super::*;
use crate::wait::Wait;

fn by(key: &str) -> Want {
    Want { gates: vec![name(key)], deadline: Some(at(FOREVER)), ..host() }
}

fn with(keys: &[&str]) -> Want {
    Want { gates: keys.iter().map(|key| name(key)).collect(), deadline: Some(at(FOREVER)), ..host() }
}

fn core() -> Admission {
    Admission::new(Settings { rules: vec![Rule::default()], ..Settings::default() })
}

fn granted(core: &mut Admission, want: Want, ms: u64) -> Grant {
    match ask(core, want, at(ms)) {
        Ok(Asked::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn report(limit: &str, unit: &str, left: u64, resets_ms: u64) -> Report {
    let (unit, most) = (unit.into(), Some(1_000_000));
    let resets_after = Some(Duration::from_millis(resets_ms));
    Report { name: Arc::from(limit), unit, left, most, resets_after, window: None, refused: false }
}

fn all_to(to: &str) -> HandOver {
    HandOver { from: name(HOST), stated: vec![(None, name(to))], found: Some(name(to)) }
}

/// A gate at rest is dropped when another is made: also the one whose knowledge is being handed over.
#[test]
fn a_hand_over_from_a_gate_that_comes_to_rest_by_it() {
    let mut broken = Vec::new();
    for others in 0..12_usize {
        let run = move || {
            let mut core = core();
            let first = granted(&mut core, host(), 0);
            core.report(&first, 0, &[report("requests", "requests", 5, 60_000)], at(1));
            core.answered(&first, at(1));
            core.release(first, at(1));
            let passing: Vec<_> = (0..others).map(|nth| granted(&mut core, by(&format!("other{nth}")), 2)).collect();
            core.hand_over(&all_to("one"), at(3));
            // What was stated holds for whoever it is about.
            let gate = core.state.gates.find(&name("one"));
            let kept =
                gate.is_some_and(|gate| core.state.gates[gate].meters.iter().any(|meter| meter.is_stated("requests")));
            for grant in passing {
                core.release(grant, at(4));
            }
            kept
        };
        match std::panic::catch_unwind(run) {
            Ok(true) => {}
            Ok(false) => broken.push(format!("{others}: forgotten")),
            Err(_) => broken.push(format!("{others}: panicked")),
        }
    }
    assert!(broken.is_empty(), "{broken:?}");
}

/// After a refusal where no rate is known one goes; while it is out, what was found is handed over.
#[test]
fn a_gate_to_which_a_pause_with_one_out_is_handed_opens_again() {
    let mut core = core();
    let (first, second) = (granted(&mut core, host(), 0), granted(&mut core, host(), 0));
    assert!(core.send(&first, at(0)) && core.send(&second, at(0)));
    core.answered(&second, at(5));
    core.release(second, at(5));
    core.refused(&first, 0, Wait::Stated(Duration::from_millis(100), 0), at(10));
    core.release(first, at(10));
    core.advance(at(500));
    let probe = granted(&mut core, host(), 500);
    assert!(core.send(&probe, at(500)));
    core.hand_over(&all_to("one"), at(510));
    core.answered(&probe, at(520));
    core.release(probe, at(520));
    for hour in 1..24 {
        core.advance(at(hour * 3_600_000));
    }
    let next = ask(&mut core, with(&[HOST, "one"]), at(24 * 3_600_000));
    assert!(matches!(next, Ok(Asked::Granted(_))), "a day later: {next:?}");
}

/// Permits that were taken before a hand-over and are given back after it, for their requests have other gates to pass.
#[test]
fn what_is_given_back_after_a_hand_over_is_not_under_way() {
    let mut core = core();
    let first = granted(&mut core, host(), 0);
    core.report(&first, 0, &[report("requests", "requests", 50, 3_600_000)], at(1));
    core.answered(&first, at(1));
    core.release(first, at(1));
    let unsent: Vec<_> = (0..40).map(|_| granted(&mut core, host(), 2)).collect();
    core.hand_over(&HandOver { from: name(HOST), stated: vec![(None, name("one"))], found: None }, at(3));
    for grant in unsent {
        core.give_back(grant, at(4));
    }
    let mut went = 0;
    while let Ok(Asked::Granted(_)) = ask(&mut core, Want { deadline: None, ..with(&[HOST, "one"]) }, at(5)) {
        went += 1;
    }
    assert_eq!(went, 49, "of 50 that are left, with one for others, nothing on its way, for an hour");
}

/// The same of those that end without an answer, or whose answer says nothing of this limit.
#[test]
fn what_ends_after_a_hand_over_is_not_under_way() {
    for silent in [false, true] {
        let mut core = core();
        let first = granted(&mut core, host(), 0);
        core.report(&first, 0, &[report("requests", "requests", 90, 3_600_000)], at(1));
        core.answered(&first, at(1));
        core.release(first, at(1));
        let sent: Vec<_> = (0..40).map(|_| granted(&mut core, host(), 2)).collect();
        assert!(sent.iter().all(|grant| core.send(grant, at(2))));
        core.hand_over(&HandOver { from: name(HOST), stated: vec![(None, name("one"))], found: None }, at(3));
        for grant in sent {
            if silent {
                core.answered(&grant, at(4));
            }
            core.release(grant, at(4));
        }
        let one = granted(&mut core, with(&[HOST, "one"]), 5);
        core.report(&one, 1, &[report("requests", "requests", 49, 3_600_000)], at(6));
        core.answered(&one, at(6));
        core.release(one, at(6));
        let mut went = 0;
        while let Ok(Asked::Granted(_)) = ask(&mut core, Want { deadline: None, ..with(&[HOST, "one"]) }, at(7)) {
            went += 1;
        }
        assert_eq!(went, 48, "a fresh answer says 49 are left, and nothing is on its way; silent: {silent}");
    }
}

/// What is on its way is handed over in units, and ended in requests.
#[test]
fn tokens_that_are_on_their_way_at_a_hand_over_come_back() {
    let mut core = core();
    let costly = |keys: &[&str]| Want { cost: Cost::new().and("tokens", 1_000), ..with(keys) };
    let first = granted(&mut core, costly(&[HOST]), 0);
    let tokens = |left| [report("tokens", "tokens", left, 3_600_000)];
    core.report(&first, 0, &tokens(50_000), at(1));
    core.answered(&first, at(1));
    core.release(first, at(1));
    let sent: Vec<_> = (0..20).map(|_| granted(&mut core, costly(&[HOST]), 2)).collect();
    assert!(sent.iter().all(|grant| core.send(grant, at(2))));
    core.hand_over(&HandOver { from: name(HOST), stated: vec![(None, name("one"))], found: None }, at(3));
    for (grant, nth) in sent.into_iter().zip(1..) {
        core.report_of_another(&name("one"), &tokens(50_000 - nth * 1_000), at(4));
        core.answered(&grant, at(4));
        core.release(grant, at(4));
    }
    let mut went = 0;
    while let Ok(Asked::Granted(_)) = ask(&mut core, Want { deadline: None, ..costly(&[HOST, "one"]) }, at(5)) {
        went += 1;
    }
    assert!(went >= 28, "{went} of the 30 that are left went; the others wait for an hour");
}

/// A gate that is paused longer keeps its pause when what another has found is handed to it.
#[test]
fn a_hand_over_ends_no_pause() {
    let mut core = core();
    core.pause(&name("one"), at(60_000), at(0));
    drop(granted(&mut core, host(), 1));
    core.hand_over(&all_to("one"), at(2));
    let next = ask(&mut core, Want { deadline: None, ..with(&[HOST, "one"]) }, at(3));
    assert!(next.is_err(), "sent 57 s before its time");
}
