//! `weir alerts test`: tries the channels of `alerts` before an alert depends on them. The messages go out as the
//! gateway's would, under the same settings.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;

use super::common::{EXIT_USAGE, Options, complain, say, sources};
use crate::alerts::{Trial, try_channels};
use crate::boot::StartError;
use crate::outbound::Client;

/// Subcommands of `weir alerts`.
#[derive(Debug, Clone, Subcommand)]
pub(super) enum AlertsCommand {
    /// Send a message that is marked as a test to a channel, or to all of them. 0 when every one has accepted it, 1 when not.
    Test {
        /// The channel's place in the settings, from 1, or its name in the metrics, e.g. slack_2; all of them without it.
        channel: Option<String>,
    },
}

/// Sends the messages and says which channels accepted theirs.
pub(super) fn run(options: &Options, command: &AlertsCommand) -> Result<ExitCode, StartError> {
    let AlertsCommand::Test { channel } = command;
    let loaded = weir_config::load(&sources(options))?;
    let settings = &loaded.settings;
    let connect_limit = Duration::from_millis(settings.limits.connection_timeout_ms);
    let client = Client::new(&settings.egress, settings.upstream_ca_file.as_deref(), connect_limit)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| StartError::Thread { what: "the network runtime", source })?;
    let trials = runtime.block_on(try_channels(&settings.alerts, &client, channel.as_deref()));
    if trials.is_empty() {
        complain(&match channel {
            Some(channel) => format!("`alerts.channels` has no channel `{channel}`"),
            None => "there is no channel: set `alerts.channels`".to_owned(),
        });
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    if !settings.alerts.enabled {
        say("warning: `alerts.enabled` is false: the gateway sends no alerts");
    }
    for Trial { channel, outcome } in &trials {
        match outcome {
            Ok(()) => say(&format!("{channel:<12}  accepted")),
            Err(reason) => say(&format!("{channel:<12}  FAILED: {reason}")),
        }
    }
    let all = trials.iter().all(|trial| trial.outcome.is_ok());
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
