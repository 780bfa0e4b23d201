//! Channels tried out, for whoever wants to know whether they work: by a marked message, or by no more than a connection.

use std::sync::Arc;

use weir_config::settings::Alerts as AlertSettings;

use super::book::Book;
use super::channel::{Channel, With};
use super::message::Notice;
use crate::outbound::Client;

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial<T> {
    /// Type and place of the channel.
    pub channel: String,
    /// Why it failed, where it did. Says nothing of the receiver's address but the host.
    pub outcome: Result<T, String>,
}

/// Sends a marked message to the channel that is called so (`slack_2`, or `2`), or to all of them. What it opens at PagerDuty it
/// closes again. Empty where there is no such channel.
pub async fn try_channels(settings: &AlertSettings, client: &Client, wanted: Option<&str>) -> Vec<Trial<()>> {
    let mut trials = Vec::new();
    for (index, channel) in channels(settings, client).enumerate() {
        let is_meant = |wanted| channel.label == wanted || (index + 1).to_string() == wanted;
        if wanted.is_none_or(is_meant) {
            let outcome = channel.send(&Notice::test()).await.map_err(|failure| failure.to_string());
            trials.push(Trial { channel: channel.label, outcome });
        }
    }
    trials
}

/// Connects to the receivers of all channels and tells them nothing; gives host and port of each.
pub async fn reach_channels(settings: &AlertSettings, client: &Client) -> Vec<Trial<String>> {
    let mut trials = Vec::new();
    for channel in channels(settings, client) {
        let outcome = channel.reach().await;
        trials.push(Trial { channel: channel.label, outcome });
    }
    trials
}

fn channels(settings: &AlertSettings, client: &Client) -> impl Iterator<Item = Channel> {
    // Nothing is read of a store that this process may not even have.
    let with = With { client: client.clone(), book: Arc::new(Book::new()), console: settings.console_url.clone() };
    let make = move |(index, settings)| Channel::new(index, settings, None, with.clone());
    settings.effective().into_iter().enumerate().map(make)
}
