//! The contract of [`SpanLog`].

use std::collections::HashSet;

use weir_config::vocab::{Finding, Severity, SpanId, TenantId, Timestamp, TraceId};
use weir_storage::query::{Facets, SpanFilter, TraceFilter};
use weir_storage::record::SpanRecord;
use weir_storage::usage::{SeriesQuery, SessionFilter, Split};
use weir_storage::{Cursor, Fate, SpanLog, TracePlace, TraceRest};

use super::checks;
use crate::ledger::{action, event};
use crate::support::{PATIENCE, page, span, tenant};
use crate::texts::turn;

const ROOM: usize = 1 << 20;

checks! { dyn SpanLog:
    what_goes_in_comes_out_as_it_was,
    a_span_is_found_by_what_other_systems_call_it,
    a_span_that_is_there_stays_as_it_is,
    spans_are_read_in_the_order_of_their_commits,
    what_was_found_is_read_without_the_rest,
    consumers_go_on_where_they_said,
    lists_are_newest_first_and_the_tenants_own,
    a_trace_is_its_spans_together,
    a_trace_is_read_on_where_one_stopped,
    spans_of_a_trace_come_together_in_any_order_and_again,
    findings_and_sums_follow_the_spans,
    a_reported_action_belongs_to_a_span,
    a_conversation_reads_as_it_was_told,
    a_deleted_trace_takes_nothing_with_it,
    a_deleted_tenant_is_gone_for_everybody,
    facets_select_exactly,
    sessions_and_series_add_up,
}

fn put(log: &dyn SpanLog, spans: &[SpanRecord]) {
    spans.iter().for_each(|span| log.append(Box::new(span.clone())).unwrap());
    assert!(log.flush(PATIENCE));
}

fn ids(spans: &[SpanRecord]) -> Vec<SpanId> {
    spans.iter().map(|span| span.span_id).collect()
}

fn of(who: u8, start: i64) -> SpanRecord {
    SpanRecord { tenant_id: tenant(who), ..span(start) }
}

/// Everything behind a cursor, and how many were lost.
fn rest(log: &dyn SpanLog, mut after: Cursor) -> (Vec<SpanId>, u64) {
    let (mut found, mut lost) = (Vec::new(), 0);
    loop {
        let batch = log.read_after(after, 7, ROOM).unwrap();
        lost += batch.lost;
        found.extend(ids(&batch.spans));
        if batch.next == after {
            return (found, lost);
        }
        after = batch.next;
    }
}

fn what_goes_in_comes_out_as_it_was(log: &dyn SpanLog) {
    let mut full = SpanRecord { parent_span_id: Some(SpanId::fresh()), agent_id: Some("a".to_owned()), ..of(1, 5) };
    full.attributes.insert("gen_ai.system".to_owned(), "openai".into()).unwrap();
    let answered = of(1, 6);
    put(log, std::slice::from_ref(&full));
    let inserted = log.insert(vec![answered.clone()]).unwrap();
    assert_eq!(inserted.fates, [Fate::Stored]);
    for written in [full, answered] {
        assert_eq!(log.span(tenant(1), written.span_id).unwrap().as_ref(), Some(&written));
        assert_eq!(log.span(tenant(2), written.span_id).unwrap(), None, "nobody else's");
        assert_eq!(log.trace(tenant(1), written.trace_id).unwrap().unwrap().spans, std::slice::from_ref(&written));
        assert_eq!(log.trace(tenant(2), written.trace_id).unwrap(), None);
    }
    assert_eq!(log.span(tenant(1), SpanId::fresh()).unwrap(), None);
}

/// Other systems have 8 of the 16 bytes, whether the id is one of theirs or one of ours.
fn a_span_is_found_by_what_other_systems_call_it(log: &dyn SpanLog) {
    let theirs = SpanRecord { span_id: SpanId::from_w3c([7; 8]), ..of(1, 5) };
    let spans: Vec<_> = (6..16).map(|start| of(1, start)).chain([theirs]).collect();
    put(log, &spans);
    for span in &spans {
        let id = span.span_id.to_w3c();
        assert_eq!(log.span_by_w3c(tenant(1), id).unwrap().as_ref(), Some(span));
        assert_eq!(log.span_by_w3c(tenant(2), id).unwrap(), None, "nobody else's");
    }
    assert_eq!(log.span_by_w3c(tenant(1), [9; 8]).unwrap(), None);
}

