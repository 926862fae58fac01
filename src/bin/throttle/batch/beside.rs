//! What is a file called that lies beside another?

use std::path::{Path, PathBuf};

/// The other's name, with this at its end.
pub(crate) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
