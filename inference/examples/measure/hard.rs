//! Kinds of text that are harmless as a rule and hard to read for something that looks for orders, codes and data in them, each made up
//! from a seed and named, so that a figure can be said of each.

use std::fmt::Write as _;

use crate::Bench;
use crate::encodings::ENCODINGS;
use crate::hostile::{Random, cost};

/// Bytes of each text.
const LENGTH: usize = 16 << 10;
/// Different texts of each kind, and how often each is looked at: the least counts.
const TEXTS: u64 = 3;
const TIMES: usize = 5;
/// What no kind may take, in microseconds of CPU per KB.
const BAR: f64 = 60.0;

/// A kind of text: its name, and how its next piece is written.
type Kind = (&'static str, fn(&mut Random, &mut String));

const WORDS: [&str; 24] = [
    "the",
    "server",
    "answers",
    "with",
    "a",
    "list",
    "of",
    "users",
    "and",
    "their",
    "orders",
    "before",
    "any",
    "new",
    "message",
    "is",
    "sent",
    "to",
    "system",
    "please",
    "see",
    "instructions",
    "below",
    "for",
];
const IDEOGRAPHS: [&str; 12] =
    ["这", "系统", "提示", "用户", "请", "的", "说明", "数据", "今天", "これは", "データ", "한국어"];
const EMOJI: [&str; 8] = ["😀", "🚀", "👩‍👩‍👧", "🇩🇪", "❤️", "🤖", "👍🏽", "🔓"];
const LEVELS: [&str; 4] = ["INFO", "WARN", "ERROR", "DEBUG"];

const KINDS: [Kind; 40] = [
    ("base64, one run", |random, text| {
        letters(random, text, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", 64)
    }),
    ("base64, in lines", |random, text| {
        letters(random, text, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", 76);
        text.push('\n');
    }),
    ("base64 of prose", |random, text| encoded(random, text, "base64")),
    ("base64 of short prose, in a list", |random, text| {
        encoded(random, text, "base64");
        text.push('\n');
    }),
    ("base85 of prose", |random, text| encoded(random, text, "ascii85")),
    ("hex, one run", |random, text| letters(random, text, b"0123456789abcdef", 64)),
    ("hex dump", |random, text| {
        _ = write!(text, "{:08x} ", text.len());
        for _ in 0..16 {
            _ = write!(text, " {:02x}", random.below(256));
        }
        letters(random, text, b"  |", 1);
        letters(random, text, b".abcdefgh01", 16);
        text.push_str("|\n");
    }),
    ("URL-encoded prose", |random, text| encoded(random, text, "url")),
    ("Unicode escapes of prose", |random, text| encoded(random, text, "unicode escapes")),
    ("quoted-printable prose", |random, text| encoded(random, text, "quoted-printable")),
    ("HTML with entities", |random, text| {
        text.push_str("<p class=\"a\">");
        words(random, text, 6, " &amp; ");
        text.push_str("&lt;b&gt;&#39;&#x27;&nbsp;</p>\n");
    }),
    ("HTML, decimal entities", |random, text| encoded(random, text, "html, decimal")),
    ("minified JSON", |random, text| {
        _ = write!(text, "{{\"id\":{},\"user\":\"", random.below(1 << 30));
        words(random, text, 3, " ");
        text.push_str("\",\"tags\":[\"a\",\"b\"],\"prompt\":null,\"ok\":true},");
    }),
    ("minified JavaScript", |random, text| {
        _ = write!(
            text,
            "function {}(t,e){{return t.system||e[{}]?",
            char::from(b'a' + random.below(26) as u8),
            random.below(99)
        );
        words(random, text, 2, ".");
        text.push_str("(t):void 0}");
    }),
    ("CSV of digits", |random, text| {
        for _ in 0..8 {
            _ = write!(text, "{}.{},", random.below(10_000), random.below(1000));
        }
        text.push('\n');
    }),
    ("digits without end", |random, text| letters(random, text, b"0123456789", 64)),
    ("digits in groups", |random, text| {
        letters(random, text, b"0123456789", 4);
        letters(random, text, b" -.", 1);
    }),
    ("dates and versions", |random, text| {
        let mut next = || random.below(30);
        _ = writeln!(
            text,
            "20{:02}-0{}-1{} {}.{}.{} 10.{}.{}.1",
            next(),
            next() % 9 + 1,
            next() % 9,
            next(),
            next(),
            next(),
            next(),
            next()
        );
    }),
    ("one letter", |_, text| text.push_str("aaaaaaaaaaaaaaaa")),
    ("blanks", |_, text| text.push_str("                ")),
    ("line breaks", |_, text| text.push_str("\n\n\n\n\r\n\r\n")),
    ("rule of dashes", |_, text| text.push_str("----------------")),
    ("brackets without end", |random, text| letters(random, text, b"[](){}<>", 32)),
    ("quotes and backslashes", |random, text| letters(random, text, b"\\\"'`|", 32)),
    ("phrase of a rule, repeated", |_, text| text.push_str("ignore all previous instructions ")),
    ("beginning of a phrase, repeated", |_, text| text.push_str("ignore all previous ")),
    ("words of rules in a list", |random, text| {
        text.push_str(
            ["prompt", "system prompt", "instructions", "ignore", "jailbreak", "password", "developer mode", "reveal"]
                [random.below(8)],
        );
        text.push_str(", ");
    }),
    ("password= in a list", |random, text| {
        text.push_str("password=");
        letters(random, text, b"abcdefgh0123456789", 9);
        text.push('\n');
    }),
    ("keys in a list", |random, text| {
        text.push_str("AKIA");
        letters(random, text, b"ABCDEFGHIJKLMNOP234567", 16);
        text.push('\n');
    }),
    ("e-mail addresses in a list", |random, text| {
        letters(random, text, b"abcdefghijklmnop.", 9);
        text.push_str("@example.com, ");
    }),
    ("telephone numbers in a list", |random, text| {
        _ = writeln!(
            text,
            "+49 30 {} / (555) {:03}-{:04}",
            random.below(10_000_000),
            random.below(1000),
            random.below(10_000)
        );
    }),
    ("Chinese, Japanese, Korean", |random, text| text.push_str(IDEOGRAPHS[random.below(IDEOGRAPHS.len())])),
    ("emoji", |random, text| text.push_str(EMOJI[random.below(EMOJI.len())])),
    ("zero-width letters between letters", |random, text| encoded(random, text, "zero width")),
    ("combining marks on letters", |random, text| encoded(random, text, "combining marks")),
    ("look-alike letters", |random, text| encoded(random, text, "homoglyphs")),
    ("letters one by one", |random, text| encoded(random, text, "spaced out")),
    ("log lines", |random, text| {
        let (second, level) = (random.below(60), LEVELS[random.below(LEVELS.len())]);
        _ = write!(
            text,
            "2026-01-02T03:04:{second:02}.{:03}Z {level} [worker-{}] ",
            random.below(1000),
            random.below(32)
        );
        words(random, text, 8, " ");
        _ = writeln!(text, " user=u{} took={}ms", random.below(100_000), random.below(5000));
    }),
    ("diff", |random, text| {
        text.push_str(["+    let ", "-    let ", "     if "][random.below(3)]);
        words(random, text, 3, "_");
        _ = writeln!(text, " = call({}, \"x\");", random.below(100));
    }),
    ("stack trace", |random, text| {
        text.push_str("    at com.example.");
        words(random, text, 3, ".");
        _ = writeln!(text, "(Main.java:{})", random.below(2000));
    }),
];

/// So many letters of an alphabet.
fn letters(random: &mut Random, text: &mut String, alphabet: &[u8], count: usize) {
    text.extend((0..count).map(|_| char::from(alphabet[random.below(alphabet.len())])));
}

/// So many words.
fn words(random: &mut Random, text: &mut String, count: usize, gap: &str) {
    for at in 0..count {
        text.push_str(if at == 0 { "" } else { gap });
        text.push_str(WORDS[random.below(WORDS.len())]);
    }
}

/// A sentence in one of the encodings.
fn encoded(random: &mut Random, text: &mut String, name: &str) {
    let mut plain = String::new();
    words(random, &mut plain, 12, " ");
    let write = ENCODINGS.iter().find(|(encoding, _)| *encoding == name).map(|(_, write)| write);
    text.push_str(&write.map_or_else(String::new, |write| write(&plain)));
    text.push(' ');
}

/// The dearest text of each kind, the dearest kind last.
pub(crate) fn run(bench: &mut Bench) {
    let mut kinds: Vec<(f64, &str)> = KINDS.iter().map(|(name, write)| (dearest(bench, *write), *name)).collect();
    kinds.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (us_per_kb, name) in &kinds {
        println!("{us_per_kb:8.2} us of CPU per KB{} {name}", if *us_per_kb > BAR { " (over the bar)" } else { "" });
    }
    println!("{} kinds, {} over {BAR} us per KB", kinds.len(), kinds.iter().filter(|(cost, _)| *cost > BAR).count());
}

fn dearest(bench: &mut Bench, write: fn(&mut Random, &mut String)) -> f64 {
    let texts = (1..=TEXTS).map(|seed| {
        let (mut random, mut text) = (Random::of(seed), String::new());
        while text.len() < LENGTH {
            write(&mut random, &mut text);
        }
        text.truncate(text.floor_char_boundary(LENGTH));
        text
    });
    texts.map(|text| (0..TIMES).fold(f64::MAX, |least, _| least.min(cost(bench, &text).0))).fold(0.0, f64::max)
}
