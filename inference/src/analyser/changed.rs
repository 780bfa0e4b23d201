//! Definitions of tools that come back changed: what the analyser says of them.

use std::ops::Range;

use weir_config::vocab::{Finding, Severity};

use super::{Analyser, Scratch, place};
use crate::part::{HITS_MAX, Hit, Part};
use crate::pins::{Compared, Tool};
use crate::plan::{Call, ToolChanges};

/// The finding type of a definition that changed.
const TOOL_CHANGED: &str = "tool_definition_changed";

/// The tools whose first definition came in this call.
#[derive(Debug, Default)]
pub(super) struct Met(Vec<Tool>);

impl Analyser {
    /// Says what is to be said of the definition of a tool, before the last `doubtful` findings. Whether that is anything.
    pub(super) fn note_change(
        &self,
        scratch: &Scratch,
        (index, part, tool): (usize, &Part<'_>, Tool),
        call: &Call<'_>,
        met: &mut Met,
        (out, doubtful): (&mut Vec<Hit>, usize),
    ) -> bool {
        let new = match self.pins.compare(tool, part.text) {
            Compared::Known => return false,
            Compared::First => {
                met.0.push(tool);
                return false;
            }
            // Two tools of one name, as two servers may have them.
            Compared::Changed(_) if met.0.contains(&tool) => {
                self.pins.take(tool, part.text);
                return false;
            }
            Compared::Changed(new) => new,
        };
        let order = self.changes.order(part.text, &new, &self.compiled.guards, call.deadline);
        let refuses = call.plan.tool_changes == ToolChanges::Refuse;
        // An order stays new, so that it is found each time. Who ran out of time does not know.
        if order.is_none() && !refuses && !call.is_late() {
            self.pins.take(tool, part.text);
        }
        let said = order.map(|order| (order.range.clone(), order.finding()));
        let first = new.first().cloned().unwrap_or_default();
        for (range, finding) in [Some((first, changed(&new, refuses))), said].into_iter().flatten() {
            if out.len() < HITS_MAX {
                out.insert(out.len() - doubtful, place(index, part.text, range, finding, &scratch.hidden));
            }
        }
        true
    }
}

/// The finding that there is something new.
fn changed(new: &[Range<usize>], refuses: bool) -> Finding {
    let severity = if refuses { Severity::High } else { Severity::Low };
    let about = "The definition of a tool says something that it did not say when it was sent before";
    let mut finding = Finding::new(TOOL_CHANGED, severity, 1.0, "rules", about);
    finding.metadata.insert("new_sentences".to_owned(), new.len().to_string());
    finding
}
