//! How is an address shown that may have secrets in it?

/// Without its query, and without what may be a user or a password.
pub(crate) fn shown(address: &str) -> String {
    let visible = address.split(['?', '#']).next().unwrap_or_default();
    // A password may have a `?` or a `#` in it.
    if address[visible.len()..].contains('@') {
        return visible.split_once("://").map_or_else(|| "…".to_owned(), |(scheme, _)| format!("{scheme}://…"));
    }
    match (visible.rsplit_once('@'), visible.split_once("://")) {
        (Some((_, rest)), Some((scheme, _))) => format!("{scheme}://…@{rest}"),
        (Some((_, rest)), None) if !visible.starts_with('/') => format!("…@{rest}"),
        _ => visible.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn secrets_are_left_out_and_the_host_is_not() {
        for (address, says) in [
            ("https://a.example/b?key=S", "https://a.example/b"),
            ("ftp://u:S@h/", "ftp://…@h/"),
            ("https://S@h:99999/x", "https://…@h:99999/x"),
            ("https://u:p?S@h/", "https://…"),
            ("u:S@h", "…@h"),
            ("/users/@me", "/users/@me"),
        ] {
            assert_eq!(shown(address), says);
        }
    }
}
