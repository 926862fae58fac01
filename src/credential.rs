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

/// Where a signature, which is another one each time, says whose it is.
const SIGNERS: [&str; 5] = ["Credential=", "username=", "keyId=", "oauth_token=", "oauth_consumer_key="];

/// Schemes of which the whole value is the credential.
const WHOLE: [&str; 3] = ["bearer", "basic", "token"];

/// What tells whoever sends a request from others; `None` if nothing does.
pub(crate) fn of(headers: &HeaderMap) -> Option<&[u8]> {
    let value = FIELDS.iter().find_map(|name| headers.get(*name))?;
    let signer = value.to_str().ok().and_then(signer);
    Some(signer.map_or(value.as_bytes(), str::as_bytes))
}

/// `AWS4-HMAC-SHA256 Credential=WHO/20260101/…, SignedHeaders=…, Signature=…`, without what changes from day to day.
fn signer(value: &str) -> Option<&str> {
    let (scheme, rest) = value.split_once(' ')?;
    if WHOLE.iter().any(|whole| scheme.eq_ignore_ascii_case(whole)) {
        return None;
    }
    let (name, who) = SIGNERS.iter().find_map(|name| Some((name, rest.split_once(name)?.1)))?;
    let ends: &[char] = if name.starts_with('C') { &['/', ',', ' '] } else { &['"', ',', ' '] };
    who.trim_start_matches('"').split(ends).next().filter(|who| !who.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose(name: &'static str, value: &'static str) -> Vec<u8> {
        let headers = HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())]);
        of(&headers).unwrap_or_default().to_vec()
    }

    #[test]
    fn a_key_is_itself_and_a_signature_its_signers() {
        assert_eq!(whose("authorization", "Bearer a=b, username=c"), b"Bearer a=b, username=c");
        assert_eq!(whose("authorization", "key-without-scheme"), b"key-without-scheme");
        assert_eq!(whose("x-api-key", "k1"), b"k1");
        assert_eq!(whose("accept", "text/html"), b"");
        let aws = "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu/s3/aws4_request, SignedHeaders=host, Signature=f00";
        assert_eq!(whose("authorization", aws), b"AKID");
        assert_eq!(whose("authorization", r#"Digest username="me", nonce="1", response="2""#), b"me");
        assert_eq!(
            whose("authorization", r#"Signature keyId="https://a.example/key",signature="x""#),
            b"https://a.example/key"
        );
        assert_eq!(whose("authorization", r#"OAuth oauth_nonce="1", oauth_token="t", oauth_signature="2""#), b"t");
    }
}
