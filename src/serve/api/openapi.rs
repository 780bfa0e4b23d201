//! The OpenAPI 3.1 document, made from the route table and the schemas of the types that are sent.
//!
//! Invariant: nothing about a route is said here that the table does not say; schemas come from the types that serde
//! writes and reads, so document and bytes cannot part. Knows no particular route.

use std::sync::OnceLock;

use http::{Method, StatusCode};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::ask::Ask;
use super::error::ErrorBody;
use super::query::{Kind, LIMIT_DEFAULT, Parameter};
use super::route::{Answer, Route};
use super::routes;
use super::state::{Api, answer};
use crate::control::Access;

/// Serves the document.
pub(super) async fn show(_api: Api, _ask: Ask) -> Answer {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| document(&routes::table()).to_string().into_bytes());
    Ok(answer(StatusCode::OK, bytes.as_slice(), "application/json"))
}

/// The document of these routes.
pub(super) fn document(routes: &[Route]) -> Value {
    // What is sent has every field, so optional ones are required and nullable; what is taken may leave them out.
    let mut sent = settings().for_serialize().into_generator();
    let mut taken = settings().with(|settings| settings.inline_subschemas = true).for_deserialize().into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes.iter().filter(|route| route.is_documented) {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        let operation = operation(route, &mut sent, &mut taken);
        if let Value::Object(item) = item {
            item.insert(route.method.as_str().to_ascii_lowercase(), operation);
        }
    }
    let schemas = sent.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The query API of an LLM egress gateway. Every other path is forwarded to the provider.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "api_key": { "type": "http", "scheme": "bearer" },
                "tenant_token": { "type": "apiKey", "in": "header", "name": "X-Service-Token" },
            },
        },
    })
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into())
}

fn operation(route: &Route, sent: &mut SchemaGenerator, taken: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = route.path_parameters().map(path_parameter).collect();
    parameters.extend(route.query.unwrap_or_default().iter().map(query_parameter));
    parameters.extend((route.access != Access::Open).then(tenant_header));
    let mut responses = Map::new();
    for documented in &route.answers {
        let said = || json!({ "description": documented.description });
        let response = responses.entry(documented.status.to_string()).or_insert_with(said);
        if let Some((content_type, schema)) = &documented.content {
            response["content"][*content_type] = json!({ "schema": schema(sent) });
        }
    }
    let error = sent.subschema_for::<ErrorBody<'_>>();
    for (status, description) in refusals(route) {
        let content = json!({ "application/json": { "schema": error } });
        responses
            .entry(status.to_string())
            .or_insert_with(|| json!({ "description": description, "content": content }));
    }
    let mut operation = json!({
        "tags": [route.tag],
        "operationId": route.operation,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
        "x-required-role": role(route.access),
    });
    if let Some(schema) = route.body {
        let content = json!({ "application/json": { "schema": schema(taken) } });
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    if route.access != Access::Open {
        // The empty requirement: with authentication off no key is asked for.
        operation["security"] = json!([{ "api_key": [] }, { "tenant_token": [] }, {}]);
    }
    operation
}

/// The refusals that follow from a route's shape, and its own.
fn refusals(route: &Route) -> Vec<(u16, &'static str)> {
    let mut refusals = route.refusals.clone();
    refusals.push((400, "A parameter, the body or the request itself is not as described"));
    if route.access != Access::Open {
        refusals.push((401, "No valid credential, and authentication is on"));
        refusals.push((403, "The caller's role, or the page it was sent from, may not do this"));
        refusals.push((503, "The API or the store is too busy, or the store cannot be reached"));
        refusals.push((500, "The gateway failed; its log says why"));
    }
    if route.is_limited() {
        refusals.push((429, "The tenant asks more often than `rate_limiting` allows"));
    }
    if route.path_parameters().next().is_some() {
        refusals.push((404, "No such record in this tenant"));
    }
    if route.body.is_some() {
        refusals.push((413, "The body is larger than `SERVICE_MAX_REQUEST_BYTES`"));
        refusals.push((415, "The body is not JSON"));
    }
    if route.method != Method::GET && route.access == Access::Open {
        refusals.push((403, "A page of another site may not change anything"));
    }
    refusals
}

const fn role(access: Access) -> &'static str {
    match access {
        Access::Open => "none",
        Access::Role(role) => role.as_str(),
    }
}

fn path_parameter(name: &'static str) -> Value {
    // Names are the operator's; all else is an id.
    let schema = match name {
        "upstream" => json!({ "type": "string", "minLength": 1 }),
        _ => json!({ "type": "string", "format": "uuid" }),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

fn query_parameter(parameter: &Parameter) -> Value {
    let schema = match parameter.kind {
        Kind::Time => json!({ "type": "string", "format": "date-time" }),
        Kind::Text => json!({ "type": "string", "minLength": 1 }),
        Kind::Score => json!({ "type": "integer", "minimum": 0, "maximum": 100 }),
        Kind::Limit => json!({ "type": "integer", "minimum": 1, "default": LIMIT_DEFAULT }),
        Kind::Id => json!({ "type": "string", "format": "uuid" }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Status => json!({ "type": "string", "pattern": "^([1-5]xx|[1-5][0-9][0-9])$" }),
        Kind::Usd => json!({ "type": "number", "minimum": 0, "maximum": 1e6 }),
        Kind::Millis => json!({ "type": "number", "minimum": 0, "maximum": 1e9 }),
        Kind::Word(words) => json!({ "type": "string", "enum": words }),
        Kind::Fields | Kind::Cursor => json!({ "type": "string", "minLength": 1 }),
        Kind::Offset => json!({ "type": "integer", "minimum": 0, "default": 0 }),
    };
    json!({
        "name": parameter.name,
        "in": "query",
        "required": false,
        "description": parameter.says,
        "schema": schema,
    })
}

fn tenant_header() -> Value {
    json!({
        "name": "X-Service-Tenant-ID",
        "in": "header",
        "required": false,
        "description": "Whose data is meant. Absent or not a UUID: the tenant of the credential, else the default tenant.",
        "schema": { "type": "string" },
    })
}
