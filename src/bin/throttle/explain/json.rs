//! What does a response state, for a program? One object.

use std::time::Duration;

use reqwest_throttle::{Scope, Signal, StatedLimit};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::{Number, Value};

/// `{"throttled", "terminal", "wait_s", "scope", "limits"}`. What is not stated is null.
#[derive(Debug)]
pub(crate) struct Json<'a>(pub(crate) &'a Signal);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let limits: Vec<_> = self.0.limits.iter().map(Limit).collect();
        let mut object = serializer.serialize_struct("Signal", 5)?;
        object.serialize_field("throttled", &self.0.throttled)?;
        object.serialize_field("terminal", &self.0.terminal)?;
        // Also where it is not about a limit: when the result of a 202 may be there.
        object.serialize_field("wait_s", &seconds(self.0.retry_after()))?;
        object.serialize_field("scope", &self.0.scope.as_ref().map(name))?;
        object.serialize_field("limits", &limits)?;
        object.end()
    }
}

struct Limit<'a>(&'a StatedLimit);

impl Serialize for Limit<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Limit", 5)?;
        object.serialize_field("name", &self.0.name)?;
        object.serialize_field("limit", &self.0.limit.map_or(Value::Null, |count| number(&count.to_string())))?;
        object.serialize_field("remaining", &self.0.remaining.map_or(Value::Null, |left| number(&left.to_string())))?;
        object.serialize_field("reset_after_s", &seconds(self.0.reset_after))?;
        object.serialize_field("window_s", &seconds(self.0.window))?;
        object.end()
    }
}

fn name(scope: &Scope) -> String {
    match scope {
        Scope::Account => "account".to_owned(),
        Scope::User => "user".to_owned(),
        Scope::Host => "host".to_owned(),
        Scope::Route => "route".to_owned(),
        Scope::Bucket(name) => format!("bucket:{name}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn seconds(span: Option<Duration>) -> Value {
    span.map_or(Value::Null, |span| match span.subsec_nanos() {
        0 => span.as_secs().into(),
        // By its digits: a sum of fractions would have noise in its last one.
        nanos => number(&format!("{}.{nanos:09}", span.as_secs())),
    })
}

/// Whole where it is whole.
fn number(digits: &str) -> Value {
    let fraction = || digits.parse().ok().and_then(Number::from_f64).map(Value::Number);
    digits.parse::<u64>().ok().map(Value::from).or_else(fraction).unwrap_or(Value::Null)
}
