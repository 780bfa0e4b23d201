//! What the protocol says of a span beside its attributes and events, as attributes: its kind, the spans it is linked with, the state
//! of its trace, and what its sender has left out. The names are those that OpenTelemetry gives them where a format has no fields.

use serde_json::{Map, Value};

use super::{Attributes, LINKS_MAX, Raw, RawLink, fields};

/// Kinds of spans by their numbers; 0 is none.
pub(super) const KINDS: [&str; 6] = ["", "internal", "server", "client", "producer", "consumer"];
/// What a sender may have left out, in the order of [`Raw::dropped`].
const DROPPED: [&str; 3] = ["otel.dropped_attributes_count", "otel.dropped_events_count", "otel.dropped_links_count"];

/// Takes it out of a span.
pub(super) fn take(raw: &mut Raw) -> Attributes {
    let mut details = Attributes::new();
    let mut put = |name: &str, value: Value| details.push((name.to_owned(), value));
    let kind = usize::try_from(raw.kind).ok().and_then(|kind| KINDS.get(kind)).filter(|kind| !kind.is_empty());
    if let Some(kind) = kind {
        put("span.kind", Value::from(*kind));
    }
    if !raw.trace_state.is_empty() {
        put("w3c.tracestate", fields::cut(std::mem::take(&mut raw.trace_state).into(), fields::VALUE_BYTES_MAX));
    }
    if !raw.links.is_empty() {
        let links = std::mem::take(&mut raw.links).into_iter().take(LINKS_MAX).map(link).collect();
        put("span.links", fields::cut(Value::Array(links), fields::VALUE_BYTES_MAX));
    }
    for (name, count) in DROPPED.into_iter().zip(raw.dropped).filter(|(_, count)| *count > 0) {
        put(name, count.into());
    }
    details
}

/// The ids are hexadecimal, as the protocol has them in JSON.
fn link(link: RawLink) -> Value {
    let mut fields = Map::new();
    for (name, id) in [("trace_id", link.trace_id), ("span_id", link.span_id)] {
        fields.insert(name.to_owned(), super::hex(&id).into());
    }
    if !link.trace_state.is_empty() {
        fields.insert("tracestate".to_owned(), link.trace_state.into());
    }
    if !link.attributes.is_empty() {
        fields.insert("attributes".to_owned(), Value::Object(link.attributes.into_iter().collect()));
    }
    Value::Object(fields)
}
