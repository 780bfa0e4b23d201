//! What channels of alerts were told, and what they are still to be told.
//!
//! Invariants: a row is made, and its cooldown begins, with a message that was accepted; a finding is counted once, however often
//! its batch comes, because the batch comes in the same order; while a summary is outstanding further findings join it.

use rusqlite::{Connection, OptionalExtension, Row, named_params};
use uuid::Uuid;
use weir_config::vocab::{Severity, SpanId, TenantId, Timestamp, TraceId};

use super::intern::find_tenant;
use super::readers::Stop;
use super::reads::Reads;
use super::tx::Tx;
use crate::alerts::{
    Accepted, AlertFilter, AlertKey, AlertRecord, AlertState, Claim, Claimant, Heard, Sighting, Step, StepDone,
};
use crate::audit::AuditEvent;
use crate::change::{AlertChange, Answer};
use crate::error::ReadError;
use crate::error::WriteError;
use crate::query::{Page, Paged, Place};

/// Alerts of one tenant that are kept; those that nobody waits for make room, the oldest first.
const KEPT_MAX: i64 = 1_000;
/// What has been due for so long is told by nobody: its channel is no longer in the settings, say.
const OVERDUE_US: i64 = 2 * 3_600_000_000;
/// Alerts taken out in one transaction.
const BATCH_ALERTS: i64 = 16;
const COLUMNS: &str = "a.alert_id, a.finding_type, a.severity, a.score, a.channel, a.state, a.trace_id, a.span_id, a.first_us, \
    a.last_us, a.count, a.suppressed, a.told_us, a.quiet_us, a.escalate_us, a.escalated_us, a.resolve_us, a.resolved_us, \
    a.acked_us, a.acked_by, a.escalated_to";
const SEVERITIES: [Severity; 5] = [Severity::Info, Severity::Low, Severity::Medium, Severity::High, Severity::Critical];

fn record(tenant_id: TenantId, row: &Row<'_>) -> rusqlite::Result<AlertRecord> {
    let wrong = |column: usize, text: String| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, text.into())
    };
    let time = |column: usize| row.get::<_, Option<i64>>(column).map(|at| at.map(Timestamp::from_micros));
    let state: String = row.get(5)?;
    let severity: i64 = row.get(2)?;
    let many = |column: usize| row.get::<_, i64>(column).map(i64::unsigned_abs);
    Ok(AlertRecord {
        id: Uuid::from_bytes(row.get(0)?),
        tenant_id,
        finding_type: row.get(1)?,
        severity: usize::try_from(severity)
            .ok()
            .and_then(|at| SEVERITIES.get(at))
            .copied()
            .ok_or_else(|| wrong(2, severity.to_string()))?,
        security_score: row.get(3)?,
        channel: row.get(4)?,
        state: AlertState::ALL
            .into_iter()
            .find(|known| known.as_str() == state)
            .ok_or_else(|| wrong(5, state.clone()))?,
        trace_id: row.get::<_, Option<[u8; 16]>>(6)?.map(TraceId::from_bytes),
        span_id: row.get::<_, Option<[u8; 16]>>(7)?.map(SpanId::from_bytes),
        first_at: Timestamp::from_micros(row.get(8)?),
        last_at: Timestamp::from_micros(row.get(9)?),
        count: many(10)?,
        suppressed: many(11)?,
        notified_at: Timestamp::from_micros(row.get(12)?),
        quiet_until: Timestamp::from_micros(row.get(13)?),
        escalates_at: time(14)?,
        escalated_at: time(15)?,
        escalated_to: row.get(20)?,
        resolves_at: time(16)?,
        resolved_at: time(17)?,
        acknowledged_at: time(18)?,
        acknowledged_by: row.get(19)?,
    })
}

/// The latest alert of a channel about findings of one type.
struct Latest {
    row: i64,
    id: Uuid,
    state: AlertState,
    suppressed: i64,
    quiet_us: i64,
    counted: Uuid,
    counted_to: i64,
}

impl Latest {
    /// Whether what comes now is only counted.
    fn is_quiet(&self, now: Timestamp) -> bool {
        self.state != AlertState::Resolved && (self.quiet_us > now.micros() || self.suppressed > 0)
    }

