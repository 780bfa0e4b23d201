//! Ships spans from the journal to the analytics store.
//!
//! The journal is the SQLite file: a span is durable there before anybody hears of it. A batch is everything between two places of the
//! journal. Its end (the cut) is written down in the journal before the batch is sent for the first time, so that after a crash the same
//! batch is sent under the same token, which the store takes once; what is sent under another token all the same replaces itself, as
//! a row's key and version are the span's own. The watermark moves when all of a batch is taken.
//!
//! Invariant: what lies behind the watermark is in the journal, what lies before it is in the analytics store.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde_json::json;
use uuid::Uuid;
use weir_config::vocab::{TenantId, Timestamp};

use super::Production;
use super::relational::{Fail, col, p, tenant_of};
use super::wide::{self, Mark};
use crate::cursor::Cursor;
use crate::error::{NotWritten, ReadError};
use crate::record::SpanRecord;
use crate::roles::SpanLog as _;
use crate::sqlite::{Reads, Texts};
use crate::store::Store;

/// Spans, and about their bytes, of one batch.
const BATCH_SPANS: usize = 10_000;
pub(super) const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Spans read from the journal at a time.
const READ_SPANS: u32 = 1_000;
/// How long a span waits for others to be sent with.
const GATHER: Duration = Duration::from_secs(1);
/// Between two batches that somebody waits for.
const PACE: Duration = Duration::from_millis(50);
/// Between attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// How long spans stay in the journal that the analytics store has: for consumers of the feed.
const KEEP: Duration = Duration::from_secs(600);
/// Names of the journal's cursors: how far batches are taken, and how far the last one that was begun goes.
const TAKEN: &str = "weir.shipped";
const CUT: &str = "weir.cut";

/// What the shipper is asked for.
#[derive(Default)]
struct Wanted {
    /// Somebody waits for what lies up to here.
    upto: i64,
    stops: bool,
}

/// How far shipping has come.
pub(super) struct Shipping {
    pub(super) file: i64,
    watermark: AtomicI64,
    /// End of the batch that is on its way.
    cut: AtomicI64,
    /// Held while a batch is cut, and while a span that is in none is changed in the journal.
    pub(super) cutting: Mutex<()>,
    wanted: Mutex<Wanted>,
    wake: Condvar,
    moved: Condvar,
    /// Why the last attempt failed, and since when attempts do.
    failing: Mutex<Option<(String, Instant)>>,
    pub(super) shipped: AtomicU64,
    /// Shipped batches by their ends, until they leave the journal.
    kept: Mutex<VecDeque<(Instant, i64)>>,
    /// Tenants that the relational store is known to have.
    known: Mutex<HashSet<TenantId>>,
}

/// The row up to which a journal's spans are in the analytics store, as it is written down there.
pub(crate) fn shipped_upto(reads: &Reads<'_>) -> Result<i64, ReadError> {
    let file = reads.end()?.file();
    Ok(reads.cursor(TAKEN)?.filter(|at| at.file() == file).map_or(0, Cursor::place))
}

impl Shipping {
    /// Goes on where the journal says.
    pub(super) fn resume(reads: &Reads<'_>) -> Result<Self, ReadError> {
        let file = reads.end()?.file();
        let taken = shipped_upto(reads)?;
        let cut = reads.cursor(CUT)?.filter(|at| at.file() == file).map_or(0, Cursor::place);
        Ok(Self {
            file,
            watermark: AtomicI64::new(taken),
            cut: AtomicI64::new(cut.max(taken)),
            cutting: Mutex::default(),
            wanted: Mutex::default(),
            wake: Condvar::new(),
            moved: Condvar::new(),
            failing: Mutex::default(),
            shipped: AtomicU64::new(0),
            kept: Mutex::default(),
            known: Mutex::default(),
        })
    }

    /// Spans behind this row are in the journal only.
    pub(super) fn watermark(&self) -> i64 {
        self.watermark.load(Ordering::Acquire)
    }

    /// Spans behind this row are in no batch.
    pub(super) fn cut(&self) -> i64 {
        self.cut.load(Ordering::Acquire)
    }

    /// Why nothing is taken at the moment.
    pub(super) fn failing(&self) -> Option<String> {
        self.failing.lock().as_ref().map(|(reason, _)| reason.clone())
    }

    pub(super) fn stop(&self) {
        self.wanted.lock().stops = true;
        self.wake.notify_all();
        self.moved.notify_all();
    }

    /// Waits until everything up to this place is taken. False when that takes longer, or the store takes nothing.
    pub(super) fn wait_for(&self, upto: i64, within: Duration) -> bool {
        let until = Instant::now() + within;
        let mut wanted = self.wanted.lock();
        if self.watermark() >= upto {
            return true;
        }
        wanted.upto = wanted.upto.max(upto);
        self.wake.notify_all();
        while self.watermark() < upto {
            if self.failing.lock().is_some() || wanted.stops || self.moved.wait_until(&mut wanted, until).timed_out() {
                return self.watermark() >= upto;
            }
        }
        true
    }

