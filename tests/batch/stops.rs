//! However it is ended, what was answered is written, and the same command goes on.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::desk::{Desk, ended, plain_server};
use crate::support::eventually;
use crate::support::upstream::{Answer, Body, Upstream};

pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_interrupts_it_gets_what_is_in_flight_and_can_go_on() {
    for name in ["INT", "TERM"] {
        let (desk, server) = (Desk::new(&format!("stop_{name}")), plain_server().await);
        desk.requests(&server, 50);
        let slow = |number: usize| Answer::status(200).delay(Duration::from_millis(500)).on(&format!("/{number}"));
        server.script((0..4).map(slow));
        let child = desk.begin(&["--rate", "4/min"]);
        eventually(|| server.in_flight() == 4).await;
        signal(&child, name);
        let said = ended(child).await;
        assert_eq!((said.code, server.arrivals().len()), (Some(130), 4), "{}", said.err);
        assert_eq!(desk.ids(), ["0", "1", "2", "3"]);
        assert!(said.err.contains("50 total, 4 ok, 0 failed, 46 left"), "{}", said.err);
        assert!(said.err.ends_with("interrupted; run the same command again to go on\n"), "{}", said.err);
        let said = desk.run(&["--ordered"]).await;
        assert_eq!((said.code, desk.has_each_once(50), server.accepted() + 4), (Some(0), true, 50), "{}", said.err);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_interrupts_it_twice_does_not_wait() {
    let (desk, server) = (Desk::new("stop_twice"), plain_server().await);
    desk.requests(&server, 20);
    server.script([Answer::hang().on("/0")]);
    let child = desk.begin(&["--ordered"]);
    eventually(|| server.arrivals().iter().filter(|arrival| arrival.ended.is_some()).count() == 19).await;
    signal(&child, "INT");
    tokio::time::sleep(Duration::from_millis(300)).await;
    signal(&child, "INT");
    let begun = Instant::now();
    let said = ended(child).await;
    assert!(said.code == Some(130) && begun.elapsed() < Duration::from_secs(5), "{}", said.err);
    // What waited for its place is written, in order.
    assert_eq!(desk.numbers(), (1..20).collect::<Vec<_>>());
    assert_eq!((desk.run(&[]).await.code, desk.has_each_once(20)), (Some(0), true));
}

/// Also where the last answers come in another order than they were asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_run_keeps_the_order() {
    let delay = Duration::from_millis(1)..=Duration::from_millis(200);
    let (desk, server) = (Desk::new("stop_ordered"), Upstream::builder().jitter_after(delay).start().await);
    desk.requests(&server, 1_000);
    let child = desk.begin(&["--ordered"]);
    eventually(|| server.arrivals().len() > 200).await;
    signal(&child, "INT");
    let said = ended(child).await;
    let numbers = desk.numbers();
    assert!(said.code == Some(130) && numbers.is_sorted(), "{numbers:?} {}", said.err);
    assert_eq!(numbers.len(), server.accepted());
}

/// One that was refused and waits for its next turn is not in flight: nobody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_run_does_not_wait_for_repetitions() {
    let (desk, server) = (Desk::new("stop_pause"), plain_server().await);
    desk.requests(&server, 2);
    server.script([Answer::status(429).header("retry-after", "300").on("/0")]);
    let child = desk.begin(&["--in-flight", "1"]);
    eventually(|| server.arrivals().first().is_some_and(|arrival| arrival.ended.is_some())).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    signal(&child, "INT");
    let begun = Instant::now();
    let said = ended(child).await;
    assert!(said.code == Some(130) && begun.elapsed() < Duration::from_secs(5), "{}", said.err);
    assert_eq!((desk.records().len(), server.arrivals().len()), (0, 1));
}

#[cfg(unix)]
#[tokio::test]
async fn a_full_disk_is_told_and_what_was_written_stays_whole() {
    let body = Body::bytes("x".repeat(10_000));
    let (desk, server) = (Desk::new("full"), Upstream::builder().body(body).start().await);
    desk.requests(&server, 100);
    // No file may be longer than 64 KiB; the signal that says so is ignored, as a full disk sends none.
    let run = format!("trap '' XFSZ; ulimit -f 128; exec {} batch in -o out", env!("CARGO_BIN_EXE_throttle"));
    let mut command = Command::new("sh");
    command.current_dir(desk.path("")).args(["-c", &run]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = ended(command.spawn().unwrap()).await;
    assert!(
        said.code == Some(1) && said.err.contains("out cannot be written any more (File too large"),
        "{}",
        said.err
    );
    assert!(said.err.ends_with("make room, and run the same command again\n"), "{}", said.err);
    let written = desk.records().len();
    assert!((1..100).contains(&written), "{written}");
    assert_eq!((desk.run(&[]).await.code, desk.has_each_once(100)), (Some(0), true));
}

#[cfg(unix)]
#[tokio::test]
async fn it_does_its_work_where_nobody_hears_of_it() {
    let (desk, server) = (Desk::new("closed"), plain_server().await);
    desk.requests(&server, 5);
    let run =
        format!("exec {} batch in -o out --progress always --summary json >&- 2>&-", env!("CARGO_BIN_EXE_throttle"));
    let mut command = Command::new("sh");
    let said = ended(command.current_dir(desk.path("")).args(["-c", &run]).spawn().unwrap()).await;
    assert_eq!((said.code, desk.has_each_once(5)), (Some(0), true));
}
