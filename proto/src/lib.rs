//! The gateway's native trace format, `weir.traces.v1`: its messages and its service as Rust types.
//!
//! `weir/traces/v1/traces.proto` is the source. What is made of it lies in `src/generated` and is committed, so that no build
//! needs a compiler for it; the test `generated` makes it anew and compares (`WEIR_REGENERATE=1` writes it). Batches are
//! decoded within bounds ([`bounded`]). Knows nothing of the gateway.

pub mod bounded;
pub mod otlp;

/// Package `weir.traces.v1`.
pub mod v1 {
    // What the generator writes is held to its own style.
    #![allow(missing_docs, unreachable_pub, rust_2018_idioms, clippy::all, clippy::unwrap_used, clippy::expect_used)]
    include!("generated/weir.traces.v1.rs");
}

/// Bytes that a batch has on the wire, unpacked.
pub fn size(batch: &v1::ExportRequest) -> usize {
    prost::Message::encoded_len(batch)
}

/// The descriptors of the package (a `google.protobuf.FileDescriptorSet`), for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/weir.traces.v1.binpb");
