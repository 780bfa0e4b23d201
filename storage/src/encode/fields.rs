//! Which field of a record goes where in its body, in both directions.
//!
//! The order here is the file format. A new field gets a new format byte (see the parent module), or a flag that says it
//! stands behind all others; it never moves others. What can be told from other fields is left out, and a flag says so.

use std::borrow::Cow;

use weir_config::vocab::{ByteSpan, Finding, Severity, SpanId, Timestamp};

use super::bytes::{Packer, Unpacker};
use super::layout::{self, Laid, Layout};
use super::{Columns, Damaged};
use crate::prompt_cache::PromptCache;
use crate::record::{AgentAction, Attributes, RECORD_DAMAGED, SpanEvent, SpanRecord};

const STREAMING: u8 = 1;
const TOKENS_ESTIMATED: u8 = 2;
/// The model stands in the body, behind everything else: its column says only that it is one of many.
const MODEL_WITHIN: u8 = 4;
/// Attributes stand behind all of that, each as its name and its JSON text.
const ATTRIBUTES: u8 = 8;
/// Where the texts lie stands behind even those, and the fields `prompt` and `response` are empty.
const LAYOUT: u8 = 16;
// From schema 25 on:
/// Left out are `prompt`, `response` and the enforcement `none`; the detectors are one number, a bit for each of [`DETECTORS`].
const PLAIN: u8 = 32;
/// Left out is the duration: it is the time from start to end.
const TIMED: u8 = 64;
/// Left out is the total: it is the sum of the prompt's tokens and the answer's.
const SUMMED: u8 = 128;

// Positions are part of the file format; the order is the one in which detectors run.
const DETECTORS: [&str; 7] = ["rules", "jailbreak", "pii", "secrets", "operator", "classifier", "fusion"];

pub(super) fn pack(to: &mut Packer, span: &SpanRecord, model_within: bool, laid: &Laid<'_>) {
    let model = span.model.as_ref().filter(|_| model_within);
    let detectors = known(&span.detectors).filter(|_| span.enforcement == "none");
    let timed = lasted(span.end_time.micros() - span.start_time.micros()).to_bits() == span.duration_ms.to_bits();
    let summed = span.total_tokens.is_some() && span.total_tokens == sum(span.prompt_tokens, span.completion_tokens);
    let flags = [
        (span.streaming, STREAMING),
        (span.tokens_estimated, TOKENS_ESTIMATED),
        (model.is_some(), MODEL_WITHIN),
        (span.prompt_cache.is_some() || !span.attributes.is_empty(), ATTRIBUTES),
        (!laid.is_empty(), LAYOUT),
        (detectors.is_some(), PLAIN),
        (timed, TIMED),
        (summed, SUMMED),
    ];
    to.byte(flags.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag));
    to.zigzag(span.end_time.micros() - span.start_time.micros());
    to.optional(span.parent_span_id, |to, id| to.uuid(id.uuid()));
    to.optional(span.prompt_tokens, Packer::varint);
    to.optional(span.completion_tokens, Packer::varint);
    if !summed {
        to.optional(span.total_tokens, Packer::varint);
    }
    to.optional(span.cached_tokens, Packer::varint);
    to.optional(span.reasoning_tokens, Packer::varint);
    to.optional(span.time_to_first_token_ms, Packer::float);
    if !timed {
        to.float(span.duration_ms);
    }
    to.optional(span.overhead_us, Packer::varint);
    to.optional(span.status_code, |to, status| to.varint(u64::from(status)));
    to.optional(span.estimated_cost_usd, Packer::float);
    if detectors.is_none() {
        to.optional_text(None);
        to.optional_text(None);
    }
    to.optional_text(span.agent_id.as_deref());
    to.optional_text(span.error_type.as_deref());
    to.optional_text(span.error_message.as_deref());
    to.optional_text(span.finish_reason.as_deref());
    match detectors {
        Some(detectors) => to.varint(detectors),
        None => {
            to.text(&span.enforcement);
            to.varint(span.detectors.len() as u64);
            for detector in &span.detectors {
                to.text(detector);
            }
        }
    }
    to.pairs(span.tags.iter().map(|(key, value)| (key.as_ref(), value.as_str())));
    let start = span.start_time;
    to.varint(span.security_findings.len() as u64);
    for finding in &span.security_findings {
        pack_finding(to, finding, start);
    }
    to.varint(span.events.len() as u64);
    for event in &span.events {
        to.zigzag(event.timestamp.micros() - start.micros());
        to.text(&event.event_type);
        to.text(&event.description);
        to.pairs(event.data.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    }
    to.varint(span.agent_actions.len() as u64);
    for action in &span.agent_actions {
        pack_action(to, action, start);
    }
    if let Some(model) = model {
        to.text(model);
    }
    pack_attributes(to, span);
    if !laid.is_empty() {
        layout::pack(to, laid, &span.security_findings);
    }
}

