//! Where two turns of the user meet. A phrase that was cut in two stands whole in neither of them; the model reads them as one
//! conversation, so the end of the former turn and the beginning of the last one are looked at together.

use weir_config::vocab::{ByteSpan, Finding};
use weir_inference::{Hit, Part, PartKind};

use crate::inspect::RequestView;

/// Bytes looked at of each of the two turns. A phrase is shorter; and this text is new with every turn, so that its length
/// is what the look costs.
const SIDE_BYTES_MAX: usize = 96;
/// Stands between them.
const BETWEEN: &str = " ";

/// The two sides of one seam.
#[derive(Debug)]
pub(super) struct Seam {
    text: String,
    /// Where the last turn begins in `text`.
    last_at: usize,
    /// Numbers of the two turns' parts.
    parts: [usize; 2],
}

impl Seam {
    /// The seam between the last two turns of the user. `None` where there is one turn only.
    pub(super) fn of(view: &RequestView) -> Option<Self> {
        let users = || view.parts.iter().enumerate().rev().filter(|(_, part)| part.kind == PartKind::User);
        let (last, end) = users().next()?;
        // The last turn may have several texts: the first of them follows the former turn.
        let (last, beginning) =
            users().take_while(|(_, part)| part.message == end.message).last().unwrap_or((last, end));
        let (former, before) = users().find(|(_, part)| part.message != end.message)?;
        let before = view.text.get(before.range.clone())?;
        let after = view.text.get(beginning.range.clone())?;
        let tail = before.get(before.ceil_char_boundary(before.len().saturating_sub(SIDE_BYTES_MAX))..)?;
        let head = after.get(..after.floor_char_boundary(SIDE_BYTES_MAX.min(after.len())))?;
        (!tail.is_empty() && !head.is_empty()).then(|| Self {
            last_at: tail.len() + BETWEEN.len(),
            text: [tail, BETWEEN, head].concat(),
            parts: [former, last],
        })
    }

    /// The text to look at.
    pub(super) fn part(&self) -> Part<'_> {
        Part { text: &self.text, kind: PartKind::User }
    }

    /// What was found across the seam, as found in the last turn, with what of it stands there; what one of the turns shows by
    /// itself is `known` already.
    pub(super) fn across(&self, hits: Vec<Hit>, known: &[Hit]) -> Vec<Hit> {
        let [former, last] = self.parts;
        let is_known = |finding: &Finding| {
            let here = known.iter().filter(|hit| hit.part == former || hit.part == last);
            here.into_iter().any(|hit| hit.finding.finding_type == finding.finding_type)
        };
        let placed = hits.into_iter().filter_map(|hit| {
            let mut finding = hit.finding;
            let ByteSpan { start, end } = finding.span?;
            let crosses = start + BETWEEN.len() < self.last_at && end > self.last_at;
            (crosses && !is_known(&finding)).then(|| {
                finding.span = Some(ByteSpan { start: 0, end: end - self.last_at });
                finding.metadata.insert("split_over_turns".to_owned(), "true".to_owned());
                Hit { part: last, finding }
            })
        });
        placed.collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use weir_config::vocab::Dialect;

    use super::*;
    use crate::inspect::{Declared, read_request};

    fn seam_of(messages: &Value) -> Option<(String, usize, [usize; 2])> {
        let body = json!({ "messages": messages }).to_string();
        let view = read_request(Dialect::ChatCompletions, Declared::default(), body.as_bytes(), usize::MAX);
        Seam::of(&view).map(|seam| (seam.text, seam.last_at, seam.parts))
    }

    #[test]
    fn the_last_two_turns_of_the_user_meet() {
        let said = |role: &str, text: &str| json!({"role": role, "content": text});
        let two = json!([said("user", "one"), said("assistant", "yes?"), said("user", "two"), said("tool", "data")]);
        assert_eq!(seam_of(&two), Some(("one two".to_owned(), 4, [0, 2])));
        assert_eq!(seam_of(&json!([said("system", "be kind"), said("user", "one")])), None);
        // Two texts of one turn are no seam; the first of the last turn follows the former one.
        let texts =
            json!({"role": "user", "content": [{"type": "text", "text": "two"}, {"type": "text", "text": "three"}]});
        assert_eq!(seam_of(&json!([texts])), None);
        assert_eq!(seam_of(&json!([said("user", "one"), texts])), Some(("one two".to_owned(), 4, [0, 1])));
    }

    #[test]
    fn its_sides_are_bounded_and_cut_at_characters() {
        let long = "ü".repeat(1000);
        let (text, last_at, _) =
            seam_of(&json!([{"role": "user", "content": &long}, {"role": "user", "content": &long}])).unwrap();
        assert_eq!((text.len(), last_at), (2 * SIDE_BYTES_MAX + 1, SIDE_BYTES_MAX + 1));
    }
}
