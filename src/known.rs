//! What is known of one host: who asks it, in which of its buckets a request is, and so which gates a request passes and an answer
//! is about.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use crate::admission::{GateName, HandOver};
use crate::buckets::Buckets;
use crate::key::{Fingerprint, Key};
use crate::limiter::Limiter;
use crate::route::Route;
use crate::signal::{Scope, Signal, StatedLimit};

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

/// And so many credentials; who is new takes the place of who was not used for the longest time.
const MOST_CREDENTIALS: usize = 1_000;
/// And so many that were used once and may be made for each request.
const MOST_TRIED: usize = 64;

pub(crate) type Gates = SmallVec<[GateName; 1]>;

/// By whom a host is asked; without a credential, by nobody.
pub(crate) type Whose = Option<Fingerprint>;

/// One host at one port.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) port: Option<u16>,
    /// The limiter of requests that name no key.
    limiter: Limiter,
    gate: GateName,
    /// Who asked first.
    first: Option<Whose>,
    /// Who asks, once they are several, and when each did last: each has limits of its own.
    credentials: HashMap<Whose, AtomicU64>,
    tried: VecDeque<Whose>,
    pub(crate) buckets: Buckets,
    /// Counts requests.
    clock: AtomicU64,
    /// Counts what was learned: requests may have to pass other gates than before.
    pub(crate) version: u64,
}

/// The gates that an answer is about: that at which it refuses, and those of whose limits it speaks.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) refusal: GateName,
    pub(crate) limits: Vec<(GateName, Vec<StatedLimit>)>,
}

/// What of a request says where it is counted.
#[derive(Debug)]
pub(crate) struct Of {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) whose: Whose,
    /// Whether others will have the same credential.
    pub(crate) lasts: bool,
    pub(crate) route: Route,
    pub(crate) key: Option<Key>,
}

impl About {
    /// There is one gate for all. What a bucket that only has a number or a route has left is nothing to the others.
    pub(crate) fn all(gate: &GateName, signal: &Signal) -> Self {
        let are_for_all = match &signal.scope {
            Some(Scope::Bucket(name)) => signal.limits.iter().any(|limit| limit.name == *name),
            Some(Scope::Route) => false,
            _ => true,
        };
        let limits = if are_for_all { signal.limits.clone() } else { Vec::new() };
        Self { refusal: gate.clone(), limits: vec![(gate.clone(), limits)] }
    }
}

impl Host {
    /// One of which nothing is known; its gates, its own first.
    pub(crate) fn new(of: &Limiter, port: Option<u16>, gates: Gates) -> Self {
        Self {
            port,
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

    /// Nothing was learned of it.
    pub(crate) fn is_plain(&self) -> bool {
        self.credentials.is_empty() && self.buckets.is_empty()
    }

    pub(crate) fn knows(&self, request: &Of) -> bool {
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
    pub(crate) fn known(&self, whose: Whose) -> Whose {
        whose.filter(|_| self.credentials.contains_key(&whose))
    }

    /// Somebody asks. What was learned at the host was about the first one only.
    pub(crate) fn meet(&mut self, whose: Whose, lasts: bool, is_first: bool) -> Option<HandOver> {
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
        begins.then(|| HandOver { from: self.gate.clone(), stated: vec![(None, found.clone())], found: Some(found) })
    }

    fn enter(&mut self, whose: Whose) {
        if self.credentials.len() >= MOST_CREDENTIALS && !self.credentials.contains_key(&whose) {
            let oldest = self.credentials.iter().min_by_key(|(_, last)| last.load(Relaxed)).map(|(oldest, _)| *oldest);
            oldest.map(|oldest| self.credentials.remove(&oldest));
        }
        self.credentials.insert(whose, AtomicU64::new(self.clock.fetch_add(1, Relaxed)));
    }

    pub(crate) fn course(&self, of: &Limiter, request: &Of) -> (Limiter, u64) {
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
        self.buckets.names(&request.route).iter().map(|name| self.bucket(request.whose, name)).collect()
    }

    /// A bucket of somebody's. Those of the first keep their names when others come.
    fn bucket(&self, whose: Whose, name: &str) -> GateName {
        let is_first = self.first == Some(whose) || !self.credentials.contains_key(&whose);
        let of = if is_first { self.gate.key.clone() } else { self.gate_of(whose).key };
        learned(Key::bucket(&of, name))
    }

    /// Learns what an answer says of buckets. What was stated before of all may have been about some.
    pub(crate) fn learn(&mut self, request: &Of, signal: &Signal) -> Vec<HandOver> {
        self.version += 1;
        let whose = self.known(request.whose);
        let parted = self.buckets.learn(&request.route, whose, signal);
        if parted.is_empty() {
            return Vec::new();
        }
        let all = self.credentials.keys().map(|whose| (*whose, self.gate_of(*whose)));
        let all = all.chain([(self.first.flatten(), self.gate.clone())]);
        let hand_over = |(whose, from): (Whose, GateName)| {
            let bucket = |(name, of): &(Arc<str>, Arc<str>)| (Some(Arc::clone(name)), self.bucket(whose, of));
            HandOver { stated: parted.iter().map(bucket).collect(), found: None, from }
        };
        all.map(hand_over).collect()
    }

    /// The gates that an answer is about.
    pub(crate) fn about(&self, request: &Of, signal: &Signal) -> About {
        let (whose, buckets) = (self.whose(request), self.buckets(request));
        let named = |name: &str| {
            let gate = self.bucket(request.whose, name);
            buckets.iter().find(|bucket| **bucket == gate).or(buckets.first()).unwrap_or(&whose)
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

pub(crate) fn named(key: &Key) -> GateName {
    GateName { rule: EACH_KEY, key: key.clone() }
}

fn learned(key: Key) -> GateName {
    GateName { rule: LEARNED, key }
}
