//! The stage that reads a request: its body where something has to be known before forwarding, and its text where
//! somebody waits for what the detectors say. Invariant: a body nothing waits for is left in the socket. Decides nothing.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_channel::oneshot;
use weir_config::Settings;
use weir_config::vocab::{Dialect, Finding, Operation, Severity, Unread};
use weir_inference::{Analyser, Job, Options, Ran, Scratch, Turn};

use super::complete::{limit_findings, reading_findings, survive};
use super::ledger::{Ledger, with_pool_meter};
use super::publish::observe_detectors;
use super::request::Stop;
use super::session::Session;
use super::{Core, INLINE_TEXT_BYTES_MAX, Process, text, upload};
use crate::codec::can_decode;
use crate::enforce;
use crate::exchange::{Admitted, Analysis, Inspected, Parsed, Payload, RawBody, Refusal, RequestText, Skip};
use crate::inspect::{RequestView, Takes, announces_binary};
use crate::ops::breaker::State;
use crate::record::Permit;
use crate::wire::RequestBody;

/// Reads the body where something has to read it first, and looks for attacks where somebody waits for the result.
pub(super) async fn inspect(
    session: &mut Session,
    settings: &Settings,
    admitted: Admitted,
    ledger: &mut Ledger,
) -> Result<Inspected, Stop> {
    let Admitted(parsed) = admitted;
    let analysis = ledger.analysis;
    let waits =
        analysis == Analysis::Due && (enforce::can_act(&settings.enforcement) || advisory_applies(settings, &parsed));
    let must_read = waits || !settings.enable_streaming || settings.cost_caps.enabled;
    let mut inspected = Inspected {
        parsed,
        payload: Payload::Empty,
        text: RequestText::None,
        findings: Vec::new(),
        analysis,
        notice: None,
    };
    let body = inspected.parsed.head.body;
    if body == RequestBody::Empty {
        return Ok(inspected);
    }
    if !must_read && !upload::is_at_hand(session, body) {
        inspected.payload = Payload::Streamed;
        return Ok(inspected);
    }
    let cap = settings.limits.max_request_size_bytes;
    let costs_nothing = matches!(body, RequestBody::Length(_)) && upload::is_at_hand(session, body);
    let bodies = session.core.process.bodies.of(inspected.parsed.identity.tenant_id);
    let permit = (!costs_nothing).then(|| if must_read { bodies.permit_with_text() } else { bodies.permit() });
    let waiting = Instant::now();
    let whole =
        upload::read_whole(session, &inspected.parsed.head, cap, settings.limits.max_request_size_source, permit)
            .await?;
    ledger.moments.awaiting_client += waiting.elapsed();
    let (body, mut permit) = (whole.body, whole.permit);
    if must_read {
        read_and_find(session, settings, &mut inspected, &body, waits, ledger).await?;
        if let RequestText::Read(view) = &inspected.text
            && view.text.len() > body.len().max(INLINE_TEXT_BYTES_MAX)
        {
            // A compressed body is kept as the many times more that it is.
            let permit = permit.get_or_insert_with(|| bodies.permit());
            if !permit.grow(view.text.len() - body.len()) {
                return Err(upload::out_of_room().into());
            }
        }
    } else if ledger.wants_text() {
        inspected.text = raw_text(&inspected.parsed, body.clone(), false);
    }
    let chunked = inspected.parsed.head.body == RequestBody::Chunked;
    inspected.payload = Payload::Held { body, chunked, permit };
    Ok(inspected)
}

/// The advisory speaks to the model before it answers, so its findings have to be there first.
pub(super) fn advisory_applies(settings: &Settings, parsed: &Parsed) -> bool {
    settings.llm_advisory_injection_enabled
        && parsed.route.operation == Operation::ChatCompletion
        && parsed.head.method() == "POST"
        && parsed.head.path().ends_with("/chat/completions")
}

/// A body to be read later, with what the head says about it.
pub(super) fn raw_text(parsed: &Parsed, body: Bytes, truncated: bool) -> RequestText {
    RequestText::Raw(raw_body(parsed, body, truncated))
}

