//! The figures as a document.

use std::collections::BTreeMap;

use crate::rows::{Encoded, Making, Row};
use crate::{Seen, Share, Spans, Sureness, count};

/// Texts of a conversation that is replayed.
const TURNS: usize = 8;
/// Sources and languages with fewer texts than this are counted together.
const ROWS_MIN: usize = 10;

type Judged<'a> = [(&'a Row, Seen)];

/// What was seen in all texts: each in its role, harmless ones as data, and each in its role at the point `high_recall`.
pub(crate) struct Looks<'a> {
    pub(crate) judged: &'a Judged<'a>,
    pub(crate) as_data: &'a Judged<'a>,
    pub(crate) recall: &'a Judged<'a>,
}

fn percent((right, all): Share) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.1} %", right as f64 * 100.0 / all as f64) }
}

fn share<'a>(judged: impl Iterator<Item = &'a (&'a Row, Seen)>) -> Share {
    judged.fold((0, 0), |(right, all), (_, seen)| (right + usize::from(seen.is_flagged()), all + 1))
}

fn is_attack(row: &Row) -> bool {
    row.label != "benign"
}

/// Flagged texts by class and making.
pub(crate) fn labels(judged: &Judged<'_>) -> String {
    let mut out = String::from(
        "| texts | natural | flagged | joined | flagged | composed | flagged |\n|---|--:|--:|--:|--:|--:|--:|\n",
    );
    let mut classes: Vec<&str> = judged.iter().map(|(row, _)| row.class()).collect();
    classes.sort_unstable();
    classes.dedup();
    for class in classes {
        out += &format!("| {class} |");
        for making in Making::ALL {
            let of = share(judged.iter().filter(|(row, _)| row.class() == class && row.making() == making));
            out += &format!(" {} | {} |", of.1, percent(of));
        }
        out.push('\n');
    }
    out
}

/// Texts by language: recall, precision, false alarms.
fn languages(judged: &Judged<'_>) -> String {
    let mut out = String::from(
        "| language | attacks | recall | benign | false alarms | precision |\n|---|--:|--:|--:|--:|--:|\n",
    );
    let mut langs: BTreeMap<&str, usize> = BTreeMap::new();
    judged.iter().for_each(|(row, _)| *langs.entry(&row.lang).or_default() += 1);
    let rare = |row: &Row| langs.get(row.lang.as_str()).is_none_or(|count| *count < ROWS_MIN);
    let mut line = |name: &str, is_in: &dyn Fn(&Row) -> bool| {
        let of = |attack| share(judged.iter().filter(move |(row, _)| is_in(row) && is_attack(row) == attack));
        let (attacks, benign) = (of(true), of(false));
        let precision = percent((attacks.0, attacks.0 + benign.0));
        let recall = (percent(attacks), percent(benign));
        out += &format!("| {name} | {} | {} | {} | {} | {precision} |\n", attacks.1, recall.0, benign.1, recall.1);
    };
    for (lang, _) in langs.iter().filter(|(_, count)| **count >= ROWS_MIN) {
        line(lang, &|row| row.lang == *lang);
    }
    line("all others", &rare);
    line("all but English, natural", &|row| row.lang != "en" && row.is_natural());
    line("all but English, others", &|row| row.lang != "en" && !row.is_natural());
    out
}

/// Flagged texts by label and source.
fn sources(judged: &Judged<'_>) -> String {
    let mut table: BTreeMap<(Making, &str, &str), Share> = BTreeMap::new();
    for (row, seen) in judged {
        let entry = table.entry((row.making(), row.label.as_str(), row.source.as_str())).or_default();
        entry.0 += usize::from(seen.is_flagged());
        entry.1 += 1;
    }
    let mut out = String::from("| source | kind | label | texts | flagged |\n|---|---|---|--:|--:|\n");
    for ((making, label, source), share) in table {
        let kind = making.name();
        out += &format!("| {source} | {kind} | {label} | {} | {} |\n", share.1, percent(share));
    }
    out
}

