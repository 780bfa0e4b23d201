//! The record of one exchange: what is written, stored and shown by the query API.
//!
//! The JSON shape of these types is the interface's: lower snake_case, unset optional fields present as `null`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_config::vocab::frame::Frame;
use weir_config::vocab::part::PartRecord;
use weir_config::vocab::{Finding, SpanId, TenantId, Timestamp, TraceId};

use crate::prompt_cache::PromptCache;

pub use crate::attributes::{Attributes, NoRoom};

/// The tag that says who answered, where it was not the provider.
pub const ANSWERED_BY: &str = "answered_by";
/// Its value: the answer was the gateway's own.
pub const WEIR: &str = "weir";

/// The attribute that says how the cost came about.
pub const COST_BREAKDOWN: &str = "weir.cost_breakdown";

/// One span: a proxied exchange, answered, refused or failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpanRecord {
    /// The trace this span belongs to.
    pub trace_id: TraceId,
    /// Identifies the span within its tenant.
    pub span_id: SpanId,
    /// The caller's span when it sent `traceparent`.
    pub parent_span_id: Option<SpanId>,
    /// Whose span it is.
    pub tenant_id: TenantId,
    /// `X-Service-Agent-ID`.
    pub agent_id: Option<String>,
    /// The session the client says it is in: a header, or a field of the request, that its software sends by itself.
    pub session_id: Option<String>,
    /// The client's software, the product that its `User-Agent` names first, e.g. `claude-cli`.
    pub client: Option<String>,
    /// What was asked, as its interface calls it: `chat_completion`, `responses`, `messages`, `generate_content`, ...; `proxy` for what has
    /// no name here.
    pub operation_name: Cow<'static, str>,
    /// When the request head had been read.
    pub start_time: Timestamp,
    /// When the last byte had been relayed, or the exchange had failed.
    pub end_time: Timestamp,
    /// Provider identifier.
    pub provider: Cow<'static, str>,
    /// Model named by the request, else by the answer.
    pub model: Option<String>,
    /// True when the answer was, or was asked to be, a stream.
    pub streaming: bool,
    /// Extracted text of the request in the order in which the model reads it: instructions, then the messages, joined by a newline.
    pub prompt: Option<String>,
    /// Extracted text of the answer; choices joined by a newline.
    pub response: Option<String>,
    /// Tokens of the prompt, as the provider counted them or estimated.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    pub completion_tokens: Option<u64>,
    /// Sum, or the provider's own total.
    pub total_tokens: Option<u64>,
    /// Prompt tokens read from the provider's cache.
    pub cached_tokens: Option<u64>,
    /// Completion tokens spent on reasoning.
    pub reasoning_tokens: Option<u64>,
    /// True when the counts are our estimate.
    pub tokens_estimated: bool,
    /// Milliseconds from the request to the first byte of the answer's body.
    pub time_to_first_token_ms: Option<f64>,
    /// Milliseconds from `start_time` to `end_time`.
    pub duration_ms: f64,
    /// Microseconds Weir added: total minus the time spent waiting for the upstream and for the client.
    pub overhead_us: Option<u64>,
    /// Status sent to the client; `None` when no head was sent.
    pub status_code: Option<u16>,
    /// Error type, ours or the provider's.
    pub error_type: Option<String>,
    /// What went wrong, for a person.
    pub error_message: Option<String>,
    /// `stop`, `length`, `tool_calls`, ... as the provider said.
    pub finish_reason: Option<String>,
    /// USD; `None` when the model has no price, never a silent 0.
    pub estimated_cost_usd: Option<f64>,
    /// 0-100; `None` only when analysis was off or dropped.
    pub security_score: Option<u8>,
    /// What the detectors saw.
    pub security_findings: Vec<Finding>,
    /// `none`, `flagged` or `blocked`.
    pub enforcement: Cow<'static, str>,
    /// Which detectors ran.
    pub detectors: Vec<Cow<'static, str>>,
    /// Free marks, e.g. `pipeline_dropped`.
    pub tags: BTreeMap<Cow<'static, str>, String>,
    /// What happened on the way.
    pub events: Vec<SpanEvent>,
    /// Actions the client reported or the answer asked for.
    pub agent_actions: Vec<AgentAction>,
    /// The parts of the request and of the answer, in wire order. The API shows them as `messages`.
    #[serde(skip)]
    pub parts: Vec<PartRecord>,
    /// The request's body without its texts, of calls with tools. The API shows what it makes with them as `request`.
    #[serde(skip)]
    pub frame: Option<Box<Frame>>,
    /// What a sender said beyond these fields.
    #[serde(skip)]
    pub attributes: Attributes,
    /// How its prompt goes on from the one that its session sent before, and what the provider's prompt cache made of it. Left out of calls
    /// that name no session, and of those that got no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_cache: Option<Box<PromptCache>>,
}

/// The tag of a span whose texts were removed before it, and its value.
pub const TEXTS_REMOVED: (&str, &str) = ("texts_removed", "retention");
/// The value of that tag on a span whose texts were never stored, because the store had fallen behind.
pub const TEXTS_LEFT_OUT: &str = "queue_full";

