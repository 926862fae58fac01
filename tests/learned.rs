//! What answers teach of credentials, buckets and routes, where servers and callers do their worst.

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest_throttle::{Client, RequestBuilder};
use support::eventually;
use support::upstream::{Answer, Upstream};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

const SECOND: Duration = Duration::from_secs(1);

struct Fixed {
    began: Instant,
    window: u64,
    by: fn(&Request) -> (String, u64),
    says: fn(&Request) -> Vec<(&'static str, String)>,
    used: Mutex<HashMap<(String, u64), u64>>,
    refused: Arc<Mutex<usize>>,
}

impl Respond for Fixed {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let ((by, most), millis) = ((self.by)(request), u64::try_from(self.began.elapsed().as_millis()).unwrap());
        let mut used = self.used.lock().unwrap();
        let used = used.entry((by, millis / self.window)).or_default();
        let taken = *used < most;
        *used = most.min(*used + 1);
        *self.refused.lock().unwrap() += usize::from(!taken);
        let resets = Duration::from_millis(self.window + 1 - millis % self.window).as_secs_f64();
        let mut answer = ResponseTemplate::new(if taken { 200 } else { 429 })
            .insert_header("x-ratelimit-limit", most.to_string().as_str())
            .insert_header("x-ratelimit-remaining", (most - *used).to_string().as_str())
            .insert_header("x-ratelimit-reset", resets.to_string().as_str());
        for (name, value) in (self.says)(request) {
            answer = answer.insert_header(name, value.as_str());
        }
        answer
    }
}

async fn fixed(
    window: u64,
    by: fn(&Request) -> (String, u64),
    says: fn(&Request) -> Vec<(&'static str, String)>,
) -> (MockServer, Arc<Mutex<usize>>) {
    let (server, refused) = (MockServer::start().await, Arc::<Mutex<usize>>::default());
    let one = Fixed { began: Instant::now(), window, by, says, used: Mutex::default(), refused: Arc::clone(&refused) };
    Mock::given(any()).respond_with(one).mount(&server).await;
    (server, refused)
}

fn whose(request: &Request) -> String {
    request.headers.get("authorization").map_or("nobody", |value| value.to_str().unwrap()).to_owned()
}

fn refused_here(sent: &Result<reqwest::Response, reqwest_throttle::Error>) -> bool {
    sent.as_ref().is_err_and(reqwest_throttle::Error::is_refused)
}

fn once() -> Client {
    Client::builder().max_attempts(1).build().unwrap()
}

// --- signatures that are another one each time

#[tokio::test]
async fn a_refusal_holds_also_where_each_request_is_signed_anew() {
    for scheme in ["SharedKey account:", "AWS AKID:", "Hawk id=\"me\", mac=", "Bearer ey.jwt.of.this.request."] {
        let upstream = Upstream::builder().start().await;
        upstream.script([Answer::status(429).header("retry-after", "3").on("/limited")]);
        let client = once();
        let get = |path: &str, nth: u32| {
            client.get(upstream.at(path)).header("authorization", format!("{scheme}{nth}")).within(SECOND)
        };
        for nth in 0..2 {
            get("/", nth).send().await.unwrap();
        }
        assert_eq!(get("/limited", 2).send().await.unwrap().status(), 429);
        let next = get("/", 3).send().await;
        assert!(refused_here(&next), "{scheme}: sent 3 s before the stated time: {next:?}");
    }
}

#[tokio::test]
async fn what_is_left_is_kept_to_where_each_request_is_signed_anew() {
    let (server, refused) = fixed(2_000, |_| ("all".to_owned(), 20), |_| Vec::new()).await;
    let client = Client::builder().max_attempts(20).build().unwrap();
    let get = |nth: u32| client.get(server.uri()).header("authorization", format!("SharedKey account:{nth}"));
    for nth in 0..3 {
        get(nth).send().await.unwrap();
    }
    for round in 0..5 {
        join_all((0..20).map(|nth| get(100 + 20 * round + nth).send())).await;
    }
    let refused = *refused.lock().unwrap();
    assert!(refused <= 5, "{refused} refused, of a hundred sent one after the other in fives of twenty");
}

// --- a thousand credentials

#[tokio::test]
async fn after_a_thousand_tokens_keys_are_still_told_apart() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(429).header("retry-after", "3").on("/limited")]);
    let client = once();
    // An hour's tokens of many tenants, long gone.
    for nth in 0..1_001 {
        client.get(upstream.url()).bearer_auth(format!("old{nth}")).send().await.unwrap();
    }
    client.get(upstream.at("/limited")).bearer_auth("one").send().await.unwrap();
    let two = client.get(upstream.url()).bearer_auth("two").within(SECOND).send().await;
    let old = client.get(upstream.url()).bearer_auth("old7").within(SECOND).send().await;
    println!("two held: {}, old held: {}", refused_here(&two), refused_here(&old));
    assert!(!refused_here(&two) && !refused_here(&old), "one tenant's refusal holds all others up");
}

