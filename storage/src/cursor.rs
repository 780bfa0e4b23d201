//! Places in the log of spans, for those who read all of it in order and go on where they ended.

use crate::record::SpanRecord;

/// How far somebody has read: everything that was committed up to here. Cursors of one store can be saved in it and taken to
/// another process on it; in another store one says nothing, and reading begins with the first span there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Which database.
    pub(crate) file: i64,
    /// The integer of the last row.
    pub(crate) place: i64,
}

impl Cursor {
    /// Before the first span.
    pub const START: Self = Self { file: 0, place: 0 };

    /// A place of an implementation's own: behind that many spans, in a store of this number.
    pub const fn new(file: i64, place: i64) -> Self {
        Self { file, place }
    }

    /// Which store, 0 at the start.
    pub const fn file(self) -> i64 {
        self.file
    }

    /// How far in it, 0 at the start.
    pub const fn place(self) -> i64 {
        self.place
    }
}

/// Spans in the order of their commits.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanBatch {
    /// The spans, of all tenants. Empty when there is none behind the cursor.
    pub spans: Vec<SpanRecord>,
    /// Where to go on: to be saved once these spans are dealt with.
    pub next: Cursor,
    /// Spans between the two cursors that nobody can read any more: retention or their tenant's deletion was faster, or their
    /// rows are damaged.
    pub lost: u64,
    /// Spans between the two cursors that were passed over, because only those with findings were asked for.
    pub clean: u64,
    /// Whether more may have lain behind `next` when this was read; false at the end.
    pub more: bool,
}

/// What became of a span that was put in with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is there now, for the first time.
    Stored,
    /// The tenant had a span of its id, in whatever trace, which stays as it is.
    Known,
    /// Left out, because its tenant was deleted after it began.
    TenantDeleted,
}

/// What became of spans that were put in with an answer, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Of each of them.
    pub fates: Vec<Fate>,
}

impl Inserted {
    /// How many of them met this fate.
    pub fn count(&self, fate: Fate) -> usize {
        self.fates.iter().filter(|of| **of == fate).count()
    }
}

/// How far somebody has read a trace. The default is before its first span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TracePlace {
    /// The integer of the last row that was read; 0 before the first.
    pub(crate) row: i64,
    /// Its place in the trace.
    pub(crate) ord: i64,
}

/// What has come to a trace since somebody read it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TraceRest {
    /// The new spans, without their texts.
    pub spans: Vec<SpanRecord>,
    /// How many spans were looked at, the known ones included.
    pub rows: usize,
    /// Where to go on.
    pub next: TracePlace,
    /// There is more behind that place.
    pub more: bool,
    /// The trace that was read before is gone: this is another one's beginning.
    pub anew: bool,
}
