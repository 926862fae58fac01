//! What became of each request stands in the output, in one line each, whatever the servers answer.

use serde_json::{Value, json};

use super::desk::{Desk, plain_server};
use crate::support::upstream::{Answer, Body};

#[tokio::test]
async fn one_bad_request_and_one_broken_connection_cost_the_others_nothing() {
    let (desk, server) = (Desk::new("one_bad"), plain_server().await);
    desk.requests(&server, 100);
    let reset = || Answer::reset().on("/50");
    server.script([Answer::status(400).on("/17"), reset(), reset()]);
    let said = desk.run(&["--attempts", "2"]).await;
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(desk.has_each_once(100));
    let is_success = |record: &&Value| record["response"]["status_code"] == 200 && record["error"].is_null();
    assert_eq!(desk.records().iter().filter(is_success).count(), 98);
    assert_eq!(desk.record("17")["response"]["status_code"], 400);
    let broken = desk.record("50");
    assert_eq!(
        (&broken["response"], &broken["error"]["code"], &broken["attempts"]),
        (&Value::Null, &json!("network"), &json!(2))
    );
    assert!(said.err.contains("100 total, 98 ok, 2 failed (400: 1, network: 1)"), "{}", said.err);
}

#[tokio::test]
async fn the_summary_counts_what_the_output_says() {
    let (desk, server) = (Desk::new("summary"), plain_server().await);
    desk.requests(&server, 9);
    let input = std::fs::read_to_string(desk.path("in")).unwrap();
    desk.write("in", input + "{\"url\"\n");
    let unavailable = || Answer::status(503).on("/5");
    server.script([Answer::status(404).on("/3"), Answer::status(404).on("/4"), unavailable(), unavailable()]);
    let said = desk.run(&["--attempts", "2", "--skip-bad", "--summary", "json"]).await;
    let summary: Value = serde_json::from_str(&said.out).unwrap();
    let expected = json!({
        "total": 10, "ok": 6, "failed": 4, "left": 0, "kept": 0, "sent": 10, "refused": 0, "interrupted": false,
        "failures": {"404": 2, "503": 1, "bad_line": 1}, "seconds": summary["seconds"],
    });
    assert_eq!((said.code, &summary), (Some(1), &expected), "{}", said.err);
    let records = desk.records();
    let ok = records.iter().filter(|record| record["response"]["status_code"] == 200).count();
    assert_eq!((records.len(), ok), (10, 6));
    let bad = records.iter().find(|record| record["error"]["code"] == "bad_line").unwrap();
    assert!(bad["custom_id"].is_null() && bad["error"]["message"].as_str().unwrap().starts_with("line 10: "), "{bad}");
}

