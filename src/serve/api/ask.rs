//! A request as handlers see it: the caller, the parameters and the body, each checked on the way out.
//!
//! Invariant: the caller was settled before the request came here (`flow::own_path`); the query was read against the
//! route's own list before the handler runs; a body that does not fit is refused with the field, the value and what is
//! accepted. Knows no routes and no store.

use std::str::FromStr;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use weir_config::vocab::TenantId;

use super::error::ErrorAnswer;
use super::query::Parameters;
use crate::control::Further;
use crate::exchange::Caller;

/// What is wrong with a value, without its line and column in the body: the field is named beside it.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&position).map_or(text.clone(), str::to_owned)
}

/// A request.
pub(super) struct Ask {
    caller: Option<Caller>,
    pub(super) query: Parameters,
    headers: HeaderMap,
    /// The path's parameters, percent-decoded; empty where that failed.
    path: Vec<(String, String)>,
    body: Bytes,
    /// Where the next piece of a list begins that is sent in pieces.
    further: Option<Further>,
}

impl Ask {
    pub(super) fn new(
        caller: Option<Caller>,
        query: Parameters,
        headers: HeaderMap,
        path: Vec<(String, String)>,
        body: Bytes,
    ) -> Self {
        Self { caller, query, headers, path, body, further: None }
    }

    /// The same for the next piece of an answer.
    pub(super) fn from(self, further: Option<Further>) -> Self {
        Self { further, ..self }
    }

    /// The cursor of the next piece.
    pub(super) fn further(&self) -> Option<&str> {
        self.further.as_ref().map(|further| further.0.as_str())
    }

    /// The caller. A request that reached a route of a tenant's data without one is refused.
    pub(super) fn caller(&self) -> Result<Caller, ErrorAnswer> {
        self.caller.ok_or_else(ErrorAnswer::unauthenticated)
    }

    /// The tenant whose data is asked for.
    pub(super) fn tenant(&self) -> Result<TenantId, ErrorAnswer> {
        Ok(self.caller()?.tenant_id)
    }

    /// The id in the path.
    pub(super) fn id<T: FromStr>(&self, name: &str) -> Result<T, ErrorAnswer> {
        let refused =
            || ErrorAnswer::invalid(format!("`{name}` is not a UUID such as 6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10"));
        self.text(name).and_then(|text| text.parse().ok()).ok_or_else(refused)
    }

    /// A text in the path.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.path.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// The request's fields, credentials left out.
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The body as it came.
    pub(super) fn body(&self) -> Bytes {
        self.body.clone()
    }

    /// The body as `T`.
    pub(super) fn json<T: DeserializeOwned + JsonSchema>(&self) -> Result<T, ErrorAnswer> {
        self.require_json()?;
        // A derived reader takes a struct's fields from a list, too, by position; no route means that.
        if self.body.trim_ascii_start().first() == Some(&b'[') {
            return Err(ErrorAnswer::invalid("the body must be a JSON object, not a list"));
        }
        let reader = &mut serde_json::Deserializer::from_slice(&self.body);
        let value = serde_path_to_error::deserialize(&mut *reader).map_err(|fault| {
            let (path, error) = (fault.path().to_string(), fault.into_inner());
            if let Some(missing) = self.missing::<T>().filter(|_| error.to_string().starts_with("missing field")) {
                return ErrorAnswer::invalid(missing);
            }
            match path.as_str() {
                "." if error.is_data() => {
                    ErrorAnswer::invalid(format!("the body is not what this route takes: {}", plain(&error)))
                }
                "." => ErrorAnswer::invalid(format!("the body is not valid JSON: {error}")),
                path => ErrorAnswer::invalid(format!("`{path}`: {}", plain(&error))),
            }
        })?;
        reader
            .end()
            .map_err(|fault| ErrorAnswer::invalid(format!("the body goes on after its JSON value: {fault}")))?;
        Ok(value)
    }

    /// All fields that `T` requires and the body, a JSON object, does not have: a client should not learn of them one by one.
    fn missing<T: JsonSchema>(&self) -> Option<String> {
        let body: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&self.body).ok()?;
        let schema = schemars::schema_for!(T);
        let required = schema.get("required")?.as_array()?.iter().filter_map(serde_json::Value::as_str);
        let missing: Vec<_> =
            required.filter(|name| !body.contains_key(*name)).map(|name| format!("`{name}`")).collect();
        match missing.as_slice() {
            [] => None,
            [one] => Some(format!("the field {one} is missing")),
            _ => Some(format!("the fields {} are missing", missing.join(", "))),
        }
    }

    /// Refuses content that calls itself something else. Besides saying what is wrong early this keeps a web page from
    /// posting here without asking: the content types a browser sends unasked are none of JSON's.
    fn require_json(&self) -> Result<(), ErrorAnswer> {
        let Some(value) = self.headers.get(CONTENT_TYPE) else { return Ok(()) };
        let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
        let is_json = essence.eq_ignore_ascii_case("application/json")
            || essence.len() > 5 && essence.is_char_boundary(essence.len() - 5) && {
                let (kind, suffix) = essence.split_at(essence.len() - 5);
                suffix.eq_ignore_ascii_case("+json") && kind.to_ascii_lowercase().starts_with("application/")
            };
        if is_json { Ok(()) } else { Err(ErrorAnswer::unsupported_media_type()) }
    }
}
