//! Asks about calls that have ended, and keeps what was said, of them and before they were forwarded.

use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use weir_config::Settings;
use weir_config::settings::{ActionRouter, RouterAction};
use weir_config::vocab::part::{PartKind, PartRecord, PartSide};
use weir_config::vocab::{Finding, JUDGE_VERDICT, TenantId, TraceId};
use weir_storage::record::SpanRecord;
use weir_storage::{JudgeVerdict, LateFinding, VerdictBook};

use super::inline::finding_of;
use super::late::Asked;
use crate::feed::{Batch, Consumer, Failure};
use crate::judge::{Candidate, Case, CaseQueue, Mode, Told};
use crate::redaction::Beside;
use crate::router::{Tally, follow};

/// Where verdicts are kept; set before the first span comes.
pub(super) type Book = Arc<OnceLock<Arc<dyn VerdictBook>>>;

/// The consumer.
pub(super) struct Finished {
    cases: CaseQueue,
    router: Arc<ActionRouter>,
    tally: Arc<Tally>,
    book: Book,
    asked: Asked,
    max_text_bytes: usize,
    persist: bool,
    /// What a verdict's reasons do not keep.
    settings: Arc<ArcSwap<Settings>>,
}

impl Finished {
    pub(super) fn new(
        cases: CaseQueue,
        live: &Arc<ArcSwap<Settings>>,
        tally: Arc<Tally>,
        book: Book,
        asked: Asked,
    ) -> Self {
        let settings = live.load();
        let router = Arc::new(settings.action_router.clone());
        let (max_text_bytes, persist) = (settings.judge.worker.max_text_bytes, settings.judge.persist);
        Self { cases, router, tally, book, asked, max_text_bytes, persist, settings: Arc::clone(live) }
    }

    /// Asks.
    fn ask(&self, span: &SpanRecord) {
        let texts = texts(span);
        let case = Case {
            tenant: span.tenant_id,
            candidate: Candidate::choose(&texts, &span.security_findings, self.max_text_bytes),
            prior: span.security_findings.clone(),
            blocked: span.enforcement == "blocked",
            mode: Mode::Async,
        };
        if let Some(told) = self.cases.submit(case) {
            self.keep_when_told(span, told);
        }
    }

    /// Has a verdict kept when it is there.
    fn keep_when_told(&self, span: &SpanRecord, told: Told) {
        let (cases, book, persist) = (self.cases.clone(), Arc::clone(&self.book), self.persist);
        let (place, settings) = ((span.tenant_id, span.span_id, span.trace_id), Arc::clone(&self.settings));
        // As many as the worker's queue and its places hold.
        tokio::spawn(async move {
            let Ok(ruling) = told.await else { return };
            let (mut finding, (tenant, span, trace)) = (finding_of(&ruling), place);
            Beside::of(&settings.load(), "").text("", "", &mut finding.evidence);
            let verdict = persist.then(|| kept(&finding, (tenant, trace)));
            keep(&cases, &book, LateFinding { tenant, span, finding: Some(finding), verdict }).await;
        });
    }

    /// Keeps the verdict that a request got before it was forwarded.
    async fn keep_inline(&self, span: &SpanRecord, finding: &Finding) {
        if self.persist && finding.metadata.get("mode").is_some_and(|mode| mode == Mode::Inline.as_str()) {
            let verdict = Some(kept(finding, (span.tenant_id, span.trace_id)));
            let late = LateFinding { tenant: span.tenant_id, span: span.span_id, finding: None, verdict };
            keep(&self.cases, &self.book, late).await;
        }
    }
}

impl Consumer for Finished {
    fn name(&self) -> &'static str {
        "judge"
    }

    /// What a request was asked about before it was forwarded only its own process knows.
    fn reads_alone(&self) -> bool {
        !self.router.inline_await
    }

    fn heeds_clean_calls(&self) -> bool {
        false
    }

    async fn take(&mut self, batch: Batch<'_>) -> Result<(), Failure> {
        for span in batch.spans {
            let said = span.security_findings.iter().find(|finding| finding.finding_type == JUDGE_VERDICT);
            let is_asked = follow(span, &self.router).asked.has(RouterAction::JudgeRoute);
            if is_asked {
                self.tally.executed(RouterAction::JudgeRoute);
            }
            match (said, self.asked.take(span.span_id)) {
                (Some(finding), _) => self.keep_inline(span, finding).await,
                // Its request did not wait so long, or could not be asked about: once is enough.
                (None, Some(asked)) => asked.into_iter().for_each(|told| self.keep_when_told(span, told)),
                (None, None) if is_asked => self.ask(span),
                (None, None) => {}
            }
        }
        Ok(())
    }
}

/// What was said in a call, part by part where the parts are known.
fn texts(span: &SpanRecord) -> Vec<(PartKind, &str)> {
    let side = |side| match side {
        PartSide::Request => span.prompt.as_deref(),
        PartSide::Response => span.response.as_deref(),
    };
    let of_part = |part: &PartRecord| {
        let range = part.text.clone()?;
        let text = side(part.side)?.get(range.start as usize..range.end as usize)?;
        Some((part.kind, text))
    };
    let parts: Vec<_> = span.parts.iter().filter_map(of_part).collect();
    if !parts.is_empty() {
        return parts;
    }
    let whole = [(PartKind::User, span.prompt.as_deref()), (PartKind::Output, span.response.as_deref())];
    whole.into_iter().filter_map(|(kind, text)| Some((kind, text?))).collect()
}

/// The record of the verdict that became `finding`.
fn kept(finding: &Finding, (tenant_id, trace_id): (TenantId, TraceId)) -> JudgeVerdict {
    let said = |name: &str| finding.metadata.get(name).cloned().unwrap_or_default();
    fn number<T: FromStr + Default>(text: &str) -> T {
        text.parse().unwrap_or_default()
    }
    JudgeVerdict {
        id: finding.id,
        trace_id,
        tenant_id,
        is_threat: said("is_threat") == "true",
        category: said("category"),
        confidence: finding.confidence,
        security_score: number(&said("security_score")),
        recommended_action: said("recommended_action"),
        reasoning: finding.evidence.clone(),
        mode: said("mode"),
        backend: said("backend"),
        model: said("model"),
        latency_ms: number(&said("latency_ms")),
        prompt_tokens: number(&said("prompt_tokens")),
        completion_tokens: number(&said("completion_tokens")),
        created_at: finding.detected_at,
    }
}

async fn keep(cases: &CaseQueue, book: &Book, late: LateFinding) {
    let Some(book) = book.get().cloned() else { return cases.not_kept() };
    match tokio::task::spawn_blocking(move || book.add_late(late)).await {
        Ok(Ok(true)) => {}
        // The span was deleted, or never stored.
        Ok(Ok(false)) => cases.not_kept(),
        Ok(Err(error)) => {
            cases.not_kept();
            tracing::warn!(%error, "a verdict of the judge could not be kept");
        }
        Err(error) => {
            cases.not_kept();
            tracing::error!(%error, "keeping a verdict of the judge failed");
        }
    }
}
