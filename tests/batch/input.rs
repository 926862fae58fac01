//! What is wrong with an input is said before anything is sent: the file, the line, and what to do.

use std::io::Write;
use std::process::Stdio;

use super::desk::{Desk, ended, plain_server};

const GOOD: &str = r#"{"custom_id": "good", "url": "http://127.0.0.1:9/"}"#;

#[tokio::test]
async fn what_is_wrong_with_a_line_is_said_with_its_number_and_a_remedy() {
    let desk = Desk::new("wrong_lines");
    let deep = format!(r#"{{"url": {}}}"#, "[".repeat(100_000));
    for (line, says) in [
        ("nothing", "it is no JSON object; write each request as `{…}`"),
        (r#"["url"]"#, "it is no JSON object"),
        (r#"{"url": "http://x.example/""#, "EOF while parsing an object, in column 27; write a JSON object"),
        (deep.as_str(), "; write a JSON object of the fields that"),
        (r#"{"url": "http://x.example/", "heders": {}}"#, "unknown field `heders`, expected one of"),
        (r#"{"url": "http://x.example/", "url": "http://y.example/"}"#, "duplicate field `url`"),
        (r#"{"custom_id": "a"}"#, "it has no `url`; write one"),
        (r#"{"custom_id": 5, "url": "http://x.example/"}"#, "its `custom_id` has to be a text"),
        (r#"{"url": 5}"#, "its `url` has to be a text"),
        (r#"{"url": "/v1/things?key=SECRET123"}"#, "its `url` `/v1/things` is relative; say to what by --base-url"),
        (r#"{"url": "http://?key=SECRET123"}"#, "is no address; write it as in `https://api.example.com/v1/things`"),
        (r#"{"url": "http://x.example/", "method": "G T"}"#, "its `method` has to be a method, as in `\"POST\"`"),
        (r#"{"url": "http://x.example/", "method": "GET", "body": {}}"#, "a GET has no `body`; leave it out, or write"),
        (r#"{"url": "http://x.example/", "body": 5}"#, "its `body` has to be an object, a list or a text"),
        (r#"{"url": "http://x.example/", "body": "\ud800"}"#, "its `body` has to be a text of whole characters"),
        (
            r#"{"url": "http://x.example/", "headers": "Authorization: SECRET123"}"#,
            "its `headers` has to be names with texts",
        ),
        (r#"{"url": "http://x.example/", "headers": {"a b": "c"}}"#, "a name that no header may have"),
        (r#"{"url": "http://x.example/", "headers": {"a": "SECRET123\n"}}"#, "its header `a` has signs in it"),
        (r#"{"url": "http://x.example/", "headers": {"a": "env:HOME"}}"#, "names the environment; say it by --header"),
        (r#"{"url": "http://x.example/", "headers": {"Content-Length": "5"}}"#, "is made from the body; leave it out"),
        (r#"{"url": "http://x.example/", "cost": {"tokens": -1}}"#, "its `cost` has to be units with whole numbers"),
        (r#"{"url": "http://x.example/", "priority": "top"}"#, "its `priority` has to be `\"high\"`"),
        (r#"{"url": "http://x.example/", "flow": 1}"#, "its `flow` has to be a text"),
        (GOOD, "its `custom_id` `good` is that of line 1; give each request its own"),
    ] {
        desk.write("in", format!("{GOOD}\n\n{line}\n"));
        let said = desk.run(&[]).await;
        let place = said.err.strip_prefix("throttle: in, line 3: ");
        assert!(place.is_some_and(|rest| rest.starts_with(says) || rest.contains(says)), "{}", said.err);
        assert!(said.err.ends_with("; or go on without such lines by --skip-bad\n"), "{}", said.err);
        assert!(!said.err.contains("SECRET123") && said.code == Some(2) && !desk.path("out").exists());
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_and_lines_that_never_end_are_refused() {
    let desk = Desk::new("bytes");
    desk.write("in", [GOOD.as_bytes(), b"\n{\"url\": \"\xff\"}\n"].concat());
    let said = desk.run(&[]).await;
    assert!(
        said.err.contains("in, line 2: it is not UTF-8 from its byte 10 on; save the file as UTF-8"),
        "{}",
        said.err
    );

    desk.write("in", [vec![b'x'; 40 << 20], b"\n{}\n".to_vec()].concat());
    let said = desk.run(&["--skip-bad"]).await;
    assert_eq!(said.code, Some(1), "{}", said.err);
    let messages: Vec<_> = desk.records().iter().map(|record| record["error"]["message"].clone()).collect();
    let of =
        |line: u64| messages.iter().find(|said| said.as_str().unwrap().starts_with(&format!("line {line}: "))).unwrap();
    assert!(of(1).as_str().unwrap().contains("it is longer than 32 MiB; split it"));
    assert!(of(2).as_str().unwrap().contains("it has no `url`"));
}

#[tokio::test]
async fn what_editors_leave_in_files_does_no_harm() {
    let (desk, server) = (Desk::new("editors"), plain_server().await);
    let url = server.at("/a");
    let id = "quote \" and\nline é ".to_owned() + &"x".repeat(1 << 20);
    let long = serde_json::json!({"custom_id": id, "url": url, "headers": {"X-A": "b"}});
    desk.write("in", format!("\u{feff}{{\"url\": \"{url}\"}}\r\n\r\n   \n{long}\r\n{{\"url\": \"{url}\"}}"));
    let said = desk.run(&[]).await;
    assert_eq!((said.code, said.err.contains("3 total, 3 ok, 0 failed")), (Some(0), true), "{}", said.err);
    let mut ids = [id, "line-1".to_owned(), "line-5".to_owned()];
    ids.sort_unstable();
    assert_eq!(desk.ids(), ids);
    assert_eq!(desk.run(&[]).await.code, Some(0));
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn standard_input_is_read_as_it_comes_and_gone_on_with() {
    let (desk, server) = (Desk::new("stream"), plain_server().await);
    let line = |id: &str, path: &str| format!("{{\"custom_id\": \"{id}\", \"url\": \"{}\"}}\n", server.at(path));
    let run = async |input: String, args: &[&str]| {
        let mut command = desk.command(&[&["-", "-o", "out"], args].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        ended(child).await
    };
    // What came before the bad line is done.
    let said = run([line("a", "/a"), "bad\n".to_owned(), line("b", "/b")].concat(), &[]).await;
    assert!(said.code == Some(2) && said.err.contains("standard input, line 2: it is no JSON object"), "{}", said.err);
    assert_eq!(desk.ids(), ["a"]);
    // What is answered is not sent again, and what stands twice is bad.
    let said = run([line("a", "/a"), line("b", "/b"), line("b", "/b")].concat(), &["--skip-bad"]).await;
    assert_eq!((said.code, desk.ids()), (Some(1), vec![String::new(), "a".into(), "b".into()]), "{}", said.err);
    assert_eq!(server.accepted(), 2);
    // Another request by a known id, and an end that comes too early, show that it is another input.
    let said = run(line("a", "/other"), &[]).await;
    assert!(
        said.code == Some(2) && said.err.contains("belongs to another input; name another file by -o"),
        "{}",
        said.err
    );
    let said = run(line("a", "/a"), &[]).await;
    assert!(
        said.code == Some(2) && said.err.contains("1 of the 2 answers in the output are to no line"),
        "{}",
        said.err
    );
    // A dry run counts what is left.
    let mut child = desk.command(&["-", "-o", "out", "--dry-run"]).stdin(Stdio::piped()).spawn().unwrap();
    let input = [line("a", "/a"), line("b", "/b"), line("c", "/c")].concat();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let said = ended(child).await;
    assert!(said.out.starts_with("1 to be sent, 2 answered already"), "{}{}", said.out, said.err);
}
