//! Harmless sentences that hold the words of attacks are not refused, at defaults and with the classifier; the attacks beside them are.
//!
//! `tests/data/harmless.jsonl`: what was said, by whom, and why it might be mistaken. Refused is what is High with a confidence of 0.8,
//! as `enforcement` has it by default.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use weir_config::vocab::Severity;
use weir_inference::{Analyser, Call, Hit, Part, PartKind, PlanSettings};

/// Harmless rows that there are at least.
const HARMLESS_MIN: usize = 200;
/// Attacks that there are at least.
const ATTACKS_MIN: usize = 40;

fn rows() -> Vec<Value> {
    let path = format!("{}/tests/data/harmless.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kind(row: &Value) -> PartKind {
    match row["kind"].as_str().unwrap() {
        "user" => PartKind::User,
        "tool" => PartKind::Tool,
        "def" => PartKind::ToolDefinition,
        other => panic!("no role is called {other}"),
    }
}

fn is_refused(hit: &Hit) -> bool {
    hit.finding.severity >= Severity::High && hit.finding.confidence >= 0.8
}

/// Texts of the rows with a label, by group, for which the verdict is another one.
fn wrong(label: &str, wanted: bool) -> (usize, BTreeMap<String, Vec<String>>) {
    let analyser = Analyser::whole(Vec::new()).unwrap().without_memory();
    let plan = Arc::new(analyser.plan(&PlanSettings::default()));
    let mut scratch = analyser.scratch();
    let (mut count, mut wrong) = (0, BTreeMap::<String, Vec<String>>::new());
    for row in rows().iter().filter(|row| row["label"] == label) {
        let (text, mut hits) = (row["text"].as_str().unwrap(), Vec::new());
        let part = Part { text, kind: kind(row) };
        analyser.analyse(&mut scratch, &[part], &Call::of(&plan), &mut hits);
        count += 1;
        if hits.iter().any(is_refused) != wanted {
            wrong.entry(row["group"].as_str().unwrap().to_owned()).or_default().push(text.to_owned());
        }
    }
    (count, wrong)
}

#[test]
fn harmless_sentences_with_the_words_of_attacks_are_not_refused() {
    let (count, wrong) = wrong("harmless", false);
    assert!(count >= HARMLESS_MIN, "{count}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_attacks_beside_them_are_refused() {
    let (count, wrong) = wrong("attack", true);
    assert!(count >= ATTACKS_MIN, "{count}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
