//! What a change of a tenant's `config` keeps, and what the audit log says of it.
//!
//! Invariant: what limits keys is taken away only where that is said: a `config` without `access`, or an `access` without `keys`, leaves
//! what stood there; `null` takes it away.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use weir_storage::tenants::{TenantChange, TenantRecord};

use crate::admit::access::Access;

/// Longest list of changes in one line of the audit log.
const CHANGES_BYTES_MAX: usize = 2_000;

/// `config` as it will stand, where `former` stood.
pub(super) fn merged(former: &Map<String, Value>, mut config: Map<String, Value>) -> Map<String, Value> {
    let Some(stood) = former.get("access").filter(|stood| !stood.is_null()) else { return without_nulls(config) };
    match config.get_mut("access") {
        None => {
            config.insert("access".to_owned(), stood.clone());
        }
        Some(Value::Object(access)) => {
            // What cannot be read allows nothing; who corrects it says all of it.
            let is_readable = Access::read(former).is_ok();
            if let (false, Some(keys)) = (access.contains_key("keys") || !is_readable, stood.get("keys")) {
                access.insert("keys".to_owned(), keys.clone());
            }
        }
        Some(_) => {}
    }
    without_nulls(config)
}

/// The same without an `access`, or `keys` in it, that are null: that is how they are taken away.
fn without_nulls(mut config: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Object(access)) = config.get_mut("access")
        && access.get("keys").is_some_and(Value::is_null)
    {
        access.remove("keys");
    }
    if config.get("access").is_some_and(Value::is_null) {
        config.remove("access");
    }
    config
}

/// What a change makes different, by path: `name`, `plan`, `config.region`, `config.access.keys.<id>`.
pub(super) fn changes(former: &TenantRecord, change: &TenantChange) -> String {
    let mut paths = Vec::new();
    if change.name.as_ref().is_some_and(|name| *name != former.name) {
        paths.push("name".to_owned());
    }
    if change.plan.as_ref().is_some_and(|plan| *plan != former.plan) {
        paths.push("plan".to_owned());
    }
    if let Some(config) = &change.config {
        compare("config", &former.config, config, &mut |path, _| paths.push(path));
    }
    bounded(&paths)
}

/// The keys whose limits such a change takes away.
pub(super) fn lifted(former: &TenantRecord, change: &TenantChange) -> String {
    let Some(config) = &change.config else { return String::new() };
    let mut paths = Vec::new();
    compare("", &former.config, config, &mut |path, is_gone| {
        paths.extend(path.strip_prefix(".access.keys.").filter(|_| is_gone).map(str::to_owned));
    });
    bounded(&paths)
}

/// Tells `differs` of every entry that is not the same on both sides, and whether it is gone; of `access` and its `keys`, of what is in
/// them.
fn compare(path: &str, former: &Map<String, Value>, now: &Map<String, Value>, differs: &mut impl FnMut(String, bool)) {
    let names: BTreeSet<&String> = former.keys().chain(now.keys()).collect();
    for name in names {
        let here = format!("{path}.{name}");
        let (was, is) = (former.get(name), now.get(name));
        if was == is {
            continue;
        }
        let is_list_of_limits = here.ends_with("config.access") || here.ends_with(".access.keys") || here == ".access";
        let parts = |value: Option<&Value>| match value {
            None => Some(Map::new()),
            Some(value) => value.as_object().cloned(),
        };
        match (parts(was), parts(is)) {
            (Some(was), Some(is)) if is_list_of_limits => compare(&here, &was, &is, differs),
            _ => differs(here, is.is_none()),
        }
    }
}

fn bounded(paths: &[String]) -> String {
    let mut listed = String::new();
    for (at, path) in paths.iter().enumerate() {
        if listed.len() + path.len() > CHANGES_BYTES_MAX {
            listed.push_str(&format!(", and {} more", paths.len() - at));
            break;
        }
        if at > 0 {
            listed.push_str(", ");
        }
        listed.push_str(path);
    }
    listed
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_config::vocab::{TenantId, Timestamp};

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn limits_stay_unless_they_are_taken_away_by_name() {
        let key = weir_config::vocab::KeyId::from_bytes([1; 16]).to_string();
        let keys = json!({ key: {"allowed_models": ["b"]} });
        let limits = json!({"allowed_models": ["a"], "keys": keys});
        let former = map(json!({"region": "eu", "access": limits}));
        for (given, expected) in [
            (json!({"region": "us"}), json!({"region": "us", "access": limits})),
            (json!({"access": {"allowed_models": ["c"]}}), json!({"access": {"allowed_models": ["c"], "keys": keys}})),
            (json!({"access": {"keys": {}}}), json!({"access": {"keys": {}}})),
            (json!({"access": {"keys": null}}), json!({"access": {}})),
            (json!({"access": null}), json!({})),
        ] {
            assert_eq!(Value::Object(merged(&former, map(given.clone()))), expected, "{given}");
        }
        assert_eq!(merged(&Map::new(), map(json!({"a": 1}))), map(json!({"a": 1})));
        let broken = map(json!({"access": {"allowed_models": 1, "keys": {"k": {}}}}));
        let corrected = map(json!({"access": {"allowed_models": []}}));
        assert_eq!(merged(&broken, corrected.clone()), corrected);
        assert_eq!(merged(&broken, Map::new()), broken);
    }

    #[test]
    fn the_line_says_what_changed_and_whose_limits_are_gone() {
        let config = json!({"region": "eu", "access": {"keys": {"k": {}, "l": {"allowed_models": []}}}});
        let former = TenantRecord {
            id: TenantId::from_bytes([1; 16]),
            name: "a".into(),
            plan: None,
            config: map(config),
            created_at: Timestamp::from_micros(0),
            updated_at: Timestamp::from_micros(0),
        };
        let with = |config: Value| TenantChange { config: Some(map(config)), ..TenantChange::default() };
        let change = with(json!({"region": "us", "access": {"keys": {"l": {"allowed_models": ["x"]}}}}));
        assert_eq!(changes(&former, &change), "config.access.keys.k, config.access.keys.l, config.region");
        assert_eq!(lifted(&former, &change), "k");
        let all = with(json!({"region": "eu"}));
        assert_eq!(lifted(&former, &all), "k, l");
        let renamed = TenantChange { name: Some("b".into()), plan: Some(Some("p".into())), ..TenantChange::default() };
        assert_eq!((changes(&former, &renamed).as_str(), lifted(&former, &renamed).as_str()), ("name, plan", ""));
    }
}
