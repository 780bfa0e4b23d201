//! The gRPC listener (`grpc.listen_addr`, when `grpc.enabled`): spans in the gateway's native format and, where
//! `otel_ingest.enabled`, in OTLP; health and reflection.
//!
//! It has a runtime of its own, beside the cores and the control thread, which exists only where it is on. Invariants: nobody's
//! message is read before its sender is known ([`admission`]); a span is called accepted when it is committed; a stop lets what has
//! been read finish and says what has not been. Knows how spans come in, and leaves what becomes of them to `ingest`.

mod admission;
mod bounds;
mod convert;
mod export;
mod listening;
mod otlp;
mod places;
mod server;
mod status;

pub use bounds::Times;
pub(crate) use server::{Serving, start};

use crate::ingest::Tried;

/// A dry run of the native format's reader, for fuzzers. `None` for bytes that are no batch.
pub fn try_native(batch: &[u8]) -> Option<Tried> {
    let batch = weir_proto::bounded::read(batch).ok()?;
    let spans = batch.spans.len();
    Some(Tried::of(spans, batch.spans.into_iter().filter_map(|span| convert::span(span).ok()).collect()))
}
