//! What a span's columns say of its call beside the key of the sums, and the conditions over it.
//!
//! Names that lists also group by are integers (of `names`, or of the session's row); an error type and an upstream are hashes and
//! a finding type is a bit, so a condition on these may let a row pass that does not match: [`fits`] says of the record whether it does.

use rusqlite::Connection;
use weir_config::vocab::Timestamp;

use super::intern::{Label, find_name};
use super::tx::Tx;
use crate::error::WriteError;
use crate::query::Facets;
use crate::record::SpanRecord;

/// The bit that finding types share for which there is none of their own.
pub(super) const SHARED_BIT: u32 = 62;
/// Latencies and costs beyond these count as these.
const DURATION_US_MAX: f64 = 1e15;
const COST_NANO_USD_MAX: f64 = 1e15;

/// The tag that says which upstream a call went to.
const UPSTREAM: &str = "upstream";

/// The columns of a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Columns {
    pub(super) status: i64,
    pub(super) streaming: i64,
    pub(super) error: i64,
    pub(super) agent: i64,
    pub(super) session: i64,
    pub(super) client: i64,
    pub(super) cost_nano_usd: Option<i64>,
    pub(super) duration_us: i64,
    pub(super) found: i64,
    pub(super) upstream: i64,
}

impl Columns {
    /// Of a span of this tenant's; `like` is the tenant's span before it, whose names mostly serve.
    pub(super) fn of(
        tx: &mut Tx<'_>,
        tenant: i64,
        span: &SpanRecord,
        like: Option<(&SpanRecord, &Self)>,
    ) -> rusqlite::Result<Self> {
        let (session, agent, client) = match like {
            Some((like, known))
                if (&like.session_id, &like.agent_id, &like.client)
                    == (&span.session_id, &span.agent_id, &span.client) =>
            {
                (known.session, known.agent, known.client)
            }
            _ => {
                let Tx { conn, interner, .. } = tx;
                let session = span.session_id.as_deref().map_or(Ok(0), |name| session(conn, tenant, name))?;
                let mut label = |kind, name: &Option<String>| {
                    name.as_deref().map_or(Ok(0), |name| interner.label(conn, tenant, kind, name).map(|(id, _)| id))
                };
                (session, label(Label::Agent, &span.agent_id)?, label(Label::Client, &span.client)?)
            }
        };
        let mut found = 0;
        for finding in &span.security_findings {
            found |= 1 << tx.interner.finding_bit(tx.conn, &finding.finding_type)?;
        }
        Ok(Self {
            status: span.status_code.map_or(0, i64::from),
            streaming: i64::from(span.streaming),
            error: span.error_type.as_deref().map_or(0, hash),
            agent,
            session,
            client,
            cost_nano_usd: span.estimated_cost_usd.map(|usd| (usd * 1e9).round().clamp(0.0, COST_NANO_USD_MAX) as i64),
            duration_us: (span.duration_ms * 1e3).round().clamp(0.0, DURATION_US_MAX) as i64,
            found,
            upstream: upstream_of(span),
        })
    }

    /// Whether nothing is known of the call but what is known of all.
    pub(super) fn is_plain(&self) -> bool {
        let Self { error, agent, session, client, found, upstream, .. } = *self;
        error | agent | session | client | found | upstream == 0
    }

    /// Whether the call failed.
    pub(super) fn failed(&self) -> bool {
        self.status >= 400 || self.error != 0
    }
}

/// The integer of a session; one that is not there begins with it.
fn session(conn: &Connection, tenant: i64, name: &str) -> rusqlite::Result<i64> {
    if let Some(id) = find_session(conn, tenant, name)? {
        return Ok(id);
    }
    conn.prepare_cached("INSERT INTO sessions (tenant, name) VALUES (?1, ?2)")?.execute((tenant, name))?;
    Ok(conn.last_insert_rowid())
}

