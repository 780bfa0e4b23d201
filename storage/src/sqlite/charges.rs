//! Results of batches that have been charged, in the transaction in which what they cost is added to what was spent.
//!
//! Invariants: of the same results no two processes charge the same; no more than [`CHARGES_MAX`] of a tenant are kept, and a few on the way
//! there, none longer than [`CHARGES_KEPT_US`].

use rusqlite::OptionalExtension as _;

use super::intern::deleted_us;
use super::reads::Reads;
use super::tx::Tx;
use crate::charges::{BATCH_ID_BYTES_MAX, BatchCharge, BatchId, Booked, CHARGES_KEPT_US, CHARGES_MAX};
use crate::error::{ReadError, WriteError};
use crate::spend::SpendRow;

const CHARGED: &str = "SELECT nano_usd FROM batch_charges WHERE tenant = ?1 AND provider = ?2 AND batch = ?3";

impl Tx<'_> {
    /// Adds the rows and notes the charge, or says how much has been charged already.
    pub(super) fn charge_batch(&self, rows: &[SpendRow], charge: &BatchCharge) -> Result<Booked, WriteError> {
        let BatchCharge { id: BatchId { tenant, provider, batch }, before, nano_usd, at_us } = charge;
        let whose = tenant.as_bytes().as_slice();
        let known: Option<i64> =
            self.conn.prepare_cached(CHARGED)?.query_row((whose, provider, batch), |row| row.get(0)).optional()?;
        let known = known.map(i64::unsigned_abs);
        if known != *before {
            return Ok(Booked::Other(known));
        }
        let left_out = self.save_spend(rows)?;
        // What a deleted tenant's last calls fetched is not noted again.
        let is_deleted = deleted_us(self.conn, *tenant)?.is_some_and(|deleted_us| *at_us <= deleted_us);
        if is_deleted || provider.len().max(batch.len()) > BATCH_ID_BYTES_MAX {
            return Ok(Booked::Kept(left_out));
        }
        let put = "INSERT OR REPLACE INTO batch_charges (tenant, provider, batch, nano_usd, at_us) VALUES (?1, ?2, ?3, ?4, ?5)";
        let nano_usd = i64::try_from(*nano_usd).unwrap_or(i64::MAX);
        self.conn.prepare_cached(put)?.execute((whose, provider, batch, nano_usd, at_us))?;
        let old = "DELETE FROM batch_charges WHERE at_us < ?1";
        self.conn.prepare_cached(old)?.execute([at_us.saturating_sub(CHARGES_KEPT_US)])?;
        if known.is_none() {
            self.bound_charges(whose)?;
        }
        Ok(Booked::Kept(left_out))
    }

    /// Takes the oldest out where a tenant has too many.
    fn bound_charges(&self, whose: &[u8]) -> Result<(), WriteError> {
        let count = "SELECT count(*) FROM batch_charges WHERE tenant = ?1";
        let count: i64 = self.conn.prepare_cached(count)?.query_row([whose], |row| row.get(0))?;
        if count > i64::from(CHARGES_MAX) {
            let sweep = "DELETE FROM batch_charges WHERE tenant = ?1 AND (provider, batch) IN (SELECT provider, batch \
                FROM batch_charges WHERE tenant = ?1 ORDER BY at_us LIMIT ?2)";
            self.conn.prepare_cached(sweep)?.execute((whose, count - i64::from(CHARGES_MAX) + SWEPT))?;
        }
        Ok(())
    }
}

/// How many more go where one has to.
const SWEPT: i64 = 1_000;

impl Reads<'_> {
    /// How much has been charged of results, in nanodollars.
    pub(crate) fn charged(&self, id: &BatchId) -> Result<Option<u64>, ReadError> {
        self.ask("read_spend", |conn| {
            let BatchId { tenant, provider, batch } = id;
            let mut statement = conn.prepare_cached(CHARGED)?;
            let known =
                statement.query_row((tenant.as_bytes().as_slice(), provider, batch), |row| row.get::<_, i64>(0));
            Ok(known.optional()?.map(i64::unsigned_abs))
        })
    }
}
