//! Where do headers come from that nobody may see: `Authorization: Bearer env:KEY`, read from the environment.

use std::env::VarError;
use std::fmt;
use std::str::FromStr;

use reqwest_throttle::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};

/// Headers whose values are secrets.
const SECRET: [&str; 6] = ["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key"];

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
        if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
            return Err(format!("`{name}` is made from the body of each request; leave it out"));
        }
        if is_secret(&name) && !value.split_whitespace().any(|word| word.starts_with("env:")) {
            return Err(format!(
                "a secret is not for the command line, where `ps` shows it; put it into the environment and write `{name}: env:KEY`"
            ));
        }
        let words: Result<Vec<_>, _> = value.trim().split(' ').map(revealed).collect();
        let mut value = HeaderValue::from_str(&words?.join(" ")).map_err(|_| {
            format!("the value of `{name}` has signs in it that no header may have, such as the end of a line; take them out")
        })?;
        value.set_sensitive(true);
        Ok(Self { name, value })
    }
}

fn is_secret(name: &HeaderName) -> bool {
    let name = name.as_str();
    SECRET.contains(&name) || ["token", "secret", "password"].iter().any(|word| name.contains(word))
}

/// What a word stands for, without the end of line that a file of one secret has.
fn revealed(word: &str) -> Result<String, String> {
    let Some(name) = word.strip_prefix("env:") else { return Ok(word.to_owned()) };
    let is_name = |name: &str| name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if name.is_empty() || !is_name(name) || name.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Err("`env:` is followed by the name of a variable and a space, as in `env:KEY`".to_owned());
    }
    match std::env::var(name) {
        Ok(value) if !value.trim().is_empty() => Ok(value.trim_end_matches(['\r', '\n']).to_owned()),
        Ok(_) => Err(format!("the environment variable {name} is empty: set it to the secret")),
        Err(VarError::NotUnicode(_)) => Err(format!("the environment variable {name} is no text: set it anew")),
        Err(VarError::NotPresent) => {
            Err(format!("the environment has no variable {name}: set it, as in `export {name}=…`"))
        }
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: …", self.name)
    }
}
