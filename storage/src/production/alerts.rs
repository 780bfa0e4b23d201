//! What channels of alerts were told, in the relational store: the same rules as beside SQLite (`sqlite/alerts.rs`), for gateways
//! that each read a journal of their own, so that what is counted is kept for each journal.

use postgres::Row;
use uuid::Uuid;
use weir_config::vocab::{Severity, SpanId, TenantId, Timestamp, TraceId};

use super::registry::{next_of, window};
use super::relational::{Fail, Relational, Tx, col, p, tenant_of};
use crate::alerts::{
    Accepted, AlertFilter, AlertKey, AlertRecord, AlertState, Claim, Claimant, Heard, Sighting, Step, StepDone,
};
use crate::audit::AuditEvent;
use crate::error::{NotWritten, ReadError};
use crate::query::{Page, Paged};

/// Alerts of one tenant that are kept; those that nobody waits for make room, the oldest first.
const KEPT_MAX: i64 = 1_000;
/// What has been due for so long is told by nobody: its channel is no longer in the settings, say.
const OVERDUE_US: i64 = 2 * 3_600_000_000;
/// Alerts taken out at a time.
const BATCH_ALERTS: i64 = 16;
const COLUMNS: &str = "a.alert_id, a.finding_type, a.severity, a.score, a.channel, a.state, a.trace_id, a.span_id, a.first_us, \
    a.last_us, a.count, a.suppressed, a.told_us, a.quiet_us, a.escalate_us, a.escalated_us, a.resolve_us, a.resolved_us, \
    a.acked_us, a.acked_by, a.escalated_to, a.tenant, a.close_us, a.id";
const SEVERITIES: [Severity; 5] = [Severity::Info, Severity::Low, Severity::Medium, Severity::High, Severity::Critical];
/// The journal of findings that were in none.
const NO_FILE: i64 = 0;

fn record(row: &Row) -> Result<AlertRecord, Fail> {
    let time = |column: usize| col::<Option<i64>>(row, column).map(|at| at.map(Timestamp::from_micros));
    let many = |column: usize| col::<i64>(row, column).map(i64::unsigned_abs);
    let severity = usize::try_from(col::<i64>(row, 2)?).ok().and_then(|at| SEVERITIES.get(at)).copied();
    Ok(AlertRecord {
        id: col(row, 0)?,
        tenant_id: tenant_of(row, 21)?,
        finding_type: col(row, 1)?,
        severity: severity.ok_or(Fail::Damaged)?,
        security_score: u8::try_from(col::<i64>(row, 3)?).map_err(|_| Fail::Damaged)?,
        channel: col(row, 4)?,
        state: state(&col::<String>(row, 5)?)?,
        trace_id: col::<Option<Uuid>>(row, 6)?.map(|id| TraceId::from_bytes(*id.as_bytes())),
        span_id: col::<Option<Uuid>>(row, 7)?.map(|id| SpanId::from_bytes(*id.as_bytes())),
        first_at: Timestamp::from_micros(col(row, 8)?),
        last_at: Timestamp::from_micros(col(row, 9)?),
        count: many(10)?,
        suppressed: many(11)?,
        notified_at: Timestamp::from_micros(col(row, 12)?),
        quiet_until: Timestamp::from_micros(col(row, 13)?),
        escalates_at: time(14)?,
        escalated_at: time(15)?,
        escalated_to: col(row, 20)?,
        resolves_at: time(16)?,
        resolved_at: time(17)?,
        acknowledged_at: time(18)?,
        acknowledged_by: col(row, 19)?,
    })
}

fn state(name: &str) -> Result<AlertState, Fail> {
    AlertState::ALL.into_iter().find(|known| known.as_str() == name).ok_or(Fail::Damaged)
}

/// The latest alert of a channel about findings of one type.
struct Latest {
    row: i64,
    id: Uuid,
    state: AlertState,
    suppressed: i64,
    quiet_us: i64,
    /// In the journal that is asked about, and how far.
    counted: Option<(Uuid, i64)>,
}

