//! One proxied exchange from its head to its end, stage by stage. This file reads like the picture in `exchange`.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_channel::oneshot;
use uuid::Uuid;
use weir_config::Settings;
use weir_config::settings::{Enforcement, EnforcementMode, Upstream};
use weir_config::vocab::{Dialect, Finding, Operation, Severity, SpanId, Timestamp, TraceId};
use weir_inference::{Analyser, Job, Options, Scratch, Turn};

use super::complete::{limit_findings, reading_findings, survive};
use super::ledger::Ledger;
use super::relay::{self, Ended};
use super::session::{Next, Session};
use super::upload::{self, Kept, NoBody, Relayed};
use super::upstream::{self, Answered, NoAnswer};
use super::watch::ClientWatch;
use super::{Core, INLINE_TEXT_BYTES_MAX, text};
use crate::admit::rate::Verdict;
use crate::admit::tenant;
use crate::enforce::{self, Decision};
use crate::exchange::{
    Admitted, Analysis, Enforced, Inspected, Moments, Parsed, Payload, Ready, Refusal, RequestText, Skip, TraceContext,
};
use crate::forward::{Lease, UpstreamConn};
use crate::inspect::{self, RequestView};
use crate::ops::breaker::Admit;
use crate::record::Identity;
use crate::rewrite;
use crate::wire::{self, Fault, HeadWriter, RequestBody, RequestHead};

