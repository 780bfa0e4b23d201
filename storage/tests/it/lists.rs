//! Lists: filters, order, paging, totals and tenants, the same on both profiles.

use std::collections::BTreeSet;

use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};
use weir_storage::SpanLog as _;
use weir_storage::query::{SpanFilter, TraceFilter};
use weir_storage::record::SpanRecord;
use weir_storage::{Backend, Store};

use crate::support::{on_both, options, page, put, span, tenant, total};

const NOBODY: TenantId = TenantId::from_bytes([0xee; 16]);

fn at(micros: i64) -> Option<Timestamp> {
    Some(Timestamp::from_micros(micros))
}

fn starts(spans: &[SpanRecord]) -> Vec<i64> {
    spans.iter().map(|span| span.start_time.micros()).collect()
}

fn spans(store: &Store, filter: &SpanFilter) -> (u64, Vec<i64>) {
    let listed = store.list_spans(TenantId::DEFAULT, filter, page(1000, 0)).unwrap();
    (listed.total, starts(&listed.data))
}

fn traces(store: &Store, filter: &TraceFilter) -> (u64, Vec<i64>) {
    let listed = store.list_traces(TenantId::DEFAULT, filter, page(1000, 0)).unwrap();
    (listed.total, listed.data.iter().map(|trace| trace.created_at.micros()).collect())
}

#[test]
fn an_empty_store_answers_with_nothing() {
    on_both(|store| {
        assert_eq!(spans(store, &SpanFilter::default()), (0, vec![]));
        assert_eq!(traces(store, &TraceFilter::default()), (0, vec![]));
        assert_eq!(store.list_findings(NOBODY, page(10, 0)).unwrap().total, 0);
        assert_eq!(store.span(NOBODY, SpanId::fresh()), Ok(None));
        assert_eq!(store.trace(NOBODY, TraceId::fresh()), Ok(None));
        store.probe().unwrap();
    });
}

#[test]
fn span_filters_select_exactly() {
    on_both(|store| {
        let scores = [None, Some(0), Some(30), Some(60), Some(95), Some(60)];
        put(store, scores.iter().zip(1..).map(|(&security_score, start)| SpanRecord { security_score, ..span(start) }));
        put(
            store,
            [
                SpanRecord { operation_name: "messages".into(), model: Some("claude".to_owned()), ..span(10) },
                SpanRecord { operation_name: "messages".into(), model: None, security_score: Some(60), ..span(11) },
            ],
        );
        let any = SpanFilter::default;
        let scored = |min, max| SpanFilter { security_score_min: min, security_score_max: max, ..any() };
        let operation = |name: &str| SpanFilter { operation_name: Some(name.to_owned()), ..any() };
        let model = |name: &str| SpanFilter { model: Some(name.to_owned()), ..any() };

        assert_eq!(spans(store, &any()), (8, vec![11, 10, 6, 5, 4, 3, 2, 1]));
        assert_eq!(spans(store, &scored(Some(60), None)), (4, vec![11, 6, 5, 4]));
        assert_eq!(spans(store, &scored(Some(60), Some(60))), (3, vec![11, 6, 4]));
        assert_eq!(spans(store, &scored(None, Some(30))), (3, vec![10, 3, 2]), "no score matches no bound");
        assert_eq!(spans(store, &scored(Some(0), None)), (7, vec![11, 10, 6, 5, 4, 3, 2]));
        assert_eq!(spans(store, &scored(Some(96), None)), (0, vec![]));
        assert_eq!(spans(store, &scored(Some(60), Some(30))), (0, vec![]));
        assert_eq!(spans(store, &operation("messages")), (2, vec![11, 10]));
        assert_eq!(spans(store, &operation("mess")), (0, vec![]), "names are exact");
        assert_eq!(spans(store, &model("claude")), (1, vec![10]));
        assert_eq!(spans(store, &model("")), (0, vec![]), "an absent model is not an empty one");
        let all = SpanFilter { security_score_min: Some(1), ..operation("messages") };
        assert_eq!(spans(store, &all), (1, vec![11]));

        let findings = store.list_findings(TenantId::DEFAULT, page(2, 1)).unwrap();
        assert_eq!((findings.total, starts(&findings.data)), (5, vec![6, 5]));
    });
}

