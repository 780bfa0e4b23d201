//! Check digits. Pure arithmetic on decimal digits (values 0 to 9, not characters).

/// Luhn, ISO/IEC 7812-1 annex B.
pub(super) fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| {
            let value = u32::from(*digit) << (at % 2);
            if value > 9 { value - 9 } else { value }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// ISO 7064 MOD 97-10 over an IBAN without spaces: the first four characters count last.
pub(super) fn mod97(iban: &[u8]) -> bool {
    let (head, tail) = iban.split_at(4.min(iban.len()));
    let rest = tail.iter().chain(head).try_fold(0u32, |rest, byte| match byte {
        b'0'..=b'9' => Some((rest * 10 + u32::from(byte - b'0')) % 97),
        b'A'..=b'Z' => Some((rest * 100 + u32::from(byte - b'A') + 10) % 97),
        _ => None,
    });
    rest == Some(1)
}

/// NHS number: weights 10 to 2, modulus 11.
pub(super) fn nhs(digits: &[u8]) -> bool {
    let Some((check, body)) = digits.split_last() else { return false };
    let sum: u32 = body.iter().zip((2..=10).rev()).map(|(digit, weight)| u32::from(*digit) * weight).sum();
    let expected = (11 - sum % 11) % 11;
    digits.len() == 10 && expected == u32::from(*check)
}

/// Australian tax file number of nine digits: weighted sum divisible by 11.
pub(super) fn tfn(digits: &[u8]) -> bool {
    const WEIGHTS: [u32; 9] = [1, 4, 3, 7, 5, 8, 6, 9, 10];
    let sum: u32 = digits.iter().zip(WEIGHTS).map(|(digit, weight)| u32::from(*digit) * weight).sum();
    digits.len() == 9 && sum > 0 && sum.is_multiple_of(11)
}

/// Brazilian CPF: two check digits, weights 10 to 2 and 11 to 2; eleven equal digits are never issued.
pub(super) fn cpf(digits: &[u8]) -> bool {
    let (Some(first), 11) = (digits.first(), digits.len()) else { return false };
    let check = |count: usize| {
        let weights = (2..=count as u32 + 1).rev();
        let sum: u32 = digits.iter().take(count).zip(weights).map(|(digit, weight)| u32::from(*digit) * weight).sum();
        let rest = sum * 10 % 11 % 10;
        digits.get(count).is_some_and(|digit| u32::from(*digit) == rest)
    };
    digits.iter().any(|digit| digit != first) && check(9) && check(10)
}

/// EAN-13, the number of an article: each second digit counts three times.
pub(super) fn ean(digits: &[u8]) -> bool {
    let weighed = digits.iter().enumerate().map(|(at, digit)| u32::from(*digit) * if at % 2 == 0 { 1 } else { 3 });
    digits.len() == 13 && weighed.sum::<u32>().is_multiple_of(10)
}

/// Whether weighed digits make a multiple of `modulus`.
fn weighs(digits: &[u8], weights: &[u32], modulus: u32) -> bool {
    let sum: u32 = digits.iter().zip(weights).map(|(digit, weight)| u32::from(*digit) * weight).sum();
    digits.len() == weights.len()
        && sum.is_multiple_of(modulus)
        && digits.iter().any(|digit| Some(digit) != digits.first())
}

/// Polish PESEL: a date, then a check digit.
pub(super) fn pesel(digits: &[u8]) -> bool {
    let value = |from: usize| digits.get(from..from + 2).map_or(0, |two| two[0] * 10 + two[1]);
    matches!(value(2) % 20, 1..=12)
        && matches!(value(4), 1..=31)
        && weighs(digits, &[1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1], 10)
}

/// Korean resident registration number: a date, sex and century, and the check digit that numbers had until 2020.
pub(super) fn rrn(digits: &[u8]) -> bool {
    let [.., last] = digits else { return false };
    let value = |from: usize| digits.get(from..from + 2).map_or(0, |two| two[0] * 10 + two[1]);
    let sum: u32 =
        digits.iter().zip([2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5]).map(|(digit, weight)| u32::from(*digit) * weight).sum();
    digits.len() == 13
        && matches!(value(2), 1..=12)
        && matches!(value(4), 1..=31)
        && matches!(digits.get(6), Some(1..=8))
        && (11 - sum % 11) % 10 == u32::from(*last)
}

/// Dutch BSN: the eleven test.
pub(super) fn bsn(digits: &[u8]) -> bool {
    // The last digit is taken away: ten of eleven are the same.
    weighs(digits, &[9, 8, 7, 6, 5, 4, 3, 2, 10], 11)
}

/// Turkish identity number: two check digits.
pub(super) fn tckn(digits: &[u8]) -> bool {
    let [first, .., tenth, last] = digits else { return false };
    let of = |from: usize, count: usize| -> u32 {
        digits.iter().skip(from).step_by(2).take(count).map(|digit| u32::from(*digit)).sum()
    };
    let (odd, even) = (of(0, 5), of(1, 4));
    digits.len() == 11
        && *first != 0
        && (odd * 7 + 100 - even) % 10 == u32::from(*tenth)
        && (odd + even + u32::from(*tenth)) % 10 == u32::from(*last)
}

/// Chinese resident identity number: region, date and, at the end, a digit or X.
pub(super) fn resident_id(text: &[u8]) -> bool {
    const WEIGHTS: [u32; 17] = [7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2];
    let digit = |byte: &u8| u32::from(byte.wrapping_sub(b'0'));
    let value = |range: std::ops::Range<usize>| {
        text.get(range).unwrap_or_default().iter().fold(0, |v, byte| v * 10 + digit(byte))
    };
    let (Some(number), Some(last)) = (text.get(..17), text.get(17)) else { return false };
    let sum: u32 = number.iter().zip(WEIGHTS).map(|(byte, weight)| digit(byte) * weight).sum();
    text.len() == 18
        && number.iter().all(u8::is_ascii_digit)
        && (1900..=2030).contains(&value(6..10))
        && (1..=12).contains(&value(10..12))
        && (1..=31).contains(&value(12..14))
        && b"10X98765432".get(sum as usize % 11) == Some(&last.to_ascii_uppercase())
}

/// Italian codice fiscale: letters, a date and a place, and a check letter.
pub(super) fn codice_fiscale(text: &[u8]) -> bool {
    const ODD: [u32; 26] =
        [1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23];
    let shape = |(at, byte): (usize, &u8)| match at {
        6 | 7 | 9 | 10 | 12..=14 => byte.is_ascii_digit() || b"LMNPQRSTUV".contains(byte),
        8 => b"ABCDEHLMPRST".contains(byte),
        _ => byte.is_ascii_uppercase(),
    };
    let place = |byte: &u8| usize::from(if byte.is_ascii_digit() { byte - b'0' } else { byte.wrapping_sub(b'A') });
    let worth = |(at, byte): (usize, &u8)| {
        if at % 2 == 0 { ODD.get(place(byte)).copied().unwrap_or(0) } else { place(byte) as u32 }
    };
    let Some((last, body)) = text.split_last() else { return false };
    let sum: u32 = body.iter().enumerate().map(worth).sum();
    text.len() == 16 && text.iter().enumerate().all(shape) && u32::from(last.wrapping_sub(b'A')) == sum % 26
}

/// French NIR: 13 digits and a key, 97 minus the number modulo 97.
pub(super) fn nir(digits: &[u8]) -> bool {
    let value = |digits: &[u8]| digits.iter().fold(0u64, |value, digit| value * 10 + u64::from(*digit));
    let (number, key) = digits.split_at(13.min(digits.len()));
    let month = number.get(3..5).map_or(0, value);
    let sex = number.first().copied().unwrap_or(0);
    digits.len() == 15
        && matches!(sex, 1 | 2)
        && matches!(month, 1..=12 | 20..=42 | 50..=99)
        && 97 - value(number) % 97 == value(key)
}

/// Spanish DNI: the letter is the number modulo 23.
pub(super) fn dni(digits: &[u8], letter: u8) -> bool {
    const LETTERS: &[u8; 23] = b"TRWAGMYFPDXBNJZSQVHLCKE";
    let value = digits.iter().fold(0usize, |value, digit| value * 10 + usize::from(*digit));
    digits.len() == 8 && LETTERS.get(value % 23) == Some(&letter.to_ascii_uppercase())
}

/// Verhoeff's dihedral check, as Aadhaar numbers use it.
pub(super) fn verhoeff(digits: &[u8]) -> bool {
    // The dihedral group of order ten: 0 to 4 are rotations, 5 to 9 reflections.
    let multiply = |a: u8, b: u8| match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => (a + b - 5) % 5 + 5,
        (false, true) => (a - 5 + 5 - b) % 5 + 5,
        (false, false) => (a + 5 - b) % 5,
    };
    const PERMUTE: [u8; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    let permuted = |digit: u8, times: usize| {
        (0..times % 8).fold(digit, |digit, _| PERMUTE.get(usize::from(digit)).copied().unwrap_or(0))
    };
    digits.iter().rev().enumerate().fold(0, |sum, (at, digit)| multiply(sum, permuted(*digit, at))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits(text: &str) -> Vec<u8> {
        text.bytes().filter(u8::is_ascii_digit).map(|byte| byte - b'0').collect()
    }

    #[test]
    fn published_examples_pass_and_one_digit_off_fails() {
        type Check = fn(&[u8]) -> bool;
        let cases: [(Check, &str); 6] = [
            (luhn, "4111 1111 1111 1111"),
            (nhs, "943 476 5919"),
            (tfn, "123 456 782"),
            (cpf, "529.982.247-25"),
            (nir, "2 55 08 14 168 025 38"),
            (verhoeff, "2363"),
        ];
        for (check, text) in cases {
            let mut number = digits(text);
            assert!(check(&number), "{text}");
            let last = number.len() - 1;
            number[last] = (number[last] + 1) % 10;
            assert!(!check(&number), "{text}");
        }
        assert!(mod97(b"GB82WEST12345698765432") && !mod97(b"GB82WEST12345698765433"));
        assert!(dni(&digits("12345678"), b'Z') && !dni(&digits("12345678"), b'A'));
    }

    #[test]
    fn verhoeff_finds_every_swap_of_neighbours() {
        let number = digits("2363");
        for at in 0..number.len() - 1 {
            let mut swapped = number.clone();
            swapped.swap(at, at + 1);
            assert_eq!(verhoeff(&swapped), swapped == number);
        }
    }
}
