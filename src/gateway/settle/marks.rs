//! Pieces of a text and what stands in their place, in the record and in what is forwarded.

use std::cmp::Reverse;
use std::ops::Range;

use weir_config::vocab::Finding;

use crate::redaction::pieces_max;

/// A piece of a text, and what is kept instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) range: Range<usize>,
    pub(crate) with: &'static str,
}

/// The marks of one text while they are collected, in any order: no more than [`pieces_max`] of each source. From the first for which
/// there is no room the text is one piece.
#[derive(Debug)]
pub(super) struct Marks {
    list: Vec<Mark>,
    room: usize,
    /// From where on all is taken out, and with which tag.
    rest: Option<(usize, &'static str)>,
    bytes: usize,
}

impl Marks {
    /// For a text of so many bytes.
    pub(super) fn of(bytes: usize) -> Self {
        Self { list: Vec::new(), room: pieces_max(bytes), rest: None, bytes }
    }

    pub(super) fn push(&mut self, range: Range<usize>, with: &'static str) {
        if self.rest.is_some_and(|(from, _)| range.start >= from) {
            return;
        }
        if self.list.len() < self.room {
            self.list.push(Mark { range, with });
        } else {
            self.rest = Some((range.start, with));
        }
    }

    /// In order, without overlaps; whether there was room for all of them.
    pub(super) fn joined(mut self) -> (Vec<Mark>, bool) {
        let fits = self.rest.is_none();
        if let Some((from, with)) = self.rest {
            self.list.retain(|mark| mark.range.start < from);
            self.list.push(Mark { range: from..self.bytes, with });
        }
        (joined(self.list), fits)
    }
}

/// Types of names a model of the operator has found (`security_analysis.ner_model`): personal data, too.
const NAMES: [&str; 3] = ["person_name", "organization", "location"];

/// Whether a finding is about a name.
pub(crate) fn is_name(finding: &Finding) -> bool {
    NAMES.contains(&&*finding.finding_type)
}

/// The tag that takes a name's place.
pub(crate) fn name_tag(finding: &Finding) -> &'static str {
    match &*finding.finding_type {
        "person_name" => "[PII:PERSON_NAME]",
        "organization" => "[PII:ORGANIZATION]",
        _ => "[PII:LOCATION]",
    }
}

/// In order, without overlaps: of two pieces that overlap nothing is left, and the longer one gives the tag.
pub(crate) fn joined(mut marks: Vec<Mark>) -> Vec<Mark> {
    marks.sort_unstable_by_key(|mark| (mark.range.start, Reverse(mark.range.end), mark.with));
    marks.dedup_by(|mark, last| {
        let overlaps = mark.range.start < last.range.end;
        if overlaps {
            if mark.range.len() > last.range.len() {
                last.with = mark.with;
            }
            last.range.end = last.range.end.max(mark.range.end);
        }
        overlaps
    });
    marks
}

/// The text with its marks.
pub(crate) fn replaced(text: &str, marks: &[Mark]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for mark in marks {
        out.push_str(text.get(done..mark.range.start).unwrap_or_default());
        out.push_str(mark.with);
        done = mark.range.end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

/// From places in a text to places in the text with its marks.
pub(crate) struct Shifts {
    /// Beginning and end of each mark, and its end afterwards.
    marks: Vec<(Range<usize>, usize)>,
}

impl Shifts {
    pub(crate) fn of(marks: &[Mark]) -> Self {
        let (mut removed, mut added) = (0, 0);
        let marks = marks.iter().map(|mark| {
            removed += mark.range.len();
            added += mark.with.len();
            (mark.range.clone(), mark.range.end - removed + added)
        });
        Self { marks: marks.collect() }
    }

    pub(crate) fn at(&self, place: usize) -> usize {
        let next = self.marks.partition_point(|(range, _)| range.end <= place);
        // Inside of a mark there is only its beginning.
        let place = self.marks.get(next).map_or(place, |(range, _)| place.min(range.start));
        match next.checked_sub(1).and_then(|last| self.marks.get(last)) {
            Some((range, after)) => after + (place - range.end),
            None => place,
        }
    }
}
