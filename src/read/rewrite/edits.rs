//! What is changed in a body before it is forwarded: a list of ranges of its bytes and what takes their place.
//!
//! Invariants: what no edit names stays byte for byte; no byte is changed by two edits: the second is refused, and its
//! caller decides; without an edit the body is handed on as it is, not copied.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// One body and the edits of it, in the order of their places. They may come in any order, and strangers say how many there are, so
/// that putting one between others must not move all of those.
#[derive(Debug)]
pub struct Edits {
    body: Bytes,
    list: BTreeMap<Place, Edit>,
}

/// Where an edit begins, whether it replaces something (insertions stand before that), and how many came before it.
type Place = (usize, bool, usize);

#[derive(Debug)]
struct Edit {
    range: Range<usize>,
    with: Bytes,
}

/// Why an edit was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Another edit changes some of its bytes, or it would insert into the middle of them.
    Overlap,
    /// It names bytes that the body does not have.
    Outside,
}

impl Edits {
    /// No edits yet of `body`.
    pub fn of(body: &Bytes) -> Self {
        Self { body: body.clone(), list: BTreeMap::new() }
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Puts `with` before the byte `at`. Of several at one place, the first comes first; all of them stand before what
    /// replaces that byte.
    ///
    /// # Errors
    /// [`Refused`]; nothing is changed then.
    pub fn insert(&mut self, at: usize, with: impl Into<Bytes>) -> Result<(), Refused> {
        self.replace(at..at, with)
    }

    /// Puts `with` in place of `range`, which may be empty. Inside of a JSON string it has to be escaped already.
    ///
    /// # Errors
    /// [`Refused`]; nothing is changed then.
    pub fn replace(&mut self, range: Range<usize>, with: impl Into<Bytes>) -> Result<(), Refused> {
        if range.start > range.end || range.end > self.body.len() {
            return Err(Refused::Outside);
        }
        let place = (range.start, !range.is_empty(), self.list.len());
        let runs_into = |(_, former): (&Place, &Edit)| former.range.end > range.start;
        let is_run_into = |(_, next): (&Place, &Edit)| next.range.start < range.end;
        if self.list.range(..place).next_back().is_some_and(runs_into)
            || self.list.range(place..).next().is_some_and(is_run_into)
        {
            return Err(Refused::Overlap);
        }
        self.list.insert(place, Edit { range, with: with.into() });
        Ok(())
    }

    /// How long the body will be.
    pub fn len_after(&self) -> usize {
        let removed: usize = self.list.values().map(|edit| edit.range.len()).sum();
        let added: usize = self.list.values().map(|edit| edit.with.len()).sum();
        self.body.len() - removed + added
    }

    /// The body as it is forwarded.
    pub fn apply(self) -> Bytes {
        if self.list.is_empty() {
            return self.body;
        }
        let mut out = BytesMut::with_capacity(self.len_after());
        let mut done = 0;
        for Edit { range, with } in self.list.values() {
            out.extend_from_slice(self.body.get(done..range.start).unwrap_or_default());
            out.extend_from_slice(with);
            done = range.end;
        }
        out.extend_from_slice(self.body.get(done..).unwrap_or_default());
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edited(body: &'static [u8], edits: &[(Range<usize>, &'static str)]) -> Result<String, Refused> {
        let mut all = Edits::of(&Bytes::from_static(body));
        for (range, with) in edits {
            all.replace(range.clone(), *with)?;
        }
        Ok(String::from_utf8(all.apply().to_vec()).unwrap())
    }

    #[test]
    fn without_an_edit_the_body_is_not_copied() {
        let body = Bytes::from(vec![b'x'; 1000]);
        let same = Edits::of(&body).apply();
        assert_eq!(same.as_ptr(), body.as_ptr());
    }

    #[test]
    fn edits_apply_in_the_order_of_their_places() {
        assert_eq!(
            edited(b"0123456789", &[(7..8, "X"), (2..4, ""), (0..0, "a"), (10..10, "z")]).unwrap(),
            "a01456X89z"
        );
        // Insertions at one place keep the order in which they were asked for, before what replaces the byte there.
        assert_eq!(edited(b"0123", &[(1..1, "a"), (1..1, "b"), (1..2, "X")]).unwrap(), "0abX23");
        assert_eq!(edited(b"0123", &[(1..2, "X"), (1..1, "a"), (2..2, "b"), (2..3, "Y")]).unwrap(), "0aXbY3");
    }

    #[test]
    fn no_byte_is_changed_twice() {
        for (first, second) in [(2..5, 4..6), (2..5, 0..3), (2..5, 3..3), (2..5, 2..5), (3..3, 2..5), (2..5, 0..9)] {
            assert_eq!(edited(b"0123456789", &[(first, "X"), (second, "Y")]), Err(Refused::Overlap));
        }
        assert_eq!(edited(b"0123", &[(4..5, "X")]), Err(Refused::Outside));
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = 3..2;
        assert_eq!(edited(b"0123", &[(reversed, "X")]), Err(Refused::Outside));
    }

    proptest! {
        /// Against a copy that is put together byte by byte.
        #[test]
        fn what_is_not_named_stays(
            body in proptest::collection::vec(any::<u8>(), 0..60),
            wanted in proptest::collection::vec((0usize..64, 0usize..6, proptest::collection::vec(any::<u8>(), 0..5)), 0..12),
        ) {
            let body = Bytes::from(body);
            let mut edits = Edits::of(&body);
            let mut taken: Vec<(Range<usize>, Vec<u8>)> = Vec::new();
            for (at, len, with) in wanted {
                let range = at..at + len;
                let clash = taken.iter().any(|(other, _)| {
                    let (a, b) = (other, &range);
                    match (a.is_empty(), b.is_empty()) {
                        (true, true) => false,
                        (true, false) => b.start < a.start && a.start < b.end,
                        (false, true) => a.start < b.start && b.start < a.end,
                        (false, false) => a.start < b.end && b.start < a.end,
                    }
                });
                let outcome = edits.replace(range.clone(), with.clone());
                let expected = match (range.end > body.len(), clash) {
                    (true, _) => Err(Refused::Outside),
                    (false, true) => Err(Refused::Overlap),
                    (false, false) => Ok(()),
                };
                prop_assert_eq!(outcome, expected);
                if outcome.is_ok() {
                    taken.push((range, with));
                }
            }
            let mut expected = Vec::new();
            for at in 0..=body.len() {
                for (_, with) in taken.iter().filter(|(range, _)| range.is_empty() && range.start == at) {
                    expected.extend_from_slice(with);
                }
                for (_, with) in taken.iter().filter(|(range, _)| !range.is_empty() && range.start == at) {
                    expected.extend_from_slice(with);
                }
                if at < body.len() && !taken.iter().any(|(range, _)| range.contains(&at)) {
                    expected.push(body[at]);
                }
            }
            prop_assert_eq!(edits.len_after(), expected.len());
            prop_assert_eq!(edits.apply().to_vec(), expected);
        }
    }
}
