//! What does the server say of its limits, with each answer?

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::judge::Standing;

/// The dialect in which it says what is left, and when that is reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Says {
    /// Nothing.
    #[default]
    Nothing,
    /// `RateLimit: "api";r=3;t=1`, in whole seconds.
    Structured,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, in seconds and parts of them.
    Trio,
    /// `x-ratelimit-remaining-requests` and kin, with a duration as `950ms`.
    Llm,
    /// `X-RateLimit-Reset` as a moment in milliseconds, by a clock that is so many seconds off, with its `Date`.
    Moment {
        /// How many seconds its clock is ahead.
        ahead: i64,
    },
}

impl Says {
    pub(super) fn headers(self, standing: Standing) -> Vec<(&'static str, String)> {
        let Standing { left, most, resets } = standing;
        let trio = |reset: String| {
            let (most, left) = (most.to_string(), left.to_string());
            vec![("x-ratelimit-limit", most), ("x-ratelimit-remaining", left), ("x-ratelimit-reset", reset)]
        };
        match self {
            Self::Nothing => Vec::new(),
            Self::Structured => {
                let seconds = resets.as_millis().div_ceil(1_000);
                vec![
                    ("ratelimit-policy", format!("\"api\";q={most}")),
                    ("ratelimit", format!("\"api\";r={left};t={seconds}")),
                ]
            }
            Self::Trio => trio(format!("{:.1}", (resets.as_secs_f64() * 10.0).ceil() / 10.0)),
            Self::Llm => vec![
                ("x-ratelimit-limit-requests", most.to_string()),
                ("x-ratelimit-remaining-requests", left.to_string()),
                ("x-ratelimit-reset-requests", format!("{}ms", resets.as_millis() + 1)),
            ],
            Self::Moment { ahead } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
                let seconds = now.as_secs().checked_add_signed(ahead).expect("a moment");
                let date = UNIX_EPOCH + Duration::from_secs(seconds);
                // A date has whole seconds; the moment is told by the same clock.
                let at = Duration::from_secs(seconds) + Duration::from_nanos(now.subsec_nanos().into()) + resets;
                let mut headers = trio((at.as_millis() + 1).to_string());
                headers.push(("date", httpdate::fmt_http_date(date)));
                headers
            }
        }
    }
}
