//! What does an error say, with all that it comes from?

use std::error::Error;

/// In one line: what says the same again is left out.
pub(crate) fn told(error: &dyn Error) -> String {
    let (mut message, mut source) = (error.to_string(), error.source());
    while let Some(error) = source {
        let said = error.to_string();
        if !message.contains(&said) {
            message = format!("{message}: {said}");
        }
        source = error.source();
    }
    message
}
