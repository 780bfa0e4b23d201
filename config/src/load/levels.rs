//! What the thresholds of the second stage must keep between them.

use super::layers::Layers;
use crate::error::{Place, Violation};
use crate::settings::Settings;

/// Refuses a threshold that lies below one that asks for less.
pub(super) fn check(settings: &Settings, layers: &mut Layers) {
    let analysis = &settings.security_analysis;
    let written = [
        ("security_analysis.finding_threshold", analysis.finding_threshold),
        ("security_analysis.flag_threshold", analysis.flag_threshold),
        ("security_analysis.block_threshold", analysis.block_threshold),
    ];
    let mut before: Option<(&str, f64)> = None;
    for (path, level) in written.into_iter().filter_map(|(path, level)| Some((path, level?))) {
        if let Some((other, least)) = before.filter(|(_, least)| level < *least) {
            let written = layers.written.get(path);
            layers.violations.push(Violation {
                place: written.map_or(Place::Variable(path), |written| written.place.clone()),
                path: Some(path.to_owned()),
                problem: format!("got {level}, which is below `{other}`, {least}"),
                accepted: Some(
                    "the three thresholds in the order finding, flag, block, none below the one before it".to_owned(),
                ),
                advice: format!("set it to {least} or more, or `{other}` to less"),
            });
        }
        before = Some((path, level));
    }
}
