//! Builds pending reports, one at a time, on a thread that lives while there are any.
//!
//! The spans of the period are read in short reads one after another, so that a report neither holds a snapshot for
//! long nor takes more memory than one span at a time. The thread stands back for everything else; where that leaves it
//! too little CPU, another one that does so less goes on where it ended. No lock is held while the database is read. A
//! report that was pending when the process ended is built after the next start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rusqlite::OptionalExtension;
use uuid::Uuid;
use weir_config::vocab::{TenantId, Timestamp};

use super::audit::Period;
use super::chain::in_time;
use super::intern::find_tenant;
use super::read::spans_after;
use crate::compliance::{self, Events, Facts};
use crate::error::{NotWritten, ReadError};
use crate::reports::{ReportRecord, ReportStatus};
use crate::store::{Inner, Store};

/// Attempts at what the store was too busy for, and the wait between two. A report has time: nobody waits for it.
const ATTEMPTS: u32 = 20;
const ATTEMPT_WAIT: Duration = Duration::from_millis(500);
/// How long one read of spans goes on; well below what a read may take.
const READ_SLICE: Duration = Duration::from_millis(200);
/// How long a report is built by a thread that stands back. Longer than a million spans take on a machine with a free CPU.
const STANDING_BACK_MAX: Duration = Duration::from_secs(10);

/// A report being built.
struct Begun {
    report: ReportRecord,
    facts: Facts,
    /// The place of the last span that was taken in.
    after: (i64, i64),
    period: Period,
    /// What was read of the period, to the end.
    events: Option<Events>,
}

impl Begun {
    fn of(report: ReportRecord) -> Self {
        let (start_us, end_us) = (report.period_start.micros(), report.period_end.micros());
        let period = Period::new(report.tenant_id, start_us, end_us);
        Self { report, facts: Facts::default(), after: (start_us, i64::MIN), period, events: None }
    }
}

/// What is known of the thread that builds reports.
#[derive(Default)]
pub(crate) struct Builder {
    running: bool,
    /// A report was asked for since the thread began to look for the next one.
    asked: bool,
}

impl Store {
    /// Goes on with the reports a former run left pending.
    pub(crate) fn resume_reports(&self) {
        if matches!(self.pending(), Ok(Some(_))) {
            self.build_reports();
        }
    }

    /// Sees to it that pending reports are being built.
    pub(crate) fn build_reports(&self) {
        let mut building = self.inner.building.lock();
        if building.running {
            building.asked = true;
            return;
        }
        building.running = self.start_builder(None);
    }

    /// Starts a thread that builds what is pending; one that goes on with what another has begun stands back less. False when
    /// there is none: the report stays pending, and the next one asked for, or the next start, tries again.
    fn start_builder(&self, begun: Option<Begun>) -> bool {
        let (store, start) = (Arc::downgrade(&self.inner), self.inner.on_report_thread);
        let started = std::thread::Builder::new().name("weir-reports".to_owned()).spawn(move || {
            start(begun.is_some());
            build_all(&store, begun, STANDING_BACK_MAX);
        });
        if let Err(error) = &started {
            tracing::error!(%error, "no thread could be started to build a report");
        }
        started.is_ok()
    }

    /// The oldest report that waits.
    fn pending(&self) -> Result<Option<(TenantId, Uuid)>, ReadError> {
        self.ask("read_reports", |conn| {
            let sql = "SELECT t.uuid, r.report_id FROM reports r JOIN tenants t ON t.id = r.tenant \
                WHERE r.status = 'pending' AND length(t.uuid) = 16 ORDER BY r.id LIMIT 1";
            let found = conn.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            Ok(found.map(|(tenant, id)| (TenantId::from_bytes(tenant), Uuid::from_bytes(id))))
        })
    }

