//! What may be shown of a secret.

use serde_json::Value;

/// `value` as it is where nothing is set, and three stars otherwise.
pub(super) fn masked(value: &Value) -> Value {
    let unset = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if unset { value.clone() } else { Value::from("***") }
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
