//! How is a time told? In its two largest units: `51min 3s`, `2.25s`, `1d 2h`.

use std::time::Duration;

const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];

/// Rounded up, in the server's favour.
pub(crate) fn told(span: Duration) -> String {
    if span < Duration::from_secs(60) {
        let millis = span.as_nanos().div_ceil(1_000_000);
        let text = format!("{}.{:03}", millis / 1_000, millis % 1_000);
        return format!("{}s", text.trim_end_matches('0').trim_end_matches('.'));
    }
    let mut left = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    let mut parts = Vec::new();
    for (seconds, name) in UNITS {
        if left >= seconds {
            parts.push(format!("{}{name}", left / seconds));
            left %= seconds;
        }
    }
    parts.truncate(2);
    parts.join(" ")
}
