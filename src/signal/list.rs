//! What the members of a list in a header are: `"name";q=100;w=60, 5000;w=86400`.

/// The parts between such separators, trimmed. In quotes there are none.
pub(super) fn split(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let here = rest?;
        let mut in_quotes = false;
        let end = here.bytes().position(|byte| {
            in_quotes ^= byte == b'"';
            byte == separator && !in_quotes
        });
        let (part, later) = end.map_or((here, None), |at| (&here[..at], here.get(at + 1..)));
        rest = later;
        Some(part.trim())
    })
}

/// The text between quotes, if it is in quotes, and whole.
pub(super) fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"').filter(|inside| !inside.contains('"'))
}

/// Without quotes and semicolons that have nothing to say.
pub(super) fn bare(text: &str) -> &str {
    let text = text.trim_end_matches(';').trim();
    quoted(text).unwrap_or(text).trim()
}

/// A member: what comes first, and what is said of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub(super) head: &'a str,
    parameters: &'a str,
}

pub(super) fn members(text: &str) -> impl Iterator<Item = Member<'_>> {
    split(text, b',').filter(|member| !member.is_empty()).map(|member| {
        let head = split(member, b';').next().unwrap_or_default();
        let parameters = member.get(head.len()..).unwrap_or_default().trim_start().trim_start_matches(';');
        Member { head, parameters }
    })
}

impl<'a> Member<'a> {
    /// `key=value`; a part without a key has an empty one.
    pub(super) fn parameters(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let parts = split(self.parameters, b';').filter(|part| !part.is_empty());
        parts.map(|part| match part.split_once('=') {
            Some((key, value)) if !part.starts_with('"') => (key.trim(), value.trim()),
            _ => ("", part),
        })
    }

    pub(super) fn parameter(self, key: &str) -> Option<&'a str> {
        self.parameters().filter(|(name, _)| *name == key).last().map(|(_, value)| value)
    }

    pub(super) fn has_parameters(self) -> bool {
        !self.parameters.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_together() {
        let text = r#"100;comment="a, b; c", "x";q=5"#;
        let read: Vec<_> = members(text).map(|member| (member.head, member.parameters().collect::<Vec<_>>())).collect();
        assert_eq!(read, [("100", vec![("comment", r#""a, b; c""#)]), (r#""x""#, vec![("q", "5")])]);
        assert_eq!(members(r#""a";"b";q=1"#).next().unwrap().parameters().next(), Some(("", r#""b""#)));
        assert_eq!((quoted(r#""a""#), quoted(r#""a"#), quoted("a")), (Some("a"), None, None));
        assert_eq!((bare(r#""0""#), bare("30;"), bare(" 5 ")), ("0", "30", "5"));
        assert_eq!(members("").count(), 0);
    }
}
