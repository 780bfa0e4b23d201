//! Checks the chain of the audit log, and remembers how far it was found whole.
//!
//! A line's place in its tenant's list (`nth`) is not part of the hash and is checked beside it: every line but a tenant's
//! first has one before it, on the place before. Invariants: no lock is held while the file is read, because a reader may
//! get little CPU; and what was found bad is not relied on again before the whole log was found whole.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension};
use weir_config::vocab::Timestamp;

use super::audit::{COLUMNS, head};
use super::readers::Stop;
use super::reads::{Reads, Snapshot};
use crate::audit::{AuditCheck, AuditEntry, Line, Link, hex};
use crate::error::ReadError;

/// How long one read goes on: a check of a long log must not hold a snapshot for long, and one that gets little CPU goes on
/// with where it ended.
const SLICE: Duration = Duration::from_millis(100);
/// How long a check of every line is relied on, before the next one that is asked for looks at every line again.
const WHOLE_EVERY: Duration = Duration::from_secs(600);
/// How long a caller that asks for a check waits for another one to end, to rely on it. Its thread may get little CPU.
const OTHERS_CHECK: Duration = Duration::from_secs(2);
/// The hash of every so many lines is remembered from the check of the whole log, and a line that is shown is checked with
/// all lines between two of them: a line whose own hash was computed again does not fit there.
const MARK_EVERY: i64 = 64;
/// A line's place, and the line that stands on the place before.
const PLACE: &str = "nth, (SELECT seq FROM audit b WHERE b.tenant = a.tenant AND b.nth = a.nth - 1)";

/// How far the log was found whole, and when.
#[derive(Clone, Default)]
struct Verified {
    /// Grows with every change: tells who checked meanwhile that somebody else came first.
    version: u64,
    chain: Arc<Chain>,
    reliance: Option<Reliance>,
}

/// Every line was looked at.
#[derive(Clone, Copy)]
struct Reliance {
    /// No check relies on it from then on.
    until: Instant,
    whole_at: Timestamp,
}

/// What is known of the audit log beside what stands in it.
#[derive(Default)]
pub(crate) struct Auditor {
    /// How far the log was found whole. Held for a moment, never while the database is read.
    verified: Mutex<Verified>,
    /// Held while the log is checked for somebody; nobody waits for it for long.
    checking: Mutex<()>,
}

