//! Small integers for tenants and names, remembered by the writer.
//!
//! What is remembered may be forgotten at any time (the tables are the truth), and must be when a transaction that may
//! have added a row is rolled back, or when a tenant was deleted, by this process or another one on the same file. The
//! memory is bounded because models are chosen by clients.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, ToSql};
use weir_config::vocab::{TenantId, Timestamp};

use super::facets::meet_finding;

/// Remembered entries per kind.
const REMEMBERED_MAX: usize = 4096;
/// Models, agents, clients and operations of a tenant that have integers of their own, of each kind. Clients choose them: each takes its text
/// twice and a row of the sums, which every list of the tenant's adds up.
const LABELS_MAX: usize = 1_000;
/// What lists know the further ones by.
const OTHER: &str = "(other)";
/// Labels remembered of all tenants.
const ALL_LABELS_MAX: usize = 65_536;
/// Between looks whether a tenant that had too many of a kind has fewer now.
const LABELS_EVERY: Duration = Duration::from_secs(10);
/// How far ahead a deletion may lie: clocks of a machine are set by less while it runs.
const AHEAD_MAX_US: i64 = 60_000_000;

#[derive(Default)]
pub(super) struct Interner {
    tenants: HashMap<TenantId, Known>,
    /// One of `tenants`: spans that follow each other mostly have it in common.
    latest: Option<(TenantId, Known)>,
    names: HashMap<String, i64>,
    labels: HashMap<(i64, Label), Labels>,
    /// How many of them.
    labels_count: usize,
    finding_bits: HashMap<String, u32>,
    /// How often names had been taken out of the table, as far as `names` and `labels` have taken in.
    sweeps: i64,
    /// The latest deletion of a tenant that `tenants` has taken in.
    deletion: i64,
}

/// What clients name as they like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Label {
    Model,
    Agent,
    Client,
    Operation,
}

impl Label {
    /// The integers a tenant's spans have.
    const fn sql(self) -> &'static str {
        match self {
            Self::Model => "SELECT DISTINCT model FROM tallies WHERE tenant = ?1",
            Self::Operation => "SELECT DISTINCT operation FROM tallies WHERE tenant = ?1",
            Self::Agent => "SELECT name FROM labels WHERE tenant = ?1 AND kind = 1",
            Self::Client => "SELECT name FROM labels WHERE tenant = ?1 AND kind = 2",
        }
    }
}

/// The labels of a kind that a tenant has spans of, or had.
struct Labels {
    ids: HashSet<i64>,
    read: Instant,
}

/// A tenant that the tables have.
#[derive(Clone, Copy)]
struct Known {
    id: i64,
    /// When a former tenant of this UUID was deleted; `i64::MIN` when none was.
    deleted_us: i64,
}

impl Interner {
    pub(super) fn forget(&mut self) {
        self.forget_tenants();
        self.names.clear();
        self.finding_bits.clear();
    }

    fn forget_tenants(&mut self) {
        self.tenants.clear();
        self.latest = None;
    }

    /// To be called at the beginning of every transaction: a tenant may have been deleted by another process, or names taken
    /// out.
    pub(super) fn catch_up(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let sql = "SELECT (SELECT ifnull(max(id), 0) FROM burials), (SELECT sweeps FROM name_sweeps WHERE id = 1)";
        let (last, sweeps) = conn.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if std::mem::replace(&mut self.sweeps, sweeps) != sweeps {
            self.names.clear();
            self.labels.clear();
            self.labels_count = 0;
        }
        if std::mem::replace(&mut self.deletion, last) != last {
            self.forget_tenants();
        }
        Ok(())
    }

    /// The integer of the tenant of something that began at `start`; `None` when the tenant was deleted after that.
    pub(super) fn tenant_since(
        &mut self,
        conn: &Connection,
        tenant: TenantId,
        start: Timestamp,
    ) -> rusqlite::Result<Option<i64>> {
        let start_us = start.micros();
        let latest = self.latest.filter(|(latest, _)| *latest == tenant).map(|(_, known)| known);
        if let Some(known) = latest.or_else(|| self.tenants.get(&tenant).copied()) {
            if start_us > known.deleted_us {
                self.latest = Some((tenant, known));
                return Ok(Some(known.id));
            }
            if !is_ahead(known.deleted_us) {
                return Ok(None);
            }
            self.tenants.remove(&tenant);
            self.latest = None;
        }
        let deleted_us = deleted_us(conn, tenant)?.unwrap_or(i64::MIN);
        if start_us > deleted_us { self.meet(conn, tenant, deleted_us).map(Some) } else { Ok(None) }
    }

    /// The tenant's integer; a tenant that is not there begins with it.
    pub(super) fn tenant(&mut self, conn: &Connection, tenant: TenantId) -> rusqlite::Result<i64> {
        if let Some(known) = self.tenants.get(&tenant) {
            return Ok(known.id);
        }
        let deleted_us = deleted_us(conn, tenant)?.unwrap_or(i64::MIN);
        self.meet(conn, tenant, deleted_us)
    }

    fn meet(&mut self, conn: &Connection, tenant: TenantId, deleted_us: i64) -> rusqlite::Result<i64> {
        let insert = "INSERT INTO tenants (uuid, created_us) \
            VALUES (?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) ON CONFLICT DO NOTHING";
        let id = intern(conn, insert, TENANT, tenant.as_bytes())?;
        if self.tenants.len() >= REMEMBERED_MAX {
            self.forget_tenants();
        }
        self.tenants.insert(tenant, Known { id, deleted_us });
        Ok(id)
    }

