//! From the table to an axum router: dispatch, authorisation, 404 and 405.
//!
//! Invariant: what a handler gets has passed authorisation and the route's own list of query parameters. HEAD is answered
//! like GET (whoever frames the answer leaves the body out). Knows no particular route.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::routing::{MethodFilter, MethodRouter};
use http::{Method, Uri};
use http_body_util::BodyExt;

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::query::Parameters;
use super::route::{Answer, Handler, Route, allow};
use super::routes;
use super::state::Api;
use crate::control::{Access, Further};
use crate::exchange::Caller;

/// The router over every route of the table.
pub fn router(api: Api) -> Router {
    let mut by_path: BTreeMap<&str, Vec<Route>> = BTreeMap::new();
    let (debug, console) = {
        let settings = api.live.snapshot().load();
        (settings.server.debug_endpoints, settings.server.ui)
    };
    let ingest = api.ingest.is_some();
    let is_there =
        |route: &Route| (debug || !route.is_debug) && (ingest || !route.is_ingest) && (console || !route.is_console);
    for route in routes::table().into_iter().filter(is_there) {
        by_path.entry(route.path).or_default().push(route);
    }
    let mut router = Router::new();
    for (path, routes) in by_path {
        router = router.route(path, methods(&routes));
    }
    router.fallback(unknown).with_state(api)
}

fn methods(routes: &[Route]) -> MethodRouter<Api> {
    let mut methods = MethodRouter::new();
    for route in routes {
        let Ok(filter) = MethodFilter::try_from(route.method.clone()) else { continue };
        let (access, query, handler) = (route.access, route.query, route.handler.clone());
        methods = methods.on(filter, move |State(api): State<Api>, params: PathParameters, request: Request| {
            dispatch(api, access, query, handler.clone(), params, request)
        });
    }
    let allowed = allow(&routes.iter().collect::<Vec<_>>());
    methods.fallback(move || {
        let allowed = allowed.clone();
        async move { ErrorAnswer::method_not_allowed(allowed) }
    })
}

type PathParameters = Result<RawPathParams, RawPathParamsRejection>;

async fn dispatch(
    api: Api,
    access: Access,
    accepted: Option<&'static [super::query::Parameter]>,
    handler: Handler,
    params: PathParameters,
    request: Request,
) -> Answer {
    let (head, body) = request.into_parts();
    let caller = head.extensions.get::<Caller>().copied();
    authorise(access, caller)?;
    let query = match accepted {
        Some(accepted) => Parameters::read(&head.uri, accepted)?,
        None => Parameters::default(),
    };
    // The body is in memory already: whoever put the request into the queue has read and bounded it.
    let body = body.collect().await.map_err(|_| ErrorAnswer::internal())?.to_bytes();
    // What cannot be decoded names nothing; the handler says which parameter it misses.
    let api = caller.map_or(api.clone(), |caller| api.asked_by(caller.tenant_id));
    let path = params.map(|params| params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
    let further = head.extensions.get::<Further>().cloned();
    handler(api, Ask::new(caller, query, head.headers, path.unwrap_or_default(), body).from(further)).await
}

/// The core thread has refused whoever may not ask this; a request that comes without its word gets no further.
pub(super) fn authorise(access: Access, caller: Option<Caller>) -> Result<(), ErrorAnswer> {
    match (access, caller) {
        (Access::Open, _) => Ok(()),
        (Access::Role(needed), Some(caller)) if caller.role >= needed => Ok(()),
        (Access::Role(needed), Some(_)) => Err(ErrorAnswer::forbidden(format!("this needs the role {needed}"))),
        (Access::Role(_), None) => Err(ErrorAnswer::unauthenticated()),
    }
}

async fn unknown(method: Method, uri: Uri) -> ErrorAnswer {
    let path: String = uri.path().chars().take(256).collect();
    ErrorAnswer::not_found(format!("the gateway has no route {method} {path}"))
}