// --- what is known is forgotten

#[tokio::test]
async fn a_refusal_holds_whatever_other_hosts_are_asked() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(429).header("retry-after", "60").on("/limited")]);
    let client = Client::builder().max_attempts(1).connect_timeout(SECOND).build().unwrap();
    let get = |path: &str, key: &str| client.get(upstream.at(path)).bearer_auth(key).within(SECOND);
    get("/", "one").send().await.unwrap();
    get("/", "two").send().await.unwrap();
    get("/limited", "one").send().await.unwrap();
    assert!(refused_here(&get("/", "one").send().await), "paused");
    for nth in 0..1_000_u32 {
        // Nobody listens there: it is refused by the kernel.
        let _ = client.get(format!("http://127.1.{}.{}:9/", nth / 200, nth % 200 + 1)).send().await;
    }
    let next = get("/", "one").send().await;
    assert!(refused_here(&next), "sent 55 s before the stated time: {next:?}");
}

#[tokio::test]
async fn a_refusal_holds_whatever_other_ports_are_asked() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(429).header("retry-after", "60").on("/limited")]);
    let client = Client::builder().max_attempts(1).connect_timeout(SECOND).build().unwrap();
    let get = |path: &str, key: &str| client.get(upstream.at(path)).bearer_auth(key).within(SECOND);
    for port in 1..16 {
        let _ = client.get(format!("http://127.0.0.1:{port}/")).send().await;
    }
    get("/", "one").send().await.unwrap();
    get("/", "two").send().await.unwrap();
    get("/limited", "one").send().await.unwrap();
    assert!(refused_here(&get("/", "one").send().await), "paused");
    let _ = client.get("http://127.0.0.1:17/").send().await;
    let next = get("/", "one").send().await;
    assert!(refused_here(&next), "sent before the stated time: {next:?}");
}

// --- floods when something is told apart

#[tokio::test]
async fn whoever_waits_at_a_mirror_waits_on_when_another_key_is_used() {
    let (server, refused) = fixed(3_000, |request| (whose(request), 10), |_| Vec::new()).await;
    let client = Client::builder().max_attempts(20).build().unwrap();
    let get = |key: &str| client.get(server.uri()).bearer_auth(key);
    get("one").send().await.unwrap();
    let all = join_all((0..200).map(|_| get("one").within(2 * SECOND).send()));
    let other = async {
        tokio::time::sleep(SECOND / 2).await;
        let before = *refused.lock().unwrap();
        get("two").send().await.unwrap();
        tokio::time::sleep(SECOND / 2).await;
        *refused.lock().unwrap() - before
    };
    let (_, flood) = tokio::join!(all, other);
    assert!(flood <= 10, "{flood} of those who waited for a stated reset were sent at once, and refused");
}

// --- a route whose bucket changes

#[tokio::test]
async fn a_refusal_holds_where_the_next_answer_names_another_of_the_limits() {
    let upstream = Upstream::builder().start().await;
    let policy = "\"daily\";q=1000;w=86400, \"burst\";q=10;w=1";
    // The server names the limit that is tightest, as the draft lets it.
    upstream.script([
        Answer::status(200).header("ratelimit", "\"burst\";r=5;t=1").on("/a"),
        Answer::status(200).header("ratelimit", "\"daily\";r=5;t=60").on("/a"),
        Answer::status(200).header("ratelimit", "\"burst\";r=5;t=1").delay(SECOND / 2).on("/a"),
        Answer::status(429).header("ratelimit", "\"daily\";r=0;t=60").header("retry-after", "60").on("/a"),
    ]);
    let _ = policy;
    let client = once();
    let get = || client.get(upstream.at("/a")).within(SECOND * 2);
    get().send().await.unwrap();
    get().send().await.unwrap();
    let slow = tokio::spawn(get().send());
    eventually(|| upstream.arrivals().len() == 3).await;
    assert_eq!(get().send().await.unwrap().status(), 429);
    assert!(refused_here(&get().send().await), "held");
    slow.await.unwrap().unwrap();
    let next = get().send().await;
    assert!(refused_here(&next), "sent a minute before the stated time: {next:?}");
}

