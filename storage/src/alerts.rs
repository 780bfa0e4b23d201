//! Alerts as records: what channels were told of a tenant's findings of one type, and what they are still to be told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_config::vocab::{Severity, SpanId, TenantId, Timestamp, TraceId};

use crate::cursor::Cursor;

/// Whether anybody has to do with an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AlertState {
    /// Nobody has said that they know of it.
    Open,
    /// Somebody has.
    Acknowledged,
    /// What it was about is over.
    Resolved,
}

impl AlertState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Open, Self::Acknowledged, Self::Resolved];

    /// As the interface spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Acknowledged => "acknowledged",
            Self::Resolved => "resolved",
        }
    }
}

/// An alert: findings of one type in one tenant, as one channel was told of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AlertRecord {
    /// Identifies the alert.
    pub id: Uuid,
    /// Whose findings.
    pub tenant_id: TenantId,
    /// Of which type.
    pub finding_type: String,
    /// Of the worst one.
    pub severity: Severity,
    /// Highest score of their calls.
    pub security_score: u8,
    /// Who was told: type and place in the settings.
    pub channel: String,
    /// `open`, `acknowledged` or `resolved`.
    pub state: AlertState,
    /// The trace of the first finding; null where it is about none, or that was deleted.
    pub trace_id: Option<TraceId>,
    /// Its span.
    pub span_id: Option<SpanId>,
    /// When the first finding was made.
    pub first_at: Timestamp,
    /// When the latest one was.
    pub last_at: Timestamp,
    /// How many findings there were.
    pub count: u64,
    /// How many of them the channel has not been told of yet.
    pub suppressed: u64,
    /// When the channel last accepted a message.
    pub notified_at: Timestamp,
    /// Until when it is told nothing further.
    pub quiet_until: Timestamp,
    /// When it goes to the next channel, unless it is acknowledged.
    pub escalates_at: Option<Timestamp>,
    /// When it last did.
    pub escalated_at: Option<Timestamp>,
    /// To which channel it then went.
    pub escalated_to: Option<String>,
    /// When what it is about is over, as far as that is known.
    pub resolves_at: Option<Timestamp>,
    /// When the channel was told that.
    pub resolved_at: Option<Timestamp>,
    /// When it was acknowledged.
    pub acknowledged_at: Option<Timestamp>,
    /// By whom.
    pub acknowledged_by: Option<String>,
}

/// What a cooldown is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AlertKey {
    /// Whose findings.
    pub tenant: TenantId,
    /// Who is told.
    pub channel: String,
    /// Of what.
    pub finding_type: String,
}

/// Findings that a channel is to hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Whose, of what, and who is told.
    pub key: AlertKey,
    /// The findings, in the order in which they were stored. Without any it only says that what the channel was told of goes on.
    pub findings: Vec<Uuid>,
    /// Of the worst one.
    pub severity: Severity,
    /// Highest score of their calls.
    pub security_score: u8,
    /// Trace and span of the first one, where there are some.
    pub place: Option<(TraceId, SpanId)>,
    /// When it was made.
    pub first_at: Timestamp,
    /// When the last one was.
    pub last_at: Timestamp,
    /// When what they are about is over, where it ends by itself.
    pub resolves_at: Option<Timestamp>,
    /// How far the spans of the store had been read when they were found there, and all that lies before was counted, too; `None`
    /// where they were not.
    pub read_to: Option<Cursor>,
}

/// What becomes of a sighting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The channel was told within the cooldown: so many findings are to be told of when it ends.
    Counted(u64),
    /// The channel is to be told.
    Due,
    /// The store knows no such tenant, and keeps nothing of it.
    Unknown,
}

/// Whether somebody may send a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// They may, and nobody else may meanwhile. The message goes on with this alert, or begins one.
    Granted(Option<Uuid>),
    /// Somebody else may, until then.
    Held(Timestamp),
    /// The channel has been told meanwhile.
    Counted(u64),
    /// The tenant has as many alerts as it may, none of which can go.
    NoRoom,
    /// The store knows no such tenant, and keeps nothing of it.
    Unknown,
}

/// Who says something, and for how long that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimant {
    /// A number of the process's own.
    pub owner: Uuid,
    /// This moment.
    pub now: Timestamp,
    /// The end of what is said.
    pub until: Timestamp,
}

/// A message that a channel has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// What it was about.
    pub sighting: Sighting,
    /// The alert's id, where it begins with this message.
    pub id: Uuid,
    /// How many of the findings it told of, the first of them.
    pub told: u64,
    /// When.
    pub at: Timestamp,
    /// Until then the channel is told nothing further.
    pub quiet_until: Timestamp,
    /// When it goes to the next channel, unless it is acknowledged.
    pub escalates_at: Option<Timestamp>,
}

/// The next message about an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// How many more findings there were.
    Summary,
    /// That nobody has acknowledged it, to the next channel.
    Escalation,
    /// That what it was about is over.
    Resolution,
    /// To the channels that it went to: that it is over, or that somebody knows of what has no end of its own. For those that keep an
    /// incident open until they hear of it.
    Closing,
}

/// A message about an alert that was accepted, or never will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepDone {
    /// Which one.
    pub step: Step,
    /// How many findings a summary told of.
    pub told: u64,
    /// When.
    pub at: Timestamp,
    /// For a summary: until then the channel is told nothing further.
    pub quiet_until: Timestamp,
    /// For an escalation.
    pub escalated: Option<Escalated>,
}

/// Where an alert went that nobody had acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escalated {
    /// The channel.
    pub to: String,
    /// When it goes further, unless it is acknowledged, or the channel has an open alert of its own about the same, which goes its
    /// own way.
    pub next_at: Option<Timestamp>,
}

/// Filters of the list of alerts. Unset means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertFilter {
    /// In this state.
    pub state: Option<AlertState>,
    /// Of exactly this type.
    pub finding_type: Option<String>,
    /// Of exactly this severity.
    pub severity: Option<Severity>,
}
