//! A receiver's view of an export request: `ExportTraceServiceRequest` decoded by the numbers of the protocol's definitions.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde_json::{Value, json};
use weir_fake_provider::http::Request;

/// A span as it came.
#[derive(Debug, Clone)]
pub(crate) struct OtlpSpan {
    /// 32 and 16 hexadecimal digits; no parent is the empty text.
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) kind: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) attributes: BTreeMap<String, Value>,
    /// In their order.
    pub(crate) events: Vec<(String, BTreeMap<String, Value>)>,
    /// 2 is an error.
    pub(crate) status: u64,
    pub(crate) flags: u64,
    pub(crate) resource: BTreeMap<String, Value>,
    pub(crate) scope: String,
    pub(crate) schema_url: String,
}

impl OtlpSpan {
    pub(crate) fn get(&self, name: &str) -> Value {
        self.attributes.get(name).cloned().unwrap_or_default()
    }
}

/// The body without its coding.
pub(crate) fn otlp_body(request: &Request) -> Vec<u8> {
    if request.header("content-encoding") != Some("gzip") {
        return request.body.clone();
    }
    let mut body = Vec::new();
    flate2::read::GzDecoder::new(&request.body[..]).read_to_end(&mut body).expect("gzip");
    body
}

/// The spans of a request, which has to be one.
pub(crate) fn otlp_spans(request: &Request) -> Vec<OtlpSpan> {
    assert_eq!((request.method.as_str(), request.header("content-type")), ("POST", Some("application/x-protobuf")));
    let body = otlp_body(request);
    let mut all = Vec::new();
    for resource_spans in within(&body, 1) {
        let resource = within(resource_spans, 1).first().map(|resource| attributes(resource, 1)).unwrap_or_default();
        for scope_spans in within(resource_spans, 2) {
            let scope = within(scope_spans, 1).first().map(|scope| text(scope, 1)).unwrap_or_default();
            let schema_url = text(scope_spans, 3);
            all.extend(within(scope_spans, 2).into_iter().map(|bytes| span(bytes, &resource, &scope, &schema_url)));
        }
    }
    all
}

fn span(bytes: &[u8], resource: &BTreeMap<String, Value>, scope: &str, schema_url: &str) -> OtlpSpan {
    let id = |number| within(bytes, number).first().map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect());
    let events = within(bytes, 11).into_iter().map(|event| (text(event, 2), attributes(event, 3))).collect();
    OtlpSpan {
        trace: id(1).unwrap_or_default(),
        id: id(2).unwrap_or_default(),
        parent: id(4).unwrap_or_default(),
        name: text(bytes, 5),
        kind: number(bytes, 6),
        start_ns: number(bytes, 7),
        end_ns: number(bytes, 8),
        attributes: attributes(bytes, 9),
        events,
        status: within(bytes, 15).first().map_or(0, |status| number(status, 3)),
        flags: number(bytes, 16),
        resource: resource.clone(),
        scope: scope.to_owned(),
        schema_url: schema_url.to_owned(),
    }
}

/// A point of a metric as it came.
#[derive(Debug, Clone)]
pub(crate) struct OtlpPoint {
    pub(crate) name: String,
    pub(crate) unit: String,
    /// The number of its kind: 5 is a gauge, 7 a sum, 9 a histogram.
    pub(crate) kind: u64,
    pub(crate) is_monotonic: bool,
    /// 2 is cumulative.
    pub(crate) temporality: u64,
    /// In their order.
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) start_ns: u64,
    pub(crate) time_ns: u64,
    /// Of a histogram its sum.
    pub(crate) value: f64,
    pub(crate) count: u64,
    pub(crate) buckets: Vec<u64>,
    pub(crate) bounds: Vec<f64>,
    /// Trace and span of its exemplar.
    pub(crate) exemplar: Option<(String, String)>,
}

