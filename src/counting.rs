//! By which limits a client counts a request: those of its host, of the whole client, of the key that it names, and those that
//! answers have taught of its credential and of the bucket that it is in.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

use smallvec::{SmallVec, smallvec};

use crate::admission::{GateName, HandOver};
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

/// So many hosts are known.
const MOST_KNOWN: usize = 1_000;
/// And so many ports of each.
const MOST_PORTS: usize = 16;
/// And so many credentials; who is new takes the place of who was not used for the longest time.
const MOST_CREDENTIALS: usize = 1_000;
/// And so many that were used once and may be made for each request.
const MOST_TRIED: usize = 64;

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

type Gates = SmallVec<[GateName; 1]>;

/// By whom a host is asked; without a credential, by nobody.
type Whose = Option<Fingerprint>;

/// One host at one port.
#[derive(Debug)]
struct Host {
    port: Option<u16>,
    /// The limiter of requests that name no key.
    limiter: Limiter,
    gate: GateName,
    /// Who asked first.
    first: Option<Whose>,
    /// Who asks, once they are several, and when each did last: each has limits of its own.
    credentials: HashMap<Whose, AtomicU64>,
    tried: VecDeque<Whose>,
    buckets: Buckets,
    /// Counts requests.
    clock: AtomicU64,
    /// Counts what was learned: requests may have to pass other gates than before.
    version: u64,
}

/// Where one request is counted.
#[derive(Debug)]
pub(crate) struct Course {
    /// All gates that it passes, that of its host first.
    pub(crate) limiter: Limiter,
    request: Option<Of>,
    version: u64,
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
    whose: Whose,
    /// Whether others will have the same credential.
    lasts: bool,
    route: Route,
    key: Option<Key>,
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

    /// Where a request is counted, which is sent for the first time or not.
    pub(crate) fn course(&self, of: &Limiter, request: &impl Letter, key: Option<&Key>, is_first: bool) -> Course {
        if self.one {
            let limiter = key.map_or_else(|| of.clone(), |key| of.key(key.as_str()));
            return Course { limiter, request: None, version: 0 };
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
            ports.push(self.host(of, request));
            ports.len() - 1
        });
        act(&mut ports[place])
    }

    fn host(&self, of: &Limiter, request: &Of) -> Host {
        let gates = self.gates(&request.host, request.port);
        Host {
            port: request.port,
            gate: gates[0].clone(),
            limiter: of.through(gates),
            first: None,
            credentials: HashMap::new(),
            tried: VecDeque::new(),
            buckets: Buckets::default(),
            clock: AtomicU64::new(0),
            version: 0,
        }
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
    /// Nothing was learned of it.
    fn is_plain(&self) -> bool {
        self.credentials.is_empty() && self.buckets.is_empty()
    }

    fn knows(&self, request: &Of) -> bool {
        if self.credentials.is_empty() {
            return self.first == Some(request.whose);
        }
        let now = self.clock.fetch_add(1, Relaxed);
        self.credentials.get(&request.whose).is_some_and(|last| {
            last.store(now, Relaxed);
            true
        })
    }

    /// Whoever has a gate of its own.
    fn known(&self, whose: Whose) -> Whose {
        whose.filter(|_| self.credentials.contains_key(&whose))
    }

    /// Somebody asks. What was learned at the host was about the first one only.
    fn meet(&mut self, whose: Whose, lasts: bool, is_first: bool) -> Option<HandOver> {
        let is_tried = self.tried.contains(&whose);
        let is_known = lasts || (is_tried && is_first);
        if !is_known {
            // A token may be made for each request: what is said to the first who has it is said to all.
            if is_first && !is_tried {
                self.tried.truncate(MOST_TRIED - 1);
                self.tried.push_front(whose);
            }
            return None;
        }
        self.tried.retain(|tried| *tried != whose);
        let first = *self.first.get_or_insert(whose);
        if self.credentials.is_empty() && first == whose {
            return None;
        }
        self.version += 1;
        let begins = self.credentials.is_empty();
        self.enter(first);
        self.enter(whose);
        let found = self.gate_of(first);
        let stated = self.stated(&found);
        begins.then(|| HandOver { from: self.gate.clone(), stated, found: Some(found) })
    }

    fn enter(&mut self, whose: Whose) {
        if self.credentials.len() >= MOST_CREDENTIALS && !self.credentials.contains_key(&whose) {
            let oldest = self.credentials.iter().min_by_key(|(_, last)| last.load(Relaxed)).map(|(oldest, _)| *oldest);
            oldest.map(|oldest| self.credentials.remove(&oldest));
        }
        self.credentials.insert(whose, AtomicU64::new(self.clock.fetch_add(1, Relaxed)));
    }

    /// The gates of what was stated at one that is now somebody's alone.
    fn stated(&self, whose: &GateName) -> Vec<(Option<Arc<str>>, GateName)> {
        if self.buckets.is_empty() {
            return vec![(None, whose.clone())];
        }
        let bucket = |name: &Arc<str>| (Some(Arc::clone(name)), learned(Key::bucket(&whose.key, name)));
        self.buckets.all().map(bucket).chain([(None, whose.clone())]).collect()
    }

    fn course(&self, of: &Limiter, request: &Of) -> (Limiter, u64) {
        if request.key.is_none() && self.is_plain() {
            return (self.limiter.clone(), self.version);
        }
        let mut gates = self.limiter.gates().clone();
        gates.extend(request.key.as_ref().map(named));
        gates.extend(Some(self.whose(request)).filter(|gate| *gate != self.gate));
        gates.extend(self.buckets(request));
        (of.through(gates), self.version)
    }

    /// The gate of whoever asks: that of the host, if it is the only one.
    fn whose(&self, request: &Of) -> GateName {
        let is_known = self.credentials.contains_key(&request.whose);
        if is_known { self.gate_of(request.whose) } else { self.gate.clone() }
    }

    fn gate_of(&self, whose: Whose) -> GateName {
        learned(Key::credential(&self.gate.key, whose))
    }

    /// The gates of the buckets that a request is in, as far as that is known.
    fn buckets(&self, request: &Of) -> Gates {
        if self.buckets.is_empty() {
            return Gates::new();
        }
        let whose = self.whose(request).key;
        self.buckets.names(&request.route).iter().map(|name| learned(Key::bucket(&whose, name))).collect()
    }

    /// Learns what an answer says of buckets. What was stated before of all may have been about some.
    fn learn(&mut self, request: &Of, signal: &Signal) -> Vec<HandOver> {
        self.version += 1;
        let whose = self.known(request.whose);
        if !self.buckets.learn(&request.route, whose, signal) {
            return Vec::new();
        }
        let all = self.credentials.keys().map(|whose| self.gate_of(*whose)).chain([self.gate.clone()]);
        let hand_over = |from: GateName| {
            let bucket = |name: &Arc<str>| (Some(Arc::clone(name)), learned(Key::bucket(&from.key, name)));
            HandOver { stated: self.buckets.all().map(bucket).collect(), found: None, from }
        };
        all.map(hand_over).collect()
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
