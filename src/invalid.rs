//! What is wrong with a setting: [`Invalid`].

use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;

/// A setting that cannot be kept: which, what it was, and what is allowed instead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalid {
    /// Which setting.
    pub field: Cow<'static, str>,
    /// What it was.
    pub value: String,
    /// What it may be.
    pub allowed: Cow<'static, str>,
}

impl Invalid {
    pub(crate) fn new(field: &'static str, value: impl Into<String>, allowed: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), value: value.into(), allowed: allowed.into() }
    }

    /// The same, found inside another setting.
    pub(crate) fn inside(mut self, outer: &'static str) -> Self {
        self.field = format!("{outer}: {}", self.field).into();
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}` cannot be kept; allowed is {}", self.field, self.value, self.allowed)
    }
}

impl Error for Invalid {}

/// Limits and quotas convert without fail; this lets setters take either.
impl From<Infallible> for Invalid {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