fn raw_body(parsed: &Parsed, body: Bytes, truncated: bool) -> RawBody {
    let head = &parsed.head;
    let (mut types, mut codings, mut content_type, mut coding) = (0, 0, None, None);
    for field in head.fields() {
        if field.is("content-type") {
            types += 1;
            content_type = content_type.or(Some(field.value()));
        } else if field.is("content-encoding") {
            codings += 1;
            coding = coding.or(Some(field.value()));
        }
    }
    let content_encoding = match codings {
        0 | 1 => coding.map(|value| head.share(value)),
        _ => Some(Bytes::from(head.get_all("content-encoding").collect::<Vec<_>>().join(&b", "[..]))),
    };
    let repeated = match (types, codings) {
        (2.., _) => Some("`Content-Type` is given more than once"),
        (_, 2..) => Some("`Content-Encoding` is given more than once"),
        _ => None,
    };
    RawBody {
        body,
        takes: Takes::of(parsed.route.operation, head.path()),
        content_type: content_type.map(|value| head.share(value)),
        content_encoding,
        repeated,
        truncated,
    }
}

/// What of a body that nobody reads before it is forwarded will not be read after that either, as far as its head says.
pub(super) fn unread_by_head(parsed: &Parsed) -> Option<Unread> {
    let raw = raw_body(parsed, Bytes::new(), false);
    if raw.repeated.is_some() || !can_decode(raw.content_encoding.as_deref()) {
        Some(Unread::UnreadableBody)
    } else {
        announces_binary(raw.takes, raw.content_type.as_deref()).then_some(Unread::MediaType)
    }
}

/// What looking at a request brings.
struct Looked {
    view: RequestView,
    findings: Vec<Finding>,
    /// `None` where nothing was to be analysed.
    ran: Option<Ran>,
    /// What the text took from the body budget.
    room: Option<Permit>,
    /// There was no room for all of it at this moment.
    out_of_room: bool,
}

