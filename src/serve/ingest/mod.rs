//! Spans from elsewhere: what applications report of their own calls, in whatever format it came.
//!
//! A format (OTLP here, the native one in `grpc`) makes [`ReportedSpan`]s of what it was sent; the [`Intake`] takes them: checked,
//! written as the bodies such a call has, and then completed, inspected and priced by the same functions as a proxied call.
//!
//! Invariants: what is acknowledged is committed; a span is kept once, whoever repeats it; nothing is charged to a budget, because
//! what it reports was not held back by one; everything works on threads of its own, never on a core. Must not know: routes, listeners.

mod beside;
mod body;
mod calls;
mod check;
mod elsewhere;
mod intake;
mod known;
pub(crate) mod otlp;
mod span;
mod tried;
mod work;

pub(crate) use intake::SPANS_MAX;
pub use intake::{Busy, Intake, Taken};
pub use span::{LeftOut, ReportedMessage, ReportedPart, ReportedSpan, ReportedUsage};
pub use tried::{Tried, try_otlp};
