//! The audit log's table.
//!
//! Each line has a place in its tenant's list (`nth`), by which pages are found. It is not part of the hash; checking the
//! chain checks it, too: every line but a tenant's first has one before it, on the place before.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, Row};
use weir_config::vocab::{TenantId, Timestamp};

use super::paging::first_place;
use super::pool::Stop;
use super::tx::Tx;
use crate::audit::{AuditCheck, AuditEntry, AuditEvent, Line, Link, hex};
use crate::compliance::Events;
use crate::courtesy;
use crate::error::{NotWritten, ReadError};
use crate::query::{Page, Paged};
use crate::store::{Store, effective};
use crate::writer::WriteError;

/// Lines checked in one read: a check of a long log must not hold a snapshot for long.
const CHECK_LINES: i64 = 20_000;
/// How long a check of every line is relied on, before the next one that is asked for looks at every line again.
const WHOLE_EVERY: Duration = Duration::from_secs(600);
/// The hash of every so many lines is remembered from the check of the whole log, and a line that is shown is checked with
/// all lines between two of them: a line whose own hash was made anew does not fit there.
const MARK_EVERY: i64 = 64;
/// Stretches between marks checked in one read; about as many lines as of a whole check.
const STRETCHES: usize = 256;
/// Lines of a period given at most.
const PERIOD_LINES: usize = 10_000;
const COLUMNS: &str = "seq, at_us, tenant, actor, action, target, detail, hash";
/// A line's place, and the line that stands on the place before.
const PLACE: &str = "nth, (SELECT seq FROM audit b WHERE b.tenant = a.tenant AND b.nth = a.nth - 1)";
const INSERT: &str = "INSERT INTO audit (seq, at_us, tenant, actor, action, target, detail, hash, nth) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, iif(?3 IS NULL, 0, \
    1 + ifnull((SELECT max(nth) FROM audit WHERE tenant = ?3), 0)))";

impl Tx<'_> {
    /// Writes an event down as part of this change; gives its position in the log.
    pub(crate) fn audit(&mut self, event: &AuditEvent) -> Result<u64, WriteError> {
        let (former_seq, former) = head(self.conn)?;
        let detail = serde_json::to_string(&event.detail).map_err(|error| WriteError::Row(error.to_string()))?;
        let seq = former_seq + 1;
        let at_us = Timestamp::now().micros();
        let line = Line {
            seq,
            at_us,
            tenant: event.tenant.as_ref().map(|tenant| tenant.as_bytes().as_slice()),
            actor: &event.actor,
            action: &event.action,
            target: event.target.as_deref(),
            detail: &detail,
        };
        let link = line.link(&former);
        self.conn.prepare_cached(INSERT)?.execute((
            seq,
            at_us,
            line.tenant,
            line.actor,
            line.action,
            line.target,
            line.detail,
            link.as_slice(),
        ))?;
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO audit_head (id, seq, hash) VALUES (1, ?1, ?2)")?
            .execute((seq, link.as_slice()))?;
        Ok(seq.unsigned_abs())
    }
}

