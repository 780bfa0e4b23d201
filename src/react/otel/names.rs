//! Names of attributes and events, once: those of the conventions for generative AI 0.1.0, those that general conventions had at 1.36, and
//! ours, which begin with `weir.`.

use weir_config::settings::OtelSemconv;

pub(super) const ERROR_TYPE: &str = "error.type";
pub(super) const STATUS: &str = "http.response.status_code";
pub(super) const CLIENT: &str = "user_agent.name";
pub(super) const SESSION: &str = "session.id";
pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const REQUEST_MODEL: &str = "gen_ai.request.model";
pub(super) const RESPONSE_ID: &str = "gen_ai.response.id";
pub(super) const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub(super) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(super) const AGENT: &str = "gen_ai.agent.id";
pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const TOOL_NAME: &str = "gen_ai.tool.name";
pub(super) const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(super) const TOOL_RESULT: &str = "gen_ai.tool.call.result";
pub(super) const INPUT_MESSAGES: &str = "gen_ai.input.messages";
pub(super) const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
pub(super) const SYSTEM_INSTRUCTIONS: &str = "gen_ai.system_instructions";
pub(super) const TOOL_DEFINITIONS: &str = "gen_ai.tool.definitions";

/// The draft for guardrails that goes with 0.1.0.
pub(super) const FINDING: &str = "gen_ai.guardrail.security.finding";
pub(super) const FINDING_ID: &str = "gen_ai.guardrail.security.external_finding_id";
pub(super) const FINDING_CATEGORY: &str = "gen_ai.guardrail.security.risk.category";
pub(super) const FINDING_SCORE: &str = "gen_ai.guardrail.security.risk.score";
pub(super) const FINDING_POLICY: &str = "gen_ai.guardrail.security.policy.id";
pub(super) const FINDING_RULE: &str = "gen_ai.guardrail.security.policy.rule.id";
pub(super) const FINDING_COMPONENT: &str = "gen_ai.guardrail.component.name";
pub(super) const FINDING_TARGET: &str = "gen_ai.guardrail.target.type";
pub(super) const FINDING_SUBTARGET: &str = "gen_ai.guardrail.target.subtype";
pub(super) const FINDING_VERDICT: &str = "gen_ai.guardrail.verdict.type";
pub(super) const FINDING_ACTION: &str = "gen_ai.guardrail.action.type";

/// Names that differ from one release to another.
pub(super) struct Names {
    pub(super) provider: &'static str,
    pub(super) stream: &'static str,
    pub(super) first_chunk: &'static str,
    pub(super) cache_read: &'static str,
    pub(super) cache_write: &'static str,
    pub(super) reasoning: &'static str,
    pub(super) schema_url: &'static str,
}

const LATEST: Names = Names {
    provider: "gen_ai.provider.name",
    stream: "gen_ai.request.stream",
    first_chunk: "gen_ai.response.time_to_first_chunk",
    cache_read: "gen_ai.usage.cache_read.input_tokens",
    cache_write: "gen_ai.usage.cache_write.input_tokens",
    reasoning: "gen_ai.usage.reasoning.output_tokens",
    // The conventions for generative AI have published none.
    schema_url: "",
};

/// What these do not name is ours.
const V1_36: Names = Names {
    provider: "gen_ai.system",
    stream: "weir.request.stream",
    first_chunk: "weir.response.time_to_first_chunk",
    cache_read: "weir.usage.cache_read_tokens",
    cache_write: "weir.usage.cache_write_tokens",
    reasoning: "weir.usage.reasoning_tokens",
    schema_url: "https://opentelemetry.io/schemas/1.36.0",
};

pub(super) const fn of(semconv: OtelSemconv) -> &'static Names {
    match semconv {
        OtelSemconv::Latest => &LATEST,
        OtelSemconv::V1_36 => &V1_36,
    }
}

/// What a call is to the conventions; `None` for what generates nothing, such as a list of models.
pub(super) fn operation(name: &str) -> Option<&str> {
    Some(match name {
        "chat_completion" | "responses" | "messages" | "chat" | "converse" | "interaction" | "realtime" => "chat",
        "completion" | "generate" => "text_completion",
        "embedding" => "embeddings",
        "list_models" | "proxy" => return None,
        other => other,
    })
}

/// A provider as the conventions spell it.
pub(super) fn provider(name: &str) -> &str {
    match name {
        "azure_openai" => "azure.ai.openai",
        "bedrock" => "aws.bedrock",
        "gemini" => "gcp.gemini",
        other => other,
    }
}