fn a_span_that_is_there_stays_as_it_is(log: &dyn SpanLog) {
    let first = of(1, 5);
    let again = SpanRecord { prompt: Some("changed".to_owned()), ..first.clone() };
    let theirs = SpanRecord { tenant_id: tenant(2), ..again.clone() };
    put(log, &[first.clone(), again.clone()]);
    // Its id in another trace is the same id.
    let elsewhere = SpanRecord { trace_id: of(1, 6).trace_id, ..again.clone() };
    let inserted = log.insert(vec![again, elsewhere, theirs.clone(), theirs.clone()]).unwrap();
    assert_eq!(inserted.fates, [Fate::Known, Fate::Known, Fate::Stored, Fate::Known]);
    assert_eq!(log.span(tenant(1), first.span_id).unwrap(), Some(first.clone()));
    assert_eq!(log.span(tenant(2), first.span_id).unwrap(), Some(theirs), "ids are a tenant's own");
    assert_eq!(rest(log, Cursor::START), (vec![first.span_id; 2], 0));
}

fn spans_are_read_in_the_order_of_their_commits(log: &dyn SpanLog) {
    assert_eq!(rest(log, Cursor::START), (vec![], 0));
    let spans: Vec<_> = (0..20).map(|at| of(at as u8 % 3, 100 - at)).collect();
    put(log, &spans[..15]);
    let end = log.end().unwrap();
    log.insert(spans[15..].to_vec()).unwrap();
    assert_eq!(rest(log, Cursor::START), (ids(&spans), 0));
    assert_eq!(rest(log, end), (ids(&spans[15..]), 0), "who begins at the end misses nothing later");
    let batch = log.read_after(Cursor::START, 1_000, 0).unwrap();
    assert_eq!(batch.spans, spans[..1], "one at least, however little room");
    assert_eq!(log.read_after(batch.next, 4, ROOM).unwrap().spans, spans[1..5]);
    let bare = log.read_without_texts_after(Cursor::START, 1_000, ROOM).unwrap();
    let without_texts = |span: &SpanRecord| SpanRecord { prompt: None, response: None, ..span.clone() };
    assert_eq!(bare.spans, spans.iter().map(without_texts).collect::<Vec<_>>());
    assert!(spans.iter().any(|span| span.prompt.is_some()));
}

fn what_was_found_is_read_without_the_rest(log: &dyn SpanLog) {
    let found = |at: i64| {
        let finding = Finding::new("prompt_injection", Severity::High, 0.9, "rules", "made up");
        SpanRecord { security_findings: vec![finding], ..of(1, at) }
    };
    // Of forty, every seventh from the third on, and all four at the end.
    let with = |at: i64| at % 7 == 3 || at >= 36;
    let spans: Vec<_> = (0..40).map(|at| if with(at) { found(at) } else { of(2, at) }).collect();
    put(log, &spans);
    let expected: Vec<_> = spans.iter().filter(|span| !span.security_findings.is_empty()).cloned().collect();
    for limit in [1, 3, 100] {
        let (mut seen, mut clean, mut after) = (Vec::new(), 0, Cursor::START);
        loop {
            let batch = log.read_found_after(after, limit, ROOM).unwrap();
            assert_eq!(batch.lost, 0);
            assert!(batch.spans.len() <= limit as usize);
            assert!(batch.more || batch.next == log.end().unwrap(), "no end before the end");
            assert!(!batch.more || batch.next != after, "more that never comes");
            clean += batch.clean;
            seen.extend(batch.spans);
            if batch.next == after {
                break;
            }
            after = batch.next;
        }
        assert_eq!((ids(&seen), clean), (ids(&expected), 40 - expected.len() as u64), "{limit} at a time");
        assert_eq!(after, log.end().unwrap());
    }
    // What has gone is lost, whatever it held; one behind a known cursor.
    let mut first = log.read_found_after(Cursor::START, 1, ROOM).unwrap();
    while first.spans.is_empty() {
        first = log.read_found_after(first.next, 1, ROOM).unwrap();
    }
    log.delete_tenant_data(tenant(1)).unwrap();
    let rest = log.read_found_after(first.next, 100, ROOM).unwrap();
    assert_eq!((rest.spans, rest.lost), (vec![], expected.len() as u64 - 1));
}

