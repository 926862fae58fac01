//! By whose credential does a request go, as far as its head tells?

use http::HeaderMap;

/// Where credentials are, the more telling first.
const FIELDS: [&str; 8] = [
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-auth-token",
    "x-access-token",
    "x-shopify-access-token",
    "private-token",
];

/// Where a signature, which is another one each time, says whose it is, and what ends that.
const SIGNERS: [(&str, &[char]); 8] = [
    ("Credential=", &['/', ',', ' ']),
    ("username=", &['"', ',']),
    ("keyId=", &['"', ',']),
    ("oauth_token=", &['"', ',']),
    ("oauth_consumer_key=", &['"', ',']),
    ("client_token=", &[';', ' ']),
    ("id=", &['"', ',']),
    ("", &[':']),
];

/// Schemes of which the whole value is the credential.
const WHOLE: [&str; 3] = ["bearer", "basic", "token"];

/// What tells whoever sends a request from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credential<'a> {
    pub(crate) secret: &'a [u8],
    /// It is the same for the next request: not a token that may be made for each.
    pub(crate) lasts: bool,
}

/// `None` if nothing tells.
pub(crate) fn of(headers: &HeaderMap) -> Option<Credential<'_>> {
    let value = FIELDS.iter().find_map(|name| headers.get(*name))?;
    let Some((scheme, rest)) = value.to_str().ok().and_then(|value| value.split_once(' ')) else {
        return Some(Credential { secret: value.as_bytes(), lasts: true });
    };
    if WHOLE.iter().any(|whole| scheme.eq_ignore_ascii_case(whole)) {
        return Some(Credential { secret: value.as_bytes(), lasts: !is_signed(rest) });
    }
    Some(match signer(rest) {
        Some(secret) => Credential { secret: secret.as_bytes(), lasts: true },
        None => Credential { secret: value.as_bytes(), lasts: false },
    })
}

/// A JSON web token.
fn is_signed(token: &str) -> bool {
    token.starts_with("ey") && token.matches('.').count() >= 2
}

/// `Credential=WHO/20260101/…, SignedHeaders=…, Signature=…`, without what changes from day to day.
fn signer(rest: &str) -> Option<&str> {
    let after = |name: &str| Some(rest.split_once(name)?.1.trim_start_matches('"'));
    SIGNERS.iter().find_map(|(name, ends)| {
        let who = after(name)?;
        who.find(*ends).map(|end| &who[..end]).filter(|who| !who.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose(name: &'static str, value: &str) -> (String, bool) {
        let headers = HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())]);
        of(&headers).map_or_else(Default::default, |of| (String::from_utf8(of.secret.to_vec()).unwrap(), of.lasts))
    }

    #[test]
    fn a_key_is_itself() {
        for (name, value) in [
            ("authorization", "Bearer a=b, username=c"),
            ("authorization", "key-without-scheme"),
            ("authorization", "Basic dXNlcjpwYXNz"),
            ("x-api-key", "k1"),
        ] {
            assert_eq!(whose(name, value), (value.to_owned(), true));
        }
        assert_eq!(whose("accept", "text/html"), (String::new(), false));
    }

    #[test]
    fn a_signature_is_its_signers() {
        for (value, who) in [
            ("AWS4-HMAC-SHA256 Credential=AKID/20260101/eu/s3/aws4_request, SignedHeaders=host, Signature=f0", "AKID"),
            ("AWS AKID:signature", "AKID"),
            ("SharedKey account:signature", "account"),
            (r#"Digest username="me", nonce="1", response="2""#, "me"),
            (r#"Signature keyId="https://a.example/key",signature="x""#, "https://a.example/key"),
            (r#"OAuth oauth_nonce="1", oauth_token="t", oauth_signature="2""#, "t"),
            (r#"Hawk id="h", ts="1", mac="2""#, "h"),
            ("EG1-HMAC-SHA256 client_token=c;access_token=a;timestamp=1;signature=2", "c"),
        ] {
            assert_eq!(whose("authorization", value), (who.to_owned(), true));
        }
    }

    #[test]
    fn what_may_be_made_for_each_request_does_not_last() {
        for value in ["Bearer eyJhbGciOi.eyJzdWIi.c2ln", "Whatever it is"] {
            assert_eq!(whose("authorization", value), (value.to_owned(), false));
        }
    }
}
