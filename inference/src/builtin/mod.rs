//! The detectors that are part of the binary. They share the fold, one pass over the literals of all rules and the list of
//! words that may be encoded, which the analyser makes once for each text ([`SharedLook`](crate::shared_look::SharedLook)).

mod compiled;
mod jailbreak;
mod pii;
mod rules;
mod secrets;

pub(crate) use compiled::{Compiled, Listener};
pub(crate) use rules::judge;

use std::sync::Arc;

use crate::detector::Detector;

/// Numbers of the detectors whose shared work is measured as theirs.
pub(crate) const RULES: usize = 0;
pub(crate) const JAILBREAK: usize = 1;
pub(crate) const SECRETS: usize = 3;

/// The detectors, in the order in which they run and are named.
pub(crate) fn detectors(compiled: &Arc<Compiled>) -> [Arc<dyn Detector>; 4] {
    [
        Arc::new(rules::Rules(Arc::clone(compiled))),
        Arc::new(jailbreak::Jailbreak(Arc::clone(compiled))),
        Arc::new(pii::Pii),
        Arc::new(secrets::Secrets(Arc::clone(compiled))),
    ]
}
