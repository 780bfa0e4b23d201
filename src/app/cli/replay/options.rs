//! What can be asked of `weir replay`.

use clap::Args;

use crate::cli::traces::{Filter, Of};

/// Options of `weir replay`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 nothing would change, 1 something would, 2 a record that cannot be read.\n\nExamples:\n  \
                        weir replay --config new.yaml --database service.db --since 7d\n  \
                        weir replay --config new.yaml --database service.db --finding prompt_injection --list\n  \
                        weir replay --config new.yaml --database service.db --curve --since 7d\n  \
                        weir replay --config new.yaml --database service.db --json | jq 'select(.kind == \"summary\")'"
)]
pub(in crate::app::cli) struct ReplayOptions {
    #[command(flatten)]
    pub(super) of: Of,
    #[command(flatten)]
    pub(super) filter: Filter,
    /// At most so many spans, the newest of each tenant first; left out, all.
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: Option<u64>,
    /// A table of what each threshold of the second stage would come to: how many calls are flagged, and how many refused in block mode.
    #[arg(long)]
    pub(super) curve: bool,
    /// A line for each span that would change.
    #[arg(long)]
    pub(super) list: bool,
    /// One JSON object per line instead of tables: spans that would change, and a summary at the end.
    #[arg(long)]
    pub(super) json: bool,
}
