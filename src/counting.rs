//! By which limits a client counts a request: those of its host, of the whole client, of the key that it names, and those that
//! answers have taught of its credential and of the bucket that it is in.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{PoisonError, RwLock};

use smallvec::smallvec;

use crate::admission::GateName;
use crate::credential;
use crate::key::{Fingerprint, Key};
use crate::known::{About, EACH_HOST, Gates, Host, Of, WHOLE, named};
use crate::limiter::Limiter;
use crate::route::Route;
use crate::signal::Signal;
use crate::wire::Letter;

/// So many hosts are known.
const MOST_KNOWN: usize = 1_000;
/// And so many ports of each.
const MOST_PORTS: usize = 16;

/// By which limits requests are counted.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The hosts that have limits of their own, and by which rule those are.
    hosts: HashMap<Key, usize>,
    /// The key of the whole client, if it has limits.
    whole: Option<Key>,
    /// Whether there are no hosts: all pass one gate, or that of the key that they name.
    one: bool,
    hash_key: [u8; 16],
    /// What is known of hosts, by name and port.
    known: RwLock<HashMap<String, Vec<Host>>>,
}

/// Where one request is counted.
#[derive(Debug)]
pub(crate) struct Course {
    /// All gates that it passes, that of its host first.
    pub(crate) limiter: Limiter,
    request: Option<Of>,
    version: u64,
}

impl Rules {
    pub(crate) fn new(hosts: HashMap<Key, usize>, whole: Option<Key>) -> Self {
        let secret = || RandomState::new().build_hasher().finish().to_ne_bytes();
        let mut hash_key = [0; 16];
        hash_key[..8].copy_from_slice(&secret());
        hash_key[8..].copy_from_slice(&secret());
        Self { hosts, whole, one: false, hash_key, known: RwLock::default() }
    }

    /// For a limiter by itself.
    pub(crate) fn one() -> Self {
        Self { one: true, ..Self::new(HashMap::new(), None) }
    }

    /// Where a request is counted, which is sent for the first time or not.
    pub(crate) fn course(&self, of: &Limiter, request: &impl Letter, key: Option<&Key>, is_first: bool) -> Course {
        if self.one {
            return Course { limiter: self.limiter(of, request.host(), key), request: None, version: 0 };
        }
        let request = self.describe(request, key);
        let known = self.read(&request, |host| host.knows(&request).then(|| host.course(of, &request)));
        let (limiter, version) = known.flatten().unwrap_or_else(|| {
            let (learned, course) = self.write(of, &request, |host| {
                let learned = host.meet(request.whose, request.lasts, is_first);
                (learned, host.course(of, &request))
            });
            if let Some(learned) = learned {
                of.hand_over(&learned);
            }
            course
        });
        Course { limiter, request: Some(request), version }
    }

    fn describe(&self, request: &impl Letter, key: Option<&Key>) -> Of {
        let (host, port) = request.host();
        let hidden = |secret: &[u8]| Fingerprint::of(secret, &self.hash_key);
        let credential = credential::of(request.headers());
        let whose = credential.map(|credential| hidden(credential.secret));
        let lasts = credential.is_none_or(|credential| credential.lasts);
        let route = Route::of(request.method(), request.path(), |part| hidden(part.as_bytes()).short());
        Of { host: host.to_owned(), port, whose, lasts, route, key: key.cloned() }
    }

    /// Whether something was learned meanwhile, so that a request has other gates to pass.
    pub(crate) fn has_moved(&self, of: &Limiter, course: &mut Course) -> bool {
        let Some(request) = &course.request else { return false };
        let moved = self.read(request, |host| (host.version != course.version).then(|| host.course(of, request)));
        let Some((limiter, version)) = moved.flatten() else { return false };
        course.version = version;
        let has_others = limiter.gates() != course.limiter.gates();
        course.limiter = limiter;
        has_others
    }

    /// The limiter of whatever goes to a host.
    pub(crate) fn limiter(&self, of: &Limiter, (host, port): (&str, Option<u16>), key: Option<&Key>) -> Limiter {
        if self.one {
            return key.map_or_else(|| of.clone(), |key| of.key(key.as_str()));
        }
        let mut gates = self.gates(host, port);
        gates.extend(key.map(named));
        of.through(gates)
    }

    /// Learns from an answer in which bucket its request was, and answers what it is about.
    pub(crate) fn learn(&self, course: &Course, signal: &Signal) -> About {
        let (of, request) = (&course.limiter, course.request.as_ref());
        let about = request.and_then(|request| {
            if self.read(request, |host| host.buckets.is_news(&request.route, host.known(request.whose), signal))? {
                let learned = self.write(of, request, |host| host.learn(request, signal));
                for learned in learned {
                    of.hand_over(&learned);
                }
            }
            self.read(request, |host| host.about(request, signal))
        });
        about.unwrap_or_else(|| About::all(&of.gates()[0], signal))
    }

    fn read<R>(&self, request: &Of, act: impl FnOnce(&Host) -> R) -> Option<R> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&request.host)?.iter().find(|host| host.port == request.port).map(act)
    }

    /// Others' code must not be called by `act`: nothing may wake anybody.
    fn write<R>(&self, of: &Limiter, request: &Of, act: impl FnOnce(&mut Host) -> R) -> R {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_KNOWN && !known.contains_key(&request.host) {
            let plain = known.iter().find(|(_, ports)| ports.iter().all(Host::is_plain));
            let name = plain.or(known.iter().next()).map(|(name, _)| name.clone());
            name.map(|name| known.remove(&name));
        }
        let ports = known.entry(request.host.clone()).or_default();
        let place = ports.iter().position(|host| host.port == request.port).unwrap_or_else(|| {
            if ports.len() >= MOST_PORTS {
                ports.swap_remove(ports.iter().position(Host::is_plain).unwrap_or_default());
            }
            ports.push(Host::new(of, request.port, self.gates(&request.host, request.port)));
            ports.len() - 1
        });
        act(&mut ports[place])
    }

    /// The gates of a host, its own first.
    fn gates(&self, host: &str, port: Option<u16>) -> Gates {
        let host = Key::host(host, port);
        let rule = self.hosts.get(&host).copied().unwrap_or(EACH_HOST);
        let mut gates = smallvec![GateName { rule, key: host }];
        gates.extend(self.whole.iter().map(|key| GateName { rule: WHOLE, key: key.clone() }));
        gates
    }
}
