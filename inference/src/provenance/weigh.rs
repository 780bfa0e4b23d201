//! What speaks for and against a call, as one probability.
//!
//! Logistic regression over yes and no, fitted by `train/provenance.py` on the files of `data/runs`, and reported on each domain by a fit
//! that did not know it; `docs/evidence/hears.md` has the figures.

use weir_config::vocab::Severity;

use super::call::{Asked, Kind, stem};
use super::places::Places;
use super::words;

/// How much of the text around a value is looked at for whom it speaks to, in bytes.
const AROUND: (usize, usize) = (220, 120);
/// Longest sentence, in bytes to either side.
const SENTENCE_BYTES: usize = 400;
/// Marks between sentences.
const MARKS: [char; 7] = ['\n', '"', '|', ';', '。', '」', '「'];
/// Words that make a sentence, beside the value in it.
const PROSE_WORDS: usize = 4;
/// Words up to which a value stands by itself.
const BARE_WORDS: usize = 3;

/// What speaks for and against a call, and what each counts for, in logits.
const SIGNS: [(&str, f64); 24] = [
    ("address", 0.56),
    ("code", 0.16),
    ("number", 0.27),
    ("words", 0.43),
    ("share", 0.71),
    ("prose", 0.76),
    ("bare", -0.34),
    ("deed_in_sentence", 0.55),
    ("reader_near", 1.13),
    ("asked", -0.36),
    ("question", 0.03),
    ("ends_as_question", 1.35),
    ("delegated", -0.87),
    ("question_unasked", 0.62),
    ("address_in_prose", 0.55),
    ("foreign_unasked", 0.38),
    ("nothing", -0.47),
    ("leaves_ours", -0.37),
    ("target_ours", -0.58),
    ("target_theirs", 0.05),
    ("several", 0.14),
    ("sender", -0.41),
    ("reader_asked_by_name", -0.47),
    ("delegated_reader", 0.02),
];
const BIAS: f64 = -2.03;
/// From here on it is a finding, is one of Medium, and is one of High where the data asks for it.
const LEAST: f64 = 0.3;
const PROBABLE: f64 = 0.6;
const SURE: f64 = 0.85;

/// A call, weighed.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighed {
    pub(super) tool: String,
    /// What of it only tools named: the worst kind of it, and the host where it has one.
    pub(super) value: Option<(&'static str, Option<String>)>,
    /// The user asked for what was read to be used.
    pub(super) is_asked_for: bool,
    /// The text that names it asks for such a deed, or speaks to its reader.
    pub(super) is_ordered: bool,
    /// The text that names it speaks to its reader.
    is_spoken_to: bool,
    /// It goes somewhere that only tools named.
    is_outbound: bool,
    signs: [f64; SIGNS.len()],
}

impl Weighed {
    pub(super) fn of(asked: &Asked, places: &Places, theirs: &str, said: &str) -> Self {
        let foreign: Vec<usize> = (0..asked.needles.len()).filter(|at| places.is_foreign(*at)).collect();
        let of = |fits: &dyn Fn(Kind) -> bool| {
            let needles = foreign.iter().filter_map(|at| asked.needles.get(*at));
            needles.filter(|needle| fits(needle.kind)).count()
        };
        let all = |fits: &dyn Fn(Kind) -> bool| asked.needles.iter().filter(|needle| fits(needle.kind)).count();
        let is_address = |kind: Kind| kind.is_address() || kind == Kind::Path;
        let (addresses, codes) = (of(&is_address), of(&|kind| kind == Kind::Code));
        let numbers = of(&|kind| kind == Kind::Number);
        let (words, all_words) = (of(&|kind| kind == Kind::Word), all(&|kind| kind == Kind::Word));
        let values = addresses + codes + numbers;
        let sentence = places.densest(asked).map_or("", |at| sentence(theirs, at));
        let around = places.densest(asked).map_or("", |at| around(theirs, at));
        let beside = beside(asked, &foreign, sentence);
        let plain = words::plain(said);
        let stems: Vec<String> = words::split(said).map(stem).collect();
        let begun = words::spoken_of(stems.iter().map(String::as_str));
        let has_asked = asked.deeds.meets(begun) || asked.verbs.first().is_some_and(|verb| stems.contains(verb));
        let of_sentence: Vec<String> = words::split(sentence).map(stem).collect();
        let is_told = asked.deeds.meets(words::spoken_of(of_sentence.iter().map(String::as_str)));
        let (question, ends) = (words::is_question(&plain), words::ends_as_question(said));
        let delegated = words::delegates(&plain);
        let reader = words::names_reader(around);
        let whole = |at: &usize| asked.needles.get(*at).is_some_and(|needle| needle.kind == Kind::Whole);
        let ours_whole = (0..asked.needles.len()).filter(whole).filter(|at| places.in_ours.get(*at) == Some(&true));
        let targets = |is: &dyn Fn(usize) -> bool| {
            (0..asked.needles.len()).any(|at| asked.needles.get(at).is_some_and(|needle| needle.is_target) && is(at))
        };
        let target_ours = targets(&|at| places.in_ours.get(at) == Some(&true) && whole(&at));
        let target_theirs = targets(&|at| {
            places.is_foreign(at) && asked.needles.get(at).is_some_and(|needle| needle.kind != Kind::Word)
        });
        let sender = foreign.iter().any(|at| is_sender(asked, places, *at, theirs));
        let by_name = foreign.iter().any(|at| names(asked, *at, &stems));
        let flag = |is: bool| f64::from(u8::from(is));
        let is_prose = values > 0 && beside >= PROSE_WORDS;
        let signs = [
            flag(addresses > 0),
            flag(codes > 0),
            flag(numbers > 0),
            words.min(6) as f64 / 6.0,
            words as f64 / all_words.max(1) as f64,
            flag(is_prose),
            flag(values > 0 && beside < BARE_WORDS),
            flag(is_told),
            flag(reader),
            flag(has_asked),
            flag(question),
            flag(ends),
            flag(delegated),
            flag((question || ends) && !has_asked),
            flag(addresses > 0 && is_prose),
            flag(values > 0 && !has_asked),
            flag(foreign.is_empty()),
            ours_whole.count() as f64 / asked.leaves.max(1) as f64,
            flag(target_ours),
            flag(target_theirs),
            values.min(4) as f64 / 4.0,
            flag(sender),
            flag(by_name),
            flag(delegated && reader),
        ];
        let shown = foreign.iter().filter_map(|at| asked.needles.get(*at)).filter(|needle| needle.kind != Kind::Whole);
        let shown = shown.min_by_key(|needle| needle.kind as u8).map(|needle| {
            let is_hosted = matches!(needle.kind, Kind::Mail | Kind::Host);
            let host = needle.text.rsplit('@').next().filter(|_| is_hosted);
            (needle.kind.as_str(), host.map(str::to_owned))
        });
        Self {
            tool: asked.tool.clone(),
            value: shown,
            is_asked_for: delegated || has_asked && target_ours,
            is_spoken_to: reader,
            is_ordered: is_told || reader,
            is_outbound: foreign.iter().any(|at| asked.needles.get(*at).is_some_and(|needle| needle.kind.is_address())),
            signs,
        }
    }

