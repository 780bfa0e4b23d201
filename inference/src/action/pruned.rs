//! Arguments as a JSON value that never outgrows what is looked at: numbers become null, long texts end after
//! [`TEXT_BYTES_MAX`] bytes, and behind [`VALUES_MAX`] values the rest is read over.
//!
//! A text that is too long is cut just behind what is looked at, so that whoever looks sees that it goes on.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::bounds::{Bounds, TEXT_BYTES_MAX};

/// Values that are kept, those inside others among them.
const VALUES_MAX: usize = 65_536;
/// Longest name of a field that is kept, far above every name that means something.
const NAME_BYTES_MAX: usize = 256;
/// Values between two looks at the clock.
const VALUES_BETWEEN: usize = 256;

/// The value `text` is, if it is JSON.
pub(super) fn read(text: &str, bounds: &mut Bounds) -> Option<Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Reading { left: &mut { VALUES_MAX }, bounds }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(value)
}

struct Reading<'a> {
    left: &'a mut usize,
    bounds: &'a mut Bounds,
}

impl Reading<'_> {
    fn deeper(&mut self) -> Reading<'_> {
        Reading { left: self.left, bounds: self.bounds }
    }

    /// Whether one more value is kept.
    fn keeps_more(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else {
            self.bounds.cut();
            return false;
        };
        *self.left = left;
        !left.is_multiple_of(VALUES_BETWEEN) || !self.bounds.clock_says_stop()
    }
}

fn start(text: &str, bytes: usize) -> String {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default().to_owned()
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        // The longest character has four bytes: at least one byte more than is looked at is kept.
        Ok(Value::String(start(text, TEXT_BYTES_MAX + 4)))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        while self.keeps_more() {
            let Some(item) = items.next_element_seed(self.deeper())? else { return Ok(Value::Array(kept)) };
            kept.push(item);
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(kept))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while self.keeps_more() {
            let Some(name) = fields.next_key::<Name>()? else { return Ok(Value::Object(kept)) };
            let value = fields.next_value_seed(self.deeper())?;
            kept.insert(name.0, value);
        }
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Object(kept))
    }
}

/// The beginning of a field's name.
struct Name(String);

impl<'de> serde::Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Start;

        impl Visitor<'_> for Start {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
                Ok(Name(start(name, NAME_BYTES_MAX)))
            }
        }

        deserializer.deserialize_str(Start)
    }
}
