//! By which limits a client counts a request: those of its host, of the whole client, of the key that it names, and those that
//! answers have taught of its credential and of the bucket that it is in.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::{PoisonError, RwLock};

use smallvec::{SmallVec, smallvec};

use crate::admission::GateName;
use crate::buckets::Buckets;
use crate::credential;
use crate::key::{Fingerprint, Key};
use crate::limiter::Limiter;
use crate::route::Route;
use crate::signal::{Scope, Signal, StatedLimit};
use crate::wire::Letter;

/// The limits of each host that has none of its own.
pub(crate) const EACH_HOST: usize = 0;
/// The limits of the whole client.
pub(crate) const WHOLE: usize = 1;
/// The limits of each key that requests name.
pub(crate) const EACH_KEY: usize = 2;
/// None of one's own, only what servers say.
pub(crate) const LEARNED: usize = 3;
/// Those of the first host that has its own.
pub(crate) const FIRST_HOST: usize = 4;

/// So many hosts are known without looking their limits up again.
const MOST_KNOWN: usize = 1_000;
/// And so many ports of each.
const MOST_PORTS: usize = 16;
/// And so many credentials; whoever comes later shares the gate of the host, for a token of one's own for each request tells nothing.
const MOST_CREDENTIALS: usize = 1_000;

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

/// One host at one port.
#[derive(Debug)]
struct Host {
    port: Option<u16>,
    /// The limiter of requests that name no key.
    limiter: Limiter,
    gate: GateName,
    /// The first credential that it was asked with, or none.
    first: Option<Fingerprint>,
    /// Those that it was asked with, once there are several: each has limits of its own.
    credentials: HashSet<Option<Fingerprint>>,
    buckets: Buckets,
}

type Gates = SmallVec<[GateName; 1]>;

/// Where one request is counted.
#[derive(Debug)]
pub(crate) struct Course {
    /// All gates that it passes, that of its host first.
    pub(crate) limiter: Limiter,
    request: Option<Of>,
}

/// The gates that an answer is about: that at which it refuses, and those of whose limits it speaks.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) refusal: GateName,
    pub(crate) limits: Vec<(GateName, Vec<StatedLimit>)>,
}

/// What of a request says where it is counted.
#[derive(Debug)]
struct Of {
    host: String,
    port: Option<u16>,
    credential: Option<Fingerprint>,
    route: Route,
}

impl About {
    /// There is one gate for all. What a bucket that only has a number or a route has left is nothing to the others.
    fn all(gate: &GateName, signal: &Signal) -> Self {
        let are_for_all = match &signal.scope {
            Some(Scope::Bucket(name)) => signal.limits.iter().any(|limit| limit.name == *name),
            Some(Scope::Route) => false,
            _ => true,
        };
        let limits = if are_for_all { signal.limits.clone() } else { Vec::new() };
        Self { refusal: gate.clone(), limits: vec![(gate.clone(), limits)] }
    }
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

    /// Where a request is counted.
    pub(crate) fn course(&self, of: &Limiter, request: &impl Letter, key: Option<&Key>) -> Course {
        if self.one {
            let limiter = key.map_or_else(|| of.clone(), |key| of.key(key.as_str()));
            return Course { limiter, request: None };
        }
        let (host, port) = request.host();
        let hidden = |secret: &[u8]| Fingerprint::of(secret, &self.hash_key);
        let credential = credential::of(request.headers()).map(hidden);
        let route = Route::of(request.method(), request.path(), |id| hidden(id.as_bytes()).to_string());
        let request = Of { host: host.to_owned(), port, credential, route };
        let known = self.read(&request, |host| host.knows(&request).then(|| host.limiter(of, &request, key)));
        let limiter = known.flatten().unwrap_or_else(|| {
            self.write(of, &request, |host| {
                host.meet(of, credential);
                host.limiter(of, &request, key)
            })
        });
        Course { limiter, request: Some(request) }
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
        let learned = course.request.as_ref().and_then(|request| {
            if self.read(request, |host| host.buckets.is_news(&request.route, signal))? {
                self.write(&course.limiter, request, |host| host.learn(&course.limiter, request, signal));
            }
            self.read(request, |host| host.about(request, signal))
        });
        learned.unwrap_or_else(|| About::all(&course.limiter.gates()[0], signal))
    }