#[tokio::test]
async fn whatever_a_server_answers_is_written_as_a_line_of_json() {
    let (desk, server) = (Desk::new("answers"), plain_server().await);
    let tls = server.at("/tls").replace("http://", "https://");
    let lines = ["bytes", "html", "empty", "json", "cut", "head", "deep"];
    let mut input: Vec<_> = lines.map(|id| json!({"custom_id": id, "url": server.at(&format!("/{id}"))})).into();
    input.push(json!({"custom_id": "tls", "url": tls}));
    desk.write("in", input.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat());
    let answer = |path: &str, status, body: &[u8]| Answer::status(status).body(Body::bytes(body.to_vec())).on(path);
    let html = format!("<html>{}</html>", "x\n".repeat(1 << 19));
    let deep = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
    server.script([
        answer("/bytes", 200, b"\xff\xfe\x00"),
        answer("/html", 502, html.as_bytes()),
        Answer::close().on("/empty"),
        answer("/json", 200, b"{\n  \"b\": 1.10,\r\n  \"a\": [\"x\\ny\"]\n}")
            .header("x-many", "1")
            .header("x-many", "2"),
        answer("/cut", 200, &[b'x'; 1_000]).cut_after(10),
        Answer::status(204).on("/head"),
        answer("/deep", 200, &deep),
    ]);
    let said = desk.run(&["--attempts", "1"]).await;
    assert_eq!(said.code, Some(1), "{}", said.err);
    let response = |id| desk.record(id)["response"].clone();
    assert_eq!((&response("bytes")["body"], &response("bytes")["body_encoding"]), (&json!("//4A"), &json!("base64")));
    assert_eq!((&response("html")["status_code"], &response("html")["body"]), (&json!(502), &json!(html)));
    assert_eq!(response("json")["body"], json!({"b": 1.10, "a": ["x\ny"]}));
    assert!(String::from_utf8(desk.output()).unwrap().contains(r#"{   "b": 1.10,    "a": ["x\ny"] }"#));
    assert_eq!(response("json")["headers"]["x-many"], json!(["1", "2"]));
    assert_eq!((&response("head")["status_code"], &response("head")["body"]), (&json!(204), &Value::Null));
    assert_eq!(response("deep")["body"], String::from_utf8(deep).unwrap());
    for (id, code) in [("empty", "network"), ("tls", "connect"), ("cut", "body")] {
        let record = desk.record(id);
        assert!(record["response"].is_null() && record["error"]["code"] == code, "{record}");
        assert!(!record["error"]["message"].as_str().unwrap().is_empty());
    }
    assert_eq!(desk.records().len(), 8);
}

#[tokio::test]
async fn what_a_line_says_is_what_is_sent() {
    let (desk, server) = (Desk::new("sent"), plain_server().await);
    let url = |path: &str| server.at(path);
    let lines = [
        json!({"url": url("/object"), "body": {"a": 1}, "headers": {"X-Own": "yes"}, "cost": {"tokens": 5}}),
        json!({"url": url("/text"), "method": "put", "body": "a=1&b=ü", "headers": {"Content-Type": "text/x"}, "flow": "me"}),
        json!({"url": url("/query?a=1&b=2"), "priority": "high", "body": null}),
    ];
    desk.write("in", lines.map(|line| format!("{line}\n")).concat());
    assert_eq!(desk.run(&[]).await.code, Some(0));
    let arrival = |path: &str| server.arrivals().into_iter().find(|arrival| arrival.path == path).unwrap();
    let object = arrival("/object");
    assert_eq!(
        (object.method.as_str(), &object.body[..], &object.headers["content-type"], &object.headers["x-own"]),
        ("POST", &b"{\"a\":1}"[..], &"application/json".parse().unwrap(), &"yes".parse().unwrap())
    );
    let text = arrival("/text");
    assert_eq!(
        (text.method.as_str(), &text.body[..], &text.headers["content-type"]),
        ("PUT", "a=1&b=ü".as_bytes(), &"text/x".parse().unwrap())
    );
    let query = arrival("/query");
    assert_eq!((query.method.as_str(), query.query.as_deref(), query.body.len()), ("GET", Some("a=1&b=2"), 0));
}

#[tokio::test]
async fn no_key_in_an_address_is_printed_or_kept() {
    let (desk, server) = (Desk::new("secrets"), plain_server().await);
    let key = "?key=SECRET123&x=1";
    let lines = [
        json!({"custom_id": "dns", "url": format!("http://name.invalid/{key}")}),
        json!({"custom_id": "429", "url": server.at(&format!("/429{key}"))}),
        json!({"custom_id": "time-out", "url": server.at(&format!("/hang{key}"))}),
        json!({"custom_id": "cut", "url": server.at(&format!("/cut{key}"))}),
        json!({"custom_id": "loop", "url": server.at(&format!("/loop{key}"))}),
        json!({"custom_id": "header", "url": server.at("/header"), "headers": {"X-Api-Key": "SECRET123"}}),
    ];
    desk.write("in", lines.map(|line| format!("{line}\n")).concat());
    let refused = || Answer::status(429).header("retry-after-ms", "1").on("/429");
    server.script([refused(), refused(), refused(), Answer::hang().on("/hang")]);
    server.script([Answer::status(200).body(Body::bytes("xxxx")).cut_after(1).on("/cut")]);
    server.script([Answer::status(302).header("location", "file:///x?key=SECRET123").on("/loop")]);
    let mut command = desk.command(&["in", "-o", "out", "--attempts", "1", "--timeout", "300ms", "--rate", "50/s"]);
    command.args(["--progress", "always", "--header", "Authorization: Bearer env:KEY_OF_TEST"]);
    let child = command.env("RUST_LOG", "trace").env("KEY_OF_TEST", "SECRET123").spawn().unwrap();
    let said = super::desk::ended(child).await;
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert_eq!(server.arrivals()[0].headers["authorization"], "Bearer SECRET123");
    let kept = std::fs::read_to_string(desk.path("out.limits")).unwrap();
    for text in [&said.out, &said.err, &String::from_utf8(desk.output()).unwrap(), &kept] {
        assert!(!text.contains("SECRET123"), "{text}");
    }
    for (id, code) in [("dns", "dns"), ("time-out", "timeout"), ("cut", "body"), ("loop", "redirect")] {
        assert_eq!(desk.record(id)["error"]["code"], code, "{}", desk.record(id));
    }
}
