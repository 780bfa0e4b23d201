//! Every field of a record comes back as it went in, from both profiles and after reopening the file.

use std::borrow::Cow;
use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use tempfile::TempDir;
use uuid::Uuid;
use weir_config::vocab::{ByteSpan, Finding, Severity, SpanId, TenantId, Timestamp, TraceId};
use weir_storage::Backend;
use weir_storage::SpanLog as _;
use weir_storage::Store;
use weir_storage::query::{SpanFilter, TraceFilter};
use weir_storage::record::{AgentAction, Attributes, SpanEvent, SpanRecord};

use crate::support::{PATIENCE, ROOMY, file, on_both, open, options, page, put, span, tenant, total};

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_map(Uuid::from_bytes)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-z ,.]{0,40}", 1 => ".{0,60}", 1 => "[a-zA-Z0-9+/]{0,400}", 1 => "(lorem ipsum, ){0,900}"]
}

fn name() -> impl Strategy<Value = Cow<'static, str>> {
    "[a-z_]{0,20}".prop_map(Cow::Owned)
}

fn map() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[a-z_]{0,8}", ".{0,20}", 0..4)
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let value = prop_oneof![
        Just(serde_json::Value::Null),
        any::<i64>().prop_map(Into::into),
        text().prop_map(Into::into),
        vec("[a-z]{0,9}", 0..3).prop_map(Into::into),
    ];
    prop_oneof![3 => Just(BTreeMap::new()), 1 => btree_map("[a-z.]{0,9}", value, 0..3)].prop_map(|values| {
        let mut attributes = Attributes::default();
        values.into_iter().for_each(|(name, value)| attributes.insert(name, value).unwrap());
        attributes
    })
}

fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![0i64..253_402_300_799_999_999, 1_700_000_000_000_000i64..1_700_000_001_000_000]
        .prop_map(Timestamp::from_micros)
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        (0u32..5_000_000).prop_map(|us| f64::from(us) / 1e3),
        any::<f64>().prop_filter("a NaN", |x| !x.is_nan())
    ]
}

fn finding() -> impl Strategy<Value = Finding> {
    let severity = prop_oneof![
        Just(Severity::Info),
        Just(Severity::Low),
        Just(Severity::Medium),
        Just(Severity::High),
        Just(Severity::Critical)
    ];
    let offsets = of((any::<usize>(), any::<usize>()).prop_map(|(start, end)| ByteSpan { start, end }));
    let texts = (name(), text(), name(), text(), text(), map());
    (uuid(), severity, number(), texts, offsets, time(), any::<bool>()).prop_map(
        |(id, severity, confidence, texts, span, detected_at, requires_alert)| Finding {
            id,
            finding_type: texts.0,
            severity,
            confidence,
            description: texts.1.into(),
            detector: texts.2,
            location: texts.3,
            span,
            evidence: texts.4,
            metadata: texts.5,
            detected_at,
            requires_alert,
            part: None,
        },
    )
}

fn event() -> impl Strategy<Value = SpanEvent> {
    (time(), name(), text(), map()).prop_map(|(timestamp, event_type, description, data)| SpanEvent {
        timestamp,
        event_type,
        description,
        data,
    })
}

fn action() -> impl Strategy<Value = AgentAction> {
    let texts = (text(), text(), of(text()), of(text()), of(text()), of(text()));
    let rest = (of(number()), any::<bool>(), of(any::<i32>()), of(any::<u16>()), map(), time());
    (uuid(), texts, rest).prop_map(|(id, texts, rest)| AgentAction {
        id,
        action_type: texts.0,
        name: texts.1,
        arguments: texts.2,
        result: texts.3,
        http_method: texts.4,
        file_operation: texts.5,
        duration_ms: rest.0,
        success: rest.1,
        exit_code: rest.2,
        http_status: rest.3,
        metadata: rest.4,
        timestamp: rest.5,
    })
}

/// Any record at all.
fn record() -> impl Strategy<Value = SpanRecord> {
    let ids = (uuid(), uuid(), of(uuid()), uuid());
    let times = (time(), time(), of(number()), number(), of(any::<u64>()));
    let names = (name(), name(), of(text()), name(), vec(name(), 0..4), of(text()));
    let texts = (of(text()), of(text()), of(text()), of(text()), of(text()));
    let counts = (of(any::<u64>()), of(any::<u64>()), of(any::<u64>()), of(any::<u64>()), of(any::<u64>()));
    let rest = (any::<bool>(), any::<bool>(), of(any::<u16>()), of(number()), of(any::<u8>()));
    let lists =
        (vec(finding(), 0..3), btree_map(name(), text(), 0..3), vec(event(), 0..3), vec(action(), 0..3), attributes());
    (ids, times, names, texts, counts, rest, lists).prop_map(|(ids, times, names, texts, counts, rest, lists)| {
        SpanRecord {
            trace_id: TraceId::from_uuid(ids.0),
            span_id: SpanId::from_uuid(ids.1),
            parent_span_id: ids.2.map(SpanId::from_uuid),
            tenant_id: TenantId::from_uuid(ids.3),
            agent_id: names.5,
            session_id: None,
            client: None,
            operation_name: names.0,
            start_time: times.0,
            end_time: times.1,
            provider: names.1,
            model: names.2,
            streaming: rest.0,
            prompt: texts.0,
            response: texts.1,
            prompt_tokens: counts.0,
            completion_tokens: counts.1,
            total_tokens: counts.2,
            cached_tokens: counts.3,
            reasoning_tokens: counts.4,
            tokens_estimated: rest.1,
            time_to_first_token_ms: times.2,
            duration_ms: times.3,
            overhead_us: times.4,
            status_code: rest.2,
            error_type: texts.2,
            error_message: texts.3,
            finish_reason: texts.4,
            estimated_cost_usd: rest.3,
            security_score: rest.4,
            security_findings: lists.0,
            enforcement: names.3,
            detectors: names.4,
            tags: lists.1,
            events: lists.2,
            agent_actions: lists.3,
            parts: Vec::new(),
            frame: None,
            attributes: lists.4,
            prompt_cache: None,
        }
    })
}

