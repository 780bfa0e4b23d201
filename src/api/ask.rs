//! A request as handlers see it: who asks, with which parameters and which body, each checked on the way out.
//!
//! Invariant: who asks was settled before the request came here (`flow::own`); the query was read against the route's own list before the handler runs; a body that does not fit is refused
//! with the field, the value and what is accepted. Knows no routes and no store.

use std::str::FromStr;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;
use weir_config::vocab::TenantId;

use super::error::Fault;
use super::query::Parameters;
use crate::exchange::Caller;

/// A request.
pub(super) struct Ask {
    caller: Option<Caller>,
    pub(super) query: Parameters,
    headers: HeaderMap,
    /// The path's parameters, percent-decoded; empty where that failed.
    path: Vec<(String, String)>,
    body: Bytes,
}

impl Ask {
    pub(super) fn new(
        caller: Option<Caller>,
        query: Parameters,
        headers: HeaderMap,
        path: Vec<(String, String)>,
        body: Bytes,
    ) -> Self {
        Self { caller, query, headers, path, body }
    }

    /// Who asks. Nobody is nobody: a request that reached a route of a tenant's data without a caller is refused.
    pub(super) fn caller(&self) -> Result<Caller, Fault> {
        self.caller.ok_or_else(Fault::unauthenticated)
    }

    /// Whose data is asked for.
    pub(super) fn tenant(&self) -> Result<TenantId, Fault> {
        Ok(self.caller()?.tenant_id)
    }

    /// The id in the path.
    pub(super) fn id<T: FromStr>(&self, name: &str) -> Result<T, Fault> {
        let refused = || Fault::invalid(format!("`{name}` is not a UUID such as 6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10"));
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

    /// The body as `T`.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        self.require_json()?;
        // A derived reader takes a struct's fields from a list, too, by position; no route means that.
        if self.body.trim_ascii_start().first() == Some(&b'[') {
            return Err(Fault::invalid("the body must be a JSON object, not a list"));
        }
        let reader = &mut serde_json::Deserializer::from_slice(&self.body);
        let value = serde_path_to_error::deserialize(&mut *reader).map_err(|fault| {
            let (path, reason) = (fault.path().to_string(), fault.into_inner());
            match path.as_str() {
                "." => Fault::invalid(format!("the body is not what this route takes: {reason}")),
                path => Fault::invalid(format!("`{path}`: {reason}")),
            }
        })?;
        reader.end().map_err(|fault| Fault::invalid(format!("the body goes on after its JSON value: {fault}")))?;
        Ok(value)
    }

    /// Refuses content that calls itself something else. Besides saying what is wrong early this keeps a web page from
    /// posting here without asking: the content types a browser sends unasked are none of JSON's.
    fn require_json(&self) -> Result<(), Fault> {
        let Some(value) = self.headers.get(CONTENT_TYPE) else { return Ok(()) };
        let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
        let is_json = essence.eq_ignore_ascii_case("application/json")
            || essence.len() > 5 && essence.is_char_boundary(essence.len() - 5) && {
                let (kind, suffix) = essence.split_at(essence.len() - 5);
                suffix.eq_ignore_ascii_case("+json") && kind.to_ascii_lowercase().starts_with("application/")
            };
        if is_json { Ok(()) } else { Err(Fault::unsupported_media_type()) }
    }
}