    fn read<R>(&self, request: &Of, act: impl FnOnce(&Host) -> R) -> Option<R> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&request.host)?.iter().find(|host| host.port == request.port).map(act)
    }

    fn write<R>(&self, of: &Limiter, request: &Of, act: impl FnOnce(&mut Host) -> R) -> R {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_KNOWN && !known.contains_key(&request.host) {
            known.clear();
        }
        let ports = known.entry(request.host.clone()).or_default();
        let place = ports.iter().position(|host| host.port == request.port).unwrap_or_else(|| {
            ports.truncate(MOST_PORTS - 1);
            ports.push(self.host(of, request));
            ports.len() - 1
        });
        act(&mut ports[place])
    }

    fn host(&self, of: &Limiter, request: &Of) -> Host {
        let gates = self.gates(&request.host, request.port);
        let (port, gate, first) = (request.port, gates[0].clone(), request.credential);
        Host { port, limiter: of.through(gates), gate, first, credentials: HashSet::new(), buckets: Buckets::default() }
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

impl Host {
    fn knows(&self, request: &Of) -> bool {
        match self.credentials.len() {
            0 => self.first == request.credential,
            MOST_CREDENTIALS.. => true,
            _ => self.credentials.contains(&request.credential),
        }
    }

    /// Somebody else asks: what was learned at the host was about the first one only.
    fn meet(&mut self, of: &Limiter, credential: Option<Fingerprint>) {
        if self.credentials.is_empty() && self.first != credential {
            of.unlearn(&self.gate);
            self.credentials.insert(self.first);
        }
        if !self.credentials.is_empty() {
            self.credentials.insert(credential);
        }
    }

    fn limiter(&self, of: &Limiter, request: &Of, key: Option<&Key>) -> Limiter {
        if key.is_none() && self.credentials.is_empty() && self.buckets.is_empty() {
            return self.limiter.clone();
        }
        let mut gates = self.limiter.gates().clone();
        gates.extend(key.map(named));
        gates.extend(Some(self.whose(request)).filter(|gate| *gate != self.gate));
        gates.extend(self.buckets(request));
        of.through(gates)
    }

    /// The gate of whoever asks: that of the host, if it is the only one.
    fn whose(&self, request: &Of) -> GateName {
        if self.credentials.contains(&request.credential) {
            learned(Key::credential(&self.gate.key, request.credential))
        } else {
            self.gate.clone()
        }
    }

    /// The gates of the buckets that a request is in, as far as that is known.
    fn buckets(&self, request: &Of) -> Gates {
        if self.buckets.is_empty() {
            return Gates::new();
        }
        let whose = self.whose(request).key;
        self.buckets.names(&request.route).iter().map(|name| learned(Key::bucket(&whose, name))).collect()
    }

    /// Learns what an answer says of buckets. What was learned before of all may have been about some.
    fn learn(&mut self, of: &Limiter, request: &Of, signal: &Signal) {
        if self.buckets.learn(&request.route, signal) {
            of.unlearn(&self.gate);
            let all = self.credentials.iter();
            all.for_each(|whose| of.unlearn(&learned(Key::credential(&self.gate.key, *whose))));
        }
    }

    /// The gates that an answer is about.
    fn about(&self, request: &Of, signal: &Signal) -> About {
        let (whose, buckets) = (self.whose(request), self.buckets(request));
        let named = |name: &str| {
            let key = Key::bucket(&whose.key, name);
            buckets.iter().find(|gate| gate.key == key).or(buckets.first()).unwrap_or(&whose)
        };
        let refusal = match &signal.scope {
            Some(Scope::Host) => &self.gate,
            Some(Scope::Account | Scope::User) => &whose,
            // There is but one, or more than are kept apart.
            Some(Scope::Route | Scope::Bucket(_)) if buckets.is_empty() => return About::all(&whose, signal),
            Some(Scope::Bucket(name)) => named(name),
            Some(Scope::Route) | None => buckets.last().unwrap_or(&whose),
        };
        let gate = |limit: &StatedLimit| match &signal.scope {
            Some(Scope::Route | Scope::Bucket(_)) => named(&limit.name),
            _ if self.buckets.is_apart(&limit.name) => buckets.last().unwrap_or(&whose),
            Some(Scope::Host) => &self.gate,
            _ => &whose,
        };
        let mut limits: Vec<(GateName, Vec<StatedLimit>)> = Vec::new();
        for limit in &signal.limits {
            let gate = gate(limit);
            match limits.iter_mut().find(|(other, _)| other == gate) {
                Some((_, limits)) => limits.push(limit.clone()),
                None => limits.push((gate.clone(), vec![limit.clone()])),
            }
        }
        About { refusal: refusal.clone(), limits }
    }
}

fn named(key: &Key) -> GateName {
    GateName { rule: EACH_KEY, key: key.clone() }
}

fn learned(key: Key) -> GateName {
    GateName { rule: LEARNED, key }
}
