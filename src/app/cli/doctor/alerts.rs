//! The channels of `alerts`: whether each receiver can be reached. No message is sent; `weir alerts test` does that.

use std::time::Duration;

use weir_config::settings::Settings;

use super::diagnosis::Diagnosis;
use crate::alerts::{Trial, reach_channels};
use crate::outbound::Client;

const TOPIC: &str = "alerts";

/// A line for each channel; none where alerts are off.
pub(super) fn channels(settings: &Settings) -> Vec<Diagnosis> {
    if !settings.alerts.enabled {
        return Vec::new();
    }
    match reach(settings) {
        Ok(reached) => reached.into_iter().map(diagnosis).collect(),
        Err(error) => vec![Diagnosis::fail(TOPIC, error)],
    }
}

fn reach(settings: &Settings) -> Result<Vec<Trial<String>>, String> {
    let connect_limit = Duration::from_millis(settings.limits.connection_timeout_ms);
    let client = Client::new(&settings.egress, settings.upstream_ca_file.as_deref(), connect_limit);
    let client = client.map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| error.to_string())?.block_on(reach_channels(&settings.alerts, &client)))
}

fn diagnosis(Trial { channel, outcome }: Trial<String>) -> Diagnosis {
    match outcome {
        Ok(receiver) => Diagnosis::ok(
            TOPIC,
            format!("{channel}: {receiver} accepts connections; `weir alerts test {channel}` sends it a message"),
        ),
        Err(reason) => Diagnosis::fail(
            TOPIC,
            format!("{channel}: {reason}; correct alerts.channels, or let the gateway through to the receiver"),
        ),
    }
}
