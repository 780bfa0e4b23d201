//! Open attributes of a span: what a sender said that no field of the record has room for.
//!
//! Invariant: however they are filled, they hold at most [`Attributes::COUNT_MAX`] names and [`Attributes::BYTES_MAX`] bytes. The
//! values are JSON; what a name means is its sender's matter.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::Value;

/// The attributes of one span by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attributes {
    values: BTreeMap<String, Value>,
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
    pub fn insert(&mut self, name: String, value: Value) -> Result<(), NoRoom> {
        let bytes = size_of::<String>() + name.len() + weigh(&value);
        let count = self.values.len();
        match self.values.entry(name) {
            Entry::Vacant(free) => {
                if count >= Self::COUNT_MAX || self.bytes + bytes > Self::BYTES_MAX {
                    return Err(NoRoom);
                }
                self.bytes += bytes;
                free.insert(value);
            }
            Entry::Occupied(mut former) => {
                let others = self.bytes - size_of::<String>() - former.key().len() - weigh(former.get());
                if others + bytes > Self::BYTES_MAX {
                    return Err(NoRoom);
                }
                self.bytes = others + bytes;
                former.insert(value);
            }
        }
        Ok(())
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Changes every text among the values, wherever it stands; names stay. For taking out what must not be kept.
    pub fn change_texts(&mut self, mut change: impl FnMut(&mut String)) {
        for value in self.values.values_mut() {
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
    fn they_are_bounded_in_number_and_in_bytes() {
        let mut many = Attributes::default();
        let taken = (0..1_000).filter(|number| many.insert(format!("name.{number}"), json!(1)).is_ok()).count();
        assert_eq!((taken, many.iter().len()), (Attributes::COUNT_MAX, Attributes::COUNT_MAX));

        let mut large = Attributes::default();
        assert_eq!(large.insert("small".to_owned(), json!({"a": [true, "b"]})), Ok(()));
        let text = "x".repeat(Attributes::BYTES_MAX);
        assert_eq!(large.insert("large".to_owned(), json!(text)), Err(NoRoom));
        assert_eq!(large.insert("small".to_owned(), json!(text)), Err(NoRoom));
        assert_eq!(large.get("small"), Some(&json!({"a": [true, "b"]})), "what was there stays");
        for _ in 0..3 {
            assert_eq!(
                large.insert("small".to_owned(), json!("x".repeat(40_000))),
                Ok(()),
                "the former one makes room"
            );
        }
        large.change_texts(String::clear);
        assert_eq!(large.insert("other".to_owned(), json!("x".repeat(60_000))), Ok(()));
    }
}