fn consumers_go_on_where_they_said(log: &dyn SpanLog) {
    put(log, &(0..10).map(span).collect::<Vec<_>>());
    let early = log.read_after(Cursor::START, 3, ROOM).unwrap().next;
    let late = log.read_after(early, 3, ROOM).unwrap().next;
    assert_eq!(log.cursor("one").unwrap(), None);
    log.save_cursor("one", late).unwrap();
    log.save_cursor("two", early).unwrap();
    log.save_cursor("one", early).unwrap();
    assert_eq!(log.cursor("one").unwrap(), Some(late), "never back");
    assert_eq!(log.cursor("two").unwrap(), Some(early));
    assert_eq!(rest(log, late).0.len(), 4);
}

fn lists_are_newest_first_and_the_tenants_own(log: &dyn SpanLog) {
    let model = |model: &str, span| SpanRecord { model: Some(model.to_owned()), ..span };
    let spans: Vec<_> = (0..10).map(|at| model(if at % 2 == 0 { "a" } else { "b" }, of(1, at))).collect();
    put(log, &spans);
    put(log, &[model("a", of(2, 5))]);
    let newest: Vec<_> = spans.iter().rev().cloned().collect();
    let all = log.list_spans(tenant(1), &SpanFilter::default(), page(4, 3)).unwrap();
    assert_eq!((all.data.as_slice(), all.total, all.limit, all.offset), (&newest[3..7], 10, 4, 3));
    let only = SpanFilter { model: Some("a".to_owned()), ..SpanFilter::default() };
    assert_eq!(log.list_spans(tenant(1), &only, page(100, 0)).unwrap().total, 5);
    let nothing = SpanFilter { operation_name: Some("never".to_owned()), ..SpanFilter::default() };
    assert_eq!(log.list_spans(tenant(1), &nothing, page(100, 0)).unwrap().total, 0);
    let within = TraceFilter { start_time: Some(Timestamp::from_micros(3)), ..TraceFilter::default() };
    let within = TraceFilter { end_time: Some(Timestamp::from_micros(6)), ..within };
    let traces = log.list_traces(tenant(1), &within, page(2, 0)).unwrap();
    let starts: Vec<_> = traces.data.iter().map(|trace| trace.created_at.micros()).collect();
    assert_eq!((starts, traces.total), (vec![6, 5], 4), "both ends count");
    assert_eq!(log.list_traces(tenant(3), &TraceFilter::default(), page(9, 0)).unwrap().total, 0);
}

fn a_trace_is_its_spans_together(log: &dyn SpanLog) {
    let trace_id = TraceId::fresh();
    let at = |start, score| SpanRecord { trace_id, security_score: score, ..of(1, start) };
    let spans = [at(20, None), at(10, Some(30)), at(30, Some(80))];
    put(log, &spans);
    put(log, &[SpanRecord { trace_id, ..of(2, 1) }]);
    let trace = log.trace(tenant(1), trace_id).unwrap().unwrap();
    assert_eq!(ids(&trace.spans), [1, 0, 2].map(|at: usize| spans[at].span_id));
    assert_eq!((trace.span_count, trace.security_score, trace.created_at.micros()), (3, Some(80), 10));
    let listed = log.list_traces(tenant(1), &TraceFilter::default(), page(9, 0)).unwrap();
    assert_eq!((listed.data, listed.total), (vec![trace], 1));
}

