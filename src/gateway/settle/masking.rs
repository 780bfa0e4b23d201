//! What a record's texts do not keep: personal data where it is redacted (`pii.action`), and what a detector called a credential
//! (`storage.mask_secrets`), wherever the record repeats it. Runs once over a finished record, when all findings are known, and before
//! over what others are shown of a request.
//!
//! Invariants: each part of the record still points at its words; of two pieces that overlap nothing is left, and the longer one
//! gives the tag; spans of findings stay those of the text that was analysed. The work is linear in the texts, and its memory a part
//! of `server.max_body_memory_bytes`; a text for which there is no memory, or no time, is not kept at all.

use std::borrow::Cow;
use std::ops::Range;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use weir_config::Settings;
use weir_config::settings::PiiAction;
use weir_config::vocab::part::{PartKind, PartRecord, PartSide};
use weir_config::vocab::{ByteSpan, Finding, JUDGE_VERDICT, score};
use weir_inference::{KeyEnds, Taker, Taking, personal_data, personal_data_by, secret_tag};
use weir_storage::record::SpanRecord;

use super::framed;
use super::marks::{Mark, Marks, Shifts, is_name, name_tag, replaced};
use super::seam;
use crate::inspect::{RequestView, TextPart};
use crate::record::Budget;
use crate::redaction::{Beside, CREDENTIAL_BYTES_MAX, Credentials};

/// What masking may use.
pub(crate) struct Means<'a> {
    /// Until when; what is not done then is not kept.
    pub(crate) deadline: Option<Instant>,
    /// The memory for bodies.
    pub(crate) bodies: &'a Budget,
    /// The longest text of which pieces are taken out, in bytes; a longer one is not kept.
    pub(crate) longest: usize,
}

/// How long masking a record may take. It is linear in its texts: this is the bound for the longest of them on a machine that is
/// busy.
pub(crate) const MASKING_LIMIT: Duration = Duration::from_secs(10);
/// Shorter texts need no memory worth counting.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// What masking a text takes while it is done, in lengths of the text: its marks, places in it, and the text that is kept.
const WORK_TIMES: usize = 4;
/// What is kept of a text that could not be masked.
const NOT_KEPT: &str = "[NOT_KEPT]";
/// The tag that names texts of which more was taken out than had to be, because there was no time, or no memory, for less.
const INCOMPLETE: &str = "masking_incomplete";

/// What is taken out of stored texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Masking {
    personal: bool,
    /// Names that a model finds are taken out like all personal data and are no findings: those of rules are not even made.
    silent: bool,
    secrets: bool,
    /// What would be taken out of answers on their way to their clients, where that is only counted.
    counts: Option<Taking>,
}

impl Masking {
    pub(crate) fn of(settings: &Settings) -> Self {
        let answers = settings.pii_redact_answers;
        let taking = Taking { personal: answers.personal(), secrets: answers.secrets() };
        Self {
            personal: settings.pii_action != PiiAction::AlertOnly,
            silent: settings.pii_action == PiiAction::RedactSilent,
            secrets: settings.storage.mask_secrets,
            counts: (settings.pii_redact_answers_shadow_mode && taking != Taking::default()).then_some(taking),
        }
    }

    /// All that can be taken out, for those who are not to see it whatever is kept.
    pub(crate) const fn whole() -> Self {
        Self { personal: true, silent: false, secrets: true, counts: None }
    }

    /// How many pieces would have been taken out of an answer on its way to its client, had that not been only counted.
    pub(crate) fn counted(self, span: &SpanRecord, deadline: Option<Instant>) -> usize {
        let (Some(taking), Some(text)) = (self.counts, &span.response) else { return 0 };
        let mut taker = Taker::new(taking);
        let said = span.parts.iter().filter(|part| part.side == PartSide::Response && part.kind != PartKind::ToolCall);
        let words = said.filter_map(|part| Some((text.get(place(part)?)?, part.kind)));
        words.map_while(|(words, kind)| taker.pieces_by(words, kind, deadline)).map(|found| found.len()).sum()
    }