pub(super) fn find_session(conn: &Connection, tenant: i64, name: &str) -> rusqlite::Result<Option<i64>> {
    use rusqlite::OptionalExtension as _;
    let sql = "SELECT id FROM sessions WHERE tenant = ?1 AND name = ?2";
    conn.prepare_cached(sql)?.query_row((tenant, name), |row| row.get(0)).optional()
}

/// The hash of the upstream that a span names.
fn upstream_of(span: &SpanRecord) -> i64 {
    span.tags.get(UPSTREAM).map_or(0, |name| hash(name))
}

/// 31 bits of FNV-1a, never 0.
fn hash(text: &str) -> i64 {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    i64::from(hash >> 1).max(1)
}

/// Conditions over the columns, in the order of their values.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    pub(super) sql: String,
    pub(super) values: Vec<i64>,
}

impl Conditions {
    fn and(&mut self, condition: &str, value: i64) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.push(value);
    }
}

/// The index to walk and what every row of it satisfies, then the conditions. `None` when no row can match.
pub(super) fn conditions(
    conn: &Connection,
    tenant: i64,
    asked: &Facets,
    scored: bool,
) -> rusqlite::Result<Option<(Lead, Conditions)>> {
    let mut all = Conditions::default();
    let mut lead = if scored { Lead::SCORED } else { Lead::START };
    if let Some((min, max)) = asked.status {
        all.and("status >= ?", i64::from(min));
        all.and("status <= ?", i64::from(max));
        if min >= 400 {
            lead = Lead::FAILED;
        }
    }
    if let Some(error) = &asked.error_type {
        all.and("error = ?", hash(error));
        lead = Lead::FAILED;
    }
    if let Some(name) = &asked.upstream {
        all.and("upstream = ?", hash(name));
    }
    if let Some(kind) = &asked.finding_type {
        let bit = finding_bit(conn, kind)?.unwrap_or(SHARED_BIT);
        all.and("found & ? <> 0", 1 << bit);
        lead = Lead::SCORED;
    }
    for (column, name) in [("agent = ?", &asked.agent_id), ("client = ?", &asked.client)] {
        let Some(name) = name else { continue };
        let Some(id) = find_name(conn, name)? else { return Ok(None) };
        all.and(column, id);
    }
    if let Some(session) = &asked.session_id {
        let Some(id) = find_session(conn, tenant, session)? else { return Ok(None) };
        lead = Lead { value: Some(id), ..Lead::SESSION };
    }
    for (condition, bound) in [
        ("cost_nano_usd >= ?", asked.cost_min_nano_usd),
        ("cost_nano_usd <= ?", asked.cost_max_nano_usd),
        ("duration_us >= ?", asked.duration_min_us),
        ("duration_us <= ?", asked.duration_max_us),
        ("streaming = ?", asked.streaming.map(i64::from)),
    ] {
        if let Some(bound) = bound {
            all.and(condition, bound);
        }
    }
    Ok(Some((lead, all)))
}

/// Where a walk goes: an index that holds what is sought among as little else as possible.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lead {
    pub(super) index: &'static str,
    /// What the index demands, beside the tenant in front.
    pub(super) sql: &'static str,
    pub(super) value: Option<i64>,
}

impl Lead {
    pub(super) const START: Self = Self { index: "spans_by_start", sql: "", value: None };
    pub(super) const SCORED: Self = Self { index: "spans_scored", sql: " AND (score > 0 OR found <> 0)", value: None };
    const FAILED: Self = Self { index: "spans_failed", sql: " AND (status >= 400 OR error <> 0)", value: None };
    pub(super) const SESSION: Self =
        Self { index: "spans_by_session", sql: " AND session = ? AND session > 0", value: None };
}

/// Whether a record whose columns match does so itself.
pub(super) fn fits(asked: &Facets, span: &SpanRecord) -> bool {
    let error = asked.error_type.as_ref().is_none_or(|error| span.error_type.as_ref() == Some(error));
    let has = |kind: &String| span.security_findings.iter().any(|finding| finding.finding_type == kind.as_str());
    let upstream = asked.upstream.as_ref().is_none_or(|name| span.tags.get(UPSTREAM) == Some(name));
    error && upstream && asked.finding_type.as_ref().is_none_or(has)
}

