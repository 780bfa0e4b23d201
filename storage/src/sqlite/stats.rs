//! Sums of a tenant, from the running sums.

use rusqlite::{Connection, OptionalExtension};
use weir_config::vocab::{TenantId, Timestamp};

use super::intern::find_tenant;
use super::reads::Reads;
use crate::error::ReadError;
use crate::stats::Stats;

impl Reads<'_> {
    /// The tenant's records in sum; all zero when it has none.
    pub(crate) fn stats(&self, tenant: TenantId) -> Result<Stats, ReadError> {
        self.ask("read_stats", |conn| {
            let mut stats = Stats {
                tenant_id: tenant,
                total_traces: 0,
                total_spans: 0,
                total_findings: 0,
                total_tokens: 0,
                total_cost_usd: 0.0,
                storage_bytes: 0,
                oldest_trace: None,
                newest_trace: None,
            };
            let Some(tenant) = find_tenant(conn, tenant)? else { return Ok(stats) };
            let sql = "SELECT total(traces), total(spans), total(findings), total(tokens), total(cost_nano_usd), \
                total(bytes) FROM tallies WHERE tenant = ?1";
            // `total` never overflows; counts up to 2^53 stay exact.
            let sums: [f64; 6] = conn.prepare_cached(sql)?.query_row([tenant], |row| {
                Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?])
            })?;
            let [traces, spans, findings, tokens, cost_nano_usd, bytes] = sums;
            stats.total_traces = traces as u64;
            stats.total_spans = spans as u64;
            stats.total_findings = findings as u64;
            stats.total_tokens = tokens as u64;
            stats.total_cost_usd = cost_nano_usd / 1e9;
            stats.storage_bytes = bytes as u64;
            stats.oldest_trace = first(conn, tenant, "ASC")?;
            stats.newest_trace = first(conn, tenant, "DESC")?;
            Ok(stats)
        })
    }
}

/// Start of the first trace in this order.
fn first(conn: &Connection, tenant: i64, order: &str) -> rusqlite::Result<Option<Timestamp>> {
    let sql = format!(
        "SELECT start_us FROM spans INDEXED BY spans_by_start WHERE tenant = ?1 AND ord = 0 \
         ORDER BY start_us {order}, id {order} LIMIT 1"
    );
    let start: Option<i64> = conn.prepare_cached(&sql)?.query_row([tenant], |row| row.get(0)).optional()?;
    Ok(start.map(Timestamp::from_micros))
}
