//! What the fields `RateLimit` and `RateLimit-Policy` say, in the form of the IETF's drafts 08 to 11.
//!
//! Lenient about the policy: known servers write `"fixed window";"api";q=100` and keys that are no base64.

use std::time::Duration;

use smallvec::SmallVec;

use super::limit::{Scope, StatedLimit};
use super::list::{Member, members, quoted};
use super::moment::{number, span};

/// What is left of a policy, or what it allows.
#[derive(Clone, Copy, Debug)]
struct Item<'a> {
    name: &'a str,
    partition: Option<&'a str>,
    left_or_limit: Option<f64>,
    reset_or_window: Option<Duration>,
}

/// What all such fields of a head have said.
#[derive(Debug, Default)]
pub(super) struct Structured<'a> {
    policies: SmallVec<[Item<'a>; 2]>,
    states: SmallVec<[Item<'a>; 2]>,
}

impl<'a> Structured<'a> {
    pub(super) fn add_states(&mut self, value: &'a str) {
        self.states.extend(members(value).filter_map(|member| item(member, "r", "t")));
    }

    pub(super) fn add_policies(&mut self, value: &'a str) {
        let items = members(value).filter_map(|member| item(member, "q", "w"));
        self.policies.extend(items.filter(|policy| policy.left_or_limit.is_some()));
    }

    /// The limits, joined by name; a policy of which nothing more is said is one too.
    pub(super) fn limits(&self) -> impl Iterator<Item = StatedLimit> {
        let of_policies = self.policies.iter().map(|policy| {
            let state = self.states.iter().find(|state| is_same(state, policy));
            limit(policy.name, Some(policy), state)
        });
        let is_known = |state: &&Item| self.policies.iter().any(|policy| is_same(state, policy));
        let others = self.states.iter().filter(move |state| !is_known(state));
        of_policies.chain(others.map(|state| limit(state.name, None, Some(state))))
    }

    /// The bucket that has nothing left, or else the first of which more is said than its policy.
    pub(super) fn scope(&self) -> Option<Scope> {
        let empty = self.states.iter().find(|state| state.left_or_limit.is_some_and(|left| left < 1.0));
        let named = empty.or(self.states.first()).or(self.policies.first())?;
        let partition =
            named.partition.or_else(|| self.policies.iter().find(|policy| is_same(named, policy))?.partition);
        match partition {
            Some(":user:") => Some(Scope::User),
            _ => Some(Scope::Bucket(named.name.to_owned())),
        }
    }
}

fn is_same(state: &Item, policy: &Item) -> bool {
    let is_other_part = matches!((state.partition, policy.partition), (Some(one), Some(other)) if one != other);
    state.name == policy.name && !is_other_part
}

fn limit(name: &str, policy: Option<&Item>, state: Option<&Item>) -> StatedLimit {
    StatedLimit {
        limit: policy.and_then(|policy| policy.left_or_limit),
        window: policy.and_then(|policy| policy.reset_or_window).filter(|window| !window.is_zero()),
        remaining: state.and_then(|state| state.left_or_limit),
        reset_after: state.and_then(|state| state.reset_or_window),
        ..StatedLimit::named(name.to_owned())
    }
}

/// A name, and two whole numbers, each of which may be left out; that which is malformed is as if absent, whole.
fn item<'a>(member: Member<'a>, first: &str, second: &str) -> Option<Item<'a>> {
    let whole_parameter = |key| {
        let all = member.parameters().filter(|(name, _)| *name == key).map(|(_, value)| whole(value));
        all.reduce(Option::and)
    };
    let (left_or_limit, reset_or_window) = (whole_parameter(first), whole_parameter(second));
    let is_malformed = left_or_limit == Some(None) || reset_or_window == Some(None);
    let name = member
        .parameters()
        .filter(|(key, name)| key.is_empty() && name.starts_with('"'))
        .last()
        .map_or(member.head, |(_, name)| name);
    let name = quoted(name).filter(|name| !name.is_empty() && quoted(member.head).is_some())?;
    let says_something = left_or_limit.is_some() || reset_or_window.is_some();
    let reset_or_window = reset_or_window.flatten().and_then(span);
    let item =
        Item { name, partition: member.parameter("pk"), left_or_limit: left_or_limit.flatten(), reset_or_window };
    (says_something && !is_malformed).then_some(item)
}

/// At most fifteen digits (RFC 9651, 3.3.1).
fn whole(text: &str) -> Option<f64> {
    number(text).filter(|_| text.len() <= 15 && !text.contains('.'))
}
