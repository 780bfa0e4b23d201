//! Writers of the encodings that people hide text in, for tests and measurements. The gateway reads them and writes none.

use base64::Engine as _;

/// A way to write a text, and its name.
pub(crate) type Encoding = (&'static str, fn(&str) -> String);

/// All of them. Those at the end are encodings inside encodings.
pub(crate) const ENCODINGS: [Encoding; 42] = [
    ("base64", base64),
    ("base64 in lines", base64_lines),
    ("base64url", base64_url),
    ("base32", base32),
    ("base58", base58),
    ("ascii85", ascii85),
    ("base85, RFC 1924", base85),
    ("hex", hex),
    ("hex, spaced", hex_spaced),
    ("hex, escaped", hex_escaped),
    ("url", url),
    ("html, decimal", html_decimal),
    ("html, hex", html_hex),
    ("quoted-printable", quoted_printable),
    ("punycode", punycode),
    ("unicode escapes", unicode_escapes),
    ("rot13", |text| shifted(text, 13)),
    ("caesar 3", |text| shifted(text, 3)),
    ("caesar 7", |text| shifted(text, 7)),
    ("caesar 19", |text| shifted(text, 19)),
    ("rot47", rot47),
    ("atbash", atbash),
    ("leet", leet),
    ("reversed", |text| text.chars().rev().collect()),
    ("words reversed", words_reversed),
    ("order of words reversed", word_order_reversed),
    ("pig latin", pig_latin),
    ("morse", morse),
    ("binary", binary),
    ("octal", octal),
    ("decimal", decimal),
    ("zero width", |text| text.chars().flat_map(|c| [c, '\u{200B}']).collect()),
    ("tags", tags),
    ("homoglyphs", homoglyphs),
    ("full width", full_width),
    ("combining marks", combining),
    ("spaced out", |text| joined(text.chars().map(String::from), " ")),
    ("dashed", |text| joined(text.chars().map(|c| if c == ' ' { "_".to_owned() } else { c.to_string() }), "-")),
    ("split strings", split_strings),
    ("base64 twice", |text| base64(&base64(text))),
    ("rot13 in base64", |text| base64(&shifted(text, 13))),
    ("hex of reversed", |text| hex(&text.chars().rev().collect::<String>())),
];

fn joined(pieces: impl Iterator<Item = String>, gap: &str) -> String {
    pieces.collect::<Vec<_>>().join(gap)
}

fn per_byte(text: &str, gap: &str, write: impl Fn(u8) -> String) -> String {
    joined(text.bytes().map(write), gap)
}

fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn base64_lines(text: &str) -> String {
    joined(base64(text).as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()), "\n")
}

fn base64_url(text: &str) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

fn base32(text: &str) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut out = String::new();
    for block in text.as_bytes().chunks(5) {
        let mut bits = [0; 8];
        bits[3..3 + block.len()].copy_from_slice(block);
        let value = u64::from_be_bytes(bits);
        let count = (block.len() * 8).div_ceil(5);
        for at in 0..8 {
            let index = (value >> (35 - 5 * at)) & 31;
            out.push(if at < count { char::from(LETTERS[index as usize]) } else { '=' });
        }
    }
    out
}

fn base58(text: &str) -> String {
    const LETTERS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let mut digits: Vec<u8> = Vec::new();
    for byte in text.bytes() {
        let mut carry = u32::from(byte);
        for digit in &mut digits {
            carry += u32::from(*digit) << 8;
            *digit = (carry % 58) as u8;
            carry /= 58;
        }
        while carry > 0 {
            digits.push((carry % 58) as u8);
            carry /= 58;
        }
    }
    digits.iter().rev().map(|digit| char::from(LETTERS[usize::from(*digit)])).collect()
}

fn ascii85(text: &str) -> String {
    let mut out = String::from("<~");
    for block in text.as_bytes().chunks(4) {
        let mut bytes = [0; 4];
        bytes[..block.len()].copy_from_slice(block);
        let mut value = u32::from_be_bytes(bytes);
        let mut digits = [0; 5];
        for digit in digits.iter_mut().rev() {
            *digit = (value % 85) as u8 + b'!';
            value /= 85;
        }
        out.extend(digits[..=block.len()].iter().map(|digit| char::from(*digit)));
    }
    out + "~>"
}

fn base85(text: &str) -> String {
    const DIGITS: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    let block = |block: &[u8]| {
        let value = (0..4).fold(0_usize, |value, at| value << 8 | usize::from(*block.get(at).unwrap_or(&0)));
        let digits = [52_200_625, 614_125, 7_225, 85, 1].map(|power| char::from(DIGITS[value / power % 85]));
        digits.iter().take(block.len() + 1).collect::<String>()
    };
    text.as_bytes().chunks(4).map(block).collect()
}

fn hex(text: &str) -> String {
    per_byte(text, "", |byte| format!("{byte:02x}"))
}

fn hex_spaced(text: &str) -> String {
    per_byte(text, " ", |byte| format!("{byte:02X}"))
}

fn hex_escaped(text: &str) -> String {
    per_byte(text, "", |byte| format!("\\x{byte:02x}"))
}

fn url(text: &str) -> String {
    per_byte(text, "", |byte| format!("%{byte:02X}"))
}

fn html_decimal(text: &str) -> String {
    per_byte(text, "", |byte| format!("&#{byte};"))
}

fn html_hex(text: &str) -> String {
    per_byte(text, "", |byte| format!("&#x{byte:x};"))
}

fn quoted_printable(text: &str) -> String {
    per_byte(text, "", |byte| format!("={byte:02X}"))
}

