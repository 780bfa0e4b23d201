//! The forms in which streets and their numbers are written.

use super::items::{Item, Kind};
use super::words;

/// Most words of a street's name.
const NAME_WORDS_MAX: usize = 8;

/// Where such streets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `1600 Amphitheatre Parkway`, `PO Box 12`.
    English,
    /// `12 bis, rue de la Paix`.
    French,
    /// `Hauptstr. 12`, `Berliner Allee 5`.
    German,
    /// `Via Roma, 12`, `Calle de Alcalá 45`.
    Southern,
    /// `ul. Piękna 10/5`.
    Polish,
}

impl Form {
    pub(super) const ALL: [Self; 5] = [Self::English, Self::French, Self::German, Self::Southern, Self::Polish];
}

/// What begins with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Street {
    None,
    /// What follows decides.
    Open,
    /// A street and its number; its last item that is known to belong to it.
    Whole(usize),
}

/// The street of a form that begins with item `at`.
pub(super) fn street_at(text: &[u8], items: &[Item], at: usize, form: Form) -> Street {
    let reader = Reader { text, items };
    match form {
        Form::English => reader.english(at),
        Form::French => reader.french(at),
        Form::German => reader.german(at),
        Form::Southern => reader.marked(at, words::is_southern_street),
        Form::Polish => reader.marked(at, |word, _| words::is_polish_street(word)),
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    text: &'a [u8],
    items: &'a [Item],
}

impl Reader<'_> {
    fn kind(&self, at: usize) -> Option<Kind> {
        self.items.get(at).map(|item| item.kind)
    }

    fn word(&self, at: usize) -> &[u8] {
        self.items.get(at).map_or(&[], |item| item.word(self.text))
    }

    /// `Flat 3, 22b Baker Street` and what begins with the number of the house.
    fn english(&self, at: usize) -> Street {
        if self.kind(at) == Some(Kind::Capital) {
            let is_box = matches!(self.word(at), b"P.O" | b"PO" | b"Box");
            let is_flat = words::is_unit(self.word(at));
            return match (self.kind(at + 1), self.kind(at + 2)) {
                (None, _) if is_box || is_flat => Street::Open,
                (Some(Kind::Capital), None) if is_box => Street::Open,
                (Some(Kind::Capital), Some(Kind::Number)) if is_box && self.word(at + 1) == b"Box" => {
                    Street::Whole(at + 2)
                }
                (Some(Kind::Number), None) if is_flat => Street::Open,
                (Some(Kind::Number), Some(Kind::Break)) if is_flat => self.numbered(at + 3),
                (Some(Kind::Number), Some(Kind::Number)) if is_flat => self.numbered(at + 2),
                _ => Street::None,
            };
        }
        self.numbered(at)
    }

    /// `22b Baker Street`.
    fn numbered(&self, at: usize) -> Street {
        match self.kind(at) {
            None => return Street::Open,
            Some(Kind::Number) => {}
            Some(_) => return Street::None,
        }
        for at in at + 1..at + 2 + NAME_WORDS_MAX {
            let is_first = !matches!(self.kind(at - 1), Some(Kind::Capital | Kind::Ordinal | Kind::Small));
            let word = self.word(at);
            match self.kind(at) {
                None => return Street::Open,
                Some(Kind::Ordinal) => {}
                Some(Kind::Capital) if words::is_english_street(word) => {
                    if !is_first || word == b"Broadway" {
                        return Street::Whole(at);
                    }
                    // `5 Avenue of the Americas`, `12 Avenue B`, `1234 Highway 61`.
                    match self.kind(at + 1) {
                        None => return Street::Open,
                        Some(Kind::Small) if self.word(at + 1) == b"of" => return Street::Whole(at + 1),
                        Some(Kind::Number) => return Street::Whole(at + 1),
                        Some(Kind::Capital) if self.word(at + 1).len() == 1 => return Street::Whole(at + 1),
                        _ => {}
                    }
                }
                Some(Kind::Capital) => {}
                Some(Kind::Small) if !is_first && words::is_link(word) => {}
                Some(Kind::Small | Kind::Number | Kind::Break) => return Street::None,
            }
        }
        Street::None
    }

    /// `12 bis, rue de la Paix`.
    fn french(&self, at: usize) -> Street {
        if self.kind(at) != Some(Kind::Number) {
            return Street::None;
        }
        let mut at = at + 1;
        let is_repeat = matches!(self.word(at), b"bis" | b"ter" | b"quater" | b"B" | b"T" | b"A" | b"C");
        at += usize::from(is_repeat);
        at += usize::from(self.kind(at) == Some(Kind::Break));
        if self.kind(at).is_none() {
            return Street::Open;
        }
        if !words::is_french_street(self.word(at)) {
            return Street::None;
        }
        match self.kind(at + 1) {
            None => Street::Open,
            Some(Kind::Capital | Kind::Ordinal) => Street::Whole(at + 1),
            Some(Kind::Small) if words::is_french_link(self.word(at + 1)) => Street::Whole(at + 1),
            Some(_) => Street::None,
        }
    }

    /// `Hauptstr. 12`, `Berliner Allee 5`, `Straße des 17. Juni 135`.
    fn german(&self, at: usize) -> Street {
        if self.kind(at) != Some(Kind::Capital) {
            return Street::None;
        }
        let numbered = |marker: usize| match self.kind(marker + 1) {
            None => Street::Open,
            Some(Kind::Number) => Street::Whole(marker + 1),
            Some(_) => Street::None,
        };
        if words::ends_as_german_street(self.word(at)) {
            return numbered(at);
        }
        let is_marker = |at: usize| self.kind(at) == Some(Kind::Capital) && words::is_german_street(self.word(at));
        match self.kind(at + 1) {
            None => Street::Open,
            Some(Kind::Capital) if is_marker(at + 1) => numbered(at + 1),
            Some(Kind::Small) if is_marker(at) && words::is_german_link(self.word(at + 1)) => self.named(at + 1),
            Some(_) => Street::None,
        }
    }

    /// `Via Roma 12`, `ul. 3 Maja 10`: a word for a street, its name, its number.
    fn marked(&self, at: usize, is_street: impl Fn(&[u8], bool) -> bool) -> Street {
        let Some(item) = self.items.get(at) else { return Street::None };
        let is_word = matches!(item.kind, Kind::Capital | Kind::Small);
        let is_capital = item.kind == Kind::Capital || item.has_point(self.text);
        if is_word && is_street(item.word(self.text), is_capital) { self.named(at + 1) } else { Street::None }
    }

    /// A name and a number, which begin with item `at`.
    fn named(&self, at: usize) -> Street {
        let mut has_name = false;
        for at in at..at + NAME_WORDS_MAX {
            match self.kind(at) {
                None => return Street::Open,
                Some(Kind::Number) if has_name => return Street::Whole(at),
                Some(Kind::Capital) => has_name = true,
                Some(Kind::Number | Kind::Ordinal) => {}
                Some(Kind::Small) if words::is_southern_link(self.word(at)) => {}
                Some(Kind::Break) if has_name => match self.kind(at + 1) {
                    None => return Street::Open,
                    Some(Kind::Number) => return Street::Whole(at + 1),
                    Some(Kind::Small) if words::is_number_sign(self.word(at + 1)) => {}
                    Some(_) => return Street::None,
                },
                Some(Kind::Small | Kind::Break) => return Street::None,
            }
        }
        Street::None
    }
}
