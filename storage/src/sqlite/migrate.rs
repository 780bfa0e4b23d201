//! Numbered migrations with checksums. What was applied to a file is recorded in the file itself.
//!
//! A migration that has shipped never changes; the next one gets the next number. Each runs in its own transaction, so
//! a file is always at a whole version.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};
use sha2::{Digest, Sha256};
use weir_config::vocab::Timestamp;

use super::{Home, open};
use crate::error::OpenError;

/// "Weir" in the file's header: tells our files from other programs'.
const APPLICATION_ID: i64 = 0x5765_6972;

struct Migration {
    name: &'static str,
    sql: &'static str,
}

/// The ways back, of migrations whose predecessor reads all that matters without what they brought: version and SQL. From the first
/// release on each migration has one, or what it costs to go without is said in the changelog.
const BACK: [(u32, &str); 3] = [
    (28, include_str!("../schema/0028_made_objects.down.sql")),
    (29, include_str!("../schema/0029_prompt_cache.down.sql")),
    (30, include_str!("../schema/0030_batch_charges.down.sql")),
];

/// In order; the version of a migration is its position, counted from 1.
const MIGRATIONS: [Migration; 30] = [
    Migration { name: "records", sql: include_str!("../schema/0001_records.sql") },
    Migration { name: "ledger", sql: include_str!("../schema/0002_ledger.sql") },
    Migration { name: "identity", sql: include_str!("../schema/0003_identity.sql") },
    Migration { name: "spend", sql: include_str!("../schema/0004_spend.sql") },
    Migration { name: "places", sql: include_str!("../schema/0005_places.sql") },
    Migration { name: "action_sums", sql: include_str!("../schema/0006_action_sums.sql") },
    Migration { name: "service_audit", sql: include_str!("../schema/0007_service_audit.sql") },
    Migration { name: "burials", sql: include_str!("../schema/0008_burials.sql") },
    Migration { name: "tenant_blocks", sql: include_str!("../schema/0009_tenant_blocks.sql") },
    Migration { name: "audit_count", sql: include_str!("../schema/0010_audit_count.sql") },
    Migration { name: "names_gone", sql: include_str!("../schema/0011_names_gone.sql") },
    Migration { name: "cursors", sql: include_str!("../schema/0012_cursors.sql") },
    Migration { name: "texts", sql: include_str!("../schema/0013_texts.sql") },
    Migration { name: "facets", sql: include_str!("../schema/0014_facets.sql") },
    Migration { name: "text_code", sql: include_str!("../schema/0015_text_code.sql") },
    Migration { name: "offences", sql: include_str!("../schema/0016_offences.sql") },
    Migration { name: "judge_verdicts", sql: include_str!("../schema/0017_judge_verdicts.sql") },
    Migration { name: "provider_keys", sql: include_str!("../schema/0018_provider_keys.sql") },
    Migration { name: "upstream", sql: include_str!("../schema/0019_upstream.sql") },
    Migration { name: "alerts", sql: include_str!("../schema/0020_alerts.sql") },
    Migration { name: "found", sql: include_str!("../schema/0021_found.sql") },
    Migration { name: "alert_holders", sql: include_str!("../schema/0022_alert_holders.sql") },
    Migration { name: "trace_erasures", sql: include_str!("../schema/0023_trace_erasures.sql") },
    Migration { name: "alert_closings", sql: include_str!("../schema/0024_alert_closings.sql") },
    Migration { name: "frames", sql: include_str!("../schema/0025_frames.sql") },
    Migration { name: "short_code", sql: include_str!("../schema/0026_short_code.sql") },
    Migration { name: "lone_spans", sql: include_str!("../schema/0027_lone_spans.sql") },
    Migration { name: "made_objects", sql: include_str!("../schema/0028_made_objects.sql") },
    Migration { name: "prompt_cache", sql: include_str!("../schema/0029_prompt_cache.sql") },
    Migration { name: "batch_charges", sql: include_str!("../schema/0030_batch_charges.sql") },
];

const CREATE: &str = "CREATE TABLE IF NOT EXISTS migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    sha256     BLOB NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT";

