//! What is taken out of a text that may come in pieces: personal data, credentials, or both; and how much of it is settled while
//! the rest is still to come.
//!
//! Invariants: the pieces are in order and do not overlap, and of two that do nothing is left; whatever follows a text, what is
//! taken out before [`Taker::settled`] stays the same, if [`CONTEXT_BYTES`] before it are shown again. The scans are those of the
//! `pii` and `secrets` detectors, without their bounds on findings.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Instant;

use memchr::memmem;
use parking_lot::Mutex;

use crate::decode::Runs;
use crate::fold::Folded;
use crate::part::PartKind;
use crate::personal::personal_within;
use crate::personal_coded::Plain;
use crate::pii::may_go_on;
use crate::rule_matcher::{Limits, MatcherScratch, RuleMatcher};
use crate::rules::{self, LoadError};
use crate::secret;

/// Bytes before what is settled that a scan must see again: words that say what a number is stand nearer.
pub const CONTEXT_BYTES: usize = 512;
/// Longest piece of personal data, with what a scan looks at behind it: the domain of an address is 190 bytes at most.
const PERSONAL_BYTES_MAX: usize = 512;
/// Longest bank account number with its blanks; groups of it may be letters only.
const IBAN_BYTES_MAX: usize = 48;
/// Runs of letters and digits between two looks at the clock.
const RUNS_STEP: usize = 1024;
/// Most of a private key that waits for its last line; the largest in use are a fifth of that.
const KEY_BYTES_MAX: usize = 16 << 10;

/// What is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taking {
    /// Personal data.
    pub personal: bool,
    /// Credentials.
    pub secrets: bool,
}

/// A piece that is taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Where it stands, in bytes of the text, at character boundaries.
    pub range: Range<usize>,
    /// What stands in its place: `[PII:EMAIL]`, `[SECRET:JWT]`.
    pub tag: &'static str,
    /// It is a private key whose last line has not come.
    open: bool,
}

/// Finds what is taken out; keeps its memory from text to text.
#[derive(Debug)]
pub struct Taker {
    taking: Taking,
    memory: MatcherScratch,
    folded: Folded,
}

/// The rules about credentials, compiled when somebody first asks.
#[derive(Debug)]
struct Secrets {
    matcher: RuleMatcher,
    /// How the words begin, in lower case, after which a credential may go on behind a blank.
    openers: Vec<memmem::Finder<'static>>,
    /// Longest match.
    reach: usize,
}

impl Secrets {
    fn new() -> Result<Self, LoadError> {
        let loaded = rules::secrets()?;
        let mut words: Vec<String> = Vec::new();
        for (rule, text) in loaded.rules.iter().zip(&loaded.texts) {
            if !spans_blanks(&text.pattern) {
                continue;
            }
            let first = |literal: &String| literal.split(' ').next().unwrap_or_default().to_ascii_lowercase();
            words.extend(rule.literals.iter().map(first).filter(|word| !word.is_empty()));
        }
        words.sort_unstable();
        words.dedup();
        let openers = words.iter().map(|word| memmem::Finder::new(word.as_bytes()).into_owned()).collect();
        let reach = loaded.rules.iter().map(|rule| rule.before + rule.after).max().unwrap_or_default();
        Ok(Self { matcher: RuleMatcher::of_operator(loaded.rules)?, openers, reach })
    }

    /// `None` where a rule file of the binary is unreadable, which a test keeps from being released.
    fn get() -> Option<&'static Self> {
        static SECRETS: OnceLock<Option<Secrets>> = OnceLock::new();
        SECRETS.get_or_init(|| Self::new().ok()).as_ref()
    }
}

/// Whether a pattern may match a blank.
fn spans_blanks(pattern: &str) -> bool {
    pattern.contains([' ']) || pattern.contains("\\s") || pattern.contains("[^")
}

impl Taker {
    /// Takes out what `taking` names. The first that takes credentials compiles their rules, for milliseconds.
    pub fn new(taking: Taking) -> Self {
        if taking.secrets {
            Secrets::get();
        }
        Self { taking, memory: MatcherScratch::default(), folded: Folded::default() }
    }

    /// What is taken out of a text that plays this role.
    pub fn pieces(&mut self, text: &str, kind: PartKind) -> Vec<Taken> {
        self.pieces_by(text, kind, None).unwrap_or_default()
    }

    /// The same; `None` where the deadline passed before all of the text had been looked at.
    pub fn pieces_by(&mut self, text: &str, kind: PartKind, deadline: Option<Instant>) -> Option<Vec<Taken>> {
        let mut found = Vec::new();
        if self.taking.personal {
            // No longer than what waits while a text grows.
            let personal = personal_within(text, kind, PERSONAL_BYTES_MAX / 2, deadline)?.into_iter();
            found.extend(personal.map(|one| Taken { range: one.range(), tag: one.tag(), open: false }));
        }
        if self.taking.secrets {
            self.credentials(text, kind, deadline, &mut found)?;
        }
        Some(joined(found))
    }