#[test]
fn trace_filters_select_exactly() {
    on_both(|store| {
        put(store, (1..=6).map(|start| span(start * 10)));
        put(
            store,
            [
                SpanRecord { provider: "anthropic".into(), model: Some("claude".to_owned()), ..span(25) },
                SpanRecord { provider: "ollama".into(), model: None, ..span(35) },
            ],
        );
        let any = TraceFilter::default;
        let within = |from, to| TraceFilter { start_time: from, end_time: to, ..any() };
        assert_eq!(traces(store, &any()), (8, vec![60, 50, 40, 35, 30, 25, 20, 10]));
        assert_eq!(traces(store, &within(at(20), at(35))), (4, vec![35, 30, 25, 20]), "both bounds are inclusive");
        assert_eq!(traces(store, &within(at(41), None)), (2, vec![60, 50]));
        assert_eq!(traces(store, &within(None, at(19))), (1, vec![10]));
        assert_eq!(traces(store, &within(at(35), at(20))), (0, vec![]));
        assert_eq!(traces(store, &TraceFilter { provider: Some("ollama".to_owned()), ..any() }), (1, vec![35]));
        assert_eq!(traces(store, &TraceFilter { model: Some("claude".to_owned()), ..any() }), (1, vec![25]));
        let late = TraceFilter { provider: Some("openai".to_owned()), ..within(at(25), at(50)) };
        assert_eq!(traces(store, &late), (3, vec![50, 40, 30]));
    });
}

#[test]
fn pages_cover_the_list_without_gaps_or_repeats() {
    on_both(|store| {
        // Equal starts: the later arrival comes first, on every page alike.
        put(store, (0..103).map(|at| span(1_000 + at / 4)));
        let whole = store.list_spans(TenantId::DEFAULT, &SpanFilter::default(), page(1000, 0)).unwrap().data;
        assert!(whole.windows(2).all(|pair| pair[0].start_time >= pair[1].start_time));
        for limit in [1, 7, 50, 102, 103] {
            let mut pieces = Vec::new();
            for offset in (0..110).step_by(limit) {
                let piece = store
                    .list_spans(TenantId::DEFAULT, &SpanFilter::default(), page(limit as u32, offset as u64))
                    .unwrap();
                assert_eq!((piece.total, piece.limit, piece.offset), (103, limit as u32, offset as u64));
                pieces.extend(piece.data);
            }
            assert_eq!(pieces, whole, "limit {limit}");
        }
        let traces = store.list_traces(TenantId::DEFAULT, &TraceFilter::default(), page(10, 95)).unwrap();
        let ids: Vec<TraceId> = whole.iter().skip(95).map(|span| span.trace_id).collect();
        assert_eq!(traces.data.iter().map(|trace| trace.trace_id).collect::<Vec<_>>(), ids);
    });
}

#[test]
fn an_offset_past_the_end_is_an_empty_page() {
    on_both(|store| {
        put(store, [span(1)]);
        for offset in [1, 2, u64::MAX] {
            let listed = store.list_spans(TenantId::DEFAULT, &SpanFilter::default(), page(10, offset)).unwrap();
            assert_eq!((listed.total, listed.data.len()), (1, 0));
        }
    });
}

#[test]
fn a_limit_over_1000_is_taken_as_1000() {
    on_both(|store| {
        put(store, (0..1_005).map(span));
        let listed = store.list_spans(TenantId::DEFAULT, &SpanFilter::default(), page(5_000, 0)).unwrap();
        assert_eq!((listed.total, listed.limit, listed.data.len()), (1_005, 1_000, 1_000));
    });
}

#[test]
fn a_trace_gathers_its_spans_in_whatever_order_they_come() {
    on_both(|store| {
        let trace_id = TraceId::fresh();
        let agent = |name: &str| Some(name.to_owned());
        // The earliest span is the third to arrive; each insert happens in a transaction of its own.
        let parts = [(50, "b", Some(0)), (70, "c", Some(60)), (20, "a", None), (60, "d", Some(10))];
        for (start, name, security_score) in parts {
            put(store, [SpanRecord { trace_id, agent_id: agent(name), security_score, ..span(start) }]);
        }
        let trace = store.trace(TenantId::DEFAULT, trace_id).unwrap().unwrap();
        assert_eq!(starts(&trace.spans), [20, 50, 60, 70]);
        assert_eq!((trace.created_at, trace.span_count), (Timestamp::from_micros(20), 4));
        assert_eq!((trace.agent_id.as_deref(), trace.security_score), (Some("a"), Some(60)));

        put(store, [span(30)]);
        let listed = store.list_traces(TenantId::DEFAULT, &TraceFilter::default(), page(10, 0)).unwrap();
        assert_eq!(listed.total, 2);
        assert_eq!(listed.data.iter().map(|trace| trace.created_at.micros()).collect::<Vec<_>>(), [30, 20]);
        assert_eq!(listed.data[1], trace);
        assert_eq!(total(store, TenantId::DEFAULT), 5);
    });
}