    /// The findings that are not counted yet. `read_to` says where in the file they were found.
    fn fresh<'a>(&self, findings: &'a [Uuid], read_to: Option<i64>) -> &'a [Uuid] {
        if read_to.is_some_and(|place| place <= self.counted_to) {
            return &[];
        }
        // Where the last one that is counted is not among them, none of them is: all up to it are read in one order.
        let known = findings.iter().rposition(|id| *id == self.counted).map_or(0, |at| at + 1);
        findings.get(known..).unwrap_or_default()
    }
}

impl Tx<'_> {
    /// Makes a change of alerts.
    pub(super) fn change_alerts(&mut self, change: &AlertChange) -> Result<Answer, WriteError> {
        Ok(match change {
            AlertChange::Count { sightings, now } => {
                let heard = sightings.iter().map(|sighting| self.count_alert(sighting, *now));
                heard.collect::<Result<Vec<_>, _>>()?.into()
            }
            AlertChange::Claim { sighting, by } => self.claim_alert(sighting, by)?.into(),
            AlertChange::Accept(accepted) => self.accept_alert(accepted)?.map(Box::new).into(),
            AlertChange::Hold { key, owner, until } => self.hold_alert(key, *owner, *until)?.into(),
            AlertChange::ClaimDue { channel, by, limit } => self.claim_due(channel, by, *limit)?.into(),
            AlertChange::Finish { alert, done } => self.finish_step(alert, done)?.into(),
            AlertChange::Sustain { key, by } => self.sustain_alert(key, by)?.into(),
            AlertChange::Release { key, owner, at } => self.release_alert(key, *owner, *at)?.into(),
            AlertChange::Redeliver { tenant, id, by } => self.redeliver_alert(*tenant, *id, by)?.map(Box::new).into(),
            AlertChange::Acknowledge { tenant, id, by } => {
                self.acknowledge_alert(*tenant, *id, by)?.map(Box::new).into()
            }
        })
    }

    /// What concerns the gateway itself is the default tenant's, which may not have begun.
    pub(super) fn tenant_of_alert(&mut self, tenant: TenantId) -> rusqlite::Result<Option<i64>> {
        if tenant == TenantId::DEFAULT {
            self.interner.tenant(self.conn, tenant).map(Some)
        } else {
            find_tenant(self.conn, tenant)
        }
    }

    fn latest_alert(&self, tenant: i64, key: &AlertKey) -> rusqlite::Result<Option<Latest>> {
        let sql = "SELECT id, alert_id, state, suppressed, quiet_us, counted, counted_to FROM alerts INDEXED BY alerts_by_subject \
            WHERE tenant = ?1 AND channel = ?2 AND finding_type = ?3 ORDER BY id DESC LIMIT 1";
        let latest = |row: &Row<'_>| {
            let state: String = row.get(2)?;
            Ok(Latest {
                row: row.get(0)?,
                id: Uuid::from_bytes(row.get(1)?),
                state: AlertState::ALL
                    .into_iter()
                    .find(|known| known.as_str() == state)
                    .unwrap_or(AlertState::Resolved),
                suppressed: row.get(3)?,
                quiet_us: row.get(4)?,
                counted: Uuid::from_bytes(row.get(5)?),
                counted_to: row.get(6)?,
            })
        };
        self.conn.prepare_cached(sql)?.query_row((tenant, &key.channel, &key.finding_type), latest).optional()
    }

    fn count_alert(&mut self, sighting: &Sighting, now: Timestamp) -> Result<Heard, WriteError> {
        let Some(tenant) = self.tenant_of_alert(sighting.key.tenant)? else { return Ok(Heard::Unknown) };
        let latest = self.latest_alert(tenant, &sighting.key)?;
        Ok(self.counted(latest, sighting, now)?.map_or(Heard::Due, Heard::Counted))
    }

    /// How many findings are counted now and told of later; `None` where the channel is to be told.
    fn counted(&self, latest: Option<Latest>, sighting: &Sighting, now: Timestamp) -> Result<Option<u64>, WriteError> {
        let goes_on = sighting.findings.is_empty();
        let Some(latest) = latest else { return Ok(goes_on.then_some(0)) };
        let fresh = latest.fresh(&sighting.findings, self.place_of(sighting)?);
        if goes_on && latest.state != AlertState::Resolved {
            let sql = "UPDATE alerts SET last_us = max(last_us, ?2), resolve_us = max(ifnull(resolve_us, ?3), ?3) WHERE id = ?1";
            let resolve_us = sighting.resolves_at.map(Timestamp::micros);
            self.conn.prepare_cached(sql)?.execute((latest.row, sighting.last_at.micros(), resolve_us))?;
        }
        let Some(last) = fresh.last() else { return Ok(Some(0)) };
        if !latest.is_quiet(now) {
            return Ok(None);
        }
        let many = fresh.len() as i64;
        self.add_to_alert(latest.row, sighting, many, many, last)?;
        Ok(Some(fresh.len() as u64))
    }

    /// How far this file had been read for it; nothing where the findings were in none, or in one that another has replaced.
    fn place_of(&self, sighting: &Sighting) -> rusqlite::Result<Option<i64>> {
        let Some(read_to) = sighting.read_to else { return Ok(None) };
        let sql = "SELECT ?2 FROM span_order WHERE id = 1 AND file = ?1";
        self.conn.prepare_cached(sql)?.query_row((read_to.file(), read_to.place()), |row| row.get(0)).optional()
    }

    /// Takes findings into an alert that is there.
    fn add_to_alert(
        &self,
        row: i64,
        sighting: &Sighting,
        many: i64,
        suppressed: i64,
        last: &Uuid,
    ) -> rusqlite::Result<()> {
        let sql = "UPDATE alerts SET count = count + :many, suppressed = suppressed + :suppressed, counted = :counted, \
            counted_to = max(counted_to, ifnull(:read_to, 0)), last_us = max(last_us, :last_us), severity = max(severity, :severity), score = max(score, :score), \
            resolve_us = CASE WHEN :resolve_us IS NULL THEN resolve_us ELSE max(ifnull(resolve_us, 0), :resolve_us) END \
            WHERE id = :row";
        let values = named_params! {
            ":many": many,
            ":suppressed": suppressed,
            ":counted": last.as_bytes().as_slice(),
            ":read_to": self.place_of(sighting)?,
            ":last_us": sighting.last_at.micros(),
            ":severity": sighting.severity as i64,
            ":score": sighting.security_score,
            ":resolve_us": sighting.resolves_at.map(Timestamp::micros),
            ":row": row,
        };
        self.conn.prepare_cached(sql)?.execute(values).map(|_| ())
    }

    fn claim_alert(&mut self, sighting: &Sighting, by: &Claimant) -> Result<Claim, WriteError> {
        let Some(tenant) = self.tenant_of_alert(sighting.key.tenant)? else { return Ok(Claim::Unknown) };
        let latest = self.latest_alert(tenant, &sighting.key)?;
        let open = latest.as_ref().filter(|latest| latest.state == AlertState::Open).map(|latest| latest.id);
        if let Some(count) = self.counted(latest, sighting, by.now)? {
            return Ok(Claim::Counted(count));
        }
        if open.is_none() && !self.make_room_for_alert(tenant, by.now)? {
            return Ok(Claim::NoRoom);
        }
        if self.put_claim(tenant, &sighting.key, by)? {
            return Ok(Claim::Granted(open));
        }
        let sql = "SELECT until_us FROM alert_claims WHERE tenant = ?1 AND channel = ?2 AND finding_type = ?3";
        let AlertKey { channel, finding_type, .. } = &sighting.key;
        let until_us = self.conn.prepare_cached(sql)?.query_row((tenant, channel, finding_type), |row| row.get(0))?;
        Ok(Claim::Held(Timestamp::from_micros(until_us)))
    }

    /// False where somebody else has it.
    fn put_claim(&self, tenant: i64, key: &AlertKey, by: &Claimant) -> rusqlite::Result<bool> {
        self.conn.prepare_cached("DELETE FROM alert_claims WHERE until_us <= ?1")?.execute([by.now.micros()])?;
        let sql = "INSERT OR IGNORE INTO alert_claims (tenant, channel, finding_type, owner, until_us) \
            VALUES (?1, ?2, ?3, ?4, ?5)";
        let owner = by.owner.as_bytes().as_slice();
        let values = (tenant, &key.channel, &key.finding_type, owner, by.until.micros());
        Ok(self.conn.prepare_cached(sql)?.execute(values)? > 0)
    }

    fn end_claim(&self, tenant: i64, channel: &str, finding_type: &str) -> rusqlite::Result<()> {
        let sql = "DELETE FROM alert_claims WHERE tenant = ?1 AND channel = ?2 AND finding_type = ?3";
        self.conn.prepare_cached(sql)?.execute((tenant, channel, finding_type)).map(|_| ())
    }

    fn make_room_for_alert(&self, tenant: i64, now: Timestamp) -> rusqlite::Result<bool> {
        let count = "SELECT count(*) FROM alerts INDEXED BY alerts_by_id WHERE tenant = ?1";
        let present: i64 = self.conn.prepare_cached(count)?.query_row([tenant], |row| row.get(0))?;
        if present < KEPT_MAX {
            return Ok(true);
        }
        let sql = "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE tenant = ?1 AND quiet_us <= ?2 \
            AND (next_us IS NULL OR next_us <= ?3) ORDER BY id LIMIT ?4)";
        Ok(self.conn.prepare_cached(sql)?.execute((tenant, now.micros(), now.micros() - OVERDUE_US, BATCH_ALERTS))? > 0)
    }

    fn accept_alert(&mut self, accepted: &Accepted) -> Result<Option<AlertRecord>, WriteError> {
        let Accepted { sighting, id, told, at, quiet_until, escalates_at } = accepted;
        let Some(tenant) = self.tenant_of_alert(sighting.key.tenant)? else { return Ok(None) };
        self.end_claim(tenant, &sighting.key.channel, &sighting.key.finding_type)?;
        let latest = self.latest_alert(tenant, &sighting.key)?;
        let read_to = self.place_of(sighting)?;
        let fresh = latest.as_ref().map_or(&sighting.findings[..], |latest| latest.fresh(&sighting.findings, read_to));
        let (many, last) = (fresh.len() as i64, sighting.findings.last().copied().unwrap_or_default());
        let suppressed = (many - told.cast_signed()).max(0);
        let id = match latest.filter(|latest| latest.state == AlertState::Open) {
            Some(latest) => {
                self.add_to_alert(latest.row, sighting, many, suppressed, &last)?;
                let sql = "UPDATE alerts SET told_us = ?2, quiet_us = ?3, escalate_us = \
                    CASE WHEN escalated_us IS NULL THEN ifnull(escalate_us, ?4) ELSE escalate_us END WHERE id = ?1";
                let escalate_us = escalates_at.map(Timestamp::micros);
                let values = (latest.row, at.micros(), quiet_until.micros(), escalate_us);
                self.conn.prepare_cached(sql)?.execute(values)?;
                latest.id
            }
            None => {
                self.insert_alert(tenant, accepted, many, suppressed, &last)?;
                *id
            }
        };
        Ok(one(self.conn, sighting.key.tenant, tenant, id)?)
    }

    fn insert_alert(
        &self,
        tenant: i64,
        accepted: &Accepted,
        many: i64,
        suppressed: i64,
        last: &Uuid,
    ) -> rusqlite::Result<()> {
        let Accepted { sighting, id, at, quiet_until, escalates_at, .. } = accepted;
        let sql = "INSERT INTO alerts (tenant, alert_id, channel, finding_type, severity, score, state, trace_id, span_id, \
            first_us, last_us, count, suppressed, counted, counted_to, told_us, quiet_us, escalate_us, resolve_us) VALUES (:tenant, :id, \
            :channel, :finding_type, :severity, :score, 'open', :trace, :span, :first_us, :last_us, :many, :suppressed, \
            :counted, ifnull(:read_to, 0), :told_us, :quiet_us, :escalate_us, :resolve_us)";
        let (trace, span) = sighting.place.unzip();
        let values = named_params! {
            ":tenant": tenant,
            ":id": id.as_bytes().as_slice(),
            ":channel": sighting.key.channel,
            ":finding_type": sighting.key.finding_type,
            ":severity": sighting.severity as i64,
            ":score": sighting.security_score,
            ":trace": trace.as_ref().map(|trace| trace.as_bytes().as_slice()),
            ":span": span.as_ref().map(|span| span.as_bytes().as_slice()),
            ":first_us": sighting.first_at.micros(),
            ":last_us": sighting.last_at.micros(),
            ":many": many,
            ":suppressed": suppressed,
            ":counted": last.as_bytes().as_slice(),
            ":read_to": self.place_of(sighting)?,
            ":told_us": at.micros(),
            ":quiet_us": quiet_until.micros(),
            ":escalate_us": escalates_at.map(Timestamp::micros),
            ":resolve_us": sighting.resolves_at.map(Timestamp::micros),
        };
        self.conn.prepare_cached(sql)?.execute(values).map(|_| ())
    }

    fn hold_alert(&self, key: &AlertKey, owner: Uuid, until: Timestamp) -> Result<(), WriteError> {
        let Some(tenant) = find_tenant(self.conn, key.tenant)? else { return Ok(()) };
        let sql = "UPDATE alert_claims SET until_us = ?5 WHERE tenant = ?1 AND channel = ?2 AND finding_type = ?3 AND owner = ?4";
        let values = (tenant, &key.channel, &key.finding_type, owner.as_bytes().as_slice(), until.micros());
        self.conn.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    fn claim_due(&self, channel: &str, by: &Claimant, limit: u32) -> Result<Vec<(AlertRecord, Step)>, WriteError> {
        self.conn.prepare_cached("DELETE FROM alert_claims WHERE until_us <= ?1")?.execute([by.now.micros()])?;
        let sql = format!(
            "SELECT {COLUMNS}, a.tenant, t.uuid, a.close_us FROM alerts a INDEXED BY alerts_due JOIN tenants t ON t.id = a.tenant \
             WHERE a.channel = ?3 AND a.next_us <= ?1 AND length(t.uuid) = 16 AND NOT EXISTS (SELECT 1 FROM alert_claims c \
             WHERE c.tenant = a.tenant AND c.channel = a.channel AND c.finding_type = a.finding_type) \
             ORDER BY a.next_us LIMIT ?2"
        );
        let due = |row: &Row<'_>| {
            let closes = row.get::<_, Option<i64>>(23)?.map(Timestamp::from_micros);
            Ok((row.get::<_, i64>(21)?, record(TenantId::from_bytes(row.get(22)?), row)?, closes))
        };
        let mut statement = self.conn.prepare_cached(&sql)?;
        let rows = statement.query_map((by.now.micros(), limit, channel), due)?.collect::<Result<Vec<_>, _>>()?;
        let mut steps = Vec::with_capacity(rows.len());
        for (tenant, alert, closes) in rows {
            let (channel, finding_type) = (alert.channel.clone(), alert.finding_type.clone());
            let key = AlertKey { tenant: alert.tenant_id, channel, finding_type };
            // An older alert of the same kind has its turn when this one is done.
            if self.put_claim(tenant, &key, by)? {
                let step = step_of(&alert, closes, by.now);
                steps.push((alert, step));
            }
        }
        Ok(steps)
    }

    fn finish_step(&self, alert: &AlertRecord, done: &StepDone) -> Result<(), WriteError> {
        let Some(tenant) = find_tenant(self.conn, alert.tenant_id)? else { return Ok(()) };
        self.end_claim(tenant, &alert.channel, &alert.finding_type)?;
        let id = alert.id.as_bytes().as_slice();
        let StepDone { step, told, at, quiet_until, escalated } = done;
        let whose = "WHERE tenant = ?1 AND alert_id = ?2";
        match step {
            Step::Summary => {
                let sql = format!(
                    "UPDATE alerts SET suppressed = max(suppressed - ?3, 0), told_us = ?4, quiet_us = ?5 {whose}"
                );
                let values = (tenant, id, told.cast_signed(), at.micros(), quiet_until.micros());
                self.conn.prepare_cached(&sql)?.execute(values)?;
            }
            Step::Escalation => {
                // Where that channel has an alert of its own, that one goes further.
                // So it is closed where somebody got to know of it meanwhile.
                let sql = format!(
                    "UPDATE alerts SET escalated_us = ?3, escalated_to = ifnull(?4, escalated_to), close_us = CASE WHEN \
                     state = 'acknowledged' AND resolve_us IS NULL AND ?4 IS NOT NULL THEN ?3 ELSE close_us END, escalate_us = CASE WHEN state = 'open' AND NOT EXISTS \
                     (SELECT 1 FROM alerts o WHERE o.tenant = ?1 AND o.channel = ?4 AND o.finding_type = alerts.finding_type \
                     AND o.state = 'open') THEN ?5 END {whose}"
                );
                let (to, next_at) = escalated.as_ref().map(|to| (&to.to, to.next_at)).unzip();
                let next_us = next_at.flatten().map(Timestamp::micros);
                self.conn.prepare_cached(&sql)?.execute((tenant, id, at.micros(), to, next_us))?;
            }
            Step::Resolution => {
                let sql = format!(
                    "UPDATE alerts SET state = 'resolved', resolved_us = ?3, suppressed = 0, escalate_us = NULL, \
                     close_us = CASE WHEN escalated_to IS NULL THEN NULL ELSE ?3 END {whose}"
                );
                self.conn.prepare_cached(&sql)?.execute((tenant, id, at.micros()))?;
            }
            Step::Closing => {
                let sql = format!("UPDATE alerts SET close_us = NULL {whose}");
                self.conn.prepare_cached(&sql)?.execute((tenant, id))?;
            }
        }
        Ok(())
    }

    fn acknowledge_alert(
        &mut self,
        tenant_id: TenantId,
        id: Uuid,
        by: &AuditEvent,
    ) -> Result<Option<AlertRecord>, WriteError> {
        let Some(tenant) = find_tenant(self.conn, tenant_id)? else { return Ok(None) };
        let Some(alert) = one(self.conn, tenant_id, tenant, id)? else { return Ok(None) };
        if alert.state != AlertState::Open {
            return Ok(Some(alert));
        }
        // What ends by itself is over later, whoever knows of it.
        let sql = "UPDATE alerts SET state = 'acknowledged', acked_us = ?3, acked_by = ?4, escalate_us = NULL, \
            close_us = CASE WHEN escalated_to IS NOT NULL AND resolve_us IS NULL THEN ?3 END \
            WHERE tenant = ?1 AND finding_type = ?2 AND state = 'open'";
        let now_us = Timestamp::now().micros();
        self.conn.prepare_cached(sql)?.execute((tenant, &alert.finding_type, now_us, &by.actor))?;
        self.audit(by)?;
        Ok(one(self.conn, tenant_id, tenant, id)?)
    }

    fn redeliver_alert(
        &mut self,
        tenant_id: TenantId,
        id: Uuid,
        by: &AuditEvent,
    ) -> Result<Option<AlertRecord>, WriteError> {
        let Some(tenant) = find_tenant(self.conn, tenant_id)? else { return Ok(None) };
        // As if its cooldown had ended with at least one finding that its channel has not heard of.
        let sql = "UPDATE alerts SET suppressed = max(suppressed, 1), quiet_us = ?3 \
            WHERE tenant = ?1 AND alert_id = ?2 AND state <> 'resolved'";
        let values = (tenant, id.as_bytes().as_slice(), Timestamp::now().micros());
        if self.conn.prepare_cached(sql)?.execute(values)? > 0 {
            self.audit(by)?;
        }
        Ok(one(self.conn, tenant_id, tenant, id)?)
    }

    /// Takes out some alerts whose last finding was made before `last_us`; how many.
    pub(super) fn erase_alerts_before(&self, last_us: i64) -> rusqlite::Result<usize> {
        let sql = "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts INDEXED BY alerts_by_age WHERE last_us < ?1 LIMIT ?2)";
        self.conn.prepare_cached(sql)?.execute((last_us, BATCH_ALERTS))
    }
}