    /// `None` where the deadline passed.
    fn credentials(
        &mut self,
        text: &str,
        kind: PartKind,
        deadline: Option<Instant>,
        found: &mut Vec<Taken>,
    ) -> Option<()> {
        let Some(secrets) = Secrets::get() else { return Some(()) };
        let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if is_late() {
            return None;
        }
        self.folded.fold(text);
        let bytes = self.folded.bytes(text);
        let limits = Limits { scope: kind.bit(), jailbreak: false, credentials: true, deadline };
        if secrets.matcher.scan(bytes, limits, &mut self.memory).cut {
            return None;
        }
        let mut keys = KeyEnds::default();
        let mut take = |from: usize, to: usize, kind: &str| {
            let (start, end) = self.folded.original(text, from, to);
            let (end, open) = if kind == "private_key_pem" { keys.find(text, end, text.len()) } else { (end, false) };
            found.push(Taken { range: start..end, tag: secret_tag(kind), open });
        };
        for seen in &self.memory.matches {
            let Some(rule) = secrets.matcher.rule(seen.rule) else { continue };
            let value = bytes.get(seen.start..seen.end).unwrap_or_default();
            if let Some(kind) = &rule.secret_type
                && secret::is_genuine(value, rule.entropy, rule.digit)
            {
                take(seen.start, seen.end, kind);
            }
        }
        for (number, run) in Runs::new(bytes).enumerate() {
            if number % RUNS_STEP == RUNS_STEP - 1 && is_late() {
                return None;
            }
            if let Some(bare) = secret::bare(bytes, run.start, run.end) {
                take(bare.start, bare.end, bare.secret_type);
            }
        }
        Some(())
    }

    /// How much of a text that goes on is settled, where these are the pieces of it: up to its last words in most prose.
    pub fn settled(&mut self, text: &str, found: &[Taken]) -> usize {
        let reach = if self.taking.secrets {
            PERSONAL_BYTES_MAX.max(Secrets::get().map_or(0, |secrets| secrets.reach))
        } else {
            PERSONAL_BYTES_MAX
        };
        // Nothing is so long that it could have begun before that and still be going on.
        let sure = text.floor_char_boundary(text.len().saturating_sub(reach));
        let mut at = self.last_break(text, sure).unwrap_or(sure);
        if self.taking.personal
            && let Some(begins) = self.address_under_way(text.get(sure..).unwrap_or_default())
        {
            at = at.min(sure + begins);
        }
        for piece in found.iter().rev() {
            let waits = piece.open && piece.range.len() < KEY_BYTES_MAX;
            if piece.range.start < at && (piece.range.end > at || waits) {
                at = piece.range.start;
            }
        }
        at
    }

    /// Where near the end of a text an address begins whose postal code may still come, however its characters are spelled.
    fn address_under_way(&mut self, tail: &str) -> Option<usize> {
        let mut begins = |text: &str| {
            self.folded.fold(text);
            may_go_on(self.folded.bytes(text)).map(|at| self.folded.original(text, at, at + 1).0)
        };
        let coded = Plain::of(tail).and_then(|plain| Some(plain.place(begins(&plain.text)?)));
        begins(tail).into_iter().chain(coded).min()
    }

    /// The last place behind `sure` before which everything has ended: the beginning of a word behind one that nothing has as its part.
    fn last_break(&mut self, text: &str, sure: usize) -> Option<usize> {
        let mut limit = text.len();
        if self.taking.secrets
            && let Some(secrets) = Secrets::get()
        {
            let tail = text.get(sure..).unwrap_or_default().to_ascii_lowercase();
            let opened = secrets.openers.iter().filter_map(|opener| opener.find(tail.as_bytes())).min();
            limit = opened.map_or(limit, |at| sure + at);
        }
        let tail = text.get(sure..limit)?;
        let mut ends = tail.char_indices().rev().filter(|(_, c)| c.is_ascii_whitespace()).map(|(at, _)| at);
        ends.find(|end| {
            let word = tail.get(..*end).unwrap_or_default();
            let begin = word.rfind(|c: char| c.is_ascii_whitespace()).map_or(0, |at| at + 1);
            let near =
                word.get(word.floor_char_boundary(word.len().saturating_sub(IBAN_BYTES_MAX))..).unwrap_or_default();
            // The first word behind `sure` may have been cut.
            begin > 0 && self.ends_all(word.get(begin..).unwrap_or_default()) && !begins_iban(near)
        })
        .map(|end| sure + end + 1)
    }