impl Reads<'_> {
    /// Goes through the whole log and says whether a line was altered, removed or put in.
    pub(crate) fn check_audit(&self) -> Result<AuditCheck, ReadError> {
        self.check_whole()
    }

    fn check_whole(&self) -> Result<AuditCheck, ReadError> {
        let known = self.auditor.verified.lock().clone();
        let (until, whole_at) = (Instant::now() + WHOLE_EVERY, Timestamp::now());
        let mut chain = Chain::default();
        let mut bad = self.follow(&mut chain)?;
        if bad.is_none() && !self.ask("check_audit", |conn| Ok(none_lacks(conn)?))? {
            // All that is left for it is a line before the first.
            bad = Some(1);
        }
        if bad.is_none() {
            // What was found whole once must be there still: the log may have been rewritten.
            let stands = self.ask("check_audit", |conn| known.chain.stands(conn))?;
            bad = known.chain.departs(&chain, stands);
        }
        let found = chain.found(bad, whole_at);
        if bad.is_some() {
            self.doubt();
        } else {
            let mut verified = self.auditor.verified.lock();
            if verified.version == known.version {
                let reliance = Some(Reliance { until, whole_at });
                *verified = Verified { version: known.version + 1, chain: Arc::new(chain), reliance };
            }
        }
        Ok(found)
    }

    /// The same, relying on the last check of the whole log where that is no older than ten minutes: what is younger than
    /// it is checked, that it still ends where it ended, that no line was taken out, and the lines of `shown`, which somebody
    /// is about to see, with those around them.
    pub(crate) fn check_audit_since(&self, shown: &[AuditEntry]) -> Result<AuditCheck, ReadError> {
        // A caller that comes meanwhile relies on this check, unless it takes long.
        let _turn = self.auditor.checking.try_lock_for(OTHERS_CHECK);
        self.check_audit_aside(shown)
    }

    /// The same; nobody waits for this check.
    pub(crate) fn check_audit_aside(&self, shown: &[AuditEntry]) -> Result<AuditCheck, ReadError> {
        let known = self.auditor.verified.lock().clone();
        let Some(reliance) = known.reliance.filter(|reliance| Instant::now() < reliance.until) else {
            return self.check_whole();
        };
        let whole = self.ask("check_audit", |conn| Ok(known.chain.stands(conn)? && none_lacks(conn)?))?
            && self.all(shown, |conn, line| is_linked(conn, line))?
            && self.all(&known.chain.stretches_of(shown), |conn, stretch| known.chain.holds(conn, *stretch))?;
        let mut further = known.chain.end();
        if !whole || self.follow(&mut further)?.is_some() {
            self.doubt();
            // Which line is the first bad one, only a check of the whole log can tell.
            return self.check_whole();
        }
        let found = further.found(None, reliance.whole_at);
        let Verified { version, chain, .. } = known;
        if further.seq > chain.seq {
            // Else the marks would be copied.
            drop(chain);
            let mut verified = self.auditor.verified.lock();
            if verified.version == version {
                verified.version += 1;
                Arc::make_mut(&mut verified.chain).go_on(further);
            }
        }
        Ok(found)
    }

    /// Nobody relies on an earlier check any more, nor on one that has begun.
    fn doubt(&self) {
        let mut verified = self.auditor.verified.lock();
        verified.version += 1;
        verified.reliance = None;
    }

    /// Whether all of these hold, asked slice by slice.
    fn all<T>(&self, of: &[T], holds: impl Fn(&Snapshot<'_>, &T) -> Result<bool, Stop>) -> Result<bool, ReadError> {
        let mut left = of;
        while !left.is_empty() {
            let all = self.ask("check_audit", |conn| {
                let until = Instant::now() + SLICE;
                while let [next, others @ ..] = left {
                    conn.pause();
                    if !holds(conn, next)? {
                        return Ok(false);
                    }
                    left = others;
                    if Instant::now() >= until {
                        break;
                    }
                }
                Ok(true)
            })?;
            if !all {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Follows the chain to the log's end; gives the first bad position.
    fn follow(&self, chain: &mut Chain) -> Result<Option<i64>, ReadError> {
        // Lines are only ever added, so what was checked in one read stays checked.
        loop {
            match self.ask("check_audit", |conn| chain.follow(conn))? {
                Step::Bad(seq) => return Ok(Some(seq)),
                Step::Paused => {}
                Step::End => return Ok(None),
            }
        }
    }
}

/// How far the chain was followed.
#[derive(Clone, Default)]
struct Chain {
    seq: i64,
    link: Link,
    /// The links of every [`MARK_EVERY`]th line.
    marks: Vec<Link>,
}

/// Where following it ended.
enum Step {
    /// The first position that is missing or does not fit.
    Bad(i64),
    /// There may be more.
    Paused,
    /// There are no further lines.
    End,
}

impl Chain {
    /// Its end alone, to go on from.
    const fn end(&self) -> Self {
        Self { seq: self.seq, link: self.link, marks: Vec::new() }
    }

    /// Checks some further lines, at the end also that it is the log's.
    fn follow(&mut self, conn: &Snapshot<'_>) -> Result<Step, Stop> {
        match self.advance(conn, None, Instant::now() + SLICE)? {
            Step::End if head(conn)? != (self.seq, self.link) => Ok(Step::Bad(self.seq + 1)),
            step => Ok(step),
        }
    }

    /// Goes on until that moment, over at most so many lines.
    fn advance(&mut self, conn: &Snapshot<'_>, lines: Option<i64>, until: Instant) -> Result<Step, Stop> {
        let sql = format!("SELECT {COLUMNS}, {PLACE} FROM audit a WHERE seq > ?1 ORDER BY seq LIMIT ?2");
        let mut statement = conn.prepare_cached(&sql)?;
        // To SQLite a negative limit is none.
        let mut rows = statement.query((self.seq, lines.unwrap_or(-1)))?;
        while let Some(row) = rows.next()? {
            conn.pause();
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
                return Ok(Step::Bad(expected));
            }
            self.seq = expected;
            self.link = link;
            if expected % MARK_EVERY == 0 {
                self.marks.push(link);
            }
            if Instant::now() >= until {
                return Ok(Step::Paused);
            }
        }
        Ok(Step::End)
    }

    /// The stretches between two marks in which these lines stand, as far as the chain was followed.
    fn stretches_of(&self, shown: &[AuditEntry]) -> Vec<i64> {
        let known = shown.iter().map(|entry| i64::try_from(entry.seq).unwrap_or(i64::MAX));
        let stretches: BTreeSet<i64> = known.filter(|seq| *seq <= self.seq).map(|seq| (seq - 1) / MARK_EVERY).collect();
        stretches.into_iter().collect()
    }

    /// Whether the lines after mark number `stretch`, up to the next one, are as they were.
    fn holds(&self, conn: &Snapshot<'_>, stretch: i64) -> Result<bool, Stop> {
        let mark = |at: i64| usize::try_from(at).ok().and_then(|at| self.marks.get(at)).copied();
        let from = stretch * MARK_EVERY;
        let to = self.seq.min(from + MARK_EVERY);
        let Some(link) = (if stretch == 0 { Some(Link::default()) } else { mark(stretch - 1) }) else {
            return Ok(false);
        };
        let mut part = Self { seq: from, link, marks: Vec::new() };
        while part.seq < to {
            match part.advance(conn, Some(to - part.seq), Instant::now() + SLICE)? {
                Step::Paused => {}
                Step::Bad(_) | Step::End => break,
            }
        }
        Ok(part.seq == to && part.link == mark(stretch).unwrap_or(self.link))
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

/// Whether this line carries the hash of what it says and of the line before it.
fn is_linked(conn: &Connection, entry: &AuditEntry) -> Result<bool, Stop> {
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
    Ok(hex(&line.link(&former)) == entry.hash)
}
