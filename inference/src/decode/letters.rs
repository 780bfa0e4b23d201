//! Letters put in the place of others: shifts, mirrors, leetspeak, reversals, spacing, pig Latin.
//!
//! Every function copies what it cannot read, and appends at most as many bytes as it reads.

use super::{VOCABULARY_BYTES, Vocabulary};

pub(super) fn rotate(byte: u8, by: u8) -> u8 {
    match byte {
        b'a'..=b'z' => (byte - b'a' + by) % 26 + b'a',
        b'A'..=b'Z' => (byte - b'A' + by) % 26 + b'A',
        other => other,
    }
}

pub(super) fn mirror(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' => b'z' - (byte - b'a'),
        b'A'..=b'Z' => b'Z' - (byte - b'A'),
        other => other,
    }
}

pub(super) fn to_leet(byte: u8) -> u8 {
    match byte {
        b'a' => b'4',
        b'e' => b'3',
        b'i' | b'l' => b'1',
        b'o' => b'0',
        b's' => b'5',
        b't' => b'7',
        other => other,
    }
}

/// Most letters of one word that may stand for two different ones.
const AMBIGUOUS_MAX: usize = 4;

/// Reads one leet word; where `1` may be `i` or `l`, the reading the vocabulary knows wins.
pub(super) fn from_leet(token: &[u8], vocabulary: &Vocabulary, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend(token.iter().map(|byte| match byte {
        b'4' | b'@' => b'a',
        b'3' => b'e',
        b'1' | b'!' | b'|' => b'i',
        b'0' => b'o',
        b'5' | b'$' => b's',
        b'7' | b'+' => b't',
        other => other.to_ascii_lowercase(),
    }));
    let Some(word) = out.get_mut(start..) else { return };
    // No word has other digits, and most tokens that are no words do.
    if !VOCABULARY_BYTES.contains(&word.len()) || !word.iter().all(u8::is_ascii_lowercase) {
        return;
    }
    let (mut ones, mut count) = ([0; AMBIGUOUS_MAX], 0);
    for at in (0..token.len()).filter(|at| matches!(token.get(*at), Some(b'1' | b'!' | b'|'))) {
        let Some(slot) = ones.get_mut(count) else { return };
        (*slot, count) = (at, count + 1);
    }
    let ones = ones.get(..count).unwrap_or_default();
    let mut put = |choice: u32| {
        for (bit, at) in ones.iter().enumerate() {
            if let Some(byte) = word.get_mut(*at) {
                *byte = if choice & (1 << bit) == 0 { b'i' } else { b'l' };
            }
        }
        str::from_utf8(word).is_ok_and(|word| vocabulary.contains(word))
    };
    if count > 0 && !(0..1u32 << count).any(&mut put) {
        put(0);
    }
}

pub(super) fn from_pig_latin(word: &[u8], out: &mut Vec<u8>) {
    let stem = word.strip_suffix(b"ay").filter(|stem| stem.len() >= 2);
    match stem.and_then(|stem| stem.split_last()) {
        Some((last, rest)) => {
            out.push(*last);
            out.extend_from_slice(rest);
        }
        None => out.extend_from_slice(word),
    }
}

/// Calls `write` for every run of letters; copies the rest.
pub(super) fn each_word(text: &[u8], out: &mut Vec<u8>, write: impl Fn(&[u8], &mut Vec<u8>)) {
    for piece in text.chunk_by(|a, b| a.is_ascii_alphabetic() == b.is_ascii_alphabetic()) {
        if piece.first().is_some_and(u8::is_ascii_alphabetic) {
            write(piece, out);
        } else {
            out.extend_from_slice(piece);
        }
    }
}

/// Calls `write` for every run without white space or sentence marks; copies the rest.
pub(super) fn each_token(text: &[u8], out: &mut Vec<u8>, write: impl Fn(&[u8], &mut Vec<u8>)) {
    let is_inside = |byte: &u8| IN_TOKEN[usize::from(*byte)];
    let mut rest = text;
    while !rest.is_empty() {
        let len = rest.iter().position(|byte| !is_inside(byte)).unwrap_or(rest.len());
        let (token, after) = rest.split_at_checked(len).unwrap_or_default();
        if !token.is_empty() {
            write(token, out);
        }
        let len = after.iter().position(is_inside).unwrap_or(after.len());
        let (between, after) = after.split_at_checked(len).unwrap_or_default();
        out.extend_from_slice(between);
        rest = after;
    }
}

/// Letters, digits and the signs that stand for letters.
static IN_TOKEN: [bool; 256] = {
    let mut inside = [false; 256];
    let mut byte = 0;
    while byte < inside.len() {
        inside[byte] = (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'@' | b'$' | b'!' | b'|' | b'+');
        byte += 1;
    }
    inside
};

/// `i g n o r e   a l l` to `ignore all`: one separator between single characters goes, three become a space.
pub(super) fn join_spaced(text: &[u8], out: &mut Vec<u8>) {
    let gap = |at: usize| text.get(at).is_some_and(|byte| b" -._".contains(byte));
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        out.push(*byte);
        at += 1;
        let wide = (at..text.len()).take_while(|at| gap(*at)).count();
        if wide >= 2 {
            out.push(b' ');
        }
        let single = wide == 1 && (gap(at + 2) || at + 2 >= text.len() || at < 2 || gap(at - 2));
        at += if single || wide >= 2 { wide } else { 0 };
    }
}

/// The letters of each word in the opposite order.
pub(super) fn reverse_words(text: &[u8], out: &mut Vec<u8>) {
    let inside = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'\'';
    for piece in text.chunk_by(|a, b| inside(a) == inside(b)) {
        if piece.first().is_some_and(inside) {
            out.extend(piece.iter().rev());
        } else {
            out.extend_from_slice(piece);
        }
    }
}

/// Printable characters, half-way round.
pub(super) const fn rotate_printable(byte: u8) -> u8 {
    match byte {
        b'!'..=b'~' => (byte - b'!' + 47) % 94 + b'!',
        other => other,
    }
}

/// The words in the opposite order, without the marks at their ends.
pub(super) fn reverse_order(text: &[u8], out: &mut Vec<u8>) {
    for word in text.split(u8::is_ascii_whitespace).rev() {
        out.extend_from_slice(word.trim_ascii_end().strip_suffix(b".").unwrap_or(word));
        out.push(b' ');
    }
}
