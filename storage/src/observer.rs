//! Who is told how the store fares: of every batch, read and acknowledged write, and of spans that are given up.

use std::time::Duration;

use crate::record::SpanRecord;

/// Watches the store, for metrics and the circuit breaker. Called on the storage thread and on readers' threads.
pub trait StoreObserver: Send + Sync {
    /// A batch ended: `rows` were committed, or given up.
    fn batch(&self, rows: usize, took: Duration, outcome: BatchOutcome);
    /// Of the batch that has just ended, spans in which something was found were stored, or may have been in part.
    fn found(&self) {}
    /// A span of a batch that is given up, or one that no store could take: it will never be read.
    fn given_up(&self, span: &SpanRecord) {
        let _unused = span;
    }
    /// A read ended; `operation` is the metric label, e.g. `read_traces`.
    fn read(&self, operation: &'static str, took: Duration, ok: bool);
    /// An acknowledged write ended, e.g. `write_key`; `ok` is false when the store could not take it.
    fn write(&self, operation: &'static str, took: Duration, ok: bool) {
        let _unused = (operation, took, ok);
    }
}

/// How a batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchOutcome {
    /// Its rows are durable.
    Committed,
    /// It was given up after the batch timeout; its rows are lost and counted.
    Failed,
}
