//! The half of an inspection that models make, on the pool: one job, whoever asks. A request that waits for it and an answer that is
//! looked at before its client has it await it ([`ask`]), a reported span and a text that is part of no call wait for it ([`wait`]), and
//! the record of a call goes on behind it ([`look`]). Holds no core; ends at its deadline. Where an analysis is whole without what is
//! asked, as without the second stage, a miss is no failure: what was left out is said ([`Skips`]).

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Instant;

use futures_channel::oneshot;
use weir_config::vocab::Finding;
use weir_inference::{Job, Later, PoolHandle, Ran, Skips, Turn, Work};

use super::inspection::Rest;
use super::pool_meter::with_pool_meter;
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

/// What models have found, and what they did.
pub(crate) type Said = Result<(Vec<Finding>, Ran), Missed>;

// === impl Missed ===

impl Missed {
    /// What comes of it: nothing found, and said so, where the analysis is whole without.
    fn settle(self, is_optional: bool) -> Said {
        if !is_optional {
            return Err(self);
        }
        let why = if self.skip == Skip::Error { Skips::ERROR } else { Skips::TIME };
        let mut ran = Ran::default();
        ran.second_stage_skipped.add(why);
        Ok((Vec::new(), ran))
    }
}

/// Texts on their way to models, and what is done with what they say.
struct ModelJob<F> {
    rest: Rest,
    was_busy: bool,
    then: F,
}

impl<F: FnOnce(Said) + Send> Work for ModelJob<F> {
    fn run(self: Box<Self>, turn: Turn<'_>) {
        let Self { rest, was_busy, then } = *self;
        let missed = match turn {
            Turn::Seen(seen) => return then(Ok(rest.findings(seen))),
            Turn::Refused => Missed { skip: Skip::QueueFull, by_content: true },
            Turn::Failed => Missed { skip: Skip::Error, by_content: true },
            // A job that waits behind others waits for them: that says nothing about the models.
            Turn::Run(..) | Turn::Expired => Missed { skip: Skip::Timeout, by_content: was_busy },
        };
        then(missed.settle(rest.later().is_optional()));
    }

    fn rest(&self) -> Option<&Later> {
        Some(self.rest.later())
    }
}

/// Has models look at `rest` until `deadline`. `then` is called once with what they say: on a thread of the pool, or at once on this
/// one where there is no room.
pub(crate) fn look(pool: &PoolHandle, mut rest: Rest, deadline: Instant, then: impl FnOnce(Said) + Send + 'static) {
    rest.end_at(deadline);
    let (lane, tenant, bytes) = (rest.lane(), rest.later().tenant(), rest.later().bytes());
    let work = Box::new(ModelJob { rest, was_busy: pool.is_busy(), then });
    if let Err(job) = pool.submit(Job { lane, tenant, bytes, deadline, work }) {
        job.work.run(Turn::Refused);
    }
}

/// Awaits what models say.
pub(crate) async fn ask(process: &Arc<Process>, rest: Rest, deadline: Instant) -> Said {
    let is_optional = rest.later().is_optional();
    match ask_then(process, rest, deadline, |_: &[Finding]| ()).await {
        Ok((findings, ran, ())) => Ok((findings, ran)),
        Err(missed) => missed.settle(is_optional),
    }
}

/// Awaits what models say, and what `then` makes of it on the pool where they have said it.
pub(crate) async fn ask_then<T: Send + 'static>(
    process: &Arc<Process>,
    rest: Rest,
    deadline: Instant,
    then: impl FnOnce(&[Finding]) -> T + Send + 'static,
) -> Result<(Vec<Finding>, Ran, T), Missed> {
    let (tell, told) = oneshot::channel();
    let pool = &process.parts.inspection.inference;
    let was_busy = pool.is_busy();
    let here = Arc::clone(process);
    look(pool, rest, deadline, move |said| {
        let said = said.map(|(findings, ran)| {
            with_pool_meter(&here, |meter| observe_detectors(&here, meter, &ran));
            let more = then(&findings);
            (findings, ran, more)
        });
        // The waiting core may have given up; then nobody needs the result.
        drop(tell.send(said));
    });
    match rt::within(deadline.saturating_duration_since(Instant::now()), told).await {
        Some(Ok(said)) => said,
        Some(Err(_)) if Instant::now() < deadline => Err(Missed { skip: Skip::Error, by_content: true }),
        Some(Err(_)) | None => Err(Missed { skip: Skip::Timeout, by_content: was_busy }),
    }
}

/// Waits for what models say. Blocks: not for a core.
pub(crate) fn wait(pool: &PoolHandle, rest: Rest, deadline: Instant) -> Said {
    let (tell, told) = mpsc::sync_channel(1);
    let is_optional = rest.later().is_optional();
    look(pool, rest, deadline, move |said| drop(tell.send(said)));
    // The pool calls every job, by its deadline at the latest but for one that is running.
    let limit = deadline.saturating_duration_since(Instant::now()) * 2;
    told.recv_timeout(limit).unwrap_or_else(|error| {
        let skip = if error == RecvTimeoutError::Timeout { Skip::Timeout } else { Skip::Error };
        Missed { skip, by_content: true }.settle(is_optional)
    })
}
