//! The route table: consistent in itself, and what is derived from it says the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::fake::{Fake, World};
use crate::api::routes;
use crate::control::is_own_path;

#[test]
fn every_route_is_an_own_path_and_stands_once() {
    let mut seen = BTreeSet::new();
    let mut names = BTreeSet::new();
    for route in routes::table() {
        assert!(is_own_path(route.path), "{}", route.path);
        assert!(seen.insert((route.path, route.method.to_string())), "{} {}", route.method, route.path);
        assert!(names.insert(route.operation), "{}", route.operation);
        assert!(!route.tag.is_empty() && !route.summary.is_empty() && !route.answers.is_empty(), "{}", route.path);
    }
}

#[test]
fn the_document_lists_every_route_and_all_its_references_lead_somewhere() {
    let (status, document) = World::over(Arc::new(Fake::holding(Vec::new()))).get("/api-doc/openapi.json");
    assert_eq!((status, &document["openapi"]), (200, &Value::from("3.1.0")));
    for route in routes::table().into_iter().filter(|route| route.is_documented) {
        let operation = &document["paths"][route.path][route.method.as_str().to_ascii_lowercase()];
        assert_eq!(operation["operationId"], route.operation, "{}", route.path);
    }
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn the_document_says_what_every_array_holds() {
    let (_, document) = World::over(Arc::new(Fake::holding(Vec::new()))).get("/api-doc/openapi.json");
    // The page's reader warns in red about a dialect that is named, even the default one.
    assert_eq!(document.get("jsonSchemaDialect"), None);
    let mut arrays = 0;
    let mut walk = vec![(String::new(), &document)];
    while let Some((at, value)) = walk.pop() {
        if let Value::Object(fields) = value {
            let is_array =
                |kind: &Value| kind == "array" || kind.as_array().is_some_and(|any| any.contains(&"array".into()));
            if fields.get("type").is_some_and(is_array) {
                arrays += 1;
                assert!(fields.get("items").is_some_and(Value::is_object), "{at}: an array of what? {value}");
            }
            walk.extend(fields.iter().map(|(name, value)| (format!("{at}/{name}"), value)));
        } else if let Value::Array(items) = value {
            walk.extend(items.iter().enumerate().map(|(index, value)| (format!("{at}/{index}"), value)));
        }
    }
    assert!(arrays > 5, "{arrays} arrays");
}

fn collect<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| collect(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}
