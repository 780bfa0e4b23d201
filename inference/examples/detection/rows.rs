//! The labelled texts: where they come from, which are set aside, and the same texts encoded.

use std::error::Error;
use std::path::Path;

use serde_json::Value;
use weir_inference::PartKind;

use crate::Detectors;
use crate::encodings::ENCODINGS;

/// Sources made by a script from banks of phrases, beside all that begin with `synth-`.
const COMPOSED: [&str; 3] = ["tasktracker", "spikee", "gptfuzzer"];
/// Sources in which a script put attacks that people wrote into texts that people wrote.
const JOINED: [&str; 5] = ["agentdojo", "bipia-train", "carrier-x-payload", "garak-latent", "redteamcua"];
/// Harmless texts that look harmful: trigger words, quoted attacks, sensitive questions, security documents.
const BORDERLINE: [&str; 14] = [
    "or-bench-hard",
    "k-idioms",
    "gpt-protections",
    "satml-defenses",
    "prompt-guide-docs",
    "pif-benchmark",
    "clean-benign-corpus",
    "owasp-cheatsheets",
    "owasp-wstg",
    "payloads-all-the-things",
    "synth-trigger-benign",
    "synth-quoted-attack-benign",
    "synth-sensitive-benign",
    "synth-secret-benign",
];
/// Attacks that are plain off-topic tasks inside data, with no order to the assistant.
const OFF_TOPIC: [&str; 3] = ["synth-indirect-task", "bipia-train", "carrier-x-payload"];

/// How a text was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Making {
    Natural,
    Joined,
    Composed,
}

// === impl Making ===

impl Making {
    pub(crate) const ALL: [Self; 3] = [Self::Natural, Self::Joined, Self::Composed];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Natural => "natural",
            Self::Joined => "joined",
            Self::Composed => "composed",
        }
    }
}

/// One labelled text.
pub(crate) struct Row {
    pub(crate) text: String,
    pub(crate) label: String,
    pub(crate) source: String,
    pub(crate) lang: String,
    /// Whether it is from the second file.
    pub(crate) second: bool,
}

impl Row {
    /// How it was made.
    pub(crate) fn making(&self) -> Making {
        let source = self.source.as_str();
        match () {
            () if source.starts_with("synth-") || COMPOSED.contains(&source) => Making::Composed,
            () if JOINED.contains(&source) => Making::Joined,
            () => Making::Natural,
        }
    }

    /// Whether people wrote it as it is.
    pub(crate) fn is_natural(&self) -> bool {
        self.making() == Making::Natural
    }

    /// Data carries indirect attacks; all else is written by the user.
    pub(crate) fn kind(&self) -> PartKind {
        if self.label == "indirect_injection" { PartKind::Tool } else { PartKind::User }
    }

    /// What it counts as: the label, with indirect attacks and harmless texts told apart.
    pub(crate) fn class(&self) -> &'static str {
        let source = self.source.as_str();
        match self.label.as_str() {
            "injection" => "direct",
            "jailbreak" => "jailbreak",
            "indirect_injection" if OFF_TOPIC.contains(&source) => "indirect, off-topic task",
            "indirect_injection" => "indirect, order",
            _ if source.starts_with("synth-encoded") => "benign, encoded",
            _ if BORDERLINE.contains(&source) => "benign, borderline",
            _ => "benign, ordinary",
        }
    }
}

/// A text field of an object.
pub(crate) fn field<'a>(row: &'a Value, name: &str) -> &'a str {
    row.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Both development files without what is set aside, or only that.
pub(crate) fn read(folder: &Path, held: bool) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for (file, second) in [("prompts-dev.jsonl", false), ("prompts-dev-2.jsonl", true)] {
        for line in std::fs::read_to_string(folder.join(file))?.lines() {
            let row: Value = serde_json::from_str(line)?;
            let owned = |name: &str| field(&row, name).to_owned();
            let (text, label, source, lang) = (owned("text"), owned("label"), owned("source"), owned("lang"));
            rows.push(Row { text, label, source, lang, second });
        }
    }
    let aside = set_aside(&rows);
    rows.retain(|row| (row.second && aside.contains(&row.source)) == held);
    Ok(rows)
}

/// Sources that make up a tenth of the second file, in an order that nobody chose: that of a hash of their names.
fn set_aside(rows: &[Row]) -> Vec<String> {
    let second: Vec<&Row> = rows.iter().filter(|row| row.second).collect();
    let mut sources: Vec<&str> = second.iter().map(|row| row.source.as_str()).collect();
    sources.sort_unstable();
    sources.dedup();
    let hash = |name: &str| {
        name.bytes()
            .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
    };
    sources.sort_unstable_by_key(|source| hash(source));
    let (mut left, mut aside) = (second.len() / 10, Vec::new());
    for source in sources {
        let count = second.iter().filter(|row| row.source == source).count();
        if count <= left {
            left -= count;
            aside.push(source.to_owned());
        }
    }
    aside
}

/// How one encoding fared.
pub(crate) struct Encoded {
    pub(crate) name: &'static str,
    /// Attacks seen of those that are seen in plain text.
    pub(crate) attacks: (usize, usize),
    /// The same where the text says that something is to be decoded.
    pub(crate) announced: (usize, usize),
    /// Harmless texts flagged.
    pub(crate) benign: (usize, usize),
}

/// Texts that are encoded: short, natural, in ASCII.
fn plain(row: &&Row) -> bool {
    row.is_natural() && row.text.is_ascii() && (24..=400).contains(&row.text.len())
}

/// Whole words around an encoded text.
fn announce(encoded: &str) -> String {
    format!("Here is something for you to decode. Read it carefully:\n\n{encoded}")
}

/// Writes natural texts in every encoding and looks at them again.
pub(crate) fn encoded(detectors: &mut Detectors, rows: &[Row]) -> Vec<Encoded> {
    let attacks = attacks(detectors, rows);
    let benign: Vec<&Row> = harmless(rows).step_by(4).collect();
    ENCODINGS
        .iter()
        .map(|(name, write)| {
            let mut seen = |text: &str| detectors.look(text, PartKind::User).is_flagged();
            let bare = attacks.iter().filter(|row| seen(&write(&row.text))).count();
            let announced = attacks.iter().filter(|row| seen(&announce(&write(&row.text)))).count();
            let alarms = benign.iter().filter(|row| seen(&announce(&write(&row.text)))).count();
            Encoded {
                name,
                attacks: (bare, attacks.len()),
                announced: (announced, attacks.len()),
                benign: (alarms, benign.len()),
            }
        })
        .collect()
}

/// Ordinary texts that are encoded.
pub(crate) fn harmless(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(plain).filter(|row| row.class() == "benign, ordinary")
}

/// Attacks that are seen in plain text.
pub(crate) fn attacks<'a>(detectors: &mut Detectors, rows: &'a [Row]) -> Vec<&'a Row> {
    let is_attack = |row: &&Row| matches!(row.class(), "direct" | "jailbreak");
    let all = rows.iter().filter(plain).filter(is_attack);
    all.filter(|row| detectors.look(&row.text, PartKind::User).is_flagged()).collect()
}

/// Prints the attacks that one encoding hides.
pub(crate) fn print_missed(detectors: &mut Detectors, rows: &[Row], name: &str) {
    let Some((_, write)) = ENCODINGS.iter().find(|(known, _)| *known == name) else {
        println!("no encoding is named {name:?}");
        return;
    };
    for row in attacks(detectors, rows) {
        let encoded = write(&row.text);
        if !detectors.look(&encoded, PartKind::User).is_flagged() {
            println!("{:?}\n  {encoded:?}", row.text);
        }
    }
}
