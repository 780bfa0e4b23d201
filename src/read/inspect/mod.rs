//! Reading requests: who they are for, which text they carry, and where it stands.
//!
//! Invariants: pure (bytes in, views out); every string a model could read ends up in the text, whatever the shape of
//! the body; nothing here panics or recurses on input, and memory is bounded by `text_max`. Must not know: the
//! runtime, the wire, findings, the answer side (`observe`).

mod binary;
mod coded;
pub mod decode;
mod expect;
mod form;
mod frame;
mod gather;
mod keys;
mod lines;
mod part;
mod place;
pub mod provider;
pub mod request;
mod rpc;
mod sender;
mod walk;
mod zone;
mod zones;

pub use coded::percent_encoded;
pub use decode::{Decoded, decode_body, decode_while};
pub use expect::{Declared, Takes, announces_binary};
pub use part::{Label, Replaced, TextPart};
pub use place::{Spelling, Spot, Spotter};
pub use provider::{
    Route, array_stream, endpoint_in_path, fetched_results, is_chat_completion, model_in_path, model_in_query,
    models_in_query, provider_of_host, provider_of_path, retrieves_response, route,
};
pub use request::{RequestView, read_request};
pub use rpc::RpcCall;
pub use sender::Sender;
pub use zone::{Zone, ZoneKind, Zones};
pub use zones::{ZoneAsk, find_zones, find_zones_by};

#[cfg(test)]
mod tests;