fn spans_of_a_trace_come_together_in_any_order_and_again(log: &dyn SpanLog) {
    let (one, other) = (TraceId::fresh(), TraceId::fresh());
    let at = |trace_id, start| SpanRecord { trace_id, ..of(1, start) };
    let spans: Vec<SpanRecord> = [30, 40, 35, 10, 50, 10, 5].map(|start| at(one, start)).into();
    let others: Vec<SpanRecord> = [20, 8].map(|start| at(other, start)).into();
    let (early, late) = spans.split_at(4);
    // A repetition behind its span and behind others, another trace in between, and the rest in a batch of its own.
    let batch = [&early[..2], &early[1..2], &early[2..], &early[..1], &others, &early[3..]].concat();
    log.insert(batch).unwrap();
    log.insert([late, early, &others].concat()).unwrap();
    for (trace, own, first) in [(one, &spans, 5), (other, &others, 8)] {
        let kept = log.trace(tenant(1), trace).unwrap().unwrap();
        let starts: Vec<i64> = kept.spans.iter().map(|span| span.start_time.micros()).collect();
        assert!(starts.is_sorted() && kept.created_at.micros() == first, "{starts:?}");
        assert_eq!((kept.span_count, kept.spans.len()), (own.len() as u64, own.len()));
        let named: HashSet<SpanId> = ids(&kept.spans).into_iter().collect();
        assert_eq!(named, ids(own).into_iter().collect());
    }
    let traces = log.list_traces(tenant(1), &TraceFilter::default(), page(9, 0)).unwrap();
    assert_eq!((traces.total, traces.data.len()), (2, 2), "each has one first span");
    let stats = log.stats(tenant(1)).unwrap();
    assert_eq!((stats.total_traces, stats.total_spans), (2, 9));
}

fn a_trace_is_read_on_where_one_stopped(log: &dyn SpanLog) {
    let (trace_id, other) = (TraceId::fresh(), TraceId::fresh());
    let at = |start| SpanRecord { trace_id, ..of(1, start) };
    let ask = |after: TracePlace, known: &[SpanId]| -> TraceRest {
        let asked = [(other, TracePlace::default()), (trace_id, after)];
        let mut rests = log.traces_after(tenant(1), &asked, &|_, span| known.contains(&span)).unwrap();
        assert_eq!(rests.len(), 2);
        assert_eq!(rests[0].spans, [], "of a trace that is not there");
        rests.remove(1)
    };
    let found = |rest: &TraceRest| -> HashSet<SpanId> { rest.spans.iter().map(|span| span.span_id).collect() };
    let set = |spans: &[SpanRecord]| -> HashSet<SpanId> { ids(spans).into_iter().collect() };
    let early = [at(20), at(10), at(30)];
    put(log, &early);
    let first = ask(TracePlace::default(), &[]);
    assert_eq!((found(&first), first.spans.len(), first.more), (set(&early), 3, false));
    // One of them becomes the first of the trace.
    let late = [at(40), at(5)];
    put(log, &late);
    let second = ask(first.next, &ids(&early));
    assert_eq!((found(&second), second.spans.len(), second.anew), (set(&late), 2, false));
    let known = [ids(&early), ids(&late)].concat();
    assert_eq!(ask(second.next, &known).spans, []);
    assert!(log.delete_trace(tenant(1), trace_id, event("trace_deleted", Some(tenant(1)))).unwrap());
    let again = [at(7)];
    put(log, &again);
    assert_eq!(found(&ask(second.next, &[])), set(&again), "the trace that was read is gone");
}

fn findings_and_sums_follow_the_spans(log: &dyn SpanLog) {
    let found = Finding::new("prompt_injection", Severity::High, 0.9, "rules", "made up");
    let bad = SpanRecord { security_score: Some(80), security_findings: vec![found], ..of(1, 7) };
    put(log, &[of(1, 5), bad.clone(), of(2, 6)]);
    let findings = log.list_findings(tenant(1), page(9, 0)).unwrap();
    assert_eq!((findings.data, findings.total), (vec![bad], 1));
    let stats = log.stats(tenant(1)).unwrap();
    assert_eq!((stats.total_traces, stats.total_spans, stats.total_findings, stats.total_tokens), (2, 2, 1, 26));
    assert_eq!([stats.oldest_trace, stats.newest_trace], [5, 7].map(|at| Some(Timestamp::from_micros(at))));
    let none = log.stats(tenant(9)).unwrap();
    assert_eq!((none.total_spans, none.oldest_trace), (0, None));
}