/// What is due first: that it is over makes everything else needless.
fn step_of(alert: &AlertRecord, closes: Option<Timestamp>, now: Timestamp) -> Step {
    let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at.micros() <= now.micros());
    if alert.state != AlertState::Resolved && is_due(alert.resolves_at) {
        Step::Resolution
    } else if is_due(closes) {
        Step::Closing
    } else if alert.state == AlertState::Open && is_due(alert.escalates_at) {
        Step::Escalation
    } else {
        Step::Summary
    }
}

fn one(conn: &Connection, tenant_id: TenantId, tenant: i64, id: Uuid) -> rusqlite::Result<Option<AlertRecord>> {
    let sql = format!("SELECT {COLUMNS} FROM alerts a WHERE a.tenant = ?1 AND a.alert_id = ?2");
    let values = (tenant, id.as_bytes().as_slice());
    conn.prepare_cached(&sql)?.query_row(values, |row| record(tenant_id, row)).optional()
}

/// The alerts of a trace that has gone no longer say which it was.
pub(super) fn forget_trace(conn: &Connection, tenant: i64, trace: &[u8]) -> rusqlite::Result<()> {
    let sql = "UPDATE alerts SET trace_id = NULL, span_id = NULL WHERE tenant = ?1 AND trace_id = ?2";
    conn.prepare_cached(sql)?.execute((tenant, trace)).map(|_| ())
}

