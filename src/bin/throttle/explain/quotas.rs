//! What is to be written for what a response states? [`Quotas`], and what is missing for more of them.

use reqwest_throttle::{Quota, StatedLimit};

/// What counts something else than requests, by a word in its name.
const UNITS: [&str; 8] = ["token", "point", "weight", "complexity", "credit", "byte", "unit", "bandwidth"];

/// For each limit a quota, if it is known how much may go in how long a time.
#[derive(Debug, Default)]
pub(crate) struct Quotas<'a> {
    pub(crate) written: Vec<Quota>,
    /// How much may go is stated, and not in how long a time.
    pub(crate) without_window: Vec<&'a str>,
    /// The other way round.
    pub(crate) without_count: Vec<&'a str>,
}

impl<'a> Quotas<'a> {
    pub(crate) fn of(limits: &'a [StatedLimit]) -> Self {
        let mut quotas = Self::default();
        for limit in limits {
            let name = &*limit.name;
            match (written(limit), limit.limit, limit.window) {
                (Some(quota), ..) if quotas.written.contains(&quota) => {}
                (Some(quota), ..) => quotas.written.push(quota),
                (None, Some(count), None) if count > 0.0 && !name.contains("concurren") => {
                    quotas.without_window.push(name);
                }
                (None, None, Some(_)) => quotas.without_count.push(name),
                _ => {}
            }
        }
        quotas
    }
}

/// Nothing if it could not be kept.
fn written(limit: &StatedLimit) -> Option<Quota> {
    let (count, window) = (limit.limit?, limit.window?);
    let period = window.as_nanos();
    // A quota has nine decimals at most.
    let count = if count.fract() == 0.0 { count.to_string() } else { format!("{count:.9}") };
    format!("{count}{} per {period}ns", unit(&limit.name)).parse().ok()
}

/// A space and the unit, or nothing for requests.
fn unit(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match UNITS.iter().find(|unit| name.contains(*unit)) {
        Some(&"token") => " tokens".to_owned(),
        Some(_) => format!(" {}", name.replace(|c: char| !c.is_alphanumeric() && c != '_', "-")),
        None => String::new(),
    }
}
