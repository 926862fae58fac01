//! What a limit is counted against: a host, for now.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The name of one gate. Cheap to clone; looked up by `&str`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(Arc<str>);

impl Key {
    pub(crate) fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// `str` and `Key` hash alike, so a lookup needs no allocation.
impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
