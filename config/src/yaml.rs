//! YAML text to a tree of plain nodes, bounded, and back from a node to its line and column.
//!
//! Invariant: whatever the text, reading ends within [`MAX_NODES`] nodes and [`MAX_BYTES`] bytes; aliases count each
//! time they are followed. Knows no setting.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Largest document that is read.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Most values a document may unfold to.
pub(super) const MAX_NODES: usize = 100_000;
/// Most brackets that may be open at once; the parser's cost grows with their square.
const MAX_OPEN_BRACKETS: i64 = 1_000;

/// One value of the document.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the document, repeated keys included.
    Map(Vec<(String, Node)>),
}

/// Line and column, from 1.
pub(super) type Position = (usize, usize);

/// Why a document cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) reason: String,
    pub(super) position: Option<Position>,
}

/// The way from the root to a node: the index of the entry in each map or list.
pub(super) type Steps<'a> = &'a [usize];

/// Reads a whole document. A document without content is an empty map.
pub(super) fn parse(text: &str) -> Result<Node, Unreadable> {
    let plain = |reason: String| Unreadable { reason, position: None };
    if text.len() > MAX_BYTES {
        return Err(plain(format!("it is larger than {MAX_BYTES} bytes")));
    }
    if opens_too_deep(text) {
        return Err(plain(format!("more than {MAX_OPEN_BRACKETS} brackets are open at once")));
    }
    let left = Cell::new(MAX_NODES);
    match (Whole { left: &left }).deserialize(serde_yaml::Deserializer::from_str(text)) {
        Ok(Node::Null) => Ok(Node::Map(Vec::new())),
        Ok(node) => Ok(node),
        Err(error) => {
            let position = position(&error);
            let mut reason = error.to_string();
            // The position is shown in front of the message; the parser repeats it inside.
            if let Some((line, column)) = position {
                reason = reason.replacen(&format!(" at line {line} column {column}"), "", 1);
            }
            Err(Unreadable { reason, position })
        }
    }
}

/// Reads a whole document as a JSON value, for files that are data and not settings. A key written twice and a number
/// that is not finite are refused.
pub(crate) fn parse_json(text: &str) -> Result<Value, String> {
    let node = parse(text).map_err(|error| match error.position {
        Some((line, column)) => format!("{} (line {line}, column {column})", error.reason),
        None => error.reason,
    })?;
    to_json(node)
}

fn to_json(node: Node) -> Result<Value, String> {
    Ok(match node {
        Node::Null => Value::Null,
        Node::Bool(flag) => Value::Bool(flag),
        Node::Int(number) => Number::from_i128(number).map(Value::Number).ok_or("a number is too large")?,
        Node::Float(number) => Number::from_f64(number).map(Value::Number).ok_or("a number that is not finite")?,
        Node::Text(text) => Value::String(text),
        Node::List(items) => Value::Array(items.into_iter().map(to_json).collect::<Result<_, _>>()?),
        Node::Map(entries) => {
            let mut object = Map::new();
            for (key, node) in entries {
                let value = to_json(node)?;
                if object.insert(key.clone(), value).is_some() {
                    return Err(format!("`{key}` is written twice"));
                }
            }
            Value::Object(object)
        }
    })
}

/// Where the value at the end of `steps` begins, or, with `key`, its key. `None` when the text has no such node.
///
/// The parser reports positions only on errors, so the document is read again up to the node and failed there: the
/// answer is the parser's own, whatever the style of the text.
pub(super) fn locate(text: &str, steps: Steps<'_>, key: bool) -> Option<Position> {
    let walk = Walk { steps, key };
    match walk.deserialize(serde_yaml::Deserializer::from_str(text)) {
        Ok(()) => None,
        Err(error) => position(&error),
    }
}

fn position(error: &serde_yaml::Error) -> Option<Position> {
    error.location().map(|at| (at.line(), at.column()))
}

/// Counts brackets without understanding quotes: a text that trips this by accident holds a thousand unmatched ones.
fn opens_too_deep(text: &str) -> bool {
    let mut open = 0_i64;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = (open - 1).max(0),
            _ => {}
        }
        if open > MAX_OPEN_BRACKETS {
            return true;
        }
    }
    false
}

// === impl Node ===

impl Node {
    /// The entries of a map.
    pub(super) fn entries(&self) -> Option<&[(String, Node)]> {
        if let Self::Map(entries) = self { Some(entries) } else { None }
    }
}

impl From<&serde_json::Value> for Node {
    fn from(value: &serde_json::Value) -> Self {
        use serde_json::Value;
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Self::Int(whole.into()),
                None => number
                    .as_u64()
                    .map_or_else(|| Self::Float(number.as_f64().unwrap_or(f64::NAN)), |whole| Self::Int(whole.into())),
            },
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(entries) => {
                Self::Map(entries.iter().map(|(key, value)| (key.clone(), Self::from(value))).collect())
            }
        }
    }
}

impl fmt::Display for Node {
    /// One line for an error message, at most about 80 characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("nothing"),
            Self::Bool(flag) => write!(f, "{flag}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Text(text) if text.chars().count() > 80 => {
                let start: String = text.chars().take(80).collect();
                write!(f, "{start:?}...")
            }
            Self::Text(text) => write!(f, "{text:?}"),
            Self::List(items) => write!(f, "a list of {}", items.len()),
            Self::Map(entries) => write!(f, "an object of {}", entries.len()),
        }
    }
}

// === reading ===

struct Whole<'a> {
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        let left = self.left.get();
        if left == 0 {
            return Err(de::Error::custom(format!("it unfolds to more than {MAX_NODES} values")));
        }
        self.left.set(left - 1);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain YAML value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Int(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Int(value.into()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Node, E> {
        Ok(Node::Int(value))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Node, E> {
        Ok(Node::Int(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Whole { left: self.left })? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key_seed(Whole { left: self.left })? {
            let key = match key {
                Node::Text(text) => text,
                Node::Null => "null".to_owned(),
                Node::List(_) | Node::Map(_) => return Err(de::Error::custom("a key has to be a plain text")),
                scalar => scalar.to_string(),
            };
            map.push((key, entries.next_value_seed(Whole { left: self.left })?));
        }
        Ok(Node::Map(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _tagged: A) -> Result<Node, A::Error> {
        Err(de::Error::custom("tags such as `!name` are not supported"))
    }
}

// === locating ===

/// Follows the steps and fails at their end.
struct Walk<'a> {
    steps: Steps<'a>,
    key: bool,
}

/// Accepts nothing, so that reading fails where it is used.
struct Nothing;

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.steps.is_empty() { Nothing.deserialize(deserializer) } else { deserializer.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map or a list")
    }

    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((step, rest)) = self.steps.split_first() else { return Ok(()) };
        for _ in 0..*step {
            items.next_element::<IgnoredAny>()?;
        }
        items.next_element_seed(Walk { steps: rest, key: self.key })?;
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((step, rest)) = self.steps.split_first() else { return Ok(()) };
        for _ in 0..*step {
            entries.next_entry::<IgnoredAny, IgnoredAny>()?;
        }
        if self.key && rest.is_empty() {
            entries.next_key_seed(Nothing)?;
        } else if entries.next_key::<IgnoredAny>()?.is_some() {
            entries.next_value_seed(Walk { steps: rest, key: self.key })?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Nothing {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Nothing {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing")
    }
}

#[cfg(test)]
mod tests;
