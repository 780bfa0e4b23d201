//! Shapes that data has: mails, headings of retrieved passages, JSON, tables, elements of HTML and of prompts.

use std::ops::Range;

use super::heuristic::{Found, Scan};
use crate::inspect::zone::ZoneKind;
use crate::json::{Event, Walker};

/// Fields of a mail's header that tell it from other text.
const MAIL_FIELDS: [&str; 14] = [
    "from",
    "to",
    "cc",
    "subject",
    "date",
    "sent",
    "reply-to",
    "message-id",
    "return-path",
    "received",
    "delivered-to",
    "mime-version",
    "content-type",
    "in-reply-to",
];
/// Lines of a header that are looked at.
const MAIL_LINES_MAX: usize = 16;

/// Words that begin the heading of a retrieved passage.
const HEADINGS: [&str; 16] = [
    "context",
    "passage",
    "document",
    "documents",
    "excerpt",
    "search result",
    "search results",
    "retrieved",
    "source",
    "sources",
    "reference",
    "references",
    "article",
    "transcript",
    "web page",
    "tool output",
];
/// Words that begin what follows the passages.
const QUESTIONS: [&str; 9] =
    ["question", "query", "answer", "instruction", "instructions", "task", "user", "request", "prompt"];
/// Longest heading, in bytes.
const HEADING_BYTES_MAX: usize = 48;

/// Elements of HTML that begin a stretch of it.
const HTML: [&str; 27] = [
    "html", "head", "body", "div", "span", "p", "a", "table", "ul", "ol", "script", "style", "iframe", "form",
    "section", "article", "header", "footer", "main", "nav", "h1", "h2", "h3", "template", "svg", "noscript", "pre",
];
/// Those without an end.
const VOID: [&str; 5] = ["img", "br", "hr", "meta", "link"];
/// Elements that prompts put data in.
const PASSAGES: [&str; 19] = [
    "document",
    "documents",
    "document_content",
    "context",
    "passage",
    "passages",
    "source",
    "sources",
    "search_result",
    "search_results",
    "retrieved",
    "webpage",
    "web_page",
    "file",
    "snippet",
    "email",
    "transcript",
    "data",
    "tool_output",
];

/// A JSON object or array that begins at `start`.
pub(super) fn json(scan: &mut Scan<'_>, start: usize) -> Option<Found> {
    if scan.json_left == 0 {
        return None;
    }
    let rest = scan.words(start..scan.text.len());
    let mut walker = Walker::over(rest);
    loop {
        match walker.next_event() {
            Ok(Some(Event::ObjectEnd | Event::ArrayEnd)) if walker.depth() == 0 => break,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => {
                scan.json_left = scan.json_left.saturating_sub(walker.span().end + 1);
                return None;
            }
        }
    }
    let end = start + walker.span().end;
    let says_something = memchr::memchr(b'"', scan.words(start..end).as_bytes()).is_some();
    says_something.then_some(Found { zone: start..end, kind: ZoneKind::Json, next: end })
}

/// A mail: two fields of a header close together. It ends at a line of dashes or with the text.
pub(super) fn mail(scan: &Scan<'_>, line: &Range<usize>) -> Option<Found> {
    let first = field(scan.words(line.clone()))?;
    let mut at = line.end + 1;
    let mut is_mail = false;
    for _ in 0..MAIL_LINES_MAX {
        let line = scan.line(at.min(scan.text.len()));
        let words = scan.words(line.clone());
        match field(words) {
            Some(other) if other != first => is_mail = true,
            Some(_) => {}
            None if words.starts_with([' ', '\t']) && !words.trim().is_empty() => {}
            None => break,
        }
        at = line.end + 1;
        if is_mail || at >= scan.text.len() {
            break;
        }
    }
    is_mail.then(|| {
        let end = until(scan, at, is_rule);
        Found { zone: line.start..end, kind: ZoneKind::Mail, next: end + 1 }
    })
}

/// The field of a mail's header that a line holds.
fn field(line: &str) -> Option<usize> {
    let (name, value) = line.split_at_checked(memchr::memchr(b':', line.as_bytes().get(..line.len().min(24))?)?)?;
    let is_field = |known: &&str| known.eq_ignore_ascii_case(name);
    MAIL_FIELDS.iter().position(is_field).filter(|_| value.len() > 1)
}

/// A line of at least five equal signs of punctuation.
fn is_rule(line: &str) -> bool {
    let line = line.trim();
    let mark = line.as_bytes().first().copied().filter(|mark| b"-=*_#".contains(mark));
    line.len() >= 5 && mark.is_some_and(|mark| line.bytes().all(|byte| byte == mark))
}

/// Where the first line begins, from `at` on, that `ends` the zone; without the line break before it.
fn until(scan: &Scan<'_>, mut at: usize, ends: impl Fn(&str) -> bool) -> usize {
    while at < scan.text.len() {
        let line = scan.line(at);
        if ends(scan.words(line.clone())) {
            return at.saturating_sub(1);
        }
        at = line.end + 1;
    }
    scan.text.len()
}

