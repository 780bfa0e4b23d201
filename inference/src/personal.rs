//! Where personal data stands in a text, for whoever takes it out. The same scanner as the `pii` detector's, without the
//! bounds on findings: what is taken out must not depend on how much else was found, or on a deadline.
//!
//! Invariants: the places are in order and do not overlap; with a tag in place of each of them, another look at the text finds
//! nothing; tags already in a text are left alone; the work is linear in the text.

use std::cmp::Reverse;
use std::ops::Range;
use std::time::Instant;

use memchr::memmem;

use crate::fold::Folded;
use crate::part::PartKind;
use crate::personal_coded::{Plain, base64_words};
use crate::pii::{PiiType, Scanner};

/// A piece of personal data in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Personal {
    // Of a text that is full of it there are many: half of their size is worth having.
    start: u32,
    end: u32,
    kind: PiiType,
}

impl Personal {
    /// Where it stands, in bytes of the text, at character boundaries.
    pub const fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// What stands in its place: `[PII:EMAIL]`.
    pub const fn tag(&self) -> &'static str {
        self.kind.tag()
    }

    /// In texts of 4 GiB and more, which no body has, it ends with the last place that can be named.
    fn at(start: usize, end: usize, kind: PiiType) -> Self {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self { start: place(start), end: place(end), kind }
    }
}

const TAG_OPEN: &str = "[PII:";
/// Longest type a tag names.
const TAG_TYPE_MAX: usize = 24;
/// Looks at one text: a tag is shorter than what it stands for, so that a word may come to stand close enough to a number for
/// the number to count.
const LOOKS_MAX: usize = 4;

/// Longest base64 in prose that is looked into.
const BASE64_BYTES_MAX: usize = 16 << 10;

/// Bytes between two looks at the clock.
const STEP_BYTES: usize = 64 << 10;

/// The personal data in a text that plays this role.
pub fn personal_data(text: &str, kind: PartKind) -> Vec<Personal> {
    personal_data_by(text, kind, None).unwrap_or_default()
}

/// The same; `None` where the deadline passed before all of the text had been looked at.
pub fn personal_data_by(text: &str, kind: PartKind, deadline: Option<Instant>) -> Option<Vec<Personal>> {
    personal_within(text, kind, BASE64_BYTES_MAX, deadline)
}

/// The same, with base64 up to so many bytes.
pub(crate) fn personal_within(
    text: &str,
    kind: PartKind,
    base64_max: usize,
    deadline: Option<Instant>,
) -> Option<Vec<Personal>> {
    let mut all = look_at_all(text, kind, base64_max, deadline)?;
    if all.is_empty() {
        return Some(all);
    }
    for _ in 1..LOOKS_MAX {
        let (without, places) = tagged(text, &all);
        let more = look_at_all(&without, kind, base64_max, deadline)?;
        if more.is_empty() {
            break;
        }
        all.extend(more.into_iter().map(|found| places.original(found)));
        all.sort_unstable_by_key(|found| found.start);
    }
    Some(all)
}

/// What stands in a text as it is, and what is coded in it.
fn look_at_all(text: &str, kind: PartKind, base64_max: usize, deadline: Option<Instant>) -> Option<Vec<Personal>> {
    let mut all = look(text, kind, deadline)?;
    let plain = all.len();
    if let Some(coded) = Plain::of(text) {
        let found = look(&coded.text, kind, deadline)?.into_iter();
        all.extend(found.filter_map(|one| {
            let Range { start, end } = coded.original(&one.range())?;
            Some(Personal::at(start, end, one.kind))
        }));
    }
    for (Range { start, end }, words) in base64_words(text, base64_max) {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return None;
        }
        let found = look(&words, kind, deadline)?;
        all.extend(found.first().map(|one| Personal::at(start, end, one.kind)));
    }
    Some(if all.len() > plain { joined(all) } else { all })
}

/// In order; of two that overlap one is left, which holds both.
fn joined(mut all: Vec<Personal>) -> Vec<Personal> {
    all.sort_unstable_by_key(|one| (one.start, Reverse(one.end)));
    let mut out: Vec<Personal> = Vec::with_capacity(all.len());
    for one in all {
        match out.last_mut().filter(|last| one.start < last.end) {
            Some(last) => last.end = last.end.max(one.end),
            None => out.push(one),
        }
    }
    out
}

fn look(text: &str, kind: PartKind, deadline: Option<Instant>) -> Option<Vec<Personal>> {
    let mut folded = Folded::default();
    folded.fold(text);
    let bytes = folded.bytes(text);
    let hidden = without_tags(bytes);
    let mut scanner = Scanner::new(hidden.as_deref().unwrap_or(bytes));
    let mut found: Vec<Personal> = Vec::new();
    for limit in (0..=bytes.len() / STEP_BYTES).map(|step| (step + 1) * STEP_BYTES) {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return None;
        }
        while let Some(pii) = scanner.next_before(limit) {
            if kind == PartKind::ToolDefinition && pii.kind.is_contact() {
                continue;
            }
            let (start, end) = folded.original(text, pii.start, pii.end);
            // Two that touch inside of one character of the original are taken out with the first.
            if found.last().is_none_or(|last| last.range().end <= start) {
                found.push(Personal::at(start, end, pii.kind));
            }
        }
    }
    Some(found)
}

