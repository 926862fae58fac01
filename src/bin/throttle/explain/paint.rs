//! Are there colours? On a terminal, unless the environment has `NO_COLOR`.

use std::io::IsTerminal;

/// What colours a word, or leaves it as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    has_colours: bool,
}

impl Paint {
    /// For what the program writes.
    pub(crate) fn of_stdout() -> Self {
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        Self { has_colours: std::io::stdout().is_terminal() && !is_unwanted && !is_dumb }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.has_colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
