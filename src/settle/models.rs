//! Waiting for what models say of texts, before something goes on. Holds no core; ends at its deadline.

use std::sync::Arc;
use std::time::Instant;

use futures_channel::oneshot;
use weir_config::vocab::Finding;
use weir_inference::{Job, Later, Ran, Turn, Work};

use super::closing::with_pool_meter;
use super::inspection::Rest;
use super::publish::observe_detectors;
use crate::exchange::Skip;
use crate::process::Process;
use crate::rt;

/// Nobody looked at a text in time.
pub(crate) struct Missed {
    pub(crate) skip: Skip,
    /// The text was the cause, or the load, and not the state of the service.
    pub(crate) by_content: bool,
}

/// Texts on their way to models and back.
struct ModelJob {
    rest: Rest,
    process: Arc<Process>,
    tell: oneshot::Sender<(Vec<Finding>, Ran)>,
}

impl Work for ModelJob {
    fn run(self: Box<Self>, turn: Turn<'_>) {
        let Turn::Seen(seen) = turn else { return };
        let said = self.rest.findings(seen);
        with_pool_meter(&self.process, |meter| observe_detectors(&self.process, meter, &said.1));
        drop(self.tell.send(said));
    }

    fn rest(&self) -> Option<&Later> {
        Some(self.rest.later())
    }
}

/// Waits for what models say.
pub(crate) async fn ask_models(
    process: &Arc<Process>,
    rest: Rest,
    deadline: Instant,
) -> Result<(Vec<Finding>, Ran), Missed> {
    let (tell, told) = oneshot::channel();
    let pool = &process.parts.inference;
    let was_busy = pool.is_busy();
    let (lane, tenant, bytes) = (rest.lane(), rest.later().tenant(), rest.later().bytes());
    let work = ModelJob { rest, process: Arc::clone(process), tell };
    if pool.submit(Job { lane, tenant, bytes, deadline, work: Box::new(work) }).is_err() {
        return Err(Missed { skip: Skip::QueueFull, by_content: true });
    }
    match rt::within(deadline.saturating_duration_since(Instant::now()), told).await {
        Some(Ok(said)) => Ok(said),
        Some(Err(_)) if Instant::now() < deadline => Err(Missed { skip: Skip::Error, by_content: true }),
        Some(Err(_)) | None => Err(Missed { skip: Skip::Timeout, by_content: was_busy }),
    }
}
