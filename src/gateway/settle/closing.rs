//! The way of a record once its exchange is over: completed, looked at by models, counted with a vocabulary, published. What is
//! too long for a core is a job of the pool ([`Closing`]), as data, and so is what models look at ([`models::look`]); what cannot be done
//! in time is left out and said.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weir_inference::{Job, Lane, Turn, Work};

use super::charge::better_counter;
use super::complete::{Finish, Finished, complete, complete_unanalysed};
use super::inspection::{Rest, survive};
use super::models::{self, Missed};
use super::pool_meter::with_pool_meter;
use super::publish::{MaskedWithin, Publish, observe_detectors};
use crate::meter::CoreMeter;
use crate::process::Process;
use crate::process::unsettled::Noted;
use crate::record::Permit;

/// A record on its way.
pub(super) struct Closing {
    file: File,
    step: Step,
    deadline: Instant,
    was_busy: bool,
}

/// What goes with a record from step to step.
pub(super) struct File {
    pub(super) process: Arc<Process>,
    pub(super) publish: Publish,
    pub(super) how: How,
    /// What its texts took from the budget for bodies.
    pub(super) held: Option<(Option<Permit>, Permit)>,
    /// Reports of the call wait for its record.
    pub(super) noted: Option<Noted>,
}

/// What there is to do for all of it.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// How long each step may take.
    pub(super) limit: Duration,
    /// Whether tokens are counted with the family's vocabulary.
    pub(super) vocabulary: bool,
}

/// What is done next.
pub(super) enum Step {
    /// Read and analyse what has not been.
    Complete(Box<Finish>),
    /// Count its tokens.
    Count(Box<Finished>),
}

/// Publishes a record that was completed on a core, after what is left to the pool.
pub(super) fn close(process: &Arc<Process>, meter: &CoreMeter, how: How, mut finished: Finished, publish: Publish) {
    let rest = finished.rest.take();
    let asks_store = publish.asks_store(process, &finished);
    if rest.is_none() && !asks_store && !(how.vocabulary && better_counter(&finished.span).is_some()) {
        return publish.run(process, meter, finished, MaskedWithin::SHORT, ());
    }
    let noted = process.note_unsettled(finished.span.trace_id);
    let file = File { process: Arc::clone(process), publish, how, held: None, noted };
    match rest {
        Some(rest) => file.hear_models(Box::new(finished), rest),
        // Several calls together: nothing is estimated.
        None if asks_store => file.end_on_core(finished),
        None => Closing::new(file, Step::Count(Box::new(finished))).submit(),
    }
}

impl Closing {
    pub(super) fn new(file: File, step: Step) -> Self {
        let was_busy = file.process.parts.inspection.inference.is_busy();
        let deadline = Instant::now() + file.how.limit;
        Self { file, step, deadline, was_busy }
    }

    /// Gives it to the pool; what finds no room is done without here and now.
    pub(super) fn submit(self) {
        let deadline = self.deadline;
        let (tenant, bytes) = match &self.step {
            Step::Complete(finish) => {
                let bytes = finish.text_bytes();
                (finish.span.tenant_id, bytes)
            }
            Step::Count(finished) => {
                let texts = [&finished.span.prompt, &finished.span.response];
                let bytes = texts.into_iter().flatten().map(String::len).sum();
                (finished.span.tenant_id, bytes)
            }
        };
        let process = Arc::clone(&self.file.process);
        let job = Job { lane: Lane::Record, tenant, bytes, deadline, work: Box::new(self) };
        if let Err(job) = process.parts.inspection.inference.submit_patiently(job) {
            job.work.run(Turn::Refused);
        }
    }
}

impl File {
    /// Goes on with a completed record on the pool.
    fn go_on(self, mut finished: Finished) {
        if let Some(rest) = finished.rest.take() {
            return self.hear_models(Box::new(finished), rest);
        }
        if self.how.vocabulary && better_counter(&finished.span).is_some() {
            survive(|| finished.recount(&self.process.parts.policy.prices));
        }
        self.end(finished);
    }