/// Recall and false alarms on natural texts at each point of severity and confidence.
fn curve(judged: &Judged<'_>) -> String {
    let mut out = String::from(
        "| flagged when | direct | jailbreak | benign, ordinary | benign, borderline |\n|---|--:|--:|--:|--:|\n",
    );
    let classes = ["direct", "jailbreak", "benign, ordinary", "benign, borderline"];
    let mut line = |name: String, is_over: &dyn Fn(Seen) -> bool| {
        out += &format!("| {name} |");
        for class in classes {
            let natural = judged.iter().filter(|(row, _)| row.class() == class && row.is_natural());
            let share = natural.fold((0, 0), |(right, all), (_, seen)| (right + usize::from(is_over(*seen)), all + 1));
            out += &format!(" {} |", percent(share));
        }
        out.push('\n');
    };
    for score in [20, 40, 60, 80, 100] {
        line(format!("score ≥ {score}"), &|seen| seen.score >= score);
    }
    for tenths in [60_u32, 65, 70, 75, 80, 85, 90, 95] {
        let least = f64::from(tenths) / 100.0;
        line(format!("score ≥ 60, confidence ≥ {least:.2}"), &|seen| seen.is_flagged() && seen.confidence >= least);
    }
    out
}

/// Requests of conversations made of ordinary texts, each with all turns before it.
fn conversations(judged: &Judged<'_>) -> Share {
    let ordinary: Vec<bool> = judged
        .iter()
        .filter(|(row, _)| row.class() == "benign, ordinary" && row.is_natural())
        .map(|(_, seen)| seen.is_flagged())
        .collect();
    let mut share = (0, 0);
    for talk in ordinary.chunks(TURNS) {
        for end in 1..=talk.len() {
            share.0 += usize::from(talk.iter().take(end).any(|flagged| *flagged));
            share.1 += 1;
        }
    }
    share
}

fn encodings(encoded: &[Encoded]) -> String {
    let mut out = String::from(
        "| encoding | attacks seen | announced attacks seen | announced harmless texts flagged |\n|---|--:|--:|--:|\n",
    );
    let mut sums = [(0, 0); 3];
    for row in encoded {
        let shares = [row.attacks, row.announced, row.benign];
        let cells: Vec<String> = shares.iter().map(|share| percent(*share)).collect();
        out += &format!("| {} | {} |\n", row.name, cells.join(" | "));
        for (sum, share) in sums.iter_mut().zip(shares) {
            *sum = (sum.0 + share.0, sum.1 + share.1);
        }
    }
    let cells: Vec<String> = sums.iter().map(|share| percent(*share)).collect();
    out += &format!(
        "| all ({} attacks, {} harmless texts each) | {} |\n",
        encoded.first().map_or(0, |row| row.attacks.1),
        encoded.first().map_or(0, |row| row.benign.1),
        cells.join(" | ")
    );
    out
}

/// Bounds of the classes of confidence, in hundredths.
const SURE: [u32; 6] = [0, 60, 70, 80, 90, 101];

/// How many of the findings that are so sure stand in attacks, by type.
fn reliability(sure: &[Sureness]) -> String {
    let mut out =
        String::from("| type | confidence | findings | mean confidence | in attacks |\n|---|---|--:|--:|--:|\n");
    let mut types: Vec<&str> = sure.iter().map(|one| one.finding_type.as_str()).collect();
    types.sort_unstable();
    types.dedup();
    let mut lines = |name: &str, is_it: &dyn Fn(&Sureness) -> bool| {
        for pair in SURE.array_windows() {
            let [from, to] = pair.map(|bound| f64::from(bound) / 100.0);
            let within = |one: &&Sureness| is_it(one) && (from..to).contains(&one.confidence);
            let (mut share, mut sum) = ((0, 0), 0.0);
            for one in sure.iter().filter(within) {
                share = (share.0 + usize::from(one.is_attack), share.1 + 1);
                sum += one.confidence;
            }
            if share.1 > 0 {
                let (mean, top) = (sum / share.1 as f64, to.min(1.0));
                out += &format!("| {name} | {from:.2} to {top:.2} | {} | {mean:.2} | {} |\n", share.1, percent(share));
            }
        }
    };
    for name in types {
        lines(name, &|one| one.finding_type == name);
    }
    lines("all", &|_| true);
    out
}

