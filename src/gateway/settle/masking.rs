//! What a record's texts do not keep: personal data where it is redacted (`pii.action`), and what a detector called a credential
//! (`storage.mask_secrets`), wherever the record repeats it. Runs once over a finished record, when all findings are known, and before
//! over what others are shown of a request.
//!
//! Invariants: each part of the record still points at its words; of two pieces that overlap nothing is left, and the longer one
//! gives the tag; spans of findings stay those of the text that was analysed.

use std::ops::Range;

use smallvec::SmallVec;
use weir_config::Settings;
use weir_config::settings::PiiAction;
use weir_config::vocab::part::{PartKind, PartRecord, PartSide};
use weir_config::vocab::{ByteSpan, Finding, JUDGE_VERDICT, score};
use weir_inference::{KeyEnds, Taker, Taking, personal_data};
use weir_storage::record::SpanRecord;

use super::framed;
use super::marks::{Mark, Shifts, is_name, joined, name_tag, replaced};
use super::seam;
use crate::inspect::{RequestView, TextPart};
use crate::redaction::{Beside, Credentials};

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

    /// How many pieces would have been taken out of an answer on its way to its client, had that not been only counted.
    pub(crate) fn counted(self, span: &SpanRecord) -> usize {
        let (Some(taking), Some(text)) = (self.counts, &span.response) else { return 0 };
        let mut taker = Taker::new(taking);
        let said = span.parts.iter().filter(|part| part.side == PartSide::Response && part.kind != PartKind::ToolCall);
        let words = said.filter_map(|part| Some((text.get(place(part)?)?, part.kind)));
        words.map(|(words, kind)| taker.pieces(words, kind).len()).sum()
    }

    /// Takes it out of a finished record.
    pub(crate) fn apply(self, span: &mut SpanRecord) {
        let found = self.credentials(span);
        if self.personal || found.is_some() {
            for side in [PartSide::Request, PartSide::Response] {
                let text = match side {
                    PartSide::Request => &span.prompt,
                    PartSide::Response => &span.response,
                };
                let Some(text) = text else { continue };
                let marks = self.marks(text, &span.parts, side, &span.security_findings, found.as_ref());
                if !marks.is_empty() {
                    replace(span, side, marks);
                }
            }
        }
        if let Some(frame) = &mut span.frame {
            framed::mask(frame, self.personal, found.as_ref());
        }
        self.apply_beside(span, &found.unwrap_or_default());
        if self.silent {
            forget_names(span);
        }
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

    /// What a text of these parts loses, in order.
    fn marks(
        self,
        text: &str,
        parts: &[PartRecord],
        side: PartSide,
        findings: &[Finding],
        found: Option<&Credentials>,
    ) -> Vec<Mark> {
        let mut marks = Vec::new();
        if self.personal {
            marks = personal(text, parts, side);
            marks.extend(found_names(text, parts, side, findings));
        }
        if let Some(found) = found {
            marks.extend(found_secrets(text, parts, side, findings));
            marks.extend(found.places(text).map(|(range, tag)| Mark { range, with: tag.to_owned() }));
        }
        joined(marks)
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
        let marks = self.marks(&view.text, &parts, PartSide::Request, findings, secrets.then_some(&found));
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

fn personal(text: &str, parts: &[PartRecord], side: PartSide) -> Vec<Mark> {
    let of_side = parts.iter().filter(|part| part.side == side);
    let places = of_side.filter_map(|part| Some((place(part)?, part.kind)));
    let mut marks = Vec::new();
    for (at, kind) in places {
        let words = text.get(at.clone()).unwrap_or_default();
        marks.extend(personal_data(words, kind).into_iter().map(|found| Mark {
            range: at.start + found.range().start..at.start + found.range().end,
            with: found.tag(),
        }));
    }
    let of_side = |part: &PartRecord| if part.side == side { text.get(place(part)?) } else { None };
    for (part, Mark { range, with }) in seam::personal_across(parts, of_side, None).unwrap_or_default() {
        let Some(at) = parts.get(part).and_then(place) else { continue };
        marks.push(Mark { range: at.start + range.start..at.start + range.end, with });
    }
    marks
}

fn found_names<'a>(
    text: &'a str,
    parts: &'a [PartRecord],
    side: PartSide,
    findings: &'a [Finding],
) -> impl Iterator<Item = Mark> + use<'a> {
    findings.iter().filter(|finding| is_name(finding)).filter_map(move |finding| {
        let range = found_at(finding, parts, side)?;
        text.get(range.clone()).filter(|words| !words.is_empty())?;
        Some(Mark { range, with: name_tag(finding) })
    })
}

/// Where the credentials that were found stand in this text, with their kinds; of one that lies across several texts each piece.
fn found_secrets(text: &str, parts: &[PartRecord], side: PartSide, findings: &[Finding]) -> Vec<Mark> {
    let mut marks = Vec::new();
    each_secret(text, parts, side, findings, |kind, places| {
        let with = format!("[SECRET:{}]", kind.to_ascii_uppercase());
        marks.extend(places.into_iter().map(|range| Mark { range, with: with.clone() }));
    });
    marks
}

/// Remembers the credentials that were found in this text.
fn remember(text: &str, parts: &[PartRecord], side: PartSide, findings: &[Finding], found: &mut Credentials) {
    each_secret(text, parts, side, findings, |kind, places| {
        let words: String = places.into_iter().filter_map(|range| text.get(range)).collect();
        found.add(kind, &words);
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

fn replace(span: &mut SpanRecord, side: PartSide, marks: Vec<Mark>) {
    let held = if side == PartSide::Request { &mut span.prompt } else { &mut span.response };
    let Some(before) = held.take() else { return };
    let after = replaced(&before, &marks);
    let shifts = Shifts::of(&marks);
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
            calls.push((
                before.get(old).unwrap_or_default().to_owned(),
                after.get(new.clone()).unwrap_or_default().to_owned(),
            ));
        }
        part.text = u32::try_from(new.start).ok().zip(u32::try_from(new.end).ok()).map(|(start, end)| start..end);
    }
    let mut calls = calls.into_iter();
    for event in span.events.iter_mut().filter(|event| side == PartSide::Response && event.event_type == "tool_call") {
        let Some(arguments) = event.data.get_mut("arguments") else { continue };
        // The same words as its part; of an answer that was cut nobody knows which they are.
        *arguments =
            calls.find(|(before, _)| before == arguments).map_or_else(|| "[not kept]".to_owned(), |(_, after)| after);
    }
    *held = Some(after);
}
