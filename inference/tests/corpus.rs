//! Keeps the detectors as good as they are: recall floors and false-alarm ceilings over a labelled sample.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use serde_json::Value;
use weir_config::vocab::{Severity, score};
use weir_inference::{Analyser, Call, Hit, Part, PartKind, Plan, PlanSettings, Scratch};

struct Detectors {
    analyser: Analyser,
    plan: Arc<Plan>,
    scratch: Scratch,
}

impl Detectors {
    fn new() -> Self {
        let analyser = Analyser::builtin().unwrap();
        let plan = Arc::new(analyser.plan(&PlanSettings::default()));
        Self { scratch: analyser.scratch(), plan, analyser }
    }

    fn look(&mut self, text: &str) -> Vec<Hit> {
        self.look_as(text, PartKind::User)
    }

    fn look_as(&mut self, text: &str, kind: PartKind) -> Vec<Hit> {
        let mut hits = Vec::new();
        let part = Part { text, kind };
        self.analyser.analyse(&mut self.scratch, &[part], &Call::of(&self.plan), &mut hits);
        hits
    }
}

/// Definitions of tools, each as one text: what the reader of requests makes of it.
fn definitions() -> Vec<(Value, String)> {
    let path = format!("{}/tests/data/tools.jsonl", env!("CARGO_MANIFEST_DIR"));
    let rows = std::fs::read_to_string(path).unwrap();
    let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| {
        let arguments = row["arguments"].as_object().unwrap().values();
        let texts = std::iter::once(&row["description"]).chain(arguments).filter_map(Value::as_str);
        let text = texts.collect::<Vec<_>>().join("\n");
        (row, text)
    })
    .collect()
}

fn rows(file: &str) -> Vec<Value> {
    let path = format!("{}/tests/data/{file}.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Seen and all, by name.
type Table = BTreeMap<String, (usize, usize)>;

fn count(table: &mut Table, name: &str, seen: bool) {
    let entry = table.entry(name.to_owned()).or_default();
    entry.0 += usize::from(seen);
    entry.1 += 1;
}

fn share(table: &Table, name: &str) -> f64 {
    let (seen, all) = table[name];
    seen as f64 / all as f64
}

#[test]
fn attacks_are_flagged_and_benign_prompts_are_not() {
    let mut detectors = Detectors::new();
    let mut by_label = Table::new();
    let mut by_source = Table::new();
    for row in rows("prompts") {
        let mut hits = detectors.look(row["text"].as_str().unwrap());
        hits.retain(|hit| !["pii_detected", "secret_leakage"].contains(&hit.finding.finding_type.as_ref()));
        let flagged = score(hits.iter().map(|hit| &hit.finding)) >= 60;
        count(&mut by_label, row["label"].as_str().unwrap(), flagged);
        count(&mut by_source, row["source"].as_str().unwrap(), flagged);
    }
    assert!(share(&by_label, "benign") <= 0.01, "false alarms: {by_label:?} {by_source:?}");
    assert!(share(&by_label, "injection") >= 0.43, "{by_label:?} {by_source:?}");
    assert!(share(&by_label, "jailbreak") >= 0.64, "{by_label:?} {by_source:?}");
}

/// Recall by gold type, precision over all, and hard negatives with a finding.
fn spans(file: &str, finding_type: &str) -> (Table, Table) {
    let mut detectors = Detectors::new();
    let (mut recall, mut rest) = (Table::new(), Table::new());
    for row in rows(file) {
        let text = match row["parts"].as_array() {
            Some(parts) => parts.iter().filter_map(Value::as_str).collect(),
            None => row["text"].as_str().unwrap().to_owned(),
        };
        let mut hits = detectors.look(&text);
        hits.retain(|hit| hit.finding.finding_type == finding_type);
        let byte_at = |point: &Value| {
            let point = point.as_u64().unwrap() as usize;
            text.char_indices().nth(point).map_or(text.len(), |(at, _)| at)
        };
        let gold: Vec<(usize, usize)> = row["spans"]
            .as_array()
            .unwrap()
            .iter()
            .map(|span| (byte_at(&span["start"]), byte_at(&span["end"])))
            .collect();
        let found: Vec<(usize, usize)> =
            hits.iter().map(|hit| hit.finding.span.unwrap()).map(|span| (span.start, span.end)).collect();
        let meets = |a: &(usize, usize), b: &(usize, usize)| a.0 < b.1 && b.0 < a.1;
        for (span, of) in row["spans"].as_array().unwrap().iter().zip(&gold) {
            count(&mut recall, span["type"].as_str().unwrap(), found.iter().any(|hit| meets(hit, of)));
        }
        for hit in &found {
            count(&mut rest, "precision", gold.iter().any(|of| meets(hit, of)));
        }
        if row["kind"] == "hard_negative" {
            count(&mut rest, "hard_negative", !found.is_empty());
        }
    }
    (recall, rest)
}

#[test]
fn personal_data_is_found_and_look_alikes_are_not() {
    let (recall, rest) = spans("pii", "pii_detected");
    // Names need a model; licences are not among the types, and hardware addresses that look like examples are none. Twelve of the 29
    // wallets, those of Bitcoin, are made up and their check sums wrong.
    let other = ["PERSON", "DRIVER_LICENSE", "MAC_ADDRESS", "CRYPTO_WALLET"];
    assert_eq!(recall.get("CRYPTO_WALLET"), Some(&(17, 29)), "{recall:?}");
    for name in recall.keys().filter(|name| !other.contains(&name.as_str())) {
        assert!(share(&recall, name) >= 0.97, "{name}: {recall:?}");
    }
    assert!(share(&rest, "precision") >= 0.985, "{rest:?}");
    assert!(share(&rest, "hard_negative") <= 0.03, "{rest:?}");
}

#[test]
fn every_kind_of_credential_is_found() {
    let (recall, rest) = spans("secrets", "secret_leakage");
    for name in recall.keys() {
        assert!(share(&recall, name) >= 0.97, "{name}: {recall:?}");
    }
    assert!(share(&rest, "precision") >= 0.99, "{rest:?}");
    assert!(share(&rest, "hard_negative") <= 0.002, "{rest:?}");
}

/// Enforcement acts from High with a confidence of 0.8 on.
fn is_enforced(hit: &Hit) -> bool {
    hit.finding.severity >= Severity::High && hit.finding.confidence >= 0.8
}

#[test]
fn poisoned_definitions_of_tools_are_found_and_honest_ones_pass() {
    let mut detectors = Detectors::new();
    let (mut by_label, mut misses, mut alarms) = (Table::new(), Vec::new(), Vec::new());
    for (row, text) in definitions() {
        let hits = detectors.look_as(&text, PartKind::ToolDefinition);
        let label = row["label"].as_str().unwrap();
        let refused = hits.iter().any(is_enforced);
        count(&mut by_label, label, refused);
        let said = || hits.iter().map(|hit| (hit.finding.severity, hit.finding.evidence.clone())).collect::<Vec<_>>();
        match (label, refused) {
            ("poisoned", false) => misses.push((row["technique"].clone(), row["name"].clone(), said())),
            ("benign", _) if score(hits.iter().map(|hit| &hit.finding)) >= 60 => {
                alarms.push((row["name"].clone(), said()));
            }
            _ => {}
        }
    }
    println!("{by_label:?}");
    assert!(alarms.is_empty(), "{alarms:#?}");
    assert!(share(&by_label, "poisoned") >= 0.9, "{by_label:?} {misses:#?}");
}
