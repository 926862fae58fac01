//! Which routes does a server see where a path has ids in it?

use http::Method;

/// A segment of a path that is as long as this, and has a digit in it, is an id or a secret.
const LONG: usize = 16;

/// And a number is no longer than this.
const LONGEST_NUMBER: usize = 20;

/// So many segments tell a route.
const MOST_SEGMENTS: usize = 8;

/// An id of no more digits than this is shown as it is.
const SHOWN: usize = 4;

/// A method and a path, without what differs from one thing to the next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// `GET /channels/*/messages/*`.
    pub(crate) template: String,
    /// The first of the ids: what a server that has buckets counts apart.
    pub(crate) major: Option<String>,
}

impl Route {
    /// Of whatever may be a secret only what `hide` makes of it is kept.
    pub(crate) fn of(method: &Method, path: &str, hide: impl Fn(&str) -> String) -> Self {
        let (mut template, mut major) = (format!("{method} "), None);
        let segments = path.split('/').filter(|segment| !segment.is_empty());
        for segment in segments.take(MOST_SEGMENTS) {
            template.push('/');
            if is_id(segment) {
                let shown = || if segment.len() <= SHOWN { segment.to_owned() } else { hide(segment) };
                major.get_or_insert_with(shown);
                template.push('*');
            } else if is_word(segment) {
                template.push_str(segment);
            } else {
                template.push_str(&hide(segment));
            }
        }
        Self { template, major }
    }

    /// The beginnings of it that say anything, the longest first.
    pub(crate) fn beginnings(&self) -> impl Iterator<Item = &str> {
        let ends = self.template.match_indices('/').skip(1).map(|(at, _)| at);
        ends.collect::<Vec<_>>().into_iter().rev().map(|at| &self.template[..at])
    }
}

/// A number, an identifier that nobody has thought up, or a token.
fn is_id(segment: &str) -> bool {
    let has_digit = || segment.bytes().any(|byte| byte.is_ascii_digit());
    is_number(segment) || (segment.len() >= LONG && has_digit())
}

fn is_number(segment: &str) -> bool {
    segment.bytes().all(|byte| byte.is_ascii_digit()) && segment.len() <= LONGEST_NUMBER
}

/// A word that whoever made the API has written, or a version of it.
fn is_word(segment: &str) -> bool {
    let is_version = segment.strip_prefix('v').is_some_and(is_number);
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-' | b'.');
    is_version || (segment.len() <= LONG && segment.bytes().all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str) -> Route {
        Route::of(&Method::GET, path, |hidden| format!("<{}>", hidden.len()))
    }

    #[test]
    fn ids_are_the_same_for_the_route_and_the_first_is_kept() {
        let messages = get("/api/v10/channels/12/messages/34");
        assert_eq!(
            (&*messages.template, messages.major.as_deref()),
            ("GET /api/v10/channels/*/messages/*", Some("12"))
        );
        assert_eq!(get("//a/3f2a9c8e-0000-4000-8000-aaaaaaaaaaaa").template, "GET /a/*");
        let bot = get("/bot123456:AAtoken/sendMessage");
        assert_eq!((&*bot.template, bot.major.as_deref()), ("GET /*/<11>", Some("<17>")));
        assert_eq!((&*get("").template, get("").major), ("GET ", None));
        assert_eq!(get(&"/a/b12345678901234567890".repeat(9)).template, format!("GET {}", "/a/*".repeat(4)));
    }

    #[test]
    fn what_may_be_a_secret_is_hidden() {
        for (path, shown) in [
            ("/hooks/abcDEFghiJKLmnoPQRstuVWX", "GET /hooks/<24>"),
            ("/v1/s3cr3tK3y/x", "GET /v1/<9>/x"),
            ("/users/me@example.com", "GET /users/<14>"),
            ("/key=hunter2", "GET /<11>"),
            ("/v10/chat.post_message", "GET /v10/<17>"),
        ] {
            assert_eq!(get(path).template, shown);
        }
        assert_eq!(get("/phones/4915112345679").major.as_deref(), Some("<13>"));
    }

    #[test]
    fn a_route_begins_as_others_do() {
        assert_eq!(get("/repos/a/b").beginnings().collect::<Vec<_>>(), ["GET /repos/a", "GET /repos"]);
        assert_eq!(get("/search").beginnings().next(), None);
    }
}
