//! `compare`: its exit codes are a contract.

use crate::support::{Folder, Server, said, tool};

#[test]
fn the_exit_code_says_whether_something_became_worse() {
    let folder = Folder::new();
    let measure = |name: &str, delay_ms: u32| {
        let provider = Server::provider(&format!("--delay-ms {delay_ms}"));
        let json = folder.path(name);
        let output = tool(&format!(
            "run --target gateway={} --rounds 3 --duration 200ms --warmup 0s --rate 50 --body-bytes 600 --json {json}",
            provider.url
        ));
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        json
    };
    let (fast, slow) = (measure("fast.json", 10), measure("slow.json", 40));
    let same = tool(&format!("compare {fast} {fast}"));
    assert_eq!(same.status.code(), Some(0), "{}", said(&same));
    let worse = tool(&format!("compare {fast} {slow}"));
    assert!(worse.status.code() == Some(1) && said(&worse).contains("WORSE"), "{}", said(&worse));
    let better = tool(&format!("compare {slow} {fast} --threshold 0.2"));
    assert!(better.status.code() == Some(0) && said(&better).contains("better"), "{}", said(&better));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = Folder::new();
    let plain = folder.write("plain.json", "{}");
    let output = tool(&format!("compare {plain} {plain}"));
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("make them with `weir-loadtest run --rounds 5 --json FILE`"), "{}", said(&output));
    assert_eq!(tool("compare /nowhere /nowhere").status.code(), Some(2));
    assert_eq!(tool(&format!("compare {plain} {plain} --threshold 99")).status.code(), Some(2));
}
