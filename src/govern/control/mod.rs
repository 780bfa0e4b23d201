//! The cores' side of the gateway's own API: which paths are its own, on which terms their callers are let in, the queue to the
//! control thread that answers, each tenant's share of it, and probes, which are answered without it. Knows no route and no handler;
//! those are `api`.

mod handle;
mod paths;
mod probe;
mod shares;
mod terms;

pub use handle::{ApiError, ApiHandle, CALLS_PER_CORE, Call, Calls, channel};
pub use paths::{NOT_TAKEN, REPORTS, is_exporter, is_own_path, is_untaken_report};
pub use probe::{Word, probe};
pub use shares::Shares;
pub use terms::{Access, ErrorKind, Further, Terms};
