//! The configuration file as a JSON Schema (2020-12), for editors that complete and check YAML.
//!
//! Invariant: generated from the table; what the schema accepts is what loading accepts, but for rules between settings
//! and the finer points of addresses. A setting that is not built accepts its default only.

use serde_json::{Map, Value, json};

use crate::catalogue::{self, Build, Field, Keys, Kind, Setting};

/// The whole schema.
pub fn schema() -> Value {
    let mut root = section("Weir's configuration file; every setting can be left out.");
    for setting in catalogue::settings().filter(|setting| setting.in_file()) {
        insert(&mut root, setting.path, of_setting(setting));
    }
    let Value::Object(root) = root else { return Value::Null };
    let mut schema = Map::new();
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".to_owned(), json!("Weir"));
    schema.extend(root);
    Value::Object(schema)
}

fn section(description: &str) -> Value {
    json!({"description": description, "type": "object", "additionalProperties": false, "properties": {}})
}

fn insert(object: &mut Value, path: &str, leaf: Value) {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) else { return };
    match rest {
        None => {
            properties.insert(name.to_owned(), leaf);
        }
        Some(rest) => {
            insert(properties.entry(name).or_insert_with(|| section(&format!("The settings of {name}."))), rest, leaf);
        }
    }
}

fn of_setting(setting: &Setting) -> Value {
    let mut schema = match setting.build {
        Build::NotBuilt { .. } => json!({ "enum": [setting.default.to_value()] }),
        Build::Built { missing, .. } => {
            let mut schema = of_kind(&setting.kind);
            if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut) {
                values.retain(|value| !missing.iter().any(|(name, _)| value == name));
                values.extend(setting.aliases.iter().map(|(alias, _)| json!(alias)));
            }
            if setting.nullable { json!({"anyOf": [schema, {"type": "null"}]}) } else { schema }
        }
    };
    if let Some(object) = schema.as_object_mut() {
        let description = match setting.build {
            Build::NotBuilt { feature, .. } => format!("Not built into this version: {feature}."),
            Build::Built { .. } => setting.doc.to_owned(),
        };
        object.insert("description".to_owned(), json!(description));
        object.insert("default".to_owned(), setting.default.to_value());
        // An annotation, which validators pass over.
        object.insert("x-on-reload".to_owned(), json!(setting.on_reload().as_str()));
    }
    schema
}

fn of_kind(kind: &Kind) -> Value {
    match kind {
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Int { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Float { min, max } if *max == f64::MAX => json!({"type": "number", "minimum": min}),
        Kind::Float { min, max } => json!({"type": "number", "minimum": min, "maximum": max}),
        Kind::Text => json!({"type": "string"}),
        Kind::Name | Kind::File | Kind::DatabaseFile | Kind::ListenAddr => {
            json!({"type": "string", "pattern": "\\S"})
        }
        Kind::HealthPath => json!({"type": "string", "pattern": "^/[A-Za-z0-9._/-]+$"}),
        Kind::Credential { min } => json!({"type": "string", "minLength": min, "pattern": "^[!-~]*$"}),
        Kind::UpstreamUrl => json!({"type": "string", "pattern": "^[hH][tT][tT][pP][sS]?://"}),
        Kind::Choice(values) => json!({ "enum": values }),
        Kind::Choices(values) => json!({"type": "array", "items": {"enum": values}}),
        Kind::TagName => json!({"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9._-]{0,63}$"}),
        Kind::Marker => {
            json!({"type": "string", "pattern": "^([\\uE000-\\uF8FF]|(U\\+|u\\+|\\\\u|\\\\U)0{0,2}([eE][0-9a-fA-F]{3}|[fF][0-8][0-9a-fA-F]{2}))$"})
        }
        Kind::TextList => json!({"type": "array", "items": {"type": "string", "pattern": "\\S"}}),
        Kind::Hosts => json!({"type": "array", "items": of_kind(&Kind::Host)}),
        Kind::Host => {
            json!({"type": "string", "maxLength": 254, "pattern": "^\\.?[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*$"})
        }
        Kind::Origins => json!({"type": "array", "items": of_kind(&Kind::Origin)}),
        Kind::Origin => json!({"type": "string", "pattern": "^([A-Za-z][A-Za-z0-9+.-]*://[^/?#\\s]+|null)$"}),
        Kind::Record(fields) => of_fields(fields),
        Kind::Records(fields) => json!({"type": "array", "items": of_fields(fields)}),
        Kind::RecordMap(Keys::Text, fields) => json!({"type": "object", "additionalProperties": of_fields(fields)}),
        Kind::RecordMap(Keys::Uuid, fields) => json!({
            "type": "object",
            "propertyNames": {"format": "uuid"},
            "additionalProperties": of_fields(fields),
        }),
    }
}

fn of_fields(fields: &[Field]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        let schema = of_kind(&field.kind);
        let schema = if field.required { schema } else { json!({"anyOf": [schema, {"type": "null"}]}) };
        if let Some(alias) = field.alias {
            properties.insert(alias.to_owned(), schema.clone());
        } else if field.required {
            required.push(field.name);
        }
        properties.insert(field.name.to_owned(), schema);
    }
    json!({"type": "object", "additionalProperties": false, "properties": properties, "required": required})
}
