//! What the stages of a request say to each other in: who sends it, when things happened, whether it was analysed, and every "no".
//! Knows no stage.

mod analysis;
mod caller;
mod context;
mod operations;
mod payload;
mod refusal;
mod status;

pub use analysis::{Analysis, Skip};
pub use caller::{Caller, OPEN_ACTOR, Proof};
pub use context::{Moments, TraceContext};
pub use operations::{Family, KnownOperation, ModelPlace, Scope, operation};
pub use payload::Payload;
pub use refusal::{ALLOW, Refusal};
pub use status::{ReportEncoding, put_bytes, put_varint};