/// What a migration run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationReport {
    /// Schema version before; 0 for a new file.
    pub from: u32,
    /// Schema version now.
    pub to: u32,
    /// Names of the migrations applied, in order.
    pub applied: Vec<&'static str>,
    /// The copy of the file as it was before.
    pub copy: Option<PathBuf>,
}

/// Opens the file, creating it when absent, and applies what is pending; before that a copy is made, where that is asked for.
pub(crate) fn run(path: &Path, copies: bool) -> Result<MigrationReport, OpenError> {
    let mut conn = open::writer(&Home::file(path))?;
    apply(&mut conn, path, Pending { apply: true, copy: if copies { CopyFirst::Always } else { CopyFirst::Never } })
}

/// What is done about migrations that are due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    /// They are applied; else the file is refused.
    pub(crate) apply: bool,
    /// A copy of the file is made before that.
    pub(crate) copy: CopyFirst,
}

/// Whether a file is copied before it is migrated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyFirst {
    Never,
    /// A gateway that does not start is worse than one without a way back.
    WhereThereIsRoom,
    /// Or the migration does not happen.
    Always,
}

/// The copy that is made before a file of this version is migrated.
fn copy_beside(path: &Path, version: u32) -> PathBuf {
    let mut copy = path.as_os_str().to_owned();
    copy.push(format!(".schema-{version}"));
    PathBuf::from(copy)
}

/// Keeps the file as it is before it is migrated; the name of the copy. Copies of former migrations are removed once there is this one.
fn keep_copy(conn: &Connection, path: &Path, from: u32) -> Result<PathBuf, OpenError> {
    let kept = copy_beside(path, from);
    let mut partial = kept.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let room = crate::room::room_beside(path);
    if let Some(room) = room.filter(|room| room.free < room.held) {
        return Err(OpenError::NoRoomForCopy { path: path.to_owned(), needed: room.held, free: room.free });
    }
    let failed = |error: std::io::Error| OpenError::Copy { path: kept.clone(), reason: error.to_string() };
    if partial.exists() {
        // Of a start that was killed.
        std::fs::remove_file(&partial).map_err(failed)?;
    }
    super::copy::copy_from(conn, path, &partial, &mut |_, _| {})?;
    std::fs::rename(&partial, &kept).map_err(failed)?;
    for version in (1..from).filter(|version| *version != from) {
        // One that cannot be removed takes room and harms nobody.
        drop(std::fs::remove_file(copy_beside(path, version)));
    }
    Ok(kept)
}

/// Takes the last migration back, on a file that nobody uses; the version the file then has.
pub(crate) fn down(path: &Path) -> Result<MigrationReport, OpenError> {
    examine(path, true)?;
    let mut conn = open::writer(&Home::file(path))?;
    let failed = |error| open::explain(path, "going back to the former schema", error);
    let from = version(&conn, path)?;
    let Some((_, sql)) = BACK.iter().find(|(version, _)| *version == from) else {
        return Err(OpenError::NoWayBack { path: path.to_owned(), version: from });
    };
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    tx.execute_batch(sql).map_err(failed)?;
    tx.execute("DELETE FROM migrations WHERE version = ?1", [from]).map_err(failed)?;
    tx.commit().map_err(failed)?;
    let taken = MIGRATIONS.get(from as usize - 1).map(|migration| migration.name);
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(failed)?;
    Ok(MigrationReport { from, to: from - 1, applied: taken.into_iter().collect(), copy: None })
}

/// The version of a file that this build knows.
pub(super) fn schema(conn: &Connection, path: &Path) -> Result<u32, OpenError> {
    recognise(conn, path)?;
    version(conn, path)
}

/// Whether a start would take this existing file, without changing it: how many migrations it would apply.
pub(crate) fn examine(path: &Path, auto: bool) -> Result<usize, OpenError> {
    let conn = open::onlooker(path)?;
    recognise(&conn, path)?;
    let pending = MIGRATIONS.len() - version(&conn, path)? as usize;
    if pending > 0 && !auto {
        return Err(OpenError::PendingMigrations { path: path.to_owned(), pending });
    }
    Ok(pending)
}

