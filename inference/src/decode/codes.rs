//! Characters written as numbers or signs: escapes, character codes, Morse, quoted-printable, international labels.
//!
//! Every function copies what it cannot read. What is appended is at most a constant longer than what is read.

use memchr::{memchr_iter, memchr2_iter, memmem};

use super::letters::set;
use crate::bits;
use crate::fold::to_latin;

/// What stands between two pieces of one string.
const JOINTS: [&[u8]; 4] = [b"\" + \"", b"' + '", b"\"+\"", b"'+'"];

/// `"ig" + "nore"` to `ignore`.
pub(super) fn join_split(text: &[u8], out: &mut Vec<u8>) {
    let mut copied = 0;
    for at in memchr2_iter(b'"', b'\'', text) {
        let rest = text.get(at..).unwrap_or_default();
        let joint = JOINTS.iter().find(|joint| at >= copied && rest.starts_with(joint));
        if let Some(joint) = joint {
            out.extend_from_slice(text.get(copied..at).unwrap_or_default());
            copied = at + joint.len();
        }
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
}

/// Replaces what `read` understands where `sign` stands: it says for which byte a piece stands, if for any, and how long the piece is.
pub(super) fn escapes(text: &[u8], sign: u8, out: &mut Vec<u8>, read: impl Fn(&[u8]) -> Option<(Option<u8>, usize)>) {
    let mut copied = 0;
    for at in memchr_iter(sign, text) {
        let piece = if at < copied { None } else { read(text.get(at..).unwrap_or_default()) };
        if let Some((decoded, used)) = piece {
            out.extend_from_slice(text.get(copied..at).unwrap_or_default());
            out.extend(decoded);
            copied = at + used;
        }
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
}

pub(super) fn hex_after(rest: &[u8], prefix: &[u8], digits: usize) -> Option<(u8, usize)> {
    let hex = rest.strip_prefix(prefix)?.get(..digits)?;
    let byte = u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?;
    Some((byte, prefix.len() + digits))
}

/// `\u0069`, `\x69`, `\u{69}` and `\x{69}`, with one backslash or, inside another string, two.
pub(super) fn unicode_escape(rest: &[u8]) -> Option<(u8, usize)> {
    let plain =
        hex_after(rest, b"\\u00", 2).or_else(|| hex_after(rest, b"\\x", 2)).or_else(|| hex_after(rest, b"\\\\u00", 2));
    plain.or_else(|| {
        let body = rest.strip_prefix(b"\\u{").or_else(|| rest.strip_prefix(b"\\x{"))?;
        let end = body.iter().take(7).position(|byte| *byte == b'}')?;
        let value = u32::from_str_radix(std::str::from_utf8(body.get(..end)?).ok()?, 16).ok()?;
        Some((u8::try_from(value).ok()?, end + 4))
    })
}

/// Digits of the longest entity that is read, leading zeros among them.
const ENTITY_DIGITS: usize = 9;

/// `&#105;`, `&#x69;`, and both without the semicolon, as browsers read them.
pub(super) fn entity(rest: &[u8]) -> Option<(u8, usize)> {
    let body = rest.strip_prefix(b"&#")?;
    let (digits, radix, mark) = match body {
        [b'x' | b'X', digits @ ..] => (digits, 16, 3),
        digits => (digits, 10, 2),
    };
    let count = digits.iter().take(ENTITY_DIGITS).take_while(|byte| char::from(**byte).is_digit(radix)).count();
    let number = std::str::from_utf8(digits.get(..count)?).ok()?;
    let byte = u8::try_from(u32::from_str_radix(number, radix).ok()?).ok()?;
    Some((byte, mark + count + usize::from(digits.get(count) == Some(&b';'))))
}

/// White space, without a branch.
const fn is_blank(byte: u8) -> bool {
    (byte == b' ') | (byte == b'\t') | (byte == b'\n') | (byte == b'\r') | (byte == b'\x0c')
}

/// Character codes with white space, commas, colons or backslashes between them; all that is no code in range is copied.
pub(super) fn codes(text: &[u8], out: &mut Vec<u8>, radix: u32, digits_max: usize) {
    out.reserve(text.len());
    let is_inside = |byte: u8| !(is_blank(byte) | (byte == b',') | (byte == b':') | (byte == b';') | (byte == b'\\'));
    for token in bits::stretches(text, is_inside).filter_map(|token| text.get(token)) {
        let token = token.strip_prefix(b"0x").unwrap_or(token);
        let code = Some(token)
            .filter(|token| token.len() <= digits_max)
            .and_then(|token| code(token, radix))
            .filter(|code| (b' '..=b'~').contains(code) || *code == b'\n');
        match code {
            Some(code) => out.push(code),
            None => {
                out.extend_from_slice(token);
                out.push(b' ');
            }
        }
    }
}

/// The number that a token writes, with or without a plus before it.
fn code(token: &[u8], radix: u32) -> Option<u8> {
    let digits = token.strip_prefix(b"+").unwrap_or(token);
    let add = |value: u32, digit: &u8| Some(value * radix + char::from(*digit).to_digit(radix)?);
    let value = digits.iter().try_fold(0u32, add)?;
    u8::try_from(value).ok().filter(|_| !digits.is_empty())
}

/// Where a small letter stands in the alphabet, from 1 on.
pub(super) const fn place_in_alphabet(letter: u8) -> u8 {
    letter - b'a' + 1
}

/// `9-7-14` to `ign`. What joins the numbers of a word is what stands behind the first one; a blank behind another joint ends the
/// word.
pub(super) fn alphabet_numbers(text: &[u8], out: &mut Vec<u8>) {
    let joint = text.windows(3).find_map(|here| match here {
        [b'0'..=b'9', joint @ (b'-' | b'.' | b','), b'0'..=b'9' | b' '] => Some(*joint),
        [b'0'..=b'9', b' ', b'0'..=b'9'] => Some(b' '),
        _ => None,
    });
    let joint = joint.unwrap_or(b' ');
    let is_gap = |byte: &u8| *byte == joint || byte.is_ascii_whitespace();
    for piece in text.chunk_by(|a, b| is_gap(a) == is_gap(b)) {
        let begins = piece.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'+');
        let number =
            Some(piece).filter(|_| begins).and_then(|piece| std::str::from_utf8(piece).ok()?.parse::<u8>().ok());
        match number.filter(|number| (1..=26).contains(number)) {
            Some(number) => out.push(b'a' + number - 1),
            None if piece.iter().all(is_gap) => {
                let joins = piece.first() == Some(&joint) && (joint == b' ' || piece.len() == 1 || joint == b',');
                if !joins || piece.contains(&b'\n') {
                    out.push(b' ');
                }
            }
            None => {
                out.extend_from_slice(piece);
                out.push(b' ');
            }
        }
    }
}

/// The words of the alphabet of radio operators, in its order: each begins with its letter.
const SPELLING: [&str; 26] = [
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo", "lima",
    "mike", "november", "oscar", "papa", "quebec", "romeo", "sierra", "tango", "uniform", "victor", "whiskey", "xray",
    "yankee", "zulu",
];

/// `romeo echo` to `re`; a comma, a slash or a line break ends a word.
pub(super) fn spelling_words(text: &[u8], out: &mut Vec<u8>) {
    for piece in text.chunk_by(|a, b| a.is_ascii_alphabetic() == b.is_ascii_alphabetic()) {
        let first = piece.first().map(u8::to_ascii_lowercase).filter(u8::is_ascii_lowercase);
        let word = first.and_then(|first| SPELLING.get(usize::from(first - b'a')));
        match first {
            Some(letter) if word.is_some_and(|word| piece.eq_ignore_ascii_case(word.as_bytes())) => out.push(letter),
            Some(_) => out.extend_from_slice(piece),
            None if matches!(piece, b" " | b"-") && out.last().is_some_and(u8::is_ascii_lowercase) => {}
            None => out.push(b' '),
        }
    }
}

/// `=69=67` to `ig`; a soft line break goes.
pub(super) fn quoted_printable(rest: &[u8]) -> Option<(Option<u8>, usize)> {
    match rest {
        [b'=', b'\r', b'\n', ..] => Some((None, 3)),
        [b'=', b'\n', ..] => Some((None, 2)),
        _ => hex_after(rest, b"=", 2).map(|(byte, used)| (Some(byte), used)),
    }
}

/// Letters and digits in the order of [`PLAIN`].
const MORSE: [&[u8]; 36] = [
    b".-", b"-...", b"-.-.", b"-..", b".", b"..-.", b"--.", b"....", b"..", b".---", b"-.-", b".-..", b"--", b"-.",
    b"---", b".--.", b"--.-", b".-.", b"...", b"-", b"..-", b"...-", b".--", b"-..-", b"-.--", b"--..", b"-----",
    b".----", b"..---", b"...--", b"....-", b".....", b"-....", b"--...", b"---..", b"----.",
];
/// What they stand for.
const PLAIN: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Marks of the longest sign.
const MARKS_MAX: usize = 5;

/// What each sign stands for, by its [`number`]; 0 for none.
static SIGNS: [u8; 2 << MARKS_MAX] = {
    let mut signs = [0; 2 << MARKS_MAX];
    let mut at = 0;
    while at < MORSE.len() {
        signs[number(MORSE[at])] = PLAIN[at];
        at += 1;
    }
    signs
};

/// The marks of a sign as the bits of a number, behind a one; 0 for what is no sign.
const fn number(sign: &[u8]) -> usize {
    if sign.len() > MARKS_MAX {
        return 0;
    }
    let (mut number, mut at) = (1, 0);
    while at < sign.len() {
        number = match sign[at] {
            b'.' => number << 1,
            b'-' => number << 1 | 1,
            _ => return 0,
        };
        at += 1;
    }
    number
}

/// What ends a sign: white space and slashes.
static ENDS_SIGN: [bool; 256] = set(b" \t\n\r\x0c/");

/// Signs with a blank between letters, and a slash, a bar or several blanks between words.
pub(super) fn from_morse(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len());
    let (mut blanks, mut rest) = (0, text);
    while let Some(first) = rest.first() {
        let length = rest.iter().position(|byte| ENDS_SIGN[usize::from(*byte)]).unwrap_or(rest.len());
        let (sign, after) = rest.split_at_checked(length.max(1)).unwrap_or_default();
        rest = after;
        if matches!(first, b' ' | b'\t') {
            blanks += 1;
            // One blank ends a letter; a second one ends a word.
            if blanks == 2 {
                out.push(b' ');
            }
            continue;
        }
        blanks = 0;
        match (SIGNS[number(sign)], sign) {
            (0, [b'/' | b'|']) => out.push(b' '),
            // A mark that has no sign belongs to its word.
            (0, [mark]) => out.push(*mark),
            (0, other) => {
                out.extend_from_slice(other);
                out.push(b' ');
            }
            (letter, _) => out.push(letter),
        }
    }
}

