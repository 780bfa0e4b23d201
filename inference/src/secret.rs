//! What tells a credential from a look-alike: entropy, placeholders, and shapes without any prefix.
//!
//! Pure functions over bytes; the formats with a prefix are rules in `rules/secrets.yaml`.

use std::ops::RangeInclusive;

/// Shannon entropy in bits per byte.
fn entropy(value: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    let mut seen = [0u64; 4];
    for byte in value {
        counts[usize::from(*byte)] += 1;
        seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    let len = value.len() as f64;
    // Most bytes of a key stand in it as often as the one before.
    let (mut sum, mut last, mut term) = (0.0, 0, 0.0);
    for (word, bits) in seen.iter().enumerate() {
        let mut left = *bits;
        while left != 0 {
            let count = counts[word * 64 + left.trailing_zeros() as usize];
            if count != last {
                let share = f64::from(count) / len;
                (last, term) = (count, -share * share.log2());
            }
            sum += term;
            left &= left - 1;
        }
    }
    sum
}

/// Words that mark a value as an example, a reference or a blank, lower case.
const PLACEHOLDERS: [&[u8]; 24] = [
    b"changeme",
    b"change_me",
    b"placeholder",
    b"example",
    b"xxxx",
    b"your_",
    b"your-",
    b"<",
    b"${",
    b"$(",
    b"{{",
    b"****",
    b"....",
    b"todo",
    b"dummy",
    b"redacted",
    b"process.env",
    b"os.environ",
    b"getenv",
    b"secrets.",
    b"insert",
    b"12345678",
    b"none",
    b"null",
];

/// Which of them begin with each byte, a bit each.
const BY_FIRST: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < PLACEHOLDERS.len() {
        table[PLACEHOLDERS[at][0] as usize] |= 1 << at;
        at += 1;
    }
    table
};

/// Whether a matched value is a real secret: random enough, no stand-in, with a digit or symbol where the format calls for one.
pub(crate) fn is_genuine(value: &[u8], entropy_min: f64, needs_digit: bool) -> bool {
    entropy(value) >= entropy_min
        && (!needs_digit || value.iter().any(|byte| byte.is_ascii_digit() || b"!@#%^&*$".contains(byte)))
        && !is_placeholder(value)
}

/// Whether a value only stands for a secret.
fn is_placeholder(value: &[u8]) -> bool {
    let begins = |at: usize, mut words: u32| {
        let here = value.get(at..).unwrap_or_default();
        while let Some(word) = PLACEHOLDERS.get(words.trailing_zeros() as usize) {
            if here.get(..word.len()).is_some_and(|here| here.eq_ignore_ascii_case(word)) {
                return true;
            }
            words &= words - 1;
        }
        false
    };
    let stands =
        value.iter().enumerate().any(|(at, byte)| begins(at, BY_FIRST[usize::from(byte.to_ascii_lowercase())]));
    stands && !value.windows(8).any(|here| here == b"EXAMPLEK")
}

/// Passwords that only stand for one where they follow a user's name in an address, lower case and sorted.
const LOGIN_STAND_INS: [&[u8]; 20] = [
    b"admin",
    b"changeit",
    b"db_password",
    b"dbpass",
    b"dbpassword",
    b"letmein",
    b"my_password",
    b"mypass",
    b"mypassword",
    b"mysecretpassword",
    b"p@ssword",
    b"pass",
    b"passwd",
    b"password",
    b"password123",
    b"pwd",
    b"secret",
    b"test",
    b"username",
    b"yourpassword",
];

/// Whether the password at `start`, behind a user's name and a colon, is a stand-in: a known one, or the name once more, as servers
/// have it before anybody sets one (`guest:guest`).
pub(crate) fn is_login_stand_in(text: &[u8], start: usize, password: &[u8]) -> bool {
    let lower = password.to_ascii_lowercase();
    let before = text.get(..start.saturating_sub(1)).unwrap_or_default();
    let name = before.rsplit(|byte| matches!(byte, b'/' | b'@')).next().unwrap_or_default();
    LOGIN_STAND_INS.contains(&&lower[..]) || name.eq_ignore_ascii_case(password)
}

/// A credential without a prefix: its type, severity follows from the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bare {
    pub(crate) secret_type: &'static str,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Words before a bare key, lower case.
const KEY_WORDS: [&[u8]; 12] = [
    b"secret",
    b"key",
    b"token",
    b"auth",
    b"credential",
    b"password",
    b"passwd",
    b"aws",
    b"client(",
    b"use ",
    b"api",
    b"committed",
];
/// How far before a run those words may stand, in bytes.
const KEY_REACH: usize = 40;
/// Words before a run that is a checksum or an address and no key, lower case.
const PUBLIC_WORDS: [&[u8]; 16] = [
    b"sha",
    b"md5",
    b"integrity",
    b"commit ",
    b"digest",
    b"etag",
    b"checksum",
    b"hash",
    b"nonce",
    b"dkim",
    b"ssh-",
    b"uuid",
    b"trace",
    b"base64,",
    b"certificate",
    b"public",
];

