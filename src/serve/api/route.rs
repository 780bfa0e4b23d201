//! One route as data: what it answers to, who may ask, what it takes and gives, and the handler behind it.
//!
//! Invariant: the router, the `Allow` field, the OpenAPI document and authorisation are all derived from these values, so
//! none of them can say something another does not do. Knows no particular route; those stand in `routes`.

use std::sync::Arc;

use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use weir_config::vocab::Role;

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::query::Parameter;
use super::state::Api;
use crate::control::Access;

/// What a handler makes of a request.
pub(super) type Answer = Result<Response, ErrorAnswer>;
/// A handler.
pub(super) type Handler = Arc<dyn Fn(Api, Ask) -> BoxFuture<'static, Answer> + Send + Sync>;
/// The JSON Schema of a type, its parts left with the generator.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One answer of a route, as documented.
pub(super) struct Documented {
    pub(super) status: u16,
    pub(super) description: &'static str,
    /// Content type and schema; `None` for an answer without content.
    pub(super) content: Option<(&'static str, SchemaOf)>,
}

/// A route.
pub(super) struct Route {
    pub(super) method: Method,
    /// Template: `{name}` stands for one segment.
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) handler: Handler,
    pub(super) tag: &'static str,
    /// Identifies the operation in generated clients.
    pub(super) operation: &'static str,
    pub(super) summary: &'static str,
    /// The accepted query parameters; `None` where any query is ignored.
    pub(super) query: Option<&'static [Parameter]>,
    pub(super) body: Option<SchemaOf>,
    pub(super) answers: Vec<Documented>,
    /// Refusals this route has besides those that follow from its shape.
    pub(super) refusals: Vec<(u16, &'static str)>,
    pub(super) is_documented: bool,
    /// It takes a credential away: ahead of everything else, in a lane of its own.
    pub(super) ends_credentials: bool,
    /// Scrapers ask for it as often as they like.
    pub(super) is_for_scrapers: bool,
    /// It is there only while `server.debug_endpoints` is true.
    pub(super) is_debug: bool,
    /// It is there only while `otel_ingest.enabled` is true.
    pub(super) is_ingest: bool,
    /// It is there only while `server.ui` is true.
    pub(super) is_console: bool,
    /// The longest body it takes, where that is not `max_api_request_bytes`.
    pub(super) body_bytes_max: Option<u64>,
}

impl Route {
    fn new<F, Fut>(method: Method, path: &'static str, access: Access, handler: F) -> Self
    where
        F: Fn(Api, Ask) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |api, ask| handler(api, ask).boxed());
        Self {
            method,
            path,
            access,
            handler,
            tag: "",
            operation: "",
            summary: "",
            query: Some(&[]),
            body: None,
            answers: Vec::new(),
            refusals: Vec::new(),
            is_documented: true,
            ends_credentials: false,
            is_for_scrapers: false,
            is_debug: false,
            is_ingest: false,
            is_console: false,
            body_bytes_max: None,
        }
    }

    /// A route that reads; HEAD is answered, too.
    pub(super) fn get<F, Fut>(path: &'static str, access: Access, handler: F) -> Self
    where
        F: Fn(Api, Ask) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        Self::new(Method::GET, path, access, handler)
    }

    /// A route that makes something.
    pub(super) fn post<F, Fut>(path: &'static str, access: Access, handler: F) -> Self
    where
        F: Fn(Api, Ask) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        Self::new(Method::POST, path, access, handler)
    }

    /// A route that replaces something.
    pub(super) fn put<F, Fut>(path: &'static str, access: Access, handler: F) -> Self
    where
        F: Fn(Api, Ask) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        Self::new(Method::PUT, path, access, handler)
    }

    /// A route that removes something.
    pub(super) fn delete<F, Fut>(path: &'static str, access: Access, handler: F) -> Self
    where
        F: Fn(Api, Ask) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        Self::new(Method::DELETE, path, access, handler)
    }

    /// The group it stands in, its name for generated clients, and what it does in one line.
    pub(super) fn says(mut self, tag: &'static str, operation: &'static str, summary: &'static str) -> Self {
        (self.tag, self.operation, self.summary) = (tag, operation, summary);
        self
    }

    /// The query parameters it accepts; any other is refused.
    pub(super) fn query(mut self, accepted: &'static [Parameter]) -> Self {
        self.query = Some(accepted);
        self
    }

    /// Whatever the query says is ignored: probes and scrapers add parameters of their own.
    pub(super) fn any_query(mut self) -> Self {
        self.query = None;
        self
    }

    /// The JSON it takes.
    pub(super) fn takes<T: JsonSchema>(mut self) -> Self {
        self.body = Some(|generator| generator.subschema_for::<T>());
        self
    }

    /// A JSON answer.
    pub(super) fn answers<T: JsonSchema>(self, status: u16, description: &'static str) -> Self {
        self.content(status, description, Some(("application/json", |generator| generator.subschema_for::<T>())))
    }

    /// An answer of another content type, or of none.
    pub(super) fn content(
        mut self,
        status: u16,
        description: &'static str,
        content: Option<(&'static str, SchemaOf)>,
    ) -> Self {
        self.answers.push(Documented { status, description, content });
        self
    }

    /// Leaves it out of the document: a page or a file for browsers.
    pub(super) fn undocumented(mut self) -> Self {
        self.is_documented = false;
        self
    }

    /// It takes a credential away. Its handler uses `Api::end`.
    pub(super) fn ends_credentials(mut self) -> Self {
        self.ends_credentials = true;
        self
    }

    /// It is there only while `server.debug_endpoints` is true.
    pub(super) fn debug(mut self) -> Self {
        self.is_debug = true;
        self.refuses(404, "`server.debug_endpoints` is false")
    }

    /// It is there only while `server.ui` is true, and stays out of the document: a page or a file for browsers.
    pub(super) fn console(mut self) -> Self {
        self.is_console = true;
        self.undocumented()
    }

    /// It is for scrapers, and never limited.
    pub(super) fn for_scrapers(mut self) -> Self {
        self.is_for_scrapers = true;
        self
    }

    /// It takes what others report, in bodies of up to so many bytes, whatever `max_api_request_bytes` says; it is there only
    /// while `otel_ingest.enabled` is true.
    pub(super) fn for_ingest(mut self, bytes: u64) -> Self {
        (self.is_ingest, self.body_bytes_max) = (true, Some(bytes));
        self.refuses(404, "`otel_ingest.enabled` is false")
    }

    /// Whether calls count against the rate of the caller's tenant. Probes and scrapes do not; nor does administration, so
    /// that nobody can use up what it takes to shut them out.
    pub(super) fn is_limited(&self) -> bool {
        !self.is_for_scrapers && !matches!(self.access, Access::Open | Access::Role(Role::Admin))
    }

    /// A refusal that does not follow from the route's shape.
    pub(super) fn refuses(mut self, status: u16, description: &'static str) -> Self {
        self.refusals.push((status, description));
        self
    }

    /// The names in the template.
    pub(super) fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
    }
}

/// The methods a path answers, as `Allow` lists them; GET brings HEAD.
pub(super) fn allow(routes: &[&Route]) -> String {
    let mut names = Vec::new();
    for route in routes {
        names.push(route.method.as_str());
        if route.method == Method::GET {
            names.push("HEAD");
        }
    }
    names.join(", ")
}
