//! The settings in effect as one nested document, for `/config/live` and `config print`.
//!
//! Invariant: the value of a secret never appears: `"***"` when it is set, as it is when it is null or empty.

use serde_json::{Map, Value};

use crate::load::Loaded;

/// Every setting with the value in effect, nested by path. Variables without a path stand under `environment`.
pub fn effective(loaded: &Loaded) -> Value {
    let mut root = Map::new();
    for (path, value) in &loaded.shown {
        insert(&mut root, path, value.clone());
    }
    Value::Object(root)
}

/// What may be shown of a secret.
pub(crate) fn masked(value: &Value) -> Value {
    let unset = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if unset { value.clone() } else { Value::from("***") }
}

fn insert(object: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            object.insert(path.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = object.entry(section).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_what_is_set_and_shows_what_is_not() {
        assert_eq!(masked(&Value::from("hunter2")), Value::from("***"));
        assert_eq!(masked(&serde_json::json!([{"url": "x"}])), Value::from("***"));
        assert_eq!(masked(&Value::Null), Value::Null);
        assert_eq!(masked(&Value::from("")), Value::from(""));
    }
}
