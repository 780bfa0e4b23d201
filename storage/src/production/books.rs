//! Reports, objects, offences and verdicts in the relational store.

use postgres::Row;
use uuid::Uuid;
use weir_config::vocab::{TenantId, Timestamp, TraceId};

use super::registry::{next_of, window};
use super::relational::{Fail, Relational, col, p, tenant_of};
use crate::error::{NotWritten, ReadError};
use crate::objects::{MadeObject, OBJECT_ID_BYTES_MAX, OBJECTS_MAX};
use crate::offences::{BlockedAddress, Offence};
use crate::query::{ANSWER_BYTES_MAX, Page, Paged};
use crate::reports::{PENDING_MAX, ReportContent, ReportRecord, ReportStatus};
use crate::verdicts::JudgeVerdict;

/// Reports of one tenant that are kept.
const REPORTS_MAX: i64 = 1_000;
/// Verdicts one trace takes.
const TRACE_VERDICTS_MAX: i64 = 1_000;
/// How often the oldest objects of a tenant are looked for: once in so many.
const SWEPT_EVERY: i64 = 1024;
const REPORT: &str = "report_id, report_type, status, period_start_us, period_end_us, created_us, completed_us, content, error, tenant, id";

fn report(row: &Row) -> Result<ReportRecord, Fail> {
    let status: String = col(row, 2)?;
    let content: Option<String> = col(row, 7)?;
    Ok(ReportRecord {
        id: col(row, 0)?,
        tenant_id: tenant_of(row, 9)?,
        report_type: col::<String>(row, 1)?.parse().map_err(|_| Fail::Damaged)?,
        status: [ReportStatus::Pending, ReportStatus::Complete, ReportStatus::Failed]
            .into_iter()
            .find(|known| known.as_str() == status)
            .ok_or(Fail::Damaged)?,
        period_start: Timestamp::from_micros(col(row, 3)?),
        period_end: Timestamp::from_micros(col(row, 4)?),
        created_at: Timestamp::from_micros(col(row, 5)?),
        completed_at: col::<Option<i64>>(row, 6)?.map(Timestamp::from_micros),
        content: content.map(ReportContent::read).transpose().map_err(|_| Fail::Damaged)?,
        error: col(row, 8)?,
    })
}

impl Relational {
    /// How many reports of the tenant waited; `None` where there is no such tenant and it does not begin.
    pub(crate) fn ask_report(&self, asked: &ReportRecord, begin: bool) -> Result<Option<u64>, NotWritten> {
        self.write(|tx| {
            if begin {
                tx.begin_tenant(asked.tenant_id)?;
            }
            // Held until the commit, so that two gateways do not count at once.
            if tx.one("SELECT 1 FROM tenants WHERE uuid = $1 FOR UPDATE", p![asked.tenant_id])?.is_none() {
                return Ok(None);
            }
            let kept = "DELETE FROM reports WHERE tenant = $1 AND status <> 'pending' AND id <= \
                (SELECT id FROM reports WHERE tenant = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)";
            tx.run(kept, p![asked.tenant_id, REPORTS_MAX - 1])?;
            let count = "SELECT count(*) FROM reports WHERE status = 'pending' AND tenant = $1";
            let waiting: i64 = tx.value(count, p![asked.tenant_id])?;
            if waiting < PENDING_MAX.cast_signed() {
                let sql = "INSERT INTO reports (tenant, report_id, report_type, status, period_start_us, period_end_us, created_us) \
                    VALUES ($1, $2, $3, $4, $5, $6, $7)";
                let times = [asked.period_start, asked.period_end, asked.created_at].map(Timestamp::micros);
                let (kind, status) = (asked.report_type.as_str(), asked.status.as_str());
                tx.run(sql, p![asked.tenant_id, asked.id, kind, status, times[0], times[1], times[2]])?;
            }
            Ok(Some(waiting.unsigned_abs()))
        })
    }

