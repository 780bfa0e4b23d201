//! Personal data and credentials that a generator makes up, each type by itself: nothing the rules were written for is in it.
//!
//! `WEIR_GENERATED_SEED` is the seed; the labelled samples beside these tests come from other programs with other seeds.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_inference::{Analyser, Call, Part, PartKind, PlanSettings};

/// Values made of each type.
const VALUES: usize = 100;
/// Share of them that must be found.
const FLOOR: f64 = 0.98;
/// The seed where none is given.
const SEED: u64 = 0x5EED_2026_1125;

/// SplitMix64, so that a failure comes again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % bound as u64) as usize
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn digits(&mut self, count: usize) -> String {
        (0..count).map(|_| char::from(b'0' + self.below(10) as u8)).collect()
    }

    fn of(&mut self, alphabet: &str, count: usize) -> String {
        (0..count).map(|_| char::from(alphabet.as_bytes()[self.below(alphabet.len())])).collect()
    }
}

fn seed() -> u64 {
    std::env::var("WEIR_GENERATED_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED)
}

/// `value` inside one of these sentences, and where it stands.
fn said(random: &mut Random, sentences: &[&str], value: &str) -> (String, usize) {
    let sentence = random.pick(sentences);
    let (before, after) = sentence.split_once('@').unwrap();
    (format!("{before}{value}{after}"), before.len())
}

/// Makes a value.
type Maker = dyn Fn(&mut Random) -> String;

/// The name of a type, sentences in which it stands, and what makes a value of it.
type Type<'a> = (&'a str, &'a [&'a str], &'a Maker);

/// Makes values of each type, looks at each in its sentence, and asks for the floor.
fn every_type_is_found(finding_type: &str, types: &[Type<'_>]) {
    let analyser = Analyser::builtin().unwrap().without_memory();
    let plan = Arc::new(analyser.plan(&PlanSettings::default()));
    let (mut scratch, mut random) = (analyser.scratch(), Random(seed()));
    let mut missed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, sentences, make) in types {
        for _ in 0..VALUES {
            let value = make(&mut random);
            let (text, at) = said(&mut random, sentences, &value);
            let mut hits = Vec::new();
            let part = Part { text: &text, kind: PartKind::User };
            analyser.analyse(&mut scratch, &[part], &Call::of(&plan), &mut hits);
            let meets = |hit: &weir_inference::Hit| {
                let span = hit.finding.span.unwrap();
                hit.finding.finding_type == finding_type && span.start < at + value.len() && at < span.end
            };
            if !hits.iter().any(meets) {
                missed.entry(name).or_default().push(text);
            }
        }
    }
    for (name, texts) in missed {
        let found = 1.0 - texts.len() as f64 / VALUES as f64;
        assert!(found >= FLOOR, "{name}: {found} found with seed {}, not {texts:#?}", seed());
    }
}

/// The digit that makes a number pass the check of payment cards.
fn with_luhn(digits: &str) -> String {
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(at, byte)| match u32::from(byte - b'0') * if at % 2 == 0 { 2 } else { 1 } {
            digit @ 10.. => digit - 9,
            digit => digit,
        })
        .sum();
    format!("{digits}{}", (10 - sum % 10) % 10)
}

fn grouped(text: &str, size: usize, gap: &str) -> String {
    text.as_bytes().chunks(size).map(|group| String::from_utf8_lossy(group).into_owned()).collect::<Vec<_>>().join(gap)
}

fn card(random: &mut Random) -> String {
    let start = random.pick(&["4", "51", "52", "53", "54", "55"]);
    let number = with_luhn(&format!("{start}{}", random.digits(15 - start.len())));
    let gap = random.pick(&["", " ", "-"]);
    grouped(&number, 4, gap)
}

/// A bank account number with the check digits of ISO 13616.
fn iban(random: &mut Random) -> String {
    let (country, account) = match random.below(3) {
        0 => ("DE", random.digits(18)),
        1 => ("ES", random.digits(20)),
        _ => ("PL", random.digits(24)),
    };
    let rest = format!("{account}{country}00").bytes().fold(0_u64, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u64::from(byte - b'0')) % 97,
        _ => (rest * 100 + u64::from(byte - b'A') + 10) % 97,
    });
    let number = format!("{country}{:02}{account}", 98 - rest);
    let gap = random.pick(&["", " "]);
    grouped(&number, 4, gap)
}

