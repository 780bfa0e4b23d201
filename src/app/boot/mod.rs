//! Construction and the end: builds every part in order, starts the threads, waits for a signal, takes everything down
//! again without losing a request or a record. It starts the threads of the gateway (control, blocking work, readers of
//! lists, the network runtime, the probes during a start, a takeover), or has them started: `rt` the cores',
//! `inference` the pool's, `models` the loader's, `storage` the writer's, `ingest` those that deal with reports, `grpc`
//! its runtime's, `reports` the builder's, `ops` those of logs and of the service manager's watchdog.
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
//! | inference        | core, pool → pool   | 4,096 a lane, 256 MiB   | stored unanalysed, counted; tenants have shares |
//! | storage          | core, pool → writer | 65,536 spans, 64 MiB    | span dropped, counted                |
//! | orders           | control → writer    | 4,096 changes           | 503                                  |
//! | API lanes        | control → readers   | 56 reads, 64 changes    | 503                                  |
//! | provider         | core: who waits     | one call a connection   | 504 after `timeout_ms`               |
//! | idle connections | core → core         | one number              | cannot be                            |
//! | api              | core → control      | 256 calls a core        | 503; a tenant has half of it at most |
//! | reported spans   | control, gRPC → intake | 64 batches of 100,000 spans; a tenant has its share | 503 with `Retry-After`, nothing taken |
//! | urgent api calls | core → control      | 64 calls                | 503                                  |
//! | limits in use    | core → their round  | 4,096 buckets           | one is granted nothing until the next round |
//! | consumers        | core, writer → network runtime | 4,096 spans, 16 MiB each | lost for that consumer, counted |
//! | judge            | network runtime → judge's worker | `judge.worker.channel_buffer` calls | dropped, counted |
//! | questions asked  | core → network runtime | 4,096 notes          | the call may be judged once more     |
//! | fresh series     | core, pool → scrape | one entry a series      | cannot be: series are bounded        |
//! | log              | any → log writer    | 8,192 lines             | line dropped, counted                |
//! | access log       | core, pool → writer | 8,192 lines             | line dropped, counted                |
//! | drain            | control → core      | one message             | cannot be                            |
//!
//! What bounds one connection and one body on a core is `crate::limits`.

mod answer;
mod certificate;
mod control;
mod core;
mod error;
mod extensions;
pub(crate) mod fusion;
mod keep;
mod limits;
mod listeners;
mod metrics;
pub(crate) mod models;
mod network;
pub(crate) mod own_rules;
mod parts;
mod phases;
mod port;
mod run;
mod sharing;
mod starting;
mod subsystems;
mod takeover;
pub(crate) mod unasked;
mod validity;

pub(crate) use certificate::check_certificate;
pub use error::StartError;
pub use extensions::{AddConsumer, Extensions};
pub(crate) use parts::{stores_of, token_key_file};
pub use run::{Gateway, start, start_with};
pub(crate) use sharing::shared_and_not;
