//! What is read, printed and refused.

use super::*;

#[test]
fn what_is_written_is_read_and_printed_in_one_form() {
    for (written, printed) in [
        ("50/s", "50/s"),
        (" 50 / sec ", "50/s"),
        ("100/min", "100/min"),
        ("100 per minute", "100/min"),
        ("5_000/hour", "5000/h"),
        ("40 per 2s", "40 per 2s"),
        ("1 per 500ms", "1 per 500ms"),
        ("1/500 ms", "1 per 500ms"),
        ("1 per 120s", "1 per 2min"),
        ("10/s burst 20", "10/s burst 20"),
        ("7/min burst 1", "7/min burst 1"),
        ("1/day", "1/d"),
        ("0.5/s", "1 per 2s"),
        ("1/2s", "1 per 2s"),
        ("2.50 per minute", "5 per 2min"),
        ("unlimited", "unlimited"),
        ("unlimited tokens", "unlimited tokens"),
        ("200_000 tokens/min", "200000 tokens/min"),
        ("1 token / s", "1 tokens/s"),
        ("50 requests/s", "50/s"),
        ("7 compute-units per 3h", "7 compute-units per 3h"),
        ("40 per 2s paced", "40 per 2s paced"),
        ("40 per 2s at most 1", "40 per 2s paced"),
        ("40 per 2s at most 5 headroom 10%", "40 per 2s at most 5 headroom 10%"),
        ("10/s jitter 50ms burst 20", "10/s burst 20 jitter 50ms"),
        ("5/s counted from answer", "5/s counted from answer"),
        ("5 tokens/min counted from end", "5 tokens/min counted from end"),
        ("5/s counted from send", "5/s counted from send"),
        ("5/s counted from send + 50ms", "5/s counted from send + 50ms"),
    ] {
        let quota: Quota = written.parse().unwrap();
        assert_eq!(quota.to_string(), printed);
        assert_eq!(printed.parse(), Ok(quota.clone()));
    }
}

#[test]
fn every_quota_that_can_be_kept_is_read_as_it_is_printed() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut kept = 0;
    for _ in 0..200_000 {
        let nanos = random.u64(..) >> random.u32(0..63);
        let count = random.u64(..) >> random.u32(0..64);
        let period = Duration::from_nanos(nanos) * [1, 1_000, 1_000_000][random.usize(0..3)];
        let mut quota = Quota::window(count, period);
        let form = random.u8(0..3);
        if form == 0 {
            quota = Quota::rate_and_burst(Rate { count, period }, random.u64(..) >> random.u32(0..64));
        } else if form == 1 {
            let pad = Duration::from_nanos(random.u64(0..u64::MAX) >> random.u32(0..64));
            quota = quota.counted_from([Anchor::Answer, Anchor::End, Anchor::Send(pad)][random.usize(0..3)]);
        }
        quota.0.at_most = random.bool().then(|| random.u64(0..10));
        quota =
            quota.headroom(random.u8(0..102) * random.u8(0..2)).of(["tokens", "requests", "x_1"][random.usize(0..3)]);
        quota = quota.jitter(Duration::from_micros(random.u64(0..100_000)) * random.u32(0..2));
        if quota.plan().is_ok() {
            kept += 1;
            assert_eq!(quota.to_string().parse(), Ok(quota));
        }
    }
    assert!(kept > 10_000, "{kept}");
}

#[test]
fn no_text_panics() {
    let words = ["1", "0", "/", "s", " ", "per", "burst", "paced", "at", "most", "headroom", "%", "jitter", "counted"];
    let more = ["from", "send", "+", "ms", "tokens", "_", ".", "-", "99999999999999999999", "unlimited", "µ", "\u{0}"];
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..200_000 {
        let mut text = String::new();
        for _ in 0..random.usize(0..12) {
            let from = if random.bool() { &words[..] } else { &more[..] };
            text.push_str(from[random.usize(..from.len())]);
        }
        if let Ok(quota) = text.parse::<Quota>() {
            assert_eq!(quota.to_string().parse(), Ok(quota));
        }
    }
}

#[test]
fn what_cannot_be_read_is_named_with_its_remedy() {
    for text in [
        "",
        "50",
        "/s",
        "10/",
        "-1/s",
        "NaN/s",
        "1e400/s",
        "1.0000000001/s",
        "10/fortnight",
        "1/2sec/s",
        "1/1.5s",
        "_1/s",
        "5 per",
        "5 tok$ens/s",
        "10/s burst x",
        "10/s burst 1 burst 2",
        "10/s paced paced",
        "10/s headroom 10",
        "10/s headroom 0%",
        "10/s counted from nowhere",
        "10/s slowly",
    ] {
        let error = text.parse::<Quota>().unwrap_err();
        assert_eq!((error.field.as_ref(), error.value.as_str()), ("quota", text));
        assert!(error.to_string().contains("`50/s`"), "{error}");
    }
}

