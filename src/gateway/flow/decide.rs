//! The stage that decides over what is known of a request. Does no I/O.

use weir_config::settings::AnalysisDepth;
use weir_config::vocab::{Finding, Operation};
use weir_inference::{CLASSIFIER, FUSION};

use super::exchange::{Exchange, Stopped};
use super::outside::Heard;
use crate::enforce::{self, Decision, Unseen};
use crate::exchange::{Analysis, Payload, Refusal, Skip};
use crate::inspect::Takes;
use crate::settle::text::RequestText;

/// A request that enforcement lets through.
pub(super) struct Enforced {
    pub(super) exchange: Box<Exchange>,
    pub(super) payload: Payload,
    decision: Decision,
}

/// Decides over all that is known of the request.
pub(super) fn enforce(heard: Heard) -> Result<Enforced, Stopped> {
    let (mut exchange, payload) = heard.into_parts();
    let decided = decide(&mut exchange);
    exchange.then(decided, |exchange, decision| Enforced { exchange, payload, decision })
}

pub(super) fn decide(exchange: &mut Exchange) -> Result<Decision, Refusal> {
    refuse_unseen(exchange)?;
    let rules = &exchange.journal.settings.enforcement;
    let findings = &exchange.journal.inspection.findings;
    let by_rules: Vec<Finding>;
    let findings = match exchange.journal.settings.enforcement_analysis_depth {
        AnalysisDepth::Full => findings.as_slice(),
        // What is learned is recorded, and has no say in what rules alone decide.
        AnalysisDepth::Fast => {
            let is_learned = |finding: &&Finding| [CLASSIFIER, FUSION].contains(&finding.detector.as_ref());
            by_rules = findings.iter().filter(|finding| !is_learned(finding)).cloned().collect();
            by_rules.as_slice()
        }
    };
    let decision = enforce::decide(findings, rules);
    let refusal = (decision == Decision::Block).then(|| enforce::refusal(findings, rules));
    exchange.journal.enforced(decision.as_str());
    refusal.map_or(Ok(decision), Err)
}

/// Refuses what the settings do not let pass, whatever was found in it.
fn refuse_unseen(exchange: &Exchange) -> Result<(), Refusal> {
    let inspection = &exchange.journal.inspection;
    let RequestText::Read(view) = &inspection.text else { return Ok(()) };
    let operation = exchange.route.operation;
    if !exchange.settings().enable_streaming && view.streams(exchange.route.dialect, operation) {
        return Err(enforce::streaming_refusal());
    }
    // A request that does not wait for the analysis is not asked how much of the text the analysis saw. One that was begun and did not
    // end (a model's queue was full) has seen what it has seen.
    let has_seen = match inspection.analysis {
        Analysis::Ran | Analysis::Rules => true,
        Analysis::Skipped(skip) => matches!(skip, Skip::Timeout | Skip::QueueFull | Skip::Error),
        Analysis::Due => false,
    };
    if !has_seen {
        return Ok(());
    }
    let seen = Unseen {
        unread: view.unread(),
        unreadable: view.unreadable,
        takes_files: exchange.takes() == Takes::Files,
        is_embedding: operation == Operation::Embedding,
    };
    enforce::refuse_unread(&seen, &exchange.settings().enforcement)
}

impl Enforced {
    /// What was decided.
    pub(super) fn decision(&self) -> Decision {
        self.decision
    }
}
