//! What waits for one consumer in memory, and what became of its spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;
use tokio::sync::Notify;
use weir_storage::record::SpanRecord;

use super::tally::Tally;

/// Spans that wait for one consumer, and their bytes. Consumers share a span's memory.
pub(super) const SPANS_MAX: usize = 4_096;
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// A consumer as those who bring spans see it.
pub(super) struct Waiting {
    pub(super) name: &'static str,
    pub(super) tally: Tally,
    /// See [`Consumer::heeds_clean_calls`](super::Consumer::heeds_clean_calls).
    pub(super) heeds_clean_calls: bool,
    spans: ArrayQueue<(Arc<SpanRecord>, usize)>,
    bytes: AtomicUsize,
    news: Notify,
}

impl Waiting {
    pub(super) fn new(name: &'static str, heeds_clean_calls: bool) -> Self {
        let spans = ArrayQueue::new(SPANS_MAX);
        Self {
            name,
            tally: Tally::default(),
            heeds_clean_calls,
            spans,
            bytes: AtomicUsize::new(0),
            news: Notify::new(),
        }
    }

    /// Takes a span in, or counts it as lost.
    pub(super) fn push(&self, span: Arc<SpanRecord>, bytes: usize) {
        let held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if held.saturating_add(bytes) > BYTES_MAX || self.spans.push((span, bytes)).is_err() {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return self.tally.queue_full.add(1);
        }
        self.wake();
    }

    /// The oldest `most` spans.
    pub(super) fn take(&self, most: usize) -> Vec<Arc<SpanRecord>> {
        let next = || {
            let (span, bytes) = self.spans.pop()?;
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            Some(span)
        };
        std::iter::from_fn(next).take(most).collect()
    }

    /// There is something to read.
    pub(super) fn wake(&self) {
        self.news.notify_one();
    }

    /// Waits for something to read; at once when it came since the last call.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }
}
