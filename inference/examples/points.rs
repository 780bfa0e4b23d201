//! What the rules alone and the rules with the embedded classifier say of labelled texts, at each operating point: the gate as it
//! ships, for `inference/train/evaluate.py`.
//!
//! One JSON object per line in (`{"text", "role"}` and whatever else), one per line out: the same with `rules`, `high_recall`,
//! `balanced` and `high_precision`, the rules and `balanced` with the suppressor of over-defence (`rules_suppressed`, `suppressed`), and
//! with fusion at two points (`fused_high_recall`, `fused`), each whether there is a finding of Medium or worse that is about an order;
//! and as `first` what the gate before the second stage is asked with.

use std::error::Error;
use std::io::{BufRead as _, BufWriter, Write as _};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use weir_config::vocab::Severity;
use weir_inference::{
    Analyser, Call, CostClass, Detector, EMBEDDED, FirstLook, Found, Gate, Kinds, OperatingPoint, Part, PartKind,
    PlanSettings, Text, Tuning,
};

/// Notes what a gate is asked with, and lets nothing through.
#[derive(Debug, Default)]
struct Listens(Mutex<Option<FirstLook>>);

impl Detector for Listens {
    fn name(&self) -> &'static str {
        "listens"
    }

    fn cost(&self) -> CostClass {
        CostClass::Model
    }

    fn reads(&self) -> Kinds {
        Kinds::of(&[PartKind::User, PartKind::Tool])
    }

    fn version(&self) -> u64 {
        0
    }

    fn is_gated(&self) -> bool {
        true
    }

    fn gate(&self, _text: &Text<'_>, first: &FirstLook, _tuning: &Tuning, _found: &mut Found<'_>) -> Gate {
        if let Ok(mut kept) = self.0.lock() {
            *kept = Some(*first);
        }
        Gate::Pass
    }

    fn look(&self, _text: &Text<'_>, _tuning: &Tuning, _found: &mut Found<'_>) {}
}

/// Types that say nothing about an order.
const DATA_TYPES: [&str; 4] = ["pii_detected", "secret_leakage", "analysis_timeout", "analysis_truncated"];

fn main() -> Result<(), Box<dyn Error>> {
    let listens = Arc::new(Listens::default());
    let analyser = Analyser::whole(vec![Arc::clone(&listens) as _])?.without_memory();
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
            let first = listens.0.lock().ok().and_then(|mut kept| kept.take());
            if let Some(first) = first.filter(|_| *name == "balanced") {
                let reported = first.reported.map_or(0, |severity| severity as u8 + 1);
                let FirstLook { words, suspected, quoted, addressed, .. } = first;
                let says = json!({ "words": words, "suspected": suspected, "quoted": quoted, "addressed": addressed, "reported": reported });
                fields.insert("first".to_owned(), says);
            }
        }
        writeln!(out, "{row}")?;
    }
    Ok(())
}