#[tokio::test]
async fn a_route_that_names_its_limits_in_turns_keeps_to_all_of_them() {
    let upstream = Upstream::builder().start().await;
    upstream.script([
        Answer::status(200).header("x-ratelimit-resource", "a").header("x-ratelimit-remaining", "9").on("/other"),
        Answer::status(200).header("ratelimit", "\"daily\";r=0;t=60").delay(SECOND / 10).on("/a"),
        Answer::status(200).header("ratelimit", "\"burst\";r=5;t=1").delay(SECOND / 2).on("/a"),
    ]);
    let client = once();
    let get = || client.get(upstream.at("/a")).within(SECOND);
    client.get(upstream.at("/other")).send().await.unwrap();
    let one = tokio::spawn(get().send());
    eventually(|| upstream.arrivals().len() == 2).await;
    let two = tokio::spawn(get().send());
    one.await.unwrap().unwrap();
    assert!(refused_here(&get().send().await), "nothing is left of a day's");
    two.await.unwrap().unwrap();
    let next = get().send().await;
    assert!(refused_here(&next), "{next:?}");
}

// --- credentials with other plans, taken for routes

#[tokio::test]
async fn two_plans_are_not_two_routes() {
    let by = |request: &Request| {
        let whose = whose(request);
        let most = if whose.ends_with("free") { 5 } else { 20 };
        (whose, most)
    };
    let (server, refused) = fixed(3_000, by, |_| Vec::new()).await;
    let client = once();
    let get = |path: &str, key: &str| client.get(format!("{}{path}", server.uri())).bearer_auth(key);
    for _ in 0..4 {
        get("/a", "paid").send().await.unwrap();
        let _ = get("/b", "free").within(10 * SECOND).send().await;
    }
    let shown = client.snapshot().to_string();
    println!("{shown}");
    let before = *refused.lock().unwrap();
    // All of what is left goes by way of /a; /c is the same key's.
    let sent = (0..30).map(|_| get("/a", "paid").within(SECOND / 10).send());
    join_all(sent).await;
    join_all((0..30).map(|_| get("/c", "paid").within(SECOND / 10).send())).await;
    let refused = *refused.lock().unwrap() - before;
    assert!(!shown.contains("GET /") && refused <= 1, "{refused} refused: {shown}");
}

// --- keys

#[tokio::test]
async fn what_is_learned_refuses_nobody() {
    let (server, _) = fixed(3_000, |request| (whose(request), 10), |_| Vec::new()).await;
    let client = Client::builder().max_keys(8).build().unwrap();
    for nth in 0..10 {
        let sent = client.get(server.uri()).bearer_auth(format!("key{nth}")).send().await;
        assert!(sent.is_ok(), "one host, ten keys, the {nth}th: {sent:?}");
    }
}

#[tokio::test]
async fn channels_of_a_numbered_bucket_refuse_nobody() {
    let (server, _) =
        fixed(3_000, |r| (r.url.path().to_owned(), 10), |_| vec![("x-ratelimit-bucket", "abcd".to_owned())]).await;
    let client = Client::builder().max_keys(8).build().unwrap();
    for nth in 0..10 {
        let sent = client.get(format!("{}/channels/{nth}/messages", server.uri())).send().await;
        assert!(sent.is_ok(), "one host, the {nth}th channel: {sent:?}");
    }
}

