//! Whose limits a server speaks of: those of a credential, of a resource, of a bucket, of a route. Who shares none of them is not
//! held up, and nobody is refused once something was heard.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest_throttle::{Client, RequestBuilder};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

const SECOND: Duration = Duration::from_secs(1);

/// By what a server counts a request, how many of those go in two seconds, and what it says of that beside the count.
type Count = fn(&Request) -> (String, u64, Vec<(&'static str, String)>);

/// Counts in fixed windows of two seconds.
struct Counting {
    began: Instant,
    count: Count,
    prefix: &'static str,
    used: Arc<Mutex<HashMap<(String, u64), u64>>>,
    refused: Arc<Mutex<Vec<String>>>,
}

impl Respond for Counting {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let (by, most, says) = (self.count)(request);
        let (window, into) = (self.began.elapsed().as_secs() / 2, self.began.elapsed().as_millis() % 2_000);
        let mut used = self.used.lock().unwrap();
        let used = used.entry((by.clone(), window)).or_default();
        let (is_taken, resets) = (*used < most, f64::from(u32::try_from(2_001 - into).unwrap()) / 1_000.0);
        *used = most.min(*used + 1);
        let answer = ResponseTemplate::new(if is_taken { 200 } else { 429 });
        let counts =
            [("limit", most.to_string()), ("remaining", (most - *used).to_string()), ("reset", resets.to_string())];
        let answer = counts.iter().fold(answer, |answer, (name, value)| {
            answer.insert_header(format!("{}-{name}", self.prefix).as_str(), value.as_str())
        });
        if !is_taken {
            self.refused.lock().unwrap().push(by);
        }
        says.iter().fold(answer, |answer, (name, value)| answer.insert_header(*name, value.as_str()))
    }
}

/// A server, and by what it refused.
async fn server(prefix: &'static str, count: Count) -> (MockServer, Arc<Mutex<Vec<String>>>) {
    let (server, refused) = (MockServer::start().await, Arc::<Mutex<Vec<_>>>::default());
    let counting =
        Counting { began: Instant::now(), count, prefix, used: Arc::default(), refused: Arc::clone(&refused) };
    Mock::given(any()).respond_with(counting).mount(&server).await;
    (server, refused)
}

/// So many at once; how long they took.
async fn send(requests: impl IntoIterator<Item = RequestBuilder>) -> Duration {
    let began = Instant::now();
    let sent = join_all(requests.into_iter().map(RequestBuilder::send)).await;
    assert!(sent.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.status() == 200)), "{sent:?}");
    began.elapsed()
}

fn client() -> Client {
    Client::builder().max_attempts(20).build().unwrap()
}

