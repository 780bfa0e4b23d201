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
