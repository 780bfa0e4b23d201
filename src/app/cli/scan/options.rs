//! What can be asked of `weir scan`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use weir_config::vocab::Severity;
use weir_config::vocab::part::PartKind;

/// Options of `weir scan`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 nothing at or above --fail-on, 1 something is, 2 a usage error or something that \
                        could not be read.\n\nExamples:\n  weir scan prompts/\n  git diff | weir scan --json -\n  \
                        weir scan --input jsonl --field prompt data.jsonl\n  \
                        weir scan --input request --path /v1/messages body.json"
)]
pub(in crate::app::cli) struct ScanOptions {
    /// Files and directories; `-` is standard input, which is also read when nothing is named. Directories are read with all
    /// below them in the order of names; symbolic links in them are not followed.
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// What they hold. `auto`: JSON or JSON Lines by the name of the file (.json, .jsonl, .ndjson), else text.
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) input: InputKind,
    /// Who is taken to have written a text. Rules differ in whom they read; a request says it itself.
    #[arg(long, value_enum, default_value = "user")]
    pub(super) role: TextRole,
    /// Look at this field of each JSON record only, and at all texts in it.
    #[arg(long, value_name = "NAME")]
    pub(super) field: Option<String>,
    /// The path a request goes to; it names the provider's dialect.
    #[arg(long, value_name = "PATH", default_value = "/v1/chat/completions")]
    pub(super) path: String,
    /// One JSON object per line instead of a table: findings, what was not read, and a summary at the end.
    #[arg(long)]
    pub(super) json: bool,
    /// Show findings of this severity or worse.
    #[arg(long, value_enum, ignore_case = true, value_name = "SEVERITY", default_value = "info")]
    pub(super) min_severity: Level,
    /// The exit code is 1 when something of this severity or worse was found, shown or not.
    #[arg(long, value_enum, ignore_case = true, value_name = "SEVERITY", default_value = "high")]
    pub(super) fail_on: FailOn,
}

/// What the input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum InputKind {
    Auto,
    /// One text.
    Text,
    /// Every string in a JSON document.
    Json,
    /// The same, one document a line.
    Jsonl,
    /// The body of a request to a provider, read as the gateway reads it.
    Request,
}

/// Who wrote a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(in crate::app::cli) enum TextRole {
    User,
    /// Results of tools and retrieved data.
    Tool,
    System,
    /// Earlier answers of the model.
    Assistant,
    ToolDefinition,
    /// The model's answer.
    Output,
}

/// A severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Level {
    Info,
    Low,
    Medium,
    High,
    Critical,
}

/// What makes the exit code 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FailOn {
    Info,
    Low,
    Medium,
    High,
    Critical,
    /// Nothing that is found.
    Never,
}

impl TextRole {
    /// The role as the detectors know it.
    pub(in crate::app::cli) const fn kind(self) -> PartKind {
        match self {
            Self::User => PartKind::User,
            Self::Tool => PartKind::Tool,
            Self::System => PartKind::System,
            Self::Assistant => PartKind::Assistant,
            Self::ToolDefinition => PartKind::ToolDefinition,
            Self::Output => PartKind::Output,
        }
    }
}

impl Level {
    pub(super) const fn severity(self) -> Severity {
        match self {
            Self::Info => Severity::Info,
            Self::Low => Severity::Low,
            Self::Medium => Severity::Medium,
            Self::High => Severity::High,
            Self::Critical => Severity::Critical,
        }
    }
}

impl FailOn {
    pub(super) const fn severity(self) -> Option<Severity> {
        match self {
            Self::Info => Some(Severity::Info),
            Self::Low => Some(Severity::Low),
            Self::Medium => Some(Severity::Medium),
            Self::High => Some(Severity::High),
            Self::Critical => Some(Severity::Critical),
            Self::Never => None,
        }
    }
}
