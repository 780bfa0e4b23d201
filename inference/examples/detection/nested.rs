//! Each encoding inside each other: what is still read, and that harmless text stays harmless.

use weir_inference::PartKind;

use crate::Detectors;
use crate::encodings::{ENCODINGS, Encoding};
use crate::rows::{self, Row};

/// The encodings that are nested, one of each family.
const NAMED: [&str; 25] = [
    "base64",
    "base32",
    "base58",
    "ascii85",
    "base85, RFC 1924",
    "hex",
    "url",
    "html, decimal",
    "quoted-printable",
    "punycode",
    "rot13",
    "caesar 7",
    "atbash",
    "leet",
    "reversed",
    "words reversed",
    "morse",
    "binary",
    "octal",
    "decimal",
    "zero width",
    "tags",
    "homoglyphs",
    "combining marks",
    "spaced out",
];
/// Texts of each sort.
const TEXTS: usize = 8;
/// Longest text: encoded twice it is ten times as long and more.
const TEXT_MAX: usize = 120;

/// What is read of attacks, and flagged of harmless texts.
pub(crate) struct Nested {
    /// Attacks that are seen, of [`TEXTS`], by the inner and then the outer encoding.
    seen: Vec<Vec<usize>>,
    /// Harmless texts flagged, and all.
    alarms: (usize, usize),
    texts: usize,
}

/// Looks at natural texts in each encoding inside each other.
pub(crate) fn look(detectors: &mut Detectors, rows: &[Row]) -> Nested {
    let short = |row: &&Row| row.text.len() <= TEXT_MAX;
    let attacks: Vec<&Row> = rows::attacks(detectors, rows).into_iter().filter(short).take(TEXTS).collect();
    let harmless: Vec<&Row> = rows::harmless(rows).filter(short).take(TEXTS).collect();
    let named = named();
    let mut nested = Nested { seen: Vec::new(), alarms: (0, 0), texts: attacks.len() };
    for (_, inner) in &named {
        let mut line = Vec::new();
        for (_, outer) in &named {
            let mut flagged = |rows: &[&Row]| {
                let twice = rows.iter().map(|row| outer(&inner(&row.text)));
                twice.filter(|text| detectors.look(text, PartKind::User).is_flagged()).count()
            };
            line.push(flagged(&attacks));
            nested.alarms.0 += flagged(&harmless);
            nested.alarms.1 += harmless.len();
        }
        nested.seen.push(line);
    }
    nested
}

fn named() -> Vec<Encoding> {
    let all = NAMED.iter().filter_map(|name| ENCODINGS.iter().find(|(known, _)| known == name));
    all.copied().collect()
}

impl Nested {
    /// As a table.
    pub(crate) fn table(&self) -> String {
        let named = named();
        let pairs = named.len() * named.len();
        let cells = || self.seen.iter().flatten();
        let (all, sum) = (cells().filter(|seen| **seen == self.texts).count(), cells().sum::<usize>());
        let mut out = format!(
            "{} natural attacks of at most {TEXT_MAX} bytes, written in the encoding of the line and then in that of the \
             column: how many are flagged. All of them in {all} of {pairs} pairs, together {:.1} %. Where letters lose their \
             case or signs are dropped (Morse of base64) nobody can read what was inside. Of as many harmless texts, written \
             the same ways, {} of {} are flagged.\n\n| inside | {} |\n|---|{}\n",
            self.texts,
            sum as f64 * 100.0 / (pairs * self.texts).max(1) as f64,
            self.alarms.0,
            self.alarms.1,
            named.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" | "),
            "--:|".repeat(named.len()),
        );
        for ((name, _), line) in named.iter().zip(&self.seen) {
            let cells: Vec<String> = line.iter().map(usize::to_string).collect();
            out += &format!("| {name} | {} |\n", cells.join(" | "));
        }
        out
    }
}
