//! A request's body on its way to the provider.

use bytes::Bytes;

use crate::record::Permit;

/// The body on its way to the provider.
pub enum Payload {
    /// There is none.
    Empty,
    /// The whole body is in memory.
    Held {
        /// The bytes to forward.
        body: Bytes,
        /// Whether the client sent it chunked; then it is forwarded chunked.
        chunked: bool,
        /// What it took from the body budget.
        permit: Option<Permit>,
    },
    /// It is relayed as it arrives.
    Streamed,
}
