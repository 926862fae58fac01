//! One bucket by exact instants, in milliseconds.

use super::*;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

fn bucket(interval_nanos: u64, burst: u64) -> Bucket {
    Bucket::new(Scale::new(1, Duration::from_nanos(interval_nanos), burst).unwrap())
}

impl Bucket {
    /// Takes `cost`, if it is there; else answers when it is.
    fn take(&mut self, cost: u64, now: Time) -> Result<Charge, Time> {
        let ready = self.ready_at(cost, now);
        if ready > now { Err(ready) } else { Ok(self.charge(cost, now)) }
    }
}

#[test]
fn a_full_bucket_lets_its_burst_go_and_then_one_per_interval() {
    let mut bucket = self::bucket(10 * MS, 3);
    for _ in 0..3 {
        bucket.take(1, at(0)).unwrap();
    }
    assert_eq!(bucket.take(1, at(0)).unwrap_err(), at(10));
    assert_eq!(bucket.take(1, Time::from_nanos(10 * MS - 1)).unwrap_err(), at(10));
    bucket.take(1, at(10)).unwrap();
    assert_eq!(bucket.ready_at(3, at(10)), at(40));
}

#[test]
fn looking_takes_nothing_and_a_refusal_takes_nothing() {
    let mut bucket = self::bucket(10 * MS, 2);
    assert_eq!(bucket.ready_at(2, at(0)), at(0));
    assert_eq!(bucket.take(3, at(0)).unwrap_err(), Time::from_nanos(u64::MAX));
    bucket.take(1, at(0)).unwrap();
    assert_eq!(bucket.take(2, at(0)).unwrap_err(), at(10));
    bucket.take(1, at(0)).unwrap();
}

#[test]
fn an_estimate_is_the_instant_at_which_the_last_one_goes() {
    let mut bucket = self::bucket(10 * MS, 3);
    assert_eq!(bucket.estimate(3, at(5)), at(5));
    assert_eq!(bucket.estimate(4, at(5)), at(15));
    bucket.take(3, at(5)).unwrap();
    assert_eq!(bucket.estimate(1, at(5)), at(15));
    assert_eq!(bucket.estimate(100, at(5)), at(1_005));
    assert!(bucket.estimate(u64::MAX, at(5)) > Time::from_nanos(u64::MAX / 2));
}

#[test]
fn giving_back_is_exact_when_nothing_went_since() {
    let mut bucket = self::bucket(10 * MS, 2);
    bucket.take(1, at(0)).unwrap();
    let charge = bucket.take(1, at(0)).unwrap();
    bucket.give_back(1, charge);
    assert_eq!(bucket.ready_at(1, at(0)), at(0));
    assert_eq!(bucket.ready_at(2, at(0)), at(10));
}

/// X at 0 (never sent), Y at 20, X given back at 21. Taken off plainly, the next would go at 21.
#[test]
fn giving_back_after_the_bucket_was_full_again_mints_nothing() {
    let mut bucket = self::bucket(10 * MS, 1);
    let x = bucket.take(1, at(0)).unwrap();
    bucket.take(1, at(20)).unwrap();
    bucket.give_back(1, x);
    assert_eq!(bucket.ready_at(1, at(21)), at(30));

    let mut bucket = self::bucket(10 * MS, 10);
    let x = bucket.take(10, at(0)).unwrap();
    bucket.take(1, at(50)).unwrap();
    bucket.give_back(10, x);
    assert_eq!(bucket.ready_at(9, at(50)), at(50));
    assert_eq!(bucket.ready_at(10, at(50)), at(60));
}

#[test]
fn years_of_idling_change_nothing() {
    let mut bucket = self::bucket(MS, 5);
    let late = Time::from_nanos(100 * 365 * 86_400 * 1_000 * MS);
    bucket.take(5, late).unwrap();
    assert_eq!(bucket.take(1, late).unwrap_err(), late.plus(MS));
}

#[test]
fn a_charge_goes_into_debt_and_the_debt_is_paid_first() {
    let mut bucket = self::bucket(10 * MS, 3);
    bucket.charge(10, at(0));
    assert_eq!(bucket.ready_at(1, at(0)), at(80));
    bucket.charge(u64::MAX, at(0));
    assert!(bucket.ready_at(1, at(0)) > Time::from_nanos(END_OF_TIME / 2));
}

#[test]
fn a_drained_bucket_lets_one_go_at_the_reopening_and_then_the_rate() {
    let mut bucket = self::bucket(10 * MS, 5);
    bucket.drain(at(100));
    bucket.take(1, at(100)).unwrap();
    assert_eq!(bucket.take(1, at(100)).unwrap_err(), at(110));
    assert_eq!(bucket.ready_at(5, at(100)), at(150));
}

#[test]
fn what_was_charged_before_a_drain_does_not_come_back() {
    let mut bucket = bucket(10 * MS, 2);
    let before = bucket.take(1, at(0)).unwrap();
    bucket.drain(at(100));
    bucket.give_back(1, before);
    let after = bucket.take(1, at(100)).unwrap();
    bucket.give_back(1, before);
    assert_eq!(bucket.ready_at(1, at(100)), at(110));
    bucket.give_back(1, after);
    assert_eq!((bucket.ready_at(1, at(100)), bucket.ready_at(2, at(100))), (at(100), at(110)));
}