impl Latest {
    /// Whether what comes now is only counted.
    fn is_quiet(&self, now: Timestamp) -> bool {
        self.state != AlertState::Resolved && (self.quiet_us > now.micros() || self.suppressed > 0)
    }

    /// The findings that are not counted yet. `read_to` says where in the journal they were found.
    fn fresh<'a>(&self, findings: &'a [Uuid], read_to: Option<i64>) -> &'a [Uuid] {
        let Some((counted, counted_to)) = self.counted else { return findings };
        if read_to.is_some_and(|place| place <= counted_to) {
            return &[];
        }
        // Where the last one that is counted is not among them, none of them is: all up to it are read in one order.
        let known = findings.iter().rposition(|id| *id == counted).map_or(0, |at| at + 1);
        findings.get(known..).unwrap_or_default()
    }
}

/// Which journal the findings of a sighting were in, and where.
fn journal(sighting: &Sighting) -> (i64, Option<i64>) {
    sighting.read_to.map_or((NO_FILE, None), |read_to| (read_to.file(), Some(read_to.place())))
}

impl Tx<'_> {
    /// What concerns the gateway itself is the default tenant's, which may not have begun. Whoever changes a tenant's alerts does so
    /// alone.
    fn holds_alerts_of(&mut self, tenant: TenantId) -> Result<bool, Fail> {
        if tenant == TenantId::DEFAULT {
            self.begin_tenant(tenant)?;
        }
        Ok(self.one("SELECT 1 FROM tenants WHERE uuid = $1 FOR UPDATE", p![tenant])?.is_some())
    }

    fn latest_alert(&mut self, key: &AlertKey, file: i64) -> Result<Option<Latest>, Fail> {
        let sql = "SELECT id, alert_id, state, suppressed, quiet_us FROM alerts \
            WHERE tenant = $1 AND channel = $2 AND finding_type = $3 ORDER BY id DESC LIMIT 1";
        let Some(row) = self.one(sql, p![key.tenant, &key.channel, &key.finding_type])? else { return Ok(None) };
        let id: i64 = col(&row, 0)?;
        let counted =
            self.one("SELECT counted, counted_to FROM alert_counts WHERE alert = $1 AND file = $2", p![id, file])?;
        Ok(Some(Latest {
            row: id,
            id: col(&row, 1)?,
            state: state(&col::<String>(&row, 2)?)?,
            suppressed: col(&row, 3)?,
            quiet_us: col(&row, 4)?,
            counted: counted.map(|row| Ok::<_, Fail>((col(&row, 0)?, col(&row, 1)?))).transpose()?,
        }))
    }

    /// How many findings are counted now and told of later; `None` where the channel is to be told.
    fn counted(&mut self, latest: Option<&Latest>, sighting: &Sighting, now: Timestamp) -> Result<Option<u64>, Fail> {
        let goes_on = sighting.findings.is_empty();
        let Some(latest) = latest else { return Ok(goes_on.then_some(0)) };
        let fresh = latest.fresh(&sighting.findings, journal(sighting).1);
        if goes_on && latest.state != AlertState::Resolved {
            let sql = "UPDATE alerts SET last_us = greatest(last_us, $2), resolve_us = greatest(resolve_us, $3) WHERE id = $1";
            let resolve_us = sighting.resolves_at.map(Timestamp::micros);
            self.run(sql, p![latest.row, sighting.last_at.micros(), resolve_us])?;
        }
        let Some(last) = fresh.last() else { return Ok(Some(0)) };
        if !latest.is_quiet(now) {
            return Ok(None);
        }
        let many = fresh.len() as i64;
        self.add_to_alert(latest.row, sighting, many, many, last)?;
        Ok(Some(fresh.len() as u64))
    }

    /// Takes findings into an alert that is there.
    fn add_to_alert(
        &mut self,
        row: i64,
        sighting: &Sighting,
        many: i64,
        suppressed: i64,
        last: &Uuid,
    ) -> Result<(), Fail> {
        let sql = "UPDATE alerts SET count = count + $2, suppressed = suppressed + $3, last_us = greatest(last_us, $4), \
            severity = greatest(severity, $5), score = greatest(score, $6), resolve_us = greatest(resolve_us, $7) WHERE id = $1";
        let (severity, score) = (sighting.severity as i64, i64::from(sighting.security_score));
        let resolve_us = sighting.resolves_at.map(Timestamp::micros);
        self.run(sql, p![row, many, suppressed, sighting.last_at.micros(), severity, score, resolve_us])?;
        self.count_up_to(row, sighting, last)
    }

    fn count_up_to(&mut self, row: i64, sighting: &Sighting, last: &Uuid) -> Result<(), Fail> {
        let (file, place) = journal(sighting);
        let sql = "INSERT INTO alert_counts (alert, file, counted, counted_to) VALUES ($1, $2, $3, $4) \
            ON CONFLICT (alert, file) DO UPDATE SET counted = excluded.counted, \
            counted_to = greatest(alert_counts.counted_to, excluded.counted_to)";
        self.run(sql, p![row, file, *last, place.unwrap_or(0)]).map(|_| ())
    }

    /// False where somebody else has it.
    fn put_claim(&mut self, key: &AlertKey, by: &Claimant) -> Result<bool, Fail> {
        self.run("DELETE FROM alert_claims WHERE tenant = $1 AND until_us <= $2", p![key.tenant, by.now.micros()])?;
        let sql = "INSERT INTO alert_claims (tenant, channel, finding_type, owner, until_us) \
            VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
        Ok(self.run(sql, p![key.tenant, &key.channel, &key.finding_type, by.owner, by.until.micros()])? > 0)
    }

    fn end_claim(&mut self, tenant: TenantId, channel: &str, finding_type: &str) -> Result<(), Fail> {
        let sql = "DELETE FROM alert_claims WHERE tenant = $1 AND channel = $2 AND finding_type = $3";
        self.run(sql, p![tenant, channel, finding_type]).map(|_| ())
    }

    fn make_room_for_alert(&mut self, tenant: TenantId, now: Timestamp) -> Result<bool, Fail> {
        let present: i64 = self.value("SELECT count(*) FROM alerts WHERE tenant = $1", p![tenant])?;
        if present < KEPT_MAX {
            return Ok(true);
        }
        let sql = "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE tenant = $1 AND quiet_us <= $2 \
            AND (next_us IS NULL OR next_us <= $3) ORDER BY id LIMIT $4)";
        Ok(self.run(sql, p![tenant, now.micros(), now.micros() - OVERDUE_US, BATCH_ALERTS])? > 0)
    }

    fn insert_alert(&mut self, accepted: &Accepted, many: i64, suppressed: i64, last: &Uuid) -> Result<(), Fail> {
        let Accepted { sighting, id, at, quiet_until, escalates_at, .. } = accepted;
        let sql = "INSERT INTO alerts (tenant, alert_id, channel, finding_type, severity, score, state, trace_id, span_id, \
            first_us, last_us, count, suppressed, told_us, quiet_us, escalate_us, resolve_us) VALUES \
            ($1, $2, $3, $4, $5, $6, 'open', $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) RETURNING id";
        let (trace, span) = sighting.place.unzip();
        let values = p![
            sighting.key.tenant,
            *id,
            &sighting.key.channel,
            &sighting.key.finding_type,
            sighting.severity as i64,
            i64::from(sighting.security_score),
            trace.map(|id| Uuid::from_bytes(*id.as_bytes())),
            span.map(|id| Uuid::from_bytes(*id.as_bytes())),
            sighting.first_at.micros(),
            sighting.last_at.micros(),
            many,
            suppressed,
            at.micros(),
            quiet_until.micros(),
            escalates_at.map(Timestamp::micros),
            sighting.resolves_at.map(Timestamp::micros),
        ];
        let row: i64 = self.value(sql, values)?;
        self.count_up_to(row, sighting, last)
    }

    fn alert(&mut self, tenant: TenantId, id: Uuid) -> Result<Option<AlertRecord>, Fail> {
        let sql = format!("SELECT {COLUMNS} FROM alerts a WHERE a.tenant = $1 AND a.alert_id = $2");
        self.one(&sql, p![tenant, id])?.as_ref().map(record).transpose()
    }

    /// Sets the time at which the alert resolves: when its last holder ends, or now if it has none.
    fn ends_with_its_holders(&mut self, key: &AlertKey, now: Timestamp) -> Result<bool, Fail> {
        self.run("DELETE FROM alert_holders WHERE tenant = $1 AND until_us <= $2", p![key.tenant, now.micros()])?;
        let sql = "UPDATE alerts SET last_us = greatest(last_us, $4), resolve_us = coalesce((SELECT max(h.until_us) \
            FROM alert_holders h WHERE h.tenant = $1 AND h.channel = $2 AND h.finding_type = $3), $4) \
            WHERE tenant = $1 AND channel = $2 AND finding_type = $3 AND state <> 'resolved'";
        Ok(self.run(sql, p![key.tenant, &key.channel, &key.finding_type, now.micros()])? > 0)
    }
}

