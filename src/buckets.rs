//! In which of a server's own buckets is a request, as answers have taught?

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::key::{Fingerprint, short};
use crate::route::Route;
use crate::signal::{Scope, Signal, StatedLimit};

/// So many routes and beginnings of routes are known of one host, and so many buckets; what comes later is not learned.
const MOST_ROUTES: usize = 4_096;
const MOST_BUCKETS: usize = 1_000;

/// And so many of one request.
pub(crate) const MOST_OF_ONE: usize = 4;

/// So often routes must state different limits by one name, in turns, until each is believed to have its own.
const ENOUGH_TURNS: u32 = 3;

/// And of so many limits and routes that is watched.
const MOST_WATCHED: usize = 16;

/// What is known of the buckets of one host.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    by_route: HashMap<String, Bucket>,
    names: HashSet<Arc<str>>,
    /// Whether there are several, so that each has to be told from the others.
    are_several: bool,
    watched: Vec<Watched>,
    /// The limits by these names are of each route its own, and no answer says so.
    apart: HashSet<Arc<str>>,
}

/// What a server counts together.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Bucket {
    /// What it calls so, as its limits are called: all that it counts a request in.
    Named(SmallVec<[Arc<str>; 1]>),
    /// What has this number; of that, everything by itself that a path names first.
    Numbered(Arc<str>),
    /// One route.
    Route,
}

/// Which routes have stated how much of a limit to somebody, the latest last.
#[derive(Debug)]
struct Watched {
    name: Arc<str>,
    whose: Option<Fingerprint>,
    routes: Vec<(String, u64)>,
    turns: u32,
}

impl Buckets {
    /// Whether nothing has to be told apart: a server that has but one speaks of all.
    pub(crate) fn is_empty(&self) -> bool {
        !self.are_several && self.apart.is_empty()
    }

    /// Whether each route has its own limit by this name, though no answer says so.
    pub(crate) fn is_apart(&self, name: &str) -> bool {
        self.apart.contains(name)
    }

    /// Whether there is anything to learn.
    pub(crate) fn is_news(&self, route: &Route, whose: Option<Fingerprint>, signal: &Signal) -> bool {
        match bucket(signal) {
            Some(Bucket::Named(names)) => match self.by_route.get(&route.template) {
                Some(Bucket::Named(known)) => !names.iter().all(|name| known.contains(name)),
                _ => true,
            },
            Some(bucket) => self.by_route.get(&route.template) != Some(&bucket),
            None => signal.limits.iter().any(|limit| !self.is_as_ever(route, whose, limit)),
        }
    }

    fn is_as_ever(&self, route: &Route, whose: Option<Fingerprint>, limit: &StatedLimit) -> bool {
        let Some(most) = limit.limit.map(f64::to_bits).filter(|_| !self.is_apart(&limit.name)) else { return true };
        self.watched.iter().filter(|watched| watched.is(&limit.name, whose)).any(|watched| {
            let mut routes = watched.routes.iter();
            routes.all(|(_, other)| *other == most) && watched.routes.iter().any(|(known, _)| *known == route.template)
        })
    }

    /// The names of the buckets that a request is in, as far as that is known.
    pub(crate) fn names(&self, route: &Route) -> SmallVec<[String; 1]> {
        if self.is_empty() {
            return SmallVec::new();
        }
        match self.by_route.get(&route.template).or_else(|| self.likely(route)) {
            Some(Bucket::Named(names)) => names.iter().map(ToString::to_string).collect(),
            Some(Bucket::Numbered(number)) => {
                let of = route.major.as_ref().map(|major| format!(" ({major})"));
                smallvec![format!("{number}{}", of.unwrap_or_default())]
            }
            None if self.apart.is_empty() => SmallVec::new(),
            Some(Bucket::Route) | None => smallvec![route.template.clone()],
        }
    }

    /// Of a route that nobody has tried: the buckets of those that begin as it does.
    fn likely(&self, route: &Route) -> Option<&Bucket> {
        let alike = route.beginnings().find_map(|beginning| self.by_route.get(beginning));
        alike.filter(|bucket| matches!(bucket, Bucket::Named(_)))
    }

    /// Learns from what an answer says, to whoever it is. What was stated before, by these names, was not of all, but of these
    /// buckets.
    pub(crate) fn learn(
        &mut self,
        route: &Route,
        whose: Option<Fingerprint>,
        signal: &Signal,
    ) -> Vec<(Arc<str>, Arc<str>)> {
        let were_several = self.are_several;
        let Some(bucket) = bucket(signal) else {
            return signal.limits.iter().filter_map(|limit| self.watch(route, whose, limit)).collect();
        };
        self.put(route, bucket);
        let is_new = self.are_several && !were_several;
        self.names.iter().filter(|_| is_new).map(|name| (Arc::clone(name), Arc::clone(name))).collect()
    }

