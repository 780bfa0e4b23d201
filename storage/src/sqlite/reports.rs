//! The reports' table.
//!
//! A tenant's list is bounded, and so is what one page holds. What is taken out are a tenant's oldest reports, so that the
//! places of its list (`nth`) have no gap.

use rusqlite::{OptionalExtension, Row};
use uuid::Uuid;
use weir_config::vocab::{TenantId, Timestamp};

use super::intern::find_tenant;
use super::paging::{first_place, next_place};
use super::read::{ANSWER_BYTES_MAX, unless_full};
use super::readers::Stop;
use super::reads::Reads;
use super::tx::Tx;
use crate::error::ReadError;
use crate::error::WriteError;
use crate::query::{Page, Paged};
use crate::reports::{PENDING_MAX, ReportContent, ReportRecord, ReportStatus};

/// Reports of one tenant that are kept; the next one asked for takes the place of the oldest.
const KEPT_MAX: i64 = 1_000;
/// Reports taken out in one transaction.
const BATCH_REPORTS: i64 = 16;
const COLUMNS: &str =
    "report_id, report_type, status, period_start_us, period_end_us, created_us, completed_us, content, error";

fn record(tenant_id: TenantId, row: &Row<'_>) -> rusqlite::Result<ReportRecord> {
    let wrong = |column: usize, text: String| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, text.into())
    };
    let report_type: String = row.get(1)?;
    let status: String = row.get(2)?;
    let content: Option<String> = row.get(7)?;
    Ok(ReportRecord {
        id: Uuid::from_bytes(row.get(0)?),
        tenant_id,
        report_type: report_type.parse().map_err(|_| wrong(1, report_type))?,
        status: [ReportStatus::Pending, ReportStatus::Complete, ReportStatus::Failed]
            .into_iter()
            .find(|known| known.as_str() == status)
            .ok_or_else(|| wrong(2, status))?,
        period_start: Timestamp::from_micros(row.get(3)?),
        period_end: Timestamp::from_micros(row.get(4)?),
        created_at: Timestamp::from_micros(row.get(5)?),
        completed_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_micros),
        content: content
            .map(|text| ReportContent::read(text).map_err(|error| wrong(7, error.to_string())))
            .transpose()?,
        error: row.get(8)?,
    })
}

impl Tx<'_> {
    /// Puts in a report that waits, unless too many of its tenant's do; gives how many wait. `None` when there is no such tenant and
    /// it is not to begin with the report.
    pub(super) fn ask_report(&mut self, report: &ReportRecord, begin: bool) -> Result<Option<u64>, WriteError> {
        let known = if begin {
            Some(self.interner.tenant(self.conn, report.tenant_id)?)
        } else {
            find_tenant(self.conn, report.tenant_id)?
        };
        let Some(tenant) = known else { return Ok(None) };
        let waiting = self.count_reports(tenant)?;
        if waiting < PENDING_MAX.cast_signed() {
            self.insert_report(tenant, report)?;
        }
        Ok(Some(waiting.unsigned_abs()))
    }

    /// Writes down what became of a report, if it is still there.
    pub(super) fn complete_report(
        &self,
        tenant: TenantId,
        id: Uuid,
        built: &Result<String, String>,
    ) -> Result<(), WriteError> {
        let Some(tenant) = find_tenant(self.conn, tenant)? else { return Ok(()) };
        let (status, content, error) = match built {
            Ok(content) => (ReportStatus::Complete, Some(content), None),
            Err(error) => (ReportStatus::Failed, None, Some(error)),
        };
        let sql = "UPDATE reports SET status = ?3, content = ?4, error = ?5, completed_us = ?6 \
            WHERE tenant = ?1 AND report_id = ?2";
        let id = id.as_bytes().as_slice();
        let now_us = Timestamp::now().micros();
        self.conn.prepare_cached(sql)?.execute((tenant, id, status.as_str(), content, error, now_us))?;
        Ok(())
    }

    /// Makes room for one more report of a tenant; gives how many wait.
    fn count_reports(&self, tenant: i64) -> rusqlite::Result<i64> {
        let kept = "DELETE FROM reports WHERE tenant = ?1 AND status <> 'pending' AND \
            nth <= (SELECT max(nth) FROM reports WHERE tenant = ?1) - ?2";
        self.conn.prepare_cached(kept)?.execute((tenant, KEPT_MAX - 1))?;
        // By the index of those that wait.
        let waiting =
            "SELECT count(*) FROM reports INDEXED BY reports_pending WHERE status = 'pending' AND tenant = ?1";
        self.conn.prepare_cached(waiting)?.query_row([tenant], |row| row.get(0))
    }

    fn insert_report(&self, tenant: i64, report: &ReportRecord) -> rusqlite::Result<()> {
        let sql = "INSERT INTO reports (tenant, report_id, report_type, status, period_start_us, period_end_us, \
            created_us, nth) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, \
            1 + ifnull((SELECT max(nth) FROM reports WHERE tenant = ?1), 0))";
        let times = [report.period_start, report.period_end, report.created_at].map(Timestamp::micros);
        let (id, kind) = (report.id.as_bytes().as_slice(), report.report_type.as_str());
        let values = (tenant, id, kind, report.status.as_str(), times[0], times[1], times[2]);
        self.conn.prepare_cached(sql)?.execute(values).map(|_| ())
    }

    /// Takes out some reports that were asked for before `created_us`, each the oldest of its tenant; how many.
    pub(super) fn erase_reports_before(&self, created_us: i64) -> rusqlite::Result<usize> {
        let sql = "DELETE FROM reports WHERE id IN (SELECT r.id FROM tenants t JOIN reports r ON r.id = \
            (SELECT id FROM reports WHERE tenant = t.id ORDER BY nth LIMIT 1) \
            WHERE r.created_us < ?1 AND r.status <> 'pending' LIMIT ?2)";
        self.conn.prepare_cached(sql)?.execute((created_us, BATCH_REPORTS))
    }

    /// Takes out the oldest reports of all; how many.
    pub(super) fn erase_oldest_reports(&self) -> rusqlite::Result<usize> {
        let sql = "DELETE FROM reports WHERE id IN \
            (SELECT id FROM reports WHERE status <> 'pending' ORDER BY id LIMIT ?1)";
        self.conn.prepare_cached(sql)?.execute([BATCH_REPORTS])
    }
}

