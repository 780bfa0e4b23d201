//! Compliance reports: their records. What stands in them is `compliance`'s matter.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;
use weir_config::vocab::{TenantId, Timestamp};

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
