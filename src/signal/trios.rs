//! Which form each field of a head has, and what all of them state together.

use std::time::Duration;

use super::fields::Fields;
use super::head::Head;
use super::limit::{Found, Hints, Scope, StatedLimit};
use super::list::bare;
use super::name::{Name, Role, period};
use super::structured::Structured;
use super::{compact, llm};

/// Names that a head gives to the limit of which its other fields speak.
#[derive(Debug, Default)]
struct Labels<'a> {
    name: Option<&'a str>,
    category: Option<&'a str>,
    kind: Option<&'a str>,
    is_reason: bool,
    is_global: bool,
}

pub(super) fn read(head: &Head, is_refused: bool, hints: &Hints, found: &mut Found) {
    let (mut fields, mut structured, mut labels) = (Fields::default(), Structured::default(), Labels::default());
    let (mut has_caps, mut last, mut before) = (false, "", 0);
    for (name, value) in &head.fields {
        before = if *name == last { before + 1 } else { 0 };
        last = name;
        if llm::is_ours(name) {
            has_caps = true;
        } else if !compact::read(name, value, is_refused, found)
            && !labels.take(name, bare(value), found)
            && let Some(name) = Name::read(compact::alias(name))
        {
            let is_in_quotes = value.starts_with('"') && value.contains(';');
            match name.role {
                Role::Whole if is_in_quotes && name.words.is_empty() => structured.add_states(value),
                Role::Policy if is_in_quotes => structured.add_policies(value),
                Role::Whole if value.contains('=') => fields.add_dictionary(&name, value),
                Role::Whole if !name.words.is_empty() && name.window.is_none() => {}
                _ => fields.add(&name, value, before, head.clock, hints.resets_in_millis),
            }
        }
    }
    labels.apply(&mut fields, is_refused, found);
    if !fields.is_empty() {
        found.scope = found.scope.take().or_else(|| fields.scope());
        fields.into_limits(is_refused, found);
    }
    structured.limits().for_each(|limit| found.merge(limit, true));
    found.scope = found.scope.take().or_else(|| structured.scope());
    if has_caps {
        llm::read(head, found);
    }
    // Language models count tokens by account.
    let counts_tokens = || found.limits().any(|limit| limit.name.contains("tokens"));
    if found.scope.is_none() && counts_tokens() {
        found.scope = Some(Scope::Account);
    }
}

impl<'a> Labels<'a> {
    /// Takes a field that says not how much, but of what, or for whom.
    fn take(&mut self, name: &str, value: &'a str, found: &mut Found) -> bool {
        let Some(word) = ["ratelimit-", "rate-limit-"].iter().find_map(|mark| name.split(mark).nth(1)) else {
            return false;
        };
        let value = Some(value).filter(|value| !value.is_empty());
        match word {
            "resource" | "name" => {
                self.name = value;
                found.scope = value.map(|name| Scope::Bucket(name.to_owned()));
            }
            "bucket" => found.scope = value.map(|name| Scope::Bucket(name.to_owned())),
            "reason" => {
                (self.name, self.is_reason) = (value, value.is_some());
                found.scope = value.and_then(scope_of_reason).or(found.scope.take());
            }
            "category" => self.category = value,
            "type" | "problem" => self.kind = value,
            "global" => self.is_global = true,
            "scope" if value == Some("global") => self.is_global = true,
            "scope" => found.scope = found.scope.take().or((value == Some("user")).then_some(Scope::User)),
            _ => return false,
        }
        true
    }

    fn apply(&self, fields: &mut Fields<'_>, is_refused: bool, found: &mut Found) {
        found.blames_service = self.kind == Some("service");
        // Whatever bucket the request was in.
        found.scope = self.is_global.then_some(Scope::Account).or(found.scope.take());
        if let (Some(category), Some(kind)) = (self.category, self.kind) {
            fields.label(&format!("{category}-{kind}"), span_of(kind));
        }
        let Some(name) = self.name else { return };
        if self.is_reason && is_refused && fields.is_empty() && found.is_empty() {
            found.push(StatedLimit::refused(name.to_owned()));
        }
        fields.label(name, None);
    }
}

/// A burst is one of one path; what is global is of the account.
fn scope_of_reason(reason: &str) -> Option<Scope> {
    let is_global = || reason.contains("global").then_some(Scope::Account);
    if reason.contains("burst") { Some(Scope::Route) } else { is_global() }
}

/// `Daily-limit`, `QPS`, `Per-second-limit`.
fn span_of(kind: &str) -> Option<Duration> {
    let kind = kind.to_ascii_lowercase();
    if kind == "qps" { Some(Duration::from_secs(1)) } else { kind.split('-').find_map(period) }
}
