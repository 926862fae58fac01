//! The output is the journal: what is answered is not sent again, and no id ever stands twice.

use std::fs;
use std::time::Duration;

use serde_json::json;

use super::desk::{Desk, ended, plain_server, seen};
use crate::support::judge::Limit;
use crate::support::upstream::{Answer, Body, Upstream};

#[tokio::test]
async fn lines_without_an_id_are_known_by_their_number() {
    let (desk, server) = (Desk::new("without_ids"), plain_server().await);
    let line = |path: &str| format!("{{\"url\": \"{}\"}}\n", server.at(path));
    desk.write("in", [line("/same"), line("/a"), line("/same"), line("/b"), line("/same")].concat());
    desk.write("first", line("/same"));
    assert_eq!(desk.run_only(&["first", "-o", "out"]).await.code, Some(0));
    assert_eq!(desk.ids(), ["line-1"]);
    let said = desk.run(&[]).await;
    assert!(said.code == Some(0) && said.err.contains("; 1 was there already; "), "{}", said.err);
    assert_eq!(desk.ids(), ["line-1", "line-2", "line-3", "line-4", "line-5"]);
    assert_eq!((seen(&server, "/same"), server.accepted()), (3, 5));
}

#[tokio::test]
async fn a_permanent_failure_is_sent_once_unless_it_is_to_be_retried() {
    let (desk, server) = (Desk::new("permanent"), plain_server().await);
    desk.requests(&server, 3);
    server.script([Answer::status(400).on("/1")]);
    for _ in 0..3 {
        assert_eq!(desk.run(&[]).await.code, Some(1));
        assert_eq!((seen(&server, "/1"), server.arrivals().len()), (1, 3));
    }
    let said = desk.run(&["--retry-failed"]).await;
    assert_eq!((said.code, seen(&server, "/1"), server.arrivals().len()), (Some(0), 2, 4));
    assert!(
        desk.has_each_once(3) && said.err.contains("3 total, 3 ok, 0 failed; 2 were there already"),
        "{}",
        said.err
    );
}

#[tokio::test]
async fn a_transient_failure_is_done_again_and_its_record_replaced() {
    let (desk, server) = (Desk::new("transient"), plain_server().await);
    desk.requests(&server, 6);
    server.script([Answer::reset().on("/0"), Answer::hang().on("/1")]);
    server.script([(2, 503), (3, 429), (4, 408)].map(|(path, status)| Answer::status(status).on(&format!("/{path}"))));
    let said = desk.run(&["--attempts", "1", "--timeout", "300ms"]).await;
    assert!(said.code == Some(1) && said.err.contains("6 total, 1 ok, 5 failed"), "{}", said.err);
    assert!(desk.has_each_once(6));
    let said = desk.run(&["--attempts", "1"]).await;
    assert_eq!((said.code, desk.has_each_once(6), server.arrivals().len()), (Some(0), true, 11), "{}", said.err);
    assert!(!desk.path("out.mending").exists() && !desk.path("out.before").exists());
}

/// Also where the run that was to replace it is killed, or interrupted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_record_stays_until_another_replaces_it() {
    const COUNT: usize = 60;
    let (desk, server) = (Desk::new("before"), plain_server().await);
    desk.requests(&server, COUNT);
    let failed = |number: usize| Answer::status(400).on(&format!("/{number}"));
    server.script((0..COUNT).map(failed));
    assert_eq!((desk.run(&[]).await.code, desk.has_each_once(COUNT)), (Some(1), true));
    let args = ["--retry-failed", "--rate", "20/min"];
    let mut child = desk.begin(&args);
    crate::support::eventually(|| desk.records().iter().any(is_ok)).await;
    child.kill().unwrap();
    child.wait().unwrap();
    // Torn, as by the kill.
    let ok = desk.records().iter().filter(|record| is_ok(record)).count();
    desk.write("out", [&desk.output()[..], b"{\"custom_id\":\"5"].concat());
    let said = desk.run(&["--dry-run"]).await;
    assert!(said.out.starts_with(&format!("0 to be sent, {COUNT} answered already")), "{}{}", said.out, said.err);
    let mut command = desk.command(&["-", "-o", "out", "--dry-run"]);
    let said = ended(command.stdin(fs::File::open(desk.path("in")).unwrap()).spawn().unwrap()).await;
    assert!(said.out.starts_with(&format!("0 to be sent, {COUNT} answered already")), "{}{}", said.out, said.err);
    let said = desk.run(&[]).await;
    assert_eq!((said.code, desk.has_each_once(COUNT)), (Some(1), true), "{}", said.err);
    assert_eq!(desk.records().iter().filter(|record| is_ok(record)).count(), ok);
    assert!(!desk.path("out.before").exists());
    // Interrupted, it puts them back itself.
    let child = desk.begin(&args);
    crate::support::eventually(|| desk.path("out.before").exists()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    super::stops::signal(&child, "INT");
    let said = ended(child).await;
    assert_eq!((said.code, desk.has_each_once(COUNT), desk.path("out.before").exists()), (Some(130), true, false));
    assert!(said.err.contains(&format!("{COUNT} total, ")) && !said.err.contains(" left"), "{}", said.err);
    let said = desk.run(&["--retry-failed"]).await;
    assert_eq!((said.code, desk.has_each_once(COUNT), desk.path("out.before").exists()), (Some(0), true, false));
}