/// Takes out some alerts of a deleted tenant; how many.
pub(super) fn erase_some(conn: &Connection, tenant: i64, limit: i64) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE tenant = ?1 LIMIT ?2)";
    conn.prepare_cached(sql)?.execute((tenant, limit))
}

impl Reads<'_> {
    /// When the next message about an alert is due.
    pub(crate) fn next_due(&self, channel: &str) -> Result<Option<Timestamp>, ReadError> {
        self.ask("read_alerts", |conn| {
            let sql = "SELECT a.next_us FROM alerts a INDEXED BY alerts_due JOIN tenants t ON t.id = a.tenant \
                WHERE a.channel = ?1 AND a.next_us IS NOT NULL AND length(t.uuid) = 16 AND NOT EXISTS (SELECT 1 FROM alert_claims c \
                WHERE c.tenant = a.tenant AND c.channel = a.channel AND c.finding_type = a.finding_type) \
                ORDER BY a.next_us LIMIT 1";
            let free: Option<i64> = conn.prepare_cached(sql)?.query_row([channel], |row| row.get(0)).optional()?;
            let claims = "SELECT min(until_us) FROM alert_claims WHERE channel = ?1";
            let claimed: Option<i64> = conn.prepare_cached(claims)?.query_row([channel], |row| row.get(0))?;
            Ok(free.into_iter().chain(claimed).min().map(Timestamp::from_micros))
        })
    }

    /// Alerts, newest first.
    pub(crate) fn list_alerts(
        &self,
        tenant_id: TenantId,
        filter: &AlertFilter,
        page: Page,
    ) -> Result<Paged<AlertRecord>, ReadError> {
        self.ask("read_alerts", |conn| {
            let mut answer = Paged::new(Vec::new(), 0, page);
            let Some(tenant) = find_tenant(conn, tenant_id)? else { return Ok(answer) };
            let state = filter.state.map(AlertState::as_str);
            let severity = filter.severity.map(|severity| severity as i64);
            // A tenant has few enough of them to look at all.
            let matching = "FROM alerts a WHERE a.tenant = ?1 AND (?2 IS NULL OR a.state = ?2) \
                AND (?3 IS NULL OR a.finding_type = ?3) AND (?4 IS NULL OR a.severity = ?4)";
            let after = page.after.map(|after| after.row);
            let values = (tenant, state, &filter.finding_type, severity);
            let count = format!("SELECT count(*) {matching}");
            let total: i64 = conn.prepare_cached(&count)?.query_row(values, |row| row.get(0))?;
            answer.total = total.unsigned_abs();
            let sql = format!(
                "SELECT {COLUMNS}, a.id {matching} AND (?7 IS NULL OR a.id < ?7) ORDER BY a.id DESC LIMIT ?5 OFFSET ?6"
            );
            let offset = if after.is_some() { 0 } else { i64::try_from(page.offset).unwrap_or(i64::MAX) };
            let mut statement = conn.prepare_cached(&sql)?;
            let mut rows =
                statement.query((tenant, state, &filter.finding_type, severity, page.limit, offset, after))?;
            let mut last = None;
            while let Some(row) = rows.next()? {
                conn.pause();
                last = Some(row.get::<_, i64>("id")?);
                answer.data.push(record(tenant_id, row).map_err(Stop::Sql)?);
            }
            answer.next = last.filter(|_| answer.data.len() == page.limit as usize).map(Place::of_row);
            Ok(answer)
        })
    }
}
