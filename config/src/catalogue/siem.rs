//! Rows of the export to a SIEM. Addresses are checked behind all layers (`load::siem`).

use serde_json::Value;

use super::value::{flag, one_of, optional_int, optional_path, optional_text, parsed, text, texts};
use super::{Field, Kind, Literal, Setting, Unfit, set};
use crate::settings::{OtelCompression, SiemBatch, SiemFormat, SiemReceiver};
use crate::vocab::{Severity, SharedSecret};

const FORMATS: [(&str, SiemFormat); 3] =
    [("cef", SiemFormat::Cef), ("ocsf", SiemFormat::Ocsf), ("ecs", SiemFormat::Ecs)];
const BATCHES: [(&str, SiemBatch); 4] = [
    ("ndjson", SiemBatch::Ndjson),
    ("array", SiemBatch::Array),
    ("splunk", SiemBatch::Splunk),
    ("elastic", SiemBatch::Elastic),
];
const COMPRESSIONS: [(&str, OtelCompression); 2] = [("none", OtelCompression::None), ("gzip", OtelCompression::Gzip)];
const RECEIVER: &[Field] = &[
    Field::optional("name", Kind::TagName),
    Field::required("url", Kind::Name),
    Field::optional("format", Kind::Choice(&["cef", "ocsf", "ecs"])),
    Field::optional("min_severity", Kind::SEVERITY),
    Field::optional("refusals", Kind::Bool),
    Field::optional("evidence", Kind::Bool),
    Field::optional("tenants", Kind::TextList),
    Field::optional("max_per_second", Kind::u32_at_least(1)),
    Field::optional("batch", Kind::Choice(&["ndjson", "array", "splunk", "elastic"])),
    Field::optional("headers", Kind::TextList),
    Field::optional("token_env", Kind::Name),
    Field::optional("token_file", Kind::File),
    Field::optional("timeout_ms", Kind::millis(1)),
    Field::optional("compression", Kind::Choice(&["none", "gzip"])),
];

pub(super) static SETTINGS: &[Setting] = &[
    Setting::built(
        "siem_export.enabled",
        Kind::Bool,
        Literal::Bool(false),
        "Send findings, refusals and administrative events to the receivers below. Ours.",
        set!(siem_export.enabled, flag),
    ),
    Setting::built(
        "siem_export.receivers",
        Kind::Records(RECEIVER),
        Literal::EmptyList,
        "Who is sent them, at most 16. url is tcp://host:port or tls://host:port for syslog (RFC 5424, lengths in front of messages), \
         https:// or http:// for batches; format is cef, ocsf or ecs (cef for syslog, ecs for batch: elastic, ocsf else; batches are JSON); \
         min_severity (Low) of findings; refusals (true) are calls that the gateway answered itself; evidence (false) sends the words that \
         findings quote; tenants (all; administrative events go to receivers of all tenants); max_per_second (no bound) events. Of \
         batches: batch is ndjson (default), array, splunk (HTTP Event Collector) or elastic (bulk API); headers (name=value), where \
         {token} stands for what the variable token_env or the file token_file holds, which is read again for each request; timeout_ms \
         (10000) and compression (none) of a request. name is what the store remembers it by. Ours.",
        set!(siem_export.receivers, receivers),
    )
    .secret(),
];

fn receivers(value: &Value) -> Result<Vec<SiemReceiver>, Unfit> {
    value.as_array().ok_or(Unfit)?.iter().map(receiver).collect()
}

fn receiver(entry: &Value) -> Result<SiemReceiver, Unfit> {
    let entry = entry.as_object().ok_or(Unfit)?;
    let field = |name: &str| entry.get(name).filter(|value| !value.is_null());
    let tenants = field("tenants").map_or(Ok(Vec::new()), texts)?;
    let url = text(entry.get("url").ok_or(Unfit)?)?;
    let batch = field("batch").map_or(Ok(SiemBatch::Ndjson), |value| one_of(value, &BATCHES))?;
    let usual = match batch {
        _ if !url.starts_with("http") => SiemFormat::Cef,
        SiemBatch::Elastic => SiemFormat::Ecs,
        _ => SiemFormat::Ocsf,
    };
    Ok(SiemReceiver {
        name: field("name").map_or(Ok(None), optional_text)?,
        url: SharedSecret::new(url),
        format: field("format").map_or(Ok(usual), |value| one_of(value, &FORMATS))?,
        min_severity: field("min_severity").map_or(Ok(Severity::Low), parsed)?,
        refusals: field("refusals").map_or(Ok(true), flag)?,
        evidence: field("evidence").map_or(Ok(false), flag)?,
        tenants: tenants.into_iter().map(|id| parsed(&Value::from(id))).collect::<Result<_, _>>()?,
        max_per_second: field("max_per_second").map_or(Ok(None), optional_int)?,
        batch,
        headers: field("headers").map_or(Ok(Vec::new()), texts)?.into_iter().map(SharedSecret::new).collect(),
        // From the variable that `token_env` names, when all layers are read.
        token: None,
        token_file: field("token_file").map_or(Ok(None), optional_path)?,
        timeout_ms: field("timeout_ms").map_or(Ok(None), optional_int)?,
        compression: field("compression").map_or(Ok(OtelCompression::None), |value| one_of(value, &COMPRESSIONS))?,
    })
}
