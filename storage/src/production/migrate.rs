//! The schemas of the stores: steps by number, each applied once, by one gateway at a time, with a ledger in each store.
//!
//! Steps only add, so that a gateway of the version before works on the new schema. A step waits at most two seconds for a lock and
//! is tried again, so that it never stands in the way of what runs.

use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::analytics::Analytics;
use super::relational::{Fail, Relational, Tx, col, p};
use crate::error::OpenError;

/// Steps of the relational store, with their numbers.
const RELATIONAL: &[(i64, &str)] = &[
    (1, include_str!("schema/relational_0001.sql")),
    (2, include_str!("schema/relational_0002.sql")),
    (3, include_str!("schema/relational_0003.sql")),
];
/// Steps of the analytics store. Each statement ends with a semicolon at the end of a line and may be repeated.
const ANALYTICS: &[(i64, &str)] = &[(1, include_str!("schema/analytics_0001.sql"))];
/// The lock of whoever migrates.
const LOCK: i64 = 0x7765_6972_0002;
/// How long a step is tried again that another transaction stands in the way of.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was, or would be, applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Steps of the relational store.
    pub relational: usize,
    /// Steps of the analytics store.
    pub analytics: usize,
}

fn refused(reason: String) -> OpenError {
    OpenError::Stores { reason, is_lasting: true }
}

fn away(reason: String) -> OpenError {
    OpenError::Stores { reason, is_lasting: false }
}

/// Applies what is pending, or says that it is where nothing may be applied.
pub(super) fn run(relational: &Relational, analytics: &Analytics, auto: bool) -> Result<Migrated, OpenError> {
    let pending = pending(relational, analytics)?;
    if pending == Migrated::default() {
        return Ok(pending);
    }
    if !auto {
        return Err(refused(format!(
            "{} migration(s) of the relational store and {} of the analytics store are pending and storage.auto_migrate is false; run \
             `weir migrate --config` with the same configuration, or set storage.auto_migrate to true",
            pending.relational, pending.analytics
        )));
    }
    let until = Instant::now() + PATIENCE;
    loop {
        match relational.write(|tx| apply(tx, analytics)) {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() < until => {
                tracing::warn!(%error, "a migration could not be made; it is tried again");
                std::thread::sleep(Duration::from_millis(500));
            }
            Err(error) => return Err(away(error.to_string())),
        }
    }
}

/// What would be applied. Refuses a schema that this version does not know.
pub(super) fn pending(relational: &Relational, analytics: &Analytics) -> Result<Migrated, OpenError> {
    let applied = relational.read(applied_relational).map_err(|error| away(error.to_string()))?;
    let shipped = analytics.applied().map_err(|error| away(error.to_string()))?;
    let count = |of: &[(i64, &str)], applied: &[(i64, String)], store: &str| {
        for (number, print) in applied {
            // A newer version's steps only add: this one works beside them.
            let known = of.iter().find(|(known, _)| known == number);
            if known.is_some_and(|(_, text)| print_of(text) != *print) {
                return Err(refused(format!(
                    "migration {number} of the {store} store differs from the one this Weir ships; an altered build has made it"
                )));
            }
        }
        Ok(of.iter().filter(|(number, _)| applied.iter().all(|(done, _)| done != number)).count())
    };
    Ok(Migrated {
        relational: count(RELATIONAL, &applied, "relational")?,
        analytics: count(ANALYTICS, &shipped, "analytics")?,
    })
}

fn print_of(text: &str) -> String {
    crate::audit::hex(&Sha256::digest(text.as_bytes()))
}

fn applied_relational(tx: &mut Tx<'_>) -> Result<Vec<(i64, String)>, Fail> {
    if tx.value::<Option<String>>("SELECT to_regclass('weir_migrations')::text", p![])?.is_none() {
        return Ok(Vec::new());
    }
    let rows = tx.rows("SELECT number, print FROM weir_migrations ORDER BY number", p![])?;
    rows.iter().map(|row| Ok((col(row, 0)?, col(row, 1)?))).collect()
}

/// Under the lock, so by one gateway at a time; the steps of the analytics store may be repeated.
fn apply(tx: &mut Tx<'_>, analytics: &Analytics) -> Result<Migrated, Fail> {
    tx.batch("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '60s'")?;
    tx.lock(LOCK)?;
    tx.batch(
        "SET LOCAL lock_timeout = '2s'; CREATE TABLE IF NOT EXISTS weir_migrations \
         (number BIGINT PRIMARY KEY, print TEXT NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now())",
    )?;
    let mut done = Migrated::default();
    let known = applied_relational(tx)?;
    for (number, text) in RELATIONAL.iter().filter(|(number, _)| known.iter().all(|(done, _)| done != number)) {
        tx.batch(text)?;
        tx.run("INSERT INTO weir_migrations (number, print) VALUES ($1, $2)", p![*number, print_of(text)])?;
        done.relational += 1;
    }
    let store = |error: crate::error::ReadError| Fail::Store(error.to_string());
    let known = analytics.applied().map_err(store)?;
    for (number, text) in ANALYTICS.iter().filter(|(number, _)| known.iter().all(|(done, _)| done != number)) {
        for statement in text.split(";\n").filter(|statement| !statement.trim().is_empty()) {
            analytics.run(statement).map_err(store)?;
        }
        analytics.note_applied(*number, &print_of(text)).map_err(store)?;
        done.analytics += 1;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_from_one_without_a_gap() {
        for steps in [RELATIONAL, ANALYTICS] {
            assert!(steps.iter().map(|(number, _)| *number).eq(1..=steps.len() as i64));
        }
    }
}
