//! Each flag does what the help says, and each that cannot be kept is refused by its name and value before anything is sent.

use std::time::Duration;

use serde_json::json;

use super::desk::{Desk, plain_server, seen};
use crate::support::judge::worst_window;
use crate::support::upstream::{Answer, Body, Upstream};

#[tokio::test]
async fn a_rate_that_cannot_be_kept_is_refused_by_flag_and_value() {
    let (desk, server) = (Desk::new("rates"), plain_server().await);
    desk.requests(&server, 1);
    let rates = ["0/10s", "10/0s", "-1/s", "NaN/s", "1e400/s", "10/", "/s", "10/fortnight", "1/s burst 0", "1/2sec/s"];
    for rate in rates {
        let said = desk.run(&["--rate", rate]).await;
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
        assert!(said.err.contains(&format!("'{rate}' for '--rate <LIMIT>'")), "{}", said.err);
    }
    assert_eq!((server.arrivals().len(), desk.path("out").exists()), (0, false));
}

#[tokio::test]
async fn fractions_and_longer_periods_are_the_same_limit() {
    let (desk, server) = (Desk::new("fractions"), plain_server().await);
    desk.requests(&server, 3);
    for rate in ["1/2s", "1 per 2 seconds", "0.5/s"] {
        let said = desk.run_only(&["in", "--rate", rate, "--dry-run"]).await;
        assert_eq!(said.out, "3 to be sent, 0 answered already; at best in 4s, by 1 per 2s\n", "{}", said.err);
    }
    assert_eq!(desk.run(&["--rate", "0.5/s"]).await.code, Some(0));
    assert_eq!(worst_window(&server.accepted_at(), Duration::from_millis(1_950)), 1);
}

#[tokio::test]
async fn flags_that_cannot_be_kept_are_refused() {
    let (desk, server) = (Desk::new("flags"), plain_server().await);
    desk.requests(&server, 1);
    for (args, says) in [
        (&["--in-flight", "0"][..], "'0' for '--in-flight <N>'"),
        (&["--attempts", "0"], "'0' for '--attempts <N>'"),
        (&["--max-body", "0"], "'0' for '--max-body <MIB>'"),
        (&["--deadline", "5"], "'5' for '--deadline <TIME>': a time is written `30s`"),
        (&["--timeout", "soon"], "'soon' for '--timeout <TIME>': a time is written `30s`"),
        (&["--base-url", "ftp://u:SECRET123@x/"], "--base-url: `ftp://…@x/` is no address of HTTP; write it as in"),
        (&["--base-url", "http://x?key=SECRET123"], "--base-url: `http://x` has a query"),
        (&["--base-url", "http://x "], "has a space before or after it"),
        (&["--rate", "100 tokns/s"], "--rate: `100 tokns/s` limits nothing, for no request has a cost in `tokns`"),
        (&["Bearer SECRET123"], "there is one argument too many"),
        (&["-H", "X-Api-Token: SECRET123"], "put it into the environment and write `x-api-token: env:KEY`"),
        (&["-H", "Content-Length: 5"], "`content-length` is made from the body of each request; leave it out"),
        (&["-H", "X-A: env:"], "`env:` is followed by the name of a variable"),
        (&["--progress", "some"], "'some' for '--progress <PROGRESS>'"),
        (&["--summary", "xml"], "'xml' for '--summary <SUMMARY>'"),
        (&["--header", "nonsense"], "--header: a header is written `Name: value`"),
        (&["--header", "a b: c"], "--header: what is before the colon is no name of a header"),
        (&["--header", "X-A: env:NOT_SET_HERE"], "--header: the environment has no variable NOT_SET_HERE: set it"),
        (
            &["--header", "Authorization: Bearer SECRET123"],
            "put it into the environment and write `authorization: env:KEY`",
        ),
        (&["--nonsense"], "unexpected argument '--nonsense'"),
    ] {
        let said = desk.run(args).await;
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
        assert!(said.err.contains(says) && !said.err.contains("SECRET123"), "{}", said.err);
        assert_eq!(said.err.lines().count(), 1, "one sentence: {}", said.err);
    }
    assert_eq!((server.arrivals().len(), desk.path("out").exists()), (0, false));
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let (desk, server) = (Desk::new("files"), plain_server().await);
    desk.requests(&server, 1);
    std::fs::create_dir(desk.path("folder")).unwrap();
    for (args, says) in [
        (&["missing", "-o", "out"][..], "missing cannot be read (No such file"),
        (&["folder", "-o", "out"], "folder is no ordinary file; name one, or pipe requests into `-`"),
        (&["in"], "--output <OUTPUT>"),
        (&["in", "-o", "-"], "the output cannot be standard output, for a later run goes on from it"),
        (&["in", "-o", "in"], "in is both input and output; name another file by -o"),
        (&["in", "-o", "./folder/../in"], "in is both input and output; name another file by -o"),
        (&["in", "-o", "folder"], "folder is no ordinary file; name one by -o"),
        (&["in", "-o", "/dev/null"], "/dev/null is no ordinary file; name one by -o"),
        (&["in", "-o", "nowhere/out"], "nowhere/out cannot be written (No such file"),
        (&["in", "-o", "nowhere/out", "--dry-run"], "nowhere/out cannot be written (No such file"),
    ] {
        let said = desk.run_only(args).await;
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains(says), "{}", said.err);
    }
    assert_eq!(server.arrivals().len(), 0);
}

