//! The stage that brings a request into the form in which it goes on. Invariant: bytes that are not rewritten stay as they came.
//! Does no I/O.

use bytes::Bytes;
use weir_config::settings::Enforcement;
use weir_config::vocab::{Finding, Unread};

use super::caps::Affordable;
use super::exchange::Exchange;
use super::fenced;
use crate::codec;
use crate::enforce::{self, Decision};
use crate::exchange::{Analysis, Payload};
use crate::process::Core;
use crate::rewrite::{self, Edits};
use crate::settle::text::RequestText;

/// A request in the form the provider will see.
pub(super) struct Ready {
    exchange: Box<Exchange>,
    payload: Payload,
    /// Header fields the answer gets beside the provider's own.
    marks: Marks,
}

/// Header fields that an answer gets beside the provider's own.
pub(super) type Marks = Vec<(&'static str, Bytes)>;

impl Ready {
    pub(super) fn into_parts(self) -> (Box<Exchange>, Payload, Marks) {
        (self.exchange, self.payload, self.marks)
    }
}

/// Brings the request into the form the provider will see.
pub(super) fn rewrite(core: &Core, affordable: Affordable) -> Ready {
    let enforced = affordable.into_enforced();
    let decision = enforced.decision();
    let (mut exchange, mut payload) = (enforced.exchange, enforced.payload);
    let mut marks = Vec::new();
    if !matches!(payload, Payload::Empty) {
        let edited = edit(core, &mut exchange, &mut payload);
        if edited.advised {
            marks.push((ADVISORY_HEADER, Bytes::from_static(b"injected")));
        }
        if !edited.redacted_all {
            marks.push((REDACTION_HEADER, Bytes::from_static(b"incomplete")));
        }
    }
    if decision == Decision::Flag {
        flag(&exchange.journal.inspection.findings, &exchange.settings().enforcement, &mut marks);
    }
    if let Some(notice) = notice(&exchange, &payload) {
        marks.push((ANALYSIS_HEADER, Bytes::from_static(notice.as_bytes())));
    }
    Ready { exchange, payload, marks }
}

/// Says that something was not analysed, or not all of it, and why.
pub(super) const ANALYSIS_HEADER: &str = "X-Service-Analysis";

/// Says that something that was to be redacted has been passed on as it came.
pub(super) const REDACTION_HEADER: &str = "X-Service-Redaction";

/// Says that the model was told of what was found: a message of ours stands in front of the conversation.
const ADVISORY_HEADER: &str = "X-Service-Advisory";

/// What the edits of a body came to.
struct Edited {
    /// The advisory was put in.
    advised: bool,
    /// No personal data that was to be redacted stays.
    redacted_all: bool,
}

impl Edited {
    const fn plain(redacted_all: bool) -> Self {
        Self { advised: false, redacted_all }
    }
}

/// Makes all edits of the body at once, each at its place in the body as it came.
fn edit(core: &Core, exchange: &mut Exchange, payload: &mut Payload) -> Edited {
    let shadow = exchange.settings().pii_shadow_mode;
    let asked = exchange.redacts() && !shadow;
    let changes = exchange.journal.inspection.changes.take();
    let defence = changes.as_ref().and_then(|changes| changes.defence.as_deref().cloned());
    let decoded = changes.as_ref().and_then(|changes| changes.decoded.as_ref());
    let advisory = advisory(exchange, payload, decoded.is_some()).filter(|_| {
        !exchange.settings().llm_advisory_shadow_mode || {
            core.meter.advised(true);
            false
        }
    });
    if !asked && advisory.is_none() && changes.is_none() {
        fenced::account(core, exchange, None, true);
        return Edited::plain(true);
    }
    let Payload::Held { body, .. } = &*payload else {
        fenced::account(core, exchange, defence, true);
        return Edited::plain(missed(core, exchange, asked, "not_read"));
    };
    let mut edits = Edits::of(decoded.unwrap_or(body));
    let left = changes.as_ref().map(|changes| changes.put(&mut edits));
    let pieces = changes.as_ref().map_or(0, |changes| changes.personal.saturating_sub(changes.unplaced));
    let redacted = asked && pieces > 0;
    let advised = advisory.is_some_and(|(at, message)| edits.insert(at, message).is_ok());
    let room = || core.process.bodies.of(exchange.journal.ids.tenant_id).permit();
    // What is not changed goes on in its coding.
    let is_changed = !edits.is_empty();
    let fits = rewrite::rewrite(payload, edits, room);
    exchange.is_decoded = fits && is_changed && decoded.is_some();
    fenced::account(core, exchange, defence, fits);
    if !fits {
        core.meter.dropped("rewrite", "out_of_memory");
        if has_markers(exchange) {
            core.meter.dropped("zones", "not_in_memory");
            exchange.journal.tag("zone_markers", "not_in_memory".to_owned());
        }
        if advised {
            let said = "there was no memory left for the request with the advisory in it";
            exchange.journal.event("advisory_left_out", said);
        }
        return Edited::plain(missed(core, exchange, redacted, "not_in_memory"));
    }
    core.meter.redacted(shadow, pieces);
    if redacted {
        exchange.journal.note_redacted(pieces);
        let said = "personal data was replaced by tags in what was forwarded";
        exchange.journal.event("pii_redacted", said);
    }
    if advised {
        core.meter.advised(false);
        let said = "a system message describing the findings was put before the conversation";
        exchange.journal.event("advisory_injected", said);
    }
    let (is_late, is_partial) =
        changes.as_ref().map_or((false, false), |changes| (changes.is_late, changes.is_partial));
    let redacted_all = match left {
        Some(_) if is_late => missed(core, exchange, asked, "not_in_time"),
        Some(0) if is_partial => missed(core, exchange, asked, "not_read"),
        Some(left) => missed(core, exchange, asked && left > 0, "not_in_place"),
        None => missed(core, exchange, asked, "not_read"),
    };
    Edited { advised, redacted_all }
}

/// Counts and notes a request whose personal data was to be redacted and was not, or not all of it. True where it was.
fn missed(core: &Core, exchange: &mut Exchange, is_missed: bool, reason: &'static str) -> bool {
    if is_missed {
        core.meter.dropped("redaction", reason);
        exchange.journal.tag("pii_unredacted", reason.to_owned());
    }
    !is_missed
}

/// Whether markers of the operator were to be taken out of it.
fn has_markers(exchange: &Exchange) -> bool {
    let RequestText::Read(view) = &exchange.journal.inspection.text else { return false };
    view.zones.as_ref().is_some_and(|zones| !zones.cuts.is_empty())
}

/// The advisory and its place, where one is due: in the body as it came, or in what is in its content coding.
fn advisory(exchange: &Exchange, payload: &Payload, is_decoded: bool) -> Option<(usize, Vec<u8>)> {
    let inspection = &exchange.journal.inspection;
    let (RequestText::Read(view), Payload::Held { .. }) = (&inspection.text, payload) else { return None };
    let is_plain = || codec::is_identity(exchange.head.get("content-encoding"));
    let may_speak = exchange.advisory_applies() && view.may_be_advised() && (is_decoded || is_plain());
    let at = view.messages_open.filter(|_| may_speak)?;
    let least = exchange.settings().llm_advisory_min_severity;
    Some((at, rewrite::advisory_message(&inspection.findings, least, view.messages_empty)?))
}

/// What the client is told where nobody who was waited for has said anything of the request.
const VERDICT_TIMEOUT: &str = "skipped;reason=verdict_timeout";

/// What the client is told when analysis did not see all of the request, or a verdict came too late.
fn notice(exchange: &Exchange, payload: &Payload) -> Option<&'static str> {
    let inspection = &exchange.journal.inspection;
    match (inspection.analysis, &inspection.text) {
        (Analysis::Skipped(skip), _) => Some(skip.header()),
        (Analysis::Ran | Analysis::Rules, RequestText::Read(view)) => {
            let missed = inspection.misses_verdict.then_some(VERDICT_TIMEOUT);
            view.unread().worst().map(Unread::header).or(missed)
        }
        (Analysis::Due, _) if !matches!(payload, Payload::Empty) => exchange.unread_by_head().map(Unread::header),
        (Analysis::Ran | Analysis::Rules | Analysis::Due, _) => None,
    }
}

fn flag(findings: &[Finding], rules: &Enforcement, marks: &mut Marks) {
    if let Some(worst) = enforce::worst(findings, rules) {
        marks.push(("X-Service-Flagged", Bytes::from_static(b"true")));
        marks.push(("X-Service-Finding-Type", Bytes::from(worst.finding_type.to_string())));
        marks.push(("X-Service-Severity", Bytes::from_static(worst.severity.as_str().as_bytes())));
    }
}
