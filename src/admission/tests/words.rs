//! What a server says of its limits is believed, as far as it can be: by exact instants, and before strict servers in virtual
//! time, with others on the same key.

use super::world::{Counts, WORKERS, World, ratio};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn word(left: u64, resets_ms: u64) -> Report {
    let (name, unit) = (Arc::from("requests"), Unit::REQUESTS);
    Report {
        name,
        unit,
        left,
        most: Some(60),
        resets_after: Some(Duration::from_millis(resets_ms)),
        window: None,
        refused: false,
    }
}

fn heard(bench: &mut Bench, grant: Grant, report: &Report) {
    let now = at(bench.now);
    bench.core.report(&grant, 0, std::slice::from_ref(report), now);
    bench.core.answered(&grant, now);
    bench.core.release(grant, now);
    bench.core.state.assert_sound();
}

#[test]
fn a_gate_without_limits_keeps_that_of_the_server() {
    let mut bench = Bench::new("no limit");
    let first = bench.granted();
    heard(&mut bench, first, &word(3, 500));
    let grants = [bench.granted(), bench.granted()];
    let waiting = bench.waiting();
    let shown = bench.core.snapshot(at(120)).to_string();
    assert_eq!(
        shown.lines().next().unwrap(),
        "host: stated by the server 120ms ago: 3 left of 60 requests, resets in 380ms, 2 in flight, 1 waiting"
    );
    // One goes ahead when it is reset, and brings word.
    assert_eq!(bench.run_to(499), []);
    for grant in grants {
        bench.core.release(grant, at(499));
    }
    assert_eq!(bench.run_to(600), [(waiting, 500)]);
}

#[test]
fn where_a_limit_is_set_nothing_is_left_to_others_until_they_are_seen() {
    let mut bench = Bench::new("100/s");
    let first = bench.granted();
    heard(&mut bench, first, &word(2, 500));
    let grants = [bench.granted(), bench.granted()];
    let third = bench.waiting();
    for grant in grants {
        bench.core.release(grant, at(0));
    }
    assert_eq!(bench.run_to(600), [(third, 500)]);
}

#[test]
fn a_refusal_that_says_which_limit_is_used_up_lowers_nothing() {
    let mut bench = Bench::new("10/s");
    let grant = bench.granted();
    bench.core.report(&grant, 0, &[word(0, 2_000)], at(0));
    bench.core.refused(&grant, 0, Wait::Stated(2 * SECOND, 0), at(0));
    let gate = bench.core.snapshot(at(0)).gates.remove(0);
    assert_eq!((gate.lowered_to_percent, gate.paused_for), (None, Some(2 * SECOND)));
    // One with something left is about another limit, which nobody has spoken of.
    let mut bench = Bench::new("10/s");
    let grant = bench.granted();
    bench.core.report(&grant, 0, &[word(7, 2_000)], at(0));
    bench.core.refused(&grant, 0, Wait::Stated(2 * SECOND, 0), at(0));
    assert_eq!(bench.core.snapshot(at(0)).gates.remove(0).lowered_to_percent, Some(70));
}

#[test]
fn of_several_limits_each_counts_and_tokens_that_nobody_counts_are_some() {
    let mut bench = Bench::new("no limit");
    let first = bench.granted();
    let tokens = Report { name: Arc::from("tokens"), unit: Unit::TOKENS, ..word(0, 700) };
    bench.core.report(&first, 0, &[word(50, 60_000), tokens], at(0));
    bench.core.answered(&first, at(0));
    bench.core.release(first, at(0));
    let waiting = bench.waiting();
    assert_eq!(bench.run_to(1_000), [(waiting, 700)]);
}

#[test]
fn other_limits_that_are_set_leave_what_the_server_said() {
    let mut bench = Bench::new("no limit");
    let first = bench.granted();
    heard(&mut bench, first, &word(1, 500));
    bench.core.set_limits(0, "100/s".parse().unwrap(), at(0));
    let waiting = bench.waiting();
    assert_eq!(bench.run_to(1_000), [(waiting, 500)]);
}

