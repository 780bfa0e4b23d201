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
struct ModelJob<F, T> {
    rest: Rest,
    process: Arc<Process>,
    then: F,
    tell: oneshot::Sender<(Vec<Finding>, Ran, T)>,
}

impl<T: Send, F: FnOnce(&[Finding]) -> T + Send> Work for ModelJob<F, T> {
    fn run(self: Box<Self>, turn: Turn<'_>) {
        let Self { rest, process, then, tell } = *self;
        let Turn::Seen(seen) = turn else { return };
        let (findings, ran) = rest.findings(seen);
        with_pool_meter(&process, |meter| observe_detectors(&process, meter, &ran));
        let more = then(&findings);
        drop(tell.send((findings, ran, more)));
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
    ask_models_then(process, rest, deadline, |_: &[Finding]| ()).await.map(|(findings, ran, ())| (findings, ran))
}

/// Waits for what models say, and for what `then` makes of it where they have said it.
pub(crate) async fn ask_models_then<T: Send + 'static>(
    process: &Arc<Process>,
    rest: Rest,
    deadline: Instant,
    then: impl FnOnce(&[Finding]) -> T + Send + 'static,
) -> Result<(Vec<Finding>, Ran, T), Missed> {
    let (tell, told) = oneshot::channel();
    let pool = &process.parts.inference;
    let was_busy = pool.is_busy();
    let (lane, tenant, bytes) = (rest.lane(), rest.later().tenant(), rest.later().bytes());
    let work = ModelJob { rest, process: Arc::clone(process), then, tell };
    if pool.submit(Job { lane, tenant, bytes, deadline, work: Box::new(work) }).is_err() {
        return Err(Missed { skip: Skip::QueueFull, by_content: true });
    }
    match rt::within(deadline.saturating_duration_since(Instant::now()), told).await {
        Some(Ok(said)) => Ok(said),
        Some(Err(_)) if Instant::now() < deadline => Err(Missed { skip: Skip::Error, by_content: true }),
        Some(Err(_)) | None => Err(Missed { skip: Skip::Timeout, by_content: was_busy }),
    }
}
