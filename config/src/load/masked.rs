//! What may be shown of a secret.

use serde_json::Value;

use crate::catalogue::Kind;

/// What stands for a secret.
pub(super) const MASK: &str = "***";

/// `value` as it is where nothing is set, and three stars otherwise.
pub(super) fn masked(value: &Value) -> Value {
    let unset = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if unset { value.clone() } else { Value::from(MASK) }
}

/// `value` without what its fields of credentials hold.
pub(super) fn credentials_masked(kind: &Kind, value: &Value) -> Value {
    let (Kind::RecordMap(_, fields), Value::Object(entries)) = (kind, value) else { return value.clone() };
    let mut entries = entries.clone();
    for field in fields.iter().filter(|field| matches!(field.kind, Kind::Credential { .. })) {
        for held in entries.values_mut().filter_map(|entry| entry.get_mut(field.name)) {
            *held = masked(held);
        }
    }
    Value::Object(entries)
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