#[tokio::test]
async fn refusals_make_no_more_gates_than_may_be() {
    let upstream = Upstream::builder().start().await;
    upstream.script(
        (0..200).map(|nth| {
            Answer::status(429).header("retry-after", "60").header("x-ratelimit-bucket", &format!("b{nth}"))
        }),
    );
    let client = Client::builder().max_keys(8).max_attempts(1).build().unwrap();
    for nth in 0..200 {
        let _ = client.get(upstream.at(&format!("/r{nth}x"))).within(SECOND).send().await;
    }
    let gates = client.snapshot().gates.len();
    assert!(gates <= 9, "{gates} gates, of 8 at most");
}

#[test]
fn count_as_sent_makes_no_more_gates_than_may_be() {
    let client = Client::builder().each_key("5/min").max_keys(8).build().unwrap();
    for nth in 0..20_000 {
        let request = client.get("http://a.example/").key(&format!("k{nth}"));
        request.count_as_sent(Duration::from_secs(3_600)).unwrap();
    }
    let gates = client.snapshot().gates.len();
    assert!(gates <= 9, "{gates} gates, of 8 at most, all of them at rest");
}

// --- wakers under a lock

/// Wakes by polling, at once and on the same thread, as small executors do.
mod inline {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Wake, Waker};

    pub(super) struct OnWake<F>(pub(super) Mutex<Option<F>>);

    impl<F: FnOnce() + Send + 'static> Wake for OnWake<F> {
        fn wake(self: Arc<Self>) {
            let act = self.0.lock().unwrap().take();
            if let Some(act) = act {
                act();
            }
        }
    }

    pub(super) fn poll_once<F: FnOnce() + Send + 'static, T>(
        future: &mut Pin<Box<dyn Future<Output = T> + Send>>,
        act: F,
    ) {
        let waker = Waker::from(Arc::new(OnWake(Mutex::new(Some(act)))));
        let _ = future.as_mut().poll(&mut Context::from_waker(&waker));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waker_may_use_the_client() {
    let (server, _) = fixed(5_000, |request| (whose(request), 3), |_| Vec::new()).await;
    let client = Client::builder().build().unwrap();
    let get = |key: &str| client.get(server.uri()).bearer_auth(key);
    get("one").send().await.unwrap();
    get("one").send().await.unwrap();
    // Waits for the reset.
    let mut waits: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(get("one").send());
    let (uri, other, done) = (server.uri(), client.clone(), Arc::new(Mutex::new(false)));
    let told = Arc::clone(&done);
    let handle = tokio::runtime::Handle::current();
    inline::poll_once(&mut waits, move || {
        let _guard = handle.enter();
        let mut third: std::pin::Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(other.get(uri).bearer_auth("three").send());
        inline::poll_once(&mut third, || {});
        *told.lock().unwrap() = true;
    });
    let sent = tokio::spawn(get("two").send());
    let ended = tokio::time::timeout(3 * SECOND, sent).await;
    assert!(ended.is_ok(), "hangs");
    let ended = ended.unwrap();
    assert!(ended.is_ok(), "panics: {ended:?}");
    assert!(*done.lock().unwrap());
}

// --- on_send

#[tokio::test]
async fn on_send_may_panic_and_use_the_client() {
    let upstream = Upstream::builder().start().await;
    let held: Arc<Mutex<Option<Client>>> = Arc::default();
    let inner = Arc::clone(&held);
    let client = Client::builder()
        .each_host("1 in flight")
        .on_send(move |request| {
            let client = inner.lock().unwrap().clone();
            let _ = client.map(|client| client.snapshot().to_string());
            assert!(request.url().path() != "/panics");
        })
        .build()
        .unwrap();
    *held.lock().unwrap() = Some(client.clone());
    let (other, url) = (client.clone(), upstream.at("/panics"));
    assert!(tokio::spawn(async move { other.get(url).send().await }).await.is_err());
    client.get(upstream.url()).within(SECOND).send().await.unwrap();
    *held.lock().unwrap() = None;
}

// --- count_as_sent

#[tokio::test]
async fn count_as_sent_at_the_ends() {
    let upstream = Upstream::builder().start().await;
    for limits in
        ["5/min", "1/s burst 5", "5/min paced", "1000 tokens/min", "3 in flight", "5000000000/s", "7 tokens/s burst 9"]
    {
        let Ok(client) = Client::builder().each_host(limits).build() else {
            println!("no {limits}");
            continue;
        };
        let count = |cost: u64, ago| {
            client.get(upstream.url()).cost("tokens", cost).cost("requests", cost).count_as_sent(ago).unwrap();
        };
        for ago in [Duration::MAX, Duration::from_secs(100 * 365 * 86_400), SECOND, Duration::ZERO] {
            for cost in [0, 1, 3, u64::MAX / 2, u64::MAX, u64::MAX] {
                count(cost, ago);
                let _ = client.snapshot().to_string();
            }
        }
        let _ = client.get(upstream.url()).cost("tokens", 1).within(SECOND / 10).send().await;
        let _ = client.snapshot().to_string();
    }
}

#[tokio::test]
async fn what_was_sent_long_ago_counts_no_more() {
    use reqwest_throttle::{Anchor, Limits, Quota};
    for anchor in [Anchor::Answer, Anchor::End] {
        let quota = Quota::per_minute(2).counted_from(anchor);
        let client = Client::builder().each_host(Limits::new().quota(quota)).build().unwrap();
        for _ in 0..2 {
            client.get("http://a.example/").count_as_sent(Duration::from_secs(3_600)).unwrap();
        }
        let left = client.snapshot().gates[0].quotas[0].left;
        assert_eq!(left, 2, "{anchor:?}: sent an hour ago, of two a minute");
    }
}

#[tokio::test]
async fn what_was_sent_long_ago_is_no_debt_of_a_bucket() {
    let client = Client::builder().each_host("1/s burst 5").build().unwrap();
    let count = |ago| client.get("http://a.example/").count_as_sent(Duration::from_secs(ago)).unwrap();
    (0..5).for_each(|_| count(0));
    // Out of order: long ago.
    (0..60).for_each(|_| count(3_600));
    let wait = client.get("http://a.example/").within(SECOND / 100).send().await.unwrap_err();
    let wait = wait.refused().and_then(|refused| refused.wait);
    assert!(wait <= Some(2 * SECOND), "{wait:?} for what came free an hour ago");
}

// --- costs beyond measure at a stated limit

#[tokio::test]
async fn costs_beyond_measure_at_a_stated_limit() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..40).map(|nth| {
        Answer::status(200)
            .header("x-ratelimit-limit-tokens", "100")
            .header("x-ratelimit-remaining-tokens", "0")
            .header("x-ratelimit-reset-tokens", if nth % 2 == 0 { "0.1" } else { "0.05" })
    }));
    let client = once();
    for _ in 0..8 {
        let request = client.get(upstream.url()).cost("tokens", u64::MAX / 2 + 1).within(3 * SECOND);
        request.send().await.unwrap();
    }
}

