//! Promise: the weights in the binary give known texts the logits that the exporter saw, on whichever processor.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Deserialize;

use super::SecondStage;
use super::transformer::Transformer;

/// How far processors and engines may be from each other: a value that is rounded the other way moves those behind it.
const TOLERANCE: f32 = 0.5;

#[derive(Deserialize)]
struct Known {
    text: String,
    logits: [f32; 2],
}

fn known() -> Vec<Known> {
    serde_json::from_str(include_str!("../../model/second-known.json")).unwrap()
}

#[test]
fn known_texts_have_known_logits() {
    let second = SecondStage::embedded().unwrap().unwrap();
    second.check().unwrap();
    let mut all = BTreeMap::new();
    for Known { text, logits } in known() {
        for (is_data, known) in [(false, logits[0]), (true, logits[1])] {
            let said = second.logit(&text, is_data).unwrap().unwrap();
            assert!((said - known).abs() <= TOLERANCE, "{text}: {said} {known}");
            all.insert((text.clone(), is_data), said);
        }
    }
    // The same whatever was run before, and in which order.
    for ((text, is_data), said) in all.into_iter().rev() {
        assert_eq!(second.logit(&text, is_data).unwrap(), Some(said));
    }
    let uses = second.uses();
    assert_eq!((uses.windows, uses.looked, uses.cpu), (4 * known().len() as u64 + 2, 0, Duration::ZERO));
}

#[test]
fn the_settings_are_those_of_the_weights() {
    use sha2::{Digest as _, Sha256};
    let settings: serde_json::Value = serde_json::from_str(include_str!("../../model/second.json")).unwrap();
    let digest = Sha256::digest(include_bytes!("../../model/second.rten"));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(settings["weights"], hex, "model/second.json: fit its curves and thresholds to these weights");
}

#[test]
fn a_graph_that_does_not_fit_is_refused_and_a_run_ends_when_told() {
    assert!(Transformer::load(b"no graph").unwrap_err().starts_with("second.rten: "));
    let engine = Transformer::load(rten::include_external_data!("../../model/second.rten")).unwrap();
    let (window, mut shown) = ([101, 2204, 2851, 102], 0);
    let (said, took) = engine.run(std::iter::repeat(&window[..]), |said| {
        shown += usize::from(said.is_some());
        if shown == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((said, shown), (Ok(()), 3));
    assert!(took > Duration::ZERO);
    let (said, _) = engine.run(std::iter::once(&[101, u32::MAX, 102][..]), |_| ControlFlow::Continue(()));
    assert!(said.is_ok(), "no such token: {said:?}");
    let (said, _) = engine.run(std::iter::once(&[101, 40_000, 102][..]), |_| ControlFlow::Continue(()));
    assert!(said.is_err());
}
