//! The core threads, the inference pool, and the other way in: the first to go.

use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use weir_inference::WorkerPool;

use super::context::{Context, Subsystem, TimeLeft};
use crate::boot::StartError;
use crate::boot::core::DrainOrder;
use crate::boot::parts::{start_cores, start_grpc};
use crate::grpc::Serving;
use crate::process::Process;
use crate::rt::CoreThread;

struct Inference {
    process: Arc<Process>,
    pool: WorkerPool,
}

/// The threads that look at long texts.
pub(super) fn inference(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    let process = Arc::clone(&context.process);
    Ok(context.made.inference.take().map(|pool| Box::new(Inference { process, pool }) as Box<dyn Subsystem>))
}

impl Subsystem for Inference {
    fn stop(self: Box<Self>, time: &TimeLeft) -> bool {
        self.pool.stop_within(time.left());
        self.process.give_up_background();
        true
    }
}

struct Grpc(Serving);

/// The listener for spans by gRPC.
pub(super) fn grpc(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    let Some((listener, intake, times)) = context.made.grpc.take() else { return Ok(None) };
    let serving = start_grpc(listener, context.tls.clone(), &context.process, intake, times)?;
    Ok(Some(Box::new(Grpc(serving))))
}

impl Subsystem for Grpc {
    fn drain(&mut self) {
        self.0.drain();
    }

    fn stop(self: Box<Self>, time: &TimeLeft) -> bool {
        self.0.stop(time.left())
    }
}

struct Cores {
    process: Arc<Process>,
    threads: Vec<(CoreThread, Option<oneshot::Sender<DrainOrder>>)>,
    shutdown_limit: Duration,
}

/// The threads that carry calls; from here on they are served.
pub(super) fn cores(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    let Some((listeners, placement)) = context.made.cores.take() else { return Ok(None) };
    let cores = start_cores(&context.process, listeners, context.tls.as_ref(), &context.hand_over, &placement)?;
    let threads = cores.into_iter().map(|(thread, order)| (thread, Some(order))).collect();
    let (process, shutdown_limit) = (Arc::clone(&context.process), context.shutdown_limit);
    Ok(Some(Box::new(Cores { process, threads, shutdown_limit })))
}

impl Subsystem for Cores {
    fn drain(&mut self) {
        for order in self.threads.iter_mut().filter_map(|(_, order)| order.take()) {
            // A core that is gone already has nothing left to drain.
            let _gone = order.send(self.shutdown_limit).is_err();
        }
    }

    fn stop(self: Box<Self>, _time: &TimeLeft) -> bool {
        let mut clean = true;
        for (thread, _) in self.threads {
            if let Err(error) = thread.join() {
                tracing::error!(%error, "a core thread failed");
                clean = false;
            }
        }
        clean & (self.process.cut() == 0)
    }
}