impl Relational {
    pub(crate) fn count_alerts(&self, sightings: &[Sighting], now: Timestamp) -> Result<Vec<Heard>, NotWritten> {
        self.write(|tx| {
            let mut heard = Vec::with_capacity(sightings.len());
            for sighting in sightings {
                if !tx.holds_alerts_of(sighting.key.tenant)? {
                    heard.push(Heard::Unknown);
                    continue;
                }
                let latest = tx.latest_alert(&sighting.key, journal(sighting).0)?;
                heard.push(tx.counted(latest.as_ref(), sighting, now)?.map_or(Heard::Due, Heard::Counted));
            }
            Ok(heard)
        })
    }

    pub(crate) fn claim_alert(&self, sighting: &Sighting, by: &Claimant) -> Result<Claim, NotWritten> {
        self.write(|tx| {
            if !tx.holds_alerts_of(sighting.key.tenant)? {
                return Ok(Claim::Unknown);
            }
            let latest = tx.latest_alert(&sighting.key, journal(sighting).0)?;
            let open = latest.as_ref().filter(|latest| latest.state == AlertState::Open).map(|latest| latest.id);
            if let Some(count) = tx.counted(latest.as_ref(), sighting, by.now)? {
                return Ok(Claim::Counted(count));
            }
            if open.is_none() && !tx.make_room_for_alert(sighting.key.tenant, by.now)? {
                return Ok(Claim::NoRoom);
            }
            if tx.put_claim(&sighting.key, by)? {
                return Ok(Claim::Granted(open));
            }
            let sql = "SELECT until_us FROM alert_claims WHERE tenant = $1 AND channel = $2 AND finding_type = $3";
            let AlertKey { tenant, channel, finding_type } = &sighting.key;
            Ok(Claim::Held(Timestamp::from_micros(tx.value(sql, p![*tenant, channel, finding_type])?)))
        })
    }

