//! What is learned of buckets and credentials together, and who is sent from gate to gate.

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest_throttle::Client;
use support::eventually;
use support::upstream::{Answer, Upstream};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

const SECOND: Duration = Duration::from_secs(1);

fn refused_here(sent: &Result<reqwest::Response, reqwest_throttle::Error>) -> bool {
    sent.as_ref().is_err_and(reqwest_throttle::Error::is_refused)
}

fn once() -> Client {
    Client::builder().max_attempts(1).build().unwrap()
}

fn resource(name: &str, left: &str, reset: &str) -> Answer {
    Answer::status(200)
        .header("x-ratelimit-resource", name)
        .header("x-ratelimit-limit", "10")
        .header("x-ratelimit-remaining", left)
        .header("x-ratelimit-reset", reset)
}

// --- a second credential, where buckets are known already

#[tokio::test]
async fn what_a_bucket_has_left_holds_when_a_second_credential_is_used() {
    let upstream = Upstream::builder().start().await;
    upstream.script([resource("search", "9", "60").on("/search"), resource("core", "0", "60").on("/core")]);
    let client = once();
    let get = |path: &str, key: &str| client.get(upstream.at(path)).bearer_auth(key).within(SECOND).send();
    get("/search", "alice").await.unwrap();
    get("/core", "alice").await.unwrap();
    assert!(refused_here(&get("/core", "alice").await), "held");
    get("/core", "bob").await.unwrap();
    let next = get("/core", "alice").await;
    assert!(refused_here(&next), "sent a minute before the stated reset: {next:?}");
}

#[tokio::test]
async fn a_refusal_by_a_bucket_holds_when_a_second_credential_is_used() {
    for bucket in ["x-ratelimit-resource", "x-ratelimit-bucket"] {
        let upstream = Upstream::builder().start().await;
        let named = |status: u16, name: &str| {
            Answer::status(status)
                .header(bucket, name)
                .header("x-ratelimit-limit", "10")
                .header("x-ratelimit-remaining", "5")
        };
        upstream.script([
            named(200, "aaa1").on("/search"),
            named(200, "bbb2").on("/core"),
            named(429, "bbb2").header("retry-after", "60").on("/core"),
        ]);
        let client = once();
        let get = |path: &str, key: &str| client.get(upstream.at(path)).bearer_auth(key).within(SECOND).send();
        get("/search", "alice").await.unwrap();
        get("/core", "alice").await.unwrap();
        assert_eq!(get("/core", "alice").await.unwrap().status(), 429);
        assert!(refused_here(&get("/core", "alice").await), "held");
        get("/search", "bob").await.unwrap();
        let next = get("/core", "alice").await;
        assert!(refused_here(&next), "{bucket}: sent a minute before the stated time: {next:?}");
    }
}

// --- a refusal that is being felt out when a second credential comes

#[tokio::test]
async fn whoever_was_first_goes_on_when_a_second_credential_comes_while_one_is_out() {
    let upstream = Upstream::builder().start().await;
    upstream.script([
        Answer::status(200).on("/"),
        Answer::status(429).header("retry-after", "0").on("/"),
        Answer::status(200).delay(SECOND / 2).on("/"),
    ]);
    let client = once();
    let get = |key: &str| client.get(upstream.url()).bearer_auth(key).within(5 * SECOND).send();
    get("alice").await.unwrap();
    assert_eq!(get("alice").await.unwrap().status(), 429);
    let probe = tokio::spawn(get("alice"));
    eventually(|| upstream.arrivals().len() == 3).await;
    let bob = tokio::spawn(get("bob"));
    probe.await.unwrap().unwrap();
    let bob = bob.await.unwrap();
    let alice = get("alice").await;
    assert!(bob.is_ok() && alice.is_ok(), "bob {:?}, alice {:?}", bob.err(), alice.err());
}

// --- several hosts and two keys

#[tokio::test]
async fn two_keys_of_many_hosts_break_nothing() {
    for hosts in 1..8 {
        let mut servers = Vec::new();
        for _ in 0..hosts {
            let upstream = Upstream::builder().start().await;
            upstream.script([Answer::status(200).header("ratelimit", "\"api\";r=0;t=60").on("/limited")]);
            servers.push(upstream);
        }
        let client = once();
        for server in &servers {
            client.get(server.at("/limited")).bearer_auth("one").send().await.unwrap();
        }
        tokio::time::sleep(SECOND / 20).await;
        for server in &servers {
            client.get(server.url()).bearer_auth("two").send().await.unwrap();
        }
        for server in &servers {
            let next = client.get(server.url()).bearer_auth("one").within(SECOND / 2).send().await;
            assert!(refused_here(&next), "{hosts} hosts: sent a minute before the stated reset");
        }
    }
}

// --- the line

