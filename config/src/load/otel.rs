//! What receivers of spans need, and what the variables of OpenTelemetry's SDKs say about them (OpenTelemetry Protocol Exporter, "Configuration
//! Options"): those for traces win over those for all signals.

use std::collections::{BTreeMap, BTreeSet};

use super::env::variable;
use super::layers::Layers;
use super::secrets::{NO_URL, is_url};
use crate::error::{Place, Violation};
use crate::settings::{OTEL_RECEIVERS_MAX, OtelCompression, OtelExport, OtelReceiver, Settings};
use crate::vocab::SharedSecret;

const RECEIVERS: &str = "otel_export.receivers";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// Takes over what the variables say, and refuses receivers that could never be sent anything.
pub(super) fn settle(settings: &mut Settings, env: &BTreeMap<String, String>, layers: &mut Layers) {
    let export = &mut settings.otel_export;
    if export.enabled {
        read_variables(export, env, layers);
    }
    if export.enabled && export.receivers.is_empty() {
        layers.warnings.push(format!(
            "otel_export.enabled: there is no receiver to send spans to; set `{RECEIVERS}`, or {ENDPOINT}"
        ));
    }
    if export.receivers.len() > OTEL_RECEIVERS_MAX {
        let problem = format!("{} receivers are more than {OTEL_RECEIVERS_MAX}", export.receivers.len());
        refuse(layers, RECEIVERS.to_owned(), problem, "take some out");
    }
    let mut names = BTreeSet::new();
    for (place, receiver) in export.receivers.iter().enumerate() {
        if let Some((field, problem)) = fault(receiver, export.enabled) {
            refuse(layers, format!("{RECEIVERS}[{place}].{field}"), problem.to_owned(), "correct it");
        }
        if !names.insert(receiver.label(place)) {
            let problem = "is the name of another receiver, too".to_owned();
            refuse(layers, format!("{RECEIVERS}[{place}].name"), problem, "name each by itself");
        }
    }
    advise_on_grpc(export, layers);
    for (place, pair) in export.resource_attributes.iter().enumerate() {
        if pair.split_once('=').is_none_or(|(name, _)| name.trim().is_empty()) {
            let setting = "otel_export.resource_attributes";
            refuse(layers, format!("{setting}[{place}]"), "has to be name=value".to_owned(), "correct it");
        }
    }
}

/// Says what to write where somebody expects gRPC, by its name or by its port.
fn advise_on_grpc(export: &OtelExport, layers: &mut Layers) {
    let is_protocol = |path: &str| path.starts_with(RECEIVERS) && path.ends_with(".protocol");
    for violation in &mut layers.violations {
        if violation.path.as_deref().is_some_and(is_protocol) {
            violation.advice =
                "spans are sent by HTTP: leave it out, and name the port that takes OTLP/HTTP, usually 4318".to_owned();
        }
    }
    let is_of_grpc = |receiver: &OtelReceiver| {
        receiver.url().is_some_and(|url| url.split('/').nth(2).is_some_and(|host| host.ends_with(":4317")))
    };
    let place = export.receivers.iter().position(|receiver| export.enabled && is_of_grpc(receiver));
    if let Some(place) = place.filter(|_| !layers.warnings.iter().any(|said| said.contains("http/protobuf"))) {
        let said = "port 4317 usually takes gRPC alone; spans are sent by http/protobuf, usually on port 4318";
        layers.warnings.push(format!("{RECEIVERS}[{place}]: {said}"));
    }
}

/// The first thing that is wrong with a receiver: the field and why. Never the value, which may be a credential.
fn fault(receiver: &OtelReceiver, is_used: bool) -> Option<(&'static str, &'static str)> {
    for (field, url) in [
        ("endpoint", &receiver.endpoint),
        ("traces_endpoint", &receiver.traces_endpoint),
        ("metrics_endpoint", &receiver.metrics_endpoint),
    ] {
        if url.as_ref().is_some_and(|url| !is_url(url.expose())) {
            return Some((field, NO_URL));
        }
    }
    if is_used && receiver.url().is_none() {
        return Some(("endpoint", "is needed, or the variable OTEL_EXPORTER_OTLP_ENDPOINT"));
    }
    if receiver.metrics && !receiver.tenants.is_empty() {
        return Some(("metrics", "does not go with `tenants`: metrics are of all of them"));
    }
    if is_used && receiver.metrics && receiver.metrics_url().is_none() {
        return Some(("metrics_endpoint", "is needed, or `endpoint`, where `metrics` is true"));
    }
    let is_name =
        |name: &[u8]| name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte));
    let is_value = |value: &[u8]| value.iter().all(|byte| (0x20..0x7f).contains(byte));
    let legal = receiver.fields().filter(|(name, value)| is_name(name) && is_value(value)).count();
    (legal != receiver.headers.len()).then_some(("headers", "have to be header=value, each a legal field of HTTP"))
}