fn a_reported_action_belongs_to_a_span(log: &dyn SpanLog) {
    let (early, late) = (of(1, 5), SpanRecord { trace_id: TraceId::fresh(), ..of(1, 6) });
    put(log, &[early.clone(), SpanRecord { trace_id: early.trace_id, ..late.clone() }]);
    let add = |who, trace, span, name: &str, findings| {
        log.add_action(tenant(who), trace, span, action(name, true), findings).unwrap()
    };
    let trace = early.trace_id;
    assert_eq!(add(1, trace, None, "ls", vec![]), Some(late.span_id), "its latest span");
    let found = Finding::new("dangerous_command", Severity::High, 0.9, "actions", "made up");
    assert_eq!(add(1, trace, Some(early.span_id), "rm", vec![found.clone()]), Some(early.span_id));
    assert_eq!(add(2, trace, None, "ls", vec![]), None, "nobody else's trace");
    assert_eq!(add(1, trace, Some(SpanId::fresh()), "ls", vec![]), None);
    let shown = log.span(tenant(1), early.span_id).unwrap().unwrap();
    assert_eq!((shown.security_findings.len(), shown.agent_actions.len()), (1, 1));
    assert_eq!(log.list_findings(tenant(1), page(9, 0)).unwrap().total, 1, "its score is raised");
    let summary = log.actions_summary(tenant(1), &SpanFilter::default()).unwrap();
    assert_eq!((summary.total_spans, summary.spans_with_actions, summary.total_actions), (2, 2, 2));
}

fn a_conversation_reads_as_it_was_told(log: &dyn SpanLog) {
    let turns: Vec<_> = (0..8).flat_map(|at| [turn(1, at), turn(2, at)]).collect();
    put(log, &turns);
    for told in &turns {
        assert_eq!(log.span(told.tenant_id, told.span_id).unwrap().as_ref(), Some(told));
    }
    assert_eq!(log.read_after(Cursor::START, 100, ROOM).unwrap().spans, turns);
    // A tenant that says the same keeps it.
    log.delete_tenant_data(tenant(1)).unwrap();
    for told in turns.iter().filter(|told| told.tenant_id == tenant(2)) {
        assert_eq!(log.span(told.tenant_id, told.span_id).unwrap().as_ref(), Some(told));
    }
}

fn a_deleted_trace_takes_nothing_with_it(log: &dyn SpanLog) {
    let turns: Vec<_> = (0..6).map(|at| turn(1, at)).collect();
    put(log, &turns);
    let by = || event("trace.delete", Some(tenant(1)));
    assert!(!log.delete_trace(tenant(2), turns[0].trace_id, by()).unwrap());
    for gone in [0, 5, 3] {
        assert!(log.delete_trace(tenant(1), turns[gone].trace_id, by()).unwrap());
        assert!(!log.delete_trace(tenant(1), turns[gone].trace_id, by()).unwrap());
        assert_eq!(log.span(tenant(1), turns[gone].span_id).unwrap(), None);
    }
    for told in [1, 2, 4].map(|at: usize| &turns[at]) {
        assert_eq!(log.span(tenant(1), told.span_id).unwrap().as_ref(), Some(told));
    }
    let stats = log.stats(tenant(1)).unwrap();
    assert_eq!((stats.total_spans, stats.total_traces, stats.total_findings), (3, 3, 3));
}

fn a_deleted_tenant_is_gone_for_everybody(log: &dyn SpanLog) {
    let spans: Vec<_> = (0..30).map(|at| of(1 + at as u8 % 2, at)).collect();
    put(log, &spans);
    let seen = log.read_after(Cursor::START, 10, ROOM).unwrap().next;
    log.delete_tenant_data(tenant(1)).unwrap();
    assert_eq!(log.list_spans(tenant(1), &SpanFilter::default(), page(9, 0)).unwrap().total, 0);
    assert_eq!((log.span(tenant(1), spans[0].span_id).unwrap(), log.stats(tenant(1)).unwrap().total_spans), (None, 0));
    let theirs: HashSet<_> =
        spans[10..].iter().filter(|span| span.tenant_id == tenant(2)).map(|span| span.span_id).collect();
    let (found, lost) = rest(log, seen);
    assert_eq!((found.into_iter().collect::<HashSet<_>>(), lost), (theirs, 10));
    // What began before comes too late; what begins now is the same tenant's new record.
    let inserted = log.insert(vec![of(1, 40), of(1, Timestamp::now().micros() + 1_000)]).unwrap();
    assert_eq!(inserted.fates, [Fate::TenantDeleted, Fate::Stored]);
    assert_eq!(log.stats(tenant(1)).unwrap().total_spans, 1);
    assert_eq!(log.stats(TenantId::from_bytes([2; 16])).unwrap().total_spans, 15);
}

