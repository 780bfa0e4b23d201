//! A look at texts: on the core where they are short, as a job of the pool otherwise, then by the models that read answers, with a
//! deadline either way.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use weir_config::settings::ActionFromData;
use weir_config::vocab::{Finding, TenantId};
use weir_inference::provenance::Origins;
use weir_inference::{Call, Job, Lane, Part, PartKind, Plan, Ran, Scratch, Turn, Work};

use super::warning::is_critical;
use crate::exchange::Skip;
use crate::inspect::RequestView;
use crate::limits::kept_bytes_max;
use crate::observe::AnswerReader;
use crate::process::{Core, Process};
use crate::rt;
use crate::settle::inspection::{self, How, Inspection, Parts, Place, RequestedCall, Rest, Subject, Texts, survive};
use crate::settle::journal::Journal;
use crate::settle::models;
use crate::settle::pool_meter::with_pool_meter;
use crate::settle::provenance;
use crate::settle::publish::observe_detectors;
use crate::settle::text::{self, RequestText};

/// How the texts of one answer are looked at.
pub(super) struct Asker {
    core: Rc<Core>,
    to: Terms,
    /// How long one look may take (`security_analysis_timeout_ms`).
    limit: Duration,
}

/// What a look needs on whichever thread.
#[derive(Clone)]
struct Terms {
    plan: Arc<Plan>,
    tenant: TenantId,
    agent: Option<String>,
    text_max: usize,
    /// The words of the conversation by whose they are, where a call made of tools' words stops an answer.
    origins: Option<Arc<Origins>>,
}

/// What is looked at.
pub(super) enum Case {
    /// Some words of an answer, and the tool calls it asks for.
    Words(Words),
    /// All of a document.
    Document(Box<AnswerReader>),
}

/// Some words of an answer.
#[derive(Default)]
pub(super) struct Words {
    pub(super) texts: Vec<(PartKind, String)>,
    /// Name, arguments, and whether it is a tool that changes files.
    pub(super) calls: Vec<(String, String, bool)>,
}

/// What was found, or why nobody looked.
pub(super) type Outcome = Result<Vec<Finding>, Skip>;

impl Words {
    pub(super) fn bytes(&self) -> usize {
        let texts: usize = self.texts.iter().map(|(_, text)| text.len()).sum();
        texts + self.calls.iter().map(|(_, arguments, _)| arguments.len()).sum::<usize>()
    }
}

/// What is found in them decides, and nobody is shown where.
impl Subject for Words {
    fn parts(&self) -> Parts<'_> {
        self.texts.iter().map(|(kind, text)| Part { text, kind: *kind }).collect()
    }

    fn place(&self, _part: usize) -> Place {
        Place::default()
    }

    fn calls(&self) -> Vec<RequestedCall<'_>> {
        let calls = self.calls.iter();
        calls
            .map(|(name, arguments, writes)| RequestedCall {
                name,
                arguments,
                writes: *writes,
                place: Place::default(),
            })
            .collect()
    }
}

impl Asker {
    pub(super) fn new(core: &Rc<Core>, journal: &Journal) -> Self {
        let settings = &journal.settings;
        let to = Terms {
            plan: Arc::clone(&settings.answer_plan),
            tenant: journal.ids.tenant_id,
            agent: journal.ids.agent_id.clone().filter(|_| !journal.doubts_agent),
            text_max: settings.security_analysis.max_analysis_text_bytes,
            origins: origins(core, journal),
        };
        let limit = Duration::from_millis(settings.limits.security_analysis_timeout_ms);
        Self { core: Rc::clone(core), to, limit }
    }

    /// Looks now, on this core, and says what is left to models, where that could matter.
    pub(super) fn here(&self, words: Words) -> (Outcome, Option<Rest>) {
        let process = &self.core.process;
        let looked = self.core.scratch.try_borrow_mut().ok().and_then(|mut scratch| {
            self.to.look(Case::Words(words), process, &mut scratch, Instant::now() + self.limit)
        });
        let Some(mut looked) = looked else { return (Err(Skip::Error), None) };
        observe_detectors(process, &self.core.meter, &looked.ran);
        let rest = left(&mut looked);
        (outcome(looked.findings, &looked.ran), rest)
    }

    /// What models say of the rest of a look that found nothing.
    pub(super) async fn by_models(&self, rest: Rest) -> Outcome {
        let deadline = rest.later().deadline.unwrap_or_else(|| Instant::now() + self.limit);
        let said = models::ask(&self.core.process, rest, deadline).await;
        said.map_err(|missed| missed.skip).and_then(|(findings, ran)| outcome(findings, &ran))
    }

