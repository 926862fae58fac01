//! Who is senior: for now, who came first.

/// The order of arrival, the same for all attempts of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival(u64);

impl Arrival {
    /// The arrival after this one.
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Somebody who asked and was made to wait.
pub(crate) type AskId = usize;
