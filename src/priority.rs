//! How urgent: [`Priority`].

/// How urgent a request is. Whoever is more urgent goes first, wherever both wait.
///
/// Waiting ages: after 30 s in the queue a request goes before all that are one step more urgent and have not aged, so
/// that nobody starves.
///
/// # Examples
///
/// ```
/// use reqwest_throttle::{Context, Priority};
///
/// let context = Context::new().priority(Priority::High);
/// assert_eq!(Priority::default(), Priority::Normal);
/// # let _ = context;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Before all others.
    High,
    /// Unless said otherwise.
    #[default]
    Normal,
    /// After all others.
    Low,
}

impl Priority {
    /// All of them, the most urgent first.
    pub(crate) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// Its place among [`ALL`](Self::ALL).
    pub(crate) const fn place(self) -> usize {
        self as usize
    }

    /// As it is written in limits.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}
