//! The JSON form of an export request: lowerCamelCase, ids in hexadecimal, integers of 64 bits as texts or numbers, enums as numbers
//! or names. A field of another type costs its span, the wrong shape of the whole the request.

use serde_json::{Map, Value};

use super::{Attributes, DEPTH_MAX, Origin, Raw, RawEvent, Spans, Unreadable, VALUES_MAX, report};

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
        let about = match resource.remove("resource") {
            Some(Value::Object(mut about)) => attributes(&mut about).unwrap_or_default(),
            _ => Attributes::new(),
        };
        let mut origin = Origin::of(about);
        for scope in list(&mut resource, "scopeSpans")? {
            let Value::Object(mut scope) = scope else {
                return Err(Unreadable::Shape("scopeSpans", "a list of objects"));
            };
            origin.set_scope(scope.get("scope").and_then(|scope| scope.get("name")?.as_str()).unwrap_or(""));
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

fn read_span(span: Value) -> Result<Raw, String> {
    let Value::Object(mut span) = span else { return Err("a span must be a JSON object".to_owned()) };
    let mut raw = Raw {
        trace_id: id(&span, "traceId")?,
        span_id: id(&span, "spanId")?,
        parent_span_id: id(&span, "parentSpanId")?,
        name: text(&mut span, "name")?,
        start_ns: integer(&span, "startTimeUnixNano")?,
        end_ns: integer(&span, "endTimeUnixNano")?,
        attributes: attributes(&mut span)?,
        ..Raw::default()
    };
    if let Some(Value::Array(events)) = span.remove("events") {
        for event in events {
            let Value::Object(mut event) = event else { return Err("`events` must be a list of objects".to_owned()) };
            let (time_ns, name) = (integer(&event, "timeUnixNano")?, text(&mut event, "name")?);
            raw.events.push(RawEvent { time_ns, name, attributes: attributes(&mut event)? });
        }
    }
    if let Some(Value::Object(mut status)) = span.remove("status") {
        raw.is_error = match status.get("code") {
            Some(Value::String(name)) => name == "STATUS_CODE_ERROR" || name == "2",
            Some(code) => code.as_u64() == Some(2),
            None => false,
        };
        raw.status_message = text(&mut status, "message")?;
    }
    Ok(raw)
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

fn attributes(from: &mut Map<String, Value>) -> Result<Attributes, String> {
    match from.remove("attributes") {
        None | Some(Value::Null) => Ok(Attributes::new()),
        Some(Value::Array(pairs)) => pairs.into_iter().filter_map(|pair| pair_of(pair, 0).transpose()).collect(),
        Some(_) => Err("`attributes` must be a list".to_owned()),
    }
}

fn pair_of(pair: Value, depth: usize) -> Result<Option<(String, Value)>, String> {
    let Value::Object(mut pair) = pair else { return Err("`attributes` must be a list of objects".to_owned()) };
    let name = text(&mut pair, "key")?;
    let value = pair.remove("value").map_or(Ok(Value::Null), |value| plain(value, depth))?;
    Ok(Some((name, value)).filter(|(name, _)| !name.is_empty()))
}

/// A value without the protocol's wrapping.
fn plain(value: Value, depth: usize) -> Result<Value, String> {
    let Value::Object(fields) = value else { return Err("an attribute's `value` must be an object".to_owned()) };
    if depth > DEPTH_MAX {
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
                values.into_iter().map(|value| plain(value, depth + 1)).collect::<Result<_, _>>().map(Value::Array)
            }
            Some(_) => fault(),
        },
        ("kvlistValue", Value::Object(mut list)) => match list.remove("values") {
            None | Some(Value::Null) => Ok(Value::Object(Map::new())),
            Some(Value::Array(pairs)) => {
                let pairs = pairs.into_iter().filter_map(|pair| pair_of(pair, depth + 1).transpose());
                pairs.collect::<Result<_, _>>().map(Value::Object)
            }
            Some(_) => fault(),
        },
        _ => fault(),
    }
}
