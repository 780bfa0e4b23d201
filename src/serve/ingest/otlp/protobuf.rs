//! The binary form of an export request, read field by field: nothing is built that a bound has not been asked for.
//! Field numbers are those of `opentelemetry/proto/trace/v1/trace.proto`; unknown fields are passed over.

use serde_json::{Map, Number, Value};

use super::{
    Attributes, DEPTH_MAX, Origin, Raw, RawEvent, RawLink, RawScope, Spans, Unreadable, VALUES_MAX, hex, report,
};

/// The spans of a request. The names it repeats are those of the protocol's own definitions. What is made of values takes more than they
/// do on the wire: `room` is asked for it, in bytes, before it is made.
pub(crate) fn read_protobuf(body: &[u8], room: &mut dyn FnMut(usize) -> bool) -> Result<Spans, Unreadable> {
    let mut spans = Spans::default();
    let mut values = Values { left: VALUES_MAX, too_deep: 0, paid: 0, room };
    let mut request = Reader(body);
    while let Some((number, field)) = request.next()? {
        if number == 1 {
            read_resource_spans(field.bytes("resource_spans")?, &mut spans, &mut values)?;
        }
    }
    Ok(spans)
}

fn read_resource_spans(body: &[u8], spans: &mut Spans, values: &mut Values<'_>) -> Result<(), Unreadable> {
    let mut resource = Attributes::new();
    let mut fields = Reader(body);
    // The resource may stand behind its spans.
    while let Some((number, field)) = fields.next()? {
        if number == 1 {
            resource = read_attributes(field.bytes("resource")?, 1, values)?;
        }
    }
    let mut origin = Origin::of(resource, values.too_deep());
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        if number == 2 {
            read_scope_spans(field.bytes("scope_spans")?, &mut origin, spans, values)?;
        }
    }
    Ok(())
}

fn read_scope_spans(
    body: &[u8],
    origin: &mut Origin,
    spans: &mut Spans,
    values: &mut Values<'_>,
) -> Result<(), Unreadable> {
    let mut scope = RawScope::default();
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        if number == 1 {
            scope = read_scope(field.bytes("scope")?, values)?;
        }
    }
    origin.set_scope(scope, values.too_deep());
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        if number == 2 {
            let span = field.bytes("spans")?;
            spans.push(|| Ok(report(read_span(span, values)?, origin)))?;
        }
    }
    Ok(())
}

fn read_scope(body: &[u8], values: &mut Values<'_>) -> Result<RawScope, Unreadable> {
    let mut scope = RawScope::default();
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => scope.name = text(field.bytes("scope.name")?),
            2 => scope.version = text(field.bytes("scope.version")?),
            3 => scope.attributes.extend(read_pair(field.bytes("scope.attributes")?, values, 0)?),
            _ => {}
        }
    }
    Ok(scope)
}

fn read_span(body: &[u8], values: &mut Values<'_>) -> Result<Raw, Unreadable> {
    let mut raw = Raw::default();
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => raw.trace_id = id(field.bytes("trace_id")?),
            2 => raw.span_id = id(field.bytes("span_id")?),
            3 => raw.trace_state = text(field.bytes("trace_state")?),
            4 => raw.parent_span_id = id(field.bytes("parent_span_id")?),
            5 => raw.name = text(field.bytes("name")?),
            6 => raw.kind = field.varint("kind")?,
            7 => raw.start_ns = field.fixed64("start_time_unix_nano")?,
            8 => raw.end_ns = field.fixed64("end_time_unix_nano")?,
            9 => raw.attributes.extend(read_pair(field.bytes("attributes")?, values, 0)?),
            10 => raw.dropped[0] = field.varint("dropped_attributes_count")?,
            11 => {
                values.take()?;
                raw.events.push(read_event(field.bytes("events")?, values)?);
            }
            12 => raw.dropped[1] = field.varint("dropped_events_count")?,
            13 => {
                values.take()?;
                raw.links.push(read_link(field.bytes("links")?, values)?);
            }
            14 => raw.dropped[2] = field.varint("dropped_links_count")?,
            15 => read_status(field.bytes("status")?, &mut raw)?,
            _ => {}
        }
    }
    raw.left_out.values = values.too_deep();
    Ok(raw)
}

fn read_status(body: &[u8], raw: &mut Raw) -> Result<(), Unreadable> {
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        match number {
            2 => raw.status_message = text(field.bytes("status.message")?),
            3 => raw.is_error = field.varint("status.code")? == 2,
            _ => {}
        }
    }
    Ok(())
}

fn read_event(body: &[u8], values: &mut Values<'_>) -> Result<RawEvent, Unreadable> {
    let mut event = RawEvent::default();
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => event.time_ns = field.fixed64("events.time_unix_nano")?,
            2 => event.name = text(field.bytes("events.name")?),
            3 => event.attributes.extend(read_pair(field.bytes("events.attributes")?, values, 0)?),
            _ => {}
        }
    }
    Ok(event)
}

fn read_link(body: &[u8], values: &mut Values<'_>) -> Result<RawLink, Unreadable> {
    let mut link = RawLink::default();
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => link.trace_id = id(field.bytes("links.trace_id")?),
            2 => link.span_id = id(field.bytes("links.span_id")?),
            3 => link.trace_state = text(field.bytes("links.trace_state")?),
            4 => link.attributes.extend(read_pair(field.bytes("links.attributes")?, values, 0)?),
            _ => {}
        }
    }
    Ok(link)
}