    pub(crate) fn accept_alert(&self, accepted: &Accepted) -> Result<Option<AlertRecord>, NotWritten> {
        let Accepted { sighting, id, told, at, quiet_until, escalates_at } = accepted;
        self.write(|tx| {
            if !tx.holds_alerts_of(sighting.key.tenant)? {
                return Ok(None);
            }
            tx.end_claim(sighting.key.tenant, &sighting.key.channel, &sighting.key.finding_type)?;
            let (file, place) = journal(sighting);
            let latest = tx.latest_alert(&sighting.key, file)?;
            let fresh = latest.as_ref().map_or(&sighting.findings[..], |latest| latest.fresh(&sighting.findings, place));
            let (many, last) = (fresh.len() as i64, sighting.findings.last().copied().unwrap_or_default());
            let suppressed = (many - told.cast_signed()).max(0);
            let shown = match latest.filter(|latest| latest.state == AlertState::Open) {
                Some(latest) => {
                    tx.add_to_alert(latest.row, sighting, many, suppressed, &last)?;
                    let sql = "UPDATE alerts SET told_us = $2, quiet_us = $3, escalate_us = \
                        CASE WHEN escalated_us IS NULL THEN coalesce(escalate_us, $4) ELSE escalate_us END WHERE id = $1";
                    let escalate_us = escalates_at.map(Timestamp::micros);
                    tx.run(sql, p![latest.row, at.micros(), quiet_until.micros(), escalate_us])?;
                    latest.id
                }
                None => {
                    tx.insert_alert(accepted, many, suppressed, &last)?;
                    *id
                }
            };
            tx.alert(sighting.key.tenant, shown)
        })
    }

