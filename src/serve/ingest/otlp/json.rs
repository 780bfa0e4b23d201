//! The JSON form of an export request: lowerCamelCase, ids in hexadecimal, integers of 64 bits as texts or numbers, enums as numbers
//! or names. A field of another type costs its span, the wrong shape of the whole the request.

use serde_json::{Map, Value};

use super::details::KINDS;
use super::{Attributes, DEPTH_MAX, Origin, Raw, RawEvent, RawLink, RawScope, Spans, Unreadable, VALUES_MAX, report};

/// How many values a JSON text holds at most: what stands outside of its strings and separates or opens values.
pub(crate) fn structure(body: &[u8]) -> usize {
    let (mut count, mut at) = (1, 0);
    while let Some(byte) = body.get(at) {
        match byte {
            b'"' => at = end_of_string(body, at + 1),
            b',' | b'[' | b'{' => count += 1,
            _ => {}
        }
        at += 1;
    }
    count
}

/// Where the string that begins at `from` has its closing quote.
fn end_of_string(body: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(found) = body.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if body.get(at) == Some(&b'"') {
            return at;
        }
        at += 2;
    }
    body.len()
}

/// The spans of a request.
pub(crate) fn read_json(body: &[u8]) -> Result<Spans, Unreadable> {
    if structure(body) > VALUES_MAX {
        return Err(Unreadable::TooMany);
    }
    let request: Value = serde_json::from_slice(body).map_err(|error| Unreadable::Json(error.to_string()))?;
    let Value::Object(mut request) = request else { return Err(Unreadable::Shape("the body", "a JSON object")) };
    let mut spans = Spans::default();
    for resource in list(&mut request, "resourceSpans")? {
        let Value::Object(mut resource) = resource else {
            return Err(Unreadable::Shape("resourceSpans", "a list of objects"));
        };
        let mut too_deep = 0;
        let about = match resource.remove("resource") {
            Some(Value::Object(mut about)) => attributes(&mut about, &mut too_deep).unwrap_or_default(),
            _ => Attributes::new(),
        };
        let mut origin = Origin::of(about, too_deep);
        for scope in list(&mut resource, "scopeSpans")? {
            let Value::Object(mut scope) = scope else {
                return Err(Unreadable::Shape("scopeSpans", "a list of objects"));
            };
            let mut too_deep = 0;
            origin.set_scope(read_scope(scope.remove("scope"), &mut too_deep), too_deep);
            for span in list(&mut scope, "spans")? {
                spans.push(|| Ok(read_span(span).and_then(|raw| report(raw, &origin))))?;
            }
        }
    }
    Ok(spans)
}

/// A list of the protocol; empty where it is left out.
fn list(from: &mut Map<String, Value>, name: &'static str) -> Result<Vec<Value>, Unreadable> {
    match from.remove(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(Unreadable::Shape(name, "a list")),
    }
}

/// As much of it as is there: what it says is of many spans, and none of them hangs on it.
fn read_scope(scope: Option<Value>, too_deep: &mut usize) -> RawScope {
    let Some(Value::Object(mut scope)) = scope else { return RawScope::default() };
    RawScope {
        name: text(&mut scope, "name").unwrap_or_default(),
        version: text(&mut scope, "version").unwrap_or_default(),
        attributes: attributes(&mut scope, too_deep).unwrap_or_default(),
    }
}

fn read_span(span: Value) -> Result<Raw, String> {
    let Value::Object(mut span) = span else { return Err("a span must be a JSON object".to_owned()) };
    let mut too_deep = 0;
    let mut raw = Raw {
        trace_id: id(&span, "traceId")?,
        span_id: id(&span, "spanId")?,
        parent_span_id: id(&span, "parentSpanId")?,
        name: text(&mut span, "name")?,
        start_ns: integer(&span, "startTimeUnixNano")?,
        end_ns: integer(&span, "endTimeUnixNano")?,
        attributes: attributes(&mut span, &mut too_deep)?,
        kind: kind(span.get("kind")),
        trace_state: text(&mut span, "traceState")?,
        ..Raw::default()
    };
    for (at, name) in ["droppedAttributesCount", "droppedEventsCount", "droppedLinksCount"].into_iter().enumerate() {
        raw.dropped[at] = integer(&span, name)?;
    }
    for mut event in objects(&mut span, "events")? {
        let (time_ns, name) = (integer(&event, "timeUnixNano")?, text(&mut event, "name")?);
        raw.events.push(RawEvent { time_ns, name, attributes: attributes(&mut event, &mut too_deep)? });
    }
    for mut link in objects(&mut span, "links")? {
        let (trace_id, span_id) = (id(&link, "traceId")?, id(&link, "spanId")?);
        let (trace_state, attributes) = (text(&mut link, "traceState")?, attributes(&mut link, &mut too_deep)?);
        raw.links.push(RawLink { trace_id, span_id, trace_state, attributes });
    }
    if let Some(Value::Object(mut status)) = span.remove("status") {
        raw.is_error = match status.get("code") {
            Some(Value::String(name)) => name == "STATUS_CODE_ERROR" || name == "2",
            Some(code) => code.as_u64() == Some(2),
            None => false,
        };
        raw.status_message = text(&mut status, "message")?;
    }
    raw.left_out.values = too_deep;
    Ok(raw)
}