#[test]
fn whatever_a_server_says_the_gates_that_it_names_are_few() {
    let mut bench = Bench::new("no limit");
    for nth in 0..100 {
        let grant = bench.granted();
        let report = Report { name: Arc::from(nth.to_string()), ..word(1_000, 500) };
        heard(&mut bench, grant, &report);
    }
    assert_eq!(bench.core.snapshot(at(0)).gates.remove(0).quotas.len(), 8);
}

/// How many were refused while it learned, and after; and of what others leave, how much was used.
struct Came {
    learning: usize,
    refused: usize,
    share: f64,
}

impl World {
    /// Goes on for so long, at so many a second that others leave.
    fn for_seconds(mut self, seconds: u64, left: f64) -> Came {
        if self.others_come > 0.0 {
            self.others();
        }
        let world = self.run(|world| world.now >= at(seconds * 1_000));
        let learning = world.refusals.iter().filter(|refused| **refused < at(2_000)).count();
        let share = ratio(world.served, usize::try_from(seconds).unwrap()) / left;
        println!(
            "{learning} while learning, {} after, {:.1} % of what is left",
            world.refused - learning,
            share * 100.0
        );
        Came { learning, refused: world.refused - learning, share }
    }
}

fn says(server: Counts, precision: Duration, seed: u64) -> World {
    let mut world = World::new("no limit", server, seed);
    world.says = Some(precision);
    world
}

#[test]
fn what_is_left_and_when_it_is_reset_is_kept_to_beside_others() {
    for server in [Counts::InEach(20, SECOND), Counts::Bucket(20.0, 20.0), Counts::InAny(20, SECOND)] {
        for seed in 0..5 {
            let came = says(server, Duration::from_millis(100), seed).for_seconds(60, 14.0);
            assert!(came.learning <= WORKERS && came.refused <= 8 && came.share >= 0.85);
        }
    }
}

#[test]
fn whole_seconds_do_for_a_window_of_a_minute_whichever_way_they_are_rounded() {
    for rounds_down in [false, true] {
        for seed in 0..5 {
            let mut world = says(Counts::InEach(300, 60 * SECOND), SECOND, seed);
            (world.others_come, world.rounds_down) = (1.5, rounds_down);
            let came = world.for_seconds(600, 3.5);
            assert!(came.learning <= WORKERS && came.refused <= 21 && came.share >= 0.85);
        }
    }
}

#[test]
fn alone_on_the_key_nearly_all_is_used_and_hardly_any_refused() {
    let counts = [Counts::InEach(60, 3 * SECOND), Counts::InAny(60, 3 * SECOND), Counts::Bucket(20.0, 60.0)];
    for server in counts {
        for (precision, rounds_down) in [(Duration::from_millis(1), false), (SECOND, false), (SECOND, true)] {
            let mut world = says(server, precision, 1);
            (world.others_come, world.rounds_down) = (0.0, rounds_down);
            let came = world.for_seconds(60, 20.0);
            assert!((came.learning + came.refused) * 100 <= 1_200 && came.share >= 0.85);
        }
    }
}

#[test]
fn a_limit_that_is_halved_and_doubled_on_the_way_is_kept_to() {
    for seed in 0..5 {
        let mut world = says(Counts::InEach(20, SECOND), Duration::from_millis(100), seed);
        world.others_come = 0.0;
        world.changes = vec![(at(20_200), Counts::InEach(10, SECOND)), (at(40_200), Counts::InEach(40, SECOND))];
        // 20, 10 and 40 for 20 s each.
        let came = world.for_seconds(60, 23.3);
        assert!(came.learning <= WORKERS && came.refused <= 12 && came.share >= 0.85);
    }
}

#[test]
fn answers_that_take_seconds_and_overtake_each_other_loosen_nothing() {
    for seed in 0..5 {
        let mut world = says(Counts::InEach(60, 3 * SECOND), Duration::from_millis(100), seed);
        (world.others_come, world.answers_take) = (0.0, (1_000_000, 1_000_000_000));
        let came = world.for_seconds(120, 20.0);
        assert!(came.learning + came.refused <= 3, "of two thousand");
    }
}
