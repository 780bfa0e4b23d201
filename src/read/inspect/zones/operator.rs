//! Data by the operator's word: `<service-data>` markers in what the application says, and the header
//! `X-Service-Data-Boundary`, which names places or a delimiter.

use std::collections::BTreeMap;
use std::ops::Range;

use memchr::memmem;
use weir_inference::PartKind;

use super::ZONES_MAX;
use crate::inspect::part::TextPart;
use crate::inspect::request::RequestView;
use crate::inspect::zone::{Zone, ZoneKind, Zones};

/// What `<service-data>` and `</service-data>` have in common.
const NAME: &str = "service-data>";

/// Adds what the operator has marked, in no order.
pub(super) fn mark(view: &RequestView, header: Option<&str>, zones: &mut Zones) {
    by_markers(view, zones);
    let Some(header) = header.map(str::trim).filter(|header| !header.is_empty()) else { return };
    if header.split(',').any(|entry| Entry::read(entry, None).is_some()) {
        by_places(view, header, zones);
    } else {
        by_delimiter(view, header, zones);
    }
}

/// Whether markers in it are the application's: a tool or a model could write them as well.
fn may_mark(part: &TextPart) -> bool {
    matches!(part.kind, PartKind::User | PartKind::System) && !part.is_credential()
}

fn add(zones: &mut Zones, part: usize, range: Range<usize>) {
    if range.start >= range.end {
        return;
    }
    if zones.list.len() < ZONES_MAX {
        zones.list.push(Zone { part, range, kind: ZoneKind::Marked });
    } else if let Some(last) = zones.list.last_mut().filter(|last| last.part == part && last.range.end < range.end) {
        last.range.end = range.end;
    }
}

/// What stands between markers. One that is not closed reaches to the end of its message.
fn by_markers(view: &RequestView, zones: &mut Zones) {
    let finder = memmem::Finder::new(NAME);
    // Whether a marker is open, and the message it was opened in.
    let mut open: Option<Option<u32>> = None;
    for (at, part) in view.parts.iter().enumerate() {
        open = open.filter(|message| message.is_some() && *message == part.message);
        if !may_mark(part) {
            continue;
        }
        let text = view.text.get(part.range.clone()).unwrap_or_default();
        let mut places = finder.find_iter(text.as_bytes()).peekable();
        if places.peek().is_some() {
            let removed = removed(text).into_iter();
            zones.markers.extend(removed.map(|range| part.range.start + range.start..part.range.start + range.end));
        }
        // Where data begins that has not ended.
        let mut from = part.range.start;
        for place in places {
            let before = text.get(..place).unwrap_or_default();
            let opens = before.ends_with('<');
            let start = part.range.start
                + match (opens, before.ends_with("</")) {
                    (true, _) => place - 1,
                    (false, true) => place - 2,
                    (false, false) => continue,
                };
            let end = part.range.start + place + NAME.len();
            // A second opening marker means nothing, but no marker is a word for the model.
            if open.is_some() {
                add(zones, at, from..start);
            }
            from = end;
            open = if opens { open.or(Some(part.message)) } else { None };
        }
        if open.is_some() {
            add(zones, at, from..part.range.end);
        }
    }
}

/// What goes when the markers of a text are taken out until none is left: what stands around a marker may be one then. One pass:
/// what has been kept so far holds no marker, so that the next one can only end with the byte that is added.
fn removed(text: &str) -> Vec<Range<usize>> {
    let mut kept: Vec<Range<usize>> = Vec::new();
    let mut from = 0;
    for at in memchr::memchr_iter(b'>', text.as_bytes()) {
        keep(&mut kept, from..at + 1);
        from = at + 1;
        if let Some(marker) = ["<service-data>", "</service-data>"].iter().find(|marker| ends_with(text, &kept, marker))
        {
            drop_end(&mut kept, marker.len());
        }
    }
    keep(&mut kept, from..text.len());
    let (mut removed, mut done) = (Vec::new(), 0);
    for range in kept.into_iter().chain(std::iter::once(text.len()..text.len())) {
        if done < range.start {
            removed.push(done..range.start);
        }
        done = range.end;
    }
    removed
}

