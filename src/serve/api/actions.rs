//! What agents report having done: taken in, looked at, and summed up.
//!
//! Invariant: an action that was answered with 201 is durable, and the span shows it together with what was found in it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;
use weir_config::Settings;
use weir_config::vocab::{Finding, SpanId, Timestamp, TraceId, fresh_uuid};
use weir_inference::action::{self, Action, ActionKind};
use weir_storage::record::AgentAction;

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::query;
use super::route::Answer;
use super::state::{Api, patiently, to_json};
use crate::meter::Registry;
use crate::redaction::{Beside, Redaction};

/// Bytes of a result that are kept.
const RESULT_BYTES_MAX: usize = 4_096;
/// Bytes a name may have: it is part of an index.
const NAME_BYTES_MAX: usize = 4_096;
/// Bytes the arguments may have, and the metadata together: a span shows all its actions.
const DETAIL_BYTES_MAX: usize = action::TEXT_BYTES_MAX;
/// Bytes the short fields may have.
const WORD_BYTES_MAX: usize = 64;
/// By what a finding says that something of an action was not looked at, and what is counted then.
const LEFT_OUT: [(&str, &str); 2] = [("analysis_truncated", "truncated"), ("analysis_timeout", "analyzer_timeout")];

/// What was done.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ActionType {
    /// A tool was called.
    ToolCall,
    /// A skill was used.
    SkillInvocation,
    /// A command was run.
    CommandExecution,
    /// An address was visited.
    WebAccess,
    /// A file was read or changed.
    FileAccess,
}

/// An action to be recorded.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionReport {
    action_type: ActionType,
    /// Tool, command, address or file; at most 4096 bytes.
    #[schemars(length(min = 1, max = 4096))]
    name: String,
    /// JSON-encoded text, or bare text; at most 65536 bytes.
    #[serde(default)]
    #[schemars(length(max = 65536))]
    arguments: Option<String>,
    /// Kept to 4096 bytes.
    #[serde(default)]
    result: Option<String>,
    /// Milliseconds.
    #[serde(default)]
    #[schemars(range(min = 0.0))]
    duration_ms: Option<f64>,
    /// True when left out.
    #[serde(default)]
    success: Option<bool>,
    /// Of a command.
    #[serde(default)]
    exit_code: Option<i32>,
    /// Of a web access.
    #[serde(default)]
    #[schemars(length(max = 64))]
    http_method: Option<String>,
    /// Of a web access.
    #[serde(default)]
    #[schemars(range(min = 100, max = 599))]
    http_status: Option<u16>,
    /// `read`, `write`, `delete`, ... of a file access.
    #[serde(default)]
    #[schemars(length(max = 64))]
    file_operation: Option<String>,
    /// Details, at most 65536 bytes; values that are no texts are kept as their JSON text.
    #[serde(default)]
    metadata: Option<BTreeMap<String, Value>>,
    /// When it happened; the time of arrival when left out.
    #[serde(default)]
    timestamp: Option<Timestamp>,
    /// The span of the trace it belongs to; the latest when left out.
    #[serde(default)]
    span_id: Option<SpanId>,
}

/// An action that was recorded.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ActionRecorded<'a> {
    /// Names the action.
    action_id: Uuid,
    /// Its trace.
    trace_id: TraceId,
    /// The span that shows it.
    span_id: SpanId,
    /// What the checks of commands, addresses and files saw.
    findings: &'a [Finding],
}

pub(super) async fn report(api: Api, ask: Ask) -> Answer {
    let trace: TraceId = ask.id("trace_id")?;
    let reported: ActionReport = ask.json()?;
    let tenant = ask.tenant()?;
    reported.check()?;
    let span = reported.span_id;
    let settings = api.live.snapshot().load_full();
    let (redaction, registry) = (api.redaction.clone(), Arc::clone(&api.registry));
    let checked = Arc::new(Checked { reported, redaction, registry, settings, outcome: OnceLock::new() });
    patiently(|| {
        let checked = Arc::clone(&checked);
        api.write(move |store| {
            let (action, found) = checked.outcome();
            let id = action.id;
            let stored = store.spans.add_action(tenant, trace, span, action.clone(), found.clone())?;
            let span_id =
                stored.ok_or_else(|| ErrorAnswer::not_found("no trace with this id, or no such span in it"))?;
            let recorded = ActionRecorded { action_id: id, trace_id: trace, span_id, findings: found };
            Ok((StatusCode::CREATED, to_json(&recorded)?))
        })
    })
    .await
}

/// A report and what the checks say of it, once they have run: on the thread that writes it down, because a long command takes
/// longer to look at than the control thread may be held up.
struct Checked {
    reported: ActionReport,
    redaction: Option<Arc<Redaction>>,
    /// Where it counts that something was not looked at.
    registry: Arc<Registry>,
    settings: Arc<Settings>,
    outcome: OnceLock<(AgentAction, Vec<Finding>)>,
}

