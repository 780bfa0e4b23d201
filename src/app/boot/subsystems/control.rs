//! The control thread and the access log: the last to go.

use std::sync::Arc;

use super::context::{Context, Subsystem, TimeLeft};
use crate::boot::StartError;
use crate::boot::control::ControlThread;
use crate::ops::log::LogGuard;
use crate::process::Process;

struct AccessLog {
    process: Arc<Process>,
    /// Writes out what is queued when it goes.
    guard: Option<LogGuard>,
}

/// Where exchanges are written to a log, and what is said of them in sum.
pub(super) fn access_log(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    let (process, guard) = (Arc::clone(&context.process), context.made.access_log.take());
    Ok(Some(Box::new(AccessLog { process, guard })))
}

impl Subsystem for AccessLog {
    fn stop(self: Box<Self>, _time: &TimeLeft) -> bool {
        self.process.parts.edge.exchanges.sum_up(u32::MAX);
        drop(self.guard);
        true
    }
}

struct Control(ControlThread);

/// The thread that answers the API.
pub(super) fn thread(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    Ok(context.made.control.take().map(|thread| Box::new(Control(thread)) as Box<dyn Subsystem>))
}

impl Subsystem for Control {
    fn stop(self: Box<Self>, _time: &TimeLeft) -> bool {
        self.0.stop();
        true
    }
}
