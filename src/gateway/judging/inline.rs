//! Asks about a request before it is forwarded.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use weir_config::Settings;
use weir_config::settings::{EnforcementMode, RouterAction};
use weir_config::vocab::Finding;

use super::late::Asking;
use crate::judge::{Candidate, Case, CaseQueue, Mode, Ruling};
use crate::process::{OutsideVerdict, Question, Verdict};

/// See the module.
pub(super) struct Inline {
    cases: CaseQueue,
    asked: Asking,
    settings: Arc<ArcSwap<Settings>>,
}

impl Inline {
    pub(super) fn new(cases: CaseQueue, asked: Asking, settings: Arc<ArcSwap<Settings>>) -> Self {
        Self { cases, asked, settings }
    }
}

/// What a ruling about a request is in its record.
pub(super) fn finding_of(ruling: &Ruling) -> Finding {
    let mut finding = ruling.finding();
    if ruling.mode == Mode::Inline {
        "request".clone_into(&mut finding.location);
    }
    finding
}

impl OutsideVerdict for Inline {
    fn name(&self) -> &'static str {
        "judge"
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.settings.load().action_router.inline_timeout_ms)
    }

    fn ask(&self, question: &Question<'_>) -> Option<Verdict> {
        let settings = self.settings.load();
        let asks = |finding| settings.action_router.actions(finding).has(RouterAction::JudgeRoute);
        // A verdict could do nothing in mode log; what is not taken in here is counted when the call has ended.
        let is_worth = settings.enforcement.mode != EnforcementMode::Log
            && question.findings.iter().any(asks)
            && self.cases.would_take(question.findings);
        if !is_worth {
            return None;
        }
        let max = settings.judge.worker.max_text_bytes;
        let case = Case {
            tenant: question.tenant,
            candidate: Candidate::choose(question.texts, question.findings, max),
            prior: question.findings.to_vec(),
            blocked: false,
            mode: Mode::Inline,
        };
        let (told, later) = self.cases.submit_for_two(case).unzip();
        self.asked.note(question.span, later);
        let told = told?;
        Some(Box::pin(async move {
            let finding = told.await.ok().map(|ruling| finding_of(&ruling));
            finding.into_iter().collect()
        }))
    }
}