// --- secrets

#[tokio::test]
async fn no_secret_of_a_path_is_shown() {
    let upstream = Upstream::builder().start().await;
    let says = || {
        Answer::status(200)
            .header("x-ratelimit-reason", "burst")
            .header("x-ratelimit-remaining", "0")
            .header("x-ratelimit-reset", "9")
    };
    let client = once();
    for path in [
        "/hooks/abcDEFghiJKLmnoPQRstuVWX",
        "/v1/s3cr3tK3y/send",
        "/users/me@example.com",
        "/sms/4915112345678/text",
        "/key=hunter2/x",
    ] {
        upstream.script([says()]);
        let _ = client.get(upstream.at(path)).within(SECOND).send().await;
        let refused = client.get(upstream.at(path)).within(SECOND).send().await;
        println!("{}", refused.map_or_else(|error| error.to_string(), |ok| ok.status().to_string()));
    }
    upstream.script([Answer::status(200)
        .header("x-ratelimit-bucket", "abcd")
        .header("x-ratelimit-remaining", "0")
        .header("x-ratelimit-reset", "9")]);
    let _ = client.get(upstream.at("/sms/4915112345679/text/x")).send().await;
    let _ = client.get(upstream.at("/sms/4915112345679/text/x")).within(SECOND).send().await;
    let shown = client.snapshot().to_string();
    let secrets = ["abcDEF", "s3cr3t", "me@", "4915112345678", "hunter2", "4915112345679"];
    let leaked: Vec<_> = secrets.iter().filter(|secret| shown.contains(**secret)).collect();
    assert!(leaked.is_empty(), "{leaked:?}\n{shown}");
}

