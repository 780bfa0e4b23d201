//! Attributes that spell a list in their names, `llm.input_messages.0.message.role`, put together again.

use serde_json::{Map, Value};

/// Segments of a name that are told apart.
const SEGMENTS_MAX: usize = 12;

/// What stands below `prefix` in `attributes`, which lose it, as one value; `None` where nothing does.
pub(super) fn gather(attributes: &mut Vec<(String, Value)>, prefix: &str) -> Option<Value> {
    let below =
        |name: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if !attributes.iter().any(|(name, _)| below(name)) {
        return None;
    }
    let mut root = Map::new();
    let (found, others): (Vec<_>, Vec<_>) = std::mem::take(attributes).into_iter().partition(|(name, _)| below(name));
    *attributes = others;
    for (name, value) in found {
        put(&mut root, name.get(prefix.len()..).unwrap_or_default(), value);
    }
    Some(to_lists(Value::Object(root)))
}

/// The values of a list below `prefix` that stand under names with this end, in their order; `attributes` lose those alone.
pub(super) fn leaves(attributes: &mut Vec<(String, Value)>, prefix: &str, end: &str) -> Option<Value> {
    let number = |name: &str| name.strip_prefix(prefix)?.strip_suffix(end)?.parse::<u32>().ok();
    if !attributes.iter().any(|(name, _)| number(name).is_some()) {
        return None;
    }
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for (name, value) in std::mem::take(attributes) {
        match number(&name) {
            Some(at) => found.push((at, value)),
            None => others.push((name, value)),
        }
    }
    *attributes = others;
    found.sort_by_key(|(at, _)| *at);
    Some(Value::Array(found.into_iter().map(|(_, value)| value).collect()))
}

fn put(root: &mut Map<String, Value>, path: &str, value: Value) {
    let mut at = root;
    let mut segments = path.splitn(SEGMENTS_MAX, '.').peekable();
    while let Some(segment) = segments.next() {
        if segments.peek().is_none() {
            at.insert(segment.to_owned(), value);
            return;
        }
        let next = at.entry(segment.to_owned()).or_insert_with(|| Value::Object(Map::new()));
        if !next.is_object() {
            // A value and a list under one name: the list says more.
            *next = Value::Object(Map::new());
        }
        let Value::Object(inner) = next else { return };
        at = inner;
    }
}

/// Turns objects whose names are all numbers into lists, in the order of the numbers. Objects are at most [`SEGMENTS_MAX`] deep.
fn to_lists(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let numbers: Option<Vec<u32>> = fields.keys().map(|name| name.parse().ok()).collect();
    match numbers {
        Some(numbers) if !numbers.is_empty() => {
            let mut items: Vec<(u32, Value)> = numbers.into_iter().zip(fields.into_values().map(to_lists)).collect();
            items.sort_by_key(|(number, _)| *number);
            Value::Array(items.into_iter().map(|(_, item)| item).collect())
        }
        _ => Value::Object(fields.into_iter().map(|(name, field)| (name, to_lists(field))).collect()),
    }
}