/// How long the shapes below are, in bytes: most runs, which are rules of dashes and paths, are none by that.
const BARE_LENS: [RangeInclusive<usize>; 4] = [34..=34, 36..=36, 40..=40, 58..=76];

/// Looks at an unbroken run for the shapes that have no literal rare enough to search for.
pub(crate) fn bare(text: &[u8], start: usize, end: usize) -> Option<Bare> {
    let run = text.get(start..end)?;
    let from =
        start + run.iter().rposition(|byte| *byte == b'=').filter(|at| at + 1 < run.len()).map_or(0, |at| at + 1);
    let value = text.get(from..end)?.trim_ascii_end();
    let value = value.strip_suffix(b".").unwrap_or(value);
    if !BARE_LENS.iter().any(|lens| lens.contains(&value.len())) {
        return None;
    }
    let is_hex = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let secret_type = if value.strip_prefix(b"SK").is_some_and(|hex| hex.len() == 32 && is_hex(hex)) {
        "twilio_key"
    } else if value.strip_prefix(b"key-").is_some_and(|hex| hex.len() == 32 && is_hex(hex)) {
        "mailgun_key"
    } else if is_discord(value) {
        "discord_bot_token"
    } else if is_aws_secret(text, from, value) {
        "aws_secret_access_key"
    } else {
        return None;
    };
    Some(Bare { secret_type, start: from, end: from + value.len() })
}

/// `M...` of 24 to 26, then 6, then 27 or more, separated by dots: an id in base64, a time stamp, a signature.
fn is_discord(value: &[u8]) -> bool {
    let mut pieces = value.split(|byte| *byte == b'.');
    let (Some(id), Some(stamp), Some(signature), None) = (pieces.next(), pieces.next(), pieces.next(), pieces.next())
    else {
        return false;
    };
    let token = |piece: &[u8]| piece.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    matches!(id.first(), Some(b'M' | b'N' | b'O'))
        && (23..=28).contains(&id.len())
        && stamp.len() == 6
        && (27..=40).contains(&signature.len())
        && token(id)
        && token(stamp)
        && token(signature)
        && entropy(signature) > 3.5
}

/// Forty characters of base64 with all three kinds of characters, after a word that speaks of keys.
fn is_aws_secret(text: &[u8], start: usize, value: &[u8]) -> bool {
    let mixed = value.iter().any(u8::is_ascii_uppercase)
        && value.iter().any(u8::is_ascii_lowercase)
        && value.iter().any(u8::is_ascii_digit);
    let letters = value.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    if value.len() != 40 || !letters || !mixed || entropy(value) < 4.2 {
        return false;
    }
    let before = text.get(start.saturating_sub(KEY_REACH)..start).unwrap_or_default();
    let names = |words: &[&[u8]]| {
        words.iter().any(|word| before.windows(word.len()).any(|here| here.eq_ignore_ascii_case(word)))
    };
    let alone = text.trim_ascii().len() == value.len();
    (alone || names(&KEY_WORDS)) && !names(&PUBLIC_WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_of_known_distributions() {
        assert!((entropy(b"aaaa") - 0.0).abs() < 1e-9);
        assert!((entropy(b"abcd") - 2.0).abs() < 1e-9);
        assert!((entropy(b"aabbbb\xff\xff") - 1.5).abs() < 1e-9);
    }

    #[test]
    fn bare_shapes_need_their_surroundings() {
        let secret = "wJa1rXUtnFEMI/K7MDENG/bPxRfiCYzT8uQp3kVb";
        let text = format!("aws_secret_access_key={secret}");
        let found = bare(text.as_bytes(), 0, text.len()).unwrap();
        assert_eq!((found.secret_type, found.start), ("aws_secret_access_key", 22));
        let text = format!("integrity check {secret}");
        assert_eq!(bare(text.as_bytes(), 16, text.len()), None);
    }

    #[test]
    fn placeholders_are_not_secrets() {
        assert!(is_placeholder(b"changeme_placeholder") && is_placeholder(b"${DB_PASSWORD}"));
        assert!(!is_placeholder(b"Summer807#"));
        for word in PLACEHOLDERS {
            for value in [[b"a1B-", word, b"-Z9"].concat(), word.to_ascii_uppercase()] {
                assert!(is_placeholder(&value), "{}", value.escape_ascii());
            }
            assert!(!is_placeholder(&word[..word.len() - 1]), "{}", word.escape_ascii());
        }
    }
}
