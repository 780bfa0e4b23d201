//! The relay: what it does to answers, and that the tester sees each of them.

use crate::support::{Folder, Server, said, tool};

#[test]
fn every_fault_that_is_made_is_seen_and_counted() {
    let folder = Folder::new();
    let provider = Server::provider("--digest");
    let relay = Server::start(&format!(
        "relay --listen 127.0.0.1:0 --to {} --cut 10%:300 --reset 10%:300 --delay 10%:2ms --dribble 10%:400:1ms --seed 7 --for 5s",
        provider.url
    ));
    let json = folder.path("r.json");
    let output = tool(&format!("run --target {} --connections 2 --duration 1s --warmup 0s --json {json}", relay.url));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let report = folder.json("r.json");
    let failures = |kind: &str| report["failures"][kind].as_u64().unwrap_or(0);
    let counts = relay.rest();
    let number = |name: &str| -> u64 {
        let before = counts.split_once(&format!(" {name}")).unwrap().0;
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(number("cut") > 0 && number("reset") > 0 && number("delayed") > 0 && number("dribbled") > 0, "{counts}");
    assert_eq!(failures("closed"), number("cut"), "{counts} {report}");
    assert_eq!(failures("read"), number("reset"), "{counts} {report}");
    assert_eq!(report["ok"].as_u64().unwrap() + report["failed"].as_u64().unwrap(), number("answers"), "{counts}");
    assert_eq!(report["checked"], report["ok"], "what came whole is what was sent");
}

#[test]
fn without_faults_it_passes_everything_on() {
    let provider = Server::provider("--digest --frames 20 --frame-ms 1");
    let relay = Server::start(&format!("relay --listen 127.0.0.1:0 --to {} --for 10s", provider.url));
    for plan in ["--stream", "--body-bytes 300000", "--no-keep-alive"] {
        let output = tool(&format!("run --target {} --connections 2 --duration 200ms --warmup 0s {plan}", relay.url));
        assert_eq!(output.status.code(), Some(0), "{plan}: {}", said(&output));
    }
}
