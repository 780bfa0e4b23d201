//! Credentials that were found in a call: whatever else of its record repeats one loses it, too, also where nothing beside it says
//! what it is.
//!
//! Invariants: however many are remembered, a text is read once, and the memory this takes is bounded by its length; what would be
//! more pieces than that allows is taken out together with all that follows. Of a very long credential the beginning is
//! remembered, and as much as it was long goes wherever that beginning stands.

use std::ops::Range;
use std::sync::OnceLock;
use std::time::Instant;

use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton as _;
use aho_corasick::nfa::contiguous::NFA;
use memchr::memmem;
use weir_inference::secret_tag;

/// Different credentials that are remembered of a call.
const MAX: usize = 64;
/// A shorter credential could be any word.
const BYTES_MIN: usize = 6;
/// So much of a longer one is remembered.
pub const BYTES_MAX: usize = 1024;
/// Shortest beginning of a credential that is taken from the end of a text that was cut.
const BEGINNING_MIN: usize = 4;
/// Longest end of such a text that is compared with them.
const END_BYTES_MAX: usize = 256;
/// Bytes between two looks at the clock.
const STEP_BYTES: usize = 64 << 10;

/// Pieces of a text that are taken out, for a text of so many bytes: who writes more of them wants memory.
pub const fn pieces_max(bytes: usize) -> usize {
    1024 + bytes / 16
}