    pub(crate) fn complete_report(
        &self,
        tenant: TenantId,
        id: Uuid,
        built: &Result<String, String>,
    ) -> Result<(), NotWritten> {
        let (status, content, error) = match built {
            Ok(content) => (ReportStatus::Complete, Some(content.as_str()), None),
            Err(error) => (ReportStatus::Failed, None, Some(error.as_str())),
        };
        let sql = "UPDATE reports SET status = $3, content = $4, error = $5, completed_us = $6 \
            WHERE tenant = $1 AND report_id = $2";
        let now_us = Timestamp::now().micros();
        self.write(|tx| tx.run(sql, p![tenant, id, status.as_str(), content, error, now_us]).map(|_| ()))
    }

    pub(crate) fn pending_report(&self) -> Result<Option<(TenantId, Uuid)>, ReadError> {
        self.read(|tx| {
            let sql = "SELECT tenant, report_id FROM reports WHERE status = 'pending' ORDER BY id LIMIT 1";
            let row = tx.one(sql, p![])?;
            row.map(|row| Ok((tenant_of(&row, 0)?, col(&row, 1)?))).transpose()
        })
    }

    pub(crate) fn list_reports(&self, tenant: TenantId, page: Page) -> Result<Paged<ReportRecord>, ReadError> {
        self.read(|tx| {
            let total: i64 = tx.value("SELECT count(*) FROM reports WHERE tenant = $1", p![tenant])?;
            let (below, skip) = window(page);
            // What would not fit is not fetched.
            let sql = format!(
                "SELECT * FROM (SELECT {REPORT}, sum(coalesce(length(content), 0)) OVER (ORDER BY id DESC) AS bytes FROM \
                 (SELECT * FROM reports WHERE tenant = $1 AND id < $2 ORDER BY id DESC LIMIT $3 OFFSET $4) AS page) AS weighed \
                 WHERE bytes <= $5 ORDER BY id DESC"
            );
            let room = i64::try_from(page.enough_bytes.min(ANSWER_BYTES_MAX)).unwrap_or(i64::MAX);
            let rows = tx.rows(&sql, p![tenant, below, i64::from(page.limit), skip, room])?;
            let data = rows.iter().map(report).collect::<Result<Vec<_>, _>>()?;
            Ok(Paged { next: next_of(&rows, 10, page)?, ..Paged::new(data, total.unsigned_abs(), page) })
        })
    }

    pub(crate) fn report(&self, tenant: TenantId, id: Uuid) -> Result<Option<ReportRecord>, ReadError> {
        self.read(|tx| {
            let sql = format!("SELECT {REPORT} FROM reports WHERE tenant = $1 AND report_id = $2");
            tx.one(&sql, p![tenant, id])?.as_ref().map(report).transpose()
        })
    }

    pub(crate) fn note_objects(&self, objects: &[MadeObject]) -> Result<(), NotWritten> {
        let fits = |made: &&MadeObject| !made.object.is_empty() && made.object.len() <= OBJECT_ID_BYTES_MAX;
        self.write(|tx| {
            for MadeObject { tenant, upstream, object } in objects.iter().filter(fits) {
                if !tx.has_tenant(*tenant)? {
                    continue;
                }
                let put = "INSERT INTO made_objects (tenant, upstream, object) VALUES ($1, $2, $3) \
                    ON CONFLICT (upstream, object) DO NOTHING RETURNING id";
                let Some(row) = tx.one(put, p![*tenant, upstream, object])? else { continue };
                if col::<i64>(&row, 0)? % SWEPT_EVERY == 0 {
                    let sweep = "DELETE FROM made_objects WHERE tenant = $1 AND id <= \
                        (SELECT id FROM made_objects WHERE tenant = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)";
                    tx.run(sweep, p![*tenant, i64::from(OBJECTS_MAX)])?;
                }
            }
            Ok(())
        })
    }

