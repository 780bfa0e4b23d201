//! The small vocabulary every crate of Weir shares: identifiers, severities, findings, providers, secrets, time, and why
//! something was not read.
//!
//! Nothing here does I/O, and nothing here knows HTTP or SQL. Names of the interface (`finding_type`, provider
//! identifiers, severities) are spelled here once.

mod finding;
pub mod frame;
mod ids;
pub mod part;
mod provider;
mod role;
mod secret;
mod severity;
mod time;
mod unread;

pub use finding::{
    ByteSpan, FINDING_ALLOWED, Finding, JUDGE_VERDICT, PROMOTED, PROMOTION, rules_may_raise, score, worst_in_requests,
};
pub use ids::{InvalidId, KeyId, SpanId, TenantId, TraceId, fresh_uuid};
pub use provider::{Dialect, Operation, Provider};
pub use role::{InvalidRole, Role};
pub use secret::{Secret, SharedSecret, same_bytes};
pub use severity::{InvalidSeverity, Severity};
pub use time::{InvalidTimestamp, Timestamp};
pub use unread::{Unread, UnreadSet};