/// By credential, ten each.
fn by_credential(request: &Request) -> (String, u64, Vec<(&'static str, String)>) {
    let whose = request.headers.get("authorization").map_or("nobody", |value| value.to_str().unwrap());
    (whose.to_owned(), 10, Vec::new())
}

#[tokio::test]
async fn keys_behind_one_host_have_limits_of_their_own() {
    let (server, refused) = server("x-ratelimit", by_credential).await;
    let client = client();
    let get = |key: Option<&str>| {
        let request = client.get(server.uri());
        key.map_or(request.try_clone().unwrap(), |key| request.bearer_auth(key))
    };
    // Once there are several, the first of each teaches.
    for key in [Some("one"), Some("two"), None, Some("one")] {
        send([get(key)]).await;
    }
    let exhausts = send((0..30).map(|_| get(Some("one"))));
    let meanwhile = async {
        tokio::time::sleep(SECOND / 10).await;
        (send((0..5).map(|_| get(Some("two")))).await, send((0..5).map(|_| get(None))).await)
    };
    let (took, (two, none)) = tokio::join!(exhausts, meanwhile);
    assert!(took > 2 * SECOND && two < SECOND && none < SECOND, "{took:?} {two:?} {none:?}");
    assert_eq!(*refused.lock().unwrap(), [""; 0]);
    let shown = client.snapshot().to_string();
    assert!(!shown.contains("Bearer") && !shown.contains("one"), "{shown}");
}

#[tokio::test]
async fn a_refusal_of_one_key_pauses_no_other() {
    let (server, refused) = server("x-nothing", |request| {
        let (whose, ..) = by_credential(request);
        let wait = if whose.ends_with("one") { vec![("retry-after", "3".to_owned())] } else { Vec::new() };
        (whose, 10, wait)
    })
    .await;
    let client = client();
    let get = |key| client.get(server.uri()).bearer_auth(key);
    send([get("one"), get("two")]).await;
    let exhausts = send((0..12).map(|_| get("one")));
    let meanwhile = async {
        tokio::time::sleep(SECOND / 2).await;
        send((0..5).map(|_| get("two"))).await
    };
    let (took, two) = tokio::join!(exhausts, meanwhile);
    assert!(took >= 3 * SECOND && two < SECOND, "{took:?} {two:?}");
    assert!(refused.lock().unwrap().iter().all(|whose| whose == "Bearer one"));
}

#[tokio::test]
async fn a_resource_that_is_used_up_holds_up_no_other() {
    let (server, refused) = server("x-ratelimit", |request| {
        let resource = if request.url.path().starts_with("/search") { "search" } else { "core" };
        let most = if resource == "search" { 5 } else { 40 };
        (resource.to_owned(), most, vec![("x-ratelimit-resource", resource.to_owned())])
    })
    .await;
    let client = client();
    let get = |path: &str| client.get(format!("{}{path}", server.uri()));
    // Once there are two, the first is learned anew.
    for path in ["/search/code", "/repos/a/b", "/search/code"] {
        send([get(path)]).await;
    }
    let exhausts = send((0..12).map(|n| get(&format!("/search/{n}"))));
    let meanwhile = async {
        tokio::time::sleep(SECOND / 10).await;
        send((0..5).map(|n| get(&format!("/repos/c/d{n}")))).await
    };
    let (took, core) = tokio::join!(exhausts, meanwhile);
    assert!(took > 2 * SECOND && core < SECOND, "{took:?} {core:?}");
    assert_eq!(*refused.lock().unwrap(), [""; 0]);
}

/// By a number, and by the first thing in the path.
fn by_bucket(request: &Request) -> (String, u64, Vec<(&'static str, String)>) {
    let path: Vec<_> = request.url.path().split('/').collect();
    let number = if path[3] == "messages" { "abcd1234" } else { "ffff" };
    (format!("{number} {}", path[2]), 5, vec![("x-ratelimit-bucket", number.to_owned())])
}

#[tokio::test]
async fn a_bucket_is_learned_and_counts_each_thing_by_itself() {
    let (server, refused) = server("x-ratelimit", by_bucket).await;
    let client = client();
    let get =
        |channel: u64, what: &str, id: u64| client.get(format!("{}/channels/{channel}/{what}/{id}", server.uri()));
    send([get(1, "messages", 1)]).await;
    send([get(2, "messages", 1), get(1, "pins", 1)]).await;
    let exhausts = send((2..12).map(|id| get(1, "messages", id)));
    let meanwhile = async {
        tokio::time::sleep(SECOND / 10).await;
        let other = (2..5).map(|id| get(2, "messages", id));
        send(other.chain((2..5).map(|id| get(1, "pins", id)))).await
    };
    let (took, others) = tokio::join!(exhausts, meanwhile);
    assert!(took > 2 * SECOND && others < SECOND, "{took:?} {others:?}");
    assert_eq!(*refused.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_hidden_limit_and_one_that_holds_for_all_pause_what_they_are_about() {
    // Something is left of the bucket that refuses.
    for (fields, is_for_all) in [
        (vec![("x-ratelimit-bucket", "abcd"), ("x-ratelimit-scope", "shared")], false),
        (vec![("x-ratelimit-global", "true"), ("x-ratelimit-scope", "global")], true),
    ] {
        let server = MockServer::start().await;
        let left = |answer: ResponseTemplate| {
            let answer = answer.insert_header("x-ratelimit-limit", "5").insert_header("x-ratelimit-remaining", "3");
            answer.insert_header("x-ratelimit-reset-after", "1").insert_header("retry-after", "2")
        };
        let fields = fields.into_iter();
        let refusal =
            fields.fold(left(ResponseTemplate::new(429)), |answer, (name, value)| answer.insert_header(name, value));
        Mock::given(wiremock::matchers::path("/channels/1/a"))
            .respond_with(refusal)
            .up_to_n_times(1)
            .mount(&server)
            .await;
        Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
        let client = client();
        let get = |path: &str| client.get(format!("{}{path}", server.uri()));
        let other = async {
            tokio::time::sleep(SECOND / 5).await;
            send([get("/channels/2/b")]).await
        };
        let (refused, other) = tokio::join!(send([get("/channels/1/a")]), other);
        assert!(refused >= 2 * SECOND, "{refused:?}");
        assert_eq!(other > SECOND, is_for_all, "{other:?}");
    }
}

#[tokio::test]
async fn routes_that_have_limits_of_their_own_do_not_hold_each_other_up() {
    // By fields that are known to be of a route, and by others that only turn out to be.
    for prefix in ["x-rate-limit", "x-ratelimit"] {
        let (server, refused) = server(prefix, |request| {
            let path = request.url.path().to_owned();
            let most = if path == "/few" { 4 } else { 30 };
            (path, most, Vec::new())
        })
        .await;
        let client = client();
        let get = |path: &str| client.get(format!("{}{path}", server.uri()));
        for _ in 0..3 {
            send([get("/few")]).await;
            send([get("/many")]).await;
        }
        let exhausts = send((0..5).map(|_| get("/few")));
        let meanwhile = async {
            tokio::time::sleep(SECOND / 10).await;
            send((0..5).map(|_| get("/many"))).await
        };
        let (took, many) = tokio::join!(exhausts, meanwhile);
        assert!(took > SECOND / 2 && many < SECOND / 2, "{prefix}: {took:?} {many:?}");
        assert_eq!(*refused.lock().unwrap(), [""; 0], "{prefix}");
    }
}
