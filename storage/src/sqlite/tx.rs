//! A transaction of the writer, as changes see it.
//!
//! Several changes share one, and it may be repeated: so a change does all its work through [`Tx`], and a constraint that
//! objects becomes `NotWritten::Refused` for this change alone.

use rusqlite::{Connection, ErrorCode};

use super::intern::Interner;
use super::tallies::Tallies;
use super::texts::Texts;
use crate::encode::Encoder;
use crate::error::WriteError;

/// The writer's connection inside a transaction, with what the writer remembers.
pub(super) struct Tx<'a> {
    /// Runs statements; begin and commit are the writer's.
    pub(super) conn: &'a Connection,
    pub(super) encoder: &'a mut Encoder,
    pub(super) interner: &'a mut Interner,
    pub(super) tallies: &'a mut Tallies,
    pub(super) texts: &'a mut Texts,
    /// Spans that began before this keep no texts.
    pub(super) texts_from_us: Option<i64>,
}

impl Tx<'_> {
    /// To be called first: other processes may have written since the last transaction.
    pub(super) fn catch_up(&mut self) -> Result<(), WriteError> {
        self.interner.catch_up(self.conn)?;
        Ok(self.texts.catch_up(self.conn)?)
    }
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