/// The attributes that stand in a message under this number.
fn read_attributes(body: &[u8], wanted: u32, values: &mut Values<'_>) -> Result<Attributes, Unreadable> {
    let mut all = Attributes::new();
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        if number == wanted {
            all.extend(read_pair(field.bytes("attributes")?, values, 0)?);
        }
    }
    Ok(all)
}

/// A name and its value; `None` where the name is missing.
fn read_pair(body: &[u8], values: &mut Values<'_>, depth: usize) -> Result<Option<(String, Value)>, Unreadable> {
    values.take()?;
    let (mut name, mut value) = (String::new(), Value::Null);
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => name = text(field.bytes("attributes.key")?),
            2 => value = read_value(field.bytes("attributes.value")?, values, depth)?,
            _ => {}
        }
    }
    Ok(Some((name, value)).filter(|(name, _)| !name.is_empty()))
}

fn read_value(body: &[u8], values: &mut Values<'_>, depth: usize) -> Result<Value, Unreadable> {
    values.take()?;
    if depth > DEPTH_MAX {
        values.too_deep += 1;
        return Ok(Value::Null);
    }
    let mut value = Value::Null;
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        value = match number {
            1 => Value::String(text(field.bytes("string_value")?)),
            2 => Value::Bool(field.varint("bool_value")? != 0),
            // Two's complement, as the protocol has it.
            3 => Value::Number(field.varint("int_value")?.cast_signed().into()),
            4 => Number::from_f64(f64::from_bits(field.fixed64("double_value")?)).map_or(Value::Null, Value::Number),
            5 => read_list(field.bytes("array_value")?, values, depth + 1)?,
            6 => read_map(field.bytes("kvlist_value")?, values, depth + 1)?,
            7 => Value::String(hex(field.bytes("bytes_value")?)),
            _ => continue,
        };
    }
    Ok(value)
}

fn read_list(body: &[u8], values: &mut Values<'_>, depth: usize) -> Result<Value, Unreadable> {
    let mut list = Vec::new();
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        if number == 1 {
            list.push(read_value(field.bytes("array_value.values")?, values, depth)?);
        }
    }
    Ok(Value::Array(list))
}

fn read_map(body: &[u8], values: &mut Values<'_>, depth: usize) -> Result<Value, Unreadable> {
    let mut map = Map::new();
    let mut fields = Reader(body);
    while let Some((number, field)) = fields.next()? {
        if number == 1 {
            map.extend(read_pair(field.bytes("kvlist_value.values")?, values, depth)?);
        }
    }
    Ok(Value::Object(map))
}

/// How many values may still come, and how many stood too deep in others since somebody asked.
struct Values<'a> {
    left: usize,
    too_deep: usize,
    /// Values for which there is room already.
    paid: usize,
    room: &'a mut dyn FnMut(usize) -> bool,
}

/// Values for which room is taken at once.
const PAID_AT_ONCE: usize = 1_024;
/// Bytes in memory of a value beside its text, with its share of what holds it.
const VALUE_BYTES: usize = 256;

impl Values<'_> {
    fn take(&mut self) -> Result<(), Unreadable> {
        self.left = self.left.checked_sub(1).ok_or(Unreadable::TooMany)?;
        if self.paid == 0 {
            if !(self.room)(PAID_AT_ONCE * VALUE_BYTES) {
                return Err(Unreadable::NoRoom);
            }
            self.paid = PAID_AT_ONCE;
        }
        self.paid -= 1;
        Ok(())
    }

    fn too_deep(&mut self) -> usize {
        std::mem::take(&mut self.too_deep)
    }
}

/// Ids are short; a longer one is kept as far as it shows that it is none.
fn id(bytes: &[u8]) -> Vec<u8> {
    bytes.get(..bytes.len().min(32)).unwrap_or_default().to_vec()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads the fields of one message.
struct Reader<'a>(&'a [u8]);

/// A field by its wire type.
enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(u32, Field<'a>)>, Unreadable> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Unreadable::Truncated)?;
        let field = match key & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Unreadable::Truncated)?)),
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| Unreadable::Truncated)?;
                Field::Bytes(self.take(len)?)
            }
            5 => {
                self.take(4)?;
                Field::Other
            }
            _ => return Err(Unreadable::WireType("the body")),
        };
        Ok(Some((number, field)))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Unreadable::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Unreadable> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Unreadable::Truncated)?;
            self.0 = rest;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Unreadable::Truncated)
    }
}

impl<'a> Field<'a> {
    fn bytes(&self, name: &'static str) -> Result<&'a [u8], Unreadable> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(Unreadable::WireType(name)) }
    }

    fn varint(&self, name: &'static str) -> Result<u64, Unreadable> {
        if let Self::Varint(value) = self { Ok(*value) } else { Err(Unreadable::WireType(name)) }
    }

    fn fixed64(&self, name: &'static str) -> Result<u64, Unreadable> {
        if let Self::Fixed64(value) = self { Ok(*value) } else { Err(Unreadable::WireType(name)) }
    }
}