    /// Waits for the next batch's time; false at the end.
    fn rest(&self, at_most: Duration) -> bool {
        let mut wanted = self.wanted.lock();
        let until = Instant::now() + at_most;
        while !wanted.stops && wanted.upto <= self.watermark() {
            if self.wake.wait_until(&mut wanted, until).timed_out() {
                break;
            }
        }
        !wanted.stops
    }

    fn failed(&self, reason: String) {
        let _waiters_see_it = self.wanted.lock();
        let mut failing = self.failing.lock();
        match &mut *failing {
            Some((said, _)) => *said = reason,
            None => {
                tracing::warn!(
                    reason,
                    "spans cannot be shipped; they stay in the journal, and shipping is tried again"
                );
                *failing = Some((reason, Instant::now()));
            }
        }
        self.moved.notify_all();
    }

    fn taken(&self, upto: i64, spans: usize) {
        let _waiters_see_it = self.wanted.lock();
        self.watermark.store(upto, Ordering::Release);
        self.shipped.fetch_add(spans as u64, Ordering::Relaxed);
        if let Some((_, since)) = self.failing.lock().take() {
            tracing::info!(away_s = since.elapsed().as_secs(), "spans are shipped again");
        }
        self.kept.lock().push_back((Instant::now(), upto));
        self.moved.notify_all();
    }

    /// Up to where the journal need not keep spans any longer.
    fn left_behind(&self) -> Option<i64> {
        let mut kept = self.kept.lock();
        let mut upto = None;
        while let Some((at, place)) = kept.front().copied()
            && at.elapsed() >= KEEP
        {
            kept.pop_front();
            upto = Some(place);
        }
        upto
    }
}

/// A batch that was cut.
struct Batch {
    first: i64,
    end: Cursor,
    spans: Vec<SpanRecord>,
    /// It was full, so that the next one need not wait for further spans.
    full: bool,
}

impl Production {
    /// The shipper's thread. It ends with the store: `store` gives it as long as somebody has it.
    pub(super) fn ship(&self, store: impl Fn() -> Option<Store>) {
        let mut backoff = BACKOFF.0;
        let mut wait = Duration::ZERO;
        while self.shipping.rest(wait) {
            let Some(store) = store() else { return };
            match self.ship_one(&store) {
                Ok(more) => {
                    backoff = BACKOFF.0;
                    wait = if more { Duration::ZERO } else { GATHER };
                    std::thread::sleep(if more { Duration::ZERO } else { PACE });
                }
                Err(reason) => {
                    self.shipping.failed(reason);
                    drop(store);
                    std::thread::sleep(backoff);
                    backoff = (backoff * 2).min(BACKOFF.1);
                    wait = Duration::ZERO;
                }
            }
        }
    }

    /// Ships the next batch, if there is one; whether more may be waiting.
    fn ship_one(&self, store: &Store) -> Result<bool, String> {
        let Some(Batch { first, end, mut spans, full }) = self.cut_batch(store).map_err(|error| error.to_string())?
        else {
            return Ok(false);
        };
        // A span's number is its place in the batch, which is the same however often it is sent.
        let mark = |at: usize| Mark { node: self.node, seq: first.unsigned_abs() + at as u64, version: 1, reported: 0 };
        let mut numbered: Vec<(Mark, SpanRecord)> =
            spans.drain(..).enumerate().map(|(at, span)| (mark(at), span)).collect();
        if let Err(error) = self.leave_out_deleted(&mut numbered) {
            tracing::debug!(%error, "the relational store is away; which tenants were deleted is not asked");
        }
        if !numbered.is_empty() {
            self.send(first, end.place(), &mut numbered).map_err(|error| error.to_string())?;
        }
        let many = numbered.len();
        store.local_save_cursor(TAKEN, end).map_err(|error: NotWritten| error.to_string())?;
        self.shipping.taken(end.place(), many);
        if let Some(row) = self.shipping.left_behind() {
            store.local_shipped_upto(row);
        }
        Ok(full)
    }

    /// The batch that was cut and not taken, or a new one, whose end is written down first.
    fn cut_batch(&self, store: &Store) -> Result<Option<Batch>, ReadError> {
        let shipping = &self.shipping;
        let from = Cursor::new(shipping.file, shipping.watermark());
        let open = shipping.cut();
        if open > from.place() {
            let end = Cursor::new(shipping.file, open);
            let (mut spans, mut at) = (Vec::new(), from);
            loop {
                let batch = store.local_reads().read_between(at, end, READ_SPANS, BATCH_BYTES)?;
                spans.extend(batch.spans);
                at = batch.next;
                if !batch.more {
                    break;
                }
            }
            // What was begun before was begun because nobody took it: more has come since.
            return Ok(Some(Batch { first: from.place() + 1, end, spans, full: true }));
        }
        let _nobody_changes_them = shipping.cutting.lock();
        let (mut spans, mut at, mut bytes) = (Vec::new(), from, 0);
        let full = loop {
            let batch = store.local_reads().read_after(at, READ_SPANS, BATCH_BYTES, Texts::Read)?;
            bytes += batch.spans.iter().map(crate::queue::weigh).sum::<usize>();
            spans.extend(batch.spans);
            at = batch.next;
            // By its bytes as much as by its spans: a gateway whose spans are large must not rest between batches.
            let full = batch.more && (spans.len() >= BATCH_SPANS || bytes >= BATCH_BYTES);
            if !batch.more || full {
                break full;
            }
        };
        if at.place() <= from.place() {
            return Ok(None);
        }
        store.local_save_cursor(CUT, at).map_err(|error| ReadError::Unavailable { reason: error.to_string() })?;
        shipping.cut.store(at.place(), Ordering::Release);
        Ok(Some(Batch { first: from.place() + 1, end: at, spans, full }))
    }