// --- long names

#[tokio::test]
async fn majors_of_a_bucket_with_a_long_number_are_told_apart() {
    let upstream = Upstream::builder().start().await;
    let long = "0123456789abcdef".repeat(4);
    let says = |left: &str, path: &str| {
        Answer::status(200)
            .header("x-ratelimit-bucket", &long)
            .header("x-ratelimit-remaining", left)
            .header("x-ratelimit-limit", "5")
            .header("x-ratelimit-reset-after", "9")
            .on(path)
    };
    upstream.script([says("4", "/channels/1/m"), says("0", "/channels/1/m")]);
    let client = once();
    for _ in 0..2 {
        client.get(upstream.at("/channels/1/m")).send().await.unwrap();
    }
    let other = client.get(upstream.at("/channels/2/m")).within(SECOND).send().await;
    assert!(!refused_here(&other), "{other:?}");
}

#[tokio::test]
async fn routes_that_begin_alike_for_long_are_told_apart() {
    let upstream = Upstream::builder().start().await;
    let long = "/api/organizations/acme/projects/flagship/environments/prod/";
    let (a, b) = (format!("{long}a"), format!("{long}b"));
    let says = |left: &str, path: &str| {
        Answer::status(200)
            .header("x-ratelimit-reason", "burst")
            .header("x-ratelimit-remaining", left)
            .header("x-ratelimit-limit", "5")
            .header("x-ratelimit-reset", "9")
            .on(path)
    };
    upstream.script([says("4", &b), says("4", &a), says("0", &a)]);
    let client = once();
    for path in [&b, &a, &a] {
        client.get(upstream.at(path)).send().await.unwrap();
    }
    let other = client.get(upstream.at(&b)).within(SECOND).send().await;
    assert!(!refused_here(&other), "{other:?}");
}

// --- refusals at gates that were not passed

#[tokio::test]
async fn a_refusal_by_a_gate_that_was_not_passed_is_repeated_after_its_pause_and_within_the_budget() {
    let upstream = Upstream::builder().start().await;
    let no = || Answer::status(429).header("retry-after", "2").header("x-ratelimit-bucket", "b7").on("/b");
    upstream.script([Answer::status(200).header("x-ratelimit-bucket", "b1").on("/a"), no()]);
    let client = Client::new();
    client.get(upstream.at("/a")).send().await.unwrap();
    let began = Instant::now();
    assert_eq!(client.get(upstream.at("/b")).send().await.unwrap().status(), 200);
    assert!(began.elapsed() >= 2 * SECOND, "{:?}", began.elapsed());
    let no = || Answer::status(429).header("retry-after", "20").header("x-ratelimit-bucket", "b8").on("/c");
    upstream.script([no()]);
    let began = Instant::now();
    let answer = client.get(upstream.at("/c")).within(3 * SECOND).send().await;
    assert!(began.elapsed() < SECOND, "{:?} {answer:?}", began.elapsed());
}

#[tokio::test]
async fn a_global_refusal_is_global_in_whichever_order() {
    for global_first in [true, false] {
        let upstream = Upstream::builder().start().await;
        let answer = Answer::status(429).header("retry-after", "5");
        let answer = if global_first {
            answer.header("x-ratelimit-global", "true").header("x-ratelimit-bucket", "b")
        } else {
            answer.header("x-ratelimit-bucket", "b").header("x-ratelimit-global", "true")
        };
        upstream.script([answer.on("/a")]);
        let client = once();
        client.get(upstream.at("/a")).send().await.unwrap();
        let other = client.get(upstream.at("/other")).within(SECOND).send().await;
        assert!(refused_here(&other), "global first: {global_first}: {other:?}");
    }
}