    /// How probable it is that the data, and not the user, had this done.
    pub fn confidence(&self) -> f64 {
        let sum = self.signs.iter().zip(SIGNS).fold(BIAS, |sum, (sign, (_, weight))| sum + sign * weight);
        (1.0 / (1.0 + (-sum).exp()) * 1000.0).round() / 1000.0
    }

    /// What it is worth; nothing where little speaks for it.
    pub fn severity(&self) -> Option<Severity> {
        let sure = self.confidence();
        match () {
            () if sure < LEAST => None,
            // Whoever asks for what was read to be used is given it, unless that speaks to the reader.
            () if sure < PROBABLE || self.is_asked_for && !self.is_spoken_to => Some(Severity::Low),
            () if sure >= SURE && self.is_ordered && self.is_outbound && !self.is_asked_for => Some(Severity::High),
            () => Some(Severity::Medium),
        }
    }

    /// The signs, for `train/provenance.py`.
    pub fn signs(&self) -> impl Iterator<Item = (&'static str, f64)> {
        SIGNS.into_iter().map(|(name, _)| name).zip(self.signs)
    }
}

/// The sentence around a place.
fn sentence(text: &str, at: usize) -> &str {
    let from = text.floor_char_boundary(at.saturating_sub(SENTENCE_BYTES));
    let to = text.ceil_char_boundary(at.saturating_add(SENTENCE_BYTES).min(text.len()));
    let middle = text.floor_char_boundary(at.min(to));
    let (before, behind) = (text.get(from..middle).unwrap_or_default(), text.get(middle..to).unwrap_or_default());
    let stops = [". ", "! ", "? ", ": "];
    let by_mark = before.rfind(MARKS).map(|at| at + 1);
    let begin = stops.iter().filter_map(|stop| before.rfind(stop).map(|at| at + 2)).chain(by_mark).max().unwrap_or(0);
    let by_mark = behind.find(MARKS);
    let end = stops.iter().filter_map(|stop| behind.find(stop)).chain(by_mark).min().unwrap_or(behind.len());
    text.get(text.ceil_char_boundary(from + begin)..middle + end).unwrap_or_default()
}

/// The text around a place.
fn around(text: &str, at: usize) -> &str {
    let from = text.floor_char_boundary(at.saturating_sub(AROUND.0));
    let to = text.ceil_char_boundary(at.saturating_add(AROUND.1).min(text.len()));
    text.get(from..to).unwrap_or_default()
}

/// Words of the sentence that belong to none of the call's values.
fn beside(asked: &Asked, foreign: &[usize], sentence: &str) -> usize {
    let of_values = |word: &str| {
        foreign
            .iter()
            .filter_map(|at| asked.needles.get(*at))
            .any(|needle| !matches!(needle.kind, Kind::Word | Kind::Whole) && needle.text.contains(word))
    };
    words::split(sentence).filter(|word| !of_values(word)).count()
}

/// Whether a mail address stands where senders and owners stand: "From: ", `"email": "`.
fn is_sender(asked: &Asked, places: &Places, at: usize, theirs: &str) -> bool {
    const KEYS: [&str; 12] =
        ["from", "von", "от", "de", "mail", "email", "e-mail", "contact", "owner", "account", "sender", "absender"];
    let is_mail = asked.needles.get(at).is_some_and(|needle| needle.kind == Kind::Mail);
    is_mail
        && places.in_theirs.get(at).into_iter().flatten().any(|place| {
            let from = theirs.floor_char_boundary(place.saturating_sub(60));
            let line = theirs.get(from..*place).unwrap_or_default().rsplit(['\n', ',']).next().unwrap_or_default();
            let Some((key, _)) = line.rsplit_once(':') else { return false };
            let key = key.trim_matches(|c: char| !c.is_alphanumeric());
            KEYS.iter().any(|known| key.ends_with(known))
        })
}

/// Whether the user named whom a mail address is of: "reply to Lucy", lucy.b@.
fn names(asked: &Asked, at: usize, said: &[String]) -> bool {
    let mail = asked.needles.get(at).filter(|needle| needle.kind == Kind::Mail);
    mail.and_then(|needle| needle.text.split('@').next())
        .is_some_and(|local| words::split(local).any(|part| part.chars().count() >= 3 && said.contains(&stem(part))))
}