#[test]
fn what_cannot_be_kept_is_named_with_its_remedy() {
    for (text, remedy) in [
        ("0/s", "at least 1 in its period"),
        ("0.0/s", "at least 1 in its period"),
        ("5 per 0s", "a period above zero"),
        ("1/s burst 0", "a burst of at least 1"),
        ("1/s at most 0", "at least 1 at once"),
        ("1 per 4000000000d", "100 years at most"),
        ("2_000_000_000/s burst 1", "a burst of at least 3999"),
        ("1 per 36500d burst 4_000_000_000", "a smaller burst"),
        ("5/s headroom 100%", "a headroom below 100%"),
        ("5/s headroom 90%", "a headroom that leaves at least 1"),
        ("5/s jitter 50ms", "for a bucket only"),
        ("50/s burst 5 jitter 98ms", "above rate × (jitter + 2 ms)"),
        ("50/s burst 5 counted from end", "for a window only"),
        ("unlimited burst 5", "`unlimited` by itself"),
    ] {
        let error = text.parse::<Quota>().unwrap_err();
        assert_eq!(error.value, text.replace('_', "").replace("0.0/s", "0/s"));
        assert!(error.allowed.contains(remedy), "{text}: {error}");
    }
    assert!(Quota::per_second(1).of("").plan().is_err());
    assert!(Quota::per_second(1).of("two words").plan().is_err());
}

fn scale(quota: &Quota) -> Scale {
    match quota.plan() {
        Ok(Plan::Bucket(scale)) => scale,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rate_is_kept_exactly_or_in_the_servers_favour() {
    assert_eq!(scale(&Quota::bucket(0.5, 1)).interval_ticks, 2_000_000_000);
    assert_eq!(scale(&Quota::bucket(2.5, 1)).interval_ticks, 400_000_000);
    assert_eq!(scale(&Quota::bucket(1e6, 1)).interval_ticks, 1_000);
    assert_eq!(scale(&"7/min burst 1".parse().unwrap()).interval_ticks, 8_571_428_572);
    for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 1e-300] {
        assert!(Quota::bucket(nothing, 1).plan().is_err(), "{nothing}");
    }
}

#[test]
fn headroom_jitter_and_at_most_make_a_quota_smaller() {
    let plan = |text: &str| text.parse::<Quota>().unwrap().plan().unwrap();
    assert!(matches!(plan("50/s headroom 10%"), Plan::Window { most: 45, pace: None, .. }));
    assert!(matches!(plan("99/s headroom 50%"), Plan::Window { most: 49, .. }));
    let paced = plan("50/s paced headroom 20%");
    assert!(matches!(
        paced,
        Plan::Window { most: 40, pace: Some(Scale { interval_ticks: 25_000_000, burst: 1, .. }), .. }
    ));
    let bucket = |text: &str| scale(&text.parse().unwrap());
    assert_eq!(bucket("10/s burst 20 headroom 50%"), bucket("5/s burst 10"));
    assert_eq!(bucket("10/s burst 1 headroom 50%"), bucket("5/s burst 1"));
    assert_eq!(bucket("10/s burst 20 at most 4"), bucket("10/s burst 4"));
    // 50/s × (100 ms + 2 ms) = 5.1, rounded up.
    assert_eq!(bucket("50/s burst 11 jitter 100ms"), bucket("50/s burst 5"));
}

#[test]
fn what_others_have_converts() {
    use std::num::NonZeroU32;
    let governors = governor::Quota::per_second(NonZeroU32::new(10).unwrap()).allow_burst(NonZeroU32::new(3).unwrap());
    assert_eq!(scale(&governors.into()), scale(&Quota::bucket(10.0, 3)));
    assert_eq!(Quota::from((40, Duration::from_secs(2))), "40 per 2s".parse().unwrap());
    assert_eq!(Quota::try_from(String::from("1/s")), Ok(Quota::per_second(1)));
    assert_eq!(scale(&Quota::every(Duration::from_millis(5))).interval_ticks, 5_000_000);
    let reads = Quota::per_second(5).headroom(20);
    assert_eq!(
        (reads.count(), reads.period(), reads.burst(), reads.unit()),
        (5, Duration::from_secs(1), None, &Unit::REQUESTS)
    );
    assert_eq!((Quota::unlimited().count(), Quota::unlimited().period()), (0, Duration::ZERO));
}

#[cfg(feature = "serde")]
#[test]
fn settings_hold_a_quota_as_its_text() {
    let quota: Quota = serde_json::from_str(r#""200_000 tokens/min""#).unwrap();
    assert_eq!(serde_json::to_string(&quota).unwrap(), r#""200000 tokens/min""#);
    let error = serde_json::from_str::<Quota>(r#""0/s""#).unwrap_err().to_string();
    assert!(error.contains("quota `0/s` cannot be kept"), "{error}");
}