/// Of a request that is dropped, its gates come to rest.
#[tokio::test]
async fn permits_that_were_out_over_a_split_come_back() {
    let (server, _) = fixed(1_000, |request| (whose(request), 10), |_| Vec::new()).await;
    let client = Client::builder().each_host("4 in flight").build().unwrap();
    let get =
        |key: &str, path: &str| -> RequestBuilder { client.get(format!("{}{path}", server.uri())).bearer_auth(key) };
    for round in 0..20 {
        let all = (0..8).map(|nth| {
            let sent = get(&format!("k{}", nth % (1 + round % 4)), "/a").within(5 * SECOND).send();
            async move {
                let _ = tokio::time::timeout(Duration::from_millis(5 * nth), sent).await;
            }
        });
        join_all(all).await;
    }
    tokio::time::sleep(2 * SECOND).await;
    for key in ["k0", "k1", "k2", "k3"] {
        let sent = get(key, "/a").within(3 * SECOND).send().await;
        assert!(sent.is_ok(), "{key}: {sent:?}\n{}", client.snapshot());
    }
    let snapshot = client.snapshot();
    assert!(snapshot.gates.iter().all(|gate| gate.in_flight == 0 && gate.waiting == 0), "{snapshot}");
}

/// The same, where it only looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waker_may_look() {
    let (server, _) = fixed(5_000, |request| (whose(request), 3), |_| Vec::new()).await;
    let client = Client::builder().build().unwrap();
    let get = |key: &str| client.get(server.uri()).bearer_auth(key);
    get("one").send().await.unwrap();
    get("one").send().await.unwrap();
    let mut waits: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(get("one").send());
    let (other, done) = (client.clone(), Arc::new(Mutex::new(false)));
    let told = Arc::clone(&done);
    inline::poll_once(&mut waits, move || {
        let _ = other.snapshot();
        *told.lock().unwrap() = true;
    });
    assert!(tokio::time::timeout(3 * SECOND, tokio::spawn(get("two").send())).await.is_ok(), "hangs");
    assert!(*done.lock().unwrap());
}

// --- the second bucket is heard of while those of the first wait

#[tokio::test]
async fn whoever_waits_at_a_bucket_waits_on_when_another_is_named() {
    let upstream = Upstream::builder().start().await;
    let core = |left: &str| {
        Answer::status(200)
            .header("x-ratelimit-resource", "core")
            .header("x-ratelimit-limit", "10")
            .header("x-ratelimit-remaining", left)
            .header("x-ratelimit-reset", "60")
            .on("/core")
    };
    upstream
        .script([core("0"), Answer::status(200).header("x-ratelimit-resource", "search").delay(SECOND).on("/search")]);
    let client = once();
    let search = tokio::spawn(client.get(upstream.at("/search")).send());
    eventually(|| upstream.arrivals().len() == 1).await;
    client.get(upstream.at("/core")).send().await.unwrap();
    let waiting: Vec<_> = (0..100).map(|_| tokio::spawn(client.get(upstream.at("/core")).send())).collect();
    tokio::time::sleep(SECOND / 4).await;
    let before = upstream.arrivals().len();
    search.await.unwrap().unwrap();
    tokio::time::sleep(SECOND / 2).await;
    let flood = upstream.arrivals().len() - before;
    for task in waiting {
        task.abort();
    }
    assert!(flood <= 2, "{flood} sent a minute before the stated reset");
}

/// And newcomers, of the bucket that had nothing left.
#[tokio::test]
async fn what_was_stated_of_a_bucket_holds_when_another_is_named() {
    let upstream = Upstream::builder().start().await;
    let core = Answer::status(200)
        .header("x-ratelimit-resource", "core")
        .header("x-ratelimit-limit", "10")
        .header("x-ratelimit-remaining", "0")
        .header("x-ratelimit-reset", "60")
        .on("/core");
    upstream
        .script([core, Answer::status(200).header("x-ratelimit-resource", "search").delay(SECOND / 2).on("/search")]);
    let client = once();
    let search = tokio::spawn(client.get(upstream.at("/search")).send());
    eventually(|| upstream.arrivals().len() == 1).await;
    client.get(upstream.at("/core")).send().await.unwrap();
    search.await.unwrap().unwrap();
    let next = client.get(upstream.at("/core")).within(SECOND).send().await;
    assert!(refused_here(&next), "{next:?}");
}

// --- two plans

