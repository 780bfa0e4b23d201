//! A span as an application reports it, whatever format it came in.

use std::sync::Arc;

use serde_json::Value;
use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};
use weir_storage::record::{AgentAction, SpanEvent};

/// The attribute that says which instrumentation reports.
pub(super) const SCOPE_NAME: &str = "otel.scope.name";

/// What an application says of one of its spans. Nothing of it has been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedSpan {
    /// The trace.
    pub trace_id: TraceId,
    /// The span; what tells a repetition from another one, within a tenant.
    pub span_id: SpanId,
    /// The span around it.
    pub parent_span_id: Option<SpanId>,
    /// The tenant it says it belongs to; `None` for the sender's.
    pub tenant_id: Option<TenantId>,
    /// The agent.
    pub agent_id: Option<String>,
    /// The session or conversation.
    pub session_id: Option<String>,
    /// The software that made the call, e.g. the name of the service.
    pub client: Option<String>,
    /// Who the call was made for. Kept as the attribute `user.id`.
    pub user_id: Option<String>,
    /// What it stands for, in the sender's word: `chat`, `execute_tool`, ...
    pub operation_name: Option<String>,
    /// Its beginning.
    pub start_time: Timestamp,
    /// Its end.
    pub end_time: Timestamp,
    /// Who answered.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// Whether the answer was a stream.
    pub streaming: bool,
    /// What the model was sent.
    pub input: Vec<ReportedMessage>,
    /// What it answered; a message for each choice.
    pub output: Vec<ReportedMessage>,
    /// What was used.
    pub usage: ReportedUsage,
    /// Milliseconds to the first piece of the answer.
    pub time_to_first_token_ms: Option<f64>,
    /// Status of the provider's answer.
    pub status_code: Option<u16>,
    /// Kind of the error; a span with one was not answered.
    pub error_type: Option<String>,
    /// What went wrong.
    pub error_message: Option<String>,
    /// Why the answer ended.
    pub finish_reason: Option<String>,
    /// What no field has room for.
    pub attributes: Vec<(String, Value)>,
    /// Attributes that it shares with other spans of its request: those of its resource, and those of whoever reports it.
    pub shared: [Arc<Vec<(String, Value)>>; 2],
    /// What some attributes say beside the messages: inspected like those, and kept as the attributes they are named by.
    pub elsewhere: Vec<(String, ReportedMessage)>,
    /// What of it was more than is taken.
    pub left_out: LeftOut,
    /// What happened meanwhile.
    pub events: Vec<SpanEvent>,
    /// What the agent did.
    pub agent_actions: Vec<AgentAction>,
}

/// What of a span was more than is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Events beyond the first ones.
    pub events: usize,
    /// Links beyond the first ones.
    pub links: usize,
    /// Values that stood too deep in others; null stands in their places.
    pub values: usize,
}

/// A message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReportedMessage {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, ...
    pub role: String,
    /// What is said.
    pub parts: Vec<ReportedPart>,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReportedPart {
    /// Words.
    Text(String),
    /// What the model thought.
    Reasoning(String),
    /// The model's refusal.
    Refusal(String),
    /// A tool the model asks for; the arguments are JSON text.
    ToolCall {
        /// Id of the call.
        id: Option<String>,
        /// Name of the tool.
        name: String,
        /// JSON text.
        arguments: String,
    },
    /// What a tool brought.
    ToolResult {
        /// Id of the call.
        id: Option<String>,
        /// Name of the tool.
        name: Option<String>,
        /// What it brought.
        content: String,
    },
    /// What the application says about a tool.
    ToolDefinition {
        /// Name of the tool.
        name: String,
        /// Description and schema.
        text: String,
    },
}

/// Tokens as the sender counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportedUsage {
    /// Of the prompt, cached ones included.
    pub prompt: Option<u64>,
    /// Of the answer, reasoning included.
    pub completion: Option<u64>,
    /// The sender's total.
    pub total: Option<u64>,
    /// Prompt tokens read from a cache.
    pub cached: Option<u64>,
    /// Prompt tokens written to a cache.
    pub cache_write: Option<u64>,
    /// Completion tokens spent on reasoning.
    pub reasoning: Option<u64>,
}

impl ReportedUsage {
    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl ReportedSpan {
    /// A span that says nothing but who and when it is.
    pub fn new(trace_id: TraceId, span_id: SpanId, start_time: Timestamp, end_time: Timestamp) -> Self {
        Self {
            trace_id,
            span_id,
            parent_span_id: None,
            tenant_id: None,
            agent_id: None,
            session_id: None,
            client: None,
            user_id: None,
            operation_name: None,
            start_time,
            end_time,
            provider: None,
            model: None,
            streaming: false,
            input: Vec::new(),
            output: Vec::new(),
            usage: ReportedUsage::default(),
            time_to_first_token_ms: None,
            status_code: None,
            error_type: None,
            error_message: None,
            finish_reason: None,
            attributes: Vec::new(),
            shared: Default::default(),
            elsewhere: Vec::new(),
            left_out: LeftOut::default(),
            events: Vec::new(),
            agent_actions: Vec::new(),
        }
    }
}