/// The name under which what came of the prompt stands among the attributes. It is no sender's to give.
const PROMPT_CACHE: &str = "weir.prompt_cache";

fn pack_attributes(to: &mut Packer, span: &SpanRecord) {
    let own = span.prompt_cache.as_ref().and_then(|cache| serde_json::to_value(cache).ok());
    if own.is_none() && span.attributes.is_empty() && span.prompt_cache.is_none() {
        return;
    }
    let sent = || span.attributes.iter().filter(|(name, _)| *name != PROMPT_CACHE);
    to.varint((sent().count() + usize::from(own.is_some())) as u64);
    for (name, value) in sent() {
        to.text(name);
        to.json(value);
    }
    if let Some(own) = own {
        to.text(PROMPT_CACHE);
        to.json(&own);
    }
}

/// The detectors as a number, where they are known ones in the order in which they run.
fn known(detectors: &[Cow<'static, str>]) -> Option<u64> {
    let (mut bits, mut next) = (0, 0);
    for detector in detectors {
        let at = next + DETECTORS.get(next..)?.iter().position(|name| name == detector)?;
        bits |= 1 << at;
        next = at + 1;
    }
    Some(bits)
}

/// The duration of what took so long.
fn lasted(micros: i64) -> f64 {
    micros as f64 / 1e3
}

fn sum(prompt: Option<u64>, completion: Option<u64>) -> Option<u64> {
    prompt?.checked_add(completion?)
}

fn pack_finding(to: &mut Packer, finding: &Finding, start: Timestamp) {
    to.uuid(finding.id);
    to.byte(match finding.severity {
        Severity::Info => 0,
        Severity::Low => 1,
        Severity::Medium => 2,
        Severity::High => 3,
        Severity::Critical => 4,
    });
    to.byte(u8::from(finding.requires_alert));
    to.float(finding.confidence);
    to.zigzag(finding.detected_at.micros() - start.micros());
    to.optional(finding.span, |to, span| {
        to.varint(span.start as u64);
        to.varint(span.end as u64);
    });
    to.text(&finding.finding_type);
    to.text(&finding.description);
    to.text(&finding.detector);
    to.text(&finding.location);
    to.text(&finding.evidence);
    to.pairs(finding.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())));
}

fn pack_action(to: &mut Packer, action: &AgentAction, start: Timestamp) {
    to.uuid(action.id);
    to.byte(u8::from(action.success));
    to.zigzag(action.timestamp.micros() - start.micros());
    to.text(&action.action_type);
    to.text(&action.name);
    to.optional_text(action.arguments.as_deref());
    to.optional_text(action.result.as_deref());
    to.optional(action.duration_ms, Packer::float);
    to.optional(action.exit_code, |to, code| to.zigzag(i64::from(code)));
    to.optional_text(action.http_method.as_deref());
    to.optional(action.http_status, |to, status| to.varint(u64::from(status)));
    to.optional_text(action.file_operation.as_deref());
    to.pairs(action.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())));
}

/// A reported action stands alone: its times count from its own timestamp, which stands in front.
pub(super) fn pack_reported(to: &mut Packer, action: &AgentAction, findings: &[Finding]) {
    to.zigzag(action.timestamp.micros());
    pack_action(to, action, action.timestamp);
    to.varint(findings.len() as u64);
    for finding in findings {
        pack_finding(to, finding, action.timestamp);
    }
}

// === reading ===

pub(super) fn unpack_reported(from: &mut Unpacker<'_>) -> Result<(AgentAction, Vec<Finding>), Damaged> {
    let start = Timestamp::from_micros(from.zigzag()?);
    Ok((unpack_action(from, start)?, from.list(|from| unpack_finding(from, start))?))
}

