//! Spend per agent and calendar window, kept so that a restart does not hand out budgets anew.
//!
//! Rows are absolute, so writing one twice changes nothing, and within a period a row never falls: of two processes that
//! overlap while one takes over from the other, the larger figure stays.

use weir_config::settings::Window;
use weir_config::vocab::TenantId;

use super::intern::{deleted_us, find_tenant};
use crate::error::{NotWritten, ReadError};
use crate::store::Store;

/// Periods that began longer ago are over, whatever their window.
const OVER_S: i64 = 32 * 86_400;

/// One window of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendRow {
    /// Whose.
    pub tenant: TenantId,
    /// Which agent's.
    pub agent: String,
    /// Which window.
    pub window: Window,
    /// The period's first second, since 1970.
    pub period_start_s: i64,
    /// Nanodollars spent in it.
    pub spent_nano_usd: u64,
}

impl Store {
    /// Keeps these rows. They are durable when this returns. Those of tenants that were deleted, and have not begun anew, are
    /// left out: who counts may not have heard of it yet.
    ///
    /// # Errors
    /// [`NotWritten`].
    pub fn save_spend(&self, rows: Vec<SpendRow>) -> Result<(), NotWritten> {
        self.write("write_spend", move |tx| {
            let mut statement = tx.conn.prepare_cached(
                "INSERT INTO spend (tenant, agent, span, period_start_s, nano_usd) VALUES (?1, ?2, ?3, ?4, ?5) \
                 ON CONFLICT DO UPDATE SET nano_usd = CASE WHEN period_start_s = excluded.period_start_s \
                 THEN max(nano_usd, excluded.nano_usd) ELSE excluded.nano_usd END, \
                 period_start_s = excluded.period_start_s WHERE period_start_s <= excluded.period_start_s",
            )?;
            for row in &rows {
                if deleted_us(tx.conn, row.tenant)?.is_some() && find_tenant(tx.conn, row.tenant)?.is_none() {
                    continue;
                }
                let nano_usd = i64::try_from(row.spent_nano_usd).unwrap_or(i64::MAX);
                let id = row.tenant.as_bytes().as_slice();
                statement.execute((id, &row.agent, row.window as i64, row.period_start_s, nano_usd))?;
            }
            Ok(())
        })
    }

    /// The rows of periods that may still run at `now_s`.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn load_spend(&self, now_s: i64) -> Result<Vec<SpendRow>, ReadError> {
        self.ask("read_spend", |conn| {
            let sql = "SELECT tenant, agent, span, period_start_s, nano_usd FROM spend WHERE period_start_s > ?1";
            let mut statement = conn.prepare_cached(sql)?;
            let rows = statement.query_map([now_s.saturating_sub(OVER_S)], |row| {
                let window = Window::ALL.get(usize::from(row.get::<_, u8>(2)?)).copied();
                Ok(SpendRow {
                    tenant: TenantId::from_bytes(row.get(0)?),
                    agent: row.get(1)?,
                    // The table holds what `save_spend` wrote, so there is no other number.
                    window: window.unwrap_or(Window::Hourly),
                    period_start_s: row.get(3)?,
                    spent_nano_usd: row.get::<_, i64>(4)?.unsigned_abs(),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}
