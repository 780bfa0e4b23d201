//! Measuring: without a target, several in turn, an old plain run, a stalled server, a ramp.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::support::{Folder, PROGRAM, Server, cell, said, tool};

#[test]
fn without_a_target_it_measures_its_own_provider_and_leaves_none_behind() {
    let folder = Folder::new();
    let (json, page, table) = (folder.path("r.json"), folder.path("r.html"), folder.path("r.md"));
    let output = tool(&format!(
        "run --rounds 3 --duration 200ms --warmup 50ms --rate 100 --json {json} --html {page} --markdown {table}"
    ));
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("no target was named") && text.contains("[6/6] round 3, 1 KB streamed, direct:"), "{text}");
    assert!(text.contains("3 rounds of 1 target and 2 workloads, 0.2 s each: about "), "how long it takes: {text}");
    let results = folder.json("r.json");
    assert!(results["command"].as_str().unwrap().starts_with("weir-loadtest run --rounds 3 --duration 200ms"));
    assert!(results["plan_text"].as_str().unwrap().contains("workloads:"));
    for workload in ["1 KB", "1 KB streamed"] {
        let summary = &cell(&results, workload, "direct")["summary"];
        assert_eq!(summary["failed"], 0);
        assert_eq!(
            (&summary["checked"], summary["ok"].as_u64()),
            (&summary["ok"], Some(60)),
            "every answer is checked"
        );
        assert!(summary["cpu_us_per_request"].as_f64().unwrap() > 0.0 && summary["rss_kib_last"].as_u64().unwrap() > 0);
    }
    let streamed = &cell(&results, "1 KB streamed", "direct")["summary"];
    let us = |figure: &str, percentile: &str| streamed[figure][percentile].as_f64().unwrap();
    assert!(us("first_token", "p50_us") < us("latency", "p50_us") && us("frame_gap", "p50_us") > 2_500.0);
    let page = folder.read("r.html");
    assert!(
        page.contains("weir-loadtest run --rounds 3") && page.contains("Every answer was as expected, byte for byte")
    );
    assert!(page.contains("<polyline") && !page.contains("<script") && !page.contains("http-equiv=\"refresh"));
    assert!(folder.read("r.md").contains("| target | ok | failed | answers/s | p50 | p99 |"));
    // The provider's port is closed with it.
    let url = cell(&results, "1 KB", "direct")["url"].as_str().unwrap().to_owned();
    assert!(std::net::TcpStream::connect(url.trim_start_matches("http://")).is_err());
}

#[test]
fn targets_take_turns_and_what_one_adds_is_told() {
    let folder = Folder::new();
    let provider = Server::provider("--digest");
    let relay = Server::start(&format!("relay --listen 127.0.0.1:0 --to {} --delay 100%:20ms", provider.url));
    let (json, direct, slow) = (folder.path("r.json"), &provider.url, &relay.url);
    let output = tool(&format!(
        "run --target direct={direct} --target slow={slow} --process slow={} --rounds 3 --duration 200ms --warmup 0s --rate 50 --json {json}",
        relay.pid()
    ));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let turns: Vec<&str> =
        stderr.lines().filter_map(|line| line.split(": ").next()?.split_once("] ").map(|it| it.1)).collect();
    assert_eq!(turns[0], "round 1, 1 KB, direct");
    assert_eq!(turns[4], "round 2, 1 KB, slow", "another target begins each round: {turns:?}");
    let results = folder.json("r.json");
    assert_eq!(results["baseline"], "direct");
    let added = &cell(&results, "1 KB", "slow")["summary"]["added_p50_us"];
    let us = |name: &str| added[name].as_f64().unwrap();
    assert!(us("value") > 15_000.0 && us("low") <= us("value") && us("value") <= us("high"), "{added}");
    assert!(cell(&results, "1 KB", "slow")["summary"]["cpu_us_per_request"].as_f64().is_some());
    assert!(cell(&results, "1 KB", "direct")["summary"]["cpu_us_per_request"].is_null());
}