    fn put(&mut self, route: &Route, mut bucket: Bucket) {
        if let (Bucket::Named(names), Some(Bucket::Named(known))) = (&mut bucket, self.by_route.get(&route.template)) {
            // A server may name only that of its limits that is the tightest just now.
            let others =
                known.iter().filter(|name| !names.contains(name)).take(MOST_OF_ONE.saturating_sub(names.len()));
            let others: Vec<_> = others.cloned().collect();
            names.extend(others);
            names.sort();
        }
        if self.by_route.len() >= MOST_ROUTES && !self.by_route.contains_key(&route.template) {
            return;
        }
        let names = match &bucket {
            Bucket::Named(names) => names.as_slice(),
            Bucket::Numbered(number) => std::slice::from_ref(number),
            Bucket::Route => &[],
        };
        let new = names.iter().filter(|name| !self.names.contains(*name)).count();
        if self.names.len() + new > MOST_BUCKETS {
            return;
        }
        self.names.extend(names.iter().cloned());
        let is_other = |other: &Bucket| match (other, &bucket) {
            (Bucket::Named(other), Bucket::Named(names)) => !other.iter().any(|name| names.contains(name)),
            _ => true,
        };
        self.are_several |= !matches!(bucket, Bucket::Named(_)) || self.by_route.values().next().is_some_and(is_other);
        if matches!(bucket, Bucket::Named(_)) {
            for beginning in route.beginnings().take(MOST_ROUTES - self.by_route.len().min(MOST_ROUTES)) {
                self.by_route.entry(beginning.to_owned()).or_insert_with(|| bucket.clone());
            }
        }
        self.by_route.insert(route.template.clone(), bucket);
    }

    /// Whether routes turn out to have limits of their own: they state different ones by one name, again and again. Then what was
    /// stated last is that of the route before this one.
    fn watch(
        &mut self,
        route: &Route,
        whose: Option<Fingerprint>,
        limit: &StatedLimit,
    ) -> Option<(Arc<str>, Arc<str>)> {
        let most = limit.limit.filter(|_| !self.is_apart(&limit.name))?;
        let place = self.watched.iter().position(|watched| watched.is(&limit.name, whose));
        let place = place.unwrap_or_else(|| {
            self.watched.truncate(MOST_WATCHED - 1);
            self.watched.push(Watched { name: Arc::from(&*limit.name), whose, routes: Vec::new(), turns: 0 });
            self.watched.len() - 1
        });
        let is_apart = self.watched[place].states(route, most.to_bits()) && self.apart.len() < MOST_WATCHED;
        let Watched { name, routes, .. } = is_apart.then(|| self.watched.swap_remove(place))?;
        self.apart.insert(Arc::clone(&name));
        let (before, _) = routes.iter().rev().nth(1)?;
        Some((name, Arc::from(before.as_str())))
    }
}

/// What an answer says of the bucket of its request.
fn bucket(signal: &Signal) -> Option<Bucket> {
    match signal.scope.as_ref()? {
        Scope::Route => Some(Bucket::Route),
        Scope::Bucket(name) if signal.limits.iter().any(|limit| limit.name == *name) => {
            let mut names: SmallVec<[Arc<str>; 1]> =
                signal.limits.iter().map(|limit| Arc::from(short(&limit.name))).collect();
            names.sort();
            names.dedup();
            names.truncate(MOST_OF_ONE);
            Some(Bucket::Named(names))
        }
        Scope::Bucket(number) => Some(Bucket::Numbered(Arc::from(short(number)))),
        _ => None,
    }
}

impl Watched {
    fn is(&self, name: &str, whose: Option<Fingerprint>) -> bool {
        *self.name == *name && self.whose == whose
    }

    /// Whether that is enough.
    fn states(&mut self, route: &Route, most: u64) -> bool {
        if let Some(place) = self.routes.iter().position(|(template, _)| *template == route.template) {
            let (_, before) = self.routes[place];
            if before != most {
                // The limit itself has changed.
                (self.turns, self.routes) = (0, Vec::new());
            } else if self.routes[place..].iter().any(|(_, other)| *other != most) {
                self.turns += 1;
            }
            self.routes.retain(|(template, _)| *template != route.template);
        } else if self.routes.len() >= MOST_WATCHED {
            self.routes.remove(0);
        }
        self.routes.push((route.template.clone(), most));
        self.turns >= ENOUGH_TURNS
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, Method, StatusCode};
    use std::time::Duration;

    use super::*;