/// The chain's end; all zeros before the first line.
fn head(conn: &Connection) -> rusqlite::Result<(i64, Link)> {
    let head = conn
        .prepare_cached("SELECT seq, hash FROM audit_head WHERE id = 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(head.unwrap_or_default())
}

fn entry(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    let detail: String = row.get(6)?;
    Ok(AuditEntry {
        seq: row.get::<_, i64>(0)?.unsigned_abs(),
        timestamp: Timestamp::from_micros(row.get(1)?),
        tenant_id: row.get::<_, Option<[u8; 16]>>(2)?.map(TenantId::from_bytes),
        actor: row.get(3)?,
        action: row.get(4)?,
        target: row.get(5)?,
        // A detail that is no JSON any more was tampered with; the check of the chain says so.
        detail: serde_json::from_str(&detail).unwrap_or_default(),
        hash: hex(&row.get::<_, Vec<u8>>(7)?),
    })
}

/// Lines of a period that concern a tenant, or the whole service, oldest first.
pub(super) fn of_period(conn: &Connection, tenant: TenantId, start_us: i64, end_us: i64) -> Result<Events, Stop> {
    // Each has an index of its own.
    let of_tenant = format!(
        "SELECT {COLUMNS}, nth FROM audit INDEXED BY audit_by_tenant \
         WHERE tenant = ?3 AND at_us >= ?1 AND at_us < ?2 ORDER BY nth LIMIT {PERIOD_LINES} + 1"
    );
    let of_service = format!(
        "SELECT {COLUMNS}, 0 FROM audit INDEXED BY audit_of_service \
         WHERE tenant IS NULL AND at_us >= ?1 AND at_us < ?2 ORDER BY at_us, seq LIMIT {PERIOD_LINES} + 1"
    );
    let placed = |row: &Row<'_>| Ok((entry(row)?, row.get::<_, i64>(8)?.unsigned_abs()));
    let mut statement = conn.prepare_cached(&of_tenant)?;
    let rows = statement.query_map((start_us, end_us, tenant.as_bytes().as_slice()), placed)?;
    let mut read = rows.collect::<Result<Vec<_>, _>>()?;
    let mut statement = conn.prepare_cached(&of_service)?;
    for line in statement.query_map((start_us, end_us), placed)? {
        read.push(line?);
    }
    read.sort_by_key(|(line, _)| line.seq);
    let truncated = read.len() > PERIOD_LINES;
    read.truncate(PERIOD_LINES);
    let (lines, places) = read.into_iter().unzip();
    Ok(Events { lines, places, truncated })
}

impl Store {
    /// Writes an administrative event down. It is durable when this returns.
    ///
    /// # Errors
    /// [`NotWritten`].
    pub fn audit(&self, event: AuditEvent) -> Result<u64, NotWritten> {
        self.write("write_audit", move |tx| tx.audit(&event))
    }

    /// Lines of the log, newest first: those of one tenant, or all.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn list_audit(&self, tenant: Option<TenantId>, page: Page) -> Result<Paged<AuditEntry>, ReadError> {
        let page = effective(page);
        self.ask("read_audit", |conn| {
            let (total, data): (i64, Vec<AuditEntry>) = if let Some(tenant) = tenant {
                let id = tenant.as_bytes().as_slice();
                let total = conn
                    .prepare_cached("SELECT ifnull(max(nth), 0) FROM audit WHERE tenant = ?1")?
                    .query_row([id], |row| row.get(0))?;
                let sql =
                    format!("SELECT {COLUMNS} FROM audit WHERE tenant = ?1 AND nth <= ?2 ORDER BY nth DESC LIMIT ?3");
                let mut statement = conn.prepare_cached(&sql)?;
                let rows = statement.query_map((id, first_place(total, page), page.limit), entry)?;
                (total, rows.collect::<Result<_, _>>()?)
            } else {
                // Positions have no gaps, so a page is a range of them.
                let (total, _) = head(conn)?;
                let sql = format!("SELECT {COLUMNS} FROM audit WHERE seq <= ?1 ORDER BY seq DESC LIMIT ?2");
                let mut statement = conn.prepare_cached(&sql)?;
                let rows = statement.query_map((first_place(total, page), page.limit), entry)?;
                (total, rows.collect::<Result<_, _>>()?)
            };
            Ok(Paged { data, total: total.unsigned_abs(), limit: page.limit, offset: page.offset })
        })
    }

    /// Goes through the whole log and says whether a line was altered, removed or put in.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn check_audit(&self) -> Result<AuditCheck, ReadError> {
        self.check_whole(&mut self.inner.verified.lock())
    }

    /// The same, relying on the last check of the whole log where that is no older than ten minutes: what is younger than
    /// it is checked, that it still ends where it ended, that no line was taken out, and the lines of `shown`, which somebody
    /// is about to see, with those around them.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn check_audit_since(&self, shown: &[AuditEntry]) -> Result<AuditCheck, ReadError> {
        // Who comes meanwhile waits, and then relies on this check.
        let mut verified = self.inner.verified.lock();
        if let Some(known) = verified.as_mut()
            && known.relied_until.is_some_and(|until| Instant::now() < until)
            && self.ask("check_audit", |conn| {
                Ok(known.chain.stands(conn)? && none_lacks(conn)? && are_linked(conn, shown)?)
            })?
            && self.are_in_place(&known.chain, shown)?
        {
            let mut further = Chain { marks: Vec::new(), ..known.chain };
            if self.follow(&mut further)?.is_none() {
                known.chain.go_on(further);
                return Ok(known.chain.found(None, known.whole_at));
            }
        }
        // Which line is the first bad one, only a check of the whole log can tell.
        self.check_whole(&mut verified)
    }

    /// Whether the stretches of the chain in which these lines stand are as they were.
    fn are_in_place(&self, chain: &Chain, shown: &[AuditEntry]) -> Result<bool, ReadError> {
        let known =
            shown.iter().map(|entry| i64::try_from(entry.seq).unwrap_or(i64::MAX)).filter(|seq| *seq <= chain.seq);
        let stretches: BTreeSet<i64> = known.map(|seq| (seq - 1) / MARK_EVERY).collect();
        let stretches: Vec<i64> = stretches.into_iter().collect();
        for some in stretches.chunks(STRETCHES) {
            let all = self.ask("check_audit", |conn| {
                some.iter().try_fold(true, |holds, stretch| Ok::<_, Stop>(holds && chain.holds(conn, *stretch)?))
            })?;
            if !all {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What was found whole once must be there still, in a log that is whole in itself: it may have been written anew.
    fn check_whole(&self, verified: &mut Option<Verified>) -> Result<AuditCheck, ReadError> {
        if let Some(known) = verified.as_mut() {
            known.relied_until = None;
        }
        let (until, whole_at) = (Instant::now() + WHOLE_EVERY, Timestamp::now());
        let mut chain = Chain { seq: 0, link: Link::default(), marks: Vec::new() };
        let mut bad = self.follow(&mut chain)?;
        if bad.is_none() && !self.ask("check_audit", |conn| Ok(none_lacks(conn)?))? {
            // All that is left for it is a line before the first.
            bad = Some(1);
        }
        if let (Some(known), None) = (verified.as_ref(), bad) {
            let stands = self.ask("check_audit", |conn| known.chain.stands(conn))?;
            bad = known.chain.departs(&chain, stands);
        }
        let found = chain.found(bad, whole_at);
        if bad.is_none() {
            *verified = Some(Verified { chain, relied_until: Some(until), whole_at });
        }
        Ok(found)
    }

    /// Follows the chain to the log's end; gives the first bad position.
    fn follow(&self, chain: &mut Chain) -> Result<Option<i64>, ReadError> {
        // Lines are only ever added, so what was checked in one read stays checked.
        loop {
            let (bad, end) = self.ask("check_audit", |conn| chain.follow(conn))?;
            if bad.is_some() || end {
                return Ok(bad);
            }
        }
    }
}

/// How far the log was found whole, and when.
pub(crate) struct Verified {
    chain: Chain,
    /// No check relies on it from then on.
    relied_until: Option<Instant>,
    whole_at: Timestamp,
}

/// How far the chain was followed.
struct Chain {
    seq: i64,
    link: Link,
    /// The links of every [`MARK_EVERY`]th line.
    marks: Vec<Link>,
}

impl Chain {
    /// Checks some further lines: the first bad position, and whether the end was reached.
    fn follow(&mut self, conn: &Connection) -> Result<(Option<i64>, bool), Stop> {
        let former = self.seq;
        if let Some(bad) = self.advance(conn, CHECK_LINES)? {
            return Ok((Some(bad), true));
        }
        if self.seq - former == CHECK_LINES {
            return Ok((None, false));
        }
        let intact = head(conn)? == (self.seq, self.link);
        Ok(((!intact).then_some(self.seq + 1), true))
    }

    /// Goes on over at most so many lines; gives the first bad position.
    fn advance(&mut self, conn: &Connection, lines: i64) -> Result<Option<i64>, Stop> {
        let sql = format!("SELECT {COLUMNS}, {PLACE} FROM audit a WHERE seq > ?1 ORDER BY seq LIMIT ?2");
        let mut statement = conn.prepare_cached(&sql)?;
        let mut rows = statement.query((self.seq, lines))?;
        while let Some(row) = rows.next()? {
            courtesy::turn();
            let expected = self.seq + 1;
            let target = row.get_ref(5)?;
            let line = Line {
                seq: row.get(0)?,
                at_us: row.get(1)?,
                tenant: row.get_ref(2)?.as_blob_or_null().unwrap_or_default(),
                actor: row.get_ref(3)?.as_str().unwrap_or_default(),
                action: row.get_ref(4)?.as_str().unwrap_or_default(),
                target: target.as_str_or_null().unwrap_or_default(),
                detail: row.get_ref(6)?.as_str().unwrap_or_default(),
            };
            let link = line.link(&self.link);
            let in_place = match (line.tenant, row.get::<_, i64>(8)?, row.get::<_, Option<i64>>(9)?) {
                (None, nth, _) => nth == 0,
                (Some(_), nth, None) => nth == 1,
                (Some(_), _, Some(before)) => before < line.seq,
            };
            if line.seq != expected || row.get_ref(7)?.as_blob().unwrap_or_default() != link || !in_place {
                return Ok(Some(expected));
            }
            self.seq = expected;
            self.link = link;
            if expected % MARK_EVERY == 0 {
                self.marks.push(link);
            }
        }
        Ok(None)
    }

    /// Whether the lines after mark number `stretch`, up to the next one, are as they were.
    fn holds(&self, conn: &Connection, stretch: i64) -> Result<bool, Stop> {
        let mark = |at: i64| usize::try_from(at).ok().and_then(|at| self.marks.get(at)).copied();
        let from = stretch * MARK_EVERY;
        let to = self.seq.min(from + MARK_EVERY);
        let Some(link) = (if stretch == 0 { Some(Link::default()) } else { mark(stretch - 1) }) else {
            return Ok(false);
        };
        let mut part = Self { seq: from, link, marks: Vec::new() };
        let bad = part.advance(conn, to - from)?;
        Ok(bad.is_none() && part.seq == to && part.link == mark(stretch).unwrap_or(self.link))
    }

    fn go_on(&mut self, further: Self) {
        (self.seq, self.link) = (further.seq, further.link);
        self.marks.extend(further.marks);
    }

    /// A position at which `now`, which is whole in itself, is another chain or ends too early; `stands` says whether it
    /// still has the line up to which this one was followed.
    fn departs(&self, now: &Self, stands: bool) -> Option<i64> {
        let other = self.marks.iter().zip(&now.marks).position(|(known, found)| known != found);
        let at = |mark: usize| (mark as i64 + 1) * MARK_EVERY;
        other.map(at).or((now.seq < self.seq).then_some(now.seq + 1)).or((!stands).then_some(self.seq))
    }

    /// Whether the log still has the line up to which it was followed.
    fn stands(&self, conn: &Connection) -> Result<bool, Stop> {
        Ok(link_of(conn, self.seq)? == Some(self.link))
    }

    fn found(&self, bad: Option<i64>, verified_at: Timestamp) -> AuditCheck {
        AuditCheck {
            intact: bad.is_none(),
            entries: self.seq.unsigned_abs(),
            first_bad_seq: bad.map(i64::unsigned_abs),
            head: hex(&self.link),
            verified_at,
        }
    }
}

/// The hash of a line; all zeros before the first. `None` when there is no such line.
fn link_of(conn: &Connection, seq: i64) -> rusqlite::Result<Option<Link>> {
    if seq == 0 {
        return Ok(Some(Link::default()));
    }
    conn.prepare_cached("SELECT hash FROM audit WHERE seq = ?1 AND length(hash) = 32")?
        .query_row([seq], |row| row.get(0))
        .optional()
}

/// Whether there are as many lines as the last one's number says, and so each that was ever written.
fn none_lacks(conn: &Connection) -> rusqlite::Result<bool> {
    let (last, _) = head(conn)?;
    // By the narrowest index there is, of which whole pages are counted.
    let lines: i64 = conn.prepare_cached("SELECT count(*) FROM audit")?.query_row([], |row| row.get(0))?;
    let ends = "SELECT ifnull((SELECT min(seq) FROM audit), 1), ifnull((SELECT max(seq) FROM audit), 0)";
    let ends: (i64, i64) = conn.prepare_cached(ends)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok((lines, ends) == (last, (1, last)))
}

/// Whether each of these lines carries the hash of what it says and of the line before it.
fn are_linked(conn: &Connection, shown: &[AuditEntry]) -> Result<bool, Stop> {
    for entry in shown {
        let seq = i64::try_from(entry.seq).unwrap_or(i64::MAX);
        let Some(former) = link_of(conn, seq.saturating_sub(1))? else { return Ok(false) };
        let tenant = entry.tenant_id.map(|tenant| *tenant.as_bytes());
        let Ok(detail) = serde_json::to_string(&entry.detail) else { return Ok(false) };
        let line = Line {
            seq,
            at_us: entry.timestamp.micros(),
            tenant: tenant.as_ref().map(<[u8; 16]>::as_slice),
            actor: &entry.actor,
            action: &entry.action,
            target: entry.target.as_deref(),
            detail: &detail,
        };
        if hex(&line.link(&former)) != entry.hash {
            return Ok(false);
        }
    }
    Ok(true)
}
