//! The JSON form of an export request: lowerCamelCase, ids in hexadecimal, integers of 64 bits as texts or numbers, enums as numbers
//! or names. A field of another type costs its span, the wrong shape of the whole the request.

use serde_json::{Map, Value};

use super::details::KINDS;
use super::{Attributes, DEPTH_MAX, Origin, Raw, RawEvent, RawLink, RawScope, Spans, Unreadable, VALUES_MAX, report};
use crate::json::{Event, JsonError, Walker};

/// Bytes in memory of an object, with room for eleven members, and of a value in a list or an object beside its text.
const OBJECT_BYTES: usize = 704;
const VALUE_BYTES: usize = 96;

/// What the spans of a JSON request take in memory beside their texts, at most.
pub(crate) fn weight(body: &[u8]) -> usize {
    structure(body).0.saturating_mul(VALUE_BYTES)
}

/// How many values a JSON text holds at most, and how many of them are objects: what stands outside of its strings and separates or opens
/// values.
fn structure(body: &[u8]) -> (usize, usize) {
    let (mut count, mut objects, mut at) = (1, 0, 0);
    while let Some(byte) = body.get(at) {
        match byte {
            b'"' => at = end_of_string(body, at + 1),
            b'{' => (count, objects) = (count + 1, objects + 1),
            b',' | b'[' => count += 1,
            _ => {}
        }
        at += 1;
    }
    (count, objects)
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

/// The spans of a request, one at a time: of all the others only what is kept is in memory. `room` is asked for what one of them takes
/// while it is read, in bytes.
pub(crate) fn read_json(body: &[u8], room: &mut dyn FnMut(usize) -> bool) -> Result<Spans, Unreadable> {
    if structure(body).0 > VALUES_MAX {
        return Err(Unreadable::TooMany);
    }
    let mut trees = Trees { paid: 0, room };
    let request = std::str::from_utf8(body).map_err(|error| Unreadable::Json(error.to_string()))?;
    let [resources] = members(request, ["resourceSpans"], ("the body", "a JSON object"))?;
    let mut spans = Spans::default();
    let mut resources = elements(resources, "resourceSpans")?;
    while let Some(resource) = resources.next_one()? {
        let of_list = ("resourceSpans", "a list of objects");
        let [about, scopes] = members(resource, ["resource", "scopeSpans"], of_list)?;
        let mut too_deep = 0;
        let about = match about.map(|about| trees.read(about)).transpose()? {
            Some(Value::Object(mut about)) => attributes(&mut about, &mut too_deep).unwrap_or_default(),
            _ => Attributes::new(),
        };
        let mut origin = Origin::of(about, too_deep);
        let mut scopes = elements(scopes, "scopeSpans")?;
        while let Some(scope) = scopes.next_one()? {
            let [about, of_scope] = members(scope, ["scope", "spans"], ("scopeSpans", "a list of objects"))?;
            let mut too_deep = 0;
            let about = about.map(|about| trees.read(about)).transpose()?;
            origin.set_scope(read_scope(about, &mut too_deep), too_deep);
            let mut of_scope = elements(of_scope, "spans")?;
            while let Some(span) = of_scope.next_one()? {
                spans.push(|| Ok(read_span(trees.read(span)?).and_then(|raw| report(raw, &origin))))?;
            }
        }
    }
    Ok(spans)
}

/// Reads pieces of a request, each as a tree that is gone before the next one.
struct Trees<'a> {
    /// The largest for which there is room.
    paid: usize,
    room: &'a mut dyn FnMut(usize) -> bool,
}

impl Trees<'_> {
    fn read(&mut self, piece: &str) -> Result<Value, Unreadable> {
        let (values, objects) = structure(piece.as_bytes());
        let bytes = values * VALUE_BYTES + objects * OBJECT_BYTES;
        if bytes > self.paid {
            if !(self.room)(bytes - self.paid) {
                return Err(Unreadable::NoRoom);
            }
            self.paid = bytes;
        }
        serde_json::from_str(piece).map_err(|error| Unreadable::Json(error.to_string()))
    }
}

fn invalid(fault: JsonError) -> Unreadable {
    Unreadable::Json(fault.to_string())
}

/// The members of these names as they are spelled; of one that is given twice the last. All of the document is looked at.
fn members<'a, const N: usize>(
    object: &'a str,
    names: [&str; N],
    (what, shape): (&'static str, &'static str),
) -> Result<[Option<&'a str>; N], Unreadable> {
    let mut walker = Walker::over(object);
    let mut found = [None; N];
    if walker.next_event().map_err(invalid)? != Some(Event::ObjectStart) {
        return Err(Unreadable::Shape(what, shape));
    }
    while let Some(Event::Key(key)) = walker.next_event().map_err(invalid)? {
        let value = walker.next_raw().map_err(invalid)?;
        let name = key.decode();
        if let Some(slot) = names.iter().position(|known| *known == name).and_then(|at| found.get_mut(at)) {
            *slot = value;
        }
    }
    walker.next_event().map_err(invalid)?;
    Ok(found)
}

/// The elements of a list of the protocol, one after the other.
struct Elements<'a>(Option<Walker<'a>>);

impl<'a> Elements<'a> {
    fn next_one(&mut self) -> Result<Option<&'a str>, Unreadable> {
        self.0.as_mut().map_or(Ok(None), |walker| walker.next_raw().map_err(invalid))
    }
}

/// A list; empty where it is left out.
fn elements<'a>(list: Option<&'a str>, name: &'static str) -> Result<Elements<'a>, Unreadable> {
    let Some(list) = list.filter(|list| *list != "null") else { return Ok(Elements(None)) };
    let mut walker = Walker::over(list);
    match walker.next_event().map_err(invalid)? {
        Some(Event::ArrayStart) => Ok(Elements(Some(walker))),
        _ => Err(Unreadable::Shape(name, "a list")),
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