    /// Takes it out of a finished record.
    pub(crate) fn apply(self, span: &mut SpanRecord, means: &Means<'_>) {
        let found = self.credentials(span);
        let mut incomplete = Vec::new();
        if self.personal || found.is_some() {
            for side in [PartSide::Request, PartSide::Response] {
                let text = match side {
                    PartSide::Request => &span.prompt,
                    PartSide::Response => &span.response,
                };
                let Some(text) = text else { continue };
                let (marks, all) = self.marks_within(means, text, span, side, found.as_ref());
                if !all {
                    incomplete.push(if side == PartSide::Request { "request" } else { "response" });
                }
                if !marks.is_empty() {
                    replace(span, side, &marks);
                }
            }
        }
        if let Some(frame) = &mut span.frame
            && !framed::mask(frame, self.personal, found.as_ref(), means.deadline)
        {
            span.frame = None;
            incomplete.push("frame");
        }
        if !incomplete.is_empty() {
            span.tags.insert(Cow::Borrowed(INCOMPLETE), incomplete.join(","));
        }
        self.apply_beside(span, &found.unwrap_or_default());
        if self.silent {
            forget_names(span);
        }
    }

    /// What a text of the record loses, and whether that is no more than it has to: all of it goes where there is no time or memory.
    fn marks_within(
        self,
        means: &Means<'_>,
        text: &str,
        span: &SpanRecord,
        side: PartSide,
        found: Option<&Credentials>,
    ) -> (Vec<Mark>, bool) {
        let of = Parts { parts: &span.parts, side };
        let mut room = None;
        let has_room = text.len() <= SMALL_BYTES
            || text.len() <= means.longest && {
                let permit = room.insert(means.bodies.of(span.tenant_id).permit());
                permit.grow(text.len().saturating_mul(WORK_TIMES))
            };
        let marks = has_room.then(|| self.marks(text, of, &span.security_findings, found, means.deadline));
        marks.flatten().unwrap_or_else(|| (vec![Mark { range: 0..text.len(), with: NOT_KEPT }], false))
    }

    /// The credentials that were found in the texts of a call; `None` where none are to be taken out.
    fn credentials(self, span: &SpanRecord) -> Option<Credentials> {
        let any = self.secrets && span.security_findings.iter().any(is_secret);
        any.then(|| {
            let mut found = Credentials::default();
            for (side, text) in [(PartSide::Request, &span.prompt), (PartSide::Response, &span.response)] {
                let Some(text) = text else { continue };
                remember(text, &span.parts, side, &span.security_findings, &mut found);
            }
            found
        })
    }

    /// What a text of these parts loses, in order, and whether that is no more than it has to. `None` where the deadline passed.
    fn marks(
        self,
        text: &str,
        Parts { parts, side }: Parts<'_>,
        findings: &[Finding],
        found: Option<&Credentials>,
        deadline: Option<Instant>,
    ) -> Option<(Vec<Mark>, bool)> {
        let mut marks = Marks::of(text.len());
        if self.personal {
            personal(text, parts, side, deadline, &mut marks)?;
            found_names(text, parts, side, findings, &mut marks);
        }
        if let Some(found) = found {
            found_secrets(text, parts, side, findings, &mut marks);
            for (range, tag) in found.places(text, deadline)? {
                marks.push(range, tag);
            }
        }
        Some(marks.joined())
    }

    /// Takes it out of what stands beside the texts: findings, events, what went wrong, what a judge says.
    fn apply_beside(self, span: &mut SpanRecord, found: &Credentials) {
        if self.personal {
            // An excerpt may have been cut in the middle of a number, and then shows less than one.
            for finding in &mut span.security_findings {
                mask_all(&mut finding.evidence);
            }
        }
        // What others say in words of their own may hold anything.
        let reasons = span.security_findings.iter_mut().filter(|finding| finding.finding_type == JUDGE_VERDICT);
        let errors = span.error_message.iter_mut().chain(&mut span.error_type);
        let mut said = reasons.map(|finding| &mut finding.evidence).chain(errors).peekable();
        if said.peek().is_some() {
            let mut beside = Beside::quiet(Taking { personal: self.personal, secrets: self.secrets });
            said.for_each(|text| beside.text("", "", text));
        }
        if found.is_empty() {
            return;
        }
        for finding in &mut span.security_findings {
            found.mask(&mut finding.evidence);
            finding.metadata.values_mut().for_each(|value| found.mask(value));
        }
        for event in &mut span.events {
            found.mask(&mut event.description);
            event.data.values_mut().for_each(|value| found.mask(value));
        }
        span.error_message.iter_mut().chain(&mut span.error_type).for_each(|text| found.mask(text));
        // Names and ids are the client's and the provider's words as well: of tools, of a model, of the answer, in the path.
        for tool in span.parts.iter_mut().filter_map(|part| part.tool.as_deref_mut()) {
            tool.name.iter_mut().chain(&mut tool.id).for_each(|text| found.mask(text));
        }
        span.model
            .iter_mut()
            .chain(&mut span.session_id)
            .chain(&mut span.finish_reason)
            .for_each(|text| found.mask(text));
        span.tags.values_mut().for_each(|text| found.mask(text));
        span.attributes.change_texts(|text| found.mask(text));
    }