/// Each record by its id, as its trace, and in its tenant's list.
fn assert_kept(store: &Store, records: &[SpanRecord]) {
    for record in records {
        let tenant = record.tenant_id;
        assert_eq!(store.span(tenant, record.span_id).unwrap().as_ref(), Some(record));
        let trace = store.trace(tenant, record.trace_id).unwrap().unwrap();
        assert_eq!(trace.spans, std::slice::from_ref(record));
        assert_eq!((trace.created_at, trace.security_score), (record.start_time, record.security_score));
        let listed = store.list_spans(tenant, &SpanFilter::default(), page(1000, 0)).unwrap();
        assert_eq!(listed.data, std::slice::from_ref(record));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_record_survives(records in vec(record(), 1..12)) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("service.db");
        for backend in [file(&path), Backend::Memory { max_bytes: ROOMY }] {
            let store = Store::open(options(backend)).unwrap();
            put(&store, records.iter().cloned());
            assert_kept(&store, &records);
            assert!(store.close(PATIENCE));
        }
        assert_kept(&open(&path), &records);
    }
}

#[test]
fn the_interface_shows_unset_fields_as_null_and_times_in_utc() {
    let record = SpanRecord { parent_span_id: None, error_type: None, ..crate::support::span(1_700_000_000_000_001) };
    let shown = serde_json::to_value(&record).unwrap();
    let fields = shown.as_object().unwrap();
    assert_eq!(fields.len(), 36);
    assert!(["parent_span_id", "error_type", "agent_id"].iter().all(|name| fields[*name].is_null()));
    assert_eq!(fields["start_time"], "2023-11-14T22:13:20.000001Z");
    assert_eq!(serde_json::from_value::<SpanRecord>(shown).unwrap(), record);
}

/// Sixty traces of one to four spans that begin in any order, by three tenants and two models, in one commit.
fn interwoven() -> Vec<SpanRecord> {
    let mut spans = Vec::new();
    for trace in 0..60u8 {
        for turn in 0..=trace % 4 {
            // The earliest span of a trace comes second.
            let start_us = 1_000_000 * i64::from(trace) + i64::from(turn ^ 1) * 1_000;
            spans.push(SpanRecord {
                trace_id: TraceId::from_bytes([trace; 16]),
                tenant_id: tenant(trace % 3),
                model: Some(if trace < 20 { "small" } else { "large" }.to_owned()),
                ..span(start_us)
            });
        }
    }
    // Neighbours belong to different traces, and some to the same: 37 has no divisor in common with 150.
    (0..spans.len()).map(|at| spans[at * 37 % spans.len()].clone()).collect()
}

#[test]
fn spans_of_known_and_new_traces_in_one_commit_are_each_kept_once() {
    on_both(|store| {
        let spans = interwoven();
        for _ in 0..2 {
            // The second time everything is a replay, which adds nothing.
            put(store, spans.iter().chain(&spans).cloned());
            for number in 0..3 {
                let of_tenant: Vec<&SpanRecord> =
                    spans.iter().filter(|span| span.tenant_id == tenant(number)).collect();
                assert_eq!(total(store, tenant(number)), of_tenant.len() as u64);
                let small = SpanFilter { model: Some("small".to_owned()), ..SpanFilter::default() };
                let expected = of_tenant.iter().filter(|span| span.model.as_deref() == Some("small")).count();
                let listed = store.list_spans(tenant(number), &small, page(100, 0)).unwrap();
                assert_eq!((listed.total, listed.data.len()), (expected as u64, expected));
                let traces = store.list_traces(tenant(number), &TraceFilter::default(), page(100, 0)).unwrap();
                assert_eq!((traces.total, traces.data.len()), (20, 20));
                for trace in traces.data {
                    let of_trace = of_tenant.iter().filter(|span| span.trace_id == trace.trace_id);
                    assert_eq!(trace.spans.len(), of_trace.clone().count());
                    assert_eq!(Some(trace.created_at), of_trace.map(|span| span.start_time).min());
                }
            }
        }
    });
}
