//! The way from a core thread to the router and back: a bounded queue in, one reply each out.
//!
//! Invariant: asking never blocks and never waits for room (a full queue is refused at once), every accepted call is
//! answered, also when its handler panics, and urgent calls have a queue of their own that goes first. Both ends need wakers
//! only, so a core thread may run any executor. Knows no routes.

use bytes::Bytes;
use http::{Request, Response};
use tokio::sync::{mpsc, oneshot};

use crate::exchange::Refusal;
use crate::meter::QueueGauge;

/// Calls of one core that may be under way; what their bodies take is bounded by the budget for bodies.
pub const CALLS_PER_CORE: usize = 256;
/// Urgent calls that wait for the control thread, of all cores.
const URGENT_CALLS: usize = 64;

/// A request on its way to the router.
#[derive(Debug)]
pub struct Call {
    /// What is asked.
    pub request: Request<Bytes>,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Response<Bytes>>,
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

impl ApiError {
    /// The answer the client gets instead.
    pub fn refusal(self) -> Refusal {
        let refusal = match self {
            Self::Full | Self::Crowded => Refusal::new(503, "api_saturated", self.to_string()).header("Retry-After", 1),
            Self::Stopped => Refusal::new(503, "shutting_down", "the gateway is stopping; ask another instance"),
        };
        refusal.header("Cache-Control", "no-store")
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
    /// What takes its turn.
    pub ordinary: mpsc::Receiver<Call>,
    /// What goes first.
    pub urgent: mpsc::Receiver<Call>,
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
    pub fn watch(&self) -> QueueGauge {
        let calls = self.calls.downgrade();
        let depth = move || calls.upgrade().map_or(0, |calls| (calls.max_capacity() - calls.capacity()) as u64);
        QueueGauge { name: "api", capacity: self.calls.max_capacity() as u64, depth: Box::new(depth) }
    }
}