#[test]
fn another_rate_keeps_what_was_spent() {
    let scale = |interval_ms, burst| Scale::new(1, Duration::from_millis(interval_ms), burst).unwrap();
    // Drained at 10/s, and at 1000 s set to 20/s: the next is there 50 ms later, not at once.
    let start = at(1_000_000);
    let mut bucket = self::bucket(100 * MS, 1);
    bucket.take(1, start).unwrap();
    bucket.retune(scale(50, 1), start);
    assert_eq!(bucket.ready_at(1, start), start.plus(50 * MS));
    // Three of ten were spent: of twenty seventeen are there, of five two.
    for (burst, there) in [(20, 17), (10, 7), (5, 2)] {
        let mut bucket = self::bucket(100 * MS, 10);
        bucket.take(3, at(0)).unwrap();
        bucket.retune(scale(100, burst), at(0));
        assert_eq!((bucket.ready_at(there, at(0)), bucket.ready_at(there + 1, at(0))), (at(0), at(100)));
    }
}

/// Another rate during a pause does not stretch the pause, and another burst is not there at its end.
#[test]
fn another_rate_during_a_pause_changes_neither_its_end_nor_what_is_there_then() {
    for (interval_ms, burst) in [(1_000, 1), (10, 50), (5, 7), (20, 7)] {
        let mut bucket = bucket(10 * MS, 7);
        bucket.drain(at(60_000));
        bucket.retune(Scale::new(1, Duration::from_millis(interval_ms), burst).unwrap(), at(100));
        bucket.take(1, at(60_000)).unwrap();
        assert_eq!(bucket.take(1, at(60_000)).unwrap_err(), at(60_000 + interval_ms), "{interval_ms}, {burst}");
    }
}

/// However often it is settled, what comes back is as old as the first charge: the bucket has been full since.
#[test]
fn more_of_an_old_charge_does_not_make_it_young() {
    let mut bucket = bucket(10 * MS, 10);
    let first = bucket.take(5, at(0)).unwrap();
    bucket.take(5, at(1_000)).unwrap();
    let more = bucket.charge_more(1, first, at(1_000));
    bucket.give_back(6, more);
    assert_eq!((bucket.ready_at(5, at(1_000)), bucket.ready_at(6, at(1_000))), (at(1_000), at(1_010)));
    let mut bucket = self::bucket(10 * MS, 10);
    let first = bucket.take(1, at(0)).unwrap();
    let more = bucket.charge_more(1, first, at(1_000));
    assert!(bucket.sent(2, more, at(1_001)).is_some_and(|anew| anew.at == at(999)), "it is still late");
}

/// What is left of a grain does not come back again and again.
#[test]
fn giving_back_parts_of_grains_mints_nothing() {
    let mut bucket = Bucket::new(Scale::new(2_000_000_000, Duration::from_secs(1), 3_999).unwrap());
    let mut now = Time::ZERO;
    let mut charges = Vec::new();
    for _ in 0..10_000 {
        charges.push(bucket.take(1_999, now).unwrap());
        now = now.plus(1_000);
    }
    now = now.plus(10_000 * MS);
    let mut went = 0;
    for charge in charges {
        bucket.give_back(1_999, charge);
        went += bucket.take(1_999, now).map_or(0, |_| 1_999);
    }
    assert!(went <= 3 * 1_999, "{went} at one instant");
}

#[test]
fn there_and_back_again_mints_nothing() {
    let mut random = fastrand::Rng::with_seed(8);
    for _ in 0..100_000 {
        let scale = |random: &mut fastrand::Rng| {
            let count = 1 + (random.u64(..) >> random.u32(20..64));
            let period = Duration::from_nanos(1 + (random.u64(..) >> random.u32(4..64)));
            Scale::new(count, period, 1 + (random.u64(..) >> random.u32(30..64))).ok()
        };
        let (Some(one), Some(other)) = (scale(&mut random), scale(&mut random)) else { continue };
        let mut bucket = Bucket::new(one);
        let now = Time::from_nanos(random.u64(..) >> random.u32(3..64));
        let spent = 1 + random.u64(0..bucket.capacity());
        if bucket.take(spent, now).is_err() {
            continue;
        }
        let before = bucket.full_at();
        bucket.retune(other, now);
        if bucket.full_at() == END_OF_TIME {
            continue;
        }
        bucket.retune(one, now);
        assert!(bucket.full_at() >= before, "{one:?} {other:?}");
        bucket.take(bucket.capacity() - spent + 1, now).unwrap_err();
    }
}

