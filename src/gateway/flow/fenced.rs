//! What became of the boundary defence of one request, as metrics, events and a finding tell it. Does no I/O.

use weir_config::vocab::{Finding, Severity};

use super::exchange::Exchange;
use crate::meter::{DefenceError, DefenceSkip};
use crate::process::Core;
use crate::rewrite::{Defence, DefenceOutcome, Marks};

/// Counts what was done. `fits` is false when there was no memory for the changed body, and the request goes on as it came.
pub(super) fn account(core: &Core, exchange: &mut Exchange, defence: Option<Defence>, fits: bool) {
    let settings = &exchange.settings().boundary_defense;
    if !settings.enabled {
        // Only where it would have had something to do.
        if exchange.shape().is_some() {
            core.meter.defence_skipped(DefenceSkip::Disabled);
        }
        return;
    }
    if exchange.shape().is_none() {
        return core.meter.defence_skipped(DefenceSkip::UnsupportedProvider);
    }
    // Nobody had the time to look at the body, or it was no JSON.
    let Some(defence) = defence.filter(|defence| defence.outcome != DefenceOutcome::Unread) else {
        return failed(core, exchange, DefenceError::Parse, "the body could not be read");
    };
    if !fits && !defence.shadow {
        return failed(core, exchange, DefenceError::Serialize, "there was no memory for the request with it");
    }
    if defence.crowded {
        failed(core, exchange, DefenceError::Parse, "the request has more texts than are told apart, for those beyond");
    }
    let provider = exchange.journal.ids.provider.label();
    if defence.reminder == Some(false) {
        core.meter.defence_failed(DefenceError::Serialize);
    }
    if defence.outcome == DefenceOutcome::Applied {
        core.meter.defence_applied(provider, defence.shadow, defence.wrapped, defence.bytes);
        if !defence.shadow {
            exchange.journal.event("boundary_applied", "the contents of messages were wrapped in delimiter tags");
        }
    } else {
        core.meter.defence_skipped(DefenceSkip::NoToolMessages);
    }
    if defence.reminder == Some(true) {
        core.meter.defence_reminded(provider);
    }
    if let Some(marks) = defence.marks.filter(|marks| marks.marks > 0) {
        core.meter.datamarked(provider, marks.shadow, marks.marks);
        if !marks.shadow {
            exchange.journal.note(marked(marks));
        }
    }
}

fn failed(core: &Core, exchange: &mut Exchange, error: DefenceError, why: &str) {
    core.meter.defence_failed(error);
    exchange.journal.event("boundary_left_out", &format!("the boundary defence was left out: {why}"));
    exchange.journal.tag("boundary_defense", "left_out".to_owned());
}

/// Says what was marked: it is the gateway's own doing, and no sign of anything.
fn marked(marks: Marks) -> Finding {
    let description = "white space in data was replaced by a marker before the request was forwarded";
    let mut finding = Finding::new("datamarking_applied", Severity::Info, 1.0, "datamarking", description);
    finding.location.push_str("request");
    finding.metadata.insert("zones".to_owned(), marks.zones.to_string());
    finding.metadata.insert("marks".to_owned(), marks.marks.to_string());
    finding
}