/// The tag of a span of which the store cannot read all any more, and its value: the bytes of its record, or of a text it names, are damaged.
pub const RECORD_DAMAGED: (&str, &str) = ("record_damaged", "true");

impl SpanRecord {
    /// Takes out whatever somebody said, or a tool: what is left tells who called what and when, what it cost, and what kind of
    /// thing was found.
    pub(crate) fn remove_texts(&mut self) {
        (self.prompt, self.response) = (None, None);
        (self.parts, self.frame) = (Vec::new(), None);
        let cost = self.attributes.remove(COST_BREAKDOWN);
        self.attributes = Attributes::default();
        if let Some(broke) = self.prompt_cache.as_mut().and_then(|cache| cache.broke_at.as_mut()) {
            (broke.name, broke.path, broke.says) = (None, String::new(), String::new());
        }
        if let Some(cost) = cost {
            // What was there a moment ago has room.
            let _room = self.attributes.insert(COST_BREAKDOWN, cost);
        }
        self.security_findings.iter_mut().for_each(remove_quote);
        self.events.iter_mut().for_each(|event| drop(event.data.remove("arguments")));
        self.agent_actions.iter_mut().for_each(AgentAction::remove_texts);
        self.tags.insert(Cow::Borrowed(TEXTS_REMOVED.0), TEXTS_REMOVED.1.to_owned());
    }

    /// Leaves out what was said, for want of room: words that findings quote stay, as they are short.
    pub(crate) fn leave_out_texts(&mut self) {
        (self.prompt, self.response) = (None, None);
        (self.parts, self.frame) = (Vec::new(), None);
        self.security_findings.iter_mut().for_each(|finding| (finding.part, finding.span) = (None, None));
        self.tags.insert(Cow::Borrowed(TEXTS_REMOVED.0), TEXTS_LEFT_OUT.to_owned());
    }

    /// Whether they were taken out.
    pub(crate) fn has_lost_texts(&self) -> bool {
        self.tags.get(TEXTS_REMOVED.0).is_some_and(|value| value == TEXTS_REMOVED.1)
    }
}

impl AgentAction {
    /// Takes out what it was done with and what came of it.
    pub(crate) fn remove_texts(&mut self) {
        (self.arguments, self.result) = (None, None);
        self.metadata.clear();
    }
}

/// A finding without the words it was found by.
pub(crate) fn remove_quote(finding: &mut Finding) {
    finding.evidence.clear();
    (finding.part, finding.span) = (None, None);
}

/// Something that happened during a span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpanEvent {
    /// When.
    pub timestamp: Timestamp,
    /// A short machine name, e.g. `client_disconnected`.
    pub event_type: Cow<'static, str>,
    /// One sentence.
    pub description: String,
    /// Details.
    pub data: BTreeMap<String, String>,
}

/// An action of an agent: reported by the client, or a tool call the model asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentAction {
    /// Identifies the action.
    pub id: Uuid,
    /// `tool_call`, `skill_invocation`, `command_execution`, `web_access` or `file_access`.
    pub action_type: String,
    /// Tool, command or resource.
    pub name: String,
    /// JSON-encoded arguments.
    pub arguments: Option<String>,
    /// Result text, at most 4096 bytes.
    pub result: Option<String>,
    /// How long it took.
    pub duration_ms: Option<f64>,
    /// Whether it worked.
    pub success: bool,
    /// Exit code of a command.
    pub exit_code: Option<i32>,
    /// Method of a web access.
    pub http_method: Option<String>,
    /// Status of a web access.
    pub http_status: Option<u16>,
    /// `read`, `write`, ... of a file access.
    pub file_operation: Option<String>,
    /// Details.
    pub metadata: BTreeMap<String, String>,
    /// When it happened.
    pub timestamp: Timestamp,
}

/// A trace: the spans that share a trace id within one tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceRecord {
    /// Identifies the trace within its tenant.
    pub trace_id: TraceId,
    /// Whose trace it is.
    pub tenant_id: TenantId,
    /// Provider of its first span.
    pub provider: Cow<'static, str>,
    /// Model of its first span.
    pub model: Option<String>,
    /// Agent of its first span.
    pub agent_id: Option<String>,
    /// Start of its earliest span.
    pub created_at: Timestamp,
    /// Number of spans.
    pub span_count: u64,
    /// Worst score of its spans; `None` when none was analysed.
    pub security_score: Option<u8>,
    /// Spans, earliest first.
    pub spans: Vec<SpanRecord>,
}

impl TraceRecord {
    /// Makes a trace of its spans, given in order of arrival; `None` when there are none. The earliest span, the first to
    /// arrive among equals, names provider, model, agent and time.
    pub fn of(mut spans: Vec<SpanRecord>) -> Option<Self> {
        spans.sort_by_key(|span| span.start_time);
        let first = spans.first()?;
        Some(Self {
            trace_id: first.trace_id,
            tenant_id: first.tenant_id,
            provider: first.provider.clone(),
            model: first.model.clone(),
            agent_id: first.agent_id.clone(),
            created_at: first.start_time,
            span_count: spans.len() as u64,
            security_score: spans.iter().filter_map(|span| span.security_score).max(),
            spans,
        })
    }
}
