//! Changes that somebody waits for, as values: what is asked for, and what came of it. An engine makes them; which one it is, they
//! do not say.

use weir_config::vocab::{Finding, KeyId, SpanId, TenantId, Timestamp, TraceId};

use crate::alerts::{Accepted, AlertKey, AlertRecord, Claim, Claimant, Heard, Sighting, Step, StepDone};
use crate::audit::AuditEvent;
use crate::charges::{BatchCharge, Booked};
use crate::cursor::{Cursor, Fate};
use crate::error::NotWritten;
use crate::objects::MadeObject;
use crate::offences::{BlockedAddress, Offence};
use crate::queue::Held;
use crate::record::{AgentAction, SpanRecord};
use crate::reports::ReportRecord;
use crate::spend::SpendRow;
use crate::tenants::{KeyRecord, NewTenant, SealedKey, TenantChange, TenantRecord, TenantUpdate};
use crate::verdicts::LateFinding;

/// A change. The same commit writes the caller named `by` to the audit log.
pub(crate) enum Change {
    /// Spans; those that are there stay as they are. `room` is held until they are written or given up.
    InsertSpans {
        spans: Vec<SpanRecord>,
        room: Held,
    },
    /// How far a consumer has read.
    SaveCursor {
        consumer: String,
        at: Cursor,
    },
    /// An action a client reported.
    AddAction(Box<ReportedAction>),
    /// A piece of a trace; the first one writes `by`, and only where there is such a trace.
    EraseTrace {
        tenant: TenantId,
        trace: TraceId,
        by: Option<AuditEvent>,
    },
    /// A tenant's records, not the tenant.
    EraseTenant(TenantId),
    CreateTenant {
        new: NewTenant,
        by: AuditEvent,
    },
    UpdateTenant {
        id: TenantId,
        change: TenantChange,
        by: AuditEvent,
    },
    DeleteTenant {
        id: TenantId,
        by: AuditEvent,
    },
    IssueToken(Box<TokenWanted>),
    ResetToken {
        id: TenantId,
        fresh: i64,
        by: AuditEvent,
    },
    /// Which key file tokens are derived with.
    NoteTokenKey([u8; 32]),
    CreateKey {
        key: KeyRecord,
        sha256: [u8; 32],
        by: AuditEvent,
    },
    RevokeKey {
        id: KeyId,
        by: AuditEvent,
    },
    /// A tenant's own credential for an upstream.
    SetProviderKey {
        key: SealedKey,
        by: AuditEvent,
    },
    RemoveProviderKey {
        tenant: TenantId,
        upstream: String,
        by: AuditEvent,
    },
    /// When keys were last used.
    TouchKeys(Vec<(KeyId, Timestamp)>),
    Audit(AuditEvent),
    /// A report that waits to be built. Its tenant begins with it if `begin`.
    AskReport {
        report: Box<ReportRecord>,
        begin: bool,
    },
    /// A report's text, or why it failed.
    CompleteReport {
        tenant: TenantId,
        id: uuid::Uuid,
        built: Result<String, String>,
    },
    SaveSpend(Vec<SpendRow>),
    /// The same, with what is charged of the results of a batch.
    ChargeBatch {
        rows: Vec<SpendRow>,
        charge: BatchCharge,
    },
    NoteOffence(Offence),
    /// Objects that tenants have made at providers.
    NoteObjects(Vec<MadeObject>),
    /// What was found about a span after it was stored.
    AddLate(Box<LateFinding>),
    /// What channels of alerts hear of.
    Alert(Box<AlertChange>),
}

/// A change of what channels of alerts were told, or are to be told.
pub(crate) enum AlertChange {
    Count { sightings: Vec<Sighting>, now: Timestamp },
    Claim { sighting: Sighting, by: Claimant },
    Accept(Accepted),
    Hold { key: AlertKey, owner: uuid::Uuid, until: Timestamp },
    ClaimDue { channel: String, by: Claimant, limit: u32 },
    Finish { alert: AlertRecord, done: StepDone },
    Sustain { key: AlertKey, by: Claimant },
    Release { key: AlertKey, owner: uuid::Uuid, at: Timestamp },
    Redeliver { tenant: TenantId, id: uuid::Uuid, by: AuditEvent },
    Acknowledge { tenant: TenantId, id: uuid::Uuid, by: AuditEvent },
}

/// An action a client reported, and where it belongs.
pub(crate) struct ReportedAction {
    pub(crate) tenant: TenantId,
    pub(crate) trace: TraceId,
    /// `None`: the latest span of the trace.
    pub(crate) span: Option<SpanId>,
    pub(crate) action: AgentAction,
    pub(crate) findings: Vec<Finding>,
}

