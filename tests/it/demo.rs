//! Promise: `weir demo` shows the product in one command and leaves nothing behind.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use tempfile::TempDir;

use crate::support::{Call, call, chat_call, eventually, weir};

#[test]
fn once_prints_every_call_with_its_trace_and_ends() {
    let temporary = TempDir::new().unwrap();
    let output = weir(&["demo", "--once"]).env("TMPDIR", temporary.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let row = |title: &str| {
        let line = text.lines().find(|line| line.contains(title));
        line.unwrap_or_else(|| panic!("no line with `{title}`:\n{text}")).to_owned()
    };
    assert!(row("a prompt injection").contains("prompt_injection"), "{text}");
    assert!(row("personal data").contains("pii_detected"), "{text}");
    assert!(row("an error of the provider").contains("500"), "{text}");
    for title in [
        "a harmless question",
        "the same words, asked about",
        "a stream",
        "a tool call",
        "messages dialect",
        "local-server dialect",
    ] {
        assert!(row(title).contains("200"), "{text}");
    }
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "the temporary database is gone");
}

#[test]
fn without_once_it_stays_up_and_can_be_used() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("kept.db");
    let mut demo = weir(&["demo", "--database", database.to_str().unwrap()]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut addr = None;
    for line in lines {
        if let Some(rest) = line.strip_prefix("weir ") {
            addr = rest.trim().strip_prefix("http://").and_then(|rest| rest.split(' ').next()?.parse().ok());
        }
        if line.contains("Ctrl-C") {
            break;
        }
    }
    let addr = addr.expect("the address is printed");
    assert_eq!(call(addr, chat_call("hello").bytes()).status, 200);
    let traces = call(addr, Call::get("/api/v1/traces").bytes()).json();
    assert!(traces["total"].as_u64() >= Some(9), "{traces}");
    let sent = std::process::Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let status = eventually("the demo ends", || demo.try_wait().unwrap());
    assert!(status.success(), "{status}");
    assert!(database.exists());
}
