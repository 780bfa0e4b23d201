//! Builds pending reports, one at a time, on a thread that lives while there are any.
//!
//! The spans of the period are read in short reads one after another, so that a report neither holds a snapshot for
//! long nor takes more memory than one span at a time. No lock is held while the store is read. A report that was pending when
//! the process ended is built after the next start. One whose building panics has failed and says so: it would be the next one
//! again, and the others would wait behind it for ever.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use weir_storage::reports::{EventsOfPeriod, ReportRecord, SpanPlace};
use weir_storage::{AuditLog, ReadError, ReportBook};

use super::compliance::{self, Facts};

/// Attempts at what the store was too busy for, and the wait between two. A report has time: nobody waits for it.
const ATTEMPTS: u32 = 20;
const ATTEMPT_WAIT: Duration = Duration::from_millis(500);
/// How long one read goes on; well below what a read may take.
const READ_SLICE: Duration = Duration::from_millis(200);

/// Sees to it that reports which were asked for are built.
pub struct ReportBuilder {
    reports: Arc<dyn ReportBook>,
    audit: Arc<dyn AuditLog>,
    /// Held for a moment, never while the store is read.
    thread: Mutex<Thread>,
    /// No further report is begun.
    closing: AtomicBool,
    on_thread: fn(),
}

/// What is known of the thread that builds reports.
#[derive(Default)]
struct Thread {
    running: bool,
    /// A report was asked for since the thread began to look for the next one.
    asked: bool,
}

impl ReportBuilder {
    /// Over this store. `on_thread` is called first on each thread that builds: the work can wait, and how a thread is made to give
    /// way is not decided here.
    pub fn new<S: ReportBook + AuditLog>(store: Arc<S>, on_thread: fn()) -> Arc<Self> {
        Self::over(Arc::clone(&store) as Arc<dyn ReportBook>, store, on_thread)
    }

    pub(super) fn over(reports: Arc<dyn ReportBook>, audit: Arc<dyn AuditLog>, on_thread: fn()) -> Arc<Self> {
        let (thread, closing) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { reports, audit, thread, closing, on_thread })
    }

    /// Goes on with the reports a former run left pending.
    pub fn resume(self: &Arc<Self>) {
        if matches!(self.reports.pending_report(), Ok(Some(_))) {
            self.wake();
        }
    }

    /// A report was asked for.
    pub fn wake(self: &Arc<Self>) {
        let mut thread = self.thread.lock();
        if thread.running {
            thread.asked = true;
            return;
        }
        let (builder, on_thread) = (Arc::downgrade(self), self.on_thread);
        let started = std::thread::Builder::new().name("weir-reports".to_owned()).spawn(move || {
            let _ends = Ends(&builder);
            on_thread();
            build_all(&builder);
        });
        if let Err(error) = &started {
            // It stays pending; the next one asked for, or the next start, tries again.
            tracing::error!(%error, "no thread could be started to build a report");
        }
        thread.running = started.is_ok();
    }

    /// Begins no further report; the one that is being built is built after the next start.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.thread.lock().running
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// The report to be built next; where none is, the next one asked for gets a thread of its own.
    fn next(&self) -> Result<Option<ReportRecord>, ReadError> {
        loop {
            self.thread.lock().asked = false;
            let next = self.patiently(|| self.reports.pending_report())?;
            let Some((tenant, id)) = next.filter(|_| !self.is_closing()) else {
                let mut thread = self.thread.lock();
                // What was asked for meanwhile may have missed this look.
                if thread.asked && !self.is_closing() {
                    continue;
                }
                thread.running = false;
                return Ok(None);
            };
            // It may have gone with its tenant.
            if let Some(report) = self.patiently(|| self.reports.report(tenant, id))? {
                return Ok(Some(report));
            }
        }
    }

    /// Builds a report; an error is the report's, not the caller's. `None` when the store is being closed meanwhile.
    fn build(&self, report: &ReportRecord) -> Result<Option<serde_json::Value>, ReadError> {
        let (tenant, start, end) = (report.tenant_id, report.period_start, report.period_end);
        let (mut facts, mut place) = (Facts::default(), SpanPlace::before(start));
        let mut take = |span| facts.take(&span);
        while self.patiently(|| self.reports.read_period(tenant, &mut place, end, READ_SLICE, &mut take))? {
            if self.is_closing() {
                return Ok(None);
            }
        }
        let mut events = EventsOfPeriod::new(tenant, start, end);
        while self.patiently(|| self.reports.read_events(&mut events, READ_SLICE))? {
            if self.is_closing() {
                return Ok(None);
            }
        }
        let events = events.hand_over();
        let check = self.patiently(|| self.audit.check_audit_aside(&events.lines))?;
        Ok(Some(compliance::content(report, &facts, &events, &check)))
    }

    /// The report stays pending.
    fn give_up(&self, reason: &str) {
        self.thread.lock().running = false;
        tracing::warn!(reason, "a compliance report was not built; it stays pending until the next one or a restart");
    }

    fn patiently<T>(&self, attempt: impl FnMut() -> Result<T, ReadError>) -> Result<T, ReadError> {
        patiently(&self.closing, ATTEMPT_WAIT, attempt)
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

/// The thread that builds. One that a panic ends must not count as running: no report would ever be built again.
struct Ends<'a>(&'a Weak<ReportBuilder>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(builder) = self.0.upgrade()
        {
            builder.give_up("its thread panicked");
        }
    }
}

/// Builds what is pending, one after another.
fn build_all(builder: &Weak<ReportBuilder>) {
    loop {
        // Held for one report only: a store that is dropped meanwhile is closed after it.
        let Some(builder) = builder.upgrade() else { return };
        let report = match builder.next() {
            Ok(Some(report)) => report,
            Ok(None) => return,
            Err(error) => return builder.give_up(&error.to_string()),
        };
        let built = match catch_unwind(AssertUnwindSafe(|| builder.build(&report))) {
            Ok(built) => {
                // What the store was too busy for while it was being closed is built after the next start.
                let built = built.transpose().filter(|built| !is_transient(built) || !builder.is_closing());
                let Some(built) = built else { return builder.give_up("the store is being closed") };
                built.map(|content| content.to_string()).map_err(|error| error.to_string())
            }
            Err(_) => {
                tracing::error!(report = %report.id, "building a compliance report panicked; the report has failed");
                Err("a bug in Weir ended the building of this report; see the log".to_owned())
            }
        };
        if let Err(error) = builder.reports.complete_report(report.tenant_id, report.id, built) {
            return builder.give_up(&error.to_string());
        }
    }
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
