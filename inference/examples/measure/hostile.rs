//! Texts made to be dear: what a stranger would write to make the analysis slow, made up by recipes from a seed.
//!
//! The words of the rules, whole and cut examples of what they match, harmless and hostile texts of a file, signs that begin
//! something, and all of it in every encoding. Time is that of this thread on a CPU, each text seen once and fresh; the dearest are
//! looked at again, so that what is made once for a rule, or what the machine did just then, can be told from what a text costs each time.

use std::error::Error;

use serde_json::Value;
use weir_inference::{Call, Part, PartKind, RuleBook};

use crate::encodings::ENCODINGS;
use crate::{Bench, cpu_ns, field, option};

/// Texts that are made where no number is given.
const COUNT: u64 = 100_000;
/// Lengths of texts, in bytes: shorter ones are dear by the KB because every text costs something.
const LENGTHS: [usize; 4] = [4 << 10, 8 << 10, 16 << 10, 32 << 10];
/// The dearest texts that are looked at once more at the end.
const AGAIN: usize = 200;
/// The dearest texts that are shown.
const SHOWN: usize = 12;
/// What stands between pieces.
const GAPS: [&str; 8] = [" ", "\n", "", ". ", ", ", "-", "\t", ": "];
/// Signs that begin or separate something.
const SIGNS: [&str; 40] = [
    "\"",
    "'",
    "`",
    "|",
    "<",
    "<!--",
    "[",
    "{",
    "(",
    "\\",
    "/",
    "../",
    ":",
    "http://a.b/",
    "@",
    "a@b.",
    "4111 1111 ",
    "+49 ",
    "192.168.0.1 ",
    "sk-",
    "AKIA",
    "password=",
    "-----BEGIN",
    "QUJD",
    "6967 ",
    "\\u0069",
    "%69%",
    "&#105;",
    "01101001 ",
    ".-.. ",
    "=65=",
    "xn--",
    "145 040 ",
    "i-g-n-",
    "e\u{301}",
    "\u{200b}",
    "\u{e0069}",
    "\u{ff49}",
    "user: ",
    "decode ",
];

/// The ways to make a text.
const RECIPES: [&str; 9] =
    ["one", "mixed", "literals", "cut", "encoded", "enciphered mix", "signs", "letters", "woven"];

pub(crate) struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// What texts are made of.
struct Larder<'a> {
    literals: Vec<&'a str>,
    by_rule: Vec<Vec<&'a str>>,
    examples: Vec<&'a str>,
    texts: Vec<&'a str>,
}

impl<'a> Larder<'a> {
    fn piece(&self, random: &mut Random) -> &'a str {
        match random.below(8) {
            0..3 => random.pick(&self.literals),
            3..5 => random.pick(&self.examples),
            5 => random.pick(&self.texts),
            6 => random.pick(&SIGNS),
            _ => cut(random.pick(&self.examples), random),
        }
    }

    /// Pieces until there are enough bytes.
    fn mixed(&self, random: &mut Random, length: usize, mut piece: impl FnMut(&mut Random) -> String) -> String {
        let gap = random.pick(&GAPS);
        let mut text = String::new();
        while text.len() < length {
            text.push_str(&piece(random));
            text.push_str(if gap.is_empty() && random.below(4) == 0 { " " } else { gap });
        }
        text
    }

    fn make(&self, recipe: &str, random: &mut Random, length: usize) -> String {
        let mut text = match recipe {
            "one" => {
                let piece = self.piece(random).to_owned();
                self.mixed(random, length, |_| piece.clone())
            }
            "mixed" => self.mixed(random, length, |random| self.piece(random).to_owned()),
            "literals" => {
                let rules: Vec<&Vec<&str>> =
                    (0..=random.below(4)).map(|_| &self.by_rule[random.below(self.by_rule.len())]).collect();
                self.mixed(random, length, |random| {
                    let rule = rules[random.below(rules.len())];
                    random.pick(rule).to_owned()
                })
            }
            "cut" => self.mixed(random, length, |random| cut(random.pick(&self.examples), random).to_owned()),
            "encoded" => {
                let (_, write) = ENCODINGS[random.below(ENCODINGS.len())];
                let piece = write(self.piece(random));
                self.mixed(random, length, |_| piece.clone())
            }
            "enciphered mix" => {
                let few: Vec<usize> = (0..=random.below(6)).map(|_| random.below(ENCODINGS.len())).collect();
                self.mixed(random, length, |random| ENCODINGS[few[random.below(few.len())]].1(self.piece(random)))
            }
            "signs" => {
                let few: Vec<&str> = (0..=random.below(5)).map(|_| random.pick(&SIGNS)).collect();
                self.mixed(random, length, |random| random.pick(&few).to_owned())
            }
            "letters" => {
                let alphabet: Vec<char> = random
                    .pick(&[
                        "0123456789 -",
                        "abcdefghij ",
                        "aeiou bcd.,\n",
                        "01 ",
                        ".- /",
                        "ABab12+/=",
                        "4111 -",
                        "@.a1 ",
                        "ignore all ",
                    ])
                    .chars()
                    .collect();
                (0..length).map(|_| alphabet[random.below(alphabet.len())]).collect()
            }
            _ => {
                // Words of an order far apart, harmless ones between.
                let (order, filler) = (self.piece(random).to_owned(), self.piece(random).to_owned());
                let words: Vec<String> = order.split_whitespace().map(|word| format!("{word} {filler} ")).collect();
                self.mixed(random, length, |random| {
                    if words.is_empty() { order.clone() } else { words[random.below(words.len())].clone() }
                })
            }
        };
        text.truncate(text.floor_char_boundary(length));
        text
    }
}