fn read_variables(export: &mut OtelExport, env: &BTreeMap<String, String>, layers: &mut Layers) {
    if export.receivers.is_empty() && (variable(env, ENDPOINT).is_some() || variable(env, TRACES_ENDPOINT).is_some()) {
        export.receivers.push(OtelReceiver::default());
    }
    let secret = |name: &str| variable(env, name).map(SharedSecret::new);
    let of_traces = |what: &str| {
        let (own, general) = (format!("OTEL_EXPORTER_OTLP_TRACES_{what}"), format!("OTEL_EXPORTER_OTLP_{what}"));
        variable(env, &own)
            .map(|value| (own, value.to_owned()))
            .or_else(|| variable(env, &general).map(|value| (general, value.to_owned())))
    };
    let mut is_read = false;
    for receiver in &mut export.receivers {
        if receiver.url().is_some() {
            continue;
        }
        is_read = true;
        receiver.endpoint = secret(ENDPOINT);
        receiver.traces_endpoint = secret(TRACES_ENDPOINT);
        if receiver.headers.is_empty()
            && let Some((_, headers)) = of_traces("HEADERS")
        {
            receiver.headers =
                pairs(&headers).map(|(name, value)| SharedSecret::new(format!("{name}={value}"))).collect();
        }
        receiver.timeout_ms = receiver.timeout_ms.or_else(|| {
            let (name, text) = of_traces("TIMEOUT")?;
            let read = text.parse().ok().filter(|millis| (1..=31_536_000_000_u64).contains(millis));
            if read.is_none() {
                layers.warnings.push(format!("{name}: `{text}` is not a number of milliseconds; ignored"));
            }
            read
        });
        receiver.compression = receiver.compression.or_else(|| match of_traces("COMPRESSION")?.1.as_str() {
            "gzip" => Some(OtelCompression::Gzip),
            _ => Some(OtelCompression::None),
        });
    }
    if is_read
        && let Some((name, protocol)) = of_traces("PROTOCOL")
        && protocol != "http/protobuf"
    {
        layers.warnings.push(format!(
            "{name}: `{protocol}` is not supported; spans are sent by http/protobuf, usually on port 4318"
        ));
    }
    let mut named: Vec<(String, String)> = export
        .resource_attributes
        .iter()
        .filter_map(|pair| pair.split_once('='))
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .collect();
    for (name, value) in pairs(variable(env, ATTRIBUTES).unwrap_or_default()) {
        if name == "service.name" {
            // OTEL_SERVICE_NAME wins, and so does what somebody wrote in the file.
            if !layers.written.contains_key("otel_export.service_name") {
                export.service_name = value;
            }
            continue;
        }
        named.retain(|(known, _)| *known != name);
        named.push((name, value));
    }
    if variable(env, ATTRIBUTES).is_some() {
        export.resource_attributes = named.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    }
}

/// `name=value,name=value`, percent-encoded (W3C Baggage); what is no pair is left out.
fn pairs(list: &str) -> impl Iterator<Item = (String, String)> {
    let read = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let name = decoded(name.trim());
        (!name.is_empty()).then(|| (name, decoded(value.trim())))
    };
    list.split(',').filter_map(read)
}

/// Without percent-encoding; what is none stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        let digits =
            (*byte == b'%').then(|| behind.get(..2)).flatten().filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        let read = digits.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        bytes.push(read.unwrap_or(*byte));
        rest = if read.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn refuse(layers: &mut Layers, path: String, problem: String, advice: &str) {
    let setting = if path.starts_with(RECEIVERS) { RECEIVERS } else { "otel_export.resource_attributes" };
    let written = layers.written.get(setting).or_else(|| layers.written.get("otel_export.enabled"));
    layers.violations.push(Violation {
        place: written.map_or(Place::Variable(ENDPOINT), |written| written.place.clone()),
        path: Some(path),
        problem,
        accepted: None,
        advice: advice.to_owned(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_pairs_are_decoded() {
        let read = |text| pairs(text).collect::<Vec<_>>();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            read("authorization=Basic%20YTpi==, x = 1 ,,bad,=no"),
            [pair("authorization", "Basic YTpi=="), pair("x", "1")]
        );
        assert_eq!(read("a=%zz%2"), [pair("a", "%zz%2")]);
    }
}
