//! The audit log of several gateways: one numbering for all lines, and one chain of hashes for each gateway.
//!
//! Whoever writes a line holds one lock until its commit, so that numbers have no gap and none becomes visible before a lower one:
//! "what is behind line n" is a question that misses nothing. Lines are administrative and rare.

use std::collections::HashMap;
use std::time::Duration;

use postgres::Row;
use uuid::Uuid;
use weir_config::vocab::{TenantId, Timestamp};

use super::relational::{Fail, Relational, Tx, col, p};
use crate::audit::{AuditCheck, AuditEntry, AuditEvent, Line, Link, hex};
use crate::error::{NotWritten, ReadError};
use crate::query::{Page, Paged, Place};
use crate::reports::{EVENTS_MAX, EventsOfPeriod};

/// The lock on the log's end.
const LOCK: i64 = 0x7765_6972_0001;
/// Lines read in one piece when all are checked.
const PIECE: i64 = 2_000;
const COLUMNS: &str = "seq, at_us, tenant, actor, action, target, detail, hash";

impl Tx<'_> {
    /// Writes an event down as part of this change; gives its position in the log.
    pub(crate) fn audit(&mut self, event: &AuditEvent) -> Result<u64, Fail> {
        self.lock(LOCK)?;
        let node = self.node;
        let seq: i64 = self.value("SELECT coalesce(max(seq), 0) + 1 FROM audit", p![])?;
        let former = self.one("SELECT hash FROM audit_heads WHERE node = $1", p![node])?;
        let former = former.map(|row| link(&row, 0)).transpose()?.unwrap_or_default();
        let detail = serde_json::to_string(&event.detail).map_err(|error| Fail::Refused(error.to_string()))?;
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
        let hash = line.link(&former);
        let tenant = event.tenant.map(|tenant| Uuid::from_bytes(*tenant.as_bytes()));
        let sql = "INSERT INTO audit (seq, node, at_us, tenant, actor, action, target, detail, hash, nth) VALUES \
            ($1, $2, $3, $4, $5, $6, $7, $8, $9, CASE WHEN $4 IS NULL THEN 0 ELSE \
            1 + coalesce((SELECT max(nth) FROM audit WHERE tenant = $4), 0) END)";
        let values =
            p![seq, node, at_us, tenant, &event.actor, &event.action, &event.target, detail.as_str(), hash.as_slice()];
        self.run(sql, values)?;
        let sql = "INSERT INTO audit_heads (node, seq, hash) VALUES ($1, $2, $3) \
            ON CONFLICT (node) DO UPDATE SET seq = excluded.seq, hash = excluded.hash";
        self.run(sql, p![node, seq, hash.as_slice()])?;
        Ok(seq.unsigned_abs())
    }
}

fn link(row: &Row, column: usize) -> Result<Link, Fail> {
    col::<Vec<u8>>(row, column)?.try_into().map_err(|_| Fail::Damaged)
}

fn entry(row: &Row) -> Result<AuditEntry, Fail> {
    let detail: String = col(row, 6)?;
    Ok(AuditEntry {
        seq: col::<i64>(row, 0)?.unsigned_abs(),
        timestamp: Timestamp::from_micros(col(row, 1)?),
        tenant_id: col::<Option<Uuid>>(row, 2)?.map(|id| TenantId::from_bytes(*id.as_bytes())),
        actor: col(row, 3)?,
        action: col(row, 4)?,
        target: col(row, 5)?,
        // A detail that is no JSON any more was tampered with; the check of the chain says so.
        detail: serde_json::from_str(&detail).unwrap_or_default(),
        hash: hex(&col::<Vec<u8>>(row, 7)?),
    })
}

/// How far the log was followed.
#[derive(Default)]
struct Chains {
    seq: i64,
    heads: HashMap<Uuid, (i64, Link)>,
    last: Link,
}

impl Relational {
    pub(crate) fn write_audit(&self, event: &AuditEvent) -> Result<u64, NotWritten> {
        self.write(|tx| tx.audit(event))
    }

