//! Random damage to a request: the ways in which bytes, lines and numbers go wrong.

use super::corpus::{HIDDEN, ID};
use super::data::SPECIAL_BYTES;
use super::rng::Rng;

/// Longest template; what grows beyond says nothing new.
const BYTES_MAX: usize = 16 * 1024;

/// `bytes` after one to three kinds of damage; `other` lends parts.
pub(crate) fn mutated(rng: &mut Rng, mut bytes: Vec<u8>, other: &[u8]) -> Vec<u8> {
    for _ in 0..=rng.below(3) {
        if !bytes.is_empty() {
            bytes = once(rng, bytes, other);
        }
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn once(rng: &mut Rng, mut bytes: Vec<u8>, other: &[u8]) -> Vec<u8> {
    let at = outside_id(rng, &bytes);
    let to = bytes.len().min(at + 1 + rng.below(24));
    match rng.below(13) {
        0 => bytes.insert(at, *rng.pick(SPECIAL_BYTES)),
        1 => bytes[at] = *rng.pick(SPECIAL_BYTES),
        2 => bytes[at] = rng.below(256) as u8,
        3 => bytes[at] ^= 1 << rng.below(8),
        4 => drop(bytes.remove(at)),
        5 => drop(bytes.drain(at..to)),
        6 => {
            let stretch = bytes[at..to].to_vec();
            bytes.splice(to..to, stretch);
        }
        7 => {
            let start = rng.below(other.len());
            bytes.splice(at..at, other[start..other.len().min(start + 32)].iter().copied());
        }
        8 => {
            bytes = with_lines(&bytes, |lines| {
                let (one, other) = (rng.below(lines.len()), rng.below(lines.len()));
                lines.swap(one, other);
            });
        }
        9 => {
            bytes = with_lines(&bytes, |lines| {
                let line = *rng.pick(lines);
                let place = rng.below(lines.len());
                lines.insert(place, line);
            });
        }
        10 => nudge_number(rng, &mut bytes),
        11 => swap_case(rng, &mut bytes),
        _ => {
            let stretch = if rng.below(2) == 0 { HIDDEN.as_bytes() } else { b"\r\n\r\n" };
            bytes.splice(at..at, stretch.iter().copied());
        }
    }
    bytes
}

/// A place in `bytes` that does not break the number of a delivery.
fn outside_id(rng: &mut Rng, bytes: &[u8]) -> usize {
    let at = rng.below(bytes.len());
    let from = at.saturating_sub(ID.len());
    match bytes.get(from..).and_then(|rest| memchr::memmem::find(rest, ID.as_bytes())) {
        Some(start) if from + start <= at => from + start,
        _ => at,
    }
}

fn with_lines(bytes: &[u8], change: impl FnOnce(&mut Vec<&[u8]>)) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    change(&mut lines);
    lines.concat()
}

/// Some digit of a length or a size becomes another one.
fn nudge_number(rng: &mut Rng, bytes: &mut [u8]) {
    let digits: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at].is_ascii_digit()).collect();
    if !digits.is_empty() {
        bytes[*rng.pick(&digits)] = b'0' + rng.below(10) as u8;
    }
}

fn swap_case(rng: &mut Rng, bytes: &mut [u8]) {
    let letters: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at].is_ascii_lowercase()).collect();
    if !letters.is_empty() {
        let at = *rng.pick(&letters);
        bytes[at] = bytes[at].to_ascii_uppercase();
    }
}
