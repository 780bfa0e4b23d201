//! Ciphers that are undone by looks at a few places of a text read what they would by reading all of it, piece by piece.

use proptest::prelude::*;

use super::*;

/// What is undone piece by piece: pieces are words and what is between them, as `is_same` has it.
fn by_pieces(text: &[u8], is_inside: impl Fn(u8) -> bool, read: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    text.chunk_by(|a, b| is_inside(*a) == is_inside(*b)).flat_map(read).collect()
}

fn pig_latin(text: &[u8]) -> Vec<u8> {
    by_pieces(
        text,
        |byte| byte.is_ascii_alphabetic(),
        |word| match word.strip_suffix(b"ay") {
            Some([stem @ .., last]) if !stem.is_empty() => [&[*last], stem].concat(),
            _ => word.to_vec(),
        },
    )
}

fn reversed_words(text: &[u8]) -> Vec<u8> {
    let is_inside = |byte: u8| byte.is_ascii_alphabetic() || byte == b'\'';
    by_pieces(text, is_inside, |word| {
        if word.iter().copied().all(is_inside) { word.iter().rev().copied().collect() } else { word.to_vec() }
    })
}

fn spaced(text: &[u8]) -> Vec<u8> {
    let gap = |at: usize| text.get(at).is_some_and(|byte| b" -._".contains(byte));
    let (mut at, mut out) = (0, Vec::new());
    while let Some(byte) = text.get(at) {
        out.push(*byte);
        at += 1;
        let wide = (at..text.len()).take_while(|at| gap(*at)).count();
        let single = wide == 1 && (gap(at + 2) || at + 2 >= text.len() || at < 2 || gap(at - 2));
        out.extend((wide >= 2).then_some(b' '));
        at += if single || wide >= 2 { wide } else { 0 };
    }
    out
}

const SIGNS: [(&str, u8); 8] = [
    (".-", b'a'),
    ("-...", b'b'),
    (".", b'e'),
    ("-", b't'),
    ("...", b's'),
    ("-----", b'0'),
    (".----", b'1'),
    ("--.", b'g'),
];

fn morse(text: &[u8]) -> Vec<u8> {
    let is_apart = |byte: u8| byte.is_ascii_whitespace() || byte == b'/';
    let (mut blanks, mut out) = (0, Vec::new());
    for sign in text.chunk_by(|a, b| !is_apart(*a) && !is_apart(*b)) {
        blanks = if matches!(sign, b" " | b"\t") { blanks + 1 } else { 0 };
        let letter = SIGNS.iter().find(|(code, _)| code.as_bytes() == sign);
        match (letter, sign) {
            (Some((_, letter)), _) => out.push(*letter),
            (None, b" " | b"\t") => out.extend((blanks == 2).then_some(b' ')),
            (None, b"/" | b"|") => out.push(b' '),
            (None, [mark]) => out.push(*mark),
            (None, other) => out.extend(other.iter().chain(b" ")),
        }
    }
    out
}

fn leet(text: &[u8], vocabulary: &Vocabulary) -> Vec<u8> {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || b"@$!|+".contains(&byte);
    by_pieces(text, is_inside, |token| {
        if !token.first().copied().is_some_and(is_inside) {
            return token.to_vec();
        }
        let read = |ones: &mut dyn Iterator<Item = u8>| -> Vec<u8> {
            let letter = |byte: &u8| match byte {
                b'4' | b'@' => b'a',
                b'3' => b'e',
                b'1' | b'!' | b'|' => ones.next().unwrap_or(b'i'),
                b'0' => b'o',
                b'5' | b'$' => b's',
                b'7' | b'+' => b't',
                other => other.to_ascii_lowercase(),
            };
            token.iter().map(letter).collect()
        };
        let count = token.iter().filter(|byte| b"1!|".contains(byte)).count() as u32;
        let choices = 0..if count <= 4 { 1u32 << count } else { 0 };
        let words =
            choices.map(|choice| read(&mut (0..count).map(|bit| if choice >> bit & 1 == 0 { b'i' } else { b'l' })));
        let mut known = words.filter(|word| std::str::from_utf8(word).is_ok_and(|word| vocabulary.contains(word)));
        known.next().unwrap_or_else(|| read(&mut std::iter::empty()))
    })
}