    /// A request's texts and what was found in them, for somebody who is asked about it before there is a record: they are shown what
    /// that will show. `None` where nothing is taken out.
    pub(crate) fn shown(self, view: &RequestView, findings: &[Finding]) -> Option<(Vec<String>, Vec<Finding>)> {
        let secrets = self.secrets && findings.iter().any(is_secret);
        if !self.personal && !secrets && !view.parts.iter().any(TextPart::is_credential) {
            return None;
        }
        let parts: Vec<PartRecord> = view.parts.iter().map(as_read).collect();
        let mut found = Credentials::default();
        if secrets {
            remember(&view.text, &parts, PartSide::Request, findings, &mut found);
        }
        let found_here = secrets.then_some(&found);
        let of = Parts { parts: &parts, side: PartSide::Request };
        let marks = self.marks(&view.text, of, findings, found_here, None);
        let (marks, _) = marks.unwrap_or_default();
        let whole = replaced(&view.text, &marks);
        let shifts = Shifts::of(&marks);
        let places: Vec<Range<usize>> =
            view.parts.iter().map(|part| shifts.at(part.range.start)..shifts.at(part.range.end)).collect();
        let of_place = |(part, place): (&TextPart, &Range<usize>)| match part.is_credential() {
            true => String::new(),
            false => whole.get(place.clone()).unwrap_or_default().to_owned(),
        };
        let texts = view.parts.iter().zip(&places).map(of_place).collect();
        let moved = findings.iter().map(|finding| {
            let mut finding = finding.clone();
            let part = finding.part.and_then(|part| usize::try_from(part).ok());
            if let (Some(from), Some(to), Some(span)) =
                (part.and_then(|part| view.parts.get(part)), part.and_then(|part| places.get(part)), finding.span)
            {
                let place = |at: usize| shifts.at(from.range.start + at).saturating_sub(to.start);
                finding.span = Some(ByteSpan { start: place(span.start), end: place(span.end) });
            }
            found.mask(&mut finding.evidence);
            finding
        });
        Some((texts, moved.filter(|finding| !self.silent || !is_name(finding)).collect()))
    }
}

/// The parts of a record, and the side whose text is looked at.
#[derive(Clone, Copy)]
struct Parts<'a> {
    parts: &'a [PartRecord],
    side: PartSide,
}

/// Leaves out what was found of names, and what it did to the score.
fn forget_names(span: &mut SpanRecord) {
    let all = span.security_findings.len();
    span.security_findings.retain(|finding| !is_name(finding));
    if span.security_findings.len() < all {
        span.security_score = span.security_score.map(|_| score(&span.security_findings));
    }
}

/// A part of a request as the functions here know them.
fn as_read(part: &TextPart) -> PartRecord {
    let (start, end) = (u32::try_from(part.range.start), u32::try_from(part.range.end));
    PartRecord {
        side: PartSide::Request,
        kind: part.kind,
        form: part.form,
        role: None,
        message: part.message,
        text: start.ok().zip(end.ok()).map(|(start, end)| start..end),
        raw: None,
        tool: None,
    }
}

fn is_secret(finding: &Finding) -> bool {
    finding.metadata.contains_key("secret_type")
}

fn place(part: &PartRecord) -> Option<Range<usize>> {
    let text = part.text.as_ref()?;
    Some(usize::try_from(text.start).ok()?..usize::try_from(text.end).ok()?)
}