/// At whatever moment it is killed, each id stands in the output or beside it, and none stands twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kill_loses_a_record_that_is_done_again() {
    const COUNT: usize = 300;
    let server = Upstream::builder().jitter_after(Duration::from_millis(1)..=Duration::from_millis(20)).start().await;
    let desk = Desk::new("before_kills");
    desk.requests(&server, COUNT);
    for round in 0..12 {
        server.script((0..COUNT).map(|number| Answer::status(400).on(&format!("/{number}"))));
        let mut child = desk.begin(&["--retry-failed", "--in-flight", "16"]);
        tokio::time::sleep(Duration::from_millis(if round == 0 { 2_000 } else { fastrand::u64(0..200) })).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let ids = whole_records(&desk);
        let mut all: Vec<_> = fs::read_to_string(desk.path("out.before"))
            .unwrap_or_default()
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["custom_id"].to_string().replace('"', "")
            })
            .chain(ids.iter().cloned())
            .collect();
        all.sort_unstable();
        all.dedup();
        let mut once = ids.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!((all.len(), once.len()), (COUNT, ids.len()), "round {round}");
    }
    assert_eq!((desk.run(&["--retry-failed"]).await.code.is_some(), desk.has_each_once(COUNT)), (true, true));
}

fn is_ok(record: &serde_json::Value) -> bool {
    record["response"]["status_code"] == 200
}

#[tokio::test]
async fn a_bad_line_is_looked_at_anew_and_a_mended_one_is_sent() {
    let (desk, server) = (Desk::new("mended_line"), plain_server().await);
    desk.requests(&server, 2);
    let input = fs::read_to_string(desk.path("in")).unwrap();
    desk.write("in", format!("{input}{{\"custom_id\": \"2\"}}\n"));
    for _ in 0..2 {
        assert_eq!(desk.run(&["--skip-bad"]).await.code, Some(1));
        assert_eq!(desk.ids(), ["", "0", "1"]);
    }
    desk.requests(&server, 3);
    assert_eq!((desk.run(&[]).await.code, desk.has_each_once(3), server.accepted()), (Some(0), true, 3));
    // Whoever asks for something else after a failure is asked anew.
    server.script([Answer::status(400).on("/3")]);
    desk.requests(&server, 4);
    assert_eq!(desk.run(&[]).await.code, Some(1));
    let input = fs::read_to_string(desk.path("in")).unwrap().replace("/3\"", "/better\"");
    desk.write("in", input);
    assert_eq!((desk.run(&[]).await.code, desk.has_each_once(4)), (Some(0), true));
}