/// The points of a request with metrics, which has to be one, and its resource.
pub(crate) fn otlp_points(request: &Request) -> (Vec<OtlpPoint>, BTreeMap<String, Value>) {
    assert_eq!((request.method.as_str(), request.header("content-type")), ("POST", Some("application/x-protobuf")));
    let body = otlp_body(request);
    let resource_metrics = within(&body, 1)[0];
    let resource = attributes(within(resource_metrics, 1)[0], 1);
    let mut all = Vec::new();
    for metric in within(resource_metrics, 2).into_iter().flat_map(|scope| within(scope, 2)) {
        let kinds = [5, 7, 9].into_iter().filter_map(|kind| Some((kind, *within(metric, kind).first()?)));
        for (kind, data) in kinds {
            let of_metric = (text(metric, 1), text(metric, 3), kind, data);
            all.extend(within(data, 1).into_iter().map(|bytes| point(&of_metric, bytes)));
        }
    }
    (all, resource)
}

fn point((name, unit, kind, data): &(String, String, u64, &[u8]), bytes: &[u8]) -> OtlpPoint {
    let own = if *kind == 9 { 9 } else { 7 };
    let words = |packed: &[u8]| -> Vec<u64> {
        packed.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    };
    let list = |number| within(bytes, number).first().map(|packed| words(packed)).unwrap_or_default();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let labels = within(bytes, own).into_iter().map(|pair| (text(pair, 1), text(within(pair, 2)[0], 1))).collect();
    OtlpPoint {
        name: name.clone(),
        unit: unit.clone(),
        kind: *kind,
        is_monotonic: number(data, 3) == 1,
        temporality: number(data, 2),
        labels,
        start_ns: number(bytes, 2),
        time_ns: number(bytes, 3),
        value: match kind {
            5 => f64::from_bits(number(bytes, 4)),
            7 => number(bytes, 6) as f64,
            _ => f64::from_bits(number(bytes, 5)),
        },
        count: if *kind == 9 { number(bytes, 4) } else { 0 },
        buckets: if *kind == 9 { list(6) } else { Vec::new() },
        bounds: if *kind == 9 { list(7).into_iter().map(f64::from_bits).collect() } else { Vec::new() },
        exemplar: within(bytes, 8).first().map(|exemplar| (hex(within(exemplar, 5)[0]), hex(within(exemplar, 4)[0]))),
    }
}

fn attributes(bytes: &[u8], number: u64) -> BTreeMap<String, Value> {
    let pairs = within(bytes, number);
    let read: BTreeMap<_, _> = pairs.iter().map(|pair| (text(pair, 1), value(within(pair, 2)[0]))).collect();
    assert_eq!(read.len(), pairs.len(), "a name stands twice: {read:?}");
    read
}

/// An `AnyValue`.
fn value(bytes: &[u8]) -> Value {
    let (number, field) = fields(bytes).into_iter().next().expect("a value");
    match (number, field) {
        (1, Field::Bytes(text)) => json!(std::str::from_utf8(text).expect("UTF-8")),
        (2, Field::Number(flag)) => json!(flag == 1),
        (3, Field::Number(number)) => json!(number.cast_signed()),
        (4, Field::Number(bits)) => json!(f64::from_bits(bits)),
        (5, Field::Bytes(list)) => within(list, 1).into_iter().map(value).collect(),
        (number, _) => panic!("no value has the number {number}"),
    }
}

fn text(bytes: &[u8], number: u64) -> String {
    let found = within(bytes, number).first().map(|text| std::str::from_utf8(text).expect("UTF-8").to_owned());
    found.unwrap_or_default()
}

fn number(bytes: &[u8], wanted: u64) -> u64 {
    let found = fields(bytes).into_iter().find_map(|(number, field)| match field {
        Field::Number(value) if number == wanted => Some(value),
        _ => None,
    });
    found.unwrap_or(0)
}

fn within(bytes: &[u8], wanted: u64) -> Vec<&[u8]> {
    let found = fields(bytes).into_iter().filter_map(|(number, field)| match field {
        Field::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    });
    found.collect()
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return value;
            }
        }
        panic!("a number of more than ten bytes")
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let len = match key & 7 {
            0 => {
                all.push((key >> 3, Field::Number(varint(&mut bytes))));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            other => panic!("no field has the type {other}"),
        };
        let (field, rest) = bytes.split_at(len);
        bytes = rest;
        all.push((
            key >> 3,
            match key & 7 {
                1 => Field::Number(u64::from_le_bytes(field.try_into().unwrap())),
                5 => Field::Number(u32::from_le_bytes(field.try_into().unwrap()).into()),
                _ => Field::Bytes(field),
            },
        ));
    }
    all
}