    /// Goes on behind what models say.
    fn hear_models(self, mut finished: Box<Finished>, rest: Rest) {
        let process = Arc::clone(&self.process);
        let deadline = Instant::now() + self.how.limit;
        let lost = Lost(Arc::clone(&process));
        models::look(&process.parts.inspection.inference, rest, deadline, move |said| {
            let _lost = lost;
            match said {
                Ok((findings, ran)) => {
                    with_pool_meter(&self.process, |meter| observe_detectors(&self.process, meter, &ran));
                    finished.join(&self.process.parts.inspection.analyser, findings, &ran);
                    self.go_on(*finished);
                }
                Err(Missed { skip, by_content }) => {
                    finished.miss(skip.reason(), by_content);
                    self.end(*finished);
                }
            }
        });
    }

    /// Ends here, with what there is. Whoever finds the call recorded finds its memory given back.
    fn end(self, finished: Finished) {
        self.end_within(finished, MaskedWithin::time());
    }

    /// The same on a core, where there was no room on the pool.
    fn end_on_core(self, finished: Finished) {
        self.end_within(finished, MaskedWithin::SHORT);
    }

    fn end_within(self, finished: Finished, masked: MaskedWithin) {
        if !self.publish.may_wait && self.publish.asks_store(&self.process, &finished) {
            return self.end_behind_store(finished);
        }
        self.end_here(finished, masked);
    }

    /// The same where the store may be waited for; if there is no room to wait, without it.
    fn end_behind_store(mut self, finished: Finished) {
        self.publish.may_wait = true;
        let charges = Arc::clone(&self.process.results);
        let whole = Arc::new(Mutex::new(Some((self, finished))));
        let job = {
            let whole = Arc::clone(&whole);
            move || {
                if let Some((file, finished)) = whole.lock().take() {
                    file.end_here(finished, MaskedWithin::time());
                }
            }
        };
        if charges.submit(Box::new(job)).is_err()
            && let Some((mut file, finished)) = whole.lock().take()
        {
            file.publish.may_wait = false;
            file.end_here(finished, MaskedWithin::SHORT);
        }
    }

    fn end_here(self, finished: Finished, masked: MaskedWithin) {
        let Self { process, publish, held, noted, .. } = self;
        with_pool_meter(&process, |meter| publish.run(&process, meter, finished, masked, held));
        drop(noted);
    }
}

impl Work for Closing {
    fn run(self: Box<Self>, turn: Turn<'_>) {
        let Self { file, step, deadline, was_busy } = *self;
        let process = Arc::clone(&file.process);
        let _lost = Lost(Arc::clone(&process));
        match (step, turn) {
            (Step::Complete(mut finish), Turn::Run(_, scratch)) => {
                finish.deadline = Some(deadline);
                let finished = complete(&process, scratch, *finish);
                file.go_on(finished);
            }
            // This runs on the core: what would have to be read first is left out.
            (Step::Complete(finish), Turn::Refused) => {
                let finished = complete_unanalysed(&process, finish.without_unread_text(), "queue_full", true);
                file.end_on_core(finished);
            }
            (Step::Complete(mut finish), _) => {
                finish.deadline = Some(deadline);
                let finished = complete_unanalysed(&process, *finish, "analyzer_timeout", was_busy);
                file.end(finished);
            }
            (Step::Count(finished), Turn::Run(..)) => file.go_on(*finished),
            // The estimate stands.
            (Step::Count(finished), Turn::Refused) => file.end_on_core(*finished),
            (Step::Count(finished), _) => file.end(*finished),
        }
    }
}

/// A record on its way through a job of the pool: one that a panic takes along is counted.
struct Lost(Arc<Process>);

impl Drop for Lost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.parts.registry.shared().dropped("inference", "panicked", 1);
        }
    }
}
