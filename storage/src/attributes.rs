//! Open attributes of a span: what a sender said that no field of the record has room for.
//!
//! Invariant: however they are filled, they hold at most [`Attributes::COUNT_MAX`] names and [`Attributes::BYTES_MAX`] bytes. The
//! values are JSON; what a name means is its sender's matter.

use std::borrow::Cow;

use serde_json::Value;
use smallvec::SmallVec;

/// The attributes of one span by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attributes {
    /// In the order of their names. Most calls have one, the provider's id of the answer: it takes no block of its own.
    values: SmallVec<[(Cow<'static, str>, Value); 1]>,
    bytes: usize,
}

/// An attribute for which there is no room; the ones that are there stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a span has room for {} attributes of {} bytes together", Attributes::COUNT_MAX, Attributes::BYTES_MAX)]
pub struct NoRoom;

impl Attributes {
    /// Names one span may have.
    pub const COUNT_MAX: usize = 256;
    /// Bytes the names and values of one span may take in memory.
    pub const BYTES_MAX: usize = 64 * 1024;

    /// Puts an attribute in, in place of one of the same name.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing was changed.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, value: Value) -> Result<(), NoRoom> {
        let name = name.into();
        let bytes = size_of::<String>() + name.len() + weigh(&value);
        match self.place_of(&name) {
            Err(free) => {
                if self.values.len() >= Self::COUNT_MAX || self.bytes + bytes > Self::BYTES_MAX {
                    return Err(NoRoom);
                }
                self.bytes += bytes;
                self.values.insert(free, (name, value));
            }
            Ok(taken) => {
                let (_, former) = &mut self.values[taken];
                let others = self.bytes - size_of::<String>() - name.len() - weigh(former);
                if others + bytes > Self::BYTES_MAX {
                    return Err(NoRoom);
                }
                self.bytes = others + bytes;
                *former = value;
            }
        }
        Ok(())
    }

    /// Takes an attribute out.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let (name, value) = self.values.remove(self.place_of(name).ok()?);
        self.bytes -= size_of::<String>() + name.len() + weigh(&value);
        Some(value)
    }

    /// Where a name stands, or would.
    fn place_of(&self, name: &str) -> Result<usize, usize> {
        self.values.binary_search_by(|(known, _)| (**known).cmp(name))
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.place_of(name).ok().map(|at| &self.values[at].1)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.values.iter().map(|(name, value)| (&**name, value))
    }

    /// Changes every text among the values, wherever it stands; names stay. For taking out what must not be kept.
    pub fn change_texts(&mut self, mut change: impl FnMut(&mut String)) {
        for (_, value) in &mut self.values {
            change_texts(value, &mut change);
        }
        self.bytes = self.values.iter().map(|(name, value)| size_of::<String>() + name.len() + weigh(value)).sum();
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// What they take in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn change_texts(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| change_texts(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| change_texts(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn weigh(value: &Value) -> usize {
    let within = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weigh).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| size_of::<String>() + name.len() + weigh(field)).sum()
        }
    };
    size_of::<Value>() + within
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn they_stand_in_the_order_of_their_names_each_once() {
        let mut some = Attributes::default();
        for (name, value) in [("b", 1), ("c", 2), ("a", 3), ("b", 4)] {
            assert_eq!(some.insert(name, json!(value)), Ok(()));
        }
        assert_eq!(some.iter().collect::<Vec<_>>(), [("a", &json!(3)), ("b", &json!(4)), ("c", &json!(2))]);
        assert_eq!((some.get("c"), some.get("d")), (Some(&json!(2)), None));
    }

    #[test]
    fn they_are_bounded_in_number_and_in_bytes() {
        let mut many = Attributes::default();
        let taken = (0..1_000).filter(|number| many.insert(format!("name.{number}"), json!(1)).is_ok()).count();
        assert_eq!((taken, many.iter().len()), (Attributes::COUNT_MAX, Attributes::COUNT_MAX));

        let mut large = Attributes::default();
        assert_eq!(large.insert("small", json!({"a": [true, "b"]})), Ok(()));
        let text = "x".repeat(Attributes::BYTES_MAX);
        assert_eq!(large.insert("large", json!(text)), Err(NoRoom));
        assert_eq!(large.insert("small", json!(text)), Err(NoRoom));
        assert_eq!(large.get("small"), Some(&json!({"a": [true, "b"]})), "what was there stays");
        for _ in 0..3 {
            assert_eq!(large.insert("small", json!("x".repeat(40_000))), Ok(()), "the former one makes room");
        }
        large.change_texts(String::clear);
        assert_eq!(large.insert("other", json!("x".repeat(60_000))), Ok(()));
    }
}