fn ssn(random: &mut Random) -> String {
    let area = 1 + random.below(664);
    format!("{area:03}-{:02}-{:04}", 1 + random.below(99), 1 + random.below(9_999))
}

fn nhs(random: &mut Random) -> String {
    loop {
        let digits = format!("{}{}", 4 + random.below(5), random.digits(8));
        let sum: usize =
            digits.bytes().zip((2..=10).rev()).map(|(byte, weight)| usize::from(byte - b'0') * weight).sum();
        match 11 - sum % 11 {
            10 => {}
            check => {
                let number = format!("{digits}{}", check % 11);
                return format!("{} {} {}", &number[..3], &number[3..6], &number[6..]);
            }
        }
    }
}

fn cpf(random: &mut Random) -> String {
    let mut digits = random.digits(9);
    for weight in [10, 11] {
        let sum: usize = digits.bytes().zip((2..=weight).rev()).map(|(byte, by)| usize::from(byte - b'0') * by).sum();
        let check = sum * 10 % 11 % 10;
        digits.push(char::from(b'0' + check as u8));
    }
    format!("{}.{}.{}-{}", &digits[..3], &digits[3..6], &digits[6..9], &digits[9..])
}

fn dni(random: &mut Random) -> String {
    let number = 10_000_000 + random.below(80_000_000);
    format!("{number}{}", char::from(b"TRWAGMYFPDXBNJZSQVHLCKE"[number % 23]))
}

fn email(random: &mut Random) -> String {
    let letters = "abcdefghijklmnopqrstuvwxyz";
    let counts = (3 + random.below(6), 3 + random.below(8), 4 + random.below(8));
    let (first, last, host) =
        (random.of(letters, counts.0), random.of(letters, counts.1), random.of(letters, counts.2));
    let (gap, domain) = (random.pick(&[".", "_", "-", "+"]), random.pick(&["com", "org", "de", "co.uk", "io", "fr"]));
    format!("{first}{gap}{last}@{host}.{domain}")
}

fn address(random: &mut Random) -> String {
    let mut octet = |from: usize| from + random.below(220);
    format!("{}.{}.{}.{}", octet(11), octet(1), octet(1), octet(2))
}

fn phone(random: &mut Random) -> String {
    match random.below(3) {
        0 => format!("+49 {} {}", 30 + random.below(60), random.digits(7)),
        1 => format!("+44 20 7{} {}", random.digits(3), random.digits(4)),
        _ => format!("+33 {} {}", 1 + random.below(6), grouped(&random.digits(8), 2, " ")),
    }
}

fn birth(random: &mut Random) -> String {
    format!("{}-{:02}-{:02}", 1940 + random.below(65), 1 + random.below(12), 1 + random.below(28))
}

fn nino(random: &mut Random) -> String {
    // Without the letters and pairs that are never issued.
    let prefix = loop {
        let (first, second) = (random.of("ABCEGHJKLMNOPRSTWXYZ", 1), random.of("ABCEGHJKLMNPRSTWXYZ", 1));
        let prefix = first + &second;
        if !["BG", "GB", "KN", "NK", "NT", "TN", "ZZ"].contains(&prefix.as_str()) {
            break prefix;
        }
    };
    let (digits, last, gap) = (random.digits(6), random.of("ABCD", 1), random.pick(&["", " "]));
    format!("{prefix}{gap}{}{gap}{last}", grouped(&digits, 2, gap))
}

/// A Canadian social insurance number; none begins with 0 or 8.
fn sin(random: &mut Random) -> String {
    let number = with_luhn(&format!("{}{}", random.pick(&["1", "2", "3", "4", "5", "6", "7", "9"]), random.digits(7)));
    let gap = random.pick(&["", " ", "-"]);
    grouped(&number, 3, gap)
}

