//! The stage that reads a request: its body where something has to be known before forwarding, and its text where
//! somebody waits for what the detectors say. Invariant: a body nothing waits for is left in the socket. Decides nothing.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_channel::oneshot;
use weir_config::Settings;
use weir_config::settings::EnforcementMode;
use weir_config::vocab::{Dialect, Finding, Operation, Severity};
use weir_inference::{Analyser, Job, Options, Scratch, Turn};

use super::complete::{limit_findings, reading_findings, survive};
use super::ledger::Ledger;
use super::request::Stop;
use super::session::Session;
use super::{Core, INLINE_TEXT_BYTES_MAX, text, upload};
use crate::enforce;
use crate::exchange::{Admitted, Analysis, Inspected, Parsed, Payload, Refusal, RequestText, Skip};
use crate::inspect::RequestView;
use crate::wire::{RequestBody, RequestHead};

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
    let bodies = &session.core.process.bodies;
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
            let permit = permit.get_or_insert_with(|| session.core.process.bodies.permit());
            if !permit.grow(view.text.len() - body.len()) {
                return Err(upload::out_of_room().into());
            }
        }
    } else if ledger.wants_text() {
        inspected.text = raw_text(&inspected.parsed.head, body.clone(), false);
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

pub(super) fn raw_text(head: &RequestHead, body: Bytes, truncated: bool) -> RequestText {
    RequestText::Raw {
        body,
        content_type: head.get_shared("content-type"),
        content_encoding: head.get_shared("content-encoding"),
        truncated,
    }
}

/// What looking at a request brings.
struct Looked {
    view: RequestView,
    findings: Vec<Finding>,
    detectors: &'static [&'static str],
    /// The detectors met their deadline before they had seen all of it.
    cut: bool,
}

async fn read_and_find(
    session: &mut Session,
    settings: &Settings,
    inspected: &mut Inspected,
    body: &Bytes,
    analyse: bool,
    ledger: &mut Ledger,
) -> Result<(), Stop> {
    let head = &inspected.parsed.head;
    let job = Look {
        dialect: inspected.parsed.dialect(),
        content_type: head.get_shared("content-type"),
        content_encoding: head.get_shared("content-encoding"),
        body: body.clone(),
        decoded_bytes_max: settings.security_analysis.max_analysis_text_bytes,
        options: analyse.then(|| Options {
            jailbreak: settings.security_analysis.jailbreak_enabled,
            tenant: inspected.parsed.identity.tenant_id,
            deadline: Some(Instant::now() + Duration::from_millis(settings.enforcement.timeout_ms)),
        }),
    };
    let core = Rc::clone(&session.core);
    // A compressed body may be many times as long as it looks.
    let looked = if body.len() <= INLINE_TEXT_BYTES_MAX && job.content_encoding.is_none() {
        let mut scratch = core.scratch.borrow_mut();
        let looked = survive(|| job.run(&core.process.parts.analyser, &mut scratch));
        if looked.is_none() {
            core.process.parts.analyser.renew(&mut scratch);
        }
        looked.ok_or(Skip::Error)
    } else {
        look_on_pool(&core, job, settings.enforcement.timeout_ms).await
    };
    match looked {
        Ok(Looked { view, findings, detectors, cut }) => {
            refuse_streaming(settings, &inspected.parsed, &view)?;
            if analyse {
                inspected.notice = partly_seen(settings, &view)?.or(cut.then_some(Skip::Timeout.header()));
                ledger.inspected(findings.clone(), detectors);
                inspected.analysis = Analysis::Ran;
                core.process.parts.breakers.security.success();
            }
            inspected.findings = findings;
            inspected.text = RequestText::Read(Box::new(view));
        }
        Err(skip) => {
            // Fail-open, and never silently: a counter and a header say so, and the record is analysed later.
            if analyse {
                core.meter.dropped("inference", skip.reason());
                ledger.analysis = Analysis::Skipped(skip);
                inspected.analysis = Analysis::Skipped(skip);
            }
            inspected.text = raw_text(&inspected.parsed.head, body.clone(), false);
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
    }
    Ok(())
}

/// Everything looking at a body needs, on whichever thread.
struct Look {
    dialect: Dialect,
    content_type: Option<Bytes>,
    content_encoding: Option<Bytes>,
    body: Bytes,
    decoded_bytes_max: usize,
    options: Option<Options>,
}

impl Look {
    fn run(self, analyser: &Analyser, scratch: &mut Scratch) -> Looked {
        let view = text::read_raw(
            self.dialect,
            self.content_type.as_deref(),
            self.content_encoding.as_deref(),
            &self.body,
            self.decoded_bytes_max,
        );
        let Some(options) = self.options else {
            return Looked { view, findings: Vec::new(), detectors: &[], cut: false };
        };
        let parts: Vec<_> = text::request_parts(&view).collect();
        let mut hits = Vec::new();
        let ran = analyser.analyse(scratch, &parts, &options, &mut hits);
        drop(parts);
        let mut findings: Vec<Finding> = hits
            .into_iter()
            .map(|hit| {
                let mut finding = hit.finding;
                finding.location = text::request_location(&view, hit.part);
                finding
            })
            .collect();
        findings.extend(reading_findings(&view).chain(limit_findings(&ran)));
        Looked { view, findings, detectors: ran.detectors, cut: ran.cut }
    }
}

async fn look_on_pool(core: &Core, job: Look, timeout_ms: u64) -> Result<Looked, Skip> {
    let (send, receive) = oneshot::channel();
    let limit = Duration::from_millis(timeout_ms);
    let deadline = Instant::now() + limit;
    let job = Job {
        bytes: job.body.len(),
        deadline,
        run: Box::new(move |turn: Turn<'_>| {
            if let Turn::Run(analyser, scratch) = turn {
                // The waiting core may have given up; then nobody needs the result.
                drop(send.send(job.run(analyser, scratch)));
            }
        }),
    };
    if core.process.parts.inference.submit(job).is_err() {
        return Err(Skip::QueueFull);
    }
    match crate::rt::within(limit, receive).await {
        Some(Ok(looked)) => Ok(looked),
        // The job went without an answer: it panicked, or its turn came too late.
        Some(Err(_)) if Instant::now() < deadline => Err(Skip::Error),
        Some(Err(_)) | None => Err(Skip::Timeout),
    }
}

/// What analysis could not look at in full must not pass a gateway that blocks (a provider may read it differently);
/// otherwise it is forwarded and the client is told.
fn partly_seen(settings: &Settings, view: &RequestView) -> Result<Option<&'static str>, Refusal> {
    let (header, what) = match (view.unreadable, view.truncated) {
        (None, false) => return Ok(None),
        (Some(reason), _) => ("skipped;reason=unreadable_body", reason),
        (None, true) => ("skipped;reason=truncated", "its text is longer than is looked at"),
    };
    if settings.enforcement.mode == EnforcementMode::Block {
        return Err(Refusal::new(
            400,
            "invalid_request",
            format!(
                "the request body cannot be inspected in full ({what}), and `enforcement.mode` is `block`; send it as \
                 plain UTF-8 JSON within `security_analysis.max_analysis_text_bytes`"
            ),
        ));
    }
    Ok(Some(header))
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
