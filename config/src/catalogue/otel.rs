//! Rows of the export of spans. What the standard variables `OTEL_*` say, and what a receiver needs, is settled behind all layers
//! (`load::otel`).

use serde_json::Value;

use super::value::{flag, float, int, one_of, optional_int, optional_secret, optional_text, owned_text, parsed, texts};
use super::{Field, Kind, Literal, Setting, Unfit, set};
use crate::settings::{OtelCompression, OtelContent, OtelReceiver, OtelSemconv};
use crate::vocab::SharedSecret;

const COMPRESSIONS: [(&str, OtelCompression); 2] = [("none", OtelCompression::None), ("gzip", OtelCompression::Gzip)];
const CONTENTS: [(&str, OtelContent); 3] =
    [("none", OtelContent::None), ("masked", OtelContent::Masked), ("full", OtelContent::Full)];
const SEMCONVS: [(&str, OtelSemconv); 2] = [("latest", OtelSemconv::Latest), ("1.36", OtelSemconv::V1_36)];
const RECEIVER: &[Field] = &[
    Field::optional("name", Kind::TagName),
    Field::optional("endpoint", Kind::Name),
    Field::optional("traces_endpoint", Kind::Name),
    Field::optional("headers", Kind::TextList),
    Field::optional("timeout_ms", Kind::millis(1)),
    Field::optional("compression", Kind::Choice(&["none", "gzip"])),
    Field::optional("content", Kind::Choice(&["none", "masked", "full"])),
    Field::optional("semconv", Kind::Choice(&["latest", "1.36"])),
    Field::optional("tenants", Kind::TextList),
    Field::optional("clean_sample_rate", Kind::UNIT),
    Field::optional("reported", Kind::Bool),
    Field::optional("tries", Kind::Bool),
    Field::optional("metrics", Kind::Bool),
    Field::optional("metrics_endpoint", Kind::Name),
    Field::optional("protocol", Kind::Choice(&["http/protobuf"])),
];

pub(super) static SETTINGS: &[Setting] = &[
    Setting::built(
        "otel_export.enabled",
        Kind::Bool,
        Literal::Bool(false),
        "Send finished calls as OpenTelemetry spans to the receivers below. Ours.",
        set!(otel_export.enabled, flag),
    )
    .env("SERVICE_OTEL_EXPORT_ENABLED"),
    Setting::built(
        "otel_export.service_name",
        Kind::Name,
        Literal::Text("weir"),
        "The attribute service.name of what is sent. Ours.",
        set!(otel_export.service_name, owned_text),
    )
    .env("OTEL_SERVICE_NAME"),
    Setting::built(
        "otel_export.resource_attributes",
        Kind::TextList,
        Literal::EmptyList,
        "Further attributes of the resource, each as name=value; OTEL_RESOURCE_ATTRIBUTES adds to them. Ours.",
        set!(otel_export.resource_attributes, texts),
    ),
    Setting::built(
        "otel_export.metrics_interval_seconds",
        Kind::Int { min: 1, max: 86_400 },
        Literal::Int(60),
        "How often receivers with metrics: true are sent what /metrics shows. Ours.",
        set!(otel_export.metrics_interval_seconds, int),
    ),
    Setting::built(
        "otel_export.receivers",
        Kind::Records(RECEIVER),
        Literal::EmptyList,
        "Who is sent spans by OTLP/HTTP, at most 16. endpoint, to which /v1/traces is added, or traces_endpoint, the whole URL; headers \
         (name=value), timeout_ms (10000) and compression (none); where one has neither address, the variables OTEL_EXPORTER_OTLP_* say \
         these. content is none, masked or full; semconv is latest (0.1.0 of the conventions for generative AI) or 1.36; tenants (all); \
         clean_sample_rate (1.0) is the share of the traces whose calls without findings are sent; reported (false) sends calls, too, \
         that others reported; tries (false) makes spans of the tries at several upstreams; metrics (false) sends what /metrics shows, too, \
         to /v1/metrics below endpoint or to metrics_endpoint, the whole URL; protocol is http/protobuf; name is what the store remembers it by. Ours.",
        set!(otel_export.receivers, receivers),
    )
    .secret(),
];

fn receivers(value: &Value) -> Result<Vec<OtelReceiver>, Unfit> {
    value.as_array().ok_or(Unfit)?.iter().map(receiver).collect()
}

fn receiver(entry: &Value) -> Result<OtelReceiver, Unfit> {
    let entry = entry.as_object().ok_or(Unfit)?;
    let field = |name: &str| entry.get(name).filter(|value| !value.is_null());
    let list = |name: &str| field(name).map_or(Ok(Vec::new()), texts);
    let usual = OtelReceiver::default();
    Ok(OtelReceiver {
        name: field("name").map_or(Ok(None), optional_text)?,
        endpoint: field("endpoint").map_or(Ok(None), optional_secret)?,
        traces_endpoint: field("traces_endpoint").map_or(Ok(None), optional_secret)?,
        headers: list("headers")?.into_iter().map(SharedSecret::new).collect(),
        timeout_ms: field("timeout_ms").map_or(Ok(None), optional_int)?,
        compression: field("compression").map(|value| one_of(value, &COMPRESSIONS)).transpose()?,
        content: field("content").map_or(Ok(usual.content), |value| one_of(value, &CONTENTS))?,
        semconv: field("semconv").map_or(Ok(usual.semconv), |value| one_of(value, &SEMCONVS))?,
        tenants: list("tenants")?.into_iter().map(|id| parsed(&Value::from(id))).collect::<Result<_, _>>()?,
        clean_sample_rate: field("clean_sample_rate").map_or(Ok(usual.clean_sample_rate), float)?,
        metrics: field("metrics").map_or(Ok(usual.metrics), flag)?,
        metrics_endpoint: field("metrics_endpoint").map_or(Ok(None), optional_secret)?,
        tries: field("tries").map_or(Ok(usual.tries), flag)?,
        reported: field("reported").map_or(Ok(usual.reported), flag)?,
    })
}
