//! What both stages say of rows of texts, from which the gates and curves of `model/second.json` are fitted:
//!
//!     cargo run -p weir-models --example second < rows.jsonl > said.jsonl
//!
//! A row has `folded`, `decoded` and `role` (`tool` is data), as `inference/train/prepare.py` writes them; what else it has is passed on.
//! Each gets `words`, `suspected`, `reported`, `quoted`, `addressed` (what the gate is asked with) and `second` (the logit of its role).

#![allow(clippy::unwrap_used, reason = "a tool of developers")]

use std::io::{BufRead as _, Write as _};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use weir_inference::{
    Analyser, Call, CostClass, Detector, FirstLook, Found, Gate, Part, PartKind, PlanSettings, Text, Tuning,
};
use weir_models::SecondStage;

/// Keeps what a gate is asked with.
#[derive(Debug, Default)]
struct Keeper(Mutex<Option<FirstLook>>);

impl Detector for Keeper {
    fn name(&self) -> &'static str {
        "keeper"
    }

    fn cost(&self) -> CostClass {
        CostClass::Model
    }

    fn is_gated(&self) -> bool {
        true
    }

    fn gate(&self, _text: &Text<'_>, first: &FirstLook, _tuning: &Tuning, _found: &mut Found<'_>) -> Gate {
        *self.0.lock().unwrap() = Some(*first);
        Gate::Pass
    }

    fn look(&self, _text: &Text<'_>, _tuning: &Tuning, _found: &mut Found<'_>) {}
}

fn main() {
    let Some(second) = SecondStage::embedded().unwrap() else { return eprintln!("built without model/second.rten") };
    let keeper = Arc::new(Keeper::default());
    let analyser = Analyser::whole(vec![Arc::clone(&keeper) as _]).unwrap();
    let plan = Arc::new(analyser.plan(&PlanSettings::default()));
    let mut scratch = analyser.scratch();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let mut row: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let folded = row["folded"].as_str().unwrap().to_owned();
        let is_data = row["role"] == "tool";
        let kind = if is_data { PartKind::Tool } else { PartKind::User };
        analyser.analyse(&mut scratch, &[Part { text: &folded, kind }], &Call::of(&plan), &mut Vec::new());
        let first = keeper.0.lock().unwrap().take();
        let decoded = row["decoded"].as_array().into_iter().flatten().filter_map(Value::as_str).take(8);
        let whole = std::iter::once(&*folded).chain(decoded).collect::<Vec<_>>().join(" ");
        row["words"] = json!(first.and_then(|first| first.words));
        row["suspected"] = json!(first.is_some_and(|first| first.suspected));
        row["reported"] = json!(first.and_then(|first| first.reported).map(|severity| format!("{severity:?}")));
        row["quoted"] = json!(first.is_some_and(|first| first.quoted));
        row["addressed"] = json!(first.is_some_and(|first| first.addressed));
        row["second"] = json!(second.logit(&whole, is_data).unwrap());
        for long in ["folded", "decoded"] {
            row.as_object_mut().unwrap().remove(long);
        }
        writeln!(out, "{row}").unwrap();
    }
}
