//! A marked message to channels, for whoever wants to know whether they work.

use weir_config::settings::Alerts as AlertSettings;

use super::channel::Channel;
use super::message::Notice;
use crate::outbound::Client;

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// Type and place of the channel.
    pub channel: String,
    /// Why it did not accept the message. Says nothing of its address but the host.
    pub outcome: Result<(), String>,
}

/// Sends a marked message to the channel that is called so (`slack_2`, or `2`), or to all of them. What it opens at PagerDuty it
/// closes again. Empty where there is no such channel.
pub async fn try_channels(settings: &AlertSettings, client: &Client, wanted: Option<&str>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (index, settings) in settings.effective().into_iter().enumerate() {
        let channel = Channel::new(index, settings, None, client.clone());
        let is_meant = |wanted| channel.label == wanted || (index + 1).to_string() == wanted;
        if wanted.is_none_or(is_meant) {
            let outcome = channel.send(&Notice::test()).await.map_err(|failure| failure.to_string());
            trials.push(Trial { channel: channel.label, outcome });
        }
    }
    trials
}
