//! What a record's texts do not keep: personal data where it is redacted (`pii.action`), and what a detector called a credential
//! (`storage.mask_secrets`). Runs once over a finished record, when all findings are known.
//!
//! Invariants: each part of the record still points at its words; of two pieces that overlap nothing is left, and the longer one
//! gives the tag; spans of findings stay those of the text that was analysed.

use std::cmp::Reverse;
use std::ops::Range;

use weir_config::Settings;
use weir_config::settings::PiiAction;
use weir_config::vocab::Finding;
use weir_config::vocab::part::{PartKind, PartRecord, PartSide};
use weir_inference::{KeyEnds, Taker, Taking, personal_data};
use weir_storage::record::SpanRecord;

/// What is taken out of stored texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Masking {
    personal: bool,
    secrets: bool,
    /// What would be taken out of answers on their way to their clients, where that is only counted.
    counts: Option<Taking>,
}

/// A piece of a text, and what is kept instead.
struct Mark {
    range: Range<usize>,
    with: String,
}

impl Masking {
    pub(crate) fn of(settings: &Settings) -> Self {
        let answers = settings.pii_redact_answers;
        let taking = Taking { personal: answers.personal(), secrets: answers.secrets() };
        Self {
            personal: settings.pii_action != PiiAction::AlertOnly,
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
        let secrets = self.secrets && span.security_findings.iter().any(is_secret);
        if !self.personal && !secrets {
            return;
        }
        for side in [PartSide::Request, PartSide::Response] {
            let text = match side {
                PartSide::Request => &span.prompt,
                PartSide::Response => &span.response,
            };
            let Some(text) = text else { continue };
            let mut marks = Vec::new();
            if self.personal {
                marks = personal(text, &span.parts, side);
                marks.extend(found_names(text, &span.parts, side, &span.security_findings));
            }
            if secrets {
                marks.extend(found_secrets(text, &span.parts, side, &span.security_findings));
            }
            if !marks.is_empty() {
                replace(span, side, joined(marks));
            }
        }
        if self.personal {
            // An excerpt may have been cut in the middle of a number, and then shows less than one.
            for finding in &mut span.security_findings {
                mask_all(&mut finding.evidence);
            }
            span.error_message.iter_mut().for_each(mask_all);
        }
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
    marks
}

/// Types of names a model of the operator has found (`security_analysis.ner_model`): personal data, too.
const NAMES: [&str; 3] = ["person_name", "organization", "location"];

fn found_names<'a>(
    text: &'a str,
    parts: &'a [PartRecord],
    side: PartSide,
    findings: &'a [Finding],
) -> impl Iterator<Item = Mark> + use<'a> {
    findings.iter().filter(|finding| NAMES.contains(&&*finding.finding_type)).filter_map(move |finding| {
        let (range, _) = found_at(finding, parts, side)?;
        text.get(range.clone()).filter(|words| !words.is_empty())?;
        Some(Mark { range, with: format!("[PII:{}]", finding.finding_type.to_ascii_uppercase()) })
    })
}

fn found_secrets(text: &str, parts: &[PartRecord], side: PartSide, findings: &[Finding]) -> Vec<Mark> {
    let secrets = findings.iter().filter(|finding| is_secret(finding));
    let mut found: Vec<_> = secrets
        .filter_map(|finding| {
            let (range, most) = found_at(finding, parts, side)?;
            Some((range, most, finding.metadata.get("secret_type")?))
        })
        .collect();
    // In the order of the text, as the ends of keys are found.
    found.sort_by_key(|(range, ..)| range.start);
    let mut keys = KeyEnds::default();
    let marks = found.into_iter().filter_map(|(Range { start, end }, most, kind)| {
        let end = if kind == "private_key_pem" { keys.find(text, end, most).0 } else { end };
        let kind = kind.to_ascii_uppercase();
        (start < end && text.is_char_boundary(start) && text.is_char_boundary(end))
            .then(|| Mark { range: start..end, with: format!("[SECRET:{kind}]") })
    });
    marks.collect()
}

/// Where a finding stands in the text of its side, and where its part ends.
fn found_at(finding: &Finding, parts: &[PartRecord], side: PartSide) -> Option<(Range<usize>, usize)> {
    let part = parts.get(usize::try_from(finding.part?).ok()?).filter(|part| part.side == side)?;
    let (at, span) = (place(part)?, finding.span?);
    let (start, end) = (at.start.checked_add(span.start)?, at.start.checked_add(span.end)?.min(at.end));
    Some((start..end, at.end))
}

/// In order, without overlaps.
fn joined(mut marks: Vec<Mark>) -> Vec<Mark> {
    marks.sort_by_key(|mark| (mark.range.start, Reverse(mark.range.end)));
    let mut all: Vec<Mark> = Vec::with_capacity(marks.len());
    for mark in marks {
        match all.last_mut() {
            Some(last) if mark.range.start < last.range.end => {
                if mark.range.len() > last.range.len() {
                    last.with = mark.with;
                }
                last.range.end = last.range.end.max(mark.range.end);
            }
            _ => all.push(mark),
        }
    }
    all
}

fn replaced(text: &str, marks: &[Mark]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for mark in marks {
        out.push_str(text.get(done..mark.range.start).unwrap_or_default());
        out.push_str(&mark.with);
        done = mark.range.end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
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

/// From places in a text to places in the text with its marks.
struct Shifts {
    /// End of each mark, before and after.
    ends: Vec<(usize, usize)>,
}

impl Shifts {
    fn of(marks: &[Mark]) -> Self {
        let (mut removed, mut added) = (0, 0);
        let ends = marks.iter().map(|mark| {
            removed += mark.range.len();
            added += mark.with.len();
            (mark.range.end, mark.range.end - removed + added)
        });
        Self { ends: ends.collect() }
    }

    fn at(&self, place: usize) -> usize {
        match self.ends.partition_point(|(before, _)| *before <= place).checked_sub(1) {
            Some(last) => self.ends.get(last).map_or(place, |(before, after)| after + (place - before)),
            None => place,
        }
    }
}
