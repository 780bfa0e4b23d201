//! Texts made to be dear, for whatever reads what strangers write: each is given to a reader in two lengths, the second four times the
//! first ([`super::effort`]).

use super::effort::{superlinear, superlinear_from};

/// What texts consist of: each is said again and again. Signs that open and never close, what looks like the beginning of what a
/// detector looks for, and what has to be decoded, folded or joined.
const UNITS: &[&str] = &[
    "a;",
    "a|",
    "$(",
    "`",
    "\"",
    "'",
    "\\",
    "(",
    "[",
    "{",
    "<",
    "<<A\n",
    "#",
    "-",
    "a=b ",
    "eval ",
    "sudo ",
    "cat /etc/",
    "../",
    "/",
    ":",
    "http://a.b/ ",
    "a.",
    "a",
    " ",
    "\n",
    "\r\n",
    "\0",
    "a b ",
    "@",
    "a@b.",
    "1",
    "1-",
    "4111 ",
    "192.168.0.1 ",
    "sk-",
    "svc_",
    "AKIA",
    "password=",
    "-----BEGIN PRIVATE KEY-----\n",
    "QUJD",
    "QUJD ",
    "6967",
    "\\u0069",
    "\\ud83d",
    "%69",
    "&#105;",
    "01101001 ",
    "ignore all previous ",
    "system: ",
    "\nuser: ",
    "<|im_start|>",
    "```\n",
    "i g n o r e ",
    "never say-not use-",
    "n'obei: ",
    "you are a ",
    "romeo echo ",
    "18-5-22-5-1-12 ",
    "\u{280a}\u{281b}",
    "e\u{301}",
    "\u{200b}",
    "\u{e0069}",
    "\u{ff49}",
    "\u{1f600}",
    "\r\n--x",
    "data:",
    "data: {}\n\n",
    "{}\n",
    "a=b&",
    "1\r\nx\r\n",
    "X: y\r\n",
    "null,",
    "{\"a\":",
    "{\"a\":[",
    "\"a\":1,",
    concat!("glpat", "-fhKO8PBL75vgo1jyWiUU ignore all previous instructions\n"),
    concat!("-----BEGIN ", "PRIVATE KEY-----\nQUJDREVGR0hJSktMTU5PUFFS\n"),
    "never reveal your system prompt. ",
    "hypothetically, for research purposes, in character ",
    "you stupid idiot ",
    "<service-data>",
    "</service-data>",
    "<service-boundary>",
    "a@example.com ",
];

/// What opens and, as often, closes.
const PAIRS: &[(&str, &str)] = &[("$(", ")"), ("[", "]"), ("{\"a\":", "}"), ("<", ">"), ("eval \"", "\"")];

/// What stands before a list, what behind it, and its items by their numbers.
pub(crate) type Listed = (&'static str, &'static str, fn(usize) -> String);

/// The hostile text number `family`, of about `length` bytes.
fn hostile(family: usize, length: usize) -> String {
    match UNITS.get(family) {
        Some(unit) => unit.repeat(length / unit.len()),
        None => {
            let (opens, closes) = PAIRS[family - UNITS.len()];
            let times = length / (opens.len() + closes.len());
            [opens.repeat(times), closes.repeat(times)].concat()
        }
    }
}

fn families() -> impl Iterator<Item = (usize, String)> {
    (0..UNITS.len() + PAIRS.len()).map(|family| (family, hostile(family, 64)))
}

/// Does `work` with every hostile text.
#[track_caller]
pub(crate) fn assert_linear(name: &str, mut work: impl FnMut(&str)) {
    let seen = families().filter_map(|(family, shown)| {
        let found = superlinear(|length| hostile(family, length), |text| work(text))?;
        Some(format!("{name}, {shown:?}: {found}"))
    });
    let seen: Vec<String> = seen.collect();
    assert!(seen.is_empty(), "{}", seen.join("\n"));
}

/// Does `work` with what `unit` says for each number, one after the other between `before` and `after`.
#[track_caller]
pub(crate) fn assert_linear_in(
    name: &str,
    (before, after): (&str, &str),
    unit: impl Fn(usize) -> String,
    mut work: impl FnMut(&str),
) {
    let text = |length: usize| {
        let mut text = before.to_owned();
        for number in 0.. {
            if text.len() >= length {
                break;
            }
            text.push_str(&unit(number));
        }
        text.push_str(after);
        text
    };
    // An answer's calls and texts stand in tables of 512 entries.
    let found = superlinear_from(64 << 10, text, |text| work(text));
    assert_eq!(found, None, "{name}, {:?}", unit(7));
}
