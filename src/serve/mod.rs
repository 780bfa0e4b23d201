//! The gateway's own interfaces: the REST API, spans that applications report (OTLP, gRPC), and reports.
//!
//! Answers from the store and from memory, on threads of its own; nothing here stands on the way of a proxied call. The way in is
//! `api::routes`.

pub mod api;
pub mod grpc;
pub mod ingest;
pub mod reports;