fn spans(spans: &Spans) -> String {
    let mut out = String::from("| type | recall | of | precision | of |\n|---|--:|--:|--:|--:|\n");
    // Names of types differ in case between the labels and the findings.
    let mut table: BTreeMap<String, (Share, Share)> = BTreeMap::new();
    for (name, share) in &spans.recall {
        table.entry(name.to_ascii_lowercase()).or_default().0 = *share;
    }
    for (name, share) in &spans.precision {
        table.entry(name.to_ascii_lowercase()).or_default().1 = *share;
    }
    for (name, (recall, precision)) in table {
        let cells = (percent(recall), recall.1, percent(precision), precision.1);
        out += &format!("| {name} | {} | {} | {} | {} |\n", cells.0, cells.1, cells.2, cells.3);
    }
    out += &format!("\nLook-alikes with a finding: {} of {}.\n", spans.look_alikes.0, spans.look_alikes.1);
    out
}

fn precision(judged: &Judged<'_>) -> String {
    let benign = share(judged.iter().filter(|(row, _)| !is_attack(row)));
    let mut flagged = BTreeMap::new();
    for (row, seen) in judged.iter().filter(|(row, _)| is_attack(row)) {
        count(&mut flagged, row.class(), seen.is_flagged());
    }
    let each: Vec<String> =
        flagged.iter().map(|(class, share)| format!("{class} {}", percent((share.0, share.0 + benign.0)))).collect();
    format!("Precision, each kind of attack against all harmless texts: {}.\n", each.join(", "))
}

/// The whole document.
pub(crate) fn document(
    Looks { judged, as_data, recall: high }: &Looks<'_>,
    encoded: &[Encoded],
    nested: &str,
    sure: &[Sureness],
    (pii, secrets): (&Spans, &Spans),
) -> String {
    let (high, reliability) = (labels(high), reliability(sure));
    let talks = conversations(judged);
    let mut data: BTreeMap<String, Share> = BTreeMap::new();
    for (row, seen) in as_data.iter().filter(|(row, _)| row.is_natural()) {
        count(&mut data, row.class(), seen.is_flagged());
    }
    let data: Vec<String> = data.iter().map(|(class, share)| format!("{class} {}", percent(*share))).collect();
    let (recall, precision, langs) = (labels(judged), precision(judged), languages(judged));
    let (curve, sources, encodings) = (curve(judged), sources(judged), encodings(encoded));
    let (pii, secrets) = (spans(pii), spans(secrets));
    format!(
        "# Detection\n\n\
         Written by `cargo run --release -p weir-inference --example detection -- DIR`, where DIR holds the labelled \
         development files. Rules alone, no model. A text is flagged when its score is 60 or more (a finding of Medium or \
         worse, credentials and personal data aside). Indirect attacks are looked at as the result of a tool, all other \
         texts as a user's message. Composed texts were made by a script from banks of phrases; in joined ones a script put \
         attacks that people wrote into texts that people wrote. Only natural and joined ones say how well attacks are found \
         that nobody prepared for. A tenth of the second file, by source, is set aside and \
         not part of any figure.\n\n\
         ## By kind of text\n\n{recall}\n{precision}\n\
         Natural harmless texts that come as data (the result of a tool) instead: {data}.\n\n\
         Requests of replayed conversations of up to {TURNS} ordinary natural texts with any text flagged: {talks_share} of \
         {talks_all}.\n\n\
         ## By threshold, natural texts\n\n{curve}\n\
         ## At the point `high_recall`\n\n{high}\n\
         ## How sure findings are\n\nFindings of Medium or worse in natural texts, the surest of each type in a text, and how \
         many of them stand in attacks. There are ten times as many harmless texts as attacks here.\n\n{reliability}\n\
         ## By language\n\n{langs}\n\
         ## By encoding\n\nNatural attacks that are flagged in plain text, and natural ordinary texts, written in each \
         encoding; announced: after a sentence that says that something is to be decoded.\n\n{encodings}\n\
         ## One encoding in another\n\n{nested}\n\
         ## By source\n\n{sources}\n\
         ## Personal data\n\n{pii}\n\
         ## Credentials\n\n{secrets}",
        data = data.join(", "),
        talks_share = percent(talks),
        talks_all = talks.1,
    )
}
