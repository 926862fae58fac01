//! Which policies a family lists beside its limit, and which of them is the limit's.

use std::borrow::Cow;
use std::time::Duration;

use smallvec::SmallVec;

use super::limit::{Found, StatedLimit, UNNAMED};
use super::list::{Member, bare, members};
use super::moment::{number, span};
use super::name::is_same_family;

/// One of the policies that a family lists beside its limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy<'a> {
    family: &'a str,
    pub(super) name: Option<&'a str>,
    pub(super) limit: f64,
    pub(super) window: Option<Duration>,
    /// Listed in the field of the limit itself (draft 03), and not in one of their own (drafts 04 to 07).
    is_in_limit: bool,
}

/// Those of all families of a head.
#[derive(Debug, Default)]
pub(super) struct Policies<'a> {
    all: SmallVec<[Policy<'a>; 4]>,
}

impl<'a> Policies<'a> {
    /// `100;w=60, 5000;w=86400;comment="a day"`.
    pub(super) fn add(&mut self, family: &'a str, value: &'a str, is_in_limit: bool) {
        let policies = members(value).filter_map(|member| {
            let window = member.parameter("w").or(member.parameter("window"));
            let window = window.and_then(number).and_then(span).filter(|window| !window.is_zero());
            let name = member.parameter("name").map(bare);
            Some(Policy { family, name, limit: number(bare(member.head))?, window, is_in_limit })
        });
        self.all.extend(policies);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes out the policy of a limit, which is that of the same size. If two have it, neither is taken to be the
    /// limit's; if none has, the server has lowered the limit, and the policies beside it say nothing more.
    pub(super) fn take(&mut self, family: &str, limit: Option<f64>, left: Option<f64>) -> Option<Policy<'a>> {
        let is_ours = |policy: &Policy| is_same_family(policy.family, family);
        let limit = self.of_another(family, limit, left).or(limit);
        let is_it = |policy: &Policy| is_ours(policy) && limit.is_none_or(|limit| (policy.limit - limit).abs() < 0.5);
        let count = self.all.iter().filter(|policy| is_it(policy)).count();
        let found = self.all.iter().find(|policy| count == 1 && is_it(policy)).copied();
        let is_beside = self.all.iter().filter(|policy| is_ours(policy)).all(|policy| !policy.is_in_limit);
        if count == 0 && is_beside {
            self.all.retain(|policy| !is_ours(policy));
        } else if count == 1 || limit.is_some() {
            self.all.retain(|policy| !is_it(policy));
        }
        found
    }

    /// If more is left than the limit allows, it is left of a policy that allows so much.
    fn of_another(&self, family: &str, limit: Option<f64>, left: Option<f64>) -> Option<f64> {
        let (limit, left) = (limit?, left?);
        let listed = self.all.iter().filter(|policy| policy.is_in_limit && is_same_family(policy.family, family));
        let larger = listed.map(|policy| policy.limit).filter(|size| left > limit && left <= *size);
        larger.reduce(f64::min)
    }

    /// Those that are left are limits too.
    pub(super) fn into_limits(self, found: &mut Found) {
        for policy in self.all {
            let name = policy.name.map_or(Cow::Borrowed(UNNAMED), |name| Cow::Owned(name.to_owned()));
            found.push(StatedLimit { limit: Some(policy.limit), window: policy.window, ..StatedLimit::named(name) });
        }
    }
}

/// A limit, and policies after it that have a window each (draft 03).
pub(super) fn is_list(value: &str) -> bool {
    members(value).skip(1).any(Member::has_parameters)
}
