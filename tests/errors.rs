//! What the client's error can be asked: whatever reqwest's can be, with the same answers, and no secrets in it.

mod support;

use std::fmt::Write;
use std::time::Duration;

use http::StatusCode;
use reqwest_throttle::{Client, ClientBuilder, Error, Url};
use support::upstream::{Answer, Body, Upstream};
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// All that reqwest's error can be asked, and ours.
type Question = (&'static str, fn(&reqwest::Error) -> bool, fn(&Error) -> bool);

const QUESTIONS: [Question; 10] = [
    ("is_builder", reqwest::Error::is_builder, Error::is_builder),
    ("is_redirect", reqwest::Error::is_redirect, Error::is_redirect),
    ("is_status", reqwest::Error::is_status, Error::is_status),
    ("is_timeout", reqwest::Error::is_timeout, Error::is_timeout),
    ("is_request", reqwest::Error::is_request, Error::is_request),
    ("is_connect", reqwest::Error::is_connect, Error::is_connect),
    ("is_dns", reqwest::Error::is_dns, Error::is_dns),
    ("is_body", reqwest::Error::is_body, Error::is_body),
    ("is_decode", reqwest::Error::is_decode, Error::is_decode),
    ("is_upgrade", reqwest::Error::is_upgrade, Error::is_upgrade),
];

/// What is true of both, which must be the same.
fn true_of(theirs: &reqwest::Error, ours: &Error) -> Vec<&'static str> {
    for (name, reqwest, own) in QUESTIONS {
        assert_eq!(reqwest(theirs), own(ours), "{name} of {theirs:?} and {ours:?}");
    }
    assert_eq!((theirs.status(), theirs.url()), (ours.status(), ours.url()));
    QUESTIONS.iter().filter(|(_, _, own)| own(ours)).map(|(name, ..)| *name).collect()
}

/// The errors of both for the same request.
async fn both(url: &str, change: fn(ClientBuilder) -> ClientBuilder) -> (reqwest::Error, Error) {
    let theirs = reqwest::Client::builder().timeout(ms(300)).build().unwrap().get(url).send().await.unwrap_err();
    let ours =
        change(Client::builder().timeout(ms(300)).max_attempts(1)).build().unwrap().get(url).send().await.unwrap_err();
    (theirs, ours)
}

#[tokio::test]
async fn an_attempt_that_fails_is_told_as_reqwest_tells_it() {
    let upstream = Upstream::builder().start().await;
    upstream.script((0..2).flat_map(|_| [Answer::reset().on("/reset"), Answer::hang().on("/hang")]));
    let (theirs, ours) = both(&upstream.at("/reset"), |builder| builder).await;
    assert_eq!((true_of(&theirs, &ours), ours.attempts()), (vec!["is_request"], 1));
    let (theirs, ours) = both(&upstream.at("/hang"), |builder| builder).await;
    assert_eq!((true_of(&theirs, &ours), ours.attempts()), (vec!["is_timeout", "is_request"], 1));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (theirs, ours) = both(&format!("http://{nobody}/"), |builder| builder).await;
    assert_eq!(true_of(&theirs, &ours), ["is_request", "is_connect"]);
    let (theirs, ours) = both("http://name.invalid/", |builder| builder.connect_timeout(ms(5_000))).await;
    assert!(true_of(&theirs, &ours).contains(&"is_request") && theirs.is_connect());
}

#[tokio::test]
async fn what_fails_afterwards_becomes_this_error_and_answers_as_before() {
    let upstream = Upstream::builder().start().await;
    upstream.script([
        Answer::status(418).on("/teapot"),
        Answer::status(200).body(Body::chunks(10, 10, ms(5))).cut_after(30).on("/cut"),
        Answer::status(200).body(Body::chunks(10, 10, ms(200))).on("/slow"),
        Answer::status(200).header("content-encoding", "gzip").body(Body::bytes("no gzip")).on("/gzip"),
        Answer::status(200).on("/plain"),
    ]);
    let client = Client::builder().timeout(ms(400)).build().unwrap();
    let get = async |path| client.get(upstream.at(path)).send().await.unwrap();
    let teapot = || async { get("/teapot").await.error_for_status().unwrap_err() };
    let status = teapot().await;
    assert_eq!(status.status(), Some(StatusCode::IM_A_TEAPOT));
    let ours = Error::from(status);
    assert!(ours.is_status() && ours.status() == Some(StatusCode::IM_A_TEAPOT) && ours.url().is_some());
    let ours = Error::from(get("/cut").await.bytes().await.unwrap_err());
    assert!(ours.is_decode() || ours.is_body(), "{ours:?}");
    assert!(Error::from(get("/slow").await.bytes().await.unwrap_err()).is_timeout());
    #[cfg(feature = "gzip")]
    assert!(Error::from(get("/gzip").await.bytes().await.unwrap_err()).is_decode());
    assert!(Error::from(get("/plain").await.upgrade().await.unwrap_err()).is_upgrade());
}

