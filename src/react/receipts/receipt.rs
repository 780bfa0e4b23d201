//! One receipt: its fields, its one spelling and its hash.
//!
//! A receipt is a JSON object on a line, without blanks, its names in alphabetical order at every level and every number an integer: there
//! is one spelling of each, which `json.dumps(receipt, sort_keys=True, separators=(",", ":"), ensure_ascii=False)` gives. The signature
//! covers that spelling without the field `signature`; the next receipt's `previous` is the SHA-256 of the whole line.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use weir_config::vocab::Timestamp;
use weir_storage::record::{ANSWERED_BY, SpanRecord};

use super::hex::hex;
use super::key::SigningKey;

/// The attribute of a record in which digests and what else only the data path knows wait for the receipt.
pub const NOTES: &str = "weir.receipt";
/// `previous` of the first receipt.
pub(super) const NO_FORMER: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// Version of the format.
const VERSION: u64 = 1;

/// A receipt that is not signed yet.
pub(super) type Draft = Map<String, Value>;

/// What every receipt says of whoever made it.
pub(super) fn draft(kind: &str, gateway: &str) -> Draft {
    let fields = json!({
        "version": VERSION, "kind": kind, "gateway": gateway, "weir": env!("CARGO_PKG_VERSION"), "issued_at": Timestamp::now().to_string(),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Draft::new(),
    }
}

/// What a receipt says of a call. `settings` is the fingerprint of those in effect.
pub(super) fn of_call(mut draft: Draft, span: &SpanRecord, settings: &str) -> Draft {
    let notes = span.attributes.get(NOTES);
    let note = |name: &str| notes.and_then(|notes| notes.get(name)).cloned().unwrap_or_default();
    let body = |name: &str, text: Option<&String>| match note(name) {
        Value::Null => text.map_or(Value::Null, |text| digest("text", text.as_bytes(), false)),
        noted => noted,
    };
    let who = json!({
        "tenant_id": span.tenant_id, "trace_id": span.trace_id, "span_id": span.span_id,
        "session_sha256": span.session_id.as_deref().map(|session| hex(&Sha256::digest(session))),
        "started_at": span.start_time.to_string(), "ended_at": span.end_time.to_string(),
        "provider": span.provider, "operation": span.operation_name,
        "requested_model": span.model, "served_model": note("served_model"),
        "status": span.status_code, "answered_by": span.tags.get(ANSWERED_BY).map_or("provider", String::as_str),
    });
    let what = json!({
        "enforcement": span.enforcement, "score": span.security_score, "findings": findings(span),
        "request": body("request", span.prompt.as_ref()), "response": body("response", span.response.as_ref()),
        "redactions": note("redactions").as_u64().unwrap_or(0),
        "input_tokens": span.prompt_tokens, "output_tokens": span.completion_tokens,
        "cost_nano_usd": span.estimated_cost_usd.map(nano_usd),
        "rules": note("rules"), "settings_sha256": settings,
    });
    for fields in [who, what] {
        if let Value::Object(fields) = fields {
            draft.extend(fields);
        }
    }
    draft
}

/// Whether a receipt has to make its digests from the record's texts: calls that were recorded before receipts were switched on.
pub(super) fn lacks_digests(span: &SpanRecord) -> bool {
    let notes = span.attributes.get(NOTES);
    ["request", "response"].iter().any(|side| notes.and_then(|notes| notes.get(side)).is_none_or(Value::is_null))
}

/// What a receipt says of bytes. `complete` is false where these are not all that passed.
pub fn digest(of: &str, bytes: &[u8], complete: bool) -> Value {
    json!({ "of": of, "sha256": hex(&Sha256::digest(bytes)), "bytes": bytes.len() as u64, "complete": complete })
}

/// Types with severities, and how often each was found.
fn findings(span: &SpanRecord) -> Value {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for finding in &span.security_findings {
        *counts.entry((&finding.finding_type, finding.severity.as_str())).or_default() += 1;
    }
    let found = counts.into_iter();
    found.map(|((kind, severity), count)| json!({ "type": kind, "severity": severity, "count": count })).collect()
}

fn nano_usd(dollars: f64) -> u64 {
    let nano = (dollars * 1e9).round();
    if nano.is_finite() && nano > 0.0 { nano as u64 } else { 0 }
}

/// The line of a receipt that stands at this place of its chain, or in none.
pub(super) fn sign(mut draft: Draft, place: Option<(u64, &str)>, key: &SigningKey) -> String {
    if let Some((seq, previous)) = place {
        draft.insert("seq".to_owned(), seq.into());
        draft.insert("previous".to_owned(), previous.into());
    }
    draft.insert("key".to_owned(), key.public().id().into());
    let signature = key.sign(&spelled(&draft));
    draft.insert("signature".to_owned(), signature.into());
    spelled(&draft)
}

/// The one spelling: objects are kept in the order of their names.
pub(super) fn spelled(fields: &Map<String, Value>) -> String {
    serde_json::to_string(fields).unwrap_or_default()
}

/// The hash by which the next receipt names this one.
pub(super) fn hash(line: &str) -> String {
    hex(&Sha256::digest(line))
}

/// The hash over those of a session's calls, in their order.
pub(super) fn root<'a>(hashes: impl Iterator<Item = &'a str>) -> String {
    let mut root = Sha256::new();
    hashes.for_each(|hash| root.update(hash.as_bytes()));
    hex(&root.finalize())
}
