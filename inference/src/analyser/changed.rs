//! Definitions of tools that come back changed: what the analyser says of them.

use std::ops::Range;

use weir_config::vocab::{Finding, Severity};

use super::{Analyser, Scratch, place};
use crate::names::{ANOTHER_TOOL, TOOL_CHANGED};
use crate::part::{HITS_MAX, Hit, Part};
use crate::pins::{Compared, Offered, Tool};
use crate::plan::{Call, ToolChanges};

/// The tools whose first definition came in this call.
#[derive(Debug, Default)]
pub(super) struct Met(Vec<Tool>);

impl Analyser {
    /// Says what is to be said of the definition of a tool, before the last `doubtful` findings. Whether that is anything.
    pub(super) fn note_change(
        &self,
        scratch: &Scratch,
        (index, part, offered): (usize, &Part<'_>, Offered),
        call: &Call<'_>,
        met: &mut Met,
        (out, doubtful): (&mut Vec<Hit>, usize),
    ) -> bool {
        let key = offered.key();
        let mut compared = self.pins.compare(key, part.text);
        let is_first = compared == Compared::First;
        if is_first {
            met.0.push(key);
        }
        // New to this agent, it may be known to others: from another server, or from this one before it turned bad.
        let is_newcomer = is_first && offered.own.is_some();
        if is_newcomer {
            compared = self.pins.compare(offered.shared, part.text);
        }
        let (new, is_other) = match compared {
            Compared::Known | Compared::First => return false,
            // Two tools of one name, as two servers may have them.
            Compared::Changed(_) | Compared::Other(_) if !is_newcomer && met.0.contains(&key) => {
                self.pins.take(key, part.text);
                return false;
            }
            Compared::Changed(new) => (new, is_newcomer),
            Compared::Other(new) => (new, is_newcomer || offered.own.is_none()),
        };
        let order = self.changes.order(part.text, &new, &self.compiled.guards, call.deadline);
        // A second server's tool of the same name is no change of the first one's: refused each time, neither could be used again.
        let refuses = call.plan.tool_changes == ToolChanges::Refuse && !is_other;
        // An order stays new, so that it is found each time. Who ran out of time does not know.
        let is_taken = order.is_none() && !refuses && !call.is_late();
        match (is_taken, is_newcomer) {
            (true, false) => self.pins.take(key, part.text),
            (false, true) => self.pins.forget(key),
            (true, true) | (false, false) => {}
        }
        let said = order.map(|order| (order.range.clone(), order.finding()));
        let first = new.first().cloned().unwrap_or_default();
        for (range, finding) in [Some((first, changed(&new, refuses, is_other))), said].into_iter().flatten() {
            if out.len() < HITS_MAX {
                out.insert(out.len() - doubtful, place(index, part.text, range, finding, &scratch.hidden));
            }
        }
        true
    }
}

/// The finding that there is something new.
fn changed(new: &[Range<usize>], refuses: bool, is_other: bool) -> Finding {
    let severity = if refuses { Severity::High } else { Severity::Low };
    let about = if is_other {
        "A tool has the name of one that was sent before and says something else: another server's, or one that changed"
    } else {
        "The definition of a tool says something that it did not say when it was sent before"
    };
    let mut finding = Finding::new(TOOL_CHANGED, severity, 1.0, "rules", about);
    finding.metadata.insert("new_sentences".to_owned(), new.len().to_string());
    if is_other {
        finding.metadata.insert(ANOTHER_TOOL.to_owned(), "true".to_owned());
    }
    finding
}
