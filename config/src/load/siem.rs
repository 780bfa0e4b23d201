//! What receivers of security events need: an address, and a name of their own.

use std::collections::BTreeSet;

use super::layers::Layers;
use crate::error::Violation;
use crate::settings::{SIEM_RECEIVERS_MAX, Settings};

const RECEIVERS: &str = "siem_export.receivers";

/// Refuses receivers that could never be sent anything; an export without receivers is a warning.
pub(super) fn check(settings: &Settings, layers: &mut Layers) {
    let export = &settings.siem_export;
    if export.enabled && export.receivers.is_empty() {
        let said = format!("siem_export.enabled: there is no receiver to send events to; set `{RECEIVERS}`");
        layers.warnings.push(said);
    }
    if export.receivers.len() > SIEM_RECEIVERS_MAX {
        let problem = format!("{} receivers are more than {SIEM_RECEIVERS_MAX}", export.receivers.len());
        refuse(layers, RECEIVERS.to_owned(), problem);
    }
    let mut names = BTreeSet::new();
    for (place, receiver) in export.receivers.iter().enumerate() {
        if receiver.address().is_none() {
            let problem = "has to be tcp://host:port or tls://host:port".to_owned();
            refuse(layers, format!("{RECEIVERS}[{place}].url"), problem);
        }
        if !names.insert(receiver.label(place)) {
            refuse(layers, format!("{RECEIVERS}[{place}].name"), "is the name of another receiver, too".to_owned());
        }
    }
}

fn refuse(layers: &mut Layers, path: String, problem: String) {
    let Some(written) = layers.written.get(RECEIVERS) else { return };
    let (place, advice) = (written.place.clone(), "correct it".to_owned());
    layers.violations.push(Violation { place, path: Some(path), problem, accepted: None, advice });
}
