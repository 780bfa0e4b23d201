//! What the detectors say of labelled texts as they ship, words, rules and second stage, for `inference/train/shipped.py`:
//!
//!     cargo run --release -p weir-models --example shipped < rows.jsonl > said.jsonl
//!
//! A row has `text` and `role` (`tool` is data). It comes out without its text and with `others` (the score that words and rules alone
//! give it, credentials and personal data aside), `others_refuse` (whether enforcement would refuse it for that by its defaults) and
//! `second` (the probability that the second stage gives it, nothing where it did not look or took it for a quotation).

#![allow(clippy::unwrap_used, reason = "a tool of developers")]

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;

use serde_json::{Value, json};
use weir_config::vocab::{Finding, Severity, score};
use weir_inference::{Analyser, Call, Levels, Part, PartKind, PlanSettings, SECOND_STAGE};
use weir_models::SecondStage;

/// Types that say nothing about an attack on the model.
const DATA_TYPES: [&str; 4] = ["pii_detected", "secret_leakage", "analysis_timeout", "analysis_truncated"];
/// From this probability on the second stage is heard.
const LEAST: f64 = 0.005;
/// `enforcement.min_confidence`.
const SURE: f64 = 0.8;

fn main() {
    let Some(second) = SecondStage::embedded().unwrap() else { return eprintln!("built without model/second.rten") };
    let analyser = Analyser::whole(vec![second as _]).unwrap().without_memory();
    let plan = Arc::new(analyser.plan(&PlanSettings {
        levels: Levels { finding: Some(LEAST), flag: Some(LEAST), block: Some(LEAST) },
        shares: &[(SECOND_STAGE, f64::INFINITY)],
        ..PlanSettings::default()
    }));
    let mut scratch = analyser.scratch();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let mut row: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let text = row["text"].take().as_str().unwrap_or_default().to_owned();
        let kind = if row["role"] == "tool" { PartKind::Tool } else { PartKind::User };
        let mut hits = Vec::new();
        let ran = analyser.analyse(&mut scratch, &[Part { text: &text, kind }], &Call::of(&plan), &mut hits);
        if let Some(later) = &ran.later {
            hits.extend(analyser.look_here(&mut scratch, later).hits);
        }
        let orders = hits.into_iter().map(|hit| hit.finding);
        let orders = orders.filter(|finding| !DATA_TYPES.contains(&&*finding.finding_type));
        let (second, others): (Vec<Finding>, Vec<Finding>) =
            orders.partition(|finding| finding.detector == SECOND_STAGE);
        let loud = second.iter().filter(|finding| finding.severity >= Severity::Medium);
        let refuses = |finding: &Finding| finding.severity >= Severity::High && finding.confidence >= SURE;
        row["others"] = json!(score(&others));
        row["others_refuse"] = json!(others.iter().any(refuses));
        row["second"] = json!(loud.map(|finding| finding.confidence).reduce(f64::max));
        row.as_object_mut().unwrap().remove("text");
        writeln!(out, "{row}").unwrap();
    }
}