#[test]
fn extreme_rates_are_exact() {
    let second = Duration::from_secs(1);
    // 10^9/s: one each nanosecond.
    let mut fast = Bucket::new(Scale::new(1_000_000_000, second, 1).unwrap());
    for n in 0..1_000_000 {
        fast.take(1, Time::from_nanos(n)).unwrap();
        assert!(fast.take(1, Time::from_nanos(n)).is_err());
    }
    // 2 × 10^9/s, bought by the two thousand: in a millisecond two million and the burst, and no more.
    let mut faster = Bucket::new(Scale::new(2_000_000_000, second, 10_000).unwrap());
    let went: u64 = (0..=1_000_000)
        .map(|n| (0..9).take_while(|_| faster.take(1, Time::from_nanos(n)).is_ok()).count() as u64)
        .sum();
    assert!((1_998_000 + 6_000..=2_000_000 + 10_000).contains(&went), "{went}");
    // One a year, a thousand at once.
    let year = Duration::from_secs(365 * 86_400);
    let mut slow = Bucket::new(Scale::new(1, year, 1_000).unwrap());
    slow.take(1_000, at(1)).unwrap();
    let next = slow.take(1, at(1)).unwrap_err();
    assert_eq!(next, at(1).plus(u64::try_from(year.as_nanos()).unwrap()));
    slow.take(1, next).unwrap();
}

#[test]
fn seven_a_minute_do_not_drift_in_a_million_grants() {
    let scale = Scale::new(7, Duration::from_secs(60), 1).unwrap();
    let mut bucket = Bucket::new(scale);
    let mut now = Time::ZERO;
    for _ in 0..1_000_000 {
        bucket.take(1, now).unwrap();
        now = bucket.take(1, now).unwrap_err();
    }
    let exact = 1_000_000 * 60_000_000_000_u128 / 7;
    let late = u128::from(now.as_nanos()) - exact;
    // Rounding up an interval by 3/7 of a nanosecond: 0.0000000050 %.
    assert!(late < 1_000_000, "{late} ns late");
}

/// The referee: a level in nanoseconds that rises with time and never above the top, in 128 bits.
#[derive(Clone)]
struct Level {
    interval: i128,
    top: i128,
    height: i128,
    at: i128,
}

impl Level {
    fn new(interval: u64, burst: u64) -> Self {
        let top = i128::from(interval) * i128::from(burst);
        Self { interval: interval.into(), top, height: top, at: 0 }
    }

    fn rise(&mut self, now: u64) {
        self.height = (self.height + i128::from(now) - self.at).min(self.top);
        self.at = now.into();
    }

    fn lower(&mut self, cost: u64) {
        self.height -= self.interval * i128::from(cost);
    }

    fn ready_at(&self, cost: u64) -> i128 {
        self.at + (self.interval * i128::from(cost) - self.height).max(0)
    }
}

/// What would be, had the charges in `gone` never been made: everything else over again.
fn replay(interval: u64, burst: u64, charges: &[(u64, u64, bool)], now: u64) -> Level {
    let mut level = Level::new(interval, burst);
    for (at, cost, _) in charges.iter().filter(|(.., gone)| !gone) {
        level.rise(*at);
        level.lower(*cost);
    }
    level.rise(now);
    level
}

/// A million random operations. Takes, refusals, peeks and charges agree with the referee exactly; a give-back is exact
/// when nothing was charged since, and otherwise never more than what would be had the charge never been made.
#[test]
fn a_million_random_operations_agree_with_the_referee_and_giving_back_never_mints() {
    let mut random = fastrand::Rng::with_seed(11);
    let (mut exact, mut kept) = (0, 0);
    for _ in 0..50_000 {
        let (interval, burst) = (1 + random.u64(0..50), 1 + random.u64(0..8));
        let (mut bucket, mut level, mut now) = (bucket(interval, burst), Level::new(interval, burst), 0);
        let mut charges: Vec<(u64, u64, bool)> = Vec::new();
        let mut receipts = Vec::new();
        for _ in 0..20 {
            now += random.u64(0..interval * 2);
            level.rise(now);
            let (time, cost) = (Time::from_nanos(now), 1 + random.u64(0..burst));
            assert_eq!(i128::from(bucket.ready_at(cost, time).as_nanos()), level.ready_at(cost));
            let charge = match random.u8(0..8) {
                0..=4 => bucket.take(cost, time).ok(),
                5 => Some(bucket.charge(cost, time)),
                _ => None,
            };
            if let Some(charge) = charge {
                level.lower(cost);
                charges.push((now, cost, false));
                receipts.push(charge);
            } else if let Some(which) = (!charges.is_empty()).then(|| random.usize(..charges.len())) {
                if charges[which].2 || random.bool() {
                    continue;
                }
                charges[which].2 = true;
                bucket.give_back(charges[which].1, receipts[which]);
                let truth = replay(interval, burst, &charges, now);
                let ready = i128::from(bucket.ready_at(burst, time).as_nanos());
                assert!(ready >= truth.ready_at(burst), "minted: {charges:?}");
                if which + 1 == charges.len() && !charges[..which].iter().any(|charge| charge.2) {
                    assert_eq!(ready, truth.ready_at(burst), "lost: {charges:?}");
                    exact += 1;
                } else {
                    kept += 1;
                }
                level.height = level.top - (ready - i128::from(now));
            }
        }
    }
    assert!(exact > 10_000 && kept > 10_000, "{exact} exact, {kept} others");
}