/// `None` where the deadline passed.
fn personal(
    text: &str,
    parts: &[PartRecord],
    side: PartSide,
    deadline: Option<Instant>,
    marks: &mut Marks,
) -> Option<()> {
    let of_side = parts.iter().filter(|part| part.side == side);
    for (at, kind) in of_side.filter_map(|part| Some((place(part)?, part.kind))) {
        let words = text.get(at.clone()).unwrap_or_default();
        for found in personal_data_by(words, kind, deadline)? {
            marks.push(at.start + found.range().start..at.start + found.range().end, found.tag());
        }
    }
    let of_side = |part: &PartRecord| if part.side == side { text.get(place(part)?) } else { None };
    for (part, Mark { range, with }) in seam::personal_across(parts, of_side, deadline)? {
        let Some(at) = parts.get(part).and_then(place) else { continue };
        marks.push(at.start + range.start..at.start + range.end, with);
    }
    Some(())
}

fn found_names(text: &str, parts: &[PartRecord], side: PartSide, findings: &[Finding], marks: &mut Marks) {
    for finding in findings.iter().filter(|finding| is_name(finding)) {
        let Some(range) = found_at(finding, parts, side) else { continue };
        if text.get(range.clone()).is_some_and(|words| !words.is_empty()) {
            marks.push(range, name_tag(finding));
        }
    }
}

/// Where the credentials that were found stand in this text, with their kinds; of one that lies across several texts each piece.
fn found_secrets(text: &str, parts: &[PartRecord], side: PartSide, findings: &[Finding], marks: &mut Marks) {
    each_secret(text, parts, side, findings, |kind, places| {
        let with = secret_tag(kind);
        places.into_iter().for_each(|range| marks.push(range, with));
    });
}

/// Bytes of a credential, with the words that say what it is, that are looked at to remember it.
const REMEMBERED_BYTES_MAX: usize = 4 * CREDENTIAL_BYTES_MAX;

/// Remembers the credentials that were found in this text.
fn remember(text: &str, parts: &[PartRecord], side: PartSide, findings: &[Finding], found: &mut Credentials) {
    each_secret(text, parts, side, findings, |kind, places| {
        if found.is_full() {
            return;
        }
        let mut words = String::new();
        for range in &places {
            let piece = text.get(range.clone()).unwrap_or_default();
            words.push_str(
                piece.get(..piece.floor_char_boundary(REMEMBERED_BYTES_MAX - words.len())).unwrap_or_default(),
            );
            if words.len() + 4 > REMEMBERED_BYTES_MAX {
                break;
            }
        }
        found.add_beginning(kind, &words, places.iter().map(Range::len).sum());
    });
}

/// The places of one credential, one for each text it lies in.
type Places = SmallVec<[Range<usize>; 1]>;

/// Calls `each` with the kind and the places of every credential that was found in this text.
fn each_secret(
    text: &str,
    parts: &[PartRecord],
    side: PartSide,
    findings: &[Finding],
    mut each: impl FnMut(&str, Places),
) {
    let secrets = findings.iter().filter_map(|finding| Some((finding, finding.metadata.get("secret_type")?)));
    let mut secrets: Vec<_> = secrets.collect();
    // In the order of the text, as the ends of keys are found.
    secrets.sort_by_key(|(finding, _)| found_at(finding, parts, side).map(|at| at.start));
    let mut search = Search { text, parts, side, keys: KeyEnds::default(), followed: 0 };
    for (finding, kind) in secrets {
        each(kind, search.places(finding, kind));
    }
}

/// Looks for the places of credentials, one after the other in the order of the text.
struct Search<'a> {
    text: &'a str,
    parts: &'a [PartRecord],
    side: PartSide,
    keys: KeyEnds,
    /// Up to which part keys that went on behind theirs were followed: there is nothing new to find.
    followed: usize,
}