    fn signal(fields: &[(&'static str, &str)]) -> Signal {
        let field = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        Signal::read(StatusCode::OK, &fields.iter().map(field).collect::<HeaderMap>(), b"", Duration::ZERO)
    }

    fn get(path: &str) -> Route {
        Route::of(&Method::GET, path, str::to_owned)
    }

    fn names(buckets: &Buckets, path: &str) -> String {
        buckets.names(&get(path)).join("+")
    }

    fn trio(limit: &str) -> Signal {
        let fields = [("x-ratelimit-limit", limit), ("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", "9")];
        signal(&fields)
    }

    fn github(resource: &str) -> Signal {
        let count = [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "50"), ("x-ratelimit-reset", "9")];
        signal(&[&count[..], &[("x-ratelimit-resource", resource)]].concat())
    }

    #[test]
    fn a_resource_is_that_of_its_route_and_of_those_that_begin_alike() {
        let mut buckets = Buckets::default();
        buckets.learn(&get("/repos/a/b"), None, &github("core"));
        buckets.learn(&get("/search/code"), None, &github("code_search"));
        assert_eq!(names(&buckets, "/repos/a/b"), "core");
        assert_eq!(names(&buckets, "/repos/c"), "core");
        assert_eq!(names(&buckets, "/search/users"), "code_search", "until it has been tried");
        assert_eq!(names(&buckets, "/users"), "");
        assert!(buckets.names(&Route::of(&Method::POST, "/repos/a/b", str::to_owned)).is_empty());
    }

    #[test]
    fn what_a_server_has_but_one_of_is_for_all_and_of_several_each_counts() {
        let mut buckets = Buckets::default();
        let one = signal(&[("ratelimit", "\"api\";r=5;t=9")]);
        assert!(buckets.learn(&get("/a"), None, &one).is_empty() && buckets.learn(&get("/b"), None, &one).is_empty());
        assert!(buckets.is_empty());
        assert_eq!(buckets.learn(&get("/c"), None, &signal(&[("ratelimit", "\"other\";r=5;t=9")])).len(), 2);
        assert_eq!((names(&buckets, "/b"), names(&buckets, "/c")), ("api".to_owned(), "other".to_owned()));
        for field in ["\"api\";r=0;t=9, \"day\";r=7;t=99", "\"day\";r=0;t=99, \"api\";r=0;t=9"] {
            buckets.learn(&get("/a"), None, &signal(&[("ratelimit", field)]));
            assert_eq!(names(&buckets, "/a"), "api+day");
            assert!(!buckets.is_news(&get("/a"), None, &signal(&[("ratelimit", field)])));
        }
    }

    #[test]
    fn a_number_is_that_of_its_route_and_counts_each_thing_by_itself() {
        let discord = |bucket: &str| {
            let count =
                [("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", "4"), ("x-ratelimit-reset-after", "1.5")];
            signal(&[&count[..], &[("x-ratelimit-bucket", bucket)]].concat())
        };
        let mut buckets = Buckets::default();
        buckets.learn(&get("/channels/1/messages/2"), None, &discord("abcd1234"));
        assert_eq!(names(&buckets, "/channels/1/messages/3"), "abcd1234 (1)");
        assert_eq!(names(&buckets, "/channels/7/messages/3"), "abcd1234 (7)");
        assert_eq!(names(&buckets, "/channels/7/pins"), "");
        buckets.learn(&get("/channels/1/messages/2"), None, &discord("ef"));
        assert_eq!(names(&buckets, "/channels/1/messages/3"), "ef (1)", "it may change");
        for bucket in 0..2 * MOST_BUCKETS {
            buckets.learn(&get(&format!("/{bucket}a/b")), None, &discord(&bucket.to_string()));
        }
        assert!(buckets.names.len() <= MOST_BUCKETS && buckets.by_route.len() <= MOST_ROUTES);
    }

    #[test]
    fn routes_that_state_different_limits_in_turns_have_their_own() {
        let mut buckets = Buckets::default();
        let turns = [("/a", "900"), ("/b", "15"), ("/a", "900"), ("/b", "15"), ("/a", "900")];
        let apart = turns.map(|(path, limit)| {
            buckets.learn(&get(path), None, &trio(limit));
            buckets.is_apart("requests")
        });
        assert_eq!(apart, [false, false, false, false, true]);
        assert_eq!(names(&buckets, "/c"), "GET /c");
    }

    #[test]
    fn two_plans_are_not_two_routes() {
        let mut buckets = Buckets::default();
        let who = |nth| Some(Fingerprint::of(&[nth], &[0; 16]));
        for _ in 0..5 {
            buckets.learn(&get("/a"), who(1), &trio("900"));
            buckets.learn(&get("/b"), who(2), &trio("15"));
        }
        assert!(!buckets.is_apart("requests"));
    }

    #[test]
    fn a_limit_that_changes_is_one() {
        let mut buckets = Buckets::default();
        for round in 0..20 {
            let limit = ["20", "10"][usize::from(round / 5 % 2 == 1)];
            for path in ["/a", "/b", "/c"] {
                buckets.learn(&get(path), None, &trio(limit));
            }
        }
        assert_eq!(names(&buckets, "/a"), "");
    }
}
