//! A transaction of the writer, as changes see it, and the pattern for tables of one's own.
//!
//! A change is a closure that [`Store::write`] hands to the writer thread. It runs there inside a transaction that it
//! shares with other changes, and the caller gets its value after the commit. It may run more than once (the store is
//! replayed after a failure), so it must do all its work through [`Tx`] and own what it needs:
//!
//! ```ignore
//! // storage/src/sqlite/keys.rs
//! impl Store {
//!     pub fn create_key(&self, key: KeyRow, by: AuditEvent) -> Result<(), NotWritten> {
//!         self.write("write_key", move |tx| {
//!             tx.conn.prepare_cached("INSERT INTO api_keys (...) VALUES (?1, ?2)")?.execute((&key.id, &key.digest))?;
//!             tx.audit(&by)
//!         })
//!     }
//!     pub fn load_keys(&self) -> Result<Vec<KeyRow>, ReadError> {
//!         self.ask("read_keys", |conn| { ...; Ok(rows) })
//!     }
//! }
//! ```
//!
//! A constraint that objects becomes `NotWritten::Refused` for this change alone.

use rusqlite::{Connection, ErrorCode};

use super::intern::Interner;
use super::pool::Stop;
use super::tallies::Tallies;
use crate::encode::Encoder;
use crate::error::{NotWritten, ReadError};
use crate::order::{ORDER_WAIT, order};
use crate::store::Store;
use crate::writer::WriteError;

/// The writer's connection inside a transaction, with what the writer remembers.
pub(crate) struct Tx<'a> {
    /// Runs statements; begin and commit are the writer's.
    pub(crate) conn: &'a Connection,
    pub(super) encoder: &'a mut Encoder,
    pub(super) interner: &'a mut Interner,
    pub(super) tallies: &'a mut Tallies,
}

impl From<rusqlite::Error> for WriteError {
    /// Errors that the same change would meet again are its own; all others are the store's.
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(
                ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::TooBig
                | ErrorCode::ParameterOutOfRange,
            ) => Self::Row(error.to_string()),
            Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt) => Self::Damage(error.to_string()),
            Some(ErrorCode::DiskFull) => Self::Full(error.to_string()),
            Some(_) => Self::Store(error.to_string()),
            // Not SQLite's: a value of another type than asked for, a missing row.
            None => Self::Row(error.to_string()),
        }
    }
}

impl Store {
    /// Has the writer make a change and waits until it is durable. Blocks: not for core threads.
    ///
    /// # Errors
    /// [`NotWritten`]; nothing of the change was applied.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        operation: &'static str,
        change: impl FnMut(&mut Tx<'_>) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, NotWritten> {
        let (job, receipt) = order(operation, change);
        self.queue().order(job)?;
        receipt.wait(ORDER_WAIT)
    }

    /// Asks the database on a reader's connection, in a snapshot of its own and at most as long as a read may take.
    pub(crate) fn ask<T>(
        &self,
        operation: &'static str,
        question: impl FnOnce(&Connection) -> Result<T, Stop>,
    ) -> Result<T, ReadError> {
        self.read(operation, |readers| {
            readers.with(|conn| {
                let snapshot = conn.unchecked_transaction()?;
                question(&snapshot)
            })
        })
    }
}
