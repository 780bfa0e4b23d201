//! `/api/v1/costs/series`: what was used, hour by hour or day by day.

use schemars::JsonSchema;
use serde::Serialize;
use weir_config::vocab::{TenantId, Timestamp};
use weir_storage::usage::{Series, SeriesPoint, SeriesQuery, Split};

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::listed::{as_lines, lines_of};
use super::query::{BUCKETS, SPLITS};
use super::route::Answer;
use super::state::{Api, to_json};

const HOUR_US: i64 = 3_600_000_000;
/// Points of one answer.
const POINTS_MAX: u32 = 10_000;
/// Longest windows, in hours: of hours, of days.
const WINDOWS_MAX_HOURS: [i64; 2] = [31 * 24, 400 * 24];
/// Windows where no start is named.
const WINDOWS_HOURS: [i64; 2] = [24, 30 * 24];

/// A series of buckets. A bucket in which nothing was used is left out.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CostSeries {
    tenant_id: TenantId,
    /// `hour` or `day`, in UTC.
    bucket: &'static str,
    /// What each bucket is split by.
    group_by: &'static str,
    /// Start of the window.
    start_time: Timestamp,
    /// Its end.
    end_time: Timestamp,
    /// In order of time, the costliest of a bucket first.
    data: Vec<SeriesPoint>,
    /// What those that the answer has no room for come to, one point a bucket. Stores that several gateways share do not say it.
    others: Vec<SeriesPoint>,
    /// There are more points than an answer holds: the costliest of each bucket are shown, the rest is in `others`.
    truncated: bool,
    /// Summing up would have taken longer than a read may: what had not been reached is in no figure. Ask for a shorter window.
    partial: bool,
}

pub(super) async fn costs(api: Api, ask: Ask) -> Answer {
    let (query, tenant_id) = (&ask.query, ask.tenant()?);
    let bucket = query.word("bucket", BUCKETS)?.unwrap_or("hour");
    let group_by = query.word("group_by", SPLITS)?.unwrap_or("tenant");
    let split = match group_by {
        "agent" => Split::Agent,
        "model" => Split::Model,
        "session" => Split::Session,
        "client" => Split::Client,
        _ => Split::Tenant,
    };
    let at = usize::from(bucket == "day");
    let end = query.time("end_time")?.unwrap_or_else(Timestamp::now);
    let before = |hours: i64| Timestamp::from_micros(end.micros().saturating_sub(hours.saturating_mul(HOUR_US)));
    let start = query.time("start_time")?.unwrap_or_else(|| before(WINDOWS_HOURS[at]));
    if start >= end {
        return Err(ErrorAnswer::invalid("`end_time` must be after `start_time`"));
    }
    if start < before(WINDOWS_MAX_HOURS[at]) {
        let days = WINDOWS_MAX_HOURS[at] / 24;
        return Err(ErrorAnswer::invalid(format!(
            "a series by {bucket} covers at most {days} days; `start_time` is earlier"
        )));
    }
    let asked = SeriesQuery {
        start,
        end,
        bucket_hours: if bucket == "day" { 24 } else { 1 },
        split,
        agent_id: query.text("agent_id")?,
        session_id: query.text("session_id")?,
        model: query.text("model")?,
        points_max: POINTS_MAX,
    };
    if query.lines()? {
        let points = api.read_piece(move |store| lines(&store.spans.series(tenant_id, &asked)?)).await?;
        return Ok(as_lines(points, None));
    }
    api.read(move |store| {
        let Series { points: data, others, truncated, partial } = store.spans.series(tenant_id, &asked)?;
        let (start_time, end_time) = (start, end);
        to_json(&CostSeries { tenant_id, bucket, group_by, start_time, end_time, data, others, truncated, partial })
    })
    .await
}

/// A point per line. Lines cannot say that they are not all.
fn lines(series: &Series) -> Result<Vec<u8>, ErrorAnswer> {
    if series.truncated {
        let message = format!("the series has more than {POINTS_MAX} points; ask for a shorter window");
        return Err(ErrorAnswer::invalid(message));
    }
    lines_of(&series.points, to_json)
}
