//! Rows of the export to a SIEM. Addresses are checked behind all layers (`load::siem`).

use serde_json::Value;

use super::value::{flag, one_of, optional_int, optional_text, owned_text, parsed, texts};
use super::{Field, Kind, Literal, Setting, Unfit, set};
use crate::settings::{SiemFormat, SiemReceiver};
use crate::vocab::Severity;

const FORMATS: [(&str, SiemFormat); 3] =
    [("cef", SiemFormat::Cef), ("ocsf", SiemFormat::Ocsf), ("ecs", SiemFormat::Ecs)];
const RECEIVER: &[Field] = &[
    Field::optional("name", Kind::TagName),
    Field::required("url", Kind::Name),
    Field::optional("format", Kind::Choice(&["cef", "ocsf", "ecs"])),
    Field::optional("min_severity", Kind::SEVERITY),
    Field::optional("refusals", Kind::Bool),
    Field::optional("evidence", Kind::Bool),
    Field::optional("tenants", Kind::TextList),
    Field::optional("max_per_second", Kind::u32_at_least(1)),
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
        "Who is sent them by syslog (RFC 5424, lengths in front of messages), at most 16. url is tcp://host:port or tls://host:port; \
         format is cef (default), ocsf or ecs; min_severity (Low) of findings; refusals (true) are calls that the gateway answered \
         itself; evidence (false) sends the words that findings quote; tenants (all; administrative events go to receivers of all \
         tenants); max_per_second (no bound); name is what the store remembers it by. Ours.",
        set!(siem_export.receivers, receivers),
    ),
];

fn receivers(value: &Value) -> Result<Vec<SiemReceiver>, Unfit> {
    value.as_array().ok_or(Unfit)?.iter().map(receiver).collect()
}

fn receiver(entry: &Value) -> Result<SiemReceiver, Unfit> {
    let entry = entry.as_object().ok_or(Unfit)?;
    let field = |name: &str| entry.get(name).filter(|value| !value.is_null());
    let tenants = field("tenants").map_or(Ok(Vec::new()), texts)?;
    Ok(SiemReceiver {
        name: field("name").map_or(Ok(None), optional_text)?,
        url: owned_text(entry.get("url").ok_or(Unfit)?)?,
        format: field("format").map_or(Ok(SiemFormat::Cef), |value| one_of(value, &FORMATS))?,
        min_severity: field("min_severity").map_or(Ok(Severity::Low), parsed)?,
        refusals: field("refusals").map_or(Ok(true), flag)?,
        evidence: field("evidence").map_or(Ok(false), flag)?,
        tenants: tenants.into_iter().map(|id| parsed(&Value::from(id))).collect::<Result<_, _>>()?,
        max_per_second: field("max_per_second").map_or(Ok(None), optional_int)?,
    })
}
