//! Which codes AWS and those who speak like it send: in a field of the head, and in XML.

use super::codes::{Meaning, meaning};
use super::head::Head;

pub(super) fn meaning_of_head(head: &Head) -> Option<Meaning> {
    head.all("x-amzn-errortype").find_map(meaning)
}

/// Each `<Code>` of an XML document, and the `<faultString>` or first string of a fault of XML-RPC.
pub(super) fn codes(body: &str) -> impl Iterator<Item = &str> {
    ["<Code>", "<code>", "<faultCode>", "<faultString>"].into_iter().flat_map(move |tag| {
        body.match_indices(tag).filter_map(move |(at, _)| body.get(at + tag.len()..)?.split('<').next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_however_deep_they_are() {
        let body = "<Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>";
        assert_eq!(codes(body).collect::<Vec<_>>(), ["RequestLimitExceeded"]);
        assert_eq!(codes("<Code>").collect::<Vec<_>>(), [""]);
        assert_eq!(codes("no code").count(), 0);
    }
}