impl Search<'_> {
    /// Where the pieces of one credential stand.
    fn places(&mut self, finding: &Finding, kind: &str) -> Places {
        let mut places = Places::new();
        let elsewhere = seam::elsewhere(finding);
        let is_split = !elsewhere.is_empty();
        let own = finding.part.and_then(|part| usize::try_from(part).ok()).zip(finding.span);
        for (number, span) in elsewhere.into_iter().chain(own) {
            let Some(part) = self.parts.get(number).filter(|part| part.side == self.side) else { continue };
            let Some(at) = place(part) else { continue };
            let (Some(start), Some(end)) = (at.start.checked_add(span.start), at.start.checked_add(span.end)) else {
                continue;
            };
            let mut end = end.min(at.end);
            let mut open = false;
            if kind == "private_key_pem" {
                (end, open) = self.keys.find(self.text, end, at.end);
            } else {
                // Some rules see the blank behind it, too.
                end = self.text.get(start..end).map_or(end, |words| start + words.trim_end().len());
                if is_split && end == at.start + span.end.min(at.len()) {
                    // Of long texts only the beginning was looked at together with others.
                    end += token_length(self.text.get(end..at.end).unwrap_or_default());
                }
            }
            if start < end && self.text.is_char_boundary(start) && self.text.is_char_boundary(end) {
                places.push(start..end);
            }
            if open {
                self.rest_of_key(number, &mut places);
            }
        }
        places
    }

    /// What the texts behind `number` in its message hold of a private key that has not ended there.
    fn rest_of_key(&mut self, number: usize, places: &mut Places) {
        let Some(first) = self.parts.get(number).filter(|_| number >= self.followed) else { return };
        for (at, part) in self.parts.iter().enumerate().skip(number + 1) {
            self.followed = at;
            if (first.side, first.message, first.kind) != (part.side, part.message, part.kind) {
                return;
            }
            let Some((within, text)) = place(part).and_then(|at| Some((at.clone(), self.text.get(at)?))) else {
                return;
            };
            let words = text.trim_start();
            if token_length(words) < KEY_LINE_MIN && !words.starts_with("-----END ") {
                return;
            }
            let (end, open) = self.keys.find(self.text, within.start, within.end);
            places.push(within.start..end);
            if !open {
                return;
            }
        }
    }
}

/// Lines of a private key are longer.
const KEY_LINE_MIN: usize = 16;

/// How much of a text goes on as a credential that began before it.
fn token_length(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || b"_-./+=~".contains(byte)).count()
}

/// Where a finding stands in the text of its side.
fn found_at(finding: &Finding, parts: &[PartRecord], side: PartSide) -> Option<Range<usize>> {
    let part = parts.get(usize::try_from(finding.part?).ok()?).filter(|part| part.side == side)?;
    let (at, span) = (place(part)?, finding.span?);
    Some(at.start.checked_add(span.start)?..at.start.checked_add(span.end)?.min(at.end))
}

fn mask_all(text: &mut String) {
    let marks: Vec<Mark> = personal_data(text, PartKind::User)
        .into_iter()
        .map(|found| Mark { range: found.range(), with: found.tag() })
        .collect();
    if !marks.is_empty() {
        *text = replaced(text, &marks);
    }
}

fn replace(span: &mut SpanRecord, side: PartSide, marks: &[Mark]) {
    let held = if side == PartSide::Request { &mut span.prompt } else { &mut span.response };
    let Some(before) = held.take() else { return };
    let after = replaced(&before, marks);
    let shifts = Shifts::of(marks);
    if let Some(frame) = span.frame.as_mut().filter(|_| side == PartSide::Request) {
        for text in &mut frame.texts {
            let at = |place: u32| u32::try_from(shifts.at(place as usize)).unwrap_or(u32::MAX);
            *text = at(text.start)..at(text.end);
        }
    }
    let mut calls = Vec::new();
    for part in span.parts.iter_mut().filter(|part| part.side == side) {
        let Some(old) = place(part) else { continue };
        let new = shifts.at(old.start)..shifts.at(old.end);
        if side == PartSide::Response && part.kind == PartKind::ToolCall {
            calls.push((before.get(old).unwrap_or_default(), after.get(new.clone()).unwrap_or_default()));
        }
        part.text = u32::try_from(new.start).ok().zip(u32::try_from(new.end).ok()).map(|(start, end)| start..end);
    }
    let mut calls = calls.into_iter();
    for event in span.events.iter_mut().filter(|event| side == PartSide::Response && event.event_type == "tool_call") {
        let Some(arguments) = event.data.get_mut("arguments") else { continue };
        // The same words as its part; of an answer that was cut nobody knows which they are.
        *arguments = calls.find(|(before, _)| before == arguments).map_or("[not kept]", |(_, after)| after).to_owned();
    }
    let held = if side == PartSide::Request { &mut span.prompt } else { &mut span.response };
    *held = Some(after);
}