/// A token somebody asks for.
pub(crate) struct TokenWanted {
    pub(crate) id: TenantId,
    /// What it is derived from if none has been issued.
    pub(crate) fresh: i64,
    /// Whether the tenant begins with it.
    pub(crate) create: bool,
    pub(crate) issued: AuditEvent,
    pub(crate) shown: Option<AuditEvent>,
}

impl Change {
    /// The metric label, e.g. `write_key`.
    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::InsertSpans { .. } => "insert_trace",
            Self::SaveCursor { .. } => "write_cursor",
            Self::AddAction(_) => "write_action",
            Self::EraseTrace { .. } => "delete_trace",
            Self::EraseTenant(_) | Self::DeleteTenant { .. } => "delete_tenant",
            Self::CreateTenant { .. } | Self::UpdateTenant { .. } => "write_tenant",
            Self::IssueToken(_) | Self::ResetToken { .. } | Self::NoteTokenKey(_) => "write_token",
            Self::CreateKey { .. }
            | Self::RevokeKey { .. }
            | Self::SetProviderKey { .. }
            | Self::RemoveProviderKey { .. } => "write_key",
            Self::TouchKeys(_) => "touch_keys",
            Self::Audit(_) => "write_audit",
            Self::AskReport { .. } | Self::CompleteReport { .. } => "write_report",
            Self::SaveSpend(_) | Self::ChargeBatch { .. } => "write_spend",
            Self::NoteOffence(_) => "write_offence",
            Self::NoteObjects(_) => "write_objects",
            Self::AddLate(_) => "write_verdict",
            Self::Alert(_) => "write_alert",
        }
    }

    /// Whether it brings records, for which there is no room on a disk that is nearly full.
    pub(crate) fn brings_records(&self) -> bool {
        matches!(
            self,
            Self::InsertSpans { .. }
                | Self::AddAction(_)
                | Self::AddLate(_)
                | Self::AskReport { .. }
                | Self::CompleteReport { .. }
        )
    }

    /// Whether it removes texts of records or a credential, which are then to leave the log, too.
    pub(crate) fn removes_secrets(&self) -> bool {
        matches!(
            self,
            Self::EraseTrace { .. }
                | Self::EraseTenant(_)
                | Self::DeleteTenant { .. }
                | Self::SetProviderKey { .. }
                | Self::RemoveProviderKey { .. }
        )
    }

    /// About what it weighs, so that not too much is written in one transaction.
    pub(crate) fn bytes(&self) -> usize {
        if let Self::InsertSpans { room, .. } = self { room.bytes() } else { 0 }
    }
}

macro_rules! answers {
    ($($(#[$doc:meta])* $name:ident($kind:ty)),* $(,)?) => {
        /// What came of a change.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) enum Answer {
            $($(#[$doc])* $name($kind),)*
        }

        $(
            impl From<$kind> for Answer {
                fn from(value: $kind) -> Self {
                    Self::$name(value)
                }
            }

            impl TryFrom<Answer> for $kind {
                type Error = NotWritten;

                /// Fails where an engine answers something else than was asked.
                fn try_from(answer: Answer) -> Result<Self, NotWritten> {
                    if let Answer::$name(value) = answer { Ok(value) } else { Err(NotWritten::Closed) }
                }
            }
        )*
    };
}

answers! {
    /// It was made.
    Done(()),
    /// Whether there was what it was about.
    Found(bool),
    /// A line of the audit log.
    Line(u64),
    /// What became of each span.
    Fates(Vec<Fate>),
    /// The span an action belongs to.
    Span(Option<SpanId>),
    /// A tenant as it is now.
    Tenant(Option<TenantRecord>),
    /// What came of a change of a tenant.
    Updated(TenantUpdate),
    /// What a token is derived from.
    Token(Option<i64>),
    /// How many reports of the tenant waited before this one; `None` when there is no such tenant.
    Waiting(Option<u64>),
    /// Tenants whose spend was left out, each with the second of its deletion.
    Deleted(Vec<(TenantId, i64)>),
    /// Whether results of a batch were charged.
    Booked(Booked),
    /// The address that is turned away for it.
    Turned(Option<BlockedAddress>),
    /// What becomes of sightings, in their order.
    Heard(Vec<Heard>),
    /// Whether a message may be sent.
    Claimed(Claim),
    /// An alert as it is now.
    Alert(Option<Box<AlertRecord>>),
    /// Messages to send.
    Steps(Vec<(AlertRecord, Step)>),
}