/// Tokens and a blank behind each; what `read` says of one stands for it.
fn by_tokens(text: &[u8], read: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let tokens = text.split(u8::is_ascii_whitespace);
    tokens.flat_map(|token| [read(token).unwrap_or_else(|| token.to_vec()), b" ".to_vec()].concat()).collect()
}

/// What one token says by itself.
fn alone(cipher: Cipher, token: &[u8]) -> Option<Vec<u8>> {
    let read = deciphered(cipher, token, &Vocabulary::new());
    read.strip_suffix(b" ").filter(|read| *read != token).map(<[u8]>::to_vec)
}

fn deciphered(cipher: Cipher, text: &[u8], vocabulary: &Vocabulary) -> Vec<u8> {
    let mut out = Vec::new();
    cipher.decipher(text, vocabulary, &mut out);
    out
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-d1!|'y]{1,7}",
        "[.-]{1,6}",
        "[ /|\t\n.-]{1,3}",
        "[a-z]{1,3}ay",
        Just("ru135".to_owned()),
        Just("l1s7".to_owned()),
        "(1[01][0-9]|32|0x|,|;|:|\\\\){1,2}",
        Just("11111".to_owned()),
        Just("xn--gnr-tdd7b3i".to_owned()),
        Just("XN--gnr-tdd7b3i".to_owned()),
        Just("axn--gnr-tdd7b3i--".to_owned()),
        Just("<~BkM=%Eb-A%Chs~>".to_owned()),
        Just("\"X=iS4a%CW4Y-}KMb!=sG\"".to_owned()),
        Just("é".to_owned()),
        " {1,3}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_look_at_few_places_reads_all(pieces in prop::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        let text = text.as_bytes();
        let vocabulary: Vocabulary = ["rules", "list", "ill", "bad"].map(String::from).into();
        for (cipher, expected) in [
            (Cipher::PigLatin, pig_latin(text)),
            (Cipher::ReversedWords, reversed_words(text)),
            (Cipher::Spaced, spaced(text)),
            (Cipher::Leet, leet(text, &vocabulary)),
            (Cipher::Decimal, {
                let is_between = |byte: &u8| byte.is_ascii_whitespace() || b",:;\\".contains(byte);
                let tokens = text.split(is_between).filter(|token| !token.is_empty());
                tokens.flat_map(|token| deciphered(Cipher::Decimal, token, &vocabulary)).collect()
            }),
            (Cipher::Ascii85, by_tokens(text, |token| alone(Cipher::Ascii85, token))),
            (Cipher::Base85, by_tokens(text, |token| alone(Cipher::Base85, token))),
            (Cipher::Punycode, by_pieces(text, |byte| byte.is_ascii_alphanumeric() || byte == b'-', |label| {
                deciphered(Cipher::Punycode, label, &vocabulary)
            })),
        ] {
            let read = deciphered(cipher, text, &vocabulary);
            prop_assert_eq!(String::from_utf8_lossy(&read), String::from_utf8_lossy(&expected), "{:?}", cipher);
        }
    }

    #[test]
    fn signs_are_read_wherever_they_stand(
        signs in prop::collection::vec(("(\\.-|-\\.\\.\\.|\\.\\.\\.|-----|\\.----|--\\.|\\.|-|ab|x|-x|\\||------|-\\.\\.\\.\\.\\.)?", "[ /\t\n]{1,3}"), 0..30),
    ) {
        let text: String = signs.into_iter().map(|(sign, gap)| sign + &gap).collect();
        let (text, vocabulary) = (text.as_bytes(), Vocabulary::new());
        let (read, expected) = (deciphered(Cipher::Morse, text, &vocabulary), morse(text));
        prop_assert_eq!(String::from_utf8_lossy(&read), String::from_utf8_lossy(&expected));
    }
}