fn keep(kept: &mut Vec<Range<usize>>, range: Range<usize>) {
    match kept.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ if range.is_empty() => {}
        _ => kept.push(range),
    }
}

/// Whether what is kept ends with `marker`.
fn ends_with(text: &str, kept: &[Range<usize>], marker: &str) -> bool {
    let mut rest = marker.as_bytes();
    for range in kept.iter().rev() {
        let words = text.as_bytes().get(range.clone()).unwrap_or_default();
        let common = words.len().min(rest.len());
        let (before, end) = rest.split_at(rest.len() - common);
        if !words.ends_with(end) {
            return false;
        }
        rest = before;
        if rest.is_empty() {
            return true;
        }
    }
    false
}

/// Takes so many bytes off the end.
fn drop_end(kept: &mut Vec<Range<usize>>, mut bytes: usize) {
    while let Some(last) = kept.last_mut().filter(|_| bytes > 0) {
        let here = last.len().min(bytes);
        last.end -= here;
        bytes -= here;
        if last.start == last.end {
            kept.pop();
        }
    }
}

/// `2:10-34`, or `40-52` for the same message.
struct Entry {
    message: u32,
    bytes: Range<usize>,
}

impl Entry {
    fn read(entry: &str, same: Option<u32>) -> Option<Self> {
        let entry = entry.trim();
        let (message, bytes) = match entry.split_once(':') {
            Some((message, bytes)) => (number(message)?, bytes),
            None => (same?, entry),
        };
        let (start, end) = bytes.split_once('-')?;
        Some(Self { message, bytes: number(start)?..number(end)? })
    }
}

fn number<T: std::str::FromStr>(digits: &str) -> Option<T> {
    // Neither a sign nor a blank.
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Byte offsets into the text of a message: its parts joined by line breaks, as it is recorded.
fn by_places(view: &RequestView, header: &str, zones: &mut Zones) {
    let messages = messages(view);
    let mut same = None;
    for entry in header.split(',') {
        let Some(Entry { message, bytes }) = Entry::read(entry, same) else {
            zones.bad_entries += 1;
            continue;
        };
        same = Some(message);
        let parts = messages.get(&message).cloned().unwrap_or_default();
        let Some(place) = place(view, parts.clone(), bytes) else {
            zones.bad_entries += 1;
            continue;
        };
        for at in parts {
            let Some(part) = view.parts.get(at).filter(|part| !part.is_credential()) else { continue };
            add(zones, at, place.start.max(part.range.start)..place.end.min(part.range.end));
        }
    }
}

/// The parts of each message; of several runs of one number the first.
fn messages(view: &RequestView) -> BTreeMap<u32, Range<usize>> {
    let mut messages: BTreeMap<u32, Range<usize>> = BTreeMap::new();
    for (at, part) in view.parts.iter().enumerate() {
        let Some(message) = part.message else { continue };
        let parts = messages.entry(message).or_insert(at..at);
        if parts.end == at {
            parts.end = at + 1;
        }
    }
    messages
}

/// Where bytes of a message stand in the text, if there are such bytes.
fn place(view: &RequestView, parts: Range<usize>, bytes: Range<usize>) -> Option<Range<usize>> {
    let parts = view.parts.get(parts)?;
    let (start, end) = (parts.first()?.range.start, parts.last()?.range.end);
    let place = start.checked_add(bytes.start)?..start.checked_add(bytes.end)?;
    let is_there = place.start < place.end && place.end <= end && view.text.get(place.clone()).is_some();
    is_there.then_some(place)
}

/// What stands between two occurrences of a delimiter in one part.
fn by_delimiter(view: &RequestView, delimiter: &str, zones: &mut Zones) {
    let finder = memmem::Finder::new(delimiter);
    for (at, part) in view.parts.iter().enumerate().filter(|(_, part)| may_mark(part)) {
        let text = view.text.get(part.range.clone()).unwrap_or_default();
        let mut places = finder.find_iter(text.as_bytes());
        while let (Some(open), Some(close)) = (places.next(), places.next()) {
            add(zones, at, part.range.start + open + delimiter.len()..part.range.start + close);
        }
    }
}