/// A call with a facet of every kind.
fn call(who: u8, start: i64, agent: &str, session: &str) -> SpanRecord {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let client = Some("claude-cli".to_owned());
    SpanRecord { agent_id: text(agent), session_id: text(session), client, ..of(who, start) }
}

fn facets_select_exactly(log: &dyn SpanLog) {
    let found = |kind: &'static str| Finding::new(kind, Severity::Low, 0.9, "rules", "made up");
    let failed = SpanRecord {
        status_code: Some(502),
        error_type: Some("upstream_connect_error".to_owned()),
        estimated_cost_usd: None,
        ..call(1, 1, "a", "s")
    };
    let limited = SpanRecord { status_code: Some(429), duration_ms: 90_000.0, ..call(1, 2, "b", "s") };
    let stream = SpanRecord { streaming: true, estimated_cost_usd: Some(0.5), ..call(1, 3, "a", "t") };
    let two = vec![found("pii_detected"), found("jailbreak")];
    let bad = SpanRecord { security_score: Some(30), security_findings: two, client: None, ..call(1, 4, "", "") };
    let unscored =
        SpanRecord { security_score: None, security_findings: vec![found("jailbreak")], ..call(1, 5, "", "") };
    put(log, &[failed, limited, stream, bad, unscored, call(2, 6, "a", "s")]);
    let text = |text: &str| Some(text.to_owned());
    let any = Facets::default;
    for (facets, expected) in [
        (Facets { status: Some((502, 502)), ..any() }, vec![1]),
        (Facets { status: Some((400, 599)), ..any() }, vec![2, 1]),
        (Facets { status: Some((200, 299)), ..any() }, vec![5, 4, 3]),
        (Facets { error_type: text("upstream_connect_error"), ..any() }, vec![1]),
        (Facets { error_type: text("never"), ..any() }, vec![]),
        (Facets { agent_id: text("a"), ..any() }, vec![3, 1]),
        (Facets { agent_id: text("never"), ..any() }, vec![]),
        (Facets { session_id: text("s"), ..any() }, vec![2, 1]),
        (Facets { session_id: text("s"), agent_id: text("b"), ..any() }, vec![2]),
        (Facets { session_id: text("never"), ..any() }, vec![]),
        (Facets { client: text("claude-cli"), ..any() }, vec![5, 3, 2, 1]),
        (Facets { finding_type: text("jailbreak"), ..any() }, vec![5, 4]),
        (Facets { finding_type: text("pii_detected"), ..any() }, vec![4]),
        (Facets { finding_type: text("never"), ..any() }, vec![]),
        (Facets { cost_min_nano_usd: Some(500_000_000), ..any() }, vec![3]),
        (Facets { cost_max_nano_usd: Some(499_999_999), ..any() }, vec![5, 4, 2]),
        (Facets { duration_min_us: Some(90_000_000), ..any() }, vec![2]),
        (Facets { duration_max_us: Some(1_500), ..any() }, vec![5, 4, 3, 1]),
        (Facets { streaming: Some(true), ..any() }, vec![3]),
        (Facets { streaming: Some(false), status: Some((200, 200)), ..any() }, vec![5, 4]),
    ] {
        let filter = SpanFilter { facets: facets.clone(), ..SpanFilter::default() };
        let listed = log.list_spans(tenant(1), &filter, page(9, 0)).unwrap();
        let starts: Vec<_> = listed.data.iter().map(|span| span.start_time.micros()).collect();
        assert_eq!(
            (starts, listed.total, listed.total_is_exact),
            (expected.clone(), expected.len() as u64, true),
            "{facets:?}"
        );
        let filter = TraceFilter { facets, ..TraceFilter::default() };
        let listed = log.list_traces(tenant(1), &filter, page(9, 0)).unwrap();
        let starts: Vec<_> = listed.data.iter().map(|trace| trace.created_at.micros()).collect();
        assert_eq!(starts, expected, "traces: {filter:?}");
    }
    let filter =
        SpanFilter { provider: text("openai"), start_time: Some(Timestamp::from_micros(3)), ..SpanFilter::default() };
    assert_eq!(log.list_spans(tenant(1), &filter, page(9, 0)).unwrap().total, 3);
}