pub(super) fn unpack(from: &mut Unpacker<'_>, columns: Columns) -> Result<(SpanRecord, Layout), Damaged> {
    let start = columns.start_time;
    let flags = from.byte()?;
    let is_plain = flags & PLAIN != 0;
    // Fields are evaluated in the order written, which is the order they were packed in.
    let mut span = SpanRecord {
        streaming: flags & STREAMING != 0,
        tokens_estimated: flags & TOKENS_ESTIMATED != 0,
        end_time: after(start, from)?,
        parent_span_id: from.optional(Unpacker::uuid)?.map(SpanId::from_uuid),
        prompt_tokens: from.optional(Unpacker::varint)?,
        completion_tokens: from.optional(Unpacker::varint)?,
        total_tokens: if flags & SUMMED == 0 { from.optional(Unpacker::varint)? } else { None },
        cached_tokens: from.optional(Unpacker::varint)?,
        reasoning_tokens: from.optional(Unpacker::varint)?,
        time_to_first_token_ms: from.optional(Unpacker::float)?,
        duration_ms: if flags & TIMED == 0 { from.float()? } else { 0.0 },
        overhead_us: from.optional(Unpacker::varint)?,
        status_code: from.optional(status)?,
        estimated_cost_usd: from.optional(Unpacker::float)?,
        prompt: if is_plain { None } else { from.optional_text()? },
        response: if is_plain { None } else { from.optional_text()? },
        agent_id: from.optional_text()?,
        error_type: from.optional_text()?,
        error_message: from.optional_text()?,
        finish_reason: from.optional_text()?,
        enforcement: if is_plain { Cow::Borrowed("none") } else { from.text()?.into() },
        detectors: if is_plain { named(from.varint()?)? } else { from.list(|from| from.text().map(detector))? },
        tags: from.pairs()?.into_iter().map(|(key, value)| (key.into(), value)).collect(),
        security_findings: from.list(|from| unpack_finding(from, start))?,
        events: from.list(|from| {
            Ok(SpanEvent {
                timestamp: after(start, from)?,
                event_type: from.text()?.into(),
                description: from.text()?,
                data: from.pairs()?.into_iter().collect(),
            })
        })?,
        agent_actions: from.list(|from| unpack_action(from, start))?,
        model: if flags & MODEL_WITHIN == 0 { columns.model } else { Some(from.text()?) },
        attributes: Attributes::default(),
        prompt_cache: None,
        parts: Vec::new(),
        frame: None,
        trace_id: columns.trace_id,
        span_id: columns.span_id,
        tenant_id: columns.tenant_id,
        operation_name: columns.operation.into(),
        start_time: start,
        provider: columns.provider.into(),
        security_score: columns.score,
        session_id: columns.session,
        client: columns.client,
    };
    if flags & ATTRIBUTES != 0 {
        (span.attributes, span.prompt_cache) = attributes(from)?;
    }
    if flags & SUMMED != 0 {
        span.total_tokens = sum(span.prompt_tokens, span.completion_tokens);
    }
    if flags & TIMED != 0 {
        span.duration_ms = lasted(span.end_time.micros().saturating_sub(start.micros()));
    }
    let layout =
        if flags & LAYOUT == 0 { Layout::default() } else { layout::unpack(from, &mut span.security_findings)? };
    Ok((span, layout))
}

/// What is known of a call whose body cannot be read: its columns. It says so.
pub(super) fn unreadable(columns: Columns) -> SpanRecord {
    SpanRecord {
        streaming: false,
        tokens_estimated: false,
        end_time: columns.start_time,
        parent_span_id: None,
        prompt_tokens: None,
        completion_tokens: None,
        total_tokens: None,
        cached_tokens: None,
        reasoning_tokens: None,
        time_to_first_token_ms: None,
        duration_ms: 0.0,
        overhead_us: None,
        status_code: None,
        estimated_cost_usd: None,
        prompt: None,
        response: None,
        agent_id: None,
        error_type: None,
        error_message: None,
        finish_reason: None,
        enforcement: Cow::Borrowed("none"),
        detectors: Vec::new(),
        tags: std::iter::once((RECORD_DAMAGED.0.into(), RECORD_DAMAGED.1.to_owned())).collect(),
        security_findings: Vec::new(),
        events: Vec::new(),
        agent_actions: Vec::new(),
        model: columns.model,
        attributes: Attributes::default(),
        prompt_cache: None,
        parts: Vec::new(),
        frame: None,
        trace_id: columns.trace_id,
        span_id: columns.span_id,
        tenant_id: columns.tenant_id,
        operation_name: columns.operation.into(),
        start_time: columns.start_time,
        provider: columns.provider.into(),
        security_score: columns.score,
        session_id: columns.session,
        client: columns.client,
    }
}