/// Longest label that is decoded, in bytes; what people type is shorter.
const LABEL_MAX: usize = 63;

/// Every `xn--` label as the letters that it looks like.
pub(super) fn from_punycode(text: &[u8], out: &mut Vec<u8>) {
    let is_label = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let mut copied = 0;
    for dashes in memmem::find_iter(text, b"--") {
        let Some((before, [b'x' | b'X', b'n' | b'N'])) = text.get(..dashes).and_then(<[u8]>::split_last_chunk) else {
            continue;
        };
        if before.last().is_some_and(is_label) {
            continue;
        }
        let rest = text.get(dashes + 2..).unwrap_or_default();
        let label = rest.get(..rest.iter().position(|byte| !is_label(byte)).unwrap_or(rest.len())).unwrap_or_default();
        if let Some(letters) = Some(label).filter(|label| label.len() <= LABEL_MAX).and_then(read_label) {
            out.extend_from_slice(text.get(copied..before.len()).unwrap_or_default());
            out.extend(letters.into_iter().filter_map(to_latin));
            copied = dashes + 2 + label.len();
        }
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
}

/// RFC 3492, section 6.2. `None` for what is no such label.
fn read_label(label: &[u8]) -> Option<Vec<char>> {
    let (plain, coded) = match label.iter().rposition(|byte| *byte == b'-') {
        Some(at) => (label.get(..at)?, label.get(at + 1..)?),
        None => (&label[..0], label),
    };
    let mut letters: Vec<char> = plain.iter().map(|byte| char::from(*byte)).collect();
    let (mut code, mut place, mut bias) = (128u32, 0u32, 72u32);
    let mut digits = coded.iter();
    while digits.len() > 0 {
        let before = place;
        let (mut weight, mut base) = (1u32, 36u32);
        loop {
            let digit = match digits.next()? {
                letter @ (b'a'..=b'z' | b'A'..=b'Z') => u32::from(letter.to_ascii_lowercase() - b'a'),
                number @ b'0'..=b'9' => u32::from(number - b'0') + 26,
                _ => return None,
            };
            place = place.checked_add(digit.checked_mul(weight)?)?;
            let threshold = base.saturating_sub(bias).clamp(1, 26);
            if digit < threshold {
                break;
            }
            weight = weight.checked_mul(36 - threshold)?;
            base += 36;
        }
        let count = letters.len() as u32 + 1;
        let mut share = if before == 0 { (place - before) / 700 } else { (place - before) / 2 };
        share += share / count;
        bias = 0;
        while share > 455 {
            share /= 35;
            bias += 36;
        }
        bias += 36 * share / (share + 38);
        code = code.checked_add(place / count)?;
        place %= count;
        letters.insert(place as usize, char::from_u32(code)?);
        place += 1;
    }
    Some(letters)
}

/// Ascii85 between its marks, or each long token of it.
pub(super) fn from_ascii85(text: &[u8], out: &mut Vec<u8>) {
    let digit = |byte: u8| byte.checked_sub(b'!').filter(|digit| *digit < 85);
    long_tokens(text, out, |token, out| {
        let body = token.strip_prefix(b"<~").unwrap_or(token);
        let body = body.iter().position(|byte| *byte == b'~').and_then(|end| body.get(..end)).unwrap_or(body);
        read_base85(body, digit, out)
    });
}

/// The digits of base85 in the order of RFC 1924.
const RFC_1924: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// What each byte stands for there; 85 for none.
static RFC_1924_DIGITS: [u8; 256] = {
    let mut digits = [85; 256];
    let mut at = 0;
    while at < RFC_1924.len() {
        digits[RFC_1924[at] as usize] = at as u8;
        at += 1;
    }
    digits
};

/// Each long token of base85 in the alphabet of RFC 1924, as common libraries write it.
pub(super) fn from_base85(text: &[u8], out: &mut Vec<u8>) {
    let digit = |byte: u8| Some(RFC_1924_DIGITS[usize::from(byte)]).filter(|digit| *digit < 85);
    let is_quote = |byte: &u8| matches!(byte, b'"' | b'\'' | b',' | b'.' | b':');
    long_tokens(text, out, |token, out| {
        let from = token.iter().position(|byte| !is_quote(byte)).unwrap_or(token.len());
        let to = token.iter().rposition(|byte| !is_quote(byte)).map_or(from, |last| last + 1);
        read_base85(token.get(from..to).unwrap_or_default(), digit, out)
    });
}

/// Four bytes in base85 as RFC 1924 has it.
pub(super) fn to_base85(bytes: [u8; 4]) -> String {
    let value = u32::from_be_bytes(bytes) as usize;
    let powers = [85 * 85 * 85 * 85, 85 * 85 * 85, 85 * 85, 85, 1];
    powers.iter().map(|power| char::from(RFC_1924[value / power % 85])).collect()
}

/// Shortest token of base85 that is read, in bytes.
const TOKEN_MIN: usize = 10;

/// Every token, and a blank behind it: what `read` makes of a long one, if that says anything, else the token.
fn long_tokens(text: &[u8], out: &mut Vec<u8>, read: impl Fn(&[u8], &mut Vec<u8>) -> bool) {
    let copy = |part: &[u8], out: &mut Vec<u8>| {
        out.extend(part.iter().map(|byte| if is_blank(*byte) { b' ' } else { *byte }));
    };
    let mut copied = 0;
    for range in bits::stretches(text, |byte| !is_blank(byte)).filter(|range| range.len() >= TOKEN_MIN) {
        copy(text.get(copied..range.start).unwrap_or_default(), out);
        let begins = out.len();
        let is_read = read(text.get(range.clone()).unwrap_or_default(), out)
            && super::is_readable(out.get(begins..).unwrap_or_default());
        copied = if is_read { range.end } else { range.start };
        out.truncate(if is_read { out.len() } else { begins });
    }
    copy(text.get(copied..).unwrap_or_default(), out);
    out.push(b' ');
}

/// Appends what the digits of a long token say. False where it is none.
fn read_base85(body: &[u8], digit: impl Fn(u8) -> Option<u8>, out: &mut Vec<u8>) -> bool {
    if body.len() < TOKEN_MIN {
        return false;
    }
    for group in body.chunks(5) {
        let mut value = 0u64;
        for at in 0..5 {
            let digit = match group.get(at) {
                Some(byte) => digit(*byte),
                None => Some(84),
            };
            let Some(digit) = digit else { return false };
            value = value * 85 + u64::from(digit);
        }
        let Ok(value) = u32::try_from(value) else { return false };
        out.extend(value.to_be_bytes().iter().take(group.len() - 1));
    }
    true
}