    /// Lines of the log, newest first: those of one tenant, or all.
    pub(crate) fn list_audit(&self, tenant: Option<TenantId>, page: Page) -> Result<Paged<AuditEntry>, ReadError> {
        self.read(|tx| {
            let (place, whose) = match tenant {
                Some(_) => ("nth", "tenant = $1"),
                None => ("seq", "$1::uuid IS NULL"),
            };
            let whom = tenant.map(|tenant| Uuid::from_bytes(*tenant.as_bytes()));
            let total: i64 =
                tx.value(&format!("SELECT coalesce(max({place}), 0) FROM audit WHERE {whose}"), p![whom])?;
            let first = match page.after {
                Some(after) => after.row.saturating_sub(1),
                None => total.saturating_sub(i64::try_from(page.offset).unwrap_or(i64::MAX)),
            };
            let sql = format!(
                "SELECT {COLUMNS}, {place} FROM audit WHERE {whose} AND {place} <= $2 ORDER BY {place} DESC LIMIT $3"
            );
            let rows = tx.rows(&sql, p![whom, first, i64::from(page.limit)])?;
            let last: Option<i64> = rows.last().map(|row| col(row, 8)).transpose()?;
            let data = rows.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
            let next = last.filter(|last| *last > 1).map(Place::of_row);
            Ok(Paged { next, ..Paged::new(data, total.unsigned_abs(), page) })
        })
    }

    /// Goes through the whole log, every gateway's chain, and says whether a line was altered, removed or put in.
    pub(crate) fn check_audit(&self) -> Result<AuditCheck, ReadError> {
        let verified_at = Timestamp::now();
        let mut chains = Chains::default();
        let bad = loop {
            let step = self.read(|tx| follow(tx, &mut chains))?;
            if let Some(bad) = step {
                break bad;
            }
        };
        Ok(AuditCheck {
            intact: bad.is_none(),
            entries: chains.seq.unsigned_abs(),
            first_bad_seq: bad.map(i64::unsigned_abs),
            head: hex(&chains.last),
            verified_at,
        })
    }

    pub(crate) fn read_events(&self, events: &mut EventsOfPeriod, _slice: Duration) -> Result<bool, ReadError> {
        let limit = EVENTS_MAX as i64 + 1;
        let read = self.read(|tx| {
            let sql = format!(
                "SELECT {COLUMNS}, nth FROM audit WHERE (tenant = $1 OR tenant IS NULL) AND at_us >= $2 AND at_us < $3 \
                 ORDER BY seq LIMIT $4"
            );
            let rows = tx.rows(&sql, p![events.tenant, events.start_us, events.end_us, limit])?;
            let read = |row: &Row| Ok((entry(row)?, col::<i64>(row, 8)?.unsigned_abs()));
            rows.iter().map(read).collect::<Result<Vec<_>, Fail>>()
        })?;
        events.read = read;
        events.nth = None;
        Ok(false)
    }
}

/// Checks some further lines. `None` while there may be more; else the first bad position, if there is one.
fn follow(tx: &mut Tx<'_>, chains: &mut Chains) -> Result<Option<Option<i64>>, Fail> {
    let sql = format!("SELECT {COLUMNS}, node FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2");
    let rows = tx.rows(&sql, p![chains.seq, PIECE])?;
    for row in &rows {
        let (tenant, node): (Option<Uuid>, Uuid) = (col(row, 2)?, col(row, 8)?);
        let (actor, action, detail): (String, String, String) = (col(row, 3)?, col(row, 4)?, col(row, 6)?);
        let target: Option<String> = col(row, 5)?;
        let line = Line {
            seq: col(row, 0)?,
            at_us: col(row, 1)?,
            tenant: tenant.as_ref().map(|id| id.as_bytes().as_slice()),
            actor: &actor,
            action: &action,
            target: target.as_deref(),
            detail: &detail,
        };
        let head = chains.heads.entry(node).or_default();
        let hash = line.link(&head.1);
        if line.seq != chains.seq + 1 || link(row, 7)? != hash {
            return Ok(Some(Some(chains.seq + 1)));
        }
        chains.seq = line.seq;
        *head = (line.seq, hash);
        chains.last = hash;
    }
    if rows.len() as i64 == PIECE {
        return Ok(None);
    }
    // Every chain ends where its gateway says that it does.
    for row in tx.rows("SELECT node, seq, hash FROM audit_heads", p![])? {
        let (node, seq): (Uuid, i64) = (col(&row, 0)?, col(&row, 1)?);
        let known = chains.heads.remove(&node);
        // One that is further was written behind what this snapshot began with.
        if known.is_none_or(|known| known != (seq, link(&row, 2).unwrap_or_default())) {
            return Ok(Some(Some(seq.min(chains.seq + 1))));
        }
    }
    Ok(Some(chains.heads.values().map(|(seq, _)| *seq).min()))
}
