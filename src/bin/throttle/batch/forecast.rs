//! How long do the limits make it take, at best?

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest_throttle::Quota;

/// What requests take of each unit.
pub(crate) type Costs = BTreeMap<String, u128>;

/// The shortest time in which quotas let this much go, if nothing of it went lately; which quota makes it so. A margin that a
/// quota keeps is not reckoned with.
pub(crate) fn at_best<'a>(quotas: &'a [Quota], costs: &Costs) -> Option<(Duration, &'a Quota)> {
    quotas
        .iter()
        .map(|quota| (time(quota, costs.get(quota.unit().name()).copied().unwrap_or(0)), quota))
        .max_by_key(|(time, _)| *time)
}

fn time(quota: &Quota, amount: u128) -> Duration {
    let count = u128::from(quota.count());
    if count == 0 {
        return Duration::ZERO;
    }
    let nanos = quota.period().as_nanos();
    let nanos = match quota.burst() {
        // The first of them at once, and as many again after each window.
        None => (amount.saturating_sub(1) / count).saturating_mul(nanos),
        Some(burst) => amount.saturating_sub(burst.into()).saturating_mul(nanos) / count,
    };
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// A window counts from an answer, but no later than this after the sending.
const LATE: Duration = Duration::from_secs(1);

/// For how long a quota remembers what was sent.
pub(crate) fn memory(quota: &Quota) -> Duration {
    if quota.count() == 0 {
        return Duration::ZERO;
    }
    let Some(burst) = quota.burst() else { return quota.period().saturating_add(LATE) };
    time(quota, u128::from(burst).saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_lets_go_at_once_and_a_bucket_by_and_by() {
        let at_best = |quota: &str, amount: u128| {
            let quotas = [quota.parse().unwrap(), "1000000 tokens/s".parse().unwrap()];
            at_best(&quotas, &Costs::from([("requests".into(), amount)])).unwrap().0
        };
        let seconds = Duration::from_secs;
        assert_eq!([1, 50, 51, 100, 101].map(|n| at_best("50/s", n)), [0, 0, 1, 1, 2].map(seconds));
        assert_eq!([20, 30].map(|n| at_best("10/s burst 20", n)), [0, 1].map(seconds));
        assert_eq!(memory(&"10/s burst 20".parse().unwrap()), seconds(2));
    }
}