fn tfn(random: &mut Random) -> String {
    let number = loop {
        let number = format!("{}{}", 1 + random.below(9), random.digits(8));
        let weighed = number.bytes().zip([1_u32, 4, 3, 7, 5, 8, 6, 9, 10]);
        if weighed.map(|(byte, weight)| u32::from(byte - b'0') * weight).sum::<u32>() % 11 == 0 {
            break number;
        }
    };
    let gap = random.pick(&["", " "]);
    grouped(&number, 3, gap)
}

/// A French social security number: sex, year, month, department, commune, order and key.
fn nir(random: &mut Random) -> String {
    let parts = [
        (1 + random.below(2), 1),
        (random.below(100), 2),
        (1 + random.below(12), 2),
        (1 + random.below(95), 2),
        (1 + random.below(900), 3),
        (1 + random.below(999), 3),
    ];
    let mut groups: Vec<String> = parts.iter().map(|(value, width)| format!("{value:0width$}")).collect();
    let number: u64 = groups.concat().parse().unwrap();
    groups.push(format!("{:02}", 97 - number % 97));
    groups.join(random.pick(&["", " "]))
}

/// The products of the dihedral group of order ten, and how digits are swapped at each place, from the tables of Verhoeff's check.
fn aadhaar(random: &mut Random) -> String {
    const TIMES: [[u8; 10]; 10] = [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        [1, 2, 3, 4, 0, 6, 7, 8, 9, 5],
        [2, 3, 4, 0, 1, 7, 8, 9, 5, 6],
        [3, 4, 0, 1, 2, 8, 9, 5, 6, 7],
        [4, 0, 1, 2, 3, 9, 5, 6, 7, 8],
        [5, 9, 8, 7, 6, 0, 4, 3, 2, 1],
        [6, 5, 9, 8, 7, 1, 0, 4, 3, 2],
        [7, 6, 5, 9, 8, 2, 1, 0, 4, 3],
        [8, 7, 6, 5, 9, 3, 2, 1, 0, 4],
        [9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
    ];
    const SWAPPED: [[u8; 10]; 8] = [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        [1, 5, 7, 6, 2, 8, 3, 0, 9, 4],
        [5, 8, 0, 3, 7, 9, 6, 1, 4, 2],
        [8, 9, 1, 6, 0, 4, 3, 5, 2, 7],
        [9, 4, 5, 3, 1, 2, 6, 8, 7, 0],
        [4, 2, 8, 6, 5, 7, 3, 9, 0, 1],
        [2, 7, 9, 3, 8, 0, 6, 4, 1, 5],
        [7, 0, 4, 6, 9, 1, 3, 2, 5, 8],
    ];
    let body = format!("{}{}", 2 + random.below(8), random.digits(10));
    let sum = body.bytes().rev().zip(1..).fold(0_u8, |sum, (byte, place)| {
        let swapped = SWAPPED[place % 8][usize::from(byte - b'0')];
        TIMES[usize::from(sum)][usize::from(swapped)]
    });
    // The check digit is the one that makes the product nought.
    let check = (0..10).find(|digit| TIMES[usize::from(sum)][*digit] == 0).unwrap();
    let gap = random.pick(&["", " "]);
    grouped(&format!("{body}{check}"), 4, gap)
}

fn passport(random: &mut Random) -> String {
    match random.below(4) {
        0 => random.of("CFGHJKLMNPRTVWXYZ", 1) + &random.of("0123456789CFGHJKLMNPRTVWXYZ", 7) + &random.digits(1),
        1 => random.digits(9),
        2 => random.of("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 2) + &random.digits(7),
        _ => random.digits(2) + &random.of("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 2) + &random.digits(5),
    }
}

#[test]
fn personal_data_of_another_generator_is_found() {
    every_type_is_found(
        "pii_detected",
        &[
            ("credit_card", &["My card is @, please charge it.", "Card number: @"], &card),
            ("iban", &["Send it to @ today.", "IBAN: @"], &iban),
            ("ssn", &["My SSN is @.", "Social security number: @"], &ssn),
            ("nhs_number", &["His NHS number is @.", "NHS no. @, ward 4"], &nhs),
            ("br_cpf", &["CPF @ on file.", "My CPF: @"], &cpf),
            ("uk_nin", &["My national insurance number is @.", "NINO: @", "(@)"], &nino),
            ("canadian_sin", &["My SIN is @.", "Social insurance number: @"], &sin),
            ("australian_tfn", &["Her TFN is @.", "Tax file number: @"], &tfn),
            ("fr_nir", &["Son numéro de sécurité sociale est le @.", "NIR : @"], &nir),
            ("in_aadhaar", &["My Aadhaar number is @.", "Aadhaar: @"], &aadhaar),
            ("passport", &["My passport number is @.", "Reisepass: @", "Passeport n° @"], &passport),
            ("es_dni", &["Mi DNI es @.", "DNI: @"], &dni),
            ("email", &["Write to @ tomorrow.", "<@>", "contact=@;"], &email),
            ("ip_address", &["The client came from @ last night.", "src=@"], &address),
            ("intl_phone", &["Call me on @.", "Tel.: @"], &phone),
            ("date_of_birth", &["Date of birth: @", "She was born on @ in Rome."], &birth),
        ],
    );
}

/// `ghp_<word:36>` filled by chance.
fn filled(random: &mut Random, shape: &str) -> String {
    let mut out = String::new();
    let mut rest = shape;
    while let Some((before, after)) = rest.split_once('<') {
        let (set, behind) = after.split_once('>').unwrap();
        let (set, count) = set.split_once(':').unwrap();
        let alphabet = match set {
            "hex" => "0123456789abcdef",
            "digit" => "0123456789",
            "upper" => "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
            "base32" => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
            "alpha" => "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
            "word" => "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
            other => panic!("no set is named {other}"),
        };
        out.push_str(before);
        out.push_str(&random.of(alphabet, count.parse().unwrap()));
        rest = behind;
    }
    out + rest
}

/// Kinds of credentials and their shapes, in parts, so that no scanner takes one for a real one.
const SHAPES: [(&str, &str); 30] = [
    ("aws_access_key_id", "AKIA<base32:16>"),
    ("github_pat", "ghp_<word:36>"),
    ("github_oauth", "gho_<word:36>"),
    ("gitlab_pat", "glpat-<word:20>"),
    ("google_api_key", "AIza<word:35>"),
    ("anthropic_key", "sk-ant-api03-<word:95>"),
    ("openai_key", "sk-proj-<word:74>"),
    ("huggingface_token", "hf_<alpha:34>"),
    ("groq_key", "gsk_<word:52>"),
    ("slack_token", "xoxb-<digit:12>-<digit:12>-<word:24>"),
    ("stripe_key", "sk_live_<word:24>"),
    ("sendgrid_key", "SG.<word:22>.<word:43>"),
    ("npm_token", "npm_<word:36>"),
    ("digitalocean_token", "dop_v1_<hex:64>"),
    ("databricks_token", "dapi<hex:32>"),
    ("shopify_token", "shpat_<hex:32>"),
    ("linear_key", "lin_api_<word:40>"),
    ("new_relic_key", "NRAK-<upper:27>"),
    ("postman_key", "PMAK-<hex:24>-<hex:34>"),
    ("vault_token", "hvs.<word:90>"),
    ("telegram_bot_token", "<digit:9>:AA<word:33>"),
    ("twilio_key", "SK<hex:32>"),
    ("mailgun_key", "key-<hex:32>"),
    ("adafruit_key", "aio_<word:28>"),
    ("docker_token", "dckr_pat_<word:27>"),
    ("netlify_token", "nfp_<word:40>"),
    ("perplexity_key", "pplx-<word:48>"),
    ("replicate_token", "r8_<word:37>"),
    ("rubygems_key", "rubygems_<hex:48>"),
    ("supabase_token", "sbp_<hex:40>"),
];

#[test]
fn credentials_of_another_generator_are_found() {
    let sentences =
        ["export TOKEN=@", "The key is @ and it works.", "{\"token\": \"@\"}", "curl -H 'X-Key: @' https://x.example"];
    let makers: Vec<(&str, Box<Maker>)> = SHAPES
        .iter()
        .map(|(name, shape)| {
            let make = move |random: &mut Random| filled(random, shape);
            (*name, Box::new(make) as Box<Maker>)
        })
        .collect();
    let types: Vec<_> = makers.iter().map(|(name, make)| (*name, sentences.as_slice(), &**make)).collect();
    every_type_is_found("secret_leakage", &types);
}