#[tokio::test]
async fn a_torn_tail_is_mended_wherever_it_is_torn() {
    let (desk, server) = (Desk::new("torn"), Upstream::builder().body(Body::bytes("naïve – 漢字")).start().await);
    desk.requests(&server, 5);
    assert_eq!(desk.run(&["--in-flight", "1"]).await.code, Some(0));
    let whole = desk.output();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let inside_of_a_sign = whole.iter().rposition(|byte| *byte == 0xe6).unwrap() + 2;
    for cut in [last + 1, last + 5, last + 14, whole.len() - 2, inside_of_a_sign] {
        server.reset_records();
        desk.write("out", &whole[..cut]);
        assert_eq!((desk.run(&[]).await.code, desk.has_each_once(5), server.accepted()), (Some(0), true, 1), "{cut}");
    }
    // What was not on the disk yet when the power went is zeros.
    for kept in [0, 1, 13, 40] {
        server.reset_records();
        desk.write("out", [&whole[..last + kept], &[0; 700][..]].concat());
        assert_eq!((desk.run(&[]).await.code, desk.has_each_once(5), server.accepted()), (Some(0), true, 1), "{kept}");
    }
    // A last line that only lacks its end is an answer.
    server.reset_records();
    desk.write("out", &whole[..whole.len() - 1]);
    assert_eq!((desk.run(&[]).await.code, desk.output() == whole, server.accepted()), (Some(0), true, 0));
    // Torn, and with something to be done again.
    let text = String::from_utf8(whole[..last + 5].to_vec()).unwrap().replacen(":200,", ":503,", 1);
    desk.write("out", text);
    assert_eq!((desk.run(&[]).await.code, desk.has_each_once(5), server.accepted()), (Some(0), true, 2));
}

#[tokio::test]
async fn an_output_that_belongs_to_something_else_is_left_as_it_is() {
    let (desk, server) = (Desk::new("foreign"), plain_server().await);
    desk.requests(&server, 2);
    let record = r#"{"custom_id":"7","response":{"status_code":200},"error":null}"#;
    let other = r#"{"custom_id":"1","request":"00000001","response":{"status_code":200},"error":null}"#;
    for (output, says) in [
        ("my notes", "line 1 of out was not written by `throttle batch`; name another file by -o"),
        ("{}\n", "line 1 of out was not written by"),
        ("[1]\n\n", "line 1 of out was not written by"),
        ("{\"response\":{\"status_code\":200}}\n", "line 1 of out was not written by"),
        ("{\"custom_id\":null,\"response\":{\"status_code\":200}}\n", "line 1 of out was not written by"),
        (record, "out has an answer to `7`, which the input does not have; it belongs to another input"),
        (other, "out has an answer to `1`, which asks for something else in this input; it belongs to another input"),
    ] {
        desk.write("out", output);
        for args in [&[][..], &["--dry-run"]] {
            let said = desk.run(args).await;
            assert!(said.code == Some(2) && said.err.contains(says), "{}", said.err);
            assert_eq!(desk.output(), output.as_bytes());
        }
    }
    assert_eq!(server.arrivals().len(), 0);
}

#[tokio::test]
async fn two_runs_do_not_share_an_output_and_a_killed_one_leaves_no_lock() {
    let (desk, server) = (Desk::new("lock"), plain_server().await);
    desk.requests(&server, 1);
    server.script([Answer::hang()]);
    let mut first = desk.begin(&[]);
    crate::support::eventually(|| server.in_flight() == 1).await;
    let said = desk.run(&[]).await;
    assert!(said.code == Some(2) && said.err.contains("another run writes to "), "{}", said.err);
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!((desk.run(&[]).await.code, server.arrivals().len()), (Some(0), 2));
}

/// Also across kills the server, which takes 200 in any second, refuses nobody: the side file says what was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_any_kill_every_id_stands_once_and_what_is_answered_is_not_sent_again() {
    const COUNT: usize = 500;
    const IN_FLIGHT: usize = 8;
    let kills: usize = std::env::var("BATCH_KILLS").map_or(10, |kills| kills.parse().unwrap());
    let delay = || Duration::from_millis(5)..=Duration::from_millis(30);
    let server = Upstream::builder().limit(Limit::sliding(200, Duration::from_secs(1))).jitter_after(delay());
    let (desk, server) = (Desk::new("kills"), server.body(Body::bytes("äöü")).start().await);
    desk.requests(&server, COUNT);
    let args = ["--rate", "200/s", "--in-flight", "8"];
    for _ in 0..kills {
        let mut child = desk.begin(&args);
        // Some before it has begun, most while records are written.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..4_000 / kills as u64))).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let answered: Vec<_> =
            whole_records(&desk).iter().map(|id| (id.clone(), seen(&server, &format!("/{id}")))).collect();
        let sent = server.arrivals().len();
        assert!(sent <= answered.len() + (kills + 1) * IN_FLIGHT);
        let said = desk.run(&["--dry-run"]).await;
        assert!(said.out.starts_with(&format!("{} to be sent", COUNT - answered.len())), "{}{}", said.out, said.err);
        for (id, times) in answered {
            assert_eq!(seen(&server, &format!("/{id}")), times, "{id}");
        }
    }
    let before = whole_records(&desk);
    let times: Vec<_> = before.iter().map(|id| seen(&server, &format!("/{id}"))).collect();
    let said = desk.run(&args).await;
    assert_eq!((said.code, desk.has_each_once(COUNT)), (Some(0), true), "{}", said.err);
    let after: Vec<_> = before.iter().map(|id| seen(&server, &format!("/{id}"))).collect();
    println!("{kills} kills: {} sent for {COUNT}, {} refused", server.arrivals().len(), server.refused());
    assert_eq!((times, server.refused()), (after, 0));
    assert!(server.arrivals().len() <= COUNT + kills * IN_FLIGHT);
}