impl Checked {
    fn outcome(&self) -> &(AgentAction, Vec<Finding>) {
        self.outcome.get_or_init(|| {
            let limit = Duration::from_millis(self.settings.limits.security_analysis_timeout_ms);
            let mut findings = action::check(&self.reported.to_check(), Some(Instant::now() + limit));
            for (finding_type, reason) in LEFT_OUT {
                if findings.iter().any(|finding| finding.finding_type == finding_type) {
                    self.registry.shared().dropped("actions", reason, 1);
                }
            }
            let mut action = self.reported.to_record();
            self.mask(&mut action, &mut findings);
            // Not before: half of a credential is none that anybody would know.
            action.result = action.result.map(|result| cut(&result, RESULT_BYTES_MAX));
            if let Some(redaction) = &self.redaction {
                redaction.mask_action(&mut action, &mut findings);
            }
            (action, findings)
        })
    }

    /// Takes out what is not kept of any text, as of actions in reported spans.
    fn mask(&self, action: &mut AgentAction, findings: &mut Vec<Finding>) {
        let mut beside = Beside::of(&self.settings, "A credential stands in what an agent reports");
        if !beside.is_needed() {
            return;
        }
        beside.action("action", action);
        for finding in findings.iter_mut() {
            beside.mask_again(&mut finding.evidence);
        }
        let found = beside.take_findings();
        for finding in findings.iter_mut() {
            beside.text("action", "", &mut finding.evidence);
        }
        if self.settings.enable_security_analysis {
            findings.extend(found);
        }
    }
}

pub(super) async fn summary(api: Api, ask: Ask) -> Answer {
    let filter = query::span_filter(&ask.query)?;
    let tenant = ask.tenant()?;
    api.read(move |store| to_json(&store.spans.actions_summary(tenant, &filter)?)).await
}

impl ActionType {
    const fn as_str(self) -> &'static str {
        match self {
            Self::ToolCall => "tool_call",
            Self::SkillInvocation => "skill_invocation",
            Self::CommandExecution => "command_execution",
            Self::WebAccess => "web_access",
            Self::FileAccess => "file_access",
        }
    }

    const fn kind(self) -> ActionKind {
        match self {
            Self::ToolCall | Self::SkillInvocation => ActionKind::Tool,
            Self::CommandExecution => ActionKind::Command,
            Self::WebAccess => ActionKind::Web,
            Self::FileAccess => ActionKind::File,
        }
    }
}

impl ActionReport {
    /// What the types alone do not say.
    fn check(&self) -> Result<(), ErrorAnswer> {
        if self.name.trim().is_empty() || self.name.len() > NAME_BYTES_MAX {
            return Err(ErrorAnswer::invalid(format!("`name` must have 1 to {NAME_BYTES_MAX} bytes and not be blank")));
        }
        if self.duration_ms.is_some_and(|duration| !(duration.is_finite() && duration >= 0.0)) {
            return Err(ErrorAnswer::invalid("`duration_ms` must be a number of at least 0"));
        }
        if self.http_status.is_some_and(|status| !(100..=599).contains(&status)) {
            return Err(ErrorAnswer::invalid("`http_status` must be a whole number from 100 to 599"));
        }
        for (name, value) in [("http_method", &self.http_method), ("file_operation", &self.file_operation)] {
            if value.as_ref().is_some_and(|value| value.len() > WORD_BYTES_MAX) {
                return Err(ErrorAnswer::invalid(format!("`{name}` must have at most {WORD_BYTES_MAX} bytes")));
            }
        }
        let arguments = self.arguments.as_ref().map_or(0, String::len);
        let metadata = self.metadata.iter().flatten().map(|(name, value)| name.len() + text_bytes(value)).sum();
        for (name, bytes) in [("arguments", arguments), ("metadata", metadata)] {
            if bytes > DETAIL_BYTES_MAX {
                return Err(ErrorAnswer::invalid(format!(
                    "`{name}` has {bytes} bytes; it must have at most {DETAIL_BYTES_MAX}: report the part that matters"
                )));
            }
        }
        Ok(())
    }

    fn to_check(&self) -> Action<'_> {
        const READS: [&str; 6] = ["read", "open", "list", "stat", "exists", "view"];
        let reads = |operation: &String| READS.contains(&operation.to_ascii_lowercase().as_str());
        Action {
            kind: self.action_type.kind(),
            name: &self.name,
            arguments: self.arguments.as_deref(),
            writes: self.file_operation.as_ref().is_some_and(|operation| !reads(operation)),
        }
    }

    fn to_record(&self) -> AgentAction {
        let now = Timestamp::now();
        let metadata = self.metadata.iter().flatten().map(|(name, value)| (name.clone(), text(value)));
        AgentAction {
            id: fresh_uuid(now),
            action_type: self.action_type.as_str().to_owned(),
            name: self.name.clone(),
            arguments: self.arguments.clone(),
            result: self.result.clone(),
            duration_ms: self.duration_ms,
            success: self.success.unwrap_or(true),
            exit_code: self.exit_code,
            http_method: self.http_method.clone(),
            http_status: self.http_status,
            file_operation: self.file_operation.clone(),
            metadata: metadata.collect(),
            timestamp: self.timestamp.unwrap_or(now),
        }
    }
}

/// A value of the metadata as it is kept.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        other => other.to_string().len(),
    }
}

/// At most `max` bytes, ending between characters.
fn cut(text: &str, max: usize) -> String {
    text.get(..text.floor_char_boundary(max)).unwrap_or_default().to_owned()
}