/// A piece of a text, and what is kept instead.
pub type Piece = (Range<usize>, &'static str);

/// What was found, and what is kept instead.
#[derive(Debug, Default)]
pub struct Credentials {
    list: Vec<Known>,
    search: OnceLock<Option<Search>>,
}

/// One of them.
#[derive(Debug)]
struct Known {
    beginning: Box<str>,
    /// Bytes of all of it.
    bytes: usize,
    tag: &'static str,
}

/// Finds all of them in one pass.
#[derive(Debug)]
struct Search {
    automaton: NFA,
    /// By the number of each: what is still to be taken behind its beginning, and behind those of others that it ends with.
    more: Vec<usize>,
}

impl Credentials {
    /// Remembers the credential in these words, which were found as one of this kind.
    pub fn add(&mut self, kind: &str, words: &str) {
        self.add_beginning(kind, words, words.len());
    }

    /// The same where the words are the beginning of so many bytes.
    pub fn add_beginning(&mut self, kind: &str, words: &str, bytes: usize) {
        let value = value(kind, words);
        if value.len() < BYTES_MIN || self.is_full() {
            return;
        }
        let bytes = value.len() + bytes.saturating_sub(words.len());
        let beginning = value.get(..value.floor_char_boundary(BYTES_MAX)).unwrap_or_default();
        if let Some(known) = self.list.iter_mut().find(|known| &*known.beginning == beginning) {
            if bytes > known.bytes {
                known.bytes = bytes;
                self.search = OnceLock::new();
            }
            return;
        }
        self.list.push(Known { beginning: beginning.into(), bytes, tag: secret_tag(kind) });
        self.search = OnceLock::new();
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether no more are remembered.
    pub fn is_full(&self) -> bool {
        self.list.len() >= MAX
    }

    /// Where they stand in a text: in order, without overlaps, and no more than [`pieces_max`], the last of which then reaches to the
    /// end. `None` where the deadline passed.
    pub fn places(&self, text: &str, deadline: Option<Instant>) -> Option<Vec<Piece>> {
        let Some(search) = self.search.get_or_init(|| Search::of(&self.list)) else { return Some(Vec::new()) };
        search.places(text, &self.list, deadline)
    }

    /// Takes them out of a text, and the beginning of one from the end of a text that was cut.
    pub fn mask(&self, text: &mut String) {
        if self.list.is_empty() {
            return;
        }
        let places = self.places(text, None).unwrap_or_default();
        if !places.is_empty() {
            *text = without(text, &places);
        }
        let Some(whole) = text.strip_suffix('…') else { return };
        let end = whole.get(whole.ceil_char_boundary(whole.len().saturating_sub(END_BYTES_MAX))..).unwrap_or_default();
        let begins = |known: &Known| Some((known.begins_in(end)?, known.tag));
        let Some((at, tag)) = self.list.iter().filter_map(begins).min_by_key(|(at, _)| *at) else { return };
        let kept = whole.len() - end.len() + at;
        *text = format!("{}{tag}…", whole.get(..kept).unwrap_or_default());
    }
}

impl Known {
    /// Where a text's end is a beginning of it, as much of it as there is.
    fn begins_in(&self, end: &str) -> Option<usize> {
        let first = self.beginning.as_bytes().get(..BEGINNING_MIN)?;
        let from = end.len().saturating_sub(self.bytes - 1);
        let starts = memmem::find_iter(end.as_bytes().get(from..)?, first).map(|at| from + at);
        let fits = |at: &usize| {
            let rest = end.as_bytes().get(*at..).unwrap_or_default();
            self.beginning
                .as_bytes()
                .get(..rest.len().min(self.beginning.len()))
                .is_some_and(|own| rest.starts_with(own))
        };
        starts.filter(|at| end.is_char_boundary(*at)).find(fits)
    }
}

impl Search {
    /// `None` where there is nothing to find.
    fn of(list: &[Known]) -> Option<Self> {
        if list.is_empty() {
            return None;
        }
        let automaton = NFA::new(list.iter().map(|known| known.beginning.as_bytes())).ok()?;
        let more = |known: &Known| {
            let ends = list.iter().filter(|other| known.beginning.ends_with(&*other.beginning));
            ends.map(|other| other.bytes - other.beginning.len()).max().unwrap_or_default()
        };
        Some(Self { automaton, more: list.iter().map(more).collect() })
    }

    fn places(&self, text: &str, list: &[Known], deadline: Option<Instant>) -> Option<Vec<Piece>> {
        let (automaton, most) = (&self.automaton, pieces_max(text.len()));
        let mut state = automaton.start_state(Anchored::No).ok()?;
        let mut pieces: Vec<Piece> = Vec::new();
        for (step, bytes) in text.as_bytes().chunks(STEP_BYTES).enumerate() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
            for (at, byte) in bytes.iter().enumerate() {
                state = automaton.next_state(Anchored::No, state, *byte);
                if !automaton.is_match(state) {
                    continue;
                }
                // The longest that ends here comes first; what else ends here lies in it.
                let number = automaton.match_pattern(state, 0).as_usize();
                let Some((known, more)) = list.get(number).zip(self.more.get(number)) else { continue };
                let found = step * STEP_BYTES + at + 1;
                let end = text.ceil_char_boundary((found + more).min(text.len()));
                join(&mut pieces, (found - known.beginning.len()..end, known.tag));
                if pieces.len() >= most {
                    pieces.iter_mut().skip(most - 1).for_each(|(range, _)| range.end = text.len());
                    return Some(pieces);
                }
            }
        }
        Some(pieces)
    }
}

/// Adds a piece that ends behind those that are there, or in the last of them: with what it touches and is of its kind it is one, and
/// with what it overlaps.
fn join(pieces: &mut Vec<Piece>, (mut range, mut tag): Piece) {
    while let Some((last, known)) = pieces.last() {
        let touches = last.end == range.start && *known == tag;
        if last.end <= range.start && !touches {
            break;
        }
        if last.len() >= range.len() {
            tag = known;
        }
        range = last.start.min(range.start)..last.end.max(range.end);
        pieces.pop();
    }
    pieces.push((range, tag));
}

/// The text with the tags of these pieces.
fn without(text: &str, pieces: &[Piece]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (range, tag) in pieces {
        out.push_str(text.get(done..range.start).unwrap_or_default());
        out.push_str(tag);
        done = range.end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

/// The credential itself, without the words that say what it is.
fn value<'a>(kind: &str, words: &'a str) -> &'a str {
    let after = |words: &'a str, mark: char| words.split_once(mark).map_or(words, |(_, value)| value);
    match kind {
        "bearer_token" => words.rsplit(' ').next().unwrap_or(words),
        "basic_auth_url" | "db_url_password" => {
            let before = words.rsplit_once('@').map_or(words, |(before, _)| before);
            before.split_once("://").map_or(before, |(_, user)| after(user, ':'))
        }
        "azure_storage_key" => words.rsplit_once("AccountKey=").map_or(words, |(_, value)| value),
        "password_assignment" | "api_key" => {
            let at = words.find(['=', ':']).map_or(0, |at| at + 1);
            let value = words.get(at..).unwrap_or_default().trim_start_matches(['=', '>']).trim();
            value.trim_end_matches([',', ';']).trim_matches(['"', '\'', '`'])
        }
        _ => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(kind: &str, words: &str, text: &str) -> String {
        let mut credentials = Credentials::default();
        credentials.add(kind, words);
        let mut text = text.to_owned();
        credentials.mask(&mut text);
        text
    }

    #[test]
    fn the_value_is_known_again_without_its_label() {
        for (kind, words, value) in [
            ("password_assignment", "PGPASSWORD = \"Qwerty6412!\"", "Qwerty6412!"),
            ("password_assignment", "admin_pwd => 'Hunter3942#',", "Hunter3942#"),
            ("password_assignment", "\"password\": \"Hunter3942#\"", "Hunter3942#"),
            ("api_key", "api_key=b7Gq2ZkP9wXr4TnV8yLm3HdS6cJf==", "b7Gq2ZkP9wXr4TnV8yLm3HdS6cJf=="),
            ("bearer_token", "Authorization: Bearer PDGrI8I.j.9pwhnae5z9kA5uNQ", "PDGrI8I.j.9pwhnae5z9kA5uNQ"),
            ("basic_auth_url", "https://deploy:eXw10oN8nzBZh2Ucqo@git.example", "eXw10oN8nzBZh2Ucqo"),
            ("db_url_password", "amqp://root:xDAyJ6asBojmK@db2.internal", "xDAyJ6asBojmK"),
            ("github_pat", "ghp_abcdef", "ghp_abcdef"),
        ] {
            let tag = format!("[SECRET:{}]", kind.to_ascii_uppercase());
            assert_eq!(
                masked(kind, words, &format!("no login for {value}.")),
                format!("no login for {tag}."),
                "{kind}"
            );
        }
    }

    #[test]
    fn of_a_text_that_was_cut_the_beginning_of_one_goes_and_short_values_stay() {
        assert_eq!(masked("npm_token", "npm_8Tx729SOK6", "curl npm_8Tx…"), "curl [SECRET:NPM_TOKEN]…");
        assert_eq!(masked("npm_token", "npm_8Tx729SOK6", "curl npm_8Tx"), "curl npm_8Tx");
        assert_eq!(masked("npm_token", "npm_8Tx729SOK6", "what came…"), "what came…");
        assert_eq!(masked("password_assignment", "pwd=a1b2c", "a1b2c"), "a1b2c");
    }

    /// Every piece that one of them, searched by itself, has at each place, joined.
    fn one_by_one(values: &[String], text: &str) -> Vec<bool> {
        let mut taken = vec![false; text.len()];
        for value in values {
            for at in 0..text.len() {
                if text.as_bytes()[at..].starts_with(value.as_bytes()) {
                    taken[at..at + value.len()].fill(true);
                }
            }
        }
        taken
    }

    proptest::proptest! {
        /// One pass finds what a search for each of them finds, also where they overlap and lie in each other.
        #[test]
        fn one_pass_finds_what_a_search_for_each_finds(
            values in proptest::collection::vec("[ab]{6,9}", 1..20),
            text in "[abé ]{0,80}",
        ) {
            let mut credentials = Credentials::default();
            values.iter().for_each(|value| credentials.add("jwt", value));
            let mut taken = vec![false; text.len()];
            let places = credentials.places(&text, None).unwrap();
            for pair in places.windows(2) {
                proptest::prop_assert!(pair[0].0.end <= pair[1].0.start);
            }
            places.into_iter().for_each(|(range, _)| taken[range].fill(true));
            proptest::prop_assert_eq!(taken, one_by_one(&values, &text));
        }
    }

    #[test]
    fn many_pieces_are_one_from_the_last_that_there_is_room_for() {
        let mut credentials = Credentials::default();
        credentials.add("password_assignment", "pwd=secret");
        let text = "secret ".repeat(20_000);
        let places = credentials.places(&text, None).unwrap();
        assert_eq!(places.len(), pieces_max(text.len()));
        assert_eq!(places.last().map(|(range, _)| range.end), Some(text.len()));
        assert_eq!(credentials.places(&text, Some(Instant::now())), None, "its deadline has passed");
        assert_eq!(credentials.places(&"secret".repeat(20_000), None).unwrap().len(), 1, "what touches is one");
    }

    #[test]
    fn of_a_long_one_as_much_goes_as_it_is_long() {
        let key: String = (0..4_000).map(|number| format!("{number:x}")).collect();
        let text = format!("a {key} b {} c {key}", &key[..BYTES_MAX - 1]);
        assert_eq!(
            masked("private_key_pem", &key, &text),
            format!("a [SECRET:PRIVATE_KEY_PEM] b {} c [SECRET:PRIVATE_KEY_PEM]", &key[..BYTES_MAX - 1])
        );
    }
}
