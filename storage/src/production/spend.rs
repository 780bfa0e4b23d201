//! The ledger of what was spent: whole nanodollars, every operation once, by its id.
//!
//! Gateways say how much they count in all, which is what they and, when they last read it, the others have spent. What is written is
//! the difference to what is written already, as one operation, and the sum with it in the same transaction: saying it again
//! changes nothing, and the sum is always that of the operations.

use std::collections::HashMap;

use parking_lot::Mutex;
use uuid::Uuid;
use weir_config::settings::Window;
use weir_config::vocab::{TenantId, Timestamp};

use super::relational::{Fail, Relational, Tx, col, p, tenant_of};
use crate::charges::{BATCH_ID_BYTES_MAX, BatchCharge, BatchId, Booked, CHARGES_KEPT_US, CHARGES_MAX};
use crate::error::{NotWritten, ReadError};
use crate::spend::SpendRow;

/// Periods that began longer ago are over, whatever their window.
const OVER_S: i64 = 32 * 86_400;
const MICROS_PER_SECOND: i64 = 1_000_000;
/// How long operations stand one by one.
const APART_US: i64 = 3_600 * MICROS_PER_SECOND;
/// Operations that are drawn together at a time.
const TOGETHER_MAX: i64 = 200_000;

/// One agent's window in one period.
type Account = (TenantId, String, Window, i64);

/// What the other gateways had spent, as far as this one counts it in.
#[derive(Default)]
pub(super) struct Others(Mutex<HashMap<Account, i64>>);

fn account(row: &SpendRow) -> Account {
    (row.tenant, row.agent.clone(), row.window, row.period_start_s)
}

/// These rows with what this gateway itself has spent, in one order, so that two gateways never wait for each other.
fn counted(others: &Others, rows: &[SpendRow]) -> Vec<(SpendRow, i64)> {
    let counted_in = others.0.lock();
    let own = |row: &SpendRow| {
        let theirs = counted_in.get(&account(row)).copied().unwrap_or(0);
        i64::try_from(row.spent_nano_usd).unwrap_or(i64::MAX).saturating_sub(theirs).max(0)
    };
    let mut rows: Vec<(SpendRow, i64)> = rows.iter().map(|row| (row.clone(), own(row))).collect();
    rows.sort_by_key(|(row, _)| (*row.tenant.as_bytes(), row.agent.clone(), row.window as i64));
    rows
}

