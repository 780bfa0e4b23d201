//! The reports' table.

use rusqlite::{OptionalExtension, Row};
use uuid::Uuid;
use weir_config::vocab::{TenantId, Timestamp};

use super::intern::find_tenant;
use super::paging::first_place;
use crate::error::{NotWritten, ReadError};
use crate::query::{Page, Paged};
use crate::reports::{ReportRecord, ReportStatus, ReportType};
use crate::store::{Store, effective};

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
            .map(|text| serde_json::from_str(&text).map_err(|error| wrong(7, error.to_string())))
            .transpose()?,
        error: row.get(8)?,
    })
}

impl Store {
    /// Asks for a report over `period_start..period_end`. It is durable, and `pending`, when this returns; it is built in
    /// the background.
    ///
    /// # Errors
    /// [`NotWritten`].
    pub fn create_report(
        &self,
        tenant: TenantId,
        report_type: ReportType,
        period_start: Timestamp,
        period_end: Timestamp,
    ) -> Result<ReportRecord, NotWritten> {
        let report = ReportRecord {
            id: Uuid::new_v4(),
            tenant_id: tenant,
            report_type,
            status: ReportStatus::Pending,
            period_start,
            period_end,
            created_at: Timestamp::now(),
            completed_at: None,
            content: None,
            error: None,
        };
        let row = report.clone();
        self.write("write_report", move |tx| {
            let tenant = tx.interner.tenant(tx.conn, row.tenant_id)?;
            tx.conn
                .prepare_cached(
                    "INSERT INTO reports (tenant, report_id, report_type, status, period_start_us, period_end_us, \
                     created_us, nth) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, \
                     1 + ifnull((SELECT max(nth) FROM reports WHERE tenant = ?1), 0))",
                )?
                .execute((
                    tenant,
                    row.id.as_bytes().as_slice(),
                    row.report_type.as_str(),
                    row.status.as_str(),
                    row.period_start.micros(),
                    row.period_end.micros(),
                    row.created_at.micros(),
                ))?;
            Ok(())
        })?;
        self.build_reports();
        Ok(report)
    }

    /// Reports, newest first.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn list_reports(&self, tenant: TenantId, page: Page) -> Result<Paged<ReportRecord>, ReadError> {
        let page = effective(page);
        self.ask("read_reports", |conn| {
            let mut answer = Paged { data: Vec::new(), total: 0, limit: page.limit, offset: page.offset };
            let Some(tenant_int) = find_tenant(conn, tenant)? else { return Ok(answer) };
            let total: i64 = conn
                .prepare_cached("SELECT ifnull(max(nth), 0) FROM reports WHERE tenant = ?1")?
                .query_row([tenant_int], |row| row.get(0))?;
            answer.total = total.unsigned_abs();
            let sql =
                format!("SELECT {COLUMNS} FROM reports WHERE tenant = ?1 AND nth <= ?2 ORDER BY nth DESC LIMIT ?3");
            let mut statement = conn.prepare_cached(&sql)?;
            let values = (tenant_int, first_place(total, page), page.limit);
            let rows = statement.query_map(values, |row| record(tenant, row))?;
            answer.data = rows.collect::<Result<_, _>>()?;
            Ok(answer)
        })
    }

    /// One report; `None` when the tenant has none of that id.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn report(&self, tenant: TenantId, id: Uuid) -> Result<Option<ReportRecord>, ReadError> {
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