#[test]
fn the_first_span_decides_which_filter_a_trace_matches() {
    on_both(|store| {
        let trace_id = TraceId::fresh();
        let by = |start, provider: &'static str| SpanRecord { trace_id, provider: provider.into(), ..span(start) };
        put(store, [by(50, "openai"), by(40, "anthropic"), by(60, "ollama")]);
        let filter = |provider: &str| TraceFilter { provider: Some(provider.to_owned()), ..TraceFilter::default() };
        assert_eq!(traces(store, &filter("anthropic")), (1, vec![40]));
        assert_eq!(traces(store, &filter("openai")), (0, vec![]));
        assert_eq!(traces(store, &filter("ollama")), (0, vec![]));
        assert_eq!(traces(store, &TraceFilter { start_time: at(41), ..TraceFilter::default() }), (0, vec![]));
    });
}

#[test]
fn a_span_pushed_twice_is_stored_once() {
    on_both(|store| {
        let first = span(5);
        let again = SpanRecord { prompt: Some("changed".to_owned()), ..first.clone() };
        put(store, [first.clone(), first.clone()]);
        put(store, [again]);
        assert_eq!(total(store, TenantId::DEFAULT), 1);
        assert_eq!(traces(store, &TraceFilter::default()), (1, vec![5]));
        assert_eq!(store.span(TenantId::DEFAULT, first.span_id), Ok(Some(first)));
    });
}

#[test]
fn tenants_cannot_see_or_touch_each_others_traces() {
    on_both(|store| {
        let (ours, theirs) = (tenant(1), tenant(2));
        let trace_id = TraceId::fresh();
        let span_id = SpanId::fresh();
        // The same ids in both: a client may send any traceparent.
        let of = |tenant_id, start, model: &str| SpanRecord {
            tenant_id,
            trace_id,
            span_id,
            model: Some(model.to_owned()),
            security_score: Some(60),
            ..span(start)
        };
        put(store, [of(ours, 10, "ours"), of(theirs, 5, "theirs")]);
        for (tenant, model) in [(ours, "ours"), (theirs, "theirs")] {
            let only = |models: BTreeSet<Option<String>>| assert_eq!(models, BTreeSet::from([Some(model.to_owned())]));
            let trace = store.trace(tenant, trace_id).unwrap().unwrap();
            assert_eq!((trace.span_count, trace.tenant_id), (1, tenant));
            only(trace.spans.into_iter().map(|span| span.model).collect());
            only(BTreeSet::from([store.span(tenant, span_id).unwrap().unwrap().model]));
            let spans = store.list_spans(tenant, &SpanFilter::default(), page(10, 0)).unwrap();
            assert_eq!(spans.total, 1);
            only(spans.data.into_iter().map(|span| span.model).collect());
            let traces = store.list_traces(tenant, &TraceFilter::default(), page(10, 0)).unwrap();
            assert_eq!((traces.total, traces.data[0].span_count), (1, 1));
            only(traces.data.into_iter().map(|trace| trace.model).collect());
            only(store.list_findings(tenant, page(10, 0)).unwrap().data.into_iter().map(|span| span.model).collect());
        }
        assert_eq!(store.trace(NOBODY, trace_id), Ok(None));
        assert_eq!(store.span(NOBODY, span_id), Ok(None));
        let foreign = SpanFilter { model: Some("theirs".to_owned()), ..SpanFilter::default() };
        assert_eq!(store.list_spans(ours, &foreign, page(10, 0)).unwrap().total, 0);
    });
}

#[test]
fn memory_forgets_the_oldest_arrivals_beyond_its_bound() {
    let bound = 1 << 20;
    let store = Store::open(options(Backend::Memory { max_bytes: bound })).unwrap();
    let shared = TraceId::fresh();
    let text = |at: i64| Some(format!("{at} ").repeat(400));
    let spans: Vec<SpanRecord> = (0..4_000)
        .map(|at| SpanRecord { trace_id: shared, tenant_id: tenant(3), prompt: text(at), ..span(at) })
        .collect();
    put(&store, spans.iter().cloned());
    let kept = store.list_spans(tenant(3), &SpanFilter::default(), page(1000, 0)).unwrap();
    assert!((100..3_000).contains(&kept.total), "{} spans fit", kept.total);
    let newest: Vec<SpanRecord> = spans.iter().rev().take(kept.data.len()).cloned().collect();
    assert_eq!(kept.data, newest);
    let trace = store.trace(tenant(3), shared).unwrap().unwrap();
    assert_eq!(trace.span_count, kept.total);
    assert_eq!(trace.created_at, trace.spans[0].start_time);
    let listed = store.list_traces(tenant(3), &TraceFilter::default(), page(10, 0)).unwrap();
    assert_eq!((listed.total, listed.data[0].span_count), (1, kept.total));
    let stats = store.stats(tenant(3)).unwrap();
    assert_eq!((stats.total_spans, stats.total_traces), (kept.total, 1));
    assert_eq!(stats.total_tokens, kept.total * 13);
    assert!(stats.storage_bytes < bound as u64);
    assert_eq!(store.span(tenant(3), spans[0].span_id), Ok(None));
}