impl Tx<'_> {
    /// Writes one account of this gateway down.
    fn book(&mut self, row: &SpendRow, own: i64, price_version: Option<&str>) -> Result<(), Fail> {
        let (node, window) = (self.node, row.window as i64);
        let sql = "SELECT period_start_s, nano_usd FROM spend WHERE tenant = $1 AND agent = $2 AND span = $3 AND node = $4 FOR UPDATE";
        let former = self.one(sql, p![row.tenant, &row.agent, window, node])?;
        let former = former.map(|row| Ok::<(i64, i64), Fail>((col(&row, 0)?, col(&row, 1)?))).transpose()?;
        let known = match former {
            Some((period, _)) if period > row.period_start_s => return Ok(()),
            Some((period, nano_usd)) if period == row.period_start_s => nano_usd,
            _ => 0,
        };
        let more = own - known;
        if more <= 0 && former.is_some_and(|(period, _)| period == row.period_start_s) {
            return Ok(());
        }
        let sql = "INSERT INTO spend (tenant, agent, span, node, period_start_s, nano_usd) VALUES ($1, $2, $3, $4, $5, $6) \
            ON CONFLICT (tenant, agent, span, node) DO UPDATE \
            SET period_start_s = excluded.period_start_s, nano_usd = excluded.nano_usd";
        self.run(sql, p![row.tenant, &row.agent, window, node, row.period_start_s, own])?;
        let sql = "INSERT INTO spend_ledger (operation, node, tenant, agent, span, period_start_s, nano_usd, price_version, at_us) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let at_us = Timestamp::now().micros();
        let values =
            p![Uuid::new_v4(), node, row.tenant, &row.agent, window, row.period_start_s, more, price_version, at_us];
        self.run(sql, values).map(|_| ())
    }

    /// Writes these accounts down but those that count since before their tenant's deletion; gives those tenants.
    fn book_all(&mut self, rows: &[(SpendRow, i64)]) -> Result<Vec<(TenantId, i64)>, Fail> {
        let ids: Vec<Uuid> = rows.iter().map(|(row, _)| Uuid::from_bytes(*row.tenant.as_bytes())).collect();
        let buried = self.rows("SELECT tenant, at_us FROM burials WHERE tenant = ANY($1)", p![ids])?;
        let buried = buried
            .iter()
            .map(|row| Ok((tenant_of(row, 0)?, col::<i64>(row, 1)?.div_euclid(MICROS_PER_SECOND))))
            .collect::<Result<HashMap<_, _>, Fail>>()?;
        let mut left_out: Vec<(TenantId, i64)> = Vec::new();
        for (row, own) in rows {
            match buried.get(&row.tenant) {
                Some(deleted_s) if row.since_s <= *deleted_s => {
                    if !left_out.contains(&(row.tenant, *deleted_s)) {
                        left_out.push((row.tenant, *deleted_s));
                    }
                }
                _ => self.book(row, *own, None)?,
            }
        }
        Ok(left_out)
    }

    fn charged(&mut self, id: &BatchId) -> Result<Option<u64>, Fail> {
        let BatchId { tenant, provider, batch } = id;
        let sql = "SELECT nano_usd FROM batch_charges WHERE tenant = $1 AND provider = $2 AND batch = $3";
        let known = self.one(sql, p![*tenant, provider, batch])?;
        known.map(|row| Ok(col::<i64>(&row, 0)?.unsigned_abs())).transpose()
    }

    /// Notes a charge; where something else had been charged of the results than it says, nothing is noted and that is given.
    /// Two gateways that charge the same results wait for each other here, at the row, and the second one sees what the first one did.
    fn note_charge(&mut self, charge: &BatchCharge) -> Result<Option<Option<u64>>, Fail> {
        let BatchCharge { id, before, nano_usd, at_us } = charge;
        let BatchId { tenant, provider, batch } = id;
        let buried = "SELECT 1 FROM burials WHERE tenant = $1 AND at_us >= $2";
        // What a deleted tenant's last calls fetched is not noted again.
        if provider.len().max(batch.len()) > BATCH_ID_BYTES_MAX || self.one(buried, p![*tenant, *at_us])?.is_some() {
            return Ok(None);
        }
        let amount = |nano_usd: u64| i64::try_from(nano_usd).unwrap_or(i64::MAX);
        let noted = match before {
            None => {
                let sql = "INSERT INTO batch_charges (tenant, provider, batch, nano_usd, at_us) VALUES ($1, $2, $3, $4, $5) \
                    ON CONFLICT DO NOTHING";
                self.run(sql, p![*tenant, provider, batch, amount(*nano_usd), *at_us])?
            }
            Some(before) => {
                let sql = "UPDATE batch_charges SET nano_usd = $4, at_us = $5 \
                    WHERE tenant = $1 AND provider = $2 AND batch = $3 AND nano_usd = $6";
                self.run(sql, p![*tenant, provider, batch, amount(*nano_usd), *at_us, amount(*before)])?
            }
        };
        if noted == 0 {
            return self.charged(id).map(Some);
        }
        self.run("DELETE FROM batch_charges WHERE at_us < $1", p![at_us.saturating_sub(CHARGES_KEPT_US)])?;
        if before.is_none() {
            let sql = "DELETE FROM batch_charges WHERE tenant = $1 AND at_us < (SELECT at_us FROM batch_charges \
                WHERE tenant = $1 ORDER BY at_us DESC LIMIT 1 OFFSET $2)";
            self.run(sql, p![*tenant, i64::from(CHARGES_MAX)])?;
        }
        Ok(None)
    }
}

impl Relational {
    /// Keeps these rows but those that count since before their tenant's deletion; gives those tenants.
    pub(super) fn save_spend(&self, others: &Others, rows: &[SpendRow]) -> Result<Vec<(TenantId, i64)>, NotWritten> {
        let rows = counted(others, rows);
        self.write(|tx| tx.book_all(&rows))
    }

    /// The same with what is charged of the results of a batch, or how much has been charged of them already, by whichever gateway.
    pub(super) fn charge_batch(
        &self,
        others: &Others,
        rows: &[SpendRow],
        charge: &BatchCharge,
    ) -> Result<Booked, NotWritten> {
        let rows = counted(others, rows);
        self.write(|tx| match tx.note_charge(charge)? {
            Some(other) => Ok(Booked::Other(other)),
            None => Ok(Booked::Kept(tx.book_all(&rows)?)),
        })
    }