#[tokio::test]
async fn two_clients_and_a_layer_without_an_authority() {
    use http_body_util::Full;
    use tower::{Service, ServiceBuilder, service_fn};
    let client = Client::builder().each_host("2/min").build().unwrap();
    let other = Client::builder().each_host("2/min").build().unwrap();
    drop(other);
    let mut service = ServiceBuilder::new().layer(reqwest_throttle::ThrottleLayer::of(&client)).service(service_fn(
        |_: http::Request<String>| async {
            Ok::<_, std::convert::Infallible>(
                http::Response::builder()
                    .header("x-ratelimit-bucket", "b")
                    .header("x-ratelimit-remaining", "1")
                    .body(Full::new(bytes::Bytes::from("x")))
                    .unwrap(),
            )
        },
    ));
    for uri in ["/x", "*", "x:1"] {
        let mut request = http::Request::new(String::new());
        *request.uri_mut() = uri.parse().unwrap();
        *request.method_mut() = http::Method::OPTIONS;
        let context = reqwest_throttle::Context::within(SECOND);
        request.extensions_mut().insert(context);
        let _ = service.call(request).await;
    }
    println!("{}", client.snapshot());
}

// --- whoever waits already when a gate is learned

/// How many requests arrive, of those who wait and are then given up.
async fn come_in_two_seconds<T>(upstream: &Upstream, waiting: Vec<tokio::task::JoinHandle<T>>) -> usize {
    tokio::time::sleep(2 * SECOND).await;
    let came = upstream.arrivals().len();
    for task in waiting {
        task.abort();
    }
    came
}

#[tokio::test]
async fn a_refusal_by_a_bucket_holds_for_those_who_wait_already() {
    let upstream = Upstream::builder().start().await;
    upstream
        .script((0..100).map(|_| Answer::status(429).header("retry-after", "60").header("x-ratelimit-bucket", "b")));
    let client = Client::builder().max_attempts(1).each_host("10/s burst 1").build().unwrap();
    let waiting: Vec<_> = (0..30).map(|_| tokio::spawn(client.get(upstream.at("/b")).send())).collect();
    let came = come_in_two_seconds(&upstream, waiting).await;
    assert!(came <= 2, "{came} sent before the stated time");
}

#[tokio::test]
async fn a_refusal_of_a_key_holds_for_those_of_it_who_wait_already() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..100).map(|_| Answer::status(429).header("retry-after", "60").on("/b")));
    let client = Client::builder().max_attempts(1).each_host("10/s burst 1").build().unwrap();
    let get = |path: &str, key: &str| client.get(upstream.at(path)).bearer_auth(key).send();
    let waiting: Vec<_> = (0..30).map(|_| tokio::spawn(get("/b", "one"))).collect();
    tokio::task::yield_now().await;
    let other = tokio::spawn(get("/other", "two"));
    let came = come_in_two_seconds(&upstream, waiting).await;
    let _ = other.await;
    assert!(came <= 3, "{came} sent before the stated time");
}

#[tokio::test]
async fn what_a_bucket_has_left_holds_for_those_who_wait_already() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..100).map(|_| {
        Answer::status(200)
            .header("x-ratelimit-bucket", "b")
            .header("x-ratelimit-limit", "5")
            .header("x-ratelimit-remaining", "0")
            .header("x-ratelimit-reset-after", "60")
    }));
    let client = Client::builder().max_attempts(1).each_host("10/s burst 1").build().unwrap();
    let waiting: Vec<_> = (0..30).map(|_| tokio::spawn(client.get(upstream.at("/b")).send())).collect();
    let came = come_in_two_seconds(&upstream, waiting).await;
    assert!(came <= 2, "{came} sent though nothing is left");
}

// --- thousands of limits

#[tokio::test]
async fn thousands_of_limits_in_one_answer_are_read_at_once() {
    let upstream = Upstream::builder().start().await;
    let many =
        |from: usize| (from..from + 18_000).map(|nth| format!("\"n{nth}\";r=5;t=9")).collect::<Vec<_>>().join(",");
    let client = once();
    client.get(upstream.url()).send().await.unwrap();
    for nth in 0..3 {
        upstream.script([Answer::status(200).header("ratelimit", &many(nth * 18_000))]);
        let began = Instant::now();
        let sent = client.get(upstream.at(&format!("/{nth}x"))).within(20 * SECOND).send().await;
        println!("{:?} {:?} {} gates", began.elapsed(), sent.map(|a| a.status()), client.snapshot().gates.len());
        assert!(began.elapsed() < SECOND / 2, "{:?}", began.elapsed());
    }
}