#[test]
fn one_command_starts_the_provider_behind_a_gateway_and_measures_both() {
    let folder = Folder::new();
    // A port that was free a moment ago; the gateway is told before anything listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gateway = Server::start(&format!("relay --listen 127.0.0.1:0 --to 127.0.0.1:{port}"));
    let json = folder.path("r.json");
    let output = tool(&format!(
        "run --provider 127.0.0.1:{port} --target gateway={} --rounds 1 --duration 200ms --warmup 0s --plan session --json {json}",
        gateway.url
    ));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let results = folder.json("r.json");
    for target in ["direct", "gateway"] {
        let summary = &cell(&results, "agent session", target)["summary"];
        assert!(summary["ok"].as_u64().unwrap() > 0 && summary["checked"] == summary["ok"], "{target}: {summary}");
    }
}

#[test]
fn one_target_without_a_name_has_the_plain_report_of_one_run() {
    let folder = Folder::new();
    let provider = Server::provider("");
    let json = folder.path("r.json");
    let output = tool(&format!(
        "run --target {} --connections 2 --duration 200ms --warmup 0s --plan session --pid {} --json {json}",
        provider.url,
        provider.pid()
    ));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let report = folder.json("r.json");
    assert!(report["ok"].as_u64().unwrap() > 0 && report["latency"]["p50_us"].as_f64().unwrap() > 0.0);
    assert!(report["process"]["cpu_us_per_request"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_server_that_stands_still_shows_in_an_open_loop_and_not_in_a_closed_one() {
    let folder = Folder::new();
    let provider = Server::provider("--stall 1s:200ms");
    let p99_ms = |load: &str| {
        let json = folder.path("r.json");
        let output = tool(&format!(
            "run --target {} --duration 3s --warmup 0s --body-bytes 600 --json {json} {load}",
            provider.url
        ));
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let report = folder.json("r.json");
        assert!(report["latency"]["max_us"].as_f64().unwrap() > 100_000.0, "a stall was met: {report}");
        report["latency"]["p99_us"].as_f64().unwrap() / 1000.0
    };
    // The closed loop sends one request into a stall and waits; in the open one 20 were due meanwhile, and each of them waits.
    let closed = p99_ms("--connections 1");
    let open = p99_ms("--connections 1 --mode open --rate 100");
    assert!(open > 100.0 && closed < open / 2.0, "p99 in ms: open {open}, closed {closed}");
}

#[test]
fn a_ramp_finds_the_rate_that_a_slow_target_keeps_up_with() {
    let folder = Folder::new();
    let provider = Server::provider("--delay-ms 20 --frames 3 --frame-ms 1");
    let (json, page) = (folder.path("r.json"), folder.path("r.html"));
    // Two connections of 20 ms a request do a hundred a second at most.
    let output = tool(&format!(
        "run --target slow={} --ramp 20:640 --ramp-steps 6 --ramp-p99 400ms --connections 2 --duration 1s --warmup 0s --json {json} --html {page}",
        provider.url
    ));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let curve = folder.json("r.json")["ramps"][0].clone();
    let knee = curve["knee_per_s"].as_f64().unwrap();
    assert!((20.0..200.0).contains(&knee), "{curve}");
    assert!(folder.read("r.html").contains("p99 by rate"));
    let text = said(&output);
    assert!(text.contains("ramp from 20 to 640/s in 6 rates, 1.0 s each") && !text.contains("rounds of"), "{text}");
    assert!(text.contains(" did not keep up with "), "the reason is told when it happens: {text}");
    let too_much = curve["points"].as_array().unwrap().iter().find(|point| point["kept_up"] == false).unwrap();
    assert!(!too_much["why"].as_str().unwrap().is_empty());
}

/// Streams of 600 ms under a limit of 400 ms: what a gateway can be blamed for is when their text begins.
#[test]
fn a_ramp_over_streams_looks_at_their_first_token() {
    let folder = Folder::new();
    let plan = folder.write(
        "p.yaml",
        "load: {rate: 10, connections: 64}\nduration: 1s\nwarmup: 0s\nprovider: {frames: 60, frame_ms: 10}\nworkloads: [{name: s, stream: true}]\n",
    );
    let (json, page) = (folder.path("r.json"), folder.path("r.html"));
    let output =
        tool(&format!("run --plan {plan} --ramp 5:20 --ramp-steps 2 --ramp-p99 400ms --json {json} --html {page}"));
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let curve = folder.json("r.json")["ramps"][0].clone();
    assert_eq!(curve["knee_per_s"].as_f64(), Some(20.0), "{text}");
    for point in curve["points"].as_array().unwrap() {
        assert!(point["p99_us"].as_f64().unwrap() > 590_000.0 && point["text_p99_us"].as_f64().unwrap() < 400_000.0);
        assert!(point["cpu_us_per_request"].as_f64().unwrap() > 0.0 && point["rss_kib"].as_u64().unwrap() > 0);
    }
    let page = folder.read("r.html");
    for says in ["first token p99", "CPU/request", "limit, 400 ms", "p99 until the first token by rate"] {
        assert!(page.contains(says), "{says}");
    }
    assert!(!page.contains("took turns in every round"), "it says nothing of what is not there");
}

#[test]
fn a_ramp_into_a_rate_limit_says_so_everywhere() {
    let folder = Folder::new();
    let provider = Server::provider("--digest");
    let (json, page) = (folder.path("r.json"), folder.path("r.html"));
    let output = tool(&format!(
        "run --target limited={} --ramp 50:100 --ramp-steps 2 --duration 200ms --warmup 0s --header x-fake-status:429 --json {json} --html {page}",
        provider.url
    ));
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "no rate was kept up with: {text}");
    for says in [
        "10 answers, ",
        "none as expected, 10 FAILED (status 429: 10)",
        "50/s: 10 failed (status 429: 10)",
        "the first refusal: status 429, {",
        "(a limit of the target: raise it to measure the target itself)",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let point = &folder.json("r.json")["ramps"][0]["points"][0];
    assert_eq!((&point["errors"]["status 429"], &point["why"]), (&10.into(), &"10 failed (status 429: 10)".into()));
    assert!(folder.read("r.html").contains("50/s: 10 failed (status 429: 10)"));
}

#[test]
fn refusals_are_told_with_their_status_and_what_to_do_and_the_warm_ups_are_apart() {
    let folder = Folder::new();
    let provider = Server::provider("--digest");
    let json = folder.path("r.json");
    let output = tool(&format!(
        "run --target a={} --process a={} --rounds 2 --duration 200ms --warmup 100ms --rate 50 --header x-fake-status:401 --json {json}",
        provider.url,
        provider.pid()
    ));
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for says in [
        "10 answers, ",
        "none as expected, 10 FAILED (status 401: 10)",
        "a failed: status 401: 20",
        "a failed: in the warm-up, which no other figure holds, status 401: 10",
        "a, the first refusal: status 401, {",
        "(a key goes along with --header 'Authorization: Bearer KEY')",
        &format!("a is {}", provider.url),
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert!(!text.contains("p50 0.00 ms"), "{text}");
    let results = folder.json("r.json");
    let summary = &cell(&results, "1 KB", "a")["summary"];
    assert_eq!((summary["ok"].as_u64(), summary["failed"].as_u64()), (Some(0), Some(20)), "{summary}");
    assert!(summary["cpu_us_per_request"].as_f64().unwrap() > 0.0, "refusing is work: {summary}");
}

#[test]
fn targets_and_processes_that_are_not_there_are_named_before_anything_is_measured() {
    let provider = Server::provider("");
    let url = &provider.url;
    for (args, says) in [
        (
            format!("--target direct={url} --target gone=http://127.0.0.1:1"),
            "target gone at http://127.0.0.1:1 cannot be reached: ",
        ),
        (format!("--target a={} --insecure", url.replace("http://", "https://")), "it does not speak TLS on this port"),
        (format!("--target a={url} --process a=4194999"), "--process a=4194999: no such process"),
        (format!("--target a={url} --process a=cgroup:/nowhere"), "--process a=/nowhere: no control group"),
    ] {
        let output = tool(&format!("run --duration 100ms {args}"));
        let text = said(&output);
        assert!(output.status.code() == Some(2) && text.contains(says), "{says}: {text}");
        assert!(!text.contains("answers, "), "nothing was measured: {text}");
    }
}

#[test]
fn a_target_that_goes_away_fails_its_rounds_and_the_others_keep_theirs() {
    let folder = Folder::new();
    let provider = Server::provider("--digest --frames 2 --frame-ms 1");
    let relay = Server::start(&format!("relay --listen 127.0.0.1:0 --to {}", provider.url));
    let json = folder.path("r.json");
    let mut child = Command::new(PROGRAM)
        .args(
            format!(
                "run --target direct={} --target relay={} --process relay={}",
                provider.url,
                relay.url,
                relay.pid()
            )
            .split(' '),
        )
        .args(format!("--rounds 3 --rate 50 --duration 200ms --warmup 0s --json {json}").split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    // Both were measured with the first workload; then one of them ends.
    told.find(|line| line.starts_with("[2/12]")).unwrap();
    drop(relay);
    let rest: String = told.collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{rest}");
    let results = folder.json("r.json");
    let last = &cell(&results, "1 KB", "relay")["rounds"][2];
    assert_eq!((last["failed"].as_u64(), last["errors"]["connect"].as_u64()), (Some(10), Some(10)), "{last}");
    let other = &cell(&results, "1 KB", "direct")["summary"];
    assert_eq!((other["ok"].as_u64(), other["failed"].as_u64()), (Some(30), Some(0)), "{other}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("relay failed: connect: "), "{text}");
}

#[test]
fn requests_that_were_never_sent_are_explained() {
    let provider = Server::provider("");
    let url = &provider.url;
    let load = "--rate 100 --connections 1 --duration 300ms --warmup 0s --header x-fake-delay-ms:500";
    for (target, says) in [
        (
            format!("--target a={url} --rounds 1"),
            "all connections were busy (open loop, 100/s evenly spaced, 1 connections",
        ),
        (format!("--target {url} --mode open"), "never sent: all 1 connections were busy; raise --connections"),
    ] {
        let output = tool(&format!("run {target} {load}"));
        let text = said(&output);
        assert!(output.status.code() == Some(1) && text.contains(says), "{says}: {text}");
    }
}

#[test]
fn answers_that_no_digest_came_with_are_not_called_checked() {
    let folder = Folder::new();
    let (with, without) = (Server::provider("--digest"), Server::provider(""));
    let page = folder.path("r.html");
    let output = tool(&format!(
        "run --target direct={} --target other={} --rounds 1 --duration 100ms --warmup 0s --rate 100 --body-bytes 600 --html {page}",
        with.url, without.url
    ));
    let text = said(&output);
    assert!(text.contains("answers of other were not checked: no digest came through"), "{text}");
    assert!(!folder.read("r.html").contains("Every answer was as expected"));
}

#[test]
fn another_machine_is_not_loaded_unless_it_is_named_twice() {
    let output = tool("run --target http://192.0.2.1:9 --target b=http://127.0.0.1:9");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("add --i-may-load-this-host 192.0.2.1"), "{}", said(&output));
    // Named twice it is only unreachable; the address is one for documentation.
    let output = tool("run --target http://127.0.0.1:1 --i-may-load-this-host 127.0.0.1 --timeout 100ms");
    assert!(said(&output).contains("connection 1 failed"), "{}", said(&output));
}

/// Made for the tests of the gateway; they protect nothing.
const CERTIFICATES: [(&str, &str); 3] = [
    ("ca.pem", include_str!("../../../tests/it/data/ca.pem")),
    ("server.pem", include_str!("../../../tests/it/data/server.pem")),
    ("key.pem", include_str!("../../../tests/it/data/server.key.pem")),
];

#[test]
fn a_target_with_tls_is_measured_and_one_that_is_not_trusted_is_refused() {
    let folder = Folder::new();
    let [ca, certificate, key] = CERTIFICATES.map(|(name, text)| folder.write(name, text));
    let provider =
        Server::provider(&format!("--digest --frames 5 --frame-ms 1 --tls-certificate {certificate} --tls-key {key}"));
    let url = provider.url.replace("http://127.0.0.1", "https://localhost");
    let json = folder.path("r.json");
    for trust in [format!("--ca {ca}"), "--insecure".to_owned()] {
        for plan in ["--stream", "--body-bytes 300000", "--no-keep-alive"] {
            let output = tool(&format!(
                "run --target {url} --connections 2 --duration 200ms --warmup 0s --json {json} {trust} {plan}"
            ));
            assert_eq!(output.status.code(), Some(0), "{trust} {plan}: {}", said(&output));
            let report = folder.json("r.json");
            assert_eq!(report["checked"], report["ok"], "{trust} {plan}");
        }
    }
    let output = tool(&format!("run --target a={url} --rounds 1 --duration 200ms --ca {ca} --quiet"));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let output = tool(&format!("run --target {url} --duration 200ms"));
    assert!(output.status.code() == Some(2) && said(&output).contains("certificate"), "{}", said(&output));
}