    /// Whether nothing has this word, with a blank behind it, as its part.
    fn ends_all(&mut self, word: &str) -> bool {
        const MONTHS: [&[u8]; 12] =
            [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
        self.folded.fold(word);
        let bytes = self.folded.bytes(word);
        let digits = bytes.iter().any(u8::is_ascii_digit);
        let run = bytes.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        let last = bytes.get(bytes.len() - run..).unwrap_or_default();
        if last.is_empty() {
            // `(555) 234-5678`, `March 9, 1975`.
            return !(digits && matches!(bytes.last(), Some(b')' | b',')));
        }
        // The scan reads so much of a word as the name of a month.
        let letters = last.iter().rev().take(10).take_while(|byte| byte.is_ascii_alphabetic()).count();
        let name = last.get(last.len() - letters..).and_then(|name| name.get(..3));
        let month = name.is_some_and(|name| MONTHS.iter().any(|month| name.eq_ignore_ascii_case(month)));
        // `9 March 1975`, `JK 33 27 95 A`, and groups of digits.
        !month && last.len() != 2 && last.iter().any(u8::is_ascii_alphabetic)
    }
}

/// Whether a word begins as a bank account number does: a country and two digits.
fn begins_iban(text: &str) -> bool {
    text.as_bytes().split(|byte| !byte.is_ascii_alphanumeric()).any(|word| {
        let (Some(country), Some(check)) = (word.get(..2), word.get(2..4)) else { return false };
        country.iter().all(u8::is_ascii_alphabetic) && check.iter().all(u8::is_ascii_digit)
    })
}

/// Kinds of credentials that get a tag of their own; operators' rules may name some.
const TAGS_MAX: usize = 1024;

/// What stands in the place of a credential of this kind: `[SECRET:JWT]`. Made once for each kind, so that a text full of them
/// holds no tag more than once.
pub fn secret_tag(kind: &str) -> &'static str {
    static TAGS: Mutex<BTreeMap<Box<str>, &'static str>> = Mutex::new(BTreeMap::new());
    let mut tags = TAGS.lock();
    if let Some(tag) = tags.get(kind) {
        return tag;
    }
    if tags.len() >= TAGS_MAX || kind.len() > TAG_BYTES_MAX {
        return "[SECRET]";
    }
    let tag: &'static str = Box::leak(format!("[SECRET:{}]", kind.to_ascii_uppercase()).into_boxed_str());
    tags.insert(kind.into(), tag);
    tag
}

/// Longest name of a kind that becomes a tag.
const TAG_BYTES_MAX: usize = 64;

/// Finds where private keys end, one after the other in the order of one text: what one search has passed over is not searched
/// again, or a text of nothing but first lines would be read from each of them to its end.
#[derive(Debug, Default)]
pub struct KeyEnds {
    /// The limit that the two results below hold for: each is where a search began, and what it found from there.
    limit: usize,
    last_line: Option<(usize, Option<usize>)>,
    foreign: Option<(usize, Option<usize>)>,
}

impl KeyEnds {
    /// Where a private key ends whose match, which sees only its beginning, ends at `end`, and whether its last line is missing.
    /// Nothing behind `limit` belongs to it.
    pub fn find(&mut self, text: &str, end: usize, limit: usize) -> (usize, bool) {
        const LAST_LINE: &str = "-----END ";
        if self.limit != limit {
            *self = Self { limit, ..Self::default() };
        }
        let rest = |from: usize| text.get(from..limit).unwrap_or_default();
        let Some(last) = known_or(&mut self.last_line, end, || rest(end).find(LAST_LINE)) else {
            // It was cut: what could be more of it goes with it.
            let is_foreign = |c: char| !(c.is_ascii_alphanumeric() || c.is_whitespace() || "+/=\\:,-".contains(c));
            let foreign = known_or(&mut self.foreign, end, || rest(end).find(is_foreign));
            return (foreign.unwrap_or(end + rest(end).len()), foreign.is_none());
        };
        let behind = last + LAST_LINE.len();
        // A last line is short.
        let line = rest(behind);
        let line = line.get(..line.floor_char_boundary(64 + 5)).unwrap_or_default();
        let dashes = line.find("-----").filter(|at| *at < 64);
        (dashes.map_or(behind, |at| behind + at + 5), dashes.is_none() && limit < behind + 64)
    }
}

/// What a search from `from` on finds, where one from further in front has found nothing or something behind it; else what `search`
/// finds there.
fn known_or(
    known: &mut Option<(usize, Option<usize>)>,
    from: usize,
    search: impl FnOnce() -> Option<usize>,
) -> Option<usize> {
    if let Some((searched, found)) = *known
        && searched <= from
        && found.is_none_or(|at| at >= from)
    {
        return found;
    }
    let found = search().map(|at| from + at);
    *known = Some((from, found));
    found
}

/// In order, without overlaps: the longer one gives the tag.
fn joined(mut found: Vec<Taken>) -> Vec<Taken> {
    found.sort_by_key(|piece| (piece.range.start, Reverse(piece.range.end)));
    let mut all: Vec<Taken> = Vec::with_capacity(found.len());
    for piece in found {
        match all.last_mut() {
            Some(last) if piece.range.start < last.range.end => {
                if piece.range.len() > last.range.len() {
                    last.tag = piece.tag;
                }
                last.range.end = last.range.end.max(piece.range.end);
                last.open |= piece.open;
            }
            _ => all.push(piece),
        }
    }
    all
}

#[cfg(test)]
mod tests;