/// What stands below a heading such as `Context:` or `Document 2 (wiki):`, up to a question or the next heading.
pub(super) fn passage(scan: &Scan<'_>, line: &Range<usize>) -> Option<Found> {
    let behind = heading(scan.words(line.clone()), &HEADINGS)?;
    let start = line.start + behind;
    let end = until(scan, (line.end + 1).min(scan.text.len()), |words| {
        heading(words, &QUESTIONS).is_some() || heading(words, &HEADINGS).is_some()
    });
    Some(Found { zone: start..end.max(start), kind: ZoneKind::Passage, next: end + 1 })
}

/// How many bytes the heading of a line takes, its colon included, when it begins with one of `words`.
fn heading(line: &str, words: &[&str]) -> Option<usize> {
    let head = line.get(..line.floor_char_boundary(HEADING_BYTES_MAX))?;
    let colon = head.find(':').filter(|colon| !head.get(*colon..).is_some_and(|rest| rest.starts_with("://")))?;
    let name = head.get(..colon)?.trim_start_matches(['#', '*', '-', '[', '(', ' ']).trim_end_matches(['*', ']', ')']);
    let fits = |word: &&str| {
        name.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
            && name.get(word.len()..).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '*', '_']))
    };
    let few = name.split_whitespace().count() <= 5;
    (few && words.iter().any(fits)).then_some(colon + 1)
}

/// A table: with a line of dashes below its head, or at least three lines with as many tabs or commas.
pub(super) fn table(scan: &Scan<'_>, line: &Range<usize>) -> Option<Found> {
    let second = scan.line(line.end.checked_add(1).filter(|at| *at < scan.text.len())?);
    let (first, below) = (scan.words(line.clone()), scan.words(second.clone()));
    let ends: Box<dyn Fn(&str) -> bool> = if first.contains('|') && is_separator(below) {
        Box::new(|words| !words.contains('|'))
    } else {
        let mark = [b'\t', b';', b','].into_iter().find(|mark| columns(first, *mark) > 0)?;
        let third = scan.line(second.end.checked_add(1).filter(|at| *at < scan.text.len())?);
        let count = columns(first, mark);
        if columns(below, mark) != count || columns(scan.words(third), mark) != count {
            return None;
        }
        Box::new(move |words| columns(words, mark) != count)
    };
    let end = until(scan, second.end + 1, ends);
    Some(Found { zone: line.start..end, kind: ZoneKind::Table, next: end + 1 })
}

/// `| --- | :-: |`
fn is_separator(line: &str) -> bool {
    let line = line.trim();
    line.contains('|') && line.contains("--") && line.bytes().all(|byte| b"|-: ".contains(&byte))
}

/// How many separators of a table's columns a line has; prose has blanks behind its commas.
fn columns(line: &str, mark: u8) -> usize {
    let count = memchr::memchr_iter(mark, line.as_bytes()).count();
    let least = if mark == b'\t' { 1 } else { 2 };
    let is_prose = mark != b'\t' && (line.contains(", ") || line.contains("; "));
    if count >= least && !is_prose { count } else { 0 }
}

/// An element that begins at `start`, where it is one of HTML or of those that prompts put data in.
pub(super) fn element(scan: &Scan<'_>, start: usize) -> Option<Found> {
    let rest = scan.words(start + 1..scan.text.len());
    if let Some(declared) = rest.get(..8) {
        let known = ["!doctype", "?xml ver"].iter().any(|known| declared.eq_ignore_ascii_case(known));
        if known {
            return Some(Found { zone: start..scan.text.len(), kind: ZoneKind::Markup, next: scan.text.len() });
        }
    }
    let name = tag_name(rest);
    let is = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    let kind = if is(&PASSAGES) { ZoneKind::Passage } else { ZoneKind::Markup };
    let tag_end = start + 1 + closed(rest)?;
    if is(&VOID) {
        return Some(Found { zone: start..tag_end, kind, next: tag_end });
    }
    if !is(&PASSAGES) && !is(&HTML) {
        return None;
    }
    let end = end_of_element(scan, tag_end, name);
    Some(Found { zone: start..end, kind, next: end })
}

/// The name behind a `<`; empty where there is none.
fn tag_name(rest: &str) -> &str {
    let length = rest.bytes().take(24).take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    rest.get(..length).unwrap_or_default()
}

/// How many bytes a tag has whose `<` stands before `rest`; `None` when it does not end before the next one or the line does.
fn closed(rest: &str) -> Option<usize> {
    let at = memchr::memchr3(b'>', b'<', b'\n', rest.as_bytes())?;
    (rest.as_bytes().get(at) == Some(&b'>')).then_some(at + 1)
}

/// Where the element `name` ends whose content begins at `from`; with the text where it is not closed.
fn end_of_element(scan: &Scan<'_>, from: usize, name: &str) -> usize {
    let (mut depth, mut at) = (1_usize, from);
    while let Some(step) = memchr::memchr(b'<', scan.text.as_bytes().get(at..).unwrap_or_default()) {
        let rest = scan.words(at + step + 1..scan.text.len());
        let closes = rest.starts_with('/');
        let named = tag_name(rest.strip_prefix('/').unwrap_or(rest));
        at += step + 1;
        if !named.eq_ignore_ascii_case(name) {
            continue;
        }
        depth = if closes { depth - 1 } else { depth + 1 };
        if depth == 0 {
            return closed(rest).map_or(scan.text.len(), |length| at + length);
        }
    }
    scan.text.len()
}