/// Why an exchange ends before the provider's answer is relayed.
pub(crate) enum Stop {
    /// Weir says no.
    Refused(Refusal),
    /// Nobody is there to be told.
    ClientLeft,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<NoBody> for Stop {
    fn from(error: NoBody) -> Self {
        match error {
            NoBody::ClientLeft => Self::ClientLeft,
            NoBody::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

/// The refusal a framing fault earns.
pub(crate) fn fault_refusal(fault: &Fault) -> Refusal {
    let error_type = match fault.status() {
        405 => "method_not_allowed",
        413 => "request_too_large",
        _ => "invalid_request",
    };
    let refusal = Refusal::new(fault.status(), error_type, fault.message()).closing();
    if fault.status() == 405 {
        refusal.header("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
    } else {
        refusal
    }
}

/// Serves one proxied request.
pub(crate) async fn exchange(session: &mut Session, head: RequestHead) -> Next {
    let core = Rc::clone(&session.core);
    let settings = core.settings();
    let moments = Moments::now();
    let parsed = parse(&settings, &mut session.tenants, head);
    let skip = skip_reason(&core, &settings);
    let (dialect, body, keep_alive) = (parsed.dialect(), parsed.head.body, parsed.head.keep_alive);
    let head_only = parsed.head.method() == "HEAD";
    let mut ledger = Ledger::open(&core, &settings, moments, &parsed.identity, dialect, skip);
    session.begin_body(body);
    match run(session, &settings, parsed, &mut ledger).await {
        Ok(next) => next,
        Err(Stop::ClientLeft) => {
            ledger.client_left();
            Next::Close
        }
        Err(Stop::Refused(refusal)) => {
            skip_body(session, body);
            let close = refusal.close || session.body_unread || !keep_alive || core.process.is_draining();
            refuse(session, &mut ledger, dialect, &refusal, close, head_only).await
        }
    }
}

/// The journey.
async fn run(
    session: &mut Session,
    settings: &Settings,
    parsed: Box<Parsed>,
    ledger: &mut Ledger,
) -> Result<Next, Stop> {
    let core = Rc::clone(&session.core);
    let admitted = admit(&core, settings, parsed)?;
    let inspected = inspect(session, settings, admitted, ledger).await?;
    let enforced = enforce(settings, inspected, ledger)?;
    let ready = rewrite(settings, enforced, ledger);
    forward(session, settings, ready, ledger).await
}

// === parse ===

/// Names the exchange: where it goes, whose it is, under which ids.
fn parse(settings: &Settings, tenants: &mut tenant::Resolver, head: RequestHead) -> Box<Parsed> {
    let forced = head.get("x-service-provider").and_then(|value| std::str::from_utf8(value).ok());
    let route = inspect::route(forced, head.path(), &settings.upstream.host);
    let start_time = Timestamp::now();
    let trace = head.get("traceparent").and_then(TraceContext::parse);
    let tenant_id = tenants.resolve(
        head.get("x-service-tenant-id"),
        head.get("authorization"),
        tenant::api_key(|name| head.get(name)),
    );
    let identity = Identity {
        tenant_id,
        trace_id: trace.map_or_else(|| TraceId::fresh_at(start_time), |trace| trace.trace_id),
        // Inside a caller's trace the id has to survive the 8 bytes that W3C trace context carries.
        span_id: if trace.is_some() { fresh_w3c_span() } else { SpanId::fresh_at(start_time) },
        parent_span_id: trace.map(|trace| trace.parent),
        agent_id: head.get("x-service-agent-id").map(|value| bounded_text(value, 256)),
        provider: route.provider.clone(),
        operation: route.operation,
        start_time,
    };
    // Boxed: it travels by value through every stage, and a head is some hundred bytes.
    Box::new(Parsed { head, route, identity, trace })
}

fn fresh_w3c_span() -> SpanId {
    let (_, low) = Uuid::new_v4().as_u64_pair();
    SpanId::from_w3c(low.max(1).to_be_bytes())
}

fn bounded_text(value: &[u8], bytes_max: usize) -> String {
    String::from_utf8_lossy(value.get(..bytes_max).unwrap_or(value)).into_owned()
}

/// Why analysis will not take place at all, if so. An open breaker makes the service a plain proxy.
fn skip_reason(core: &Core, settings: &Settings) -> Option<Skip> {
    if core.process.parts.breakers.admit() == Admit::No {
        Some(Skip::BreakerOpen)
    } else if !settings.enable_security_analysis {
        Some(Skip::Disabled)
    } else {
        None
    }
}

// === admit ===

fn admit(core: &Core, settings: &Settings, parsed: Box<Parsed>) -> Result<Admitted, Refusal> {
    refuse_loop(core, &parsed.head)?;
    upload::check_declared(
        parsed.head.body,
        settings.limits.max_request_size_bytes,
        settings.limits.max_request_size_source,
    )?;
    if settings.rate_limiting.enabled {
        let limits = &settings.rate_limiting;
        let tenant_id = parsed.identity.tenant_id;
        if let Verdict::Limited { retry_after_ns } = core.process.rates.take(tenant_id, limits, core.process.now_ns()) {
            let limit = limits.tenant_overrides.get(&tenant_id).copied().unwrap_or(limits.default);
            let seconds = retry_after_ns.div_ceil(1_000_000_000).max(1);
            return Err(Refusal::new(
                429,
                "rate_limit_exceeded",
                format!(
                    "tenant {tenant_id} sends more than {} requests per second (burst {}); retry after {seconds} s, or \
                     raise `rate_limiting`",
                    limit.requests_per_second, limit.burst_size
                ),
            )
            .header("Retry-After", seconds)
            .header("X-RateLimit-Limit", limit.requests_per_second)
            .header("X-RateLimit-Remaining", 0)
            .header("X-RateLimit-Reset", seconds)
            .with("tenant_id", tenant_id.to_string())
            .with("limit_requests_per_second", limit.requests_per_second)
            .with("retry_after_secs", seconds));
        }
    }
    Ok(Admitted(parsed))
}

/// A request that has passed through this very process before would go round for ever (RFC 9110 section 7.6.3).
fn refuse_loop(core: &Core, head: &RequestHead) -> Result<(), Refusal> {
    let ours = core.process.parts.instance.as_bytes();
    if head.get_all("via").any(|via| memchr::memmem::find(via, ours).is_some()) {
        let message = "this request has already passed through this gateway; `upstream_url` leads back to it";
        return Err(Refusal::new(508, "invalid_request", message));
    }
    Ok(())
}

// === inspect ===

/// Reads the body where something has to read it first, and looks for attacks where somebody waits for the result.
async fn inspect(
    session: &mut Session,
    settings: &Settings,
    admitted: Admitted,
    ledger: &mut Ledger,
) -> Result<Inspected, Stop> {
    let Admitted(parsed) = admitted;
    let analysis = ledger.analysis;
    let waits =
        analysis == Analysis::Due && (enforce::can_act(&settings.enforcement) || advisory_applies(settings, &parsed));
    let must_read = waits || !settings.enable_streaming;
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
    let permit = (!costs_nothing).then(|| session.core.process.bodies.permit());
    let waiting = Instant::now();
    let whole =
        upload::read_whole(session, &inspected.parsed.head, cap, settings.limits.max_request_size_source, permit)
            .await?;
    ledger.moments.awaiting_client += waiting.elapsed();
    let body = whole.body;
    if must_read {
        read_and_find(session, settings, &mut inspected, &body, waits, ledger).await?;
    } else if ledger.wants_text() {
        inspected.text = raw_text(&inspected.parsed.head, body.clone(), false);
    }
    let chunked = inspected.parsed.head.body == RequestBody::Chunked;
    inspected.payload = Payload::Held { body, chunked, permit: whole.permit };
    Ok(inspected)
}

/// The advisory speaks to the model before it answers, so its findings have to be there first.
fn advisory_applies(settings: &Settings, parsed: &Parsed) -> bool {
    settings.llm_advisory_injection_enabled
        && parsed.route.operation == Operation::ChatCompletion
        && parsed.head.method() == "POST"
        && parsed.head.path().ends_with("/chat/completions")
}

fn raw_text(head: &RequestHead, body: Bytes, truncated: bool) -> RequestText {
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
            deadline: Some(Instant::now() + Duration::from_millis(settings.enforcement.timeout_ms)),
        }),
    };
    let core = Rc::clone(&session.core);
    // A compressed body may be many times as long as it looks.
    let looked = if body.len() <= INLINE_TEXT_BYTES_MAX && job.content_encoding.is_none() {
        let mut scratch = core.scratch.borrow_mut();
        let looked = survive(|| job.run(&core.process.parts.analyser, &mut scratch));
        if looked.is_none() {
            *scratch = core.process.parts.analyser.scratch();
        }
        looked.ok_or(Skip::Error)
    } else {
        look_on_pool(&core, job, settings.enforcement.timeout_ms).await
    };
    match looked {
        Ok(Looked { view, findings, detectors }) => {
            refuse_streaming(settings, &inspected.parsed, &view)?;
            if analyse {
                inspected.notice = partly_seen(settings, &view)?;
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
            return Looked { view, findings: Vec::new(), detectors: &[] };
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
        Looked { view, findings, detectors: ran.detectors }
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

// === enforce ===

fn enforce(settings: &Settings, inspected: Inspected, ledger: &mut Ledger) -> Result<Enforced, Refusal> {
    let decision = enforce::decide(&inspected.findings, &settings.enforcement);
    ledger.enforced(decision);
    if decision == Decision::Block {
        ledger.text = inspected.text;
        return Err(enforce::refusal(&inspected.findings, &settings.enforcement));
    }
    Ok(Enforced { inspected, decision })
}

// === rewrite ===

/// Brings the request into the form the provider will see, and hands its text to the ledger.
fn rewrite(settings: &Settings, enforced: Enforced, ledger: &mut Ledger) -> Ready {
    let Enforced { inspected, decision } = enforced;
    let Inspected { parsed, mut payload, text, findings, analysis, notice } = inspected;
    if let (RequestText::Read(view), Payload::Held { body, .. }) = (&text, &mut payload)
        && advisory_applies(settings, &parsed)
        && view.stream != Some(true)
        && parsed.head.get("content-encoding").is_none()
        && !findings.is_empty()
        && let Some(at) = view.messages_open
    {
        *body = rewrite::insert(body, at, &rewrite::advisory_message(&findings, view.messages_empty));
        ledger.event("advisory_injected", "a system message describing the findings was put before the conversation");
    }
    let mut marks = Vec::new();
    if decision == Decision::Flag {
        flag(&findings, &settings.enforcement, &mut marks);
    }
    if let Analysis::Skipped(skip) = analysis {
        marks.push(("X-Service-Analysis", Bytes::from_static(skip.header().as_bytes())));
    }
    if let Some(notice) = notice {
        marks.push(("X-Service-Analysis", Bytes::from_static(notice.as_bytes())));
    }
    ledger.text = text;
    Ready { parsed, payload, marks }
}

fn flag(findings: &[Finding], rules: &Enforcement, marks: &mut Vec<(&'static str, Bytes)>) {
    if let Some(worst) = enforce::worst(findings, rules) {
        marks.push(("X-Service-Flagged", Bytes::from_static(b"true")));
        marks.push(("X-Service-Finding-Type", Bytes::from(worst.finding_type.to_string())));
        marks.push(("X-Service-Severity", Bytes::from_static(worst.severity.as_str().as_bytes())));
    }
}

// === forward ===

async fn forward(session: &mut Session, settings: &Settings, ready: Ready, ledger: &mut Ledger) -> Result<Next, Stop> {
    let Ready { parsed, payload, marks } = ready;
    let mut watch = session.watch();
    let limit = Duration::from_millis(settings.limits.timeout_ms);
    let asked = Instant::now();
    let mut fresh = false;
    let (lease, answered) = loop {
        let mut lease = match session.core.pool.at_hand().filter(|_| !fresh) {
            Some(lease) => lease,
            None => {
                let waiting = Instant::now();
                let lease = upstream::lease(session, limit.saturating_sub(asked.elapsed())).await;
                ledger.moments.awaiting_upstream += waiting.elapsed();
                lease?
            }
        };
        let reused = lease.reused();
        let left = limit.saturating_sub(asked.elapsed());
        match ask(session, settings, &parsed, &payload, &mut lease, left, &mut watch, ledger).await? {
            Ok(answered) => break (lease, answered),
            Err(NoAnswer::ClientLeft) => return Err(Stop::ClientLeft),
            // The provider may have closed the kept connection just before; asking again is safe only for methods
            // that change nothing (RFC 9110 section 9.2.2).
            Err(NoAnswer::Silent) if reused && is_safe(&parsed.head) => fresh = true,
            Err(NoAnswer::Silent) => {
                let message = "the provider closed the connection without an answer";
                return Err(Refusal::upstream_protocol(message).into());
            }
            Err(NoAnswer::Timeout) => return Err(Refusal::upstream_timeout(settings.limits.timeout_ms).into()),
            Err(NoAnswer::Broken(what)) => {
                let message = format!("the provider's answer is not usable: {what}");
                return Err(Refusal::upstream_protocol(message).into());
            }
        }
    };
    // The record may share the body's memory for as long as the answer takes.
    if let Payload::Held { permit: Some(permit), .. } = payload {
        ledger.hold(permit);
    }
    refuse_unasked_stream(settings, &answered)?;
    let ended = relay::answer(session, settings, &parsed, lease, answered, &marks, &mut watch, ledger).await;
    Ok(match ended {
        Ended::Complete { keep: true } => Next::Keep,
        Ended::Complete { keep: false } | Ended::Cut => Next::Close,
    })
}

fn is_safe(head: &RequestHead) -> bool {
    head.body == RequestBody::Empty && matches!(head.method(), "GET" | "HEAD" | "OPTIONS")
}

/// Sends the request and awaits the head of the answer for at most `limit`, not counting the time a streamed body takes.
#[allow(clippy::too_many_arguments)] // One exchange's parts; a struct for one call would only rename them.
async fn ask(
    session: &mut Session,
    settings: &Settings,
    parsed: &Parsed,
    payload: &Payload,
    lease: &mut Lease,
    limit: Duration,
    watch: &mut ClientWatch,
    ledger: &mut Ledger,
) -> Result<Result<Answered, NoAnswer>, Stop> {
    if matches!(payload, Payload::Streamed) {
        upload::send_continue(session, &parsed.head).await?;
    }
    let Some((conn, read_buf)) = lease.parts() else { return Ok(Err(NoAnswer::Silent)) };
    request_head(session, settings, parsed, payload);
    let sent = match payload {
        Payload::Empty => {
            let out = session.written();
            Sent::from(upstream::send(session, conn, out).await)
        }
        Payload::Held { body, chunked, .. } => Sent::from(send_held(session, conn, body, *chunked).await),
        Payload::Streamed => {
            let cap = (settings.limits.max_request_size_bytes, settings.limits.max_request_size_source);
            let mut kept = ledger.wants_text().then(|| Kept {
                bytes: BytesMut::new(),
                permit: session.core.process.bodies.permit(),
                bytes_max: usize::try_from(settings.limits.max_request_size_bytes).unwrap_or(usize::MAX),
                truncated: false,
            });
            let mut waited = Duration::ZERO;
            let relayed = upload::relay(session, conn, &parsed.head, cap, kept.as_mut(), &mut waited).await;
            ledger.moments.awaiting_client += waited;
            if let Some(kept) = kept {
                ledger.text = raw_text(&parsed.head, kept.bytes.freeze(), kept.truncated);
                ledger.hold(kept.permit);
            }
            match relayed {
                Relayed::Complete => Sent::All,
                Relayed::UpstreamStopped => Sent::Stopped,
                Relayed::ClientLeft => return Err(Stop::ClientLeft),
                Relayed::Refused(refusal) => return Err(refusal.into()),
            }
        }
    };
    if sent == Sent::Stalled {
        return Err(upload::stalled_refusal().into());
    }
    let version = parsed.head.version;
    let mut waited = Duration::ZERO;
    let answered =
        upstream::await_head(session, conn, read_buf, parsed.head.method(), version, limit, watch, &mut waited).await;
    ledger.moments.awaiting_upstream += waited;
    // A provider that refuses early stops reading; its answer may still be there. Without one, nothing was served.
    Ok(match answered {
        Err(NoAnswer::Broken(_)) if sent == Sent::Stopped => Err(NoAnswer::Silent),
        other => other,
    })
}

/// Sends the head that stands in the session's buffer and a body that is in memory, in one write where that is cheap.
async fn send_held(session: &mut Session, conn: &mut UpstreamConn, body: &Bytes, chunked: bool) -> io::Result<()> {
    let joined = body.len() <= super::JOIN_BYTES_MAX;
    let out = &mut session.out;
    match (joined, chunked) {
        (true, true) => {
            wire::data_chunk(out, body);
            out.extend_from_slice(wire::LAST_CHUNK);
        }
        (true, false) => out.extend_from_slice(body),
        (false, true) => wire::chunk_head(out, body.len() as u64),
        (false, false) => {}
    }
    let first = session.written();
    upstream::send(session, conn, first).await?;
    if joined {
        return Ok(());
    }
    upstream::send(session, conn, body.clone()).await?;
    if chunked {
        upstream::send(session, conn, Bytes::from_static(b"\r\n0\r\n\r\n")).await?;
    }
    Ok(())
}

/// How sending a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// All of it is out.
    All,
    /// The provider stopped reading; it may have answered.
    Stopped,
    /// The provider took nothing for too long.
    Stalled,
}

impl From<io::Result<()>> for Sent {
    fn from(sent: io::Result<()>) -> Self {
        match sent {
            Ok(()) => Self::All,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Self::Stalled,
            Err(_) => Self::Stopped,
        }
    }
}

/// The head the provider sees: the client's fields in their order and spelling, without what belongs to this hop or to
/// us, with Host rewritten in its place and one framing field. Written into the session's buffer.
fn request_head(session: &mut Session, settings: &Settings, parsed: &Parsed, payload: &Payload) {
    let head = &parsed.head;
    let body_room = match payload {
        Payload::Held { body, .. } if body.len() <= super::JOIN_BYTES_MAX => body.len() + 32,
        _ => 64,
    };
    let core = Rc::clone(&session.core);
    let out = session.room(head.wire_bytes() + settings.upstream.authority.len() + 160 + body_room);
    let mut writer = HeadWriter::new(out);
    writer.request_line_below(head.method(), upstream_prefix(&settings.upstream, head.path()), head.target());
    let length = match payload {
        Payload::Held { body, chunked: false, .. } => Some(body.len() as u64),
        _ => match head.body {
            RequestBody::Length(length) => Some(length),
            _ => None,
        },
    };
    let mut host_written = false;
    for field in head.fields() {
        if field.is("host") {
            writer.field(field.name(), settings.upstream.authority.as_bytes());
            host_written = true;
        } else if field.is("content-length") {
            writer.number(field.name(), length.unwrap_or(0));
        } else if field.is("transfer-encoding") {
            writer.chunked();
        } else if field.is("traceparent") && parsed.trace.is_some() {
            let child = parsed.trace.map(|trace| trace.child(parsed.identity.span_id)).unwrap_or_default();
            writer.field(field.name(), child.as_bytes());
        } else if !field.is("expect") && !field.name_starts_with("x-service-") && !field.is_hop_by_hop() {
            writer.relay(field);
        }
    }
    if !host_written {
        writer.field("Host", settings.upstream.authority.as_bytes());
    }
    writer.field("Via", core.process.parts.instance.as_bytes());
    writer.end();
}

/// The part of the upstream's own path that goes in front of a request's path: all of it, unless the path begins with
/// it already, or both meet in `/v1`.
fn upstream_prefix<'a>(upstream: &'a Upstream, path: &str) -> &'a str {
    let prefix = upstream.path_prefix.as_str();
    let below = |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if prefix.is_empty() || below(prefix) || path == "*" {
        return "";
    }
    match prefix.strip_suffix("/v1") {
        Some(shorter) if below("/v1") => shorter,
        _ => prefix,
    }
}

/// With streaming switched off, a stream that comes all the same is not passed on.
fn refuse_unasked_stream(settings: &Settings, answered: &Answered) -> Result<(), Refusal> {
    let content_type = answered.head.get("content-type").unwrap_or_default().to_ascii_lowercase();
    let is_stream = content_type.starts_with(b"text/event-stream") || content_type.starts_with(b"application/x-ndjson");
    if settings.enable_streaming || !is_stream {
        return Ok(());
    }
    Err(Refusal::upstream_protocol(
        "the provider answered with a stream although streaming is switched off by `enable_streaming: false`",
    ))
}

// === refuse ===

/// Answers with a refusal in the shape of the dialect.
async fn refuse(
    session: &mut Session,
    ledger: &mut Ledger,
    dialect: Dialect,
    refusal: &Refusal,
    close: bool,
    head_only: bool,
) -> Next {
    ledger.refused(refusal);
    let body = refusal.body(dialect, ledger.trace_id);
    let mut headers = refusal.headers.clone();
    headers.push(("X-Service-Trace-Id", ledger.trace_id.to_string()));
    let sent = session.send_own(refusal.status, &headers, "application/json", body.into(), close, head_only).await;
    if close && sent.is_ok() {
        session.linger().await;
    }
    if close || sent.is_err() { Next::Close } else { Next::Keep }
}

/// Drops a refused request's body if all of it has arrived already, so that the connection can go on.
fn skip_body(session: &mut Session, body: RequestBody) {
    if let RequestBody::Length(length) = body
        && session.body_unread
        && !session.body_begun()
        && let Ok(length) = usize::try_from(length)
        && session.buf.len() >= length
    {
        bytes::Buf::advance(&mut session.buf, length);
        session.body_unread = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(path_prefix: &str) -> Upstream {
        Upstream { path_prefix: path_prefix.to_owned(), ..Upstream::default() }
    }

    #[test]
    fn the_upstream_path_is_written_once() {
        assert_eq!(upstream_prefix(&upstream(""), "/v1/models"), "");
        assert_eq!(upstream_prefix(&upstream("/v1"), "/v1/models"), "");
        assert_eq!(upstream_prefix(&upstream("/v1"), "/models"), "/v1");
        assert_eq!(upstream_prefix(&upstream("/openai/v1"), "/v1/models"), "/openai");
        assert_eq!(upstream_prefix(&upstream("/openai/v1"), "/openai/v1/models"), "");
        assert_eq!(upstream_prefix(&upstream("/openai"), "/v1/models"), "/openai");
        assert_eq!(upstream_prefix(&upstream("/v1"), "/v1beta/models"), "/v1");
        assert_eq!(upstream_prefix(&upstream("/v1"), "*"), "");
    }
}
