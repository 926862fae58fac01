//! What does one line of the input ask for?

use std::collections::BTreeMap;
use std::hash::Hasher;

use reqwest_throttle::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use reqwest_throttle::{Method, Priority, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::address::shown;

/// The longest line that is read.
pub(crate) const LONGEST: usize = 32 << 20;

/// A request to be sent.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) id: String,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<String>,
    pub(crate) costs: BTreeMap<String, u64>,
    pub(crate) priority: Priority,
    pub(crate) flow: Option<String>,
    pub(crate) print: Print,
}

/// Tells one request from another: a few bits of a hash of its method, address and body, which give nothing of them away. Zero
/// if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Print(pub(crate) u32);

impl Print {
    fn of(method: &Method, url: &str, body: Option<&RawValue>) -> Self {
        let mut hasher = SipHasher13::new();
        for part in [method.as_str(), url, body.map_or("", RawValue::get)] {
            hasher.write(part.as_bytes());
            hasher.write_u8(0xff);
        }
        let [first, second, third, fourth, ..] = hasher.finish128().as_bytes();
        Self(u32::from_be_bytes([first, second, third, fourth]).max(1))
    }

    /// Whether they may be of the same request, as far as both are known.
    pub(crate) fn may_be(self, other: Self) -> bool {
        self == other || self == Self::default() || other == Self::default()
    }
}

/// As it is written. Each field is read by itself, so that what is wrong is said in words of its own and no value is repeated.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow)]
    custom_id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    url: Option<&'a RawValue>,
    headers: Option<&'a RawValue>,
    body: Option<&'a RawValue>,
    cost: Option<&'a RawValue>,
    priority: Option<&'a RawValue>,
    flow: Option<&'a RawValue>,
}

impl Line {
    /// Reads a line, or says what is wrong with it and what to do.
    pub(crate) fn read(bytes: &[u8], number: u64, base: Option<&str>) -> Result<Self, String> {
        let fields = fields(bytes)?;
        let id = fields.custom_id.map(|id| read(id, "custom_id", "a text, as in `\"request-1\"`")).transpose()?;
        let url: String = match fields.url {
            Some(url) => read(url, "url", "a text")?,
            None => {
                return Err("it has no `url`; write one, as in `\"url\": \"https://api.example.com/v1/things\"`".into());
            }
        };
        let method = method(fields.method, fields.body)?;
        let mut headers = fields.headers.map(headers).transpose()?.unwrap_or_default();
        let body = fields.body.map(|raw| body(raw, &method, &mut headers)).transpose()?;
        let cost = |cost| read(cost, "cost", "units with whole numbers, as in `{\"tokens\": 120}`");
        Ok(Self {
            id: id.unwrap_or_else(|| format!("line-{number}")),
            print: Print::of(&method, &url, fields.body),
            url: address(&url, base)?,
            method,
            headers,
            body,
            costs: fields.cost.map(cost).transpose()?.unwrap_or_default(),
            priority: fields.priority.map_or(Ok(Priority::default()), priority)?,
            flow: fields.flow.map(|flow| read(flow, "flow", "a text")).transpose()?,
        })
    }
}

fn fields(bytes: &[u8]) -> Result<Fields<'_>, String> {
    if bytes.len() > LONGEST {
        return Err(format!("it is longer than {} MiB; split it", LONGEST >> 20));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        format!("it is not UTF-8 from its byte {} on; save the file as UTF-8", error.valid_up_to() + 1)
    })?;
    if !text.trim_start().starts_with('{') {
        return Err("it is no JSON object; write each request as `{…}` in one line".into());
    }
    serde_json::from_str(text.trim_end()).map_err(|error| {
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default();
        format!(
            "{what}, in column {}; write a JSON object of the fields that `throttle batch --help` lists",
            error.column()
        )
    })
}

fn read<T: DeserializeOwned>(raw: &RawValue, field: &str, what: &str) -> Result<T, String> {
    serde_json::from_str(raw.get()).map_err(|_| format!("its `{field}` has to be {what}"))
}

/// The one that is said; else GET without a body, and POST with one.
fn method(said: Option<&RawValue>, body: Option<&RawValue>) -> Result<Method, String> {
    let Some(said) = said else { return Ok(if body.is_some() { Method::POST } else { Method::GET }) };
    let remedy = "a method, as in `\"POST\"`";
    let name: String = read(said, "method", remedy)?;
    Method::from_bytes(name.to_ascii_uppercase().as_bytes()).map_err(|_| format!("its `method` has to be {remedy}"))
}

