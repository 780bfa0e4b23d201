//! The contract of [`VerdictBook`], beside the log whose spans its findings join.

use uuid::Uuid;
use weir_config::vocab::{Finding, Severity, SpanId, Timestamp, TraceId};
use weir_storage::audit::AuditEvent;
use weir_storage::record::SpanRecord;
use weir_storage::{JudgeVerdict, LateFinding, SpanLog, Store, VerdictBook};

use super::checks;
use crate::support::{PATIENCE, page, span, tenant};

checks! { Store:
    a_late_finding_joins_its_span_once_and_raises_its_score,
    a_verdict_is_kept_once_and_is_its_tenant_s,
    verdicts_and_late_findings_go_with_their_trace,
}

fn put(store: &Store) -> SpanRecord {
    let span = SpanRecord { tenant_id: tenant(1), security_score: Some(30), ..span(5) };
    store.append(Box::new(span.clone())).unwrap();
    assert!(store.flush(PATIENCE));
    span
}

fn verdict(span: &SpanRecord) -> JudgeVerdict {
    JudgeVerdict {
        id: Uuid::new_v4(),
        trace_id: span.trace_id,
        tenant_id: span.tenant_id,
        is_threat: true,
        category: "jailbreak".to_owned(),
        confidence: 0.9,
        security_score: 85,
        recommended_action: "block".to_owned(),
        reasoning: "It asks for another persona.".to_owned(),
        mode: "async".to_owned(),
        backend: "selfhosted".to_owned(),
        model: "judge".to_owned(),
        latency_ms: 12,
        prompt_tokens: 900,
        completion_tokens: 50,
        created_at: Timestamp::from_micros(77),
    }
}

fn late(span: &SpanRecord) -> LateFinding {
    let finding = Finding::new("llm_judge_verdict", Severity::High, 0.9, "judge", "The judge says so.");
    LateFinding { tenant: span.tenant_id, span: span.span_id, finding: Some(finding), verdict: Some(verdict(span)) }
}

fn a_late_finding_joins_its_span_once_and_raises_its_score(store: &Store) {
    let span = put(store);
    let (findings, score) = (span.security_findings.len(), store.list_findings(tenant(1), page(9, 0)).unwrap().total);
    assert_eq!(score, 1);
    let (late, counted) = (late(&span), store.stats(tenant(1)).unwrap());
    for _ in 0..2 {
        assert!(store.add_late(late.clone()).unwrap());
    }
    let shown = store.span(tenant(1), span.span_id).unwrap().unwrap();
    assert_eq!(shown.security_findings.len(), findings + 1);
    assert_eq!(shown.security_findings.last(), late.finding.as_ref());
    assert_eq!(shown.security_score, Some(Severity::High.score()));
    assert_eq!(store.stats(tenant(1)).unwrap().total_findings, counted.total_findings + 1);
    let foreign = LateFinding { tenant: tenant(2), ..late.clone() };
    assert!(!store.add_late(foreign).unwrap(), "a foreign span is none");
    assert!(!store.add_late(LateFinding { span: SpanId::fresh(), ..late }).unwrap());
}

fn a_verdict_is_kept_once_and_is_its_tenant_s(store: &Store) {
    let span = put(store);
    let late = LateFinding { finding: None, ..late(&span) };
    for _ in 0..2 {
        assert!(store.add_late(late.clone()).unwrap());
    }
    assert_eq!(store.list_verdicts(tenant(1), span.trace_id).unwrap(), [late.verdict.unwrap()]);
    assert_eq!(store.list_verdicts(tenant(2), span.trace_id).unwrap(), []);
    assert_eq!(store.list_verdicts(tenant(1), TraceId::fresh()).unwrap(), []);
    assert_eq!(store.span(tenant(1), span.span_id).unwrap().unwrap(), span, "the span stays as it was");
}

fn verdicts_and_late_findings_go_with_their_trace(store: &Store) {
    let span = put(store);
    assert!(store.add_late(late(&span)).unwrap());
    let by = AuditEvent {
        tenant: Some(tenant(1)),
        actor: "test".to_owned(),
        action: "trace.delete".to_owned(),
        target: None,
        detail: std::collections::BTreeMap::new(),
    };
    assert!(store.delete_trace(tenant(1), span.trace_id, by).unwrap());
    assert_eq!(store.list_verdicts(tenant(1), span.trace_id).unwrap(), []);
    assert_eq!(store.stats(tenant(1)).unwrap().total_findings, 0, "the sums follow");
}