/// The number of a kind, which may be spelled as its name.
fn kind(kind: Option<&Value>) -> u64 {
    match kind {
        Some(Value::String(name)) => {
            let name = name.strip_prefix("SPAN_KIND_").unwrap_or(name);
            let of_name = KINDS.iter().position(|known| known.eq_ignore_ascii_case(name) && !known.is_empty());
            of_name.unwrap_or(0) as u64
        }
        Some(number) => number.as_u64().unwrap_or(0),
        None => 0,
    }
}

/// A list of objects within a span; empty where it is left out.
fn objects(from: &mut Map<String, Value>, name: &str) -> Result<Vec<Map<String, Value>>, String> {
    let fault = || format!("`{name}` must be a list of objects");
    match from.remove(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            let object = |item| if let Value::Object(object) = item { Ok(object) } else { Err(fault()) };
            items.into_iter().map(object).collect()
        }
        Some(_) => Err(fault()),
    }
}

fn text(from: &mut Map<String, Value>, name: &str) -> Result<String, String> {
    match from.remove(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("`{name}` must be a text")),
    }
}

fn integer(from: &Map<String, Value>, name: &str) -> Result<u64, String> {
    let read = match from.get(name) {
        None | Some(Value::Null) => Some(0),
        Some(Value::String(text)) => text.parse().ok(),
        Some(value) => value.as_u64(),
    };
    read.ok_or_else(|| format!("`{name}` must be a whole number of at least 0, as a text or a number"))
}

fn id(from: &Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    let fault = || format!("`{name}` must be hexadecimal digits");
    match from.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) if text.len() <= 64 => unhex(text).ok_or_else(fault),
        Some(_) => Err(fault()),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    digits.chunks(2).map(|pair| if let [high, low] = pair { Some(high << 4 | low) } else { None }).collect()
}

/// The attributes of an object; values that stand too deep in others are counted.
fn attributes(from: &mut Map<String, Value>, too_deep: &mut usize) -> Result<Attributes, String> {
    match from.remove("attributes") {
        None | Some(Value::Null) => Ok(Attributes::new()),
        Some(Value::Array(pairs)) => {
            pairs.into_iter().filter_map(|pair| pair_of(pair, 0, too_deep).transpose()).collect()
        }
        Some(_) => Err("`attributes` must be a list".to_owned()),
    }
}

fn pair_of(pair: Value, depth: usize, too_deep: &mut usize) -> Result<Option<(String, Value)>, String> {
    let Value::Object(mut pair) = pair else { return Err("`attributes` must be a list of objects".to_owned()) };
    let name = text(&mut pair, "key")?;
    let value = pair.remove("value").map_or(Ok(Value::Null), |value| plain(value, depth, too_deep))?;
    Ok(Some((name, value)).filter(|(name, _)| !name.is_empty()))
}

/// A value without the protocol's wrapping.
fn plain(value: Value, depth: usize, too_deep: &mut usize) -> Result<Value, String> {
    let Value::Object(fields) = value else { return Err("an attribute's `value` must be an object".to_owned()) };
    if depth > DEPTH_MAX {
        *too_deep += 1;
        return Ok(Value::Null);
    }
    let Some((kind, value)) = fields.into_iter().next() else { return Ok(Value::Null) };
    let fault = || Err(format!("`{kind}` holds a value of another type"));
    match (kind.as_str(), value) {
        ("stringValue" | "bytesValue", value @ Value::String(_))
        | ("boolValue", value @ Value::Bool(_))
        | ("intValue" | "doubleValue", value @ Value::Number(_)) => Ok(value),
        ("intValue", Value::String(text)) => text.parse::<i64>().map_or_else(|_| fault(), |value| Ok(value.into())),
        ("doubleValue", Value::String(text)) => Ok(text.parse::<f64>().map_or(Value::Null, Value::from)),
        ("arrayValue", Value::Object(mut array)) => match array.remove("values") {
            None | Some(Value::Null) => Ok(Value::Array(Vec::new())),
            Some(Value::Array(values)) => {
                let values = values.into_iter().map(|value| plain(value, depth + 1, too_deep));
                values.collect::<Result<_, _>>().map(Value::Array)
            }
            Some(_) => fault(),
        },
        ("kvlistValue", Value::Object(mut list)) => match list.remove("values") {
            None | Some(Value::Null) => Ok(Value::Object(Map::new())),
            Some(Value::Array(pairs)) => {
                let pairs = pairs.into_iter().filter_map(|pair| pair_of(pair, depth + 1, too_deep).transpose());
                pairs.collect::<Result<_, _>>().map(Value::Object)
            }
            Some(_) => fault(),
        },
        _ => fault(),
    }
}
