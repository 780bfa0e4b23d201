//! Spend per agent and calendar window, kept so that a restart does not hand out budgets again.
//!
//! What comes here is what is new since a process last wrote or read ([`Ledger`](crate::spend::Ledger)), and is added: what several
//! processes on the file spend adds up, also while one takes over from another. What was counted since before a tenant's deletion is
//! not kept, by whichever process; what was counted since then is, whether or not the tenant has a record again.

use weir_config::settings::Window;
use weir_config::vocab::TenantId;

use super::intern::deleted_us;
use super::reads::Reads;
use super::tx::Tx;
use crate::error::ReadError;
use crate::error::WriteError;
use crate::spend::SpendRow;

/// Periods that began longer ago are over, whatever their window.
const OVER_S: i64 = 32 * 86_400;
const MICROS_PER_SECOND: i64 = 1_000_000;
/// What a sum stands still at, far beyond any real one: two of them do not leave the numbers of the file.
const SPENT_MAX: i64 = (1 << 62) - 1;

impl Tx<'_> {
    /// Adds these rows but those that count since before their tenant's deletion; gives those tenants.
    pub(super) fn save_spend(&self, rows: &[SpendRow]) -> Result<Vec<(TenantId, i64)>, WriteError> {
        let mut statement = self.conn.prepare_cached(
            "INSERT INTO spend (tenant, agent, span, period_start_s, nano_usd) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO UPDATE SET nano_usd = CASE WHEN period_start_s = excluded.period_start_s \
             THEN min(nano_usd + excluded.nano_usd, ?6) ELSE excluded.nano_usd END, \
             period_start_s = excluded.period_start_s WHERE period_start_s <= excluded.period_start_s",
        )?;
        let mut left_out: Vec<(TenantId, i64)> = Vec::new();
        for row in rows {
            let deleted_s = deleted_us(self.conn, row.tenant)?.map(|at_us| at_us.div_euclid(MICROS_PER_SECOND));
            if let Some(deleted_s) = deleted_s.filter(|deleted_s| row.since_s <= *deleted_s) {
                if !left_out.contains(&(row.tenant, deleted_s)) {
                    left_out.push((row.tenant, deleted_s));
                }
                continue;
            }
            if row.spent_nano_usd > 0 {
                let nano_usd = i64::try_from(row.spent_nano_usd).unwrap_or(SPENT_MAX).min(SPENT_MAX);
                let id = row.tenant.as_bytes().as_slice();
                statement.execute((id, &row.agent, row.window as i64, row.period_start_s, nano_usd, SPENT_MAX))?;
            }
        }
        Ok(left_out)
    }
}

impl Reads<'_> {
    /// The rows of periods that may still run at `now_s`.
    pub(crate) fn load_spend(&self, now_s: i64) -> Result<Vec<SpendRow>, ReadError> {
        self.ask("read_spend", |conn| {
            let sql = "SELECT s.tenant, agent, span, period_start_s, nano_usd, b.at_us FROM spend s \
                LEFT JOIN burials b ON b.tenant = s.tenant WHERE period_start_s > ?1";
            let mut statement = conn.prepare_cached(sql)?;
            let rows = statement.query_map([now_s.saturating_sub(OVER_S)], |row| {
                let deleted_s = row.get::<_, Option<i64>>(5)?.map(|at_us| at_us.div_euclid(MICROS_PER_SECOND));
                let window = Window::ALL.get(usize::from(row.get::<_, u8>(2)?)).copied();
                Ok(SpendRow {
                    tenant: TenantId::from_bytes(row.get(0)?),
                    agent: row.get(1)?,
                    // The table holds what `save_spend` wrote, so there is no other number.
                    window: window.unwrap_or(Window::Hourly),
                    period_start_s: row.get(3)?,
                    since_s: deleted_s.map_or(now_s, |deleted_s| now_s.max(deleted_s + 1)),
                    spent_nano_usd: row.get::<_, i64>(4)?.unsigned_abs(),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}