#[cfg(feature = "json")]
#[tokio::test]
async fn a_body_that_is_no_json_is_an_error_of_decoding() {
    let upstream = Upstream::builder().start().await;
    let parse = async || Ok::<u32, Error>(Client::new().get(upstream.url()).send().await?.json().await?);
    assert!(parse().await.unwrap_err().is_decode());
}

#[tokio::test]
async fn a_client_of_reqwests_that_follows_tells_of_a_loop() {
    let server = MockServer::start().await;
    let around = ResponseTemplate::new(302).insert_header("location", "/around");
    Mock::given(path("/around")).respond_with(around).mount(&server).await;
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::limited(3));
    let client = Client::from_reqwest(http).build().unwrap();
    let error = client.get(format!("{}/around", server.uri())).send().await.unwrap_err();
    assert!(error.is_redirect() && !error.is_refused());
}

#[tokio::test]
async fn an_address_can_be_changed_and_taken_away() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let send = async || Client::new().get(format!("http://{nobody}/a")).send().await.unwrap_err();
    let url = Url::parse("http://b.example/").unwrap();
    assert_eq!(send().await.with_url(url.clone()).url(), Some(&url));
    let mut error = send().await;
    *error.url_mut().unwrap() = url.clone();
    assert_eq!(error.url(), Some(&url));
    assert_eq!(error.without_url().url(), None);
    let hanging = Upstream::builder().start().await;
    hanging.script([Answer::hang()]);
    let error = Client::new().get(hanging.at("/a")).within(ms(100)).send().await.unwrap_err();
    assert!(error.is_timeout() && error.url().is_some() && error.attempts() == 1);
    let error = error.without_url();
    assert_eq!((error.url(), error.to_string().as_str()), (None, "the request's deadline came before the answer"));
    assert!(!Client::new().get("no/address").send().await.unwrap_err().without_url().to_string().contains("address`/"));
}

/// Whatever is printed of an error, a request or a client, no secret is in it.
#[tokio::test]
async fn nothing_that_is_printed_has_a_secret_in_it() {
    let secrets = http::HeaderMap::from_iter([(http::header::COOKIE, "SECRET".parse().unwrap())]);
    let upstream = Upstream::builder().start().await;
    upstream.script((0..4).map(|nth| if nth == 1 { Answer::hang() } else { Answer::reset() }));
    let client = Client::builder().each_host("2 per 60s").default_headers(secrets).build().unwrap();
    let url = upstream.url().replace("http://", "http://me:SECRET@");
    let request =
        || client.get(format!("{url}/a?key=SECRET#SECRET")).bearer_auth("SECRET").header("x-api-key", "SECRET");
    let mut shown = format!("{client:?} {:?} {:?}", request(), client.snapshot());
    for _ in 0..3 {
        let error = request().within(ms(200)).send().await.unwrap_err();
        write!(shown, "{error} {error:?} {:?} {:?}", error.url(), std::error::Error::source(&error)).unwrap();
    }
    write!(shown, "{:?}", client.get("http://me:SECRET@[bad?key=SECRET").send().await).unwrap();
    for address in
        ["http://user:SEC#RET@a.example/", "http://user:SEC?RET@a.example/", "user:SECRET@", "x://a.example?m=SECRET@b"]
    {
        write!(shown, "{:?}", client.get(address).send().await).unwrap();
    }
    let host = Client::builder().host("https://user:SECRET@a.example/?key=SECRET", "1/s");
    write!(shown, "{host:?}").unwrap();
    write!(shown, "{:?}", host.build()).unwrap();
    assert!(!shown.contains("SEC"), "{shown}");
    assert!(shown.len() > 500);
}