    pub(crate) fn hold_alert(&self, key: &AlertKey, owner: Uuid, until: Timestamp) -> Result<(), NotWritten> {
        let sql = "UPDATE alert_claims SET until_us = $5 WHERE tenant = $1 AND channel = $2 AND finding_type = $3 AND owner = $4";
        self.write(|tx| tx.run(sql, p![key.tenant, &key.channel, &key.finding_type, owner, until.micros()]).map(|_| ()))
    }

    pub(crate) fn claim_due(
        &self,
        channel: &str,
        by: &Claimant,
        limit: u32,
    ) -> Result<Vec<(AlertRecord, Step)>, NotWritten> {
        self.write(|tx| {
            tx.run("DELETE FROM alert_claims WHERE channel = $1 AND until_us <= $2", p![channel, by.now.micros()])?;
            let sql = format!(
                "SELECT {COLUMNS} FROM alerts a WHERE a.channel = $3 AND a.next_us <= $1 AND NOT EXISTS (SELECT 1 FROM alert_claims c \
                 WHERE c.tenant = a.tenant AND c.channel = a.channel AND c.finding_type = a.finding_type) \
                 ORDER BY a.next_us LIMIT $2"
            );
            let mut steps = Vec::new();
            for row in tx.rows(&sql, p![by.now.micros(), i64::from(limit), channel])? {
                let (alert, closes) = (record(&row)?, col::<Option<i64>>(&row, 22)?.map(Timestamp::from_micros));
                let (channel, finding_type) = (alert.channel.clone(), alert.finding_type.clone());
                let key = AlertKey { tenant: alert.tenant_id, channel, finding_type };
                // An older alert of the same kind has its turn when this one is done.
                if tx.put_claim(&key, by)? {
                    let step = step_of(&alert, closes, by.now);
                    steps.push((alert, step));
                }
            }
            Ok(steps)
        })
    }

