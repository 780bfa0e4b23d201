//! Construction and the end: builds every part in order, starts the threads, waits for a signal, takes everything down
//! again without losing a request or a record. The only folder that starts threads for the gateway.
//!
//! ```text
//! settings ─▶ driver probe ─▶ listeners (`starting` is answered) ─▶ store ─▶ inference pool ─▶ control thread ─▶ cores ─▶ ready
//! signal ─▶ not ready, drain cores ─▶ inference queue ─▶ store ─▶ control thread ─▶ exit
//! ```
//!
//! What crosses threads, all of it bounded:
//!
//! | queue            | from → to           | capacity                | when full                            |
//! |------------------|---------------------|-------------------------|--------------------------------------|
//! | inference        | core → pool         | 4,096 jobs, 256 MiB     | span stored unanalysed, counted      |
//! | storage          | core, pool → writer | 65,536 spans, 64 MiB    | span dropped, counted                |
//! | api              | core → control      | 256 calls a core        | 503; a tenant has half of it at most |
//! | urgent api calls | core → control      | 64 calls                | 503                                  |
//! | log              | any → log writer    | see `ops::log`          | line dropped, counted                |
//! | access log       | core, pool → writer | see `ops::log`          | line dropped, counted                |
//! | drain            | control → core      | one message             | cannot be                            |

mod certificate;
mod control;
mod core;
mod error;
mod keep;
mod listeners;
mod metrics;
mod parts;
mod run;
mod starting;
mod takeover;
mod validity;
mod visitors;

pub(crate) use certificate::check_certificate;
pub use error::StartError;
pub(crate) use parts::token_key_file;
pub use run::{Gateway, start, take_over};
