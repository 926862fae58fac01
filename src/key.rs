//! What a limit is counted against: a host, a name, or a credential that is not kept.

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher24};

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

    /// A credential, of which only a keyed hash is kept (SipHash-2-4, 128 bits): without `hash_key` a guess cannot be
    /// tried out. Whoever shares limits over processes uses the same one in all of them.
    #[cfg_attr(not(test), expect(dead_code, reason = "for limits that are counted by credential"))]
    pub(crate) fn secret(name: &str, secret: &[u8], hash_key: &[u8; 16]) -> Self {
        let mut hasher = SipHasher24::new_with_key(hash_key);
        hasher.write(secret);
        Self::new(&format!("{name}#{:032x}", hasher.finish128().as_u128()))
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
        let key = |secret: &[u8], hash_key| Key::secret("authorization", secret, &[hash_key; 16]);
        assert_eq!(key(b"SECRET123", 1), key(b"SECRET123", 1));
        assert_ne!(key(b"SECRET123", 1), key(b"SECRET124", 1));
        assert_ne!(key(b"SECRET123", 1), key(b"SECRET123", 2));
        let shown = format!("{:?}", key(b"SECRET123", 1));
        assert!(shown.starts_with("\"authorization#") && !shown.contains("SECRET"), "{shown}");
    }

    /// The first vector of SipHash-2-4-128's authors: key 00…0f, no input.
    #[test]
    fn the_hash_is_that_of_its_authors() {
        let mut hash_key = [0; 16];
        (0..).zip(&mut hash_key).for_each(|(n, byte)| *byte = n);
        let vector = [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93];
        assert_eq!(Key::secret("k", b"", &hash_key).as_str(), format!("k#{:032x}", u128::from_le_bytes(vector)));
    }
}