    /// The report to be built next; where none is, the next one asked for gets a thread of its own.
    fn next_report(&self) -> Result<Option<Begun>, ReadError> {
        let closing = &self.inner.closing;
        loop {
            self.inner.building.lock().asked = false;
            let next = patiently(closing, ATTEMPTS, ATTEMPT_WAIT, || self.pending())?;
            let Some((tenant, id)) = next.filter(|_| !closing.load(Ordering::Relaxed)) else {
                let mut building = self.inner.building.lock();
                // What was asked for meanwhile may have missed this look.
                if building.asked && !closing.load(Ordering::Relaxed) {
                    continue;
                }
                building.running = false;
                return Ok(None);
            };
            // It may have gone with its tenant.
            if let Some(report) = patiently(closing, ATTEMPTS, ATTEMPT_WAIT, || self.report(tenant, id))? {
                return Ok(Some(Begun::of(report)));
            }
        }
    }

    /// Builds a report, with a `limit` of time on a thread that stands back; an error is the report's, not the caller's. `None`
    /// when the store is being closed meanwhile.
    fn build(&self, begun: &mut Begun, limit: Option<Duration>) -> Result<Option<serde_json::Value>, ReadError> {
        let closing = &self.inner.closing;
        let attempts = if limit.is_some() { 1 } else { ATTEMPTS };
        let deadline = limit.map(|limit| Instant::now() + limit);
        let Begun { report, facts, after, period, events } = begun;
        let (tenant, end_us) = (report.tenant_id, report.period_end.micros());
        while patiently(closing, attempts, ATTEMPT_WAIT, || {
            in_time(deadline)?;
            self.ask("read_report_spans", |conn| {
                let until = Instant::now() + READ_SLICE;
                spans_after(conn, tenant, *after, end_us, |place, span| {
                    facts.take(&span);
                    *after = place;
                    Instant::now() < until
                })
            })
        })? {
            if closing.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
        while events.is_none() {
            let more = patiently(closing, attempts, ATTEMPT_WAIT, || {
                in_time(deadline)?;
                self.ask("read_audit", |conn| period.go_on(conn, Instant::now() + READ_SLICE))
            })?;
            if closing.load(Ordering::Relaxed) {
                return Ok(None);
            }
            *events = (!more).then(|| period.hand_over());
        }
        let events = events.get_or_insert_with(|| period.hand_over());
        let check = patiently(closing, attempts, ATTEMPT_WAIT, || self.check_audit_meanwhile(&events.lines, deadline))?;
        Ok(Some(compliance::content(report, facts, events, &check)))
    }

    fn complete(&self, report: &ReportRecord, built: Result<serde_json::Value, ReadError>) -> Result<(), NotWritten> {
        let (tenant, id) = (report.tenant_id, report.id);
        let (status, content, error) = match built {
            Ok(content) => (ReportStatus::Complete, Some(content.to_string()), None),
            Err(error) => (ReportStatus::Failed, None, Some(error.to_string())),
        };
        self.write("write_report", move |tx| {
            let Some(tenant) = find_tenant(tx.conn, tenant)? else { return Ok(()) };
            tx.conn
                .prepare_cached(
                    "UPDATE reports SET status = ?3, content = ?4, error = ?5, completed_us = ?6 \
                     WHERE tenant = ?1 AND report_id = ?2",
                )?
                .execute((
                    tenant,
                    id.as_bytes().as_slice(),
                    status.as_str(),
                    &content,
                    &error,
                    Timestamp::now().micros(),
                ))?;
            Ok(())
        })
    }
}

/// Tries again while the store is busy, and not being closed.
fn patiently<T>(
    closing: &AtomicBool,
    attempts: u32,
    wait: Duration,
    mut attempt: impl FnMut() -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    let mut left = attempts;
    loop {
        let result = attempt();
        left -= 1;
        if !is_transient(&result) || left == 0 || closing.load(Ordering::Relaxed) {
            return result;
        }
        std::thread::sleep(wait);
    }
}

fn is_transient<T>(result: &Result<T, ReadError>) -> bool {
    matches!(result, Err(ReadError::Busy { .. } | ReadError::TimedOut { .. }))
}

/// Builds what is pending, one after another, beginning with what another thread has begun.
fn build_all(store: &Weak<Inner>, mut begun: Option<Begun>, standing_back_max: Duration) {
    let limit = begun.is_none().then_some(standing_back_max);
    loop {
        // Held for one report only: a store that is dropped meanwhile is closed after it.
        let Some(store) = store.upgrade().map(|inner| Store { inner }) else { return };
        let closing = &store.inner.closing;
        let next = begun.take().map_or_else(|| store.next_report(), |begun| Ok(Some(begun)));
        let mut this = match next {
            Ok(Some(this)) => this,
            Ok(None) => return,
            Err(error) => return give_up(&store, &error.to_string()),
        };
        let built = store.build(&mut this, limit).transpose();
        let built = built.filter(|built| !is_transient(built) || !closing.load(Ordering::Relaxed));
        // It is built after the next start.
        let Some(built) = built else { return give_up(&store, "the store is being closed") };
        if is_transient(&built) && limit.is_some() {
            if !store.start_builder(Some(this)) {
                give_up(&store, "no thread could be started");
            }
            return;
        }
        if let Err(error) = store.complete(&this.report, built) {
            return give_up(&store, &error.to_string());
        }
    }
}

/// The report stays pending.
fn give_up(store: &Store, reason: &str) {
    store.inner.building.lock().running = false;
    tracing::warn!(reason, "a compliance report could not be stored; it stays pending until the next one or a restart");
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::reports::ReportType;
    use crate::store::{Backend, BatchOutcome, StoreObserver, StoreOptions};

    #[test]
    fn a_busy_store_is_asked_again_unless_it_is_being_closed() {
        let attempts = |closing: bool, outcome: fn(u32) -> Result<u32, ReadError>| {
            let mut made = 0;
            let result = patiently(&AtomicBool::new(closing), ATTEMPTS, Duration::ZERO, || {
                made += 1;
                outcome(made)
            });
            (made, result)
        };
        let busy = || ReadError::Busy { readers: 8 };
        let damaged = || ReadError::Damaged { row: 1 };
        assert_eq!(attempts(false, |at| if at < 3 { Err(ReadError::Busy { readers: 8 }) } else { Ok(at) }), (3, Ok(3)));
        assert_eq!(attempts(false, |_| Err(ReadError::Busy { readers: 8 })), (ATTEMPTS, Err(busy())));
        assert_eq!(attempts(true, |_| Err(ReadError::Busy { readers: 8 })), (1, Err(busy())));
        assert_eq!(attempts(false, |_| Err(ReadError::Damaged { row: 1 })), (1, Err(damaged())));
    }

    struct Unobserved;

    impl StoreObserver for Unobserved {
        fn batch(&self, _rows: usize, _took: Duration, _outcome: BatchOutcome) {}
        fn read(&self, _operation: &'static str, _took: Duration, _ok: bool) {}
    }

    static STARVED: Mutex<Vec<bool>> = Mutex::new(Vec::new());

    #[test]
    fn what_a_thread_that_stands_back_cannot_end_another_one_does() {
        let store = Store::open(StoreOptions {
            backend: Backend::Memory { max_bytes: 1 << 26 },
            batch_timeout: Duration::from_secs(10),
            queue_items: 10,
            queue_bytes: 1 << 20,
            observer: Arc::new(Unobserved),
            on_report_thread: |starved| STARVED.lock().push(starved),
        })
        .unwrap();
        // Nobody is to build but who is called here.
        store.inner.building.lock().running = true;
        let (tenant, at) = (TenantId::DEFAULT, Timestamp::from_micros);
        let asked = [1, 2].map(|end| store.create_report(tenant, ReportType::Soc2, at(0), at(end)).unwrap());
        build_all(&Arc::downgrade(&store.inner), None, Duration::ZERO);
        let started = Instant::now();
        for report in asked {
            while store.report(tenant, report.id).unwrap().unwrap().status != ReportStatus::Complete {
                assert!(started.elapsed() < Duration::from_secs(30), "it is not built");
                std::thread::yield_now();
            }
        }
        assert_eq!(*STARVED.lock(), [true]);
    }
}
