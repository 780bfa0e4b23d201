//! Promise: keeping a record and reading it takes memory in proportion to its texts, whatever they repeat and into how many parts they
//! are cut.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests fail by panicking, their helpers too.

#[path = "../../tests/hostile/peak.rs"]
#[allow(dead_code)] // What measures one thread is for others.
mod peak;
#[path = "it/support.rs"]
#[allow(dead_code, unused_imports)] // The other suite uses all of it.
mod support;
#[path = "../../tests/hostile/texts.rs"]
mod texts;

use std::ops::Range;

use peak::{Bound, assert_bounded_in};
use support::{PATIENCE, file, options, page, span};
use tempfile::TempDir;
use texts::hostile;
use weir_config::vocab::part::{PartForm, PartKind, PartRecord, PartSide};
use weir_config::vocab::{SpanId, TenantId, TraceId};
use weir_storage::query::SpanFilter;
use weir_storage::record::SpanRecord;
use weir_storage::{Backend, SpanLog as _, Store};

fn part(side: PartSide, text: Range<usize>) -> PartRecord {
    PartRecord {
        side,
        kind: PartKind::User,
        form: PartForm::Text,
        role: Some("user".into()),
        message: Some(0),
        text: Some(text.start as u32..text.end as u32),
        raw: None,
        tool: None,
    }
}

/// A record with this text as what was asked, in parts of so many bytes, and half of it as what was answered.
fn record(text: String, part_bytes: usize) -> SpanRecord {
    let answer = text[..text.floor_char_boundary(text.len() / 2)].to_owned();
    let place = |at: usize| text.floor_char_boundary(at.min(text.len()));
    let mut parts: Vec<_> = (0..text.len().div_ceil(part_bytes))
        .map(|number| place(number * part_bytes)..place((number + 1) * part_bytes))
        .map(|place| part(PartSide::Request, place))
        .collect();
    parts.push(part(PartSide::Response, 0..answer.len()));
    SpanRecord { prompt: Some(text), response: Some(answer), parts, ..span(1_000) }
}

/// The same under ids of its own.
fn again(record: &SpanRecord) -> SpanRecord {
    let trace_id = TraceId::fresh();
    SpanRecord { trace_id, span_id: SpanId::of_lone(trace_id), ..record.clone() }
}

fn keeps_and_reads(store: &Store, name: &str) {
    for (cut, part_bytes) in [("whole", usize::MAX), ("in pieces", 4 << 10)] {
        let text = |family, length| record(hostile(family, length), part_bytes);
        assert_bounded_in(&format!("keeping, {name}, {cut}"), Bound::of_all(12, 4 << 20), text, |record| {
            store.insert(vec![again(record)]).unwrap();
        });
        let kept = |family, length| store.insert(vec![again(&record(hostile(family, length), part_bytes))]).unwrap();
        assert_bounded_in(&format!("reading, {name}, {cut}"), Bound::of_all(12, 4 << 20), kept, |_| {
            store.list_spans(TenantId::DEFAULT, &SpanFilter::default(), page(1, 0)).unwrap();
        });
    }
}

#[test]
fn records_are_kept_and_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    // The memory profile keeps what it is given, up to its bound: what is measured there is that it makes room.
    for (name, backend) in [("a file", file(&path)), ("memory", Backend::Memory { max_bytes: 1 << 20 })] {
        let store = Store::open(options(backend)).unwrap();
        keeps_and_reads(&store, name);
        assert!(store.close(PATIENCE));
    }
}