    pub(super) fn name(&mut self, conn: &Connection, name: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.names.get(name) {
            return Ok(*id);
        }
        let id = intern(conn, "INSERT INTO names (text) VALUES (?1) ON CONFLICT DO NOTHING", NAME, &name)?;
        if self.names.len() >= REMEMBERED_MAX {
            self.names.clear();
        }
        self.names.insert(name.to_owned(), id);
        Ok(id)
    }

    /// The integer of a label in a span of the tenant's. True when it is that of further ones of its kind, because the tenant
    /// has as many as it may.
    pub(super) fn label(
        &mut self,
        conn: &Connection,
        tenant: i64,
        kind: Label,
        name: &str,
    ) -> rusqlite::Result<(i64, bool)> {
        let known = match self.names.get(name) {
            Some(id) => Some(*id),
            None => find_name(conn, name)?,
        };
        let labels = self.labels_of(conn, tenant, kind)?;
        let is_theirs = known.is_some_and(|id| labels.contains(&id));
        if !is_theirs && labels.len() >= LABELS_MAX {
            return Ok((self.name(conn, OTHER)?, true));
        }
        if let Some(id) = known.filter(|_| is_theirs) {
            return Ok((id, false));
        }
        let id = self.name(conn, name)?;
        if let Some(labels) = self.labels.get_mut(&(tenant, kind)) {
            self.labels_count += usize::from(labels.ids.insert(id));
        }
        Ok((id, false))
    }

    /// What stays remembered of a transaction that was rolled back does no harm: it counts as one of the tenant's.
    fn labels_of(&mut self, conn: &Connection, tenant: i64, kind: Label) -> rusqlite::Result<&HashSet<i64>> {
        let is_fresh = |labels: &Labels| labels.ids.len() < LABELS_MAX || labels.read.elapsed() < LABELS_EVERY;
        let at = (tenant, kind);
        if !self.labels.get(&at).is_some_and(is_fresh) {
            if self.labels_count >= ALL_LABELS_MAX {
                self.labels.clear();
                self.labels_count = 0;
            }
            let ids: HashSet<i64> =
                conn.prepare_cached(kind.sql())?.query_map([tenant], |row| row.get(0))?.collect::<Result<_, _>>()?;
            self.labels_count += ids.len();
            let former = self.labels.insert(at, Labels { ids, read: Instant::now() });
            self.labels_count -= former.map_or(0, |former| former.ids.len());
        }
        Ok(&self.labels.entry(at).or_insert_with(|| Labels { ids: HashSet::new(), read: Instant::now() }).ids)
    }

    /// The bit of a finding type.
    pub(super) fn finding_bit(&mut self, conn: &Connection, name: &str) -> rusqlite::Result<u32> {
        if let Some(bit) = self.finding_bits.get(name) {
            return Ok(*bit);
        }
        let bit = meet_finding(conn, name)?;
        if self.finding_bits.len() < REMEMBERED_MAX {
            self.finding_bits.insert(name.to_owned(), bit);
        }
        Ok(bit)
    }
}

const TENANT: &str = "SELECT id FROM tenants WHERE uuid = ?1";
const NAME: &str = "SELECT id FROM names WHERE text = ?1";

fn intern(conn: &Connection, insert: &str, select: &str, value: &dyn ToSql) -> rusqlite::Result<i64> {
    let find = || conn.prepare_cached(select)?.query_row([value], |row| row.get(0)).optional();
    if let Some(id) = find()? {
        return Ok(id);
    }
    conn.prepare_cached(insert)?.execute([value])?;
    find()?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// When the last tenant of this UUID was deleted; `None` when none was. For the writer: a deletion that was written while the
/// clock was ahead would keep out what begins until then, so it is taken as now, once.
pub(super) fn deleted_us(conn: &Connection, tenant: TenantId) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT at_us FROM burials WHERE tenant = ?1";
    let at_us: Option<i64> = conn.prepare_cached(sql)?.query_row([tenant.as_bytes()], |row| row.get(0)).optional()?;
    if at_us.is_some_and(is_ahead) {
        let now_us = Timestamp::now().micros();
        tracing::warn!(%tenant, "a tenant was deleted while the clock was ahead; its deletion now counts from this moment");
        conn.prepare_cached("UPDATE burials SET at_us = ?2 WHERE tenant = ?1")?.execute((tenant.as_bytes(), now_us))?;
        return Ok(Some(now_us));
    }
    Ok(at_us)
}

/// Whether a deletion was written by a clock that was ahead of this one.
fn is_ahead(deleted_us: i64) -> bool {
    deleted_us > Timestamp::now().micros().saturating_add(AHEAD_MAX_US)
}

/// The integer of a tenant, for a reader; `None` when it has no rows.
pub(super) fn find_tenant(conn: &Connection, tenant: TenantId) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(TENANT)?.query_row([tenant.as_bytes()], |row| row.get(0)).optional()
}

/// The integer of a name, for a reader; `None` when no row has it.
pub(super) fn find_name(conn: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(NAME)?.query_row([name], |row| row.get(0)).optional()
}
