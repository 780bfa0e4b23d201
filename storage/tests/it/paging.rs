//! Any list, filter, window and page against a plain filter over all records.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};
use weir_storage::query::{SpanFilter, TraceFilter};
use weir_storage::record::SpanRecord;
use weir_storage::{SpanLog as _, Store};

use crate::support::{PATIENCE, on_both, open, page, put, span};

/// Close together, on the borders of slices, and years apart.
fn start() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => 0i64..5_000_000,
        2 => (0i64..40, -1i64..2).prop_map(|(slice, by)| ((slice << 20) + by).max(0)),
        2 => (0i64..40, -1i64..2).prop_map(|(slice, by)| ((slice << 28) + by).max(0)),
        1 => (0i64..40, -1i64..2).prop_map(|(slice, by)| ((slice << 36) + by).max(0)),
    ]
}

fn spans() -> impl Strategy<Value = Vec<SpanRecord>> {
    let one = (start(), 0u8..3, 0u8..2, of(prop_oneof![Just(0u8), Just(30), Just(60)]), any::<bool>(), 0u8..25);
    vec(one, 1..120).prop_map(|ones| {
        let trace = |number: u8| TraceId::from_bytes([number + 1; 16]);
        ones.into_iter()
            .map(|(start, model, provider, security_score, grouped, number)| SpanRecord {
                trace_id: if grouped { trace(number) } else { TraceId::fresh() },
                model: (model > 0).then(|| format!("model-{model}")),
                provider: ["openai", "anthropic"][usize::from(provider)].into(),
                operation_name: ["chat_completion", "messages"][usize::from(provider)].into(),
                security_score,
                ..span(start)
            })
            .collect()
    })
}

fn span_filter() -> impl Strategy<Value = SpanFilter> {
    let score = || of(prop_oneof![Just(0u8), Just(1), Just(30), Just(60)]);
    (score(), score(), of(Just("messages".to_owned())), of((1u8..4).prop_map(|at| format!("model-{at}")))).prop_map(
        |(security_score_min, security_score_max, operation_name, model)| SpanFilter {
            security_score_min,
            security_score_max,
            operation_name,
            model,
            ..SpanFilter::default()
        },
    )
}

fn trace_filter() -> impl Strategy<Value = TraceFilter> {
    let time = || of(start().prop_map(Timestamp::from_micros));
    (time(), time(), of(Just("anthropic".to_owned())), of((1u8..4).prop_map(|at| format!("model-{at}")))).prop_map(
        |(start_time, end_time, provider, model)| TraceFilter {
            start_time,
            end_time,
            provider,
            model,
            ..TraceFilter::default()
        },
    )
}

/// Newest first, later arrivals first among equals.
fn newest_first(mut spans: Vec<(usize, &SpanRecord)>) -> Vec<&SpanRecord> {
    spans.sort_by_key(|(at, span)| std::cmp::Reverse((span.start_time, *at)));
    spans.into_iter().map(|(_, span)| span).collect()
}

fn matching_spans(spans: &[SpanRecord], filter: &SpanFilter) -> Vec<SpanId> {
    let bounded = filter.security_score_min.is_some() || filter.security_score_max.is_some();
    let fits = |span: &&SpanRecord| {
        let score = span.security_score;
        (!bounded || score.is_some())
            && filter.security_score_min.is_none_or(|min| score >= Some(min))
            && filter.security_score_max.is_none_or(|max| score <= Some(max))
            && filter.operation_name.as_ref().is_none_or(|name| span.operation_name == *name)
            && filter.model.as_ref().is_none_or(|model| span.model.as_ref() == Some(model))
    };
    let found = spans.iter().enumerate().filter(|(_, span)| fits(span)).collect();
    newest_first(found).into_iter().map(|span| span.span_id).collect()
}

