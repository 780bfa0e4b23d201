//! What the settings would have asked of a call and a replay does not: so that nobody takes its silence for an answer.

use weir_config::Settings;
use weir_models::Slot;

use super::{StartError, models};
use crate::replay::Unasked;

/// All of it under these settings.
pub(crate) fn all(settings: &Settings) -> Result<Vec<Unasked>, StartError> {
    let models = models::named(settings)?.into_iter().filter(|(slot, is_on, _)| *is_on && *slot != Slot::Judge);
    let mut all: Vec<Unasked> =
        models.map(|(slot, ..)| Unasked { name: slot.name(), what: "the model of the settings is not run" }).collect();
    let safety = settings.output_safety.enabled;
    for (is_on, name, what) in [
        (
            safety && settings.toxicity.enabled && settings.toxicity.model.is_none(),
            "toxicity",
            "whether an answer is toxic is not looked at",
        ),
        (safety, "output_safety", "whether an answer repeats its system prompt is not looked at"),
        (settings.judge.enabled && settings.action_router.enabled, "judge", "no verdict is asked for"),
        (
            settings.security_analysis.zones.enabled,
            "zones",
            "what is data in a message is not told apart: it counts as the words of who sent it",
        ),
    ] {
        all.extend(is_on.then_some(Unasked { name, what }));
    }
    Ok(all)
}