#[tokio::test]
async fn a_base_is_what_relative_addresses_follow() {
    let (desk, server) = (Desk::new("base"), plain_server().await);
    let whole = server.at("/whole");
    let lines = ["/a?b=c", "d", &whole].map(|url| json!({"url": url}).to_string() + "\n");
    desk.write("in", lines.concat());
    assert_eq!(desk.run(&["--base-url", &server.at("/v1/")]).await.code, Some(0));
    let mut paths: Vec<_> = server.arrivals().iter().map(|arrival| arrival.path.clone()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/v1/a", "/v1/d", "/whole"]);
}

#[tokio::test]
async fn several_rates_all_hold_and_a_cost_that_never_fits_is_told() {
    let (desk, server) = (Desk::new("several"), plain_server().await);
    let line = |id: &str, tokens: u64| {
        json!({"custom_id": id, "url": server.at("/"), "cost": {"tokens": tokens, "points": 9}}).to_string() + "\n"
    };
    desk.write("in", [line("a", 60), line("b", 60), line("c", 101)].concat());
    let said = desk.run(&["--rate", "100/s", "--rate", "100 tokens per 2s"]).await;
    assert_eq!((said.code, server.accepted()), (Some(1), 2), "{}", said.err);
    assert_eq!(worst_window(&server.accepted_at(), Duration::from_millis(1_950)), 1);
    let error = &desk.record("c")["error"];
    assert!(error["code"] == "cost_exceeds_quota" && desk.record("c")["attempts"] == 0, "{error}");
    assert!(error["message"].as_str().unwrap().contains("the limit is 100 tokens per 2s"), "{error}");
    let said = desk.run_only(&["in", "--rate", "100/s", "--rate", "100 tokens per 2s", "--dry-run"]).await;
    let plan = "2 to be sent, 0 answered already, 1 can never go: more than a limit lets go at once; at best in 2s, \
                by 100 tokens per 2s\n";
    assert_eq!((said.code, said.out.as_str()), (Some(1), plan));
    let said = desk.run_only(&["in", "--rate", "100 tokens per 2s", "--dry-run", "--summary", "json"]).await;
    let plan: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(plan, json!({"to_send": 2, "kept": 0, "bad": 0, "never": 1, "at_best_s": 2.0}));
    // A margin makes it less that can go.
    let said = desk.run_only(&["in", "--rate", "100 tokens/s headroom 50%", "--dry-run"]).await;
    assert!(said.code == Some(1) && said.out.contains(" 3 can never go"), "{}", said.out);
}

#[tokio::test]
async fn so_many_are_in_flight_and_no_more() {
    let slow = Upstream::builder().jitter_after(Duration::from_millis(20)..=Duration::from_millis(20));
    let (desk, server) = (Desk::new("in_flight"), slow.start().await);
    desk.requests(&server, 200);
    assert_eq!(desk.run(&["--in-flight", "3"]).await.code, Some(0));
    assert_eq!(server.peak_in_flight(), 3);
    server.reset_records();
    std::fs::remove_file(desk.path("out")).unwrap();
    assert_eq!(desk.run(&[]).await.code, Some(0));
    assert!((32..=64).contains(&server.peak_in_flight()), "{}", server.peak_in_flight());
}

#[tokio::test]
async fn a_deadline_counts_the_waiting_and_a_time_out_one_attempt() {
    let (desk, server) = (Desk::new("deadline"), plain_server().await);
    desk.requests(&server, 4);
    server.script([Answer::hang().on("/0"), Answer::hang().on("/0")]);
    let said = desk.run(&["--rate", "3/min", "--deadline", "10s", "--timeout", "300ms", "--attempts", "2"]).await;
    assert_eq!(said.code, Some(1), "{}", said.err);
    let codes: Vec<_> = ["0", "1", "2", "3"].map(|id| desk.record(id)["error"]["code"].clone()).into();
    // Three go in a minute: neither the last nor the repetition of the first would in ten seconds.
    assert_eq!(codes.iter().filter(|code| **code == "deadline").count(), 2, "{codes:?}");
    assert!(desk.records().iter().all(|record| record["took_ms"].as_u64().unwrap() < 5_000));
    assert_eq!(server.arrivals().len(), 3);

    let (desk, server) = (Desk::new("time_out"), plain_server().await);
    desk.requests(&server, 1);
    server.script([Answer::hang(), Answer::hang()]);
    assert_eq!(desk.run(&["--timeout", "200ms", "--attempts", "2"]).await.code, Some(1));
    let record = desk.record("0");
    assert_eq!((&record["error"]["code"], &record["attempts"]), (&json!("timeout"), &json!(2)));
    assert!(record["took_ms"].as_u64().unwrap() >= 400, "{record}");
}

#[tokio::test]
async fn a_refused_request_is_repeated_as_often_as_is_said() {
    let (desk, server) = (Desk::new("attempts"), plain_server().await);
    desk.requests(&server, 2);
    let refused = |path: &str| Answer::status(429).header("retry-after-ms", "100").on(path);
    server.script([refused("/0"), refused("/0"), refused("/0"), refused("/1"), refused("/1")]);
    let said = desk.run(&["--attempts", "3", "--in-flight", "1", "--summary", "json"]).await;
    let summary: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &summary["refused"], &summary["sent"]), (Some(1), &json!(5), &json!(6)), "{}", said.err);
    assert_eq!((seen(&server, "/0"), seen(&server, "/1")), (3, 3));
    let record = desk.record("1");
    assert_eq!((&record["response"]["status_code"], &record["attempts"]), (&json!(200), &json!(3)));
    assert!(record["waited_ms"].as_u64().unwrap() >= 200, "{record}");
    assert_eq!(desk.record("0")["response"]["status_code"], 429);
}