    pub(crate) fn finish_step(&self, alert: &AlertRecord, done: &StepDone) -> Result<(), NotWritten> {
        const WHOSE: &str = "WHERE tenant = $1 AND alert_id = $2";
        let (tenant, id) = (alert.tenant_id, alert.id);
        let StepDone { step, told, at, quiet_until, escalated } = done;
        self.write(|tx| {
            tx.end_claim(tenant, &alert.channel, &alert.finding_type)?;
            match step {
                Step::Summary => {
                    let sql = format!(
                        "UPDATE alerts SET suppressed = greatest(suppressed - $3, 0), told_us = $4, quiet_us = $5 {WHOSE}"
                    );
                    tx.run(&sql, p![tenant, id, told.cast_signed(), at.micros(), quiet_until.micros()])?;
                }
                Step::Escalation => {
                    // Where that channel has an alert of its own, that one goes further.
                    let sql = format!(
                        "UPDATE alerts SET escalated_us = $3, escalated_to = coalesce($4, escalated_to), close_us = CASE WHEN \
                         state = 'acknowledged' AND resolve_us IS NULL AND $4 IS NOT NULL THEN $3 ELSE close_us END, \
                         escalate_us = CASE WHEN state = 'open' AND NOT EXISTS (SELECT 1 FROM alerts o WHERE o.tenant = $1 \
                         AND o.channel = $4 AND o.finding_type = alerts.finding_type AND o.state = 'open') THEN $5 END {WHOSE}"
                    );
                    let (to, next_at) = escalated.as_ref().map(|to| (to.to.as_str(), to.next_at)).unzip();
                    let next_us = next_at.flatten().map(Timestamp::micros);
                    tx.run(&sql, p![tenant, id, at.micros(), to, next_us])?;
                }
                Step::Resolution => {
                    let sql = format!(
                        "UPDATE alerts SET state = 'resolved', resolved_us = $3, suppressed = 0, escalate_us = NULL, \
                         close_us = CASE WHEN escalated_to IS NULL THEN NULL ELSE $3 END {WHOSE}"
                    );
                    tx.run(&sql, p![tenant, id, at.micros()])?;
                }
                Step::Closing => {
                    tx.run(&format!("UPDATE alerts SET close_us = NULL {WHOSE}"), p![tenant, id])?;
                }
            }
            Ok(())
        })
    }

    pub(crate) fn sustain_alert(&self, key: &AlertKey, by: &Claimant) -> Result<bool, NotWritten> {
        self.write(|tx| {
            if !tx.holds_alerts_of(key.tenant)? {
                return Ok(false);
            }
            let sql = "INSERT INTO alert_holders (tenant, channel, finding_type, owner, until_us) VALUES ($1, $2, $3, $4, $5) \
                ON CONFLICT (tenant, channel, finding_type, owner) DO UPDATE SET until_us = excluded.until_us";
            tx.run(sql, p![key.tenant, &key.channel, &key.finding_type, by.owner, by.until.micros()])?;
            tx.ends_with_its_holders(key, by.now)
        })
    }

    pub(crate) fn release_alert(&self, key: &AlertKey, owner: Uuid, at: Timestamp) -> Result<bool, NotWritten> {
        const WHOSE: &str = "tenant = $1 AND channel = $2 AND finding_type = $3";
        self.write(|tx| {
            let sql = format!("DELETE FROM alert_holders WHERE {WHOSE} AND owner = $4");
            tx.run(&sql, p![key.tenant, &key.channel, &key.finding_type, owner])?;
            tx.ends_with_its_holders(key, at)?;
            let sql = format!("SELECT EXISTS (SELECT 1 FROM alert_holders WHERE {WHOSE})");
            tx.value(&sql, p![key.tenant, &key.channel, &key.finding_type])
        })
    }

    pub(crate) fn acknowledge_alert(
        &self,
        tenant: TenantId,
        id: Uuid,
        by: &AuditEvent,
    ) -> Result<Option<AlertRecord>, NotWritten> {
        self.write(|tx| {
            let Some(alert) = tx.alert(tenant, id)? else { return Ok(None) };
            if alert.state != AlertState::Open {
                return Ok(Some(alert));
            }
            // What ends by itself is over later, whoever knows of it.
            let sql = "UPDATE alerts SET state = 'acknowledged', acked_us = $3, acked_by = $4, escalate_us = NULL, \
                close_us = CASE WHEN escalated_to IS NOT NULL AND resolve_us IS NULL THEN $3 END \
                WHERE tenant = $1 AND finding_type = $2 AND state = 'open'";
            tx.run(sql, p![tenant, &alert.finding_type, Timestamp::now().micros(), &by.actor])?;
            tx.audit(by)?;
            tx.alert(tenant, id)
        })
    }

