//! How long is a time as it is written: `30s`, `500ms`, `5min`?

use std::time::Duration;

use reqwest_throttle::Quota;

/// Reads a time as quotas write their periods, so that there is one grammar to know.
pub(crate) fn read(text: &str) -> Result<Duration, String> {
    let is_plain = text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(char::is_alphanumeric);
    let quota = is_plain.then(|| format!("1 per {text}").parse::<Quota>().ok()).flatten();
    quota.map(|quota| quota.period()).ok_or_else(|| "a time is written `30s`, `500ms`, `5min` or `2h`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_and_nothing_else() {
        assert_eq!(read("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(read("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(read("5min"), Ok(Duration::from_secs(300)));
        for text in ["", "5", "s", "0s", "-1s", "1.5s", "5s burst 2", "1e9s", "9999999999999d"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
