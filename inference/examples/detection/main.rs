//! Measures detection on labelled data and writes the figures as a document.
//!
//! `cargo run --release -p weir-inference --example detection -- DIR [--out FILE] [--held]`: DIR holds `prompts-dev.jsonl`
//! and `prompts-dev-2.jsonl`, `pii.jsonl` and `secrets.jsonl`, one JSON object per line. A tenth of the second file, by
//! source, is left out unless `--held` is given, which looks at nothing else. `--plain NAME` prints for the encoding of
//! that name what was missed.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use weir_inference::{Analyser, Call, Hit, OperatingPoint, Part, PartKind, Plan, PlanSettings, Scratch};

#[path = "../../tests/encodings/mod.rs"]
mod encodings;
mod nested;
mod report;
mod rows;

use rows::Row;

/// A text is flagged from this score on.
pub(crate) const FLAGGED: u8 = 60;
/// Types that say nothing about an attack on the model.
const DATA_TYPES: [&str; 2] = ["pii_detected", "secret_leakage"];

/// What was seen in one text.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// Severity of the worst finding, 0 to 100.
    pub(crate) score: u8,
    /// How sure the surest finding of at least [`FLAGGED`] is.
    pub(crate) confidence: f64,
}

impl Seen {
    /// Whether it counts as an attack.
    pub(crate) const fn is_flagged(self) -> bool {
        self.score >= FLAGGED
    }
}

/// The detectors and their memory.
pub(crate) struct Detectors {
    analyser: Analyser,
    plan: Arc<Plan>,
    scratch: Scratch,
}

impl Detectors {
    fn new() -> Result<Self, Box<dyn Error>> {
        let analyser = Analyser::builtin()?.without_memory();
        let plan = Arc::new(analyser.plan(&PlanSettings::default()));
        Ok(Self { scratch: analyser.scratch(), plan, analyser })
    }

    /// From now on at another operating point.
    fn set_point(&mut self, point: OperatingPoint) {
        self.plan = Arc::new(self.analyser.plan(&PlanSettings { point, ..PlanSettings::default() }));
    }

    /// All findings in a text of this role.
    pub(crate) fn hits(&mut self, text: &str, kind: PartKind) -> Vec<Hit> {
        let mut hits = Vec::new();
        self.analyser.analyse(&mut self.scratch, &[Part { text, kind }], &Call::of(&self.plan), &mut hits);
        hits
    }

    /// What they say of an attack.
    pub(crate) fn look(&mut self, text: &str, kind: PartKind) -> Seen {
        let mut seen = Seen::default();
        for hit in self.hits(text, kind) {
            let finding = hit.finding;
            if DATA_TYPES.contains(&finding.finding_type.as_ref()) {
                continue;
            }
            let score = finding.severity.score();
            seen.score = seen.score.max(score);
            if score >= FLAGGED {
                seen.confidence = seen.confidence.max(finding.confidence);
            }
        }
        seen
    }
}

/// What was asked for.
struct Options {
    folder: PathBuf,
    out: PathBuf,
    held: bool,
    plain: Option<String>,
}

impl Options {
    fn read() -> Result<Self, Box<dyn Error>> {
        let mut args = std::env::args().skip(1);
        let mut options = Self { folder: PathBuf::new(), out: "docs/detection.md".into(), held: false, plain: None };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--out" => options.out = args.next().ok_or("--out takes a file")?.into(),
                "--plain" => options.plain = Some(args.next().ok_or("--plain takes the name of an encoding")?),
                "--held" => options.held = true,
                _ => options.folder = arg.into(),
            }
        }
        if options.folder.as_os_str().is_empty() {
            return Err("usage: detection DIR [--out FILE] [--held] [--plain NAME]".into());
        }
        Ok(options)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::read()?;
    let mut detectors = Detectors::new()?;
    let rows = rows::read(&options.folder, options.held)?;
    let judged: Vec<(&Row, Seen)> = rows.iter().map(|row| (row, detectors.look(&row.text, row.kind()))).collect();
    let as_data: Vec<(&Row, Seen)> = rows
        .iter()
        .filter(|row| row.label == "benign")
        .map(|row| (row, detectors.look(&row.text, PartKind::Tool)))
        .collect();
    if options.held {
        println!("{}", report::labels(&judged));
        return Ok(());
    }
    if let Some(name) = options.plain {
        rows::print_missed(&mut detectors, &rows, &name);
        return Ok(());
    }
    let encoded = rows::encoded(&mut detectors, &rows);
    let nested = nested::look(&mut detectors, &rows).table();
    let sure = surenesses(&mut detectors, &rows);
    let pii = spans(&mut detectors, &options.folder.join("pii.jsonl"), "pii_detected", "pii_type")?;
    let secrets = spans(&mut detectors, &options.folder.join("secrets.jsonl"), "secret_leakage", "secret_type")?;
    detectors.set_point(OperatingPoint::HighRecall);
    let recall: Vec<(&Row, Seen)> = rows.iter().map(|row| (row, detectors.look(&row.text, row.kind()))).collect();
    let looks = report::Looks { judged: &judged, as_data: &as_data, recall: &recall };
    let document = report::document(&looks, &encoded, &nested, &sure, (&pii, &secrets));
    std::fs::write(&options.out, document)?;
    println!("{}", report::labels(&judged));
    Ok(())
}