    /// Looks on the pool, `bytes` in all.
    pub(super) async fn elsewhere(&self, case: Case, bytes: usize) -> Outcome {
        let process = &self.core.process;
        let deadline = Instant::now() + self.limit;
        let (tell, told) = oneshot::channel();
        let work = AnswerJob { case, to: self.to.clone(), process: Arc::clone(process), deadline, tell };
        let job = Job { lane: Lane::of(bytes), tenant: self.to.tenant, bytes, deadline, work: Box::new(work) };
        process.parts.inspection.inference.submit(job).map_err(|_| Skip::QueueFull)?;
        let mut looked = match rt::within(deadline.saturating_duration_since(Instant::now()), told).await {
            Some(Ok(looked)) => looked,
            Some(Err(_)) if Instant::now() < deadline => return Err(Skip::Error),
            Some(Err(_)) | None => return Err(Skip::Timeout),
        };
        let rest = left(&mut looked);
        let Inspection { mut findings, mut ran, .. } = looked;
        if let Some(rest) = rest {
            let (more, later) = models::ask(process, rest, deadline).await.map_err(|missed| missed.skip)?;
            findings.extend(more);
            ran.join(&later);
        }
        outcome(findings, &ran)
    }

    /// Counts an answer, or some of it, that passes without a look.
    pub(super) fn missed(&self, reason: &'static str) {
        self.core.meter.dropped("output", reason);
    }
}

/// The words of the conversation by whose they are, where that may stop an answer and tools have brought anything.
fn origins(core: &Core, journal: &Journal) -> Option<Arc<Origins>> {
    let settings = &journal.settings;
    if settings.security_analysis.action_from_data != ActionFromData::Refuse {
        return None;
    }
    let (turns, tenant) = (&core.process.origins, journal.ids.tenant_id);
    let read = |view: &RequestView| survive(|| provenance::origins(view, turns, tenant));
    let origins = match &journal.inspection.text {
        RequestText::None => None,
        RequestText::Read(view) => read(view),
        RequestText::Raw(raw) => {
            let bodies = core.process.bodies.of(tenant);
            let max = kept_bytes_max(settings);
            // On the core: no longer than enforcement may take.
            let until = Some(Instant::now() + Duration::from_millis(settings.enforcement.timeout_ms));
            let raw = survive(|| text::read_raw(journal.dialect, raw, text::Goes::AsItCame, max, (&bodies, until)))?;
            read(&raw.view)
        }
    };
    origins.filter(Origins::has_data).map(Arc::new)
}

/// What models are to be asked about: nothing where the answer stops already, or its time is over.
fn left(looked: &mut Inspection) -> Option<Rest> {
    let decided = looked.ran.cut || looked.ran.failed || looked.findings.iter().any(is_critical);
    looked.rest.take().filter(|_| !decided)
}

/// What is found counts, however much of the text was seen.
fn outcome(findings: Vec<Finding>, ran: &Ran) -> Outcome {
    match (ran.cut, ran.failed) {
        _ if findings.iter().any(is_critical) => Ok(findings),
        (true, _) => Err(Skip::Timeout),
        (_, true) => Err(Skip::Error),
        _ => Ok(findings),
    }
}

impl Terms {
    /// `None` when a detector panicked.
    fn look(&self, case: Case, process: &Process, scratch: &mut Scratch, deadline: Instant) -> Option<Inspection> {
        let agent = self.agent.as_deref();
        let call = Call { plan: &self.plan, tenant: self.tenant, agent, deadline: Some(deadline) };
        let how = How { call, text_max: self.text_max };
        let analyser = &process.parts.inspection.analyser;
        let judge = |calls: Vec<RequestedCall<'_>>| {
            let origins = self.origins.as_deref()?;
            survive(|| provenance::judge(origins, calls, ActionFromData::Refuse))
        };
        match case {
            Case::Words(words) => {
                let mut inspection = inspection::run(analyser, scratch, &words, &how)?;
                inspection.findings.extend(judge(words.calls()).unwrap_or_default());
                Some(inspection)
            }
            Case::Document(mut reader) => {
                let answer = survive(|| reader.finish_by(Some(deadline)))?;
                let texts = Texts { request: None, answer: Some(&answer), before: 0, context: None };
                let mut inspection = inspection::run(analyser, scratch, &texts, &how)?;
                inspection.findings.extend(judge(texts.calls()).unwrap_or_default());
                // Of what cannot be read nothing is known.
                inspection.ran.failed |= answer.unreadable.is_some();
                Some(inspection)
            }
        }
    }
}

/// Texts of an answer on their way to the pool and back.
struct AnswerJob {
    case: Case,
    to: Terms,
    process: Arc<Process>,
    deadline: Instant,
    tell: oneshot::Sender<Inspection>,
}

impl Work for AnswerJob {
    fn run(self: Box<Self>, turn: Turn<'_>) {
        let Self { case, to, process, deadline, tell } = *self;
        let Turn::Run(_, scratch) = turn else { return };
        let Some(looked) = to.look(case, &process, scratch, deadline) else { return };
        with_pool_meter(&process, |meter| observe_detectors(&process, meter, &looked.ran));
        // The waiting core may have given up; then nobody needs it.
        drop(tell.send(looked));
    }
}
