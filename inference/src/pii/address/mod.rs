//! Postal addresses: a street with a number, a postal code and a place, as they are written in the United States, the United Kingdom,
//! Germany, France, Italy, Spain and Poland.
//!
//! Entered at the postal code, from which [`STREET_BYTES_MAX`] are looked back over once. Invariant: all four parts must be there, the
//! street in a form of the country whose code it is. What a text that goes on may still become is told by [`may_go_on`].

mod items;
mod street;
mod words;

use items::{Item, Items, Kind};
use street::{Form, Street, street_at};

use super::{Pii, PiiType, Token};

/// How far before its postal code an address may begin, in bytes.
const STREET_BYTES_MAX: usize = 160;
/// Longest name of a place.
const PLACE_BYTES_MAX: usize = 64;
/// Longest address.
const ADDRESS_BYTES_MAX: usize = STREET_BYTES_MAX + 16 + PLACE_BYTES_MAX;
/// Most bytes between the street and the code: a flat, a town, a county.
const GAP_BYTES_MAX: usize = 80;
/// Most words and signs there.
const GAP_ITEMS_MAX: usize = 14;
/// Most words without capitals among those.
const SMALL_WORDS_MAX: usize = 3;

/// A postal code.
struct Code {
    /// Where what belongs to it begins: a state, the letter of a country.
    start: usize,
    end: usize,
    forms: &'static [Form],
    /// A sign has to part the place from the state, which may be a word, too.
    parted: bool,
}

/// The address whose postal code begins with a token.
#[inline]
pub(super) fn around(token: Token<'_>) -> Option<Pii> {
    let code = code_at(token)?;
    let text = token.text;
    let from = code.start.saturating_sub(STREET_BYTES_MAX).max(token.floor);
    let items = Items::of(text, (from, code.start));
    let all = items.all();
    let start = (0..all.len()).find_map(|at| {
        code.forms.iter().find_map(|form| match street_at(text, all, at, *form) {
            Street::Whole(last) => {
                let gap = all.get(last + 1..)?;
                let is_near = code.start.saturating_sub(all.get(last)?.end) <= GAP_BYTES_MAX;
                (is_near && joins(text, gap, *form, &code)).then_some(all.get(at)?.start)
            }
            Street::Open | Street::None => None,
        })
    })?;
    if words::is_published(text.get(start..).unwrap_or_default()) {
        return None;
    }
    Some(Pii { kind: PiiType::PostalAddress, start, end: code.end })
}

/// The first place near the end of a text from which an address may go on, whatever follows.
pub(crate) fn may_go_on(text: &[u8]) -> Option<usize> {
    // The last word may become another one.
    let len = text.iter().rposition(u8::is_ascii_whitespace)? + 1;
    let items = Items::of(text, (len.saturating_sub(ADDRESS_BYTES_MAX), len));
    let all = items.all();
    let is_open = |at: &usize| Form::ALL.iter().any(|form| !matches!(street_at(text, all, *at, *form), Street::None));
    (0..all.len()).find(is_open).and_then(|at| all.get(at)).map(|item| item.start)
}

/// What stands between the street and the code may do so.
fn joins(text: &[u8], gap: &[Item], form: Form, code: &Code) -> bool {
    if gap.len() > GAP_ITEMS_MAX {
        return false;
    }
    let is_code = |item: &&Item| item.end - item.start >= 5 && item.word(text).iter().all(u8::is_ascii_digit);
    if gap.iter().any(|item| is_code(&item)) {
        return false;
    }
    if form != Form::English {
        // Prose has more small words than a name and a floor.
        let is_prose = |item: &&Item| item.kind == Kind::Small && item.end - item.start > 3;
        return gap.iter().filter(is_prose).count() <= SMALL_WORDS_MAX;
    }
    // A town stands before the state, or before the code where there are none.
    let town = gap.iter().rev().find(|item| item.kind != Kind::Break);
    let is_parted = !code.parted || gap.last().is_some_and(|item| item.kind == Kind::Break);
    let is_named = |item: &Item| match item.kind {
        Kind::Small => words::is_link(item.word(text)) || words::is_unit(item.word(text)),
        _ => true,
    };
    is_parted && town.is_some_and(|town| town.kind == Kind::Capital) && gap.iter().all(is_named)
}

fn code_at(token: Token<'_>) -> Option<Code> {
    let bytes = token.bytes();
    match bytes {
        [a, ..] if a.is_ascii_uppercase() => british(token),
        [_, _] if bytes.iter().all(u8::is_ascii_digit) => polish(token),
        [_, _, _, _, _] if bytes.iter().all(u8::is_ascii_digit) => american(token).or_else(|| continental(token)),
        _ => None,
    }
}

fn digits_at(text: &[u8], at: usize) -> usize {
    text.get(at..).unwrap_or_default().iter().take(8).take_while(|byte| byte.is_ascii_digit()).count()
}

