//! One window by exact instants, in milliseconds.

use super::*;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn window(most: u64, period_ms: u64) -> Window {
    Window::new(most, period_ms * 1_000_000, Anchor::AnswerCapped)
}

#[test]
fn a_unit_comes_free_one_window_after_its_answer() {
    let mut window = window(2, 1_000);
    let mut first = window.take(1, true, at(0));
    window.take(1, true, at(0));
    window.answered(&mut first, at(40));
    assert_eq!(window.ready_at(1, at(40)), Some(at(1_040)));
    assert_eq!(window.ready_at(1, Time::from_nanos(at(1_040).as_nanos() - 1)), Some(at(1_040)));
    assert_eq!(window.ready_at(1, at(1_040)), Some(at(1_040)));
}

#[test]
fn a_late_answer_counts_from_a_quarter_window_after_the_sending() {
    let mut window = window(1, 1_000);
    let mut slow = window.take(1, true, at(0));
    assert_eq!(window.ready_at(1, at(0)), Some(at(1_250)));
    assert!(window.sent(&mut slow, true, at(30)));
    assert_eq!(window.ready_at(1, at(30)), Some(at(1_280)));
    window.answered(&mut slow, at(900));
    assert_eq!(window.ready_at(1, at(900)), Some(at(1_280)));
}

#[test]
fn the_while_is_at_least_100_ms_and_at_most_a_second() {
    let mut short = window(1, 100);
    short.take(1, true, at(0));
    assert_eq!(short.ready_at(1, at(0)), Some(at(200)));
    let mut long = window(1, 60_000);
    long.take(1, true, at(0));
    assert_eq!(long.ready_at(1, at(0)), Some(at(61_000)));
    let mut unseen = window(1, 1_000);
    unseen.take(1, false, at(0));
    assert_eq!(unseen.ready_at(1, at(0)), Some(at(1_050)));
}

#[test]
fn an_estimate_goes_round_the_allowance_once_in_each_window() {
    let mut window = window(2, 1_000);
    for answer in [10, 20] {
        let mut units = window.take(1, true, at(0));
        window.answered(&mut units, at(answer));
    }
    for (units, free) in [(1, 1_010), (2, 1_020), (3, 2_010), (4, 2_020), (5, 3_010)] {
        assert_eq!(window.estimate(units, at(20)), at(free), "{units}");
    }
}

#[test]
fn an_estimate_assumes_that_all_that_is_unanswered_is_answered_now() {
    let mut window = window(2, 1_000);
    window.take(1, true, at(0));
    assert_eq!(window.estimate(1, at(5)), at(5));
    assert_eq!(window.estimate(2, at(5)), at(1_005));
    assert_eq!(window.estimate(3, at(5)), at(1_005));
    assert_eq!(window.estimate(4, at(5)), at(2_005));
}

#[test]
fn what_was_given_back_or_no_longer_counts_is_not_moved() {
    let mut window = window(1, 1_000);
    let units = window.take(1, true, at(0));
    window.give_back(units);
    assert_eq!(window.ready_at(1, at(0)), Some(at(0)));
    let mut old = window.take(1, true, at(0));
    assert_eq!(window.ready_at(1, at(1_250)), Some(at(1_250)));
    window.take(1, true, at(1_250));
    assert!(!window.sent(&mut old, true, at(1_260)));
    window.answered(&mut old, at(1_260));
    window.give_back(old);
    assert_eq!(window.ready_at(1, at(1_300)), Some(at(2_500)));
}

#[test]
fn memory_is_bounded_whatever_the_allowance() {
    let mut window = window(1_000_000, 1_000);
    for n in 0..1_000_000 {
        let mut units = window.take(1, true, Time::from_nanos(n * 1_000));
        window.answered(&mut units, Time::from_nanos(n * 1_000 + 7));
    }
    assert!(window.anchors.len() as u64 <= 2 * MOST_EXACT);
    let free = window.ready_at(1, at(1_000)).unwrap();
    assert!(at(1_000) < free && free <= at(1_001), "{free:?}");
}