fn matching_traces(spans: &[SpanRecord], filter: &TraceFilter) -> Vec<TraceId> {
    // The earliest span of each trace, the first to arrive among equals.
    let mut firsts: Vec<(usize, &SpanRecord)> = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        match firsts.iter_mut().find(|(_, first)| first.trace_id == span.trace_id) {
            Some(first) if span.start_time < first.1.start_time => *first = (at, span),
            Some(_) => {}
            None => firsts.push((at, span)),
        }
    }
    firsts.retain(|(_, span)| {
        filter.start_time.is_none_or(|start| span.start_time >= start)
            && filter.end_time.is_none_or(|end| span.start_time <= end)
            && filter.provider.as_ref().is_none_or(|provider| span.provider == *provider)
            && filter.model.as_ref().is_none_or(|model| span.model.as_ref() == Some(model))
    });
    newest_first(firsts).into_iter().map(|span| span.trace_id).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_page_of_any_list_is_that_of_a_plain_filter(
        spans in spans(),
        asked in vec((span_filter(), trace_filter(), 1u32..30, 0u64..60), 12),
    ) {
        on_both(|store| {
            put(store, spans.iter().cloned());
            for (by_span, by_trace, limit, offset) in &asked {
                let expected = matching_spans(&spans, by_span);
                let listed = store.list_spans(TenantId::DEFAULT, by_span, page(*limit, *offset)).unwrap();
                assert_eq!(listed.total, expected.len() as u64, "{by_span:?}");
                let ids: Vec<SpanId> = listed.data.iter().map(|span| span.span_id).collect();
                let wanted: Vec<SpanId> = expected.into_iter().skip(*offset as usize).take(*limit as usize).collect();
                assert_eq!(ids, wanted, "{by_span:?}");

                let expected = matching_traces(&spans, by_trace);
                let listed = store.list_traces(TenantId::DEFAULT, by_trace, page(*limit, *offset)).unwrap();
                assert_eq!(listed.total, expected.len() as u64, "{by_trace:?}");
                let ids: Vec<TraceId> = listed.data.iter().map(|trace| trace.trace_id).collect();
                let wanted: Vec<TraceId> = expected.into_iter().skip(*offset as usize).take(*limit as usize).collect();
                assert_eq!(ids, wanted, "{by_trace:?}");
            }
        });
    }
}

/// A second that holds many spans is divided further, but not from its first one on, and what is removed may not have been counted.
#[test]
fn few_among_many_of_a_second_are_on_their_pages() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let model = |at: i64| if at % 97 == 0 { "rare" } else { "common" };
    let mut spans: Vec<SpanRecord> = (0..3_000)
        .map(|at| SpanRecord { model: Some(model(at).to_owned()), ..span(1_760_000_000_000_000 + at * 500) })
        .collect();
    for some in spans.chunks(100) {
        put(&store, some.iter().cloned());
    }
    assert_rare(&store, &spans);
    let conn = rusqlite::Connection::open(&path).unwrap();
    let fine: i64 = conn.query_row("SELECT count(*) FROM slices WHERE level = 3", [], |row| row.get(0)).unwrap();
    assert!(fine > 30, "{fine} sums of sixteenths");
    for at in [0, 5, 30, 97, 98, 970, 1_940, 1_941, 2_910] {
        let by = crate::ledger::event("trace.delete", None);
        assert!(store.delete_trace(spans[at].tenant_id, spans[at].trace_id, by).unwrap());
    }
    let gone = |at: &usize| [0, 97, 970, 1_940, 2_910].contains(at);
    spans = spans.into_iter().enumerate().filter(|(at, _)| !gone(at)).map(|(_, span)| span).collect();
    assert_rare(&store, &spans);
    assert!(store.close(PATIENCE));
}

/// Every page of the few is that of a plain filter.
fn assert_rare(store: &Store, spans: &[SpanRecord]) {
    let rare = |span: &&SpanRecord| span.model.as_deref() == Some("rare");
    let expected: Vec<_> = spans.iter().rev().filter(rare).map(|span| span.span_id).collect();
    let (whose, model) = (spans[0].tenant_id, Some("rare".to_owned()));
    for offset in 0..expected.len() {
        let seven = page(7, offset as u64);
        let filter = SpanFilter { model: model.clone(), ..SpanFilter::default() };
        let found = store.list_spans(whose, &filter, seven).unwrap();
        let ids: Vec<_> = found.data.iter().map(|span| span.span_id).collect();
        assert_eq!(
            (found.total, ids.as_slice()),
            (expected.len() as u64, &expected[offset..expected.len().min(offset + 7)])
        );
        let filter = TraceFilter { model: model.clone(), ..TraceFilter::default() };
        assert_eq!(store.list_traces(whose, &filter, seven).unwrap().data.len(), ids.len());
    }
}
