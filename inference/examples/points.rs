//! What the rules alone and the rules with the embedded classifier say of labelled texts, at each operating point: the gate as it
//! ships, for `inference/train/evaluate.py`.
//!
//! One JSON object per line in (`{"text", "role"}` and whatever else), one per line out: the same with `rules`, `high_recall`,
//! `balanced` and `high_precision`, the rules and `balanced` with the suppressor of over-defence (`rules_suppressed`, `suppressed`), and
//! with fusion at two points (`fused_high_recall`, `fused`), each whether there is a finding of Medium or worse that is about an order.

use std::error::Error;
use std::io::{BufRead as _, BufWriter, Write as _};
use std::sync::Arc;

use serde_json::{Value, json};
use weir_config::vocab::Severity;
use weir_inference::{Analyser, Call, EMBEDDED, OperatingPoint, Part, PartKind, PlanSettings};

/// Types that say nothing about an order.
const DATA_TYPES: [&str; 4] = ["pii_detected", "secret_leakage", "analysis_timeout", "analysis_truncated"];

fn main() -> Result<(), Box<dyn Error>> {
    let analyser = Analyser::whole(Vec::new())?.without_memory();
    let with = |settings| Arc::new(analyser.plan(&settings));
    let plan = |off, point| with(PlanSettings { off, point, ..PlanSettings::default() });
    let plans = [
        ("rules", plan(&[EMBEDDED], OperatingPoint::Balanced)),
        ("high_recall", plan(&[], OperatingPoint::HighRecall)),
        ("balanced", plan(&[], OperatingPoint::Balanced)),
        ("high_precision", plan(&[], OperatingPoint::HighPrecision)),
        ("rules_suppressed", with(PlanSettings { off: &[EMBEDDED], over_defence: true, ..PlanSettings::default() })),
        ("suppressed", with(PlanSettings { over_defence: true, ..PlanSettings::default() })),
        (
            "fused_high_recall",
            with(PlanSettings { fusion: true, point: OperatingPoint::HighRecall, ..PlanSettings::default() }),
        ),
        ("fused", with(PlanSettings { fusion: true, ..PlanSettings::default() })),
    ];
    let mut scratch = analyser.scratch();
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let mut row: Value = serde_json::from_str(&line?)?;
        let text = row["text"].as_str().unwrap_or_default().to_owned();
        let kind = if row["role"] == "tool" { PartKind::Tool } else { PartKind::User };
        for (name, plan) in &plans {
            let mut hits = Vec::new();
            analyser.analyse(&mut scratch, &[Part { text: &text, kind }], &Call::of(plan), &mut hits);
            let said = hits
                .iter()
                .map(|hit| &hit.finding)
                .any(|finding| finding.severity >= Severity::Medium && !DATA_TYPES.contains(&&*finding.finding_type));
            let Some(fields) = row.as_object_mut() else { return Err("a line is no object".into()) };
            fields.insert((*name).to_owned(), json!(said));
        }
        writeln!(out, "{row}")?;
    }
    Ok(())
}