#[tokio::test]
async fn whoever_is_sent_to_another_gate_has_room_in_the_line() {
    let upstream = Upstream::builder().start().await;
    let api = |name: &str, left: &str, reset: &str| {
        Answer::status(200).header("ratelimit", &format!("\"{name}\";r={left};t={reset}"))
    };
    upstream.script([api("one", "0", "1").on("/one"), api("two", "5", "9").delay(SECOND / 2).on("/two")]);
    let client = Client::builder().max_attempts(1).max_waiting(20).build().unwrap();
    let two = tokio::spawn(client.get(upstream.at("/two")).send());
    eventually(|| upstream.arrivals().len() == 1).await;
    client.get(upstream.at("/one")).send().await.unwrap();
    let waiting: Vec<_> =
        (0..20).map(|_| tokio::spawn(client.get(upstream.at("/one")).within(3 * SECOND).send())).collect();
    tokio::time::sleep(SECOND / 10).await;
    // Newcomers try all the time.
    let newcomers = tokio::spawn({
        let (client, url) = (client.clone(), upstream.at("/one"));
        async move {
            let mut all = Vec::new();
            for _ in 0..300 {
                all.push(tokio::spawn(client.get(&url).within(3 * SECOND).send()));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            all
        }
    });
    two.await.unwrap().unwrap();
    let mut full = Vec::new();
    for task in waiting {
        if let Err(error) = task.await.unwrap() {
            full.push(error.to_string());
        }
    }
    newcomers.abort();
    assert!(full.is_empty(), "{} of 20 lost the places that they had: {:?}", full.len(), full.first());
}

// --- a server that names another bucket each time

struct Fickle {
    names: u64,
    count: Mutex<u64>,
    header: &'static str,
}

impl Respond for Fickle {
    fn respond(&self, _: &Request) -> ResponseTemplate {
        let mut count = self.count.lock().unwrap();
        *count += 1;
        ResponseTemplate::new(200)
            .insert_header(self.header, format!("n{}", *count % self.names).as_str())
            .insert_header("x-ratelimit-limit", "5")
            .insert_header("x-ratelimit-remaining", (*count % 5).to_string().as_str())
            .insert_header("x-ratelimit-reset-after", "0.05")
    }
}

/// How many of six hundred got through.
async fn through(names: u64, header: &'static str) -> usize {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(Fickle { names, count: Mutex::default(), header }).mount(&server).await;
    let client = Client::builder().max_in_flight(32).build().unwrap();
    let ask = |nth| client.get(format!("{}/{}", server.uri(), nth % 3)).within(60 * SECOND).send();
    join_all((0..600).map(ask)).await.iter().flatten().count()
}

#[tokio::test]
async fn everybody_gets_through_where_a_server_names_another_bucket_each_time() {
    for header in ["x-ratelimit-bucket", "x-ratelimit-resource"] {
        for names in [7, 100_000] {
            assert_eq!(through(names, header).await, 600, "{header} {names}");
        }
    }
}

// --- many threads, keys and buckets: what was stated holds

struct Counted {
    began: Instant,
    used: Mutex<HashMap<(String, String, u64), u64>>,
    refused: Arc<Mutex<usize>>,
    header: &'static str,
}

impl Respond for Counted {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        const MOST: u64 = 25;
        let whose = request.headers.get("authorization").map_or("", |value| value.to_str().unwrap()).to_owned();
        let bucket = format!("b{}", request.url.path().bytes().last().unwrap_or(0) % 4);
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap();
        let mut used = self.used.lock().unwrap();
        let used = used.entry((whose, bucket.clone(), millis / 2_000)).or_default();
        let taken = *used < MOST;
        *used = MOST.min(*used + 1);
        *self.refused.lock().unwrap() += usize::from(!taken);
        let resets = Duration::from_millis(2_001 - millis % 2_000).as_secs_f64().to_string();
        ResponseTemplate::new(if taken { 200 } else { 429 })
            .set_delay(Duration::from_millis(fastrand::u64(0..60)))
            .insert_header(self.header, bucket.as_str())
            .insert_header("x-ratelimit-limit", "25")
            .insert_header("x-ratelimit-remaining", (MOST - *used).to_string().as_str())
            .insert_header("x-ratelimit-reset-after", resets.as_str())
    }
}

