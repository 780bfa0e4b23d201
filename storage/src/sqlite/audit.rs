//! The audit log's table.
//!
//! Each line has a place in its tenant's list (`nth`), by which pages are found. What makes a line fit is `chain`'s matter.

use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, Row};
use weir_config::vocab::{TenantId, Timestamp};

use super::paging::{first_place, next_place};
use super::readers::Stop;
use super::reads::{Reads, Snapshot};
use super::tx::Tx;
use crate::audit::{AuditEntry, AuditEvent, Line, Link, hex};
use crate::error::ReadError;
use crate::error::WriteError;
use crate::query::{Page, Paged};
use crate::reports::{EVENTS_MAX, EventsOfPeriod};

pub(super) const COLUMNS: &str = "seq, at_us, tenant, actor, action, target, detail, hash";
const INSERT: &str = "INSERT INTO audit (seq, at_us, tenant, actor, action, target, detail, hash, nth) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, iif(?3 IS NULL, 0, \
    1 + ifnull((SELECT max(nth) FROM audit WHERE tenant = ?3), 0)))";

impl Tx<'_> {
    /// Writes an event down as part of this change; gives its position in the log.
    pub(super) fn audit(&mut self, event: &AuditEvent) -> Result<u64, WriteError> {
        let (former_seq, former) = head(self.conn)?;
        let detail = serde_json::to_string(&event.detail).map_err(|error| WriteError::Row(error.to_string()))?;
        let seq = former_seq + 1;
        let at_us = Timestamp::now().micros();
        let line = Line {
            seq,
            at_us,
            tenant: event.tenant.as_ref().map(|tenant| tenant.as_bytes().as_slice()),
            actor: &event.actor,
            action: &event.action,
            target: event.target.as_deref(),
            detail: &detail,
        };
        let link = line.link(&former);
        self.conn.prepare_cached(INSERT)?.execute((
            seq,
            at_us,
            line.tenant,
            line.actor,
            line.action,
            line.target,
            line.detail,
            link.as_slice(),
        ))?;
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO audit_head (id, seq, hash) VALUES (1, ?1, ?2)")?
            .execute((seq, link.as_slice()))?;
        Ok(seq.unsigned_abs())
    }
}

/// The chain's end; all zeros before the first line.
pub(super) fn head(conn: &Connection) -> rusqlite::Result<(i64, Link)> {
    let head = conn
        .prepare_cached("SELECT seq, hash FROM audit_head WHERE id = 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(head.unwrap_or_default())
}

fn entry(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    let detail: String = row.get(6)?;
    Ok(AuditEntry {
        seq: row.get::<_, i64>(0)?.unsigned_abs(),
        timestamp: Timestamp::from_micros(row.get(1)?),
        tenant_id: row.get::<_, Option<[u8; 16]>>(2)?.map(TenantId::from_bytes),
        actor: row.get(3)?,
        action: row.get(4)?,
        target: row.get(5)?,
        // A detail that is no JSON any more was tampered with; the check of the chain says so.
        detail: serde_json::from_str(&detail).unwrap_or_default(),
        hash: hex(&row.get::<_, Vec<u8>>(7)?),
    })
}

/// Reads on until that moment; false when there is nothing left to read.
fn read_on(events: &mut EventsOfPeriod, conn: &Snapshot<'_>, until: Instant) -> Result<bool, Stop> {
    // Each has an index of its own.
    if let Some(nth) = events.nth {
        let sql = format!(
            "SELECT {COLUMNS}, nth FROM audit INDEXED BY audit_by_tenant WHERE tenant = ?1 AND nth > ?2 ORDER BY nth"
        );
        let mut statement = conn.prepare_cached(&sql)?;
        let mut rows = statement.query((events.tenant.as_bytes().as_slice(), nth))?;
        while events.read.len() <= EVENTS_MAX
            && let Some(row) = rows.next()?
        {
            conn.pause();
            let nth: i64 = row.get(8)?;
            if (events.start_us..events.end_us).contains(&row.get(1)?) {
                events.read.push((entry(row)?, nth.unsigned_abs()));
            }
            events.nth = Some(nth);
            if Instant::now() >= until {
                return Ok(true);
            }
        }
        events.nth = None;
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM audit INDEXED BY audit_of_service \
         WHERE tenant IS NULL AND (at_us, seq) > (?1, ?2) AND at_us < ?3 ORDER BY at_us, seq"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query((events.after.0, events.after.1, events.end_us))?;
    while events.of_service <= EVENTS_MAX
        && let Some(row) = rows.next()?
    {
        conn.pause();
        events.read.push((entry(row)?, 0));
        events.of_service += 1;
        events.after = (row.get(1)?, row.get(0)?);
        if Instant::now() >= until {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Reads<'_> {
    pub(crate) fn read_events(&self, events: &mut EventsOfPeriod, slice: Duration) -> Result<bool, ReadError> {
        self.ask("read_audit", |conn| read_on(events, conn, Instant::now() + slice))
    }

    /// Lines of the log, newest first: those of one tenant, or all.
    pub(crate) fn list_audit(&self, tenant: Option<TenantId>, page: Page) -> Result<Paged<AuditEntry>, ReadError> {
        self.ask("read_audit", |conn| {
            let (total, first, data): (i64, i64, Vec<AuditEntry>) = if let Some(tenant) = tenant {
                let id = tenant.as_bytes().as_slice();
                let total = conn
                    .prepare_cached("SELECT ifnull(max(nth), 0) FROM audit WHERE tenant = ?1")?
                    .query_row([id], |row| row.get(0))?;
                let sql =
                    format!("SELECT {COLUMNS} FROM audit WHERE tenant = ?1 AND nth <= ?2 ORDER BY nth DESC LIMIT ?3");
                let mut statement = conn.prepare_cached(&sql)?;
                let first = first_place(total, page);
                (total, first, statement.query_map((id, first, page.limit), entry)?.collect::<Result<_, _>>()?)
            } else {
                // Positions have no gaps, so a page is a range of them.
                let (total, _) = head(conn)?;
                let sql = format!("SELECT {COLUMNS} FROM audit WHERE seq <= ?1 ORDER BY seq DESC LIMIT ?2");
                let mut statement = conn.prepare_cached(&sql)?;
                let first = first_place(total, page);
                (total, first, statement.query_map((first, page.limit), entry)?.collect::<Result<_, _>>()?)
            };
            let next = next_place(first, data.len(), 1);
            Ok(Paged { next, ..Paged::new(data, total.unsigned_abs(), page) })
        })
    }
}