    /// How much has been charged of results, in nanodollars.
    pub(crate) fn charged(&self, id: &BatchId) -> Result<Option<u64>, ReadError> {
        self.read(|tx| tx.charged(id))
    }

    /// Draws this gateway's operations of before an hour together, one for each account and period, and drops those of periods that are
    /// over: the sum stays that of the operations, and the ledger does not grow with time.
    pub(super) fn draw_together(&self, now_us: i64) -> Result<(), NotWritten> {
        let (node, before_us) = (self.node, now_us - APART_US);
        let running_from_s = now_us.div_euclid(MICROS_PER_SECOND) - OVER_S;
        let sql = "WITH old AS (DELETE FROM spend_ledger WHERE operation IN (SELECT operation FROM spend_ledger \
            WHERE node = $1 AND at_us < $2 ORDER BY at_us LIMIT $3) RETURNING *) \
            INSERT INTO spend_ledger (operation, node, tenant, agent, span, period_start_s, nano_usd, price_version, at_us) \
            SELECT gen_random_uuid(), node, tenant, agent, span, period_start_s, sum(nano_usd)::bigint, price_version, max(at_us) FROM old \
            WHERE period_start_s > $4 GROUP BY node, tenant, agent, span, period_start_s, price_version";
        self.write(|tx| tx.run(sql, p![node, before_us, TOGETHER_MAX, running_from_s]).map(|_| ()))
    }

    /// What all gateways have spent in the periods that may still run at `now_s`. From now on this gateway counts the others in.
    pub(super) fn load_spend(&self, others: &Others, now_s: i64) -> Result<Vec<SpendRow>, ReadError> {
        let node = self.node;
        let (rows, theirs) = self.read(|tx| {
            let sql = "SELECT s.tenant, s.agent, s.span::bigint, s.period_start_s, sum(s.nano_usd)::bigint, \
                coalesce(sum(s.nano_usd) FILTER (WHERE s.node <> $2), 0)::bigint, max(b.at_us) \
                FROM spend s LEFT JOIN burials b ON b.tenant = s.tenant WHERE s.period_start_s > $1 \
                AND s.period_start_s = (SELECT max(o.period_start_s) FROM spend o \
                WHERE o.tenant = s.tenant AND o.agent = s.agent AND o.span = s.span) \
                GROUP BY s.tenant, s.agent, s.span, s.period_start_s ORDER BY 1, 2, 3";
            let (mut rows, mut theirs) = (Vec::new(), HashMap::new());
            for row in tx.rows(sql, p![now_s.saturating_sub(OVER_S), node])? {
                let deleted_s = col::<Option<i64>>(&row, 6)?.map(|at_us| at_us.div_euclid(MICROS_PER_SECOND));
                let window = usize::try_from(col::<i64>(&row, 2)?).ok().and_then(|at| Window::ALL.get(at)).copied();
                let spent = SpendRow {
                    tenant: tenant_of(&row, 0)?,
                    agent: col(&row, 1)?,
                    window: window.ok_or(Fail::Damaged)?,
                    period_start_s: col(&row, 3)?,
                    since_s: deleted_s.map_or(now_s, |deleted_s| now_s.max(deleted_s + 1)),
                    spent_nano_usd: col::<i64>(&row, 4)?.unsigned_abs(),
                };
                theirs.insert(account(&spent), col::<i64>(&row, 5)?);
                rows.push(spent);
            }
            Ok((rows, theirs))
        })?;
        *others.0.lock() = theirs;
        Ok(rows)
    }

    /// How much more the other gateways have spent since they were last counted in, by account. What is given is counted in.
    pub(super) fn spent_elsewhere(&self, others: &Others, now_s: i64) -> Result<Vec<SpendRow>, ReadError> {
        let before = others.0.lock().clone();
        let after = Others::default();
        let rows = self.load_spend(&after, now_s)?;
        let now = after.0.into_inner();
        let mut more = Vec::new();
        for mut row in rows {
            let key = account(&row);
            let theirs = now.get(&key).copied().unwrap_or(0);
            let grown = theirs - before.get(&key).copied().unwrap_or(0);
            if grown > 0 {
                row.spent_nano_usd = grown.unsigned_abs();
                more.push(row);
            }
        }
        *others.0.lock() = now;
        Ok(more)
    }
}