async fn stress(header: &'static str) -> (usize, usize) {
    let (server, refused) = (MockServer::start().await, Arc::<Mutex<usize>>::default());
    let counted = Counted { began: Instant::now(), used: Mutex::default(), refused: Arc::clone(&refused), header };
    Mock::given(any()).respond_with(counted).mount(&server).await;
    let client = Client::builder().max_in_flight(64).max_attempts(20).build().unwrap();
    let mut tasks = Vec::new();
    for nth in 0..1_200 {
        let get = client.get(format!("{}/{}", server.uri(), ["a", "b", "c", "d"][nth % 4]));
        tasks.push(tokio::spawn(get.bearer_auth(format!("key{}", nth / 4 % 6)).within(60 * SECOND).send()));
        if nth % 40 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let mut failed = 0;
    for task in tasks {
        failed += usize::from(!task.await.unwrap().is_ok_and(|answer| answer.status() == 200));
    }
    let shown = client.snapshot();
    assert!(shown.gates.iter().all(|gate| gate.in_flight == 0 && gate.standing.is_empty()), "{shown}");
    let refused = *refused.lock().unwrap();
    (failed, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_keys_and_buckets_keep_to_what_is_stated() {
    for header in ["x-ratelimit-bucket", "x-ratelimit-resource"] {
        let (failed, refused) = stress(header).await;
        println!("{header}: {failed} failed, {refused} refused of 1200");
        assert!(failed == 0 && refused <= 60, "{header}: {failed} failed, {refused} refused");
    }
}

// --- more than a thousand credentials at once

#[tokio::test]
async fn a_key_that_waits_keeps_its_limit_when_a_thousand_others_come() {
    let upstream = Upstream::builder().start().await;
    upstream.script([Answer::status(200).header("ratelimit", "\"api\";r=0;t=3").on("/limited")]);
    let client = once();
    client.get(upstream.at("/none")).bearer_auth("zero").send().await.unwrap();
    client.get(upstream.at("/limited")).bearer_auth("one").send().await.unwrap();
    let began = Instant::now();
    let waits = tokio::spawn(client.get(upstream.at("/mine")).bearer_auth("one").within(60 * SECOND).send());
    tokio::time::sleep(SECOND / 10).await;
    join_all((0..1_100).map(|nth| client.get(upstream.url()).bearer_auth(format!("old{nth}")).send())).await;
    println!("all others went in {:?}", began.elapsed());
    waits.await.unwrap().unwrap();
    assert!(began.elapsed() > 2 * SECOND, "it went after {:?}", began.elapsed());
}

// --- routes that turn out to have limits of their own

#[tokio::test]
async fn a_route_is_not_held_by_what_was_stated_of_another_before_they_were_told_apart() {
    let upstream = Upstream::builder().start().await;
    let says = |path: &str, limit: &str, left: &str| {
        Answer::status(200)
            .header("x-ratelimit-limit", limit)
            .header("x-ratelimit-remaining", left)
            .header("x-ratelimit-reset", "30")
            .on(path)
    };
    upstream.script([
        says("/a", "900", "899"),
        says("/b", "15", "4"),
        says("/a", "900", "898"),
        says("/b", "15", "3"),
        says("/a", "900", "897"),
        says("/a", "900", "896"),
        says("/a", "900", "895"),
        says("/a", "900", "894"),
    ]);
    let client = once();
    let get = |path: &str| client.get(upstream.at(path)).within(2 * SECOND).send();
    for path in ["/a", "/b", "/a", "/b", "/a"] {
        get(path).await.unwrap();
    }
    println!("{}", client.snapshot());
    for nth in 0..3 {
        let next = get("/a").await;
        assert!(next.is_ok(), "the {nth}th: 890 of 900 are left of this route: {next:?}\n{}", client.snapshot());
    }
}

// --- whoever is given up while it is sent from gate to gate

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_left_behind_of_those_who_are_given_up() {
    for header in ["x-ratelimit-bucket", "x-ratelimit-resource"] {
        let (server, refused) = (MockServer::start().await, Arc::<Mutex<usize>>::default());
        let counted = Counted { began: Instant::now(), used: Mutex::default(), refused: Arc::clone(&refused), header };
        Mock::given(any()).respond_with(counted).mount(&server).await;
        let client = Client::builder().max_in_flight(16).max_attempts(3).limit("400/s burst 100").build().unwrap();
        let mut tasks = Vec::new();
        for nth in 0..1_500_usize {
            let get = client.get(format!("{}/{}", server.uri(), ["a", "b", "c", "d"][nth % 4]));
            let get =
                get.bearer_auth(format!("key{}", nth / 7 % 5)).within(Duration::from_millis(fastrand::u64(1..3_000)));
            let task = tokio::spawn(get.send());
            if nth % 3 == 0 {
                let abort = task.abort_handle();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..300))).await;
                    abort.abort();
                });
            }
            tasks.push(task);
            if nth % 30 == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        join_all(tasks).await;
        tokio::time::sleep(3 * SECOND).await;
        let shown = client.snapshot();
        assert!(shown.gates.iter().all(|gate| gate.in_flight == 0 && gate.standing.is_empty()), "{shown}");
        for nth in 0..5 {
            let get = client.get(format!("{}/a", server.uri())).bearer_auth(format!("key{nth}")).within(4 * SECOND);
            let sent = get.send().await;
            assert!(sent.is_ok(), "{sent:?}\n{}", client.snapshot());
        }
        println!("{header}: {} refused", refused.lock().unwrap());
    }
}