/// The detectors of this number.
fn named(bits: u64) -> Result<Vec<Cow<'static, str>>, Damaged> {
    if bits >> DETECTORS.len() != 0 {
        return Err(Damaged);
    }
    let all = DETECTORS.iter().enumerate();
    Ok(all.filter(|(at, _)| bits >> at & 1 == 1).map(|(_, name)| Cow::Borrowed(*name)).collect())
}

fn attributes(from: &mut Unpacker<'_>) -> Result<(Attributes, Option<Box<PromptCache>>), Damaged> {
    let (mut attributes, mut prompt_cache) = (Attributes::default(), None);
    for (name, value) in from.pairs()? {
        if name == PROMPT_CACHE {
            // A later version may say more than this one knows: what it cannot read it leaves out.
            prompt_cache = serde_json::from_str(&value).ok();
            continue;
        }
        let value = serde_json::from_str(&value).map_err(|_| Damaged)?;
        attributes.insert(name, value).map_err(|_| Damaged)?;
    }
    Ok((attributes, prompt_cache))
}

fn after(start: Timestamp, from: &mut Unpacker<'_>) -> Result<Timestamp, Damaged> {
    let micros = start.micros().checked_add(from.zigzag()?).ok_or(Damaged)?;
    Ok(Timestamp::from_micros(micros))
}

fn status(from: &mut Unpacker<'_>) -> Result<u16, Damaged> {
    u16::try_from(from.varint()?).map_err(|_| Damaged)
}

fn flag(from: &mut Unpacker<'_>) -> Result<bool, Damaged> {
    match from.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Damaged),
    }
}

fn offset(from: &mut Unpacker<'_>) -> Result<usize, Damaged> {
    usize::try_from(from.varint()?).map_err(|_| Damaged)
}

fn unpack_finding(from: &mut Unpacker<'_>, start: Timestamp) -> Result<Finding, Damaged> {
    Ok(Finding {
        id: from.uuid()?,
        severity: match from.byte()? {
            0 => Severity::Info,
            1 => Severity::Low,
            2 => Severity::Medium,
            3 => Severity::High,
            4 => Severity::Critical,
            _ => return Err(Damaged),
        },
        requires_alert: flag(from)?,
        part: None,
        confidence: from.float()?,
        detected_at: after(start, from)?,
        span: from.optional(|from| Ok(ByteSpan { start: offset(from)?, end: offset(from)? }))?,
        finding_type: from.text()?.into(),
        description: from.text()?.into(),
        detector: detector(from.text()?),
        location: from.text()?,
        evidence: from.text()?,
        metadata: from.pairs()?.into_iter().collect(),
    })
}

/// The name of a detector as it is called today: the embedded classifier was `ml` in what older versions wrote.
fn detector(name: String) -> Cow<'static, str> {
    if name == "ml" { Cow::Borrowed("classifier") } else { name.into() }
}

fn unpack_action(from: &mut Unpacker<'_>, start: Timestamp) -> Result<AgentAction, Damaged> {
    Ok(AgentAction {
        id: from.uuid()?,
        success: flag(from)?,
        timestamp: after(start, from)?,
        action_type: from.text()?,
        name: from.text()?,
        arguments: from.optional_text()?,
        result: from.optional_text()?,
        duration_ms: from.optional(Unpacker::float)?,
        exit_code: from.optional(|from| i32::try_from(from.zigzag()?).map_err(|_| Damaged))?,
        http_method: from.optional_text()?,
        http_status: from.optional(status)?,
        file_operation: from.optional_text()?,
        metadata: from.pairs()?.into_iter().collect(),
    })
}