/// The ids of those that are written to their end.
fn whole_records(desk: &Desk) -> Vec<String> {
    let output = desk.output();
    let whole = output.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = output[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let read = |line: &[u8]| serde_json::from_slice::<serde_json::Value>(line).unwrap();
    lines.map(|line| read(line)["custom_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_run_that_follows_at_once_finds_its_limits_as_they_were_left() {
    let (desk, server) = (Desk::new("spent"), plain_server().await);
    desk.requests(&server, 4);
    let costly = fs::read_to_string(desk.path("in")).unwrap().replace('{', "{\"cost\": {\"tokens\": 1}, ");
    desk.write("in", costly);
    let args = ["--rate", "2 per 3s", "--rate", "300 tokens/min"];
    let first = fs::read_to_string(desk.path("in")).unwrap().lines().take(2).collect::<Vec<_>>().join("\n");
    desk.write("first", first);
    let first = desk.run_only(&[&["first", "-o", "out"][..], &args].concat()).await;
    assert_eq!((first.code, server.accepted()), (Some(0), 2), "{}", first.err);
    // Torn lines and what is not ours do no harm; a time in the future is now.
    let mut limits = fs::read_to_string(desk.path("out.limits")).unwrap();
    limits += "{\"at\":1,\"to\":\"http://127.0.0.1:9\",\"costs\":{}}\nnonsense\n{\"at\":";
    desk.write("out.limits", limits);
    let said = desk.run(&args).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("1 of the lines of out.limits cannot be read"), "{}", said.err);
    let arrivals: Vec<_> = server.arrivals().iter().map(|arrival| arrival.came).collect();
    let between = arrivals[2].checked_sub(arrivals[1]).unwrap();
    assert!(between >= Duration::from_millis(2_900) && between < Duration::from_secs(8), "{between:?}");

    // What other units were spent on is known too: 200 of 300 tokens are.
    let line =
        |id: &str| json!({"custom_id": id, "url": server.at("/tokens"), "cost": {"tokens": 200}}).to_string() + "\n";
    let desk = Desk::new("spent_tokens");
    desk.write("in", line("a"));
    assert_eq!(desk.run(&args).await.code, Some(0));
    desk.write("in", line("a") + &line("b"));
    let said = desk.run(&[&args[..], &["--deadline", "5s"]].concat()).await;
    assert_eq!((said.code, desk.record("b")["error"]["code"].as_str()), (Some(1), Some("deadline")), "{}", said.err);
}

#[tokio::test]
async fn the_side_file_is_written_anew_before_it_grows() {
    let (desk, server) = (Desk::new("side_file"), plain_server().await);
    desk.requests(&server, 3);
    let old = "{\"at\":1,\"to\":\"http://127.0.0.1:9\",\"costs\":{}}\n".repeat(10_000);
    desk.write("out.limits", old);
    assert_eq!(desk.run(&["--rate", "100/s"]).await.code, Some(0));
    assert_eq!(fs::read_to_string(desk.path("out.limits")).unwrap().lines().count(), 3);
    // Without limits nothing is to be remembered.
    let desk = Desk::new("no_side_file");
    desk.requests(&server, 3);
    assert_eq!((ended(desk.begin(&[])).await.code, desk.path("out.limits").exists()), (Some(0), false));
}
