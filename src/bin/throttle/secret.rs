//! Where do headers come from that nobody may see: `Authorization: Bearer env:KEY`, read from the environment.

use std::fmt;
use std::str::FromStr;

use reqwest_throttle::header::{HeaderName, HeaderValue};

/// Headers whose values are secrets.
const SECRET: [&str; 9] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-auth-token",
    "x-access-token",
    "private-token",
];

/// A header as it is written on the command line. Each word of its value that is `env:NAME` stands for what the environment
/// has under that name, so that no secret is on the command line, where `ps` shows it to everybody.
#[derive(Clone)]
pub(crate) struct Header {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
}

impl FromStr for Header {
    type Err = String;

    fn from_str(written: &str) -> Result<Self, String> {
        let (name, value) = written
            .split_once(':')
            .ok_or("a header is written `Name: value`, as in `Authorization: Bearer env:KEY`")?;
        let name: HeaderName = name
            .trim()
            .parse()
            .map_err(|_| "what is before the colon is no name of a header, as `Authorization` is")?;
        if SECRET.contains(&name.as_str()) && !value.split_whitespace().any(|word| word.starts_with("env:")) {
            return Err(format!(
                "a secret is not for the command line, where `ps` shows it; put it into the environment and write `{name}: env:KEY`"
            ));
        }
        let words: Result<Vec<_>, _> = value.split_whitespace().map(revealed).collect();
        let mut value = HeaderValue::from_str(&words?.join(" "))
            .map_err(|_| format!("the value of `{name}` has signs in it that no header may have"))?;
        value.set_sensitive(true);
        Ok(Self { name, value })
    }
}

/// What a word stands for.
fn revealed(word: &str) -> Result<String, String> {
    let Some(name) = word.strip_prefix("env:") else { return Ok(word.to_owned()) };
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => Ok(value),
        Ok(_) => Err(format!("the environment variable {name} is empty: set it to the secret")),
        Err(_) => Err(format!("the environment has no variable {name}: set it, as in `export {name}=…`")),
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: …", self.name)
    }
}
