//! The questions of one store, each told to its observer under a name of its own.

use std::ops::Deref;
use std::time::Instant;

use rusqlite::Connection;

use super::chain::Auditor;
use super::readers::{Damage, Readers, Stop};
use crate::error::ReadError;
use crate::observer::StoreObserver;

/// What answers questions. The other files of this folder add the questions.
pub(crate) struct Reads<'a> {
    pub(crate) readers: &'a Readers,
    pub(crate) observer: &'a dyn StoreObserver,
    pub(crate) auditor: &'a Auditor,
}

impl Reads<'_> {
    /// Asks the database on a reader's connection, in a snapshot of its own and at most as long as a read may take.
    pub(super) fn ask<T>(
        &self,
        operation: &'static str,
        question: impl FnOnce(&Snapshot<'_>) -> Result<T, Stop>,
    ) -> Result<T, ReadError> {
        let started = Instant::now();
        let result = self.readers.with(|conn| {
            let transaction = conn.unchecked_transaction()?;
            question(&Snapshot { conn: &transaction, pause: self.readers.pause, damage: &self.readers.damage })
        });
        self.observer.read(operation, started.elapsed(), result.is_ok());
        result
    }
}

/// The database as it was when a question began.
pub(super) struct Snapshot<'a> {
    conn: &'a Connection,
    pause: fn(),
    /// Where rows are noted that cannot be read.
    pub(super) damage: &'a Damage,
}

impl Snapshot<'_> {
    /// A place where the thread that reads may let others go first; to be passed often.
    pub(super) fn pause(&self) {
        (self.pause)();
    }
}

impl Deref for Snapshot<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.conn
    }
}