/// Applies pending migrations, or refuses where there are some and they are not to be applied.
pub(super) fn apply(conn: &mut Connection, path: &Path, due: Pending) -> Result<MigrationReport, OpenError> {
    let failed = |error| open::explain(path, "migrating the database", error);
    recognise(conn, path)?;
    let from = version(conn, path)?;
    let pending = MIGRATIONS.get(from as usize..).unwrap_or_default();
    if !pending.is_empty() && !due.apply {
        return Err(OpenError::PendingMigrations { path: path.to_owned(), pending: pending.len() });
    }
    let mut report = MigrationReport { from, to: from, applied: Vec::new(), copy: None };
    if from > 0 && !pending.is_empty() && due.copy != CopyFirst::Never {
        match keep_copy(conn, path, from) {
            Ok(copy) => report.copy = Some(copy),
            Err(error @ OpenError::NoRoomForCopy { .. }) if due.copy == CopyFirst::WhereThereIsRoom => {
                tracing::warn!(%error, "the database is migrated without a copy of what it was");
            }
            Err(error) => return Err(error),
        }
    }
    for migration in pending {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        tx.execute_batch(CREATE).map_err(failed)?;
        tx.execute_batch(migration.sql).map_err(failed)?;
        tx.execute(
            "INSERT INTO migrations (version, name, sha256, applied_at) VALUES (?1, ?2, ?3, ?4)",
            (report.to + 1, migration.name, checksum(migration), Timestamp::now().micros()),
        )
        .map_err(failed)?;
        tx.commit().map_err(failed)?;
        report.to += 1;
        report.applied.push(migration.name);
    }
    Ok(report)
}

/// Refuses a database that is not ours: another application id, or tables without one.
fn recognise(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let failed = |error| open::explain(path, "reading the schema", error);
    let application_id: i64 =
        conn.query_row("SELECT application_id FROM pragma_application_id", [], |row| row.get(0)).map_err(failed)?;
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if application_id == APPLICATION_ID || (application_id == 0 && tables == 0) {
        return Ok(());
    }
    Err(OpenError::Foreign { path: path.to_owned(), application_id })
}

/// The file's version, once its recorded checksums agree with what this build ships.
fn version(conn: &Connection, path: &Path) -> Result<u32, OpenError> {
    version_among(&MIGRATIONS, conn, path)
}

/// The same of a build that ships these migrations.
fn version_among(shipped: &[Migration], conn: &Connection, path: &Path) -> Result<u32, OpenError> {
    let failed = |error| open::explain(path, "reading the schema version", error);
    if !conn.table_exists(None, "migrations").map_err(failed)? {
        return Ok(0);
    }
    let mut statement = conn.prepare("SELECT version, sha256 FROM migrations ORDER BY version").map_err(failed)?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, Vec<u8>>(1)?))).map_err(failed)?;
    let applied = rows.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let found = applied.last().map_or(0, |(version, _)| *version);
    if found as usize > shipped.len() {
        return Err(OpenError::NewerSchema { path: path.to_owned(), found, known: shipped.len() as u32 });
    }
    for (at, migration) in shipped.iter().enumerate().take(found as usize) {
        let expected = (at as u32 + 1, checksum(migration));
        if applied.get(at) != Some(&expected) {
            return Err(OpenError::ChangedMigration { path: path.to_owned(), version: expected.0 });
        }
    }
    Ok(found)
}

fn checksum(migration: &Migration) -> Vec<u8> {
    Sha256::digest(migration.sql.as_bytes()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_earlier_build_refuses_the_file_by_its_number() {
        let path = Path::new("service.db");
        let mut conn = Connection::open_in_memory().unwrap();
        apply(&mut conn, path, Pending { apply: true, copy: CopyFirst::Never }).unwrap();
        let all = MIGRATIONS.len() as u32;
        assert_eq!(version(&conn, path), Ok(all));
        for known in 1..all {
            let refused = version_among(&MIGRATIONS[..known as usize], &conn, path).unwrap_err();
            assert_eq!(refused, OpenError::NewerSchema { path: path.to_owned(), found: all, known });
            let said = refused.to_string();
            let names = [format!("is version {all},"), format!("up to {known};"), "service.db".to_owned()];
            assert!(names.iter().all(|name| said.contains(name.as_str())), "{said}");
        }
    }
}
