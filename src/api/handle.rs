//! The way from a core thread to the router and back: a bounded queue in, one reply each out.
//!
//! Invariant: asking never blocks and never waits for room (a full queue is refused at once), every accepted call is
//! answered, also when its handler panics, and urgent calls have a queue of their own that goes first. Both ends need wakers
//! only, so a core thread may run any executor. Knows no routes.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::error::Fault;
use crate::meter::{QueueWatch, Shared};

/// Calls of one core that may be under way; what their bodies take is bounded by the budget for bodies.
pub const CALLS_PER_CORE: usize = 256;
/// Urgent calls that wait for the control thread, of all cores.
const URGENT_CALLS: usize = 64;

/// A request on its way to the router.
#[derive(Debug)]
pub struct Call {
    request: Request<Bytes>,
    reply: oneshot::Sender<Response<Bytes>>,
}

/// Why a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The queue is full.
    #[error("the API is asked more than it can answer at once; try again in a second")]
    Full,
    /// The tenant has its share of what may be under way.
    #[error("as many calls of this tenant are under way as may be while others ask; try again in a second")]
    Crowded,
    /// The control thread has stopped.
    #[error("the gateway is stopping")]
    Stopped,
}

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Full | ApiError::Crowded => Self::saturated(error.to_string()),
            ApiError::Stopped => Self::shutting_down(),
        }
    }
}

impl ApiError {
    /// The answer the client gets instead.
    pub fn into_response(self) -> Response<Bytes> {
        Fault::from(self).into()
    }
}

/// Asks the router; one per core thread.
#[derive(Debug, Clone)]
pub struct ApiHandle {
    calls: mpsc::Sender<Call>,
    urgent: mpsc::Sender<Call>,
}

/// Where calls arrive.
#[derive(Debug)]
pub struct Calls {
    ordinary: mpsc::Receiver<Call>,
    urgent: mpsc::Receiver<Call>,
}

/// Both ends of the queues; the ordinary one holds `capacity` calls.
pub fn channel(capacity: usize) -> (ApiHandle, Calls) {
    let (calls, ordinary) = mpsc::channel(capacity.max(1));
    let (urgent, urgent_calls) = mpsc::channel(URGENT_CALLS);
    (ApiHandle { calls, urgent }, Calls { ordinary, urgent: urgent_calls })
}

impl ApiHandle {
    /// Hands `request` to the router and waits for its answer. HEAD is answered like GET, body included: the caller
    /// frames the answer and leaves the body out. Dropping the future gives the call up.
    pub async fn call(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ApiError> {
        Self::ask(&self.calls, request).await
    }

    /// The same ahead of every ordinary call: for what must not be put off by however many of those there are.
    pub async fn call_urgently(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ApiError> {
        Self::ask(&self.urgent, request).await
    }

    async fn ask(queue: &mpsc::Sender<Call>, request: Request<Bytes>) -> Result<Response<Bytes>, ApiError> {
        let (reply, answer) = oneshot::channel();
        queue.try_send(Call { request, reply }).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => ApiError::Full,
            mpsc::error::TrySendError::Closed(_) => ApiError::Stopped,
        })?;
        answer.await.map_err(|_| ApiError::Stopped)
    }

    /// The ordinary queue, to be watched in `/metrics` and `/health`. Does not keep the queue open.
    pub fn watch(&self) -> QueueWatch {
        let calls = self.calls.downgrade();
        let depth = move || calls.upgrade().map_or(0, |calls| (calls.max_capacity() - calls.capacity()) as u64);
        QueueWatch { name: "api", capacity: self.calls.max_capacity() as u64, depth: Box::new(depth) }
    }
}

/// Answers calls until every [`ApiHandle`] is gone and the last call is answered. Panics of handlers are counted in
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
        // Whoever frames the answer needs the length of the body that HEAD leaves out (RFC 9110 section 9.3.2).
        *request.method_mut() = Method::GET;
    }
    let handled = async {
        let (head, body) =
            router.oneshot(request.map(Body::from)).await.unwrap_or_else(|never| match never {}).into_parts();
        Some(Response::from_parts(head, body.collect().await.ok()?.to_bytes()))
    };
    let response = match AssertUnwindSafe(handled).catch_unwind().await {
        Ok(Some(response)) => response,
        Ok(None) => Fault::internal().into(),
        Err(_) => {
            shared.panic();
            tracing::error!(asked, "an API handler panicked");
            Fault::internal().into()
        }
    };
    // The asker may have left meanwhile; then nobody is owed an answer.
    drop(reply.send(response));
}
