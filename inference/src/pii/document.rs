//! Identifiers that mix letters and digits: IBAN, national insurance numbers, Spanish identity numbers, passports.

use super::context::{Context, Topic};
use super::{Pii, PiiType, Token, checks};

/// Reads a token that holds at least one letter.
pub(super) fn read(token: Token<'_>) -> Option<Pii> {
    if token.is_glued_before() {
        return None;
    }
    iban(token)
        .or_else(|| fiscal_code(token))
        .or_else(|| nino(token))
        .or_else(|| dni(token))
        .or_else(|| passport(token))
}

/// Whether what follows `end` continues an identifier.
fn is_glued_after(text: &[u8], end: usize) -> bool {
    let next = |at: usize| text.get(at).copied().unwrap_or(b' ');
    next(end).is_ascii_alphanumeric()
        || next(end) == b'_'
        || (matches!(next(end), b'-' | b'/') && next(end + 1).is_ascii_alphanumeric())
}

/// Length of an IBAN by country (ISO 13616 registry).
fn iban_len(country: &[u8]) -> Option<usize> {
    Some(match country {
        b"NO" => 15,
        b"BE" => 16,
        b"DK" | b"FI" | b"NL" | b"FO" | b"GL" => 18,
        b"MK" | b"SI" => 19,
        b"AT" | b"BA" | b"EE" | b"KZ" | b"LT" | b"LU" | b"XK" => 20,
        b"CH" | b"CR" | b"HR" | b"LI" | b"LV" => 21,
        b"BG" | b"BH" | b"DE" | b"GB" | b"GE" | b"IE" | b"ME" | b"RS" => 22,
        b"AE" | b"GI" | b"IL" | b"IQ" | b"TL" => 23,
        b"AD" | b"CZ" | b"ES" | b"MD" | b"PK" | b"RO" | b"SA" | b"SE" | b"SK" | b"TN" | b"VG" => 24,
        b"PT" => 25,
        b"IS" | b"TR" => 26,
        b"FR" | b"GR" | b"IT" | b"MC" | b"MR" | b"SM" => 27,
        b"AL" | b"AZ" | b"CY" | b"DO" | b"GT" | b"HU" | b"LB" | b"PL" => 28,
        b"BR" | b"EG" | b"PS" | b"QA" | b"UA" => 29,
        b"JO" | b"KW" | b"MU" => 30,
        b"MT" | b"SC" => 31,
        b"LC" => 32,
        b"RU" => 33,
        _ => return None,
    })
}

fn iban(token: Token<'_>) -> Option<Pii> {
    let text = token.text;
    let head = text.get(token.start..token.start + 4)?;
    let (country, check) = head.split_at(2);
    if !check.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let want = iban_len(&[country.first()?.to_ascii_uppercase(), country.get(1)?.to_ascii_uppercase()])?;
    let mut plain = [0u8; 34];
    let mut len = 0;
    let mut at = token.start;
    while len < want {
        let byte = *text.get(at)?;
        if byte.is_ascii_alphanumeric() {
            *plain.get_mut(len)? = byte.to_ascii_uppercase();
            len += 1;
        } else if !(matches!(byte, b' ' | b'-') && len % 4 == 0 && len > 0) {
            return None;
        }
        at += 1;
    }
    let valid = !text.get(at).is_some_and(u8::is_ascii_alphanumeric) && checks::mod97(plain.get(..want)?);
    valid.then_some(Pii { kind: PiiType::Iban, start: token.start, end: at })
}

/// The two letters a national insurance number may begin with (HMRC NIM39110).
fn is_nino_prefix(prefix: &[u8]) -> bool {
    let [first, second] = prefix else { return false };
    first.is_ascii_uppercase()
        && second.is_ascii_uppercase()
        && !b"DFIQUV".contains(first)
        && !b"DFIQUVO".contains(second)
        && !matches!(prefix, b"BG" | b"GB" | b"KN" | b"NK" | b"NT" | b"TN" | b"ZZ")
}

fn nino(token: Token<'_>) -> Option<Pii> {
    let bytes = token.bytes();
    let valid = bytes.len() == 9
        && is_nino_prefix(bytes.get(..2)?)
        && bytes.get(2..8)?.iter().all(u8::is_ascii_digit)
        && matches!(bytes.get(8), Some(b'A'..=b'D'))
        && !is_glued_after(token.text, token.end);
    valid.then_some(Pii { kind: PiiType::UkNin, start: token.start, end: token.end })
}

/// `JK 33 27 95 A`, entered at the first pair of digits.
pub(super) fn spaced_nino(token: Token<'_>) -> Option<Pii> {
    if token.end - token.start != 2 || token.byte_before() != b' ' {
        return None;
    }
    let start = token.start.checked_sub(3).filter(|start| *start >= token.floor)?;
    let bytes = token.text.get(start..start + 13)?;
    let shape = bytes.iter().enumerate().all(|(at, byte)| match at {
        2 | 5 | 8 | 11 => *byte == b' ',
        3 | 4 | 6 | 7 | 9 | 10 => byte.is_ascii_digit(),
        12 => matches!(byte, b'A'..=b'D'),
        _ => true,
    });
    let alone = !start.checked_sub(1).and_then(|at| token.text.get(at)).is_some_and(u8::is_ascii_alphanumeric)
        && !token.text.get(start + 13).is_some_and(u8::is_ascii_alphanumeric);
    let valid = shape && alone && is_nino_prefix(bytes.get(..2)?);
    valid.then_some(Pii { kind: PiiType::UkNin, start, end: start + 13 })
}

fn dni(token: Token<'_>) -> Option<Pii> {
    let (letter, number) = token.bytes().split_last()?;
    let mut digits = [0u8; 8];
    if number.len() != 8 || !letter.is_ascii_uppercase() || !number.iter().all(u8::is_ascii_digit) {
        return None;
    }
    for (digit, byte) in digits.iter_mut().zip(number) {
        *digit = byte - b'0';
    }
    let valid = checks::dni(&digits, *letter) && !is_glued_after(token.text, token.end);
    valid.then_some(Pii { kind: PiiType::EsDni, start: token.start, end: token.end })
}

/// The Italian one, and the Chinese number that ends in a letter.
fn fiscal_code(token: Token<'_>) -> Option<Pii> {
    let bytes = token.bytes();
    let kind = match bytes.len() {
        16 if checks::codice_fiscale(bytes) => PiiType::ItFiscalCode,
        18 if checks::resident_id(bytes) => PiiType::CnResidentId,
        _ => return None,
    };
    (!is_glued_after(token.text, token.end)).then_some(Pii { kind, start: token.start, end: token.end })
}

fn passport(token: Token<'_>) -> Option<Pii> {
    let bytes = token.bytes();
    let shape = (6..=9).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
        && !is_glued_after(token.text, token.end);
    (shape && Context::before(token.text, token.start).names(Topic::Passport)).then_some(Pii {
        kind: PiiType::Passport,
        start: token.start,
        end: token.end,
    })
}

/// A passport number of digits only.
pub(super) fn digit_passport(token: Token<'_>) -> Option<Pii> {
    passport(token)
}
