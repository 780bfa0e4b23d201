//! Lines for a person: no control characters, and as wide as what they are written to.

use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write as _};

use crate::cli::scan::plain;

/// Where lines go.
pub(super) struct Screen {
    out: BufWriter<Stdout>,
    /// Columns; `None` where lines stay as long as they are.
    width: Option<usize>,
    /// Nobody reads any more.
    closed: bool,
}

impl Screen {
    /// Standard output, so wide or as wide as the terminal.
    pub(super) fn new(width: Option<u16>) -> Self {
        let stdout = io::stdout();
        let asked =
            || rustix::termios::tcgetwinsize(&stdout).ok().map(|size| size.ws_col).filter(|columns| *columns >= 20);
        let width = width.or_else(|| if stdout.is_terminal() { asked() } else { None });
        Self { out: BufWriter::new(stdout), width: width.map(usize::from), closed: false }
    }

    pub(super) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Whether there is nobody to write for any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// A line, cut to the width.
    pub(super) fn line(&mut self, text: &str) {
        let text = plain(text);
        let cut = self.width.and_then(|width| text.char_indices().nth(width)).map_or(text.len(), |(at, _)| at);
        self.raw(text.get(..cut).unwrap_or_default());
    }

    /// A text with its own line breaks, each line begun with `indent` and wrapped between words.
    pub(super) fn text(&mut self, indent: &str, text: &str) {
        for line in text.lines() {
            let line = plain(&line.replace('\t', "    "));
            let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(indent.len()).max(8));
            for piece in wrap(&line, room) {
                self.raw(&format!("{indent}{piece}"));
            }
        }
    }

    /// A line as it is.
    pub(super) fn raw(&mut self, line: &str) {
        self.closed |= writeln!(self.out, "{}", line.trim_end()).is_err();
    }

    /// What was written is out.
    pub(super) fn flush(&mut self) {
        self.closed |= self.out.flush().is_err();
    }
}

/// A line in pieces of at most `room` characters, cut at blanks where there are any.
fn wrap(line: &str, room: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while let Some((end, _)) = rest.char_indices().nth(room) {
        // A blank right behind the room ends a piece, too.
        let within = rest.get(..end).unwrap_or_default();
        let cut = if rest.get(end..).is_some_and(|behind| behind.starts_with(' ')) {
            end
        } else {
            within.rfind(' ').filter(|at| *at > 0).unwrap_or(end)
        };
        let (piece, behind) = rest.split_at(cut);
        pieces.push(piece);
        rest = behind.trim_start_matches(' ');
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(rest);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_cut_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("unbreakable", 4), ["unbr", "eaka", "ble"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("äöü äöü", 3), ["äöü", "äöü"]);
    }

    proptest! {
        #[test]
        fn no_piece_is_too_long_and_no_word_is_lost(line in "[a-z ]{0,60}|\\PC{0,40}", room in 1usize..20) {
            let pieces = wrap(&line, room);
            prop_assert!(pieces.iter().all(|piece| piece.chars().count() <= room));
            let solid = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(solid(&pieces.concat()), solid(&line));
        }
    }
}