/// Whether the columns alone may say too much.
pub(super) fn is_loose(asked: &Facets) -> bool {
    asked.error_type.is_some() || asked.finding_type.is_some() || asked.upstream.is_some()
}

fn finding_bit(conn: &Connection, name: &str) -> rusqlite::Result<Option<u32>> {
    use rusqlite::OptionalExtension as _;
    let sql = "SELECT bit FROM finding_types WHERE name = ?1";
    conn.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()
}

/// The bit of a finding type, for the writer.
pub(super) fn meet_finding(conn: &Connection, name: &str) -> rusqlite::Result<u32> {
    if let Some(bit) = finding_bit(conn, name)? {
        return Ok(bit);
    }
    let sql = "SELECT ifnull(max(bit) + 1, 0) FROM finding_types";
    let next: u32 = conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    if next < SHARED_BIT {
        conn.prepare_cached("INSERT INTO finding_types (bit, name) VALUES (?1, ?2)")?.execute((next, name))?;
    }
    Ok(next.min(SHARED_BIT))
}

/// Rows filled in one transaction.
const FILL_ROWS: i64 = 64;

/// Whether there are rows of a version before.
pub(super) fn unfilled(conn: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM spans INDEXED BY spans_unfilled WHERE client IS NULL OR upstream IS NULL LIMIT 1";
    conn.prepare_cached(sql)?.exists([])
}

impl Tx<'_> {
    /// Fills in what the columns of some rows of a version before do not say, newest first; false when there is none left.
    pub(super) fn fill(&mut self) -> Result<bool, WriteError> {
        let conn = self.conn;
        let sql = "SELECT id, tenant, start_us, model, client IS NULL, body FROM spans WHERE id IN (SELECT id FROM spans \
            INDEXED BY spans_unfilled WHERE client IS NULL OR upstream IS NULL ORDER BY id DESC LIMIT ?1)";
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query([FILL_ROWS])?;
        let mut any = false;
        while let Some(row) = rows.next()? {
            any = true;
            let (id, tenant): (i64, i64) = (row.get(0)?, row.get(1)?);
            let start = Timestamp::from_micros(row.get(2)?);
            let model: i64 = row.get(3)?;
            let (lacks_all, body): (bool, _) = (row.get(4)?, row.get_ref(5)?.as_blob().unwrap_or_default());
            // A damaged body says nothing, and is not looked at again.
            let span = super::read::record_of(start, body);
            let mut set_upstream = conn.prepare_cached("UPDATE spans SET upstream = ?2 WHERE id = ?1")?;
            set_upstream.execute((id, span.as_ref().map_or(0, upstream_of)))?;
            if !lacks_all {
                continue;
            }
            let columns = span.as_ref().map_or(Ok(Columns::default()), |span| Self::columns_of(self, tenant, span))?;
            conn.prepare_cached(
                "UPDATE spans SET status = ?2, streaming = ?3, error = ?4, agent = ?5, session = ?6, client = ?7, \
                 cost_nano_usd = ?8, duration_us = ?9, found = found | ?10 WHERE id = ?1",
            )?
            .execute((
                id,
                columns.status,
                columns.streaming,
                columns.error,
                columns.agent,
                columns.session,
                columns.client,
                columns.cost_nano_usd,
                columns.duration_us,
                columns.found,
            ))?;
            let weight = span.as_ref().map(|span| super::tallies::Weight::of(span, 0)).unwrap_or_default();
            self.tallies.begin_use(
                super::tallies::Use::of(tenant, start.micros(), model, &columns),
                &weight,
                super::tallies::New::default(),
            );
        }
        Ok(any)
    }

    fn columns_of(&mut self, tenant: i64, span: &SpanRecord) -> rusqlite::Result<Columns> {
        Columns::of(self, tenant, span, None)
    }
}