async fn read_and_find(
    session: &mut Session,
    settings: &Settings,
    inspected: &mut Inspected,
    body: &Bytes,
    analyse: bool,
    ledger: &mut Ledger,
) -> Result<(), Stop> {
    let raw = raw_body(&inspected.parsed, body.clone(), false);
    let (operation, takes) = (inspected.parsed.route.operation, raw.takes);
    let analysis_text_max = settings.security_analysis.max_analysis_text_bytes;
    let job = Look {
        dialect: inspected.parsed.dialect(),
        raw,
        decoded_bytes_max: super::kept_bytes_max(settings),
        analysis_text_max,
        options: analyse.then(|| Options {
            jailbreak: settings.security_analysis.jailbreak_enabled,
            tenant: inspected.parsed.identity.tenant_id,
            deadline: Some(Instant::now() + Duration::from_millis(settings.enforcement.timeout_ms)),
        }),
    };
    let core = Rc::clone(&session.core);
    let breaker = &core.process.parts.breakers.security;
    let spared = breaker.state() == State::Open;
    // A compressed body may be many times as long as it looks.
    let looked = if body.len() <= INLINE_TEXT_BYTES_MAX && job.raw.content_encoding.is_none() {
        let mut scratch = core.scratch.borrow_mut();
        let looked =
            survive(|| job.run(&core.process, &core.process.parts.analyser, &mut scratch, &Progress::default()));
        match &looked {
            Some(looked) => looked.ran.iter().for_each(|ran| observe_detectors(&core.meter, ran)),
            None => core.process.parts.analyser.renew(&mut scratch),
        }
        looked.ok_or(Missed { skip: Skip::Error, by_content: true })
    } else {
        look_on_pool(&core, job, settings.enforcement.timeout_ms).await
    };
    let missed = match looked {
        // The body may be read whole a second later: it is not its sender who has to change something.
        Ok(looked) if looked.out_of_room && analyse && enforce::can_block(&settings.enforcement) => {
            return Err(upload::out_of_room().into());
        }
        Ok(Looked { mut view, findings, ran, room, .. }) => {
            // The caller takes room for the text together with its body.
            drop(room);
            if ran.is_some_and(|ran| ran.full || ran.verify_cap_reached) {
                view.passed_by.insert(Unread::Truncated);
            }
            // Findings of an analysis that was cut count for the decision; for the record it is made once more.
            let cut = ran
                .filter(|ran| ran.cut)
                .map(|_| Missed { skip: Skip::Timeout, by_content: view.text.len() > analysis_text_max });
            if let Some(ran) = ran.filter(|_| cut.is_none()) {
                ledger.inspected(findings.clone(), ran.detectors);
                inspected.analysis = Analysis::Ran;
                // A text looked at although the breaker is open tries nothing out.
                if !ran.detectors.is_empty() && !spared {
                    breaker.success();
                }
            }
            let passes = refuse_streaming(settings, &inspected.parsed, &view);
            let passes =
                passes.and_then(|()| if analyse { refuse_unread(settings, operation, takes, &view) } else { Ok(()) });
            inspected.notice = view.unread().worst().map(Unread::header).filter(|_| analyse);
            inspected.findings = findings;
            inspected.text = RequestText::Read(Box::new(view));
            if let Err(refusal) = passes {
                // What was found in it is part of the record.
                ledger.text = std::mem::replace(&mut inspected.text, RequestText::None);
                return Err(refusal.into());
            }
            cut
        }
        Err(missed) => {
            inspected.text = raw_text(&inspected.parsed, body.clone(), false);
            Some(missed)
        }
    };
    if let Some(Missed { skip, by_content }) = missed.filter(|_| analyse) {
        // Fail-open, and never silently: a counter and a header say so, and the record is analysed later.
        core.meter.dropped("inference", skip.reason());
        if !by_content {
            breaker.failure();
        }
        ledger.analysis = Analysis::Skipped(skip);
        inspected.analysis = Analysis::Skipped(skip);
        if skip == Skip::Timeout {
            ledger.add_finding(Finding::new(
                "analysis_timeout",
                Severity::Info,
                1.0,
                "rules",
                "the request was forwarded before its analysis had ended (`enforcement.timeout_ms`)",
            ));
        }
    }
    Ok(())
}

/// Nobody looked at a request in time.
struct Missed {
    skip: Skip,
    /// The request was the cause, or the load, and not the state of the service.
    by_content: bool,
}

/// How far a job of the pool has come: 0 while it waits, then one more than the bytes of text it has to look at.
#[derive(Default)]
struct Progress(AtomicUsize);

impl Progress {
    fn begun(&self, text_bytes: usize) {
        self.0.store(text_bytes.saturating_add(1), Ordering::Relaxed);
    }

    /// The text that is being looked at; `None` while the job has not had its turn.
    fn text_bytes(&self) -> Option<usize> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Everything looking at a body needs, on whichever thread.
struct Look {
    dialect: Dialect,
    raw: RawBody,
    decoded_bytes_max: usize,
    analysis_text_max: usize,
    options: Option<Options>,
}

impl Look {
    /// The bytes it may take to look at this: a compressed body may be many times as long as it looks.
    fn weight(&self) -> usize {
        let bytes = self.raw.body.len();
        match self.raw.content_encoding {
            Some(_) => bytes.saturating_mul(text::DECODE_RATIO_MAX as usize).min(self.decoded_bytes_max).max(bytes),
            None => bytes,
        }
    }

