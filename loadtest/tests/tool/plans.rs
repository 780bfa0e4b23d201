//! Plans: the built-in ones, mixes, sessions, recorded requests, each dialect.

use crate::support::{Folder, Server, cell, said, tool};

#[test]
fn a_printed_plan_runs_as_a_file() {
    let folder = Folder::new();
    let printed = tool("plan sizes");
    let plan = folder.write("p.yaml", &String::from_utf8(printed.stdout).unwrap());
    let json = folder.path("r.json");
    let output =
        tool(&format!("run --plan {plan} --rounds 1 --duration 300ms --warmup 0s --rate 20 --json {json} --quiet"));
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(0), true), "{}", said(&output));
    let results = folder.json("r.json");
    let sent = |workload: &str| {
        let round = &cell(&results, workload, "direct")["rounds"][0];
        assert_eq!(round["checked"], round["ok"]);
        round["sent_bytes"].as_u64().unwrap() / round["ok"].as_u64().unwrap()
    };
    for (workload, bytes) in [("0.3 KB", 300), ("100 KB", 100 << 10), ("1 MB with a picture", 1 << 20)] {
        assert!((bytes..bytes + 500).contains(&sent(workload)), "{workload}: {}", sent(workload));
    }
}

#[test]
fn a_mix_of_kinds_and_dialects_is_told_apart() {
    let folder = Folder::new();
    let plan = folder.write(
        "p.yaml",
        "load: {rate: 100, arrivals: poisson}\nrounds: 1\nduration: 1s\nwarmup: 0s\nprovider: {frames: 5, frame_ms: 1}\nworkloads:\n  \
         - name: all\n    mix:\n      - {weight: 3, name: short, body: 300}\n      - {weight: 2, name: streamed, body: 4 KB, stream: true, dialect: gemini}\n      \
         - {weight: 1, name: agent, session: true, dialect: responses}\n",
    );
    let json = folder.path("r.json");
    let output = tool(&format!("run --plan {plan} --json {json}"));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let results = folder.json("r.json");
    let summary = &cell(&results, "all", "direct")["summary"];
    let count = |kind: &str| summary["kinds"][kind]["count"].as_u64().unwrap();
    assert_eq!(count("short") + count("streamed") + count("agent"), summary["ok"].as_u64().unwrap());
    assert!(count("short") > count("streamed") && count("streamed") > count("agent"), "{}", summary["kinds"]);
    assert_eq!(summary["checked"], summary["ok"]);
    assert_eq!(summary["first_token"]["count"].as_u64().unwrap(), count("streamed"));
}

#[test]
fn recorded_requests_are_sent_as_they_were() {
    let folder = Folder::new();
    folder.write(
        "traces.jsonl",
        "{\"path\":\"/v1/messages\",\"body\":{\"model\":\"fake-small\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}}\n\
         {\"model\":\"fake-small\",\"streaming\":true,\"messages\":[{\"side\":\"request\",\"role\":\"user\",\"index\":0,\"parts\":[{\"type\":\"text\",\"text\":\"hello\"}]}]}\n",
    );
    let plan = folder.write(
        "p.yaml",
        "rounds: 1\nduration: 200ms\nwarmup: 0s\nworkloads: [{name: recorded, recorded: traces.jsonl}]\n",
    );
    let provider = Server::provider("--digest --frames 3 --frame-ms 1");
    let json = folder.path("r.json");
    let output = tool(&format!("run --plan {plan} --target a={} --connections 2 --json {json}", provider.url));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let results = folder.json("r.json");
    let summary = &cell(&results, "recorded", "a")["summary"];
    let (answers, streams) = (summary["ok"].as_u64().unwrap(), summary["first_token"]["count"].as_u64().unwrap());
    assert!(streams > 0 && answers.abs_diff(2 * streams) <= 2, "every other one is a stream: {summary}");
}

#[test]
fn every_dialect_streams_to_its_first_token() {
    let folder = Folder::new();
    let json = folder.path("r.json");
    let output = tool(&format!("run --plan streams --rounds 1 --duration 300ms --warmup 0s --json {json}"));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let results = folder.json("r.json");
    for dialect in ["chat", "responses", "messages", "gemini"] {
        let summary = &cell(&results, dialect, "direct")["summary"];
        assert_eq!(
            (&summary["first_token"]["count"], &summary["checked"]),
            (&summary["ok"], &summary["ok"]),
            "{dialect}"
        );
        assert!(summary["frame_gap"]["p50_us"].as_f64().unwrap() > 5_000.0, "{dialect}: frames come every 10 ms");
    }
}

#[test]
fn a_wrong_plan_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let plan = folder.write("p.yaml", "workloads:\n  - {name: a, body: 4 XB}\n");
    let output = tool(&format!("run --plan {plan}"));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("workloads[0].body: it is `4 XB`; accepted is a number of bytes"),
        "{}",
        said(&output)
    );
}