    pub(crate) fn redeliver_alert(
        &self,
        tenant: TenantId,
        id: Uuid,
        by: &AuditEvent,
    ) -> Result<Option<AlertRecord>, NotWritten> {
        self.write(|tx| {
            // As if its cooldown had ended with at least one finding that its channel has not heard of.
            let sql = "UPDATE alerts SET suppressed = greatest(suppressed, 1), quiet_us = $3 \
                WHERE tenant = $1 AND alert_id = $2 AND state <> 'resolved'";
            if tx.run(sql, p![tenant, id, Timestamp::now().micros()])? > 0 {
                tx.audit(by)?;
            }
            tx.alert(tenant, id)
        })
    }

    pub(crate) fn next_due(&self, channel: &str) -> Result<Option<Timestamp>, ReadError> {
        self.read(|tx| {
            let sql = "SELECT least((SELECT min(a.next_us) FROM alerts a WHERE a.channel = $1 AND NOT EXISTS (SELECT 1 \
                FROM alert_claims c WHERE c.tenant = a.tenant AND c.channel = a.channel AND c.finding_type = a.finding_type)), \
                (SELECT min(until_us) FROM alert_claims WHERE channel = $1))";
            Ok(tx.value::<Option<i64>>(sql, p![channel])?.map(Timestamp::from_micros))
        })
    }

    pub(crate) fn list_alerts(
        &self,
        tenant: TenantId,
        filter: &AlertFilter,
        page: Page,
    ) -> Result<Paged<AlertRecord>, ReadError> {
        const MATCHING: &str = "FROM alerts a WHERE a.tenant = $1 AND ($2::text IS NULL OR a.state = $2) \
            AND ($3::text IS NULL OR a.finding_type = $3) AND ($4::bigint IS NULL OR a.severity = $4)";
        let state = filter.state.map(AlertState::as_str);
        let severity = filter.severity.map(|severity| severity as i64);
        self.read(|tx| {
            let count = format!("SELECT count(*) {MATCHING}");
            let total: i64 = tx.value(&count, p![tenant, state, &filter.finding_type, severity])?;
            let (below, skip) = window(page);
            let sql = format!("SELECT {COLUMNS} {MATCHING} AND a.id < $5 ORDER BY a.id DESC LIMIT $6 OFFSET $7");
            let values = p![tenant, state, &filter.finding_type, severity, below, i64::from(page.limit), skip];
            let rows = tx.rows(&sql, values)?;
            let data = rows.iter().map(record).collect::<Result<Vec<_>, _>>()?;
            Ok(Paged { next: next_of(&rows, 23, page)?, ..Paged::new(data, total.unsigned_abs(), page) })
        })
    }

    /// Alerts no longer say which trace they were about, once it is deleted, and nothing else does.
    pub(crate) fn forget_trace(
        &self,
        tenant: TenantId,
        trace: TraceId,
        by: Option<&AuditEvent>,
    ) -> Result<(), NotWritten> {
        self.write(|tx| {
            tx.run(
                "UPDATE alerts SET trace_id = NULL, span_id = NULL WHERE tenant = $1 AND trace_id = $2",
                p![tenant, trace],
            )?;
            tx.run("DELETE FROM judge_verdicts WHERE tenant = $1 AND trace_id = $2", p![tenant, trace])?;
            by.map_or(Ok(()), |by| tx.audit(by).map(|_| ()))
        })
    }

    /// Takes out what is past its age: alerts whose last finding, and reports that were asked for, before then.
    pub(crate) fn erase_aged(&self, before_us: i64) -> Result<(), NotWritten> {
        self.write(|tx| {
            tx.run("DELETE FROM alerts WHERE last_us < $1", p![before_us])?;
            tx.run("DELETE FROM reports WHERE created_us < $1 AND status <> 'pending'", p![before_us]).map(|_| ())
        })
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