/// Each longer word with its vowels as Cyrillic look-alikes, then as an international label.
fn punycode(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let disguised = homoglyphs(word);
        if word.bytes().all(|byte| byte.is_ascii_alphabetic()) && disguised != word {
            format!("xn--{}", punycode_label(&disguised.to_lowercase()))
        } else {
            word.to_owned()
        }
    });
    joined(words, " ")
}

/// RFC 3492, section 6.3.
fn punycode_label(label: &str) -> String {
    let plain: String = label.chars().filter(char::is_ascii).collect();
    let digit = |value: u32| char::from(if value < 26 { b'a' + value as u8 } else { b'0' + (value - 26) as u8 });
    let mut out = if plain.is_empty() { String::new() } else { format!("{plain}-") };
    let (mut code, mut delta, mut bias) = (128u32, 0u32, 72u32);
    let basic = plain.len() as u32;
    let mut handled = basic;
    while handled < label.chars().count() as u32 {
        let next = label.chars().map(u32::from).filter(|c| *c >= code).min().unwrap_or(code);
        delta += (next - code) * (handled + 1);
        code = next;
        for c in label.chars().map(u32::from) {
            delta += u32::from(c < code);
            if c != code {
                continue;
            }
            let (mut rest, mut base) = (delta, 36u32);
            loop {
                let threshold = base.saturating_sub(bias).clamp(1, 26);
                if rest < threshold {
                    break;
                }
                out.push(digit(threshold + (rest - threshold) % (36 - threshold)));
                rest = (rest - threshold) / (36 - threshold);
                base += 36;
            }
            out.push(digit(rest));
            let mut share = if handled == basic { delta / 700 } else { delta / 2 };
            share += share / (handled + 1);
            bias = 0;
            while share > 455 {
                share /= 35;
                bias += 36;
            }
            bias += 36 * share / (share + 38);
            delta = 0;
            handled += 1;
        }
        delta += 1;
        code += 1;
    }
    out
}

fn unicode_escapes(text: &str) -> String {
    per_byte(text, "", |byte| format!("\\u{byte:04x}"))
}

fn each_letter(text: &str, write: impl Fn(u8) -> u8) -> String {
    let letter = |c: char| match c {
        'a'..='z' => char::from(write(c as u8 - b'a') + b'a'),
        'A'..='Z' => char::from(write(c as u8 - b'A') + b'A'),
        other => other,
    };
    text.chars().map(letter).collect()
}

fn shifted(text: &str, by: u8) -> String {
    each_letter(text, |letter| (letter + by) % 26)
}

fn atbash(text: &str) -> String {
    each_letter(text, |letter| 25 - letter)
}

fn rot47(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() { char::from((c as u8 - 33 + 47) % 94 + 33) } else { c }).collect()
}

fn leet(text: &str) -> String {
    let letter = |c: char| match c.to_ascii_lowercase() {
        'a' => '4',
        'e' => '3',
        'i' | 'l' => '1',
        'o' => '0',
        's' => '5',
        't' => '7',
        _ => c,
    };
    text.chars().map(letter).collect()
}

fn words_reversed(text: &str) -> String {
    joined(text.split(' ').map(|word| word.chars().rev().collect()), " ")
}

fn word_order_reversed(text: &str) -> String {
    joined(text.split(' ').rev().map(str::to_owned), " ")
}

fn pig_latin(text: &str) -> String {
    let word = |word: &str| match word.chars().next() {
        Some(first) if word.bytes().all(|byte| byte.is_ascii_alphabetic()) && word.len() > 1 => {
            format!("{}{first}ay", &word[1..])
        }
        _ => word.to_owned(),
    };
    joined(text.split(' ').map(word), " ")
}

fn morse(text: &str) -> String {
    const CODES: [&str; 36] = [
        ".-", "-...", "-.-.", "-..", ".", "..-.", "--.", "....", "..", ".---", "-.-", ".-..", "--", "-.", "---",
        ".--.", "--.-", ".-.", "...", "-", "..-", "...-", ".--", "-..-", "-.--", "--..", "-----", ".----", "..---",
        "...--", "....-", ".....", "-....", "--...", "---..", "----.",
    ];
    let letter = |c: char| match c.to_ascii_lowercase() {
        c @ 'a'..='z' => CODES[usize::from(c as u8 - b'a')].to_owned(),
        c @ '0'..='9' => CODES[usize::from(c as u8 - b'0') + 26].to_owned(),
        ' ' => "/".to_owned(),
        other => other.to_string(),
    };
    joined(text.chars().map(letter), " ")
}

fn binary(text: &str) -> String {
    per_byte(text, " ", |byte| format!("{byte:08b}"))
}

fn octal(text: &str) -> String {
    per_byte(text, " ", |byte| format!("{byte:03o}"))
}

fn decimal(text: &str) -> String {
    per_byte(text, " ", |byte| byte.to_string())
}

fn tags(text: &str) -> String {
    let tag = |c: char| if c.is_ascii() { char::from_u32(0xE0000 + u32::from(c)).unwrap_or(c) } else { c };
    format!("Hello!{}", text.chars().map(tag).collect::<String>())
}

fn homoglyphs(text: &str) -> String {
    let letter = |c: char| match c {
        'a' => 'а',
        'c' => 'с',
        'e' => 'е',
        'i' => 'і',
        'o' => 'о',
        'p' => 'р',
        'x' => 'х',
        other => other,
    };
    text.chars().map(letter).collect()
}

fn full_width(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_graphic() { char::from_u32(0xFEE0 + u32::from(c)).unwrap_or(c) } else { c })
        .collect()
}

fn combining(text: &str) -> String {
    text.chars().flat_map(|c| [c, '\u{0301}', '\u{0330}', '\u{035C}']).collect()
}

fn split_strings(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    joined(chars.chunks(4).map(|piece| format!("\"{}\"", piece.iter().collect::<String>())), " + ")
}