/// An example without its end.
fn cut<'a>(text: &'a str, random: &mut Random) -> &'a str {
    &text[..text.floor_char_boundary(1 + random.below(text.len()))]
}

pub(crate) fn run(bench: &mut Bench, rows: &[Value], args: &[String]) -> Result<(), Box<dyn Error>> {
    let book = RuleBook::builtin()?;
    let larder = Larder {
        literals: book.rules().flat_map(|rule| rule.literals()).map(String::as_str).collect(),
        by_rule: book.rules().map(|rule| rule.literals().iter().map(String::as_str).collect()).collect(),
        examples: book
            .rules()
            .flat_map(|rule| rule.text.hits.iter().chain(&rule.text.misses))
            .map(String::as_str)
            .collect(),
        texts: rows.iter().map(|row| field(row, "text")).filter(|text| (16..2048).contains(&text.len())).collect(),
    };
    let number = |name: &str, default: u64| option(args, name).map_or(Ok(default), str::parse);
    let (count, seed) = (number("--count", COUNT)?, number("--seed", 1)?);
    let only = option(args, "--recipe");
    let kinds = [PartKind::User, PartKind::Tool];
    // The first use of every rule makes its automaton; strangers cannot have that twice.
    for text in larder.examples.iter().chain(&larder.texts) {
        bench.look(text);
    }
    let mut seen: Vec<(f64, f64, &str, usize, u64, u32)> = Vec::new();
    for index in 0..count {
        let mut random = Random::of(seed + index);
        let recipe = RECIPES[random.below(RECIPES.len())];
        if only.is_some_and(|only| only != recipe) {
            continue;
        }
        let length = LENGTHS[random.below(LENGTHS.len())];
        let text = larder.make(recipe, &mut random, length);
        bench.kind = kinds[random.below(kinds.len())];
        let (first, effort) = cost(bench, &text);
        // What was in the way of the first run is not there each time.
        let again = if first > 40.0 { (0..2).fold(first, |least, _| least.min(cost(bench, &text).0)) } else { first };
        seen.push((again, first, recipe, text.len(), seed + index, effort));
    }
    seen.sort_by(|a, b| b.0.total_cmp(&a.0));
    // What was in the way for a moment was in the way of all looks at a text.
    for text in seen.iter_mut().take(AGAIN) {
        let mut random = Random::of(text.4);
        let recipe = RECIPES[random.below(RECIPES.len())];
        let length = LENGTHS[random.below(LENGTHS.len())];
        let again = larder.make(recipe, &mut random, length);
        bench.kind = kinds[random.below(kinds.len())];
        text.0 = (0..3).fold(text.0, |least, _| least.min(cost(bench, &again).0));
    }
    seen.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("{} texts", seen.len());
    for share in [0.5, 0.9, 0.99, 0.999] {
        if let Some(at) = seen.get(((1.0 - share) * seen.len() as f64) as usize) {
            println!("{:5.1} %: {:8.2} us of CPU per KB", share * 100.0, at.0);
        }
    }
    for recipe in RECIPES {
        if let Some((again, first, _, length, seed, _)) = seen.iter().find(|text| text.2 == recipe) {
            println!(
                "dearest of {recipe:16} {again:8.2} us per KB, first seen {first:8.2}, {length} bytes, seed {seed}"
            );
        }
    }
    let dearest_fresh = seen.iter().map(|text| text.1).fold(0.0, f64::max);
    println!("dearest when first seen: {dearest_fresh:.2} us per KB");
    for (again, first, recipe, length, seed, effort) in seen.iter().take(SHOWN) {
        println!(
            "{again:8.2} us per KB, first seen {first:8.2}: {recipe}, {length} bytes, seed {seed}, effort {effort}"
        );
    }
    if count == 1
        && let Some((_, _, recipe, length, seed, _)) = seen.first()
    {
        let mut random = Random::of(*seed);
        let _ = (random.below(RECIPES.len()), random.below(LENGTHS.len()));
        let text = larder.make(recipe, &mut random, *length);
        println!("{:?}", &text[..text.floor_char_boundary(1500)]);
        for _ in 0..2000 {
            bench.look(&text);
        }
    }
    Ok(())
}

/// Microseconds on the CPU per KB, and how much of what patterns may cost was spent, in thousandths.
pub(crate) fn cost(bench: &mut Bench, text: &str) -> (f64, u32) {
    let part = Part { text, kind: bench.kind };
    let mut hits = Vec::new();
    let began = cpu_ns();
    let ran = bench.analyser.analyse(&mut bench.scratch, &[part], &Call::of(&bench.plan), &mut hits);
    let took = cpu_ns().zip(began).map_or(0, |(end, start)| end - start);
    (took as f64 / 1e3 * 1024.0 / text.len().max(1) as f64, ran.effort)
}