/// How sure a finding says it is, and whether it stands in an attack.
pub(crate) struct Sureness {
    pub(crate) finding_type: String,
    pub(crate) confidence: f64,
    pub(crate) is_attack: bool,
}

/// Of all findings in natural texts, at most one of a type in each: the surest.
fn surenesses(detectors: &mut Detectors, rows: &[Row]) -> Vec<Sureness> {
    let mut sure = Vec::new();
    for row in rows.iter().filter(|row| row.is_natural()) {
        let mut surest: BTreeMap<String, f64> = BTreeMap::new();
        for hit in detectors.hits(&row.text, row.kind()) {
            let finding = hit.finding;
            if DATA_TYPES.contains(&finding.finding_type.as_ref()) || finding.severity.score() < FLAGGED {
                continue;
            }
            let slot = surest.entry(finding.finding_type.to_string()).or_default();
            *slot = slot.max(finding.confidence);
        }
        let is_attack = row.label != "benign";
        sure.extend(surest.into_iter().map(|(finding_type, confidence)| Sureness {
            finding_type,
            confidence,
            is_attack,
        }));
    }
    sure
}

/// Right answers and all of them.
pub(crate) type Share = (usize, usize);

/// How well data with marked places is found.
pub(crate) struct Spans {
    /// Marked places that were found, by type.
    pub(crate) recall: BTreeMap<String, Share>,
    /// Findings at marked places, by type.
    pub(crate) precision: BTreeMap<String, Share>,
    /// Texts without any that have a finding, and all of them.
    pub(crate) look_alikes: Share,
}

fn spans(detectors: &mut Detectors, file: &Path, finding_type: &str, key: &str) -> Result<Spans, Box<dyn Error>> {
    let mut spans = Spans { recall: BTreeMap::new(), precision: BTreeMap::new(), look_alikes: (0, 0) };
    for line in std::fs::read_to_string(file)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        let text = match row.get("parts").and_then(Value::as_array) {
            Some(parts) => parts.iter().filter_map(Value::as_str).collect(),
            None => rows::field(&row, "text").to_owned(),
        };
        let mut hits = detectors.hits(&text, PartKind::User);
        hits.retain(|hit| hit.finding.finding_type == finding_type);
        let byte_at = |point: u64| text.char_indices().nth(point as usize).map_or(text.len(), |(at, _)| at);
        let marked = row.get("spans").and_then(Value::as_array).into_iter().flatten();
        let gold: Vec<(usize, usize, &str)> = marked
            .map(|span| {
                let edge = |name: &str| byte_at(span.get(name).and_then(Value::as_u64).unwrap_or(0));
                (edge("start"), edge("end"), rows::field(span, "type"))
            })
            .collect();
        let places = || hits.iter().filter_map(|hit| hit.finding.span.map(|span| (span.start, span.end)));
        for (start, end, kind) in &gold {
            count(&mut spans.recall, kind, places().any(|(from, to)| from < *end && *start < to));
        }
        for (hit, (from, to)) in hits.iter().zip(places()) {
            let kind = hit.finding.metadata.get(key).cloned().unwrap_or_default();
            count(&mut spans.precision, &kind, gold.iter().any(|(start, end, _)| from < *end && *start < to));
        }
        if rows::field(&row, "kind") == "hard_negative" {
            spans.look_alikes.0 += usize::from(!hits.is_empty());
            spans.look_alikes.1 += 1;
        }
    }
    Ok(spans)
}

/// Counts one answer under a name.
pub(crate) fn count(table: &mut BTreeMap<String, Share>, name: &str, right: bool) {
    let entry = table.entry(name.to_owned()).or_default();
    entry.0 += usize::from(right);
    entry.1 += 1;
}
