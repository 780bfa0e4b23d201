//! Builds pending reports, one at a time, on a thread that lives while there are any.
//!
//! The spans of the period are read in short reads one after another, so that a report neither holds a snapshot for
//! long nor takes more memory than one span at a time. The thread may get little CPU: a read that ran out of time is gone on
//! with where it ended. A report that was pending when the process ended is built after
//! the next start.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::OptionalExtension;
use uuid::Uuid;
use weir_config::vocab::{TenantId, Timestamp};

use super::audit;
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
        if *building {
            return;
        }
        let (store, start) = (std::sync::Arc::downgrade(&self.inner), self.inner.on_report_thread);
        match std::thread::Builder::new().name("weir-reports".to_owned()).spawn(move || {
            start();
            build_all(&store);
        }) {
            Ok(_) => *building = true,
            // The report stays pending; the next one asked for, or the next start, tries again.
            Err(error) => tracing::error!(%error, "no thread could be started to build a report"),
        }
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

    /// The oldest report that waits; where none does, the next one asked for gets a thread of its own.
    fn last_look(&self) -> Result<Option<(TenantId, Uuid)>, ReadError> {
        let mut building = self.inner.building.lock();
        let next = self.pending()?;
        *building = next.is_some();
        Ok(next)
    }

    /// Builds a report; an error is the report's, not the caller's. `None` when the store is being closed meanwhile.
    fn build(&self, report: &ReportRecord) -> Result<Option<serde_json::Value>, ReadError> {
        let closing = &self.inner.closing;
        let mut facts = Facts::default();
        let mut after = (report.period_start.micros(), i64::MIN);
        let tenant = report.tenant_id;
        while patiently(closing, ATTEMPT_WAIT, || {
            self.ask("read_report_spans", |conn| {
                let until = Instant::now() + READ_SLICE;
                spans_after(conn, tenant, after, report.period_end.micros(), |place, span| {
                    facts.take(&span);
                    after = place;
                    Instant::now() < until
                })
            })
        })? {
            if closing.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
        let events =
            patiently(closing, ATTEMPT_WAIT, || self.events_of(tenant, report.period_start, report.period_end))?;
        let check = patiently(closing, ATTEMPT_WAIT, || self.check_audit_since(&events.lines))?;
        Ok(Some(compliance::content(report, &facts, &events, &check)))
    }

    /// Administrative events of a period that concern a tenant, oldest first.
    fn events_of(&self, tenant: TenantId, start: Timestamp, end: Timestamp) -> Result<Events, ReadError> {
        self.ask("read_audit", |conn| audit::of_period(conn, tenant, start.micros(), end.micros()))
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
    wait: Duration,
    mut attempt: impl FnMut() -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    let mut left = ATTEMPTS;
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

fn build_all(store: &Weak<Inner>) {
    loop {
        // Held for one report only: a store that is dropped meanwhile is closed after it.
        let Some(store) = store.upgrade().map(|inner| Store { inner }) else { return };
        let closing = &store.inner.closing;
        let next = match patiently(closing, ATTEMPT_WAIT, || store.pending()) {
            Ok(Some(next)) => Ok(Some(next)),
            // Asked again under the lock, so that none is missed; not always, because who asks for a report waits for it.
            Ok(None) => store.last_look(),
            Err(error) => Err(error),
        };
        let next = match next {
            Ok(next) => next,
            Err(error) => return give_up(&store, &error.to_string()),
        };
        let Some((tenant, id)) = next else { return };
        if closing.load(Ordering::Relaxed) {
            *store.inner.building.lock() = false;
            return;
        }
        let report = match patiently(closing, ATTEMPT_WAIT, || store.report(tenant, id)) {
            Ok(Some(report)) => report,
            Ok(None) => continue,
            Err(error) => return give_up(&store, &error.to_string()),
        };
        let built = store.build(&report).transpose();
        let built = built.filter(|built| !is_transient(built) || !closing.load(Ordering::Relaxed));
        // It is built after the next start.
        let Some(built) = built else { return give_up(&store, "the store is being closed") };
        if let Err(error) = store.complete(&report, built) {
            return give_up(&store, &error.to_string());
        }
    }
}

/// The report stays pending.
fn give_up(store: &Store, reason: &str) {
    *store.inner.building.lock() = false;
    tracing::warn!(reason, "a compliance report could not be stored; it stays pending until the next one or a restart");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_store_is_asked_again_unless_it_is_being_closed() {
        let attempts = |closing: bool, outcome: fn(u32) -> Result<u32, ReadError>| {
            let mut made = 0;
            let result = patiently(&AtomicBool::new(closing), Duration::ZERO, || {
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
}