impl Reads<'_> {
    /// The oldest report that waits.
    pub(crate) fn pending_report(&self) -> Result<Option<(TenantId, Uuid)>, ReadError> {
        self.ask("read_reports", |conn| {
            let sql = "SELECT t.uuid, r.report_id FROM reports r JOIN tenants t ON t.id = r.tenant \
                WHERE r.status = 'pending' AND length(t.uuid) = 16 ORDER BY r.id LIMIT 1";
            let found = conn.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            Ok(found.map(|(tenant, id)| (TenantId::from_bytes(tenant), Uuid::from_bytes(id))))
        })
    }

    /// Reports, newest first.
    pub(crate) fn list_reports(&self, tenant: TenantId, mut page: Page) -> Result<Paged<ReportRecord>, ReadError> {
        self.ask("read_reports", |conn| {
            let mut answer = Paged::new(Vec::new(), 0, page);
            let Some(tenant_int) = find_tenant(conn, tenant)? else { return Ok(answer) };
            // Asked for apart, each is one step into the index.
            let ends = "SELECT ifnull((SELECT min(nth) FROM reports WHERE tenant = ?1), 1), \
                ifnull((SELECT max(nth) FROM reports WHERE tenant = ?1), 0)";
            let (first, last): (i64, i64) =
                conn.prepare_cached(ends)?.query_row([tenant_int], |row| Ok((row.get(0)?, row.get(1)?)))?;
            answer.total = (last + 1 - first).unsigned_abs();
            let sql =
                format!("SELECT {COLUMNS} FROM reports WHERE tenant = ?1 AND nth <= ?2 ORDER BY nth DESC LIMIT ?3");
            let mut statement = conn.prepare_cached(&sql)?;
            let begins = first_place(last, page);
            let mut rows = statement.query((tenant_int, begins, page.limit))?;
            let mut bytes = 0;
            while let Some(row) = rows.next()? {
                conn.pause();
                let content = row.get_ref(7)?.as_str_or_null().map_err(rusqlite::Error::from)?;
                bytes += content.map_or(0, str::len);
                let read = if bytes > ANSWER_BYTES_MAX {
                    Err(Stop::Refused(ReadError::RecordTooLarge { limit_bytes: ANSWER_BYTES_MAX }))
                } else {
                    record(tenant, row).map_err(Stop::Sql)
                };
                let Some(report) = unless_full(read, answer.data.len(), &mut page)? else { break };
                answer.data.push(report);
                if bytes >= page.enough_bytes {
                    break;
                }
            }
            answer.next = next_place(begins, answer.data.len(), first);
            answer.limit = page.limit;
            Ok(answer)
        })
    }

    /// One report; `None` when the tenant has none of that id.
    pub(crate) fn report(&self, tenant: TenantId, id: Uuid) -> Result<Option<ReportRecord>, ReadError> {
        self.ask("read_report", |conn| {
            let Some(tenant_int) = find_tenant(conn, tenant)? else { return Ok(None) };
            let sql = format!("SELECT {COLUMNS} FROM reports WHERE tenant = ?1 AND report_id = ?2");
            Ok(conn
                .prepare_cached(&sql)?
                .query_row((tenant_int, id.as_bytes().as_slice()), |row| record(tenant, row))
                .optional()?)
        })
    }
}