/// A whole address, or one that follows the base as text follows text.
fn address(url: &str, base: Option<&str>) -> Result<Url, String> {
    let shown = shown(url);
    let whole = match (Url::parse(url), base) {
        (Ok(whole), _) if is_http(&whole) && url.contains("://") => return Ok(whole),
        // What is not whole has no scheme either: it must not be sent to the base by mistake.
        (Ok(_), _) => return Err(format!("its `url` `{shown}` is no address of HTTP; {REMEDY}")),
        (Err(_), None) if !url.contains("://") => {
            return Err(format!("its `url` `{shown}` is relative; say to what by --base-url, or write it whole"));
        }
        (Err(_), Some(base)) if !url.contains("://") => {
            format!("{}/{}", base.trim_end_matches('/'), url.trim_start_matches('/'))
        }
        (Err(_), _) => String::new(),
    };
    let url = Url::parse(&whole).ok().filter(is_http);
    url.ok_or_else(|| format!("its `url` `{shown}` is no address; {REMEDY}"))
}

const REMEDY: &str = "write it as in `https://api.example.com/v1/things`";

fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.has_host()
}

fn headers(raw: &RawValue) -> Result<HeaderMap, String> {
    let texts: BTreeMap<String, String> =
        read(raw, "headers", "names with texts, as in `{\"Accept\": \"text/plain\"}`")?;
    texts.into_iter().map(|(name, value)| header(&name, &value)).collect()
}

/// A line may come from anywhere, and says where it is sent: it must not name what the environment hides.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let known = name.parse::<HeaderName>().map_err(|_| "one of its `headers` has a name that no header may have")?;
    if value.split_whitespace().any(|word| word.starts_with("env:")) {
        return Err(format!("its header `{name}` names the environment; say it by --header, which only you can"));
    }
    if known == CONTENT_LENGTH || known == TRANSFER_ENCODING {
        return Err(format!("its header `{name}` is made from the body; leave it out"));
    }
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| format!("its header `{name}` has signs in it that no header may have"))?;
    // Not to be printed, nor to be taken along to another origin.
    value.set_sensitive(true);
    Ok((known, value))
}

/// An object or a list as it is written, a text as what it says.
fn body(raw: &RawValue, method: &Method, headers: &mut HeaderMap) -> Result<String, String> {
    if [Method::GET, Method::HEAD, Method::TRACE].contains(method) {
        return Err(format!("a {method} has no `body`; leave it out, or write `\"method\": \"POST\"`"));
    }
    match raw.get().as_bytes().first() {
        Some(b'{' | b'[') => {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            Ok(raw.get().to_owned())
        }
        Some(b'"') => read(raw, "body", "a text of whole characters"),
        _ => Err("its `body` has to be an object, a list or a text; write others as text, as in `\"5\"`".into()),
    }
}

fn priority(raw: &RawValue) -> Result<Priority, String> {
    let remedy = "`\"high\"`, `\"normal\"` or `\"low\"`";
    match read::<String>(raw, "priority", remedy)?.as_str() {
        "high" => Ok(Priority::High),
        "normal" => Ok(Priority::Normal),
        "low" => Ok(Priority::Low),
        _ => Err(format!("its `priority` has to be {remedy}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Line, String> {
        Line::read(text.as_bytes(), 7, Some("https://api.example.com/v1/"))
    }

    #[test]
    fn what_is_left_out_goes_without_saying() {
        let line = line(r#"{"url": "/things?a=1"}"#).unwrap();
        assert_eq!(
            (line.id.as_str(), line.method, line.url.as_str()),
            ("line-7", Method::GET, "https://api.example.com/v1/things?a=1")
        );
        assert_eq!((line.costs.len(), line.body), (0, None));
    }

    #[test]
    fn what_is_of_another_scheme_goes_nowhere() {
        for url in ["ftp://h/?key=S", "file:///etc/passwd", "mailto:x", "htps://h/x", "http:/h/x", "localhost:8777/x"] {
            let error = line(&format!(r#"{{"url": "{url}"}}"#)).unwrap_err();
            assert!(error.contains("is no address of HTTP") && !error.contains("key"), "{error}");
        }
        for url in ["https://S:S@h:99999/x", "http://u:S@h:99999/"] {
            let error = line(&format!(r#"{{"url": "{url}"}}"#)).unwrap_err();
            assert!(error.contains("://…@h:99999/") && !error.contains('S'), "{error}");
        }
    }

    #[test]
    fn what_is_said_is_kept_as_it_is_written() {
        let line = line(
            r#"{"custom_id": "a", "url": "https://x.example/", "body": {"b": 1.10, "a": 12345678901234567890}, "cost": {"tokens": 5}, "priority": "low"}"#,
        );
        let line = line.unwrap();
        assert_eq!(line.body.as_deref(), Some(r#"{"b": 1.10, "a": 12345678901234567890}"#));
        assert_eq!(
            (&line.method, line.headers.get(CONTENT_TYPE).unwrap().to_str().unwrap()),
            (&Method::POST, "application/json")
        );
        assert_eq!((line.costs["tokens"], line.priority), (5, Priority::Low));
    }
}