fn sessions_and_series_add_up(log: &dyn SpanLog) {
    const HOUR: i64 = 3_600_000_000;
    let claude = |span| SpanRecord { model: Some("claude".to_owned()), security_score: Some(60), ..span };
    let failed = |span| SpanRecord { status_code: Some(500), estimated_cost_usd: None, ..span };
    put(log, &[call(1, 10, "a", "one"), call(1, 20, "a", "two"), claude(call(1, HOUR, "b", "one"))]);
    put(log, &[failed(call(1, HOUR + 1, "a", "two")), call(1, 2 * HOUR, "", ""), call(2, 5, "a", "one")]);
    let sessions = log.list_sessions(tenant(1), &SessionFilter::default(), page(9, 0)).unwrap();
    assert_eq!((sessions.data.len(), sessions.total), (2, 2));
    let [two, one] = &sessions.data[..] else { panic!("two sessions") };
    assert_eq!((two.session_id.as_str(), one.session_id.as_str()), ("two", "one"), "newest first");
    assert_eq!((one.calls, one.failed_calls, one.total_tokens, one.security_score), (2, 0, 26, Some(60)));
    assert_eq!((two.calls, two.failed_calls, two.total_tokens, two.security_score), (2, 1, 26, Some(0)));
    assert_eq!((one.total_cost_usd, two.total_cost_usd), (0.000_24, 0.000_12));
    assert_eq!([one.first_call_at, one.last_call_at], [10, HOUR].map(|at| Some(Timestamp::from_micros(at))));
    assert_eq!((one.agent_id.as_deref(), one.model.as_deref()), (Some("b"), Some("claude")), "of its latest call");
    assert_eq!(one.client.as_deref(), Some("claude-cli"));
    let of_b = SessionFilter { agent_id: Some("b".to_owned()), ..SessionFilter::default() };
    assert_eq!(log.list_sessions(tenant(1), &of_b, page(9, 0)).unwrap().data, std::slice::from_ref(one));
    let late = SessionFilter { start_time: Some(Timestamp::from_micros(HOUR + 1)), ..SessionFilter::default() };
    assert_eq!(log.list_sessions(tenant(1), &late, page(9, 0)).unwrap().data, std::slice::from_ref(two));
    assert_eq!(log.list_sessions(tenant(3), &SessionFilter::default(), page(9, 0)).unwrap().total, 0);

    let (start, end) = (Timestamp::from_micros(0), Timestamp::from_micros(3 * HOUR));
    let whole = SeriesQuery {
        start,
        end,
        bucket_hours: 1,
        split: Split::Tenant,
        agent_id: None,
        session_id: None,
        model: None,
        points_max: 100,
    };
    let series = |asked: SeriesQuery| {
        let series = log.series(tenant(1), &asked).unwrap();
        assert!(!series.truncated);
        let points = series.points.into_iter();
        points
            .map(|point| (point.start_time.micros() / HOUR, point.name, point.calls, point.failed_calls))
            .collect::<Vec<_>>()
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(series(whole.clone()), [(0, None, 2, 0), (1, None, 2, 1), (2, None, 1, 0)]);
    assert_eq!(series(SeriesQuery { bucket_hours: 24, ..whole.clone() }), [(0, None, 5, 1)]);
    assert_eq!(
        series(SeriesQuery { split: Split::Agent, ..whole.clone() }),
        [(0, text("a"), 2, 0), (1, text("b"), 1, 0), (1, text("a"), 1, 1), (2, None, 1, 0)]
    );
    assert_eq!(
        series(SeriesQuery { split: Split::Model, bucket_hours: 24, ..whole.clone() }),
        [(0, text("gpt-4o"), 4, 1), (0, text("claude"), 1, 0)]
    );
    assert_eq!(
        series(SeriesQuery { split: Split::Session, session_id: text("one"), ..whole.clone() }),
        [(0, text("one"), 1, 0), (1, text("one"), 1, 0)]
    );
    assert_eq!(series(SeriesQuery { agent_id: text("b"), ..whole.clone() }), [(1, None, 1, 0)]);
    let cut = log.series(tenant(1), &SeriesQuery { points_max: 1, ..whole }).unwrap();
    assert_eq!((cut.points.len(), cut.truncated), (1, true));
}