#[tokio::test]
async fn headers_of_the_command_go_with_all_that_have_none_of_their_own() {
    let (desk, server) = (Desk::new("headers"), plain_server().await);
    let lines =
        [json!({"url": server.at("/a")}), json!({"url": server.at("/b"), "headers": {"Authorization": "mine"}})];
    desk.write("in", lines.map(|line| format!("{line}\n")).concat());
    let mut command =
        desk.command(&["in", "-o", "out", "--header", "X-App: me", "--header", "Authorization: Bearer env:KEY"]);
    let said = super::desk::ended(command.env("KEY", "SECRET123").spawn().unwrap()).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    for (path, authorization) in [("/a", "Bearer SECRET123"), ("/b", "mine")] {
        let arrival = server.arrivals().into_iter().find(|arrival| arrival.path == path).unwrap();
        assert_eq!(
            (&arrival.headers["x-app"], &arrival.headers["authorization"]),
            (&"me".parse().unwrap(), &authorization.parse().unwrap())
        );
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_is_no_answer_until_more_is_allowed() {
    let body = Body::chunks(3, 1 << 20, Duration::ZERO);
    let (desk, server) = (Desk::new("max_body"), Upstream::builder().body(body).start().await);
    desk.requests(&server, 1);
    assert_eq!(desk.run(&["--max-body", "2"]).await.code, Some(1));
    let error = desk.record("0")["error"].clone();
    assert_eq!(
        (&error["code"], error["message"].as_str()),
        (&json!("body_too_large"), Some("the body is longer than 2 MiB; allow more by --max-body, and --retry-failed"))
    );
    assert_eq!(desk.run(&["--max-body", "3", "--retry-failed"]).await.code, Some(0));
    assert_eq!(desk.record("0")["response"]["body"].as_str().map(str::len), Some(3 << 20));
}

#[tokio::test]
async fn answers_are_written_in_order_if_that_is_asked_for() {
    let jittery = Upstream::builder().jitter_after(Duration::ZERO..=Duration::from_millis(20));
    let (desk, server) = (Desk::new("ordered"), jittery.start().await);
    desk.requests(&server, 2_000);
    let input = std::fs::read_to_string(desk.path("in")).unwrap();
    desk.write("in", input.replacen("\"GET\"", "\"no method\"", 8));
    server.script([Answer::status(200).delay(Duration::from_millis(700)).on("/10")]);
    assert_eq!(desk.run(&["--ordered", "--skip-bad"]).await.code, Some(1));
    let ids: Vec<_> = desk.records().iter().map(|record| record["custom_id"].as_str().map(str::to_owned)).collect();
    let expected = (0..2_000).map(|number| (number >= 8).then(|| number.to_string()));
    assert!(ids.into_iter().eq(expected));
    // While one is waited for, no more than so many went ahead.
    let slow = server.arrivals().into_iter().find(|arrival| arrival.path == "/10").unwrap();
    let ahead = server.arrivals().iter().filter(|arrival| arrival.came < slow.answered.unwrap()).count();
    assert!((900..=1_100).contains(&ahead), "{ahead}");
}

#[tokio::test]
async fn a_dry_run_counts_and_sends_nothing() {
    let (desk, server) = (Desk::new("dry"), plain_server().await);
    desk.requests(&server, 100);
    let said = desk.run_only(&["in", "--rate", "10/s burst 20", "--dry-run"]).await;
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), "100 to be sent, 0 answered already; at best in 8s, by 10/s burst 20\n")
    );
    let said = desk.run(&["--dry-run"]).await;
    assert_eq!(said.out, "100 to be sent, 0 answered already; as fast as the servers answer: there is no --rate\n");
    assert_eq!((server.arrivals().len(), desk.path("out").exists()), (0, false));
    assert_eq!(desk.run(&[]).await.code, Some(0));
    let more =
        std::fs::read_to_string(desk.path("in")).unwrap() + "bad\n" + &json!({"url": server.at("/")}).to_string();
    desk.write("in", more);
    assert_eq!(desk.run(&["--dry-run"]).await.code, Some(2));
    let said = desk.run(&["--dry-run", "--skip-bad", "--rate", "1/s"]).await;
    assert_eq!(said.out, "1 to be sent, 100 answered already, 1 cannot be sent; at best at once, by 1/s\n");
}

