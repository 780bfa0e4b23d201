//! Compliance reports as records, and how far what they are about has been read. What stands in them is not the store's matter.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;
use weir_config::vocab::{SpanId, TenantId, Timestamp};

use crate::audit::AuditEntry;

/// Reports of one tenant that may wait to be built: they are built one after another, for all tenants.
pub(crate) const PENDING_MAX: u64 = 10;

/// Which set of controls a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReportType {
    /// SOC 2 trust services criteria.
    Soc2,
    /// General Data Protection Regulation.
    Gdpr,
    /// HIPAA security rule.
    Hipaa,
}

impl ReportType {
    /// The name as the interface spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Soc2 => "soc2",
            Self::Gdpr => "gdpr",
            Self::Hipaa => "hipaa",
        }
    }
}

impl fmt::Display for ReportType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no report type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a report type; use soc2, gdpr or hipaa")]
pub struct InvalidReportType(pub String);

impl FromStr for ReportType {
    type Err = InvalidReportType;

    fn from_str(text: &str) -> Result<Self, InvalidReportType> {
        [Self::Soc2, Self::Gdpr, Self::Hipaa]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| InvalidReportType(text.to_owned()))
    }
}

/// Where a report stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReportStatus {
    /// Waits for the builder, or is being built.
    Pending,
    /// `content` is there.
    Complete,
    /// `error` says why.
    Failed,
}

impl ReportStatus {
    /// The name as the interface spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Complete => "complete",
            Self::Failed => "failed",
        }
    }
}

/// What stands in a report, as the JSON text it was stored as: as a tree of values it takes several times the room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportContent(String);

impl ReportContent {
    /// Takes a text that is JSON.
    ///
    /// # Errors
    /// It is none.
    pub fn read(text: String) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<serde::de::IgnoredAny>(&text)?;
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for ReportContent {
    /// Made a tree for this moment alone, so that of all reports of an answer one is.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tree: serde_json::Value = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        tree.serialize(serializer)
    }
}

impl JsonSchema for ReportContent {
    fn schema_name() -> Cow<'static, str> {
        serde_json::Value::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        serde_json::Value::json_schema(generator)
    }
}

/// A report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReportRecord {
    /// Identifies it within its tenant.
    pub id: Uuid,
    /// Whose report it is.
    pub tenant_id: TenantId,
    /// Which controls.
    pub report_type: ReportType,
    /// Where it stands.
    pub status: ReportStatus,
    /// Inclusive start of the period.
    pub period_start: Timestamp,
    /// Exclusive end of the period.
    pub period_end: Timestamp,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it was complete, or had failed.
    pub completed_at: Option<Timestamp>,
    /// The controls with their figures; `None` until complete.
    pub content: Option<ReportContent>,
    /// Why it failed.
    pub error: Option<String>,
}

impl ReportRecord {
    /// A report nobody has asked for before.
    pub(crate) fn pending(tenant_id: TenantId, report_type: ReportType, start: Timestamp, end: Timestamp) -> Self {
        Self {
            id: Uuid::new_v4(),
            tenant_id,
            report_type,
            status: ReportStatus::Pending,
            period_start: start,
            period_end: end,
            created_at: Timestamp::now(),
            completed_at: None,
            content: None,
            error: None,
        }
    }
}

/// How far the spans of a period have been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanPlace {
    /// Start of the last span.
    pub(crate) start_us: i64,
    /// Its place among those of the same start.
    pub(crate) row: i64,
    /// The span itself, where several gateways count rows of their own.
    pub(crate) span: Option<SpanId>,
}

impl SpanPlace {
    /// Before everything that started at `start` or later.
    pub fn before(start: Timestamp) -> Self {
        Self { start_us: start.micros(), row: i64::MIN, span: None }
    }
}

/// Events given of a period at most.
pub(crate) const EVENTS_MAX: usize = 10_000;

/// Administrative events of a period that concern a tenant, or the whole service, as far as they have been read. They are read
/// slice by slice: the reader may get little CPU, and what was read once is not read again.
#[derive(Debug)]
pub struct EventsOfPeriod {
    pub(crate) tenant: TenantId,
    pub(crate) start_us: i64,
    pub(crate) end_us: i64,
    /// With their places, 0 where they are the whole service's.
    pub(crate) read: Vec<(AuditEntry, u64)>,
    /// Lines of the whole service among them.
    pub(crate) of_service: usize,
    /// The tenant's line up to which its log was read; `None` when it was read to the end.
    pub(crate) nth: Option<i64>,
    /// The same for the whole service's, by time and position.
    pub(crate) after: (i64, i64),
}

/// Administrative events, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Events {
    /// The events.
    pub lines: Vec<AuditEntry>,
    /// The place of each in its tenant's log, from 1; 0 where it is the whole service's.
    pub places: Vec<u64>,
    /// There are more, which were not read.
    pub truncated: bool,
}

impl EventsOfPeriod {
    /// Nothing of `start..end` has been read.
    pub fn new(tenant: TenantId, start: Timestamp, end: Timestamp) -> Self {
        let (start_us, end_us) = (start.micros(), end.micros());
        let (read, of_service, nth, after) = (Vec::new(), 0, Some(0), (start_us, i64::MIN));
        Self { tenant, start_us, end_us, read, of_service, nth, after }
    }

    /// What was read. It is handed over: there is nothing left then.
    pub fn hand_over(&mut self) -> Events {
        let mut read = std::mem::take(&mut self.read);
        read.sort_by_key(|(line, _)| line.seq);
        let truncated = read.len() > EVENTS_MAX;
        read.truncate(EVENTS_MAX);
        let (lines, places) = read.into_iter().unzip();
        Events { lines, places, truncated }
    }
}
