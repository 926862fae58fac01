//! By which limits a client counts a request: those of its host, of the whole client, and of the key that it names.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use smallvec::{SmallVec, smallvec};

use crate::admission::GateName;
use crate::key::Key;
use crate::limiter::Limiter;

/// The limits of each host that has none of its own.
pub(crate) const EACH_HOST: usize = 0;
/// The limits of the whole client.
pub(crate) const WHOLE: usize = 1;
/// The limits of each key that requests name.
pub(crate) const EACH_KEY: usize = 2;
/// Those of the first host that has its own.
pub(crate) const FIRST_HOST: usize = 3;

/// So many hosts are known without looking their limits up again.
const MOST_KNOWN: usize = 1_000;
/// And so many ports of each.
const MOST_PORTS: usize = 16;

/// By which limits requests are counted.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// The hosts that have limits of their own, and by which rule those are.
    pub(crate) hosts: HashMap<Key, usize>,
    /// The key of the whole client, if it has limits.
    pub(crate) whole: Option<Key>,
    /// Whether there are no hosts: all pass one gate, or that of the key that they name.
    pub(crate) one: bool,
    /// The gates of hosts, by name and port, for requests that name no key.
    known: RwLock<HashMap<String, Ports>>,
}

/// The ports of one host.
type Ports = Vec<(Option<u16>, Limiter)>;

impl Rules {
    pub(crate) fn new(hosts: HashMap<Key, usize>, whole: Option<Key>) -> Self {
        Self { hosts, whole, one: false, known: RwLock::default() }
    }

    /// For a limiter by itself.
    pub(crate) fn one() -> Self {
        Self { one: true, ..Self::default() }
    }

    /// The limiter of a request.
    pub(crate) fn limiter(&self, of: &Limiter, (host, port): (&str, Option<u16>), key: Option<&Key>) -> Limiter {
        if self.one {
            return key.map_or_else(|| of.clone(), |key| of.key(key.as_str()));
        }
        if key.is_some() {
            return of.through(self.gates(host, port, key));
        }
        self.known(host, port).unwrap_or_else(|| {
            let limiter = of.through(self.gates(host, port, key));
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            let ports = known.entry(host.to_owned()).or_default();
            if ports.len() >= MOST_PORTS {
                ports.clear();
            }
            ports.push((port, limiter.clone()));
            limiter
        })
    }

    fn known(&self, host: &str, port: Option<u16>) -> Option<Limiter> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(host)?.iter().find(|(other, _)| *other == port).map(|(_, limiter)| limiter.clone())
    }

    /// The gates of a request, that of its host first.
    fn gates(&self, host: &str, port: Option<u16>, key: Option<&Key>) -> SmallVec<[GateName; 1]> {
        let host = Key::host(host, port);
        let rule = self.hosts.get(&host).copied().unwrap_or(EACH_HOST);
        let mut gates = smallvec![GateName { rule, key: host }];
        gates.extend(self.whole.iter().map(|key| GateName { rule: WHOLE, key: key.clone() }));
        gates.extend(key.map(|key| GateName { rule: EACH_KEY, key: key.clone() }));
        gates
    }
}
