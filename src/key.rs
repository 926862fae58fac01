//! What a limit is counted against: a host, a name, or a credential that is not kept.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher24};

/// How much of a name is kept that comes from a server.
const LONGEST: usize = 60;

/// The name of one gate. Cheap to clone, and safe to print.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(Arc<str>);

impl Key {
    pub(crate) fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// A host as limits count it: with its port, unless that goes without saying.
    pub(crate) fn host(host: &str, port: Option<u16>) -> Self {
        // One that is written to its root is the same.
        let host = host.strip_suffix('.').unwrap_or(host);
        port.map_or_else(|| Self::new(host), |port| Self::new(&format!("{host}:{port}")))
    }

    /// What is counted by a credential of a host, or by its being asked without one.
    pub(crate) fn credential(host: &Self, of: Option<Fingerprint>) -> Self {
        Self::new(&of.map_or_else(|| format!("{host}#-"), |of| format!("{host}#{of}")))
    }

    /// What is counted by a bucket of a server's own.
    pub(crate) fn bucket(of: &Self, name: &str) -> Self {
        Self::new(&format!("{of} {}", short(name)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name that comes from a server: one line, and not a long one. What is cut is told from others by a hash.
pub(crate) fn short(name: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| !letter.is_control();
    if name.len() <= LONGEST && name.chars().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let beginning: String = name.chars().take(LONGEST / 2).map(|c| if is_plain(c) { c } else { '?' }).collect();
    Cow::Owned(format!("{beginning}~{}", Fingerprint::of(name.as_bytes(), &[0; 16]).short()))
}

/// What is kept of a credential: a keyed hash (SipHash-2-4, 128 bits). Without the key of the hash a guess cannot be tried out.
/// Whoever shares limits over processes uses the same one in all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Fingerprint(u128);

impl Fingerprint {
    pub(crate) fn of(secret: &[u8], hash_key: &[u8; 16]) -> Self {
        let mut hasher = SipHasher24::new_with_key(hash_key);
        hasher.write(secret);
        Self(hasher.finish128().as_u128())
    }

    /// As much of it as tells a few from each other.
    pub(crate) fn short(self) -> String {
        format!("{:016x}", self.0 >> 64)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_port_if_that_is_said() {
        assert_eq!(Key::host("example.com", None).as_str(), "example.com");
        assert_eq!(Key::host("::1", Some(8080)), Key::new("::1:8080"));
    }

    #[test]
    fn a_credential_is_told_from_others_and_not_kept() {
        let key = |secret: &[u8], hash_key| {
            Key::credential(&Key::new("example.com"), Some(Fingerprint::of(secret, &[hash_key; 16]))).to_string()
        };
        assert_eq!(key(b"SECRET123", 1), key(b"SECRET123", 1));
        assert_ne!(key(b"SECRET123", 1), key(b"SECRET124", 1));
        assert_ne!(key(b"SECRET123", 1), key(b"SECRET123", 2));
        let shown = key(b"SECRET123", 1);
        assert!(shown.starts_with("example.com#") && !shown.contains("SECRET"), "{shown}");
    }

    #[test]
    fn a_bucket_is_named_in_one_short_line() {
        let long = |end| Key::bucket(&Key::new("a"), &format!("b\n{}{end}", "c".repeat(1_000)));
        assert!(long(1).as_str().starts_with("a b?cc") && long(1).as_str().len() < 80);
        assert_ne!(long(1), long(2), "told apart all the same");
        assert_eq!(Key::bucket(&Key::new("a"), "core").as_str(), "a core");
    }

    /// The first vector of SipHash-2-4-128's authors: key 00…0f, no input.
    #[test]
    fn the_hash_is_that_of_its_authors() {
        let mut hash_key = [0; 16];
        (0..).zip(&mut hash_key).for_each(|(n, byte)| *byte = n);
        let vector = [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93];
        assert_eq!(Fingerprint::of(b"", &hash_key).to_string(), format!("{:032x}", u128::from_le_bytes(vector)));
    }
}