    /// Leaves out what began before its tenant's deletion, and has the others' tenants begin.
    fn leave_out_deleted(&self, spans: &mut Vec<(Mark, SpanRecord)>) -> Result<(), NotWritten> {
        let tenants: HashSet<TenantId> = spans.iter().map(|(_, span)| span.tenant_id).collect();
        let ids: Vec<Uuid> = tenants.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
        let asked = self.relational.read(|tx| {
            let rows = tx.rows("SELECT tenant, at_us FROM burials WHERE tenant = ANY($1)", p![ids.clone()])?;
            rows.iter().map(|row| Ok((tenant_of(row, 0)?, col(row, 1)?))).collect::<Result<HashMap<_, i64>, Fail>>()
        });
        let buried = asked.map_err(|error| NotWritten::Unavailable { reason: error.to_string() })?;
        self.note_burials(&buried);
        spans.retain(|(_, span)| buried.get(&span.tenant_id).is_none_or(|at_us| span.start_time.micros() > *at_us));
        let left: HashSet<TenantId> = spans.iter().map(|(_, span)| span.tenant_id).collect();
        self.begin_tenants(left)
    }

    /// Tenants that were only seen are in the relational store from now on.
    pub(super) fn begin_tenants(&self, tenants: HashSet<TenantId>) -> Result<(), NotWritten> {
        let known = self.shipping.known.lock().clone();
        let mut fresh: Vec<TenantId> = tenants.into_iter().filter(|tenant| !known.contains(tenant)).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        fresh.sort_by_key(|id| *id.as_bytes());
        self.relational.write(|tx| fresh.iter().try_for_each(|tenant| tx.begin_tenant(*tenant)))?;
        self.shipping.known.lock().extend(fresh);
        Ok(())
    }

    /// A tenant that was deleted may begin again.
    pub(super) fn forget_tenant(&self, tenant: TenantId) {
        self.shipping.known.lock().remove(&tenant);
    }

    /// Sends a batch, from the row `first` of its journal to the row `last`.
    pub(super) fn send(&self, first: i64, last: i64, spans: &mut [(Mark, SpanRecord)]) -> Result<(), ReadError> {
        let (mut wide_rows, mut calls) = (Vec::new(), Vec::new());
        for (mark, span) in &mut *spans {
            let before = calls.len();
            let written = wide::call(&mut calls, span, *mark).and_then(|()| wide::row(&mut wide_rows, span, *mark));
            if let Err(error) = written {
                calls.truncate(before);
                self.unshippable.fetch_add(1, Ordering::Relaxed);
                tracing::error!(error, span_id = %span.span_id, "a span cannot be written as JSON and is left out");
            }
        }
        let token = format!("{}-{first}-{last}", self.node);
        self.analytics.insert("weir_spans", &token, &wide_rows)?;
        self.analytics.insert("weir_calls", &token, &calls)?;
        let batch = json!({"node": self.node, "first": first, "last": last, "spans": spans.len(),
            "at_us": Timestamp::now().micros()});
        self.analytics.insert("weir_batches", &token, batch.to_string().as_bytes())
    }

    /// Writes a further version of a span.
    pub(super) fn send_version(&self, span: &mut SpanRecord, mark: Mark) -> Result<(), ReadError> {
        let unfit = |reason| ReadError::Unavailable { reason };
        let (mut row, mut call) = (Vec::new(), Vec::new());
        wide::row(&mut row, span, mark).and_then(|()| wide::call(&mut call, span, mark)).map_err(unfit)?;
        let token = Uuid::new_v4().to_string();
        self.analytics.insert("weir_spans", &token, &row)?;
        self.analytics.insert("weir_calls", &token, &call)
    }

    /// Waits until the analytics store has what the journal held when this was called.
    pub(super) fn catch_up(&self, store: &Store, within: Duration) -> Result<bool, ReadError> {
        let end = store.local_reads().end()?.place();
        Ok(self.shipping.wait_for(end, within))
    }

    /// Has all that the journal holds shipped before it is closed; false where that takes longer, or nothing is taken.
    pub(crate) fn ship_rest(&self, store: &Store, within: Duration) -> bool {
        self.shipping.failing().is_none() && self.catch_up(store, within).unwrap_or(false)
    }

    /// Whether the journal holds what the analytics store lacks.
    pub(crate) fn backlog(&self, store: &Store) -> u64 {
        let end = store.end().map_or(0, Cursor::place);
        (end - self.shipping.watermark()).max(0).unsigned_abs()
    }
}
