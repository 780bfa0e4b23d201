//! Promise: looking at a text takes memory in proportion to it, whatever it repeats, with everything switched on.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests fail by panicking, their helpers too.

#[path = "../../tests/hostile/peak.rs"]
mod peak;
#[path = "../../tests/hostile/texts.rs"]
mod texts;

use std::sync::Arc;

use peak::{Bound, assert_bounded};
use weir_inference::action::{self, Action, ActionKind};
use weir_inference::{
    Analyser, Call, OperatorRules, Original, Part, PartKind, PlanSettings, Taker, Taking, personal_data,
};

const RULES: &str = "
rules:
  - id: project-name
    type: data_leakage
    severity: High
    confidence: 0.9
    about: Names the secret project
    scope: [user, output, tool]
    before: 16
    literals: [previous, password]
    pattern: '(all )?(previous|password)'
    hits: ['the password']
    misses: ['a bluebird sings']
";

/// Rules, models, decoded texts, what operators add, and what all of them say together.
#[test]
fn the_detectors() {
    let rules = OperatorRules::read(&[("own.yaml".to_owned(), RULES.to_owned())]).unwrap();
    let analyser = Analyser::whole(Vec::new()).unwrap().without_memory().with_operator(Arc::new(rules)).unwrap();
    let settings = PlanSettings { fusion: true, over_defence: true, ..PlanSettings::default() };
    let plan = Arc::new(analyser.plan(&settings));
    for kind in [PartKind::User, PartKind::Output, PartKind::Tool, PartKind::ToolCall, PartKind::ToolDefinition] {
        let mut hits = Vec::new();
        assert_bounded(&format!("the detectors, {kind:?}"), Bound::mine(8, 8 << 20), |text| {
            let mut scratch = analyser.scratch();
            hits.clear();
            analyser.analyse(&mut scratch, &[Part { text, kind }], &Call::of(&plan), &mut hits);
        });
    }
}

#[test]
fn what_is_taken_out_of_texts() {
    assert_bounded("what is taken out of answers", Bound::mine(8, 1 << 20), |text| {
        let mut taker = Taker::new(Taking { personal: true, secrets: true });
        let found = taker.pieces(text, PartKind::Output);
        taker.settled(text, &found);
    });
    assert_bounded("personal data", Bound::mine(8, 1 << 20), |text| {
        personal_data(text, PartKind::User);
    });
}

#[test]
fn an_answer_that_repeats_its_instructions() {
    assert_bounded("instructions", Bound::mine(8, 1 << 20), |text| {
        if let Some(original) = Original::of([text, text].into_iter()) {
            original.repeated_in(text);
        }
    });
}

#[test]
fn the_checks_of_actions() {
    for (name, kind) in
        [("a command", ActionKind::Command), ("an address", ActionKind::Web), ("a file", ActionKind::File)]
    {
        assert_bounded(name, Bound::mine(8, 8 << 20), |text| {
            action::check(&Action { kind, name: text, arguments: None, writes: true }, None);
        });
    }
    assert_bounded("arguments", Bound::mine(8, 8 << 20), |text| {
        action::check(&Action { kind: ActionKind::Tool, name: "bash", arguments: Some(text), writes: false }, None);
    });
    assert_bounded("a tool's command", Bound::mine(8, 8 << 20), |text| {
        let arguments = serde_json::json!({ "command": text, "args": [text] }).to_string();
        action::check(&Action { kind: ActionKind::Tool, name: "x", arguments: Some(&arguments), writes: false }, None);
    });
}
