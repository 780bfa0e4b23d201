//! What is to be changed in a body before it is forwarded: found where the body is read, and once more where models have found names
//! in it, because no byte may be changed twice.

use std::time::Instant;

use bytes::Bytes;
use weir_config::Settings;
use weir_config::settings::PiiAction;
use weir_config::vocab::Finding;

use super::exchange::Exchange;
use crate::defence::{Ask, weave};
use crate::exchange::{Analysis, Skip};
use crate::inspect::RequestView;
use crate::process::Core;
use crate::rewrite::Changes;
use crate::settle::marks::is_name;
use crate::settle::redact::redaction;
use crate::settle::text::{RawBody, is_as_sent};

/// The detector that finds names.
const NAMES: &str = "ner";

/// What is asked for.
pub(super) struct Asked {
    /// Whether personal data is to be taken out of the body.
    redact: bool,
    /// It is only counted.
    redact_shadow: bool,
    /// Whether a message of ours may be put into it.
    advises: bool,
    /// What is to be fenced in.
    defence: Option<Box<Ask>>,
    deadline: Instant,
}

impl Asked {
    pub(super) fn of(settings: &Settings, exchange: &Exchange, analyse: bool, deadline: Instant) -> Self {
        Self {
            redact: settings.pii_action != PiiAction::AlertOnly,
            redact_shadow: settings.pii_shadow_mode,
            advises: analyse && exchange.advisory_applies(),
            defence: Ask::of(settings, exchange.shape()),
            deadline,
        }
    }

    /// The changes of the body in `raw`, or of `decoded`, what is in its content coding. Of `findings`, names are taken out.
    pub(super) fn changes(
        &self,
        view: &RequestView,
        raw: &RawBody,
        decoded: Option<Bytes>,
        findings: &[Finding],
    ) -> Option<Box<Changes>> {
        // Nobody knows yet whether something will be found that the model is to be told of.
        let advised = decoded.clone().filter(|_| self.advises && view.may_be_advised());
        if !self.redact && self.defence.is_none() {
            return advised.map(|decoded| Box::new(Changes { decoded: Some(decoded), ..Changes::default() }));
        }
        let as_sent = is_as_sent(raw, view);
        // A compressed body that has to be changed goes on without its coding.
        let body = as_sent.then_some(&raw.body[..]).or(decoded.as_deref());
        let mut changes =
            if self.redact { redaction(view, body, findings, Some(self.deadline)) } else { Changes::default() };
        if self.redact_shadow {
            changes.list.clear();
            changes.replaced.clear();
        }
        if let Some(ask) = &self.defence {
            weave(view, body, ask, &mut changes);
        }
        changes.decoded = advised.or(decoded.filter(|_| !as_sent && !changes.list.is_empty()));
        Some(Box::new(changes))
    }
}

/// All that finding the changes once more takes, on a thread of the pool.
pub(super) struct Again {
    pub(super) asked: Asked,
    pub(super) view: Box<RequestView>,
    pub(super) raw: RawBody,
    pub(super) decoded: Option<Bytes>,
    /// Models are given only the beginning of the texts.
    pub(super) is_partial: bool,
}

impl Again {
    /// The changes with the names among `findings`; `None` where there are none.
    pub(super) fn changes(self, findings: &[Finding]) -> Option<Box<Changes>> {
        if !findings.iter().any(is_name) {
            return None;
        }
        let mut changes = self.asked.changes(&self.view, &self.raw, self.decoded, findings)?;
        changes.is_partial = self.is_partial;
        Some(changes)
    }
}

/// Whether names are to be taken out of what is forwarded, so that it waits for the model that finds them.
pub(super) fn wants_names(core: &Core, exchange: &Exchange) -> bool {
    let settings = exchange.settings();
    exchange.redacts()
        && settings.security_analysis.ner.enabled
        && core.process.parts.inspection.analyser.is_ready(NAMES)
}

/// Whether names are not looked for although they should be: the analysis is left out for a reason that passes.
pub(super) fn misses_names(core: &Core, exchange: &Exchange) -> bool {
    matches!(exchange.journal.inspection.analysis, Analysis::Skipped(skip) if skip != Skip::Disabled)
        && wants_names(core, exchange)
}