#[tokio::test]
async fn progress_is_told_where_it_is_wanted() {
    let (desk, server) = (Desk::new("progress"), plain_server().await);
    desk.requests(&server, 30);
    let said = desk.run(&["--rate", "10/s", "--progress", "always"]).await;
    let line = said.err.lines().find(|line| line.contains(" of 10/s, ")).unwrap_or_default().to_owned();
    assert!(
        line.contains("/30, ") && line.contains(" to go, 0 refused, ") && line.contains("/s of 10/s, "),
        "{}",
        said.err
    );
    assert!(
        line.contains(" in flight, ") && line.contains(" waiting: the limit is 10/s, for ") && line.ends_with('s'),
        "{line}"
    );
    assert!(!said.err.contains('\u{1b}'), "{}", said.err);
    let rate = |line: &str| line.split("/s of ").next()?.rsplit(' ').next()?.parse::<f64>().ok();
    let rates: Vec<_> = said.err.lines().filter_map(rate).collect();
    assert!(!rates.is_empty() && rates.iter().all(|rate| *rate <= 10.0), "no more than is allowed: {}", said.err);
    for progress in ["auto", "never"] {
        let said = desk.run(&["--progress", progress]).await;
        assert_eq!((said.code, said.err.lines().count()), (Some(0), 1), "{}", said.err);
    }
}

/// The server asks for a pause, of which so much is kept.
#[tokio::test]
async fn a_pause_is_told_in_words_and_nothing_ends_before_it() {
    let (desk, server) = (Desk::new("told_pause"), plain_server().await);
    desk.requests(&server, 3);
    server.script([Answer::status(429).header("retry-after", "1800")]);
    let mut child = desk.begin(&["--in-flight", "1", "--progress", "always"]);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    child.kill().unwrap();
    let said = super::desk::ended(child).await;
    let line = said.err.lines().last().unwrap_or_default();
    assert!(line.starts_with("1/3, 9min 5") && line.contains("s to go, 1 refused, "), "{}", said.err);
    assert!(line.contains(" 2 waiting: the server asked for a pause, for 9min 5"), "{}", said.err);
}

#[tokio::test]
async fn a_long_pause_is_told_where_nothing_else_is() {
    let (desk, server) = (Desk::new("silent"), plain_server().await);
    desk.requests(&server, 3);
    let said = desk.run(&["--rate", "2 per 14s"]).await;
    let lines: Vec<_> = said.err.lines().collect();
    assert_eq!((said.code, lines.len()), (Some(0), 2), "{}", said.err);
    assert!(
        lines[0].starts_with("2/3, ") && lines[0].contains(" 1 waiting: the limit is 2 per 14s, for "),
        "{}",
        lines[0]
    );
}

#[tokio::test]
async fn the_help_has_examples_and_the_version_is_that_of_the_crate() {
    let desk = Desk::new("help");
    for flag in ["-h", "--help"] {
        let said = desk.run_only(&[flag]).await;
        assert!(
            said.code == Some(0) && said.out.contains("throttle batch requests.jsonl -o answers.jsonl --rate 50/s")
        );
        assert!(!said.out.contains('\u{1b}'), "colours only on a terminal");
    }
    let said = desk.run_only(&["--version"]).await;
    assert!(said.out.trim_end().ends_with(env!("CARGO_PKG_VERSION")), "{}", said.out);
}
