//! What a limit is counted against: a host, for now.

use std::fmt;
use std::sync::Arc;

/// The name of one gate. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(Arc<str>);

impl Key {
    pub(crate) fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// A host as limits count it: with its port, unless that goes without saying.
    pub(crate) fn host(host: &str, port: Option<u16>) -> Self {
        port.map_or_else(|| Self::new(host), |port| Self::new(&format!("{host}:{port}")))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
