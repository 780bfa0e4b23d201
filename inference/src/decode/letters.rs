//! Letters put in the place of others: shifts, mirrors, leetspeak, reversals, spacing, pig Latin.
//!
//! Every function copies what it cannot read, and appends at most as many bytes as it reads.

use memchr::{memchr_iter, memchr3_iter};

use super::{VOCABULARY_BYTES, Vocabulary};
use crate::bits;

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

/// What each byte stands for in leet. What stands for no other one is no part of a word.
static LEET: [u8; 256] = {
    let mut read = [0; 256];
    let mut byte = 0;
    while byte < read.len() {
        read[byte] = match byte as u8 {
            b'4' | b'@' => b'a',
            b'3' => b'e',
            b'1' | b'!' | b'|' => b'i',
            b'0' => b'o',
            b'5' | b'$' => b's',
            b'7' | b'+' => b't',
            other => other.to_ascii_lowercase(),
        };
        byte += 1;
    }
    read
};

/// Reads leet; where `1` may be `i` or `l`, the reading of the word that the vocabulary knows wins.
pub(super) fn from_leet(text: &[u8], vocabulary: &Vocabulary, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend(text.iter().map(|byte| LEET[usize::from(*byte)]));
    let Some(read) = out.get_mut(start..) else { return };
    let is_inside = |byte: &u8| IN_TOKEN[usize::from(*byte)];
    let mut done = 0;
    for at in memchr3_iter(b'1', b'!', b'|', text) {
        if at < done {
            continue;
        }
        let from = at - text.get(done..at).unwrap_or_default().iter().rev().take_while(|byte| is_inside(byte)).count();
        done = at + text.get(at..).unwrap_or_default().iter().take_while(|byte| is_inside(byte)).count();
        if let (Some(token), Some(word)) = (text.get(from..done), read.get_mut(from..done)) {
            settle(token, word, vocabulary);
        }
    }
}

/// Settles which letter each `1` of a word is.
fn settle(token: &[u8], word: &mut [u8], vocabulary: &Vocabulary) {
    // No word has other digits, and most tokens that are no words do.
    if !VOCABULARY_BYTES.contains(&word.len()) || !word.iter().all(u8::is_ascii_lowercase) {
        return;
    }
    let (mut ones, mut count) = ([0; AMBIGUOUS_MAX], 0);
    for at in memchr3_iter(b'1', b'!', b'|', token) {
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
    if !(0..1u32 << count).any(&mut put) {
        put(0);
    }
}

/// `gnoreiay` to `ignore`.
pub(super) fn from_pig_latin(text: &[u8], out: &mut Vec<u8>) {
    let mut copied = 0;
    for last in memchr_iter(b'y', text) {
        let before = text.get(copied..last).unwrap_or_default();
        if before.last() != Some(&b'a') || text.get(last + 1).is_some_and(u8::is_ascii_alphabetic) {
            continue;
        }
        let letters = before.iter().rev().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let (plain, word) = before.split_at_checked(before.len() - letters).unwrap_or_default();
        if let [stem @ .., first, b'a'] = word
            && !stem.is_empty()
        {
            out.extend_from_slice(plain);
            out.push(*first);
            out.extend_from_slice(stem);
            copied = last + 1;
        }
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
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

/// What may stand between letters that are spread.
static GAP: [bool; 256] = set(b" -._");

/// The bytes of a text as a table.
pub(super) const fn set(bytes: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut at = 0;
    while at < bytes.len() {
        set[bytes[at] as usize] = true;
        at += 1;
    }
    set
}

/// `i g n o r e   a l l` to `ignore all`: one separator between single characters goes, three become a space.
pub(super) fn join_spaced(text: &[u8], out: &mut Vec<u8>) {
    let gap = |at: usize| text.get(at).is_some_and(|byte| GAP[usize::from(*byte)]);
    out.reserve(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        out.push(*byte);
        at += 1;
        if !gap(at) {
            continue;
        }
        let wide = 1 + (at + 1..text.len()).take_while(|at| gap(*at)).count();
        if wide >= 2 {
            out.push(b' ');
        }
        let single = wide == 1 && (gap(at + 2) || at + 2 >= text.len() || at < 2 || gap(at - 2));
        at += if single || wide >= 2 { wide } else { 0 };
    }
}

/// The letters of each word in the opposite order.
pub(super) fn reverse_words(text: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(text);
    let Some(copy) = out.get_mut(start..) else { return };
    let is_inside = |byte: u8| ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte == b'\'');
    for word in bits::stretches(text, is_inside) {
        copy.get_mut(word).unwrap_or_default().reverse();
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