/// Whether nothing goes on behind `end` that makes another number of it.
fn ends(text: &[u8], end: usize) -> bool {
    let next = |at: usize| text.get(at).copied().unwrap_or(b' ');
    let goes_on = match next(end) {
        b'_' | b'%' | b'=' | b'(' => true,
        b'-' | b'.' | b'/' | b':' => next(end + 1).is_ascii_alphanumeric(),
        byte => byte.is_ascii_alphanumeric(),
    };
    !goes_on
}

/// `SW1A 2AA`.
fn british(token: Token<'_>) -> Option<Code> {
    let Token { text, start, .. } = token;
    let bytes = token.bytes();
    let letters = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let (outward, inward_at) = match bytes.len() {
        2..=4 if text.get(token.end) == Some(&b' ') => (bytes, token.end + 1),
        5..=7 => bytes.split_at_checked(bytes.len() - 3).map(|(outward, _)| (outward, start + outward.len()))?,
        _ => return None,
    };
    let is_outward = matches!(letters, 1 | 2)
        && matches!(outward.get(letters..)?, [b'0'..=b'9'] | [b'0'..=b'9', b'0'..=b'9' | b'A'..=b'Z']);
    let [digit, first, second] = *text.get(inward_at..)?.first_chunk::<3>()?;
    // The second half never has letters that look like digits.
    let is_letter = |byte: u8| byte.is_ascii_uppercase() && !b"CIKMOV".contains(&byte);
    let is_inward = digit.is_ascii_digit() && is_letter(first) && is_letter(second);
    let end = inward_at + 3;
    let is_alone = !matches!(token.byte_before(), b'-' | b'_' | b'/' | b'.') && ends(text, end);
    (is_outward && is_inward && is_alone).then_some(Code { start, end, forms: &[Form::English], parted: false })
}

/// `, CA 94043`, `California 94043-1351`.
fn american(token: Token<'_>) -> Option<Code> {
    let Token { text, start, end, .. } = token;
    let end = match digits_at(text, end + 1) {
        4 if text.get(end) == Some(&b'-') => end + 5,
        _ => end,
    };
    let head = text.get(..start)?.strip_suffix(b" ")?.trim_ascii_end();
    let (state, parted) = words::state_at_end(head)?;
    let before = head.get(..state)?;
    let is_word = !before.last().is_some_and(u8::is_ascii_alphanumeric);
    (is_word && ends(text, end)).then_some(Code { start: state, end, forms: &[Form::English], parted })
}

/// `10115 Berlin`, `F-75002 Paris`.
fn continental(token: Token<'_>) -> Option<Code> {
    let text = token.text;
    let start = match text.get(..token.start)? {
        [.., before, b'D' | b'F' | b'I' | b'E', b'-'] if !before.is_ascii_alphanumeric() => token.start - 2,
        [.., b'-' | b'.' | b'/' | b'_' | b'$' | b'#' | b'=' | b':' | b'+'] => return None,
        _ => token.start,
    };
    let end = place_end(text, token.end)?;
    Some(Code { start, end, forms: &[Form::French, Form::German, Form::Southern], parted: false })
}

/// `00-590 Warszawa`.
fn polish(token: Token<'_>) -> Option<Code> {
    let Token { text, start, end, .. } = token;
    let is_code = text.get(end) == Some(&b'-') && digits_at(text, end + 1) == 3;
    let is_alone = !matches!(token.byte_before(), b'-' | b'.' | b'/' | b'_' | b'+' | b':' | b'=' | b'(' | b'#');
    let end = place_end(text, end + 4).filter(|_| is_code && is_alone)?;
    Some(Code { start, end, forms: &[Form::Polish], parted: false })
}

/// Where the name of a place ends that begins behind a code: a word with a capital, and what goes on with it.
fn place_end(text: &[u8], at: usize) -> Option<usize> {
    let skip = match text.get(at..at + 3)? {
        [b',', b' ', _] => 2,
        [b' ', next, _] if next.is_ascii_uppercase() => 1,
        _ => return None,
    };
    let word_end = |at: usize| {
        let rest = text.get(at..).unwrap_or_default();
        let is_part = |byte: &&u8| byte.is_ascii_alphabetic() || !byte.is_ascii() || matches!(**byte, b'-' | b'\'');
        at + rest.iter().take(PLACE_BYTES_MAX / 4).take_while(is_part).count()
    };
    let word = |at: usize| text.get(at..word_end(at)).unwrap_or_default();
    let is_name = |at: usize| text.get(at).is_some_and(u8::is_ascii_uppercase) && word(at).len() >= 2;
    let start = at + skip;
    let first = word(start);
    if !is_name(start) || words::is_quantity(first) || text.get(word_end(start)).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let mut end = word_end(start);
    if words::goes_on(first) && text.get(end) == Some(&b' ') && is_name(end + 1) {
        end = word_end(end + 1);
    }
    // `Frankfurt am Main`, `Neuilly sur Seine`.
    if text.get(end) == Some(&b' ') && words::is_of_place(word(end + 1)) {
        let next = word_end(end + 1) + 1;
        let next = if words::is_of_place(word(next)) { word_end(next) + 1 } else { next };
        if text.get(next - 1) == Some(&b' ') && is_name(next) {
            end = word_end(next);
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests;
