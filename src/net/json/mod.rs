//! A strict JSON (RFC 8259) reader over bytes that keeps byte offsets.
//!
//! For: everything that must know *where* in a body a value stands (splices, locations of findings) and must read it
//! without building a tree. Invariants: what the walker accepts is exactly RFC 8259 in UTF-8, at most [`DEPTH_MAX`]
//! deep; it never recurses, never allocates, and never reads past the bytes it was given. Must not know: providers,
//! dialects, HTTP.

mod elements;
mod error;
mod location;
mod scan;
mod text;
mod walker;

pub use elements::{Elements, element};
pub use error::{JsonError, JsonErrorKind};
pub use location::{Location, Segment};
pub use text::{Text, spelled, unescaped};
pub use walker::{DEPTH_MAX, Event, Walker, integer};

#[cfg(test)]
mod tests;
