//! Is a request done with, or may it end in another way when it is sent again?

/// What is counted in a summary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Status(u16),
    Error(String),
}

impl Kind {
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Status(status) => Outcome::of_status(*status),
            Self::Error(code) => Outcome::of_error(code),
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answered with a 2xx.
    Done,
    /// It may end in another way when it is sent again.
    Transient,
    /// It would end in the same way again.
    Permanent,
}

impl Outcome {
    fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Done,
            408 | 425 | 429 | 500..=599 => Self::Transient,
            _ => Self::Permanent,
        }
    }

    fn of_error(code: &str) -> Self {
        match code {
            BAD_LINE | "bad_request" | "body_too_large" | "cost_exceeds_quota" | "redirect" => Self::Permanent,
            _ => Self::Transient,
        }
    }
}

/// The code of a line of the input that was skipped.
pub(crate) const BAD_LINE: &str = "bad_line";
