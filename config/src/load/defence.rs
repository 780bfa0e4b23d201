//! What the settings of the boundary defence must keep between them.

use super::Origin;
use super::layers::Layers;
use crate::error::{Place, Violation};
use crate::settings::{MarkerKind, Settings};

const ENABLED: &str = "boundary_defense.enabled";
const KIND: &str = "boundary_defense.datamarking.marker_strategy.kind";

/// Refuses a defence that would wrap nothing and a fixed marker that is not given. The overlay never keeps a start from
/// succeeding: what only it asks for stays off.
pub(super) fn check(settings: &mut Settings, layers: &mut Layers) {
    let defence = &mut settings.boundary_defense;
    if defence.enabled && defence.wrap_roles.is_empty() {
        if layers.written.get(ENABLED).is_some_and(|written| written.origin == Origin::Overlay) {
            defence.enabled = false;
            layers.warnings.push(format!(
                "the runtime overlay sets `{ENABLED}`, and `boundary_defense.wrap_roles` is empty: the defence stays off; name \
                 a role, such as tool"
            ));
        } else {
            let problem = "got true, but `boundary_defense.wrap_roles` is empty".to_owned();
            refuse(layers, ENABLED, problem, "name a role in `wrap_roles`, such as tool, or switch the defence off");
        }
    }
    let marking = settings.boundary_defense.datamarking;
    if marking.kind == MarkerKind::Fixed && marking.value.is_none() {
        let problem = "got fixed, but `boundary_defense.datamarking.marker_strategy.value` is not set".to_owned();
        refuse(layers, KIND, problem, "set `value` to a character from U+E000 to U+F8FF, such as U+E0F0");
    }
    if marking.enabled && !settings.boundary_defense.enabled {
        layers.warnings.push(format!(
            "`boundary_defense.datamarking.enabled` has no effect while `{ENABLED}` is false: marks belong to the defence"
        ));
    }
}

fn refuse(layers: &mut Layers, path: &'static str, problem: String, advice: &str) {
    let written = layers.written.get(path);
    layers.violations.push(Violation {
        place: written.map_or(Place::Variable(path), |written| written.place.clone()),
        path: Some(path.to_owned()),
        problem,
        accepted: None,
        advice: advice.to_owned(),
    });
}