/// The text with its tags struck out, byte for byte: their words say nothing about the numbers beside them. `None` where there
/// are none.
fn without_tags(text: &[u8]) -> Option<Vec<u8>> {
    let mut tags =
        memmem::find_iter(text, TAG_OPEN.as_bytes()).filter_map(|at| Some(at..at + tag_len(text.get(at..)?)?));
    let first = tags.next()?;
    let mut out = text.to_vec();
    for tag in std::iter::once(first).chain(tags) {
        out.get_mut(tag)?.fill(b'~');
    }
    Some(out)
}

/// How long the tag at the beginning of `text` is.
fn tag_len(text: &[u8]) -> Option<usize> {
    let name = text.get(TAG_OPEN.len()..)?;
    let len = name.iter().take(TAG_TYPE_MAX).take_while(|byte| byte.is_ascii_uppercase() || **byte == b'_').count();
    (len > 0 && name.get(len) == Some(&b']')).then_some(TAG_OPEN.len() + len + 1)
}

/// From places in a text with tags to places in the text itself.
struct Places {
    /// End of each tag, and of what it stands for.
    ends: Vec<(usize, usize)>,
}

fn tagged(text: &str, found: &[Personal]) -> (String, Places) {
    let mut out = String::with_capacity(text.len());
    let mut ends = Vec::with_capacity(found.len());
    let mut done = 0;
    for one in found {
        let Range { start, end } = one.range();
        out.push_str(text.get(done..start).unwrap_or_default());
        out.push_str(one.tag());
        done = end;
        ends.push((out.len(), done));
    }
    out.push_str(text.get(done..).unwrap_or_default());
    (out, Places { ends })
}

impl Places {
    fn original(&self, found: Personal) -> Personal {
        let place = |at: usize| match self.ends.partition_point(|(tag, _)| *tag <= at).checked_sub(1) {
            Some(last) => self.ends.get(last).map_or(at, |(tag, original)| original + (at - tag)),
            None => at,
        };
        let Range { start, end } = found.range();
        Personal::at(place(start), place(end), found.kind)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redacted(text: &str) -> String {
        tagged(text, &personal_data(text, PartKind::User)).0
    }

    #[test]
    fn each_piece_gets_the_tag_of_its_type() {
        for (text, expected) in [
            ("Mail jane.doe@example.com today", "Mail [PII:EMAIL] today"),
            ("card 4111 1111 1111 1111, thanks", "card [PII:CREDIT_CARD], thanks"),
            ("a@example.com,b@example.com", "[PII:EMAIL],[PII:EMAIL]"),
            ("é jané@example.com é", "é [PII:EMAIL] é"),
            ("nothing of the kind: 12 apples", "nothing of the kind: 12 apples"),
            // Of what may be read in two ways the longer one counts.
            ("to DE89 3704 0044 0532 0130 00 by Monday", "to [PII:IBAN] by Monday"),
            ("4111111111111111@example.com", "[PII:EMAIL]"),
            ("from 203.0.113.77 on", "from [PII:IP_ADDRESS] on"),
            // 4,294,967,499 is 203 more than 32 bits hold.
            ("build 4294967499.0.113.77 is out", "build 4294967499.0.113.77 is out"),
            // However it is spelled.
            (r#"{"to":"anna\u0040example.com"}"#, r#"{"to":"[PII:EMAIL]"}"#),
            (r#"{"\u0061nn\u0061@example.com":1}"#, r#"{"[PII:EMAIL]":1}"#),
            (r"mail=anna%40example.com&n=1", "mail=[PII:EMAIL]&n=1"),
            ("anna&#64;example&#x2e;com, card 4111%201111%201111%201111.", "[PII:EMAIL], card [PII:CREDIT_CARD]."),
            ("send YW5uYUBleGFtcGxlLmNvbQ== and bob@example.com", "send [PII:EMAIL] and [PII:EMAIL]"),
            ("a word ThisIsNoAddressInBase64 and \\u0061 100%25", "a word ThisIsNoAddressInBase64 and \\u0061 100%25"),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }

    #[test]
    fn more_than_a_finding_list_holds_is_taken_out() {
        let text = "x@example.com ".repeat(5000);
        assert_eq!(redacted(&text), "[PII:EMAIL] ".repeat(5000));
    }

    #[test]
    fn a_deadline_that_has_passed_ends_the_look() {
        let text = "x@example.com ".repeat(50_000);
        assert_eq!(personal_data_by(&text, PartKind::User, Some(Instant::now())), None);
        let later = Instant::now() + std::time::Duration::from_secs(600);
        let found = personal_data_by(&text, PartKind::User, Some(later));
        assert_eq!(found.map(|found| found.len()), Some(50_000), "in whatever steps it is looked at");
    }

    proptest! {
        /// A second look finds nothing, and what is not personal stays.
        #[test]
        fn taking_out_is_idempotent(words in proptest::collection::vec(prop::sample::select(vec![
            "jane@example.com", "4111 1111 1111 1111", "passport", "phone number", "ssn", "219-09-9999", "220124321",
            "C01X00T47", "+49 30 901820", "a\\u0040b.example", "%40b.example", "&#", "YUBiLmV4YW1wbGU=", "YUBi", "\\u0061", "555-0199", "10.1.2.3", "DE89370400440532013000", "date of birth", "1980-04-01",
            ",", ":", "-", "é", "\u{200b}", "ＡＢ＠example.com", "943 476 5919", "nhs", "[PII:EMAIL]", "[PII:PASSPORT]", "x1",
        ]), 0..24), glue in prop::sample::select(vec!["", " ", "\n"])) {
            let text = words.join(glue);
            let found = personal_data(&text, PartKind::User);
            prop_assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let once = tagged(&text, &found).0;
            prop_assert_eq!(redacted(&once), once);
        }
    }
}