    pub(crate) fn own_objects(
        &self,
        tenant: TenantId,
        upstream: &str,
        objects: &[String],
    ) -> Result<Vec<bool>, ReadError> {
        let sql = "SELECT 1 FROM made_objects WHERE upstream = $1 AND object = $2 AND tenant = $3";
        self.read(|tx| objects.iter().map(|object| Ok(tx.one(sql, p![upstream, object, tenant])?.is_some())).collect())
    }

    pub(crate) fn note_offence(&self, offence: &Offence) -> Result<Option<BlockedAddress>, NotWritten> {
        let Offence { address, span, at, ttl_us, max } = offence;
        let (at_us, name) = (at.micros(), address.to_string());
        self.write(|tx| {
            tx.run("DELETE FROM offences WHERE at_us <= $1", p![at_us.saturating_sub(*ttl_us)])?;
            tx.run("DELETE FROM blocked_addresses WHERE until_us <= $1", p![at_us])?;
            let put = "INSERT INTO offences (address, span, at_us) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
            tx.run(put, p![&name, *span, at_us])?;
            let noted: i64 = tx.value("SELECT count(*) FROM offences WHERE address = $1", p![&name])?;
            if noted < i64::from(*max) {
                return Ok(None);
            }
            let until = Timestamp::from_micros(at_us.saturating_add(*ttl_us));
            let block = "INSERT INTO blocked_addresses (address, until_us) VALUES ($1, $2) \
                ON CONFLICT (address) DO UPDATE SET until_us = excluded.until_us";
            tx.run(block, p![&name, until.micros()])?;
            tx.run("DELETE FROM offences WHERE address = $1", p![&name])?;
            Ok(Some(BlockedAddress { address: *address, until }))
        })
    }

    pub(crate) fn blocked_addresses(&self, now: Timestamp) -> Result<Vec<BlockedAddress>, ReadError> {
        self.read(|tx| {
            let sql = "SELECT address, until_us FROM blocked_addresses WHERE until_us > $1";
            let block = |row: &Row| {
                let address = col::<String>(row, 0)?.parse().map_err(|_| Fail::Damaged)?;
                Ok(BlockedAddress { address, until: Timestamp::from_micros(col(row, 1)?) })
            };
            tx.rows(sql, p![now.micros()])?.iter().map(block).collect()
        })
    }

    pub(crate) fn add_verdict(&self, tenant: TenantId, verdict: &JudgeVerdict) -> Result<(), NotWritten> {
        let bare = JudgeVerdict { reasoning: String::new(), ..verdict.clone() };
        let body = serde_json::to_string(&bare).map_err(|error| NotWritten::Refused { reason: error.to_string() })?;
        self.write(|tx| {
            tx.begin_tenant(tenant)?;
            let count = "SELECT count(*) FROM judge_verdicts WHERE tenant = $1 AND trace_id = $2";
            let present: i64 = tx.value(count, p![tenant, verdict.trace_id])?;
            if present >= TRACE_VERDICTS_MAX {
                return Err(Fail::Refused(format!("its trace has {present} verdicts and takes no more")));
            }
            let put = "INSERT INTO judge_verdicts (tenant, trace_id, verdict_id, reasoning, body) \
                VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
            tx.run(put, p![tenant, verdict.trace_id, verdict.id, &verdict.reasoning, &body]).map(|_| ())
        })
    }

    pub(crate) fn list_verdicts(&self, tenant: TenantId, trace: TraceId) -> Result<Vec<JudgeVerdict>, ReadError> {
        self.read(|tx| {
            let sql = "SELECT reasoning, body FROM judge_verdicts WHERE tenant = $1 AND trace_id = $2 ORDER BY id";
            let verdict = |row: &Row| {
                let body: JudgeVerdict = serde_json::from_str(&col::<String>(row, 1)?).map_err(|_| Fail::Damaged)?;
                Ok(JudgeVerdict { reasoning: col(row, 0)?, ..body })
            };
            tx.rows(sql, p![tenant, trace])?.iter().map(verdict).collect()
        })
    }
}
