//! Offences and blocked addresses. What is over is removed with the next offence.

use weir_config::vocab::Timestamp;

use super::reads::Reads;
use super::tx::Tx;
use crate::error::ReadError;
use crate::error::WriteError;
use crate::offences::{BlockedAddress, Offence};

impl Tx<'_> {
    /// Notes an offence; gives the block that it brings about.
    pub(super) fn note_offence(&self, offence: &Offence) -> Result<Option<BlockedAddress>, WriteError> {
        let Offence { address, span, at, ttl_us, max } = offence;
        let (at_us, name) = (at.micros(), address.to_string());
        let over = "DELETE FROM offences WHERE at_us <= ?1";
        self.conn.prepare_cached(over)?.execute([at_us.saturating_sub(*ttl_us)])?;
        self.conn.prepare_cached("DELETE FROM blocked_addresses WHERE until_us <= ?1")?.execute([at_us])?;
        let put = "INSERT OR IGNORE INTO offences (address, span, at_us) VALUES (?1, ?2, ?3)";
        self.conn.prepare_cached(put)?.execute((&name, span.as_bytes().as_slice(), at_us))?;
        let count = "SELECT count(*) FROM offences WHERE address = ?1";
        let noted: i64 = self.conn.prepare_cached(count)?.query_row([&name], |row| row.get(0))?;
        if noted < i64::from(*max) {
            return Ok(None);
        }
        let until = Timestamp::from_micros(at_us.saturating_add(*ttl_us));
        let block = "INSERT OR REPLACE INTO blocked_addresses (address, until_us) VALUES (?1, ?2)";
        self.conn.prepare_cached(block)?.execute((&name, until.micros()))?;
        self.conn.prepare_cached("DELETE FROM offences WHERE address = ?1")?.execute([&name])?;
        Ok(Some(BlockedAddress { address: *address, until }))
    }
}

impl Reads<'_> {
    /// The addresses that are turned away at `now`.
    pub(crate) fn blocked_addresses(&self, now: Timestamp) -> Result<Vec<BlockedAddress>, ReadError> {
        self.ask("read_blocked_addresses", |conn| {
            let mut statement =
                conn.prepare_cached("SELECT address, until_us FROM blocked_addresses WHERE until_us > ?1")?;
            let rows = statement
                .query_map([now.micros()], |row| Ok((row.get::<_, String>(0)?, Timestamp::from_micros(row.get(1)?))))?;
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            // The table holds what `note_offence` wrote, so each of them is an address.
            let known = rows
                .into_iter()
                .filter_map(|(name, until)| name.parse().ok().map(|address| BlockedAddress { address, until }));
            Ok(known.collect())
        })
    }
}
