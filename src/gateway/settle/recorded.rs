//! A recorded call as it can be inspected once more: its texts as they are stored, part by part. The record keeps no zones, and of
//! files a description.

use weir_config::vocab::part::{PartForm, PartKind, PartRecord, PartSide};
use weir_inference::Part;
use weir_storage::record::SpanRecord;

use super::inspection::{Parts, Place, RequestedCall, Subject};
use super::seam::{Seam, Seams};

/// A recorded call. One that says nothing of its parts counts as a user's words and a model's answer.
pub(crate) struct Recorded<'a>(pub(crate) &'a SpanRecord);

/// The parts of a record that names none.
const BARE: [(PartSide, PartKind); 2] = [(PartSide::Request, PartKind::User), (PartSide::Response, PartKind::Output)];

impl<'a> Recorded<'a> {
    fn of_side(&self, side: PartSide) -> &'a str {
        let text = match side {
            PartSide::Request => &self.0.prompt,
            PartSide::Response => &self.0.response,
        };
        text.as_deref().unwrap_or_default()
    }

    /// The text of a part; empty where none is kept, so that the numbers of parts stay.
    fn text(&self, part: &PartRecord) -> &'a str {
        let kept = part.text.as_ref().and_then(|range| {
            let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
            self.of_side(part.side).get(range)
        });
        kept.unwrap_or_default()
    }

    fn is_bare(&self) -> bool {
        self.0.parts.is_empty()
    }
}

impl Subject for Recorded<'_> {
    fn parts(&self) -> Parts<'_> {
        if self.is_bare() {
            return BARE.into_iter().map(|(side, kind)| Part { text: self.of_side(side), kind }).collect();
        }
        self.0.parts.iter().map(|part| Part { text: self.text(part), kind: part.kind }).collect()
    }

    /// Which side a part is of: the record does not say where in its body it stood.
    fn place(&self, part: usize) -> Place {
        let known = self.0.parts.get(part);
        let side = known.map(|known| known.side).or_else(|| BARE.get(part).map(|(side, _)| *side));
        let location = match side {
            Some(PartSide::Response) => "response",
            Some(PartSide::Request) | None => "request",
        };
        let is_credential = known.is_some_and(|known| known.form == PartForm::Credential);
        Place::new(location.to_owned(), known.map(|_| part), is_credential)
    }

    fn seams(&self) -> Seams {
        Seam::all(&self.0.parts, |part| Some(self.text(part)))
    }

    fn calls(&self) -> Vec<RequestedCall<'_>> {
        let parts = self.0.parts.iter().enumerate();
        parts
            .filter(|(_, part)| part.side == PartSide::Response && part.kind == PartKind::ToolCall)
            .map(|(at, part)| {
                let name = part.tool.as_ref().and_then(|tool| tool.name.as_deref()).unwrap_or_default();
                RequestedCall { name, arguments: self.text(part), writes: false, place: self.place(at) }
            })
            .collect()
    }
}
