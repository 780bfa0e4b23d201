//! What can be asked of `weir tune`.

use std::str::FromStr;

use clap::Args;

use crate::cli::traces::{Filter, Of};

/// Options of `weir tune`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Every alarm counts as a false one: which of the calls are attacks is not known here. Give it calls that you know to be \
                  ordinary.\n\nExit codes: 0 settings are proposed, 1 no settings keep within the shares, 2 a record that cannot be read or \
                  is empty.\n\nExamples:\n  \
                  weir tune --max-alarms 1% --database service.db --since 7d\n  \
                  weir tune --max-alarms 0.5% --max-refusals 0.05% --config service.yaml --agent support-bot"
)]
pub(in crate::app::cli) struct TuneOptions {
    /// The largest share of these calls that may be flagged, e.g. `1%` or `0.01`.
    #[arg(long, value_name = "SHARE")]
    pub(super) max_alarms: Share,
    /// The largest share that `enforcement.mode: block` may refuse; a tenth of --max-alarms where it is left out.
    #[arg(long, value_name = "SHARE")]
    pub(super) max_refusals: Option<Share>,
    #[command(flatten)]
    pub(super) of: Of,
    #[command(flatten)]
    pub(super) filter: Filter,
    /// At most so many spans, the newest of each tenant first; left out, all.
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: Option<u64>,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub(super) json: bool,
}

/// A share of calls, above 0.0 up to 1.0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::app::cli) struct Share(pub(super) f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = match text.trim().strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
            // A bare 1 may be meant as one of a hundred.
            None => text.trim().parse().map(|share: f64| if share < 1.0 { share } else { f64::NAN }),
        };
        let share = share.ok().filter(|share| *share > 0.0 && *share <= 1.0);
        share.map(Self).ok_or_else(|| "a share such as 1% or 0.01, above 0 and up to 100%".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_or_refused() {
        for (text, share) in [("1%", 0.01), ("0.5 %", 0.005), ("0.25", 0.25), ("100%", 1.0)] {
            assert_eq!(text.parse(), Ok(Share(share)));
        }
        for wrong in ["", "1", "0", "0%", "-1%", "101%", "nan", "inf%", "one"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }
}
