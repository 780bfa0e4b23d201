//! The router's end of the queue of calls: every call is answered, also when its handler panics, and urgent ones go first.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use futures_util::FutureExt;
use http::{Method, Response};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::error::ErrorAnswer;
use crate::control::{Call, Calls};
use crate::meter::Shared;

/// Answers calls until every `ApiHandle` is gone and the last call is answered. Panics of handlers are counted in
/// `shared`. Runs on the control thread's tokio runtime.
pub async fn serve(router: Router, calls: Calls, shared: Arc<Shared>) {
    serve_until(router, calls, shared, std::future::pending()).await;
}

/// The same, and no longer than until `stop` is done: then nothing more is accepted, and what was is answered.
pub async fn serve_until(router: Router, calls: Calls, shared: Arc<Shared>, stop: impl Future<Output = ()>) {
    let Calls { mut ordinary, mut urgent } = calls;
    let mut answering = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    let mut stopping = false;
    loop {
        // What is taken out is begun at once: how much of it there can be is up to those who ask (`Shares`), and how much is
        // worked on to the lanes.
        let call = tokio::select! {
            biased;
            () = &mut stop, if !stopping => {
                stopping = true;
                ordinary.close();
                urgent.close();
                continue;
            }
            call = next(&mut urgent, &mut ordinary) => call,
            Some(_) = answering.join_next() => continue,
        };
        let Some(call) = call else { break };
        if !call.reply.is_closed() {
            answering.spawn(answer(router.clone(), call, shared.clone()));
        }
    }
    while answering.join_next().await.is_some() {}
}

/// The next call, an urgent one if there is any; `None` when no more can come.
async fn next(urgent: &mut mpsc::Receiver<Call>, ordinary: &mut mpsc::Receiver<Call>) -> Option<Call> {
    tokio::select! {
        biased;
        Some(call) = urgent.recv() => Some(call),
        Some(call) = ordinary.recv() => Some(call),
        else => None,
    }
}

async fn answer(router: Router, call: Call, shared: Arc<Shared>) {
    let Call { mut request, reply } = call;
    let asked = format!("{} {}", request.method(), request.uri().path());
    if request.method() == Method::HEAD {
        // The code that frames the answer needs the length of the body that HEAD leaves out (RFC 9110 section 9.3.2).
        *request.method_mut() = Method::GET;
    }
    let handled = async {
        let (head, body) =
            router.oneshot(request.map(Body::from)).await.unwrap_or_else(|never| match never {}).into_parts();
        Some(Response::from_parts(head, body.collect().await.ok()?.to_bytes()))
    };
    let response = match AssertUnwindSafe(handled).catch_unwind().await {
        Ok(Some(response)) => response,
        Ok(None) => ErrorAnswer::internal().into(),
        Err(_) => {
            shared.panic();
            tracing::error!(asked, "an API handler panicked");
            ErrorAnswer::internal().into()
        }
    };
    // The client may have left meanwhile; then there is nobody to answer.
    drop(reply.send(response));
}