    fn run(self, process: &Process, analyser: &Analyser, scratch: &mut Scratch, progress: &Progress) -> Looked {
        progress.begun(self.raw.body.len());
        let text::ReadRaw { view, room, out_of_room } =
            text::read_raw(self.dialect, &self.raw, self.decoded_bytes_max, &process.bodies);
        progress.begun(view.text.len());
        let Some(options) = self.options else {
            return Looked { view, findings: Vec::new(), ran: None, room, out_of_room };
        };
        let parts: Vec<_> = text::request_parts(&view).collect();
        let mut hits = Vec::new();
        let ran = analyser.analyse(scratch, &parts, &options, &mut hits);
        drop(parts);
        let mut findings: Vec<Finding> = hits.into_iter().filter_map(|hit| text::request_finding(&view, hit)).collect();
        findings.extend(reading_findings(&view, self.analysis_text_max).chain(limit_findings(&ran)));
        Looked { view, findings, ran: Some(ran), room, out_of_room }
    }
}

async fn look_on_pool(core: &Core, job: Look, timeout_ms: u64) -> Result<Looked, Missed> {
    let (send, receive) = oneshot::channel();
    let limit = Duration::from_millis(timeout_ms);
    let deadline = Instant::now() + limit;
    let (process, progress) = (Arc::clone(&core.process), Arc::new(Progress::default()));
    let (shown, analysis_text_max) = (Arc::clone(&progress), job.analysis_text_max);
    let weight = job.weight();
    let pool = &core.process.parts.inference;
    // Who waits behind others waits for them: that says nothing about the detectors.
    let was_busy = pool.is_busy();
    let job = Job {
        bytes: weight,
        deadline,
        run: Box::new(move |turn: Turn<'_>| {
            if let Turn::Run(analyser, scratch) = turn {
                let looked = job.run(&process, analyser, scratch, &shown);
                if let Some(ran) = &looked.ran {
                    with_pool_meter(&process, |meter| observe_detectors(meter, ran));
                }
                // The waiting core may have given up; then nobody needs the result.
                drop(send.send(looked));
            }
        }),
    };
    if pool.submit(job).is_err() {
        return Err(Missed { skip: Skip::QueueFull, by_content: true });
    }
    match crate::rt::within(limit, receive).await {
        Some(Ok(looked)) => Ok(looked),
        // The job went without an answer: it panicked, or its turn came too late.
        Some(Err(_)) if Instant::now() < deadline => Err(Missed { skip: Skip::Error, by_content: true }),
        Some(Err(_)) | None => {
            let by_content = progress.text_bytes().map_or(was_busy, |bytes| bytes.max(weight) > analysis_text_max);
            Err(Missed { skip: Skip::Timeout, by_content })
        }
    }
}

/// What was not read must not pass a gateway that blocks: a provider may read it. Files pass where they are what the
/// operation is for, and inside JSON, where models take them as pictures and sounds. Tokens pass where they become a vector,
/// for nothing follows what they say.
fn refuse_unread(settings: &Settings, operation: Operation, takes: Takes, view: &RequestView) -> Result<(), Refusal> {
    let unread = view.unread();
    let refused = |reason: &Unread| match reason {
        Unread::BinaryPart | Unread::WebSocket => false,
        Unread::FilePart | Unread::MediaType => takes != Takes::Files,
        Unread::TokenIds => operation != Operation::Embedding,
        Unread::Truncated | Unread::UnreadableBody => true,
    };
    let Some(worst) = unread.iter().filter(refused).last().filter(|_| enforce::can_block(&settings.enforcement)) else {
        return Ok(());
    };
    let (what, instead) = match worst {
        Unread::UnreadableBody => {
            (view.unreadable.unwrap_or("a text in it is not UTF-8"), "send it as plain UTF-8 JSON")
        }
        Unread::Truncated => {
            ("more than is looked at", "send less at a time, and within `max_request_size_bytes` unpacked")
        }
        Unread::TokenIds => ("a prompt of token numbers", "send the prompt as text"),
        _ => ("a binary file where this version expects none", "send it to an operation for files"),
    };
    let message = format!(
        "the request body cannot be inspected in full ({what}), and `enforcement` blocks requests (`enforcement.mode`, \
         `enforcement.categories`); {instead}"
    );
    Err(Refusal::new(400, "invalid_request", message))
}

fn refuse_streaming(settings: &Settings, parsed: &Parsed, view: &RequestView) -> Result<(), Refusal> {
    if settings.enable_streaming || !view.streams(parsed.dialect(), parsed.route.operation) {
        return Ok(());
    }
    Err(Refusal::new(
        400,
        "streaming_disabled",
        "streaming is switched off by `enable_streaming: false`; send `\"stream\": false`",
    ))
}
