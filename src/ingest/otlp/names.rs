//! Which attribute says what: the one table of names, old and new. Of several that stand in a span the first of its row holds: our
//! own, then `gen_ai.*` (newest first), then frameworks (Langfuse, OpenLLMetry, OpenInference, the AI SDK), then generic ones.

/// A field of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Tenant,
    Agent,
    Session,
    User,
    Client,
    Operation,
    Provider,
    Model,
    Streaming,
    Prompt,
    Completion,
    Total,
    Cached,
    CacheWrite,
    Reasoning,
    FirstTokenSeconds,
    FirstTokenMillis,
    Status,
    ErrorType,
    FinishReason,
}

/// Fields and the names they go by.
pub(super) const FIELDS: &[(Field, &[&str])] = &[
    (Field::Tenant, &["service.tenant_id"]),
    (
        Field::Agent,
        &["service.agent_id", "gen_ai.agent.id", "gen_ai.agent.name", "traceloop.entity.agent", "agent.name"],
    ),
    (
        Field::Session,
        &[
            "service.session_id",
            "gen_ai.conversation.id",
            "langfuse.session.id",
            "langfuse.trace.session_id",
            "traceloop.association.properties.session_id",
            "ai.telemetry.metadata.sessionId",
            "session.id",
        ],
    ),
    (
        Field::User,
        &[
            "gen_ai.user",
            "langfuse.user.id",
            "langfuse.trace.user_id",
            "traceloop.association.properties.user_id",
            "ai.telemetry.metadata.userId",
            "llm.user",
            "user.id",
            "enduser.id",
        ],
    ),
    (Field::Client, &["service.client"]),
    (
        Field::Operation,
        &[
            "gen_ai.operation.name",
            "langfuse.observation.type",
            "llm.request.type",
            "traceloop.span.kind",
            "openinference.span.kind",
        ],
    ),
    (
        Field::Provider,
        &["gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider", "llm.vendor"],
    ),
    (
        Field::Model,
        &[
            "gen_ai.request.model",
            "gen_ai.response.model",
            "langfuse.observation.model.name",
            "llm.request.model",
            "llm.model_name",
            "embedding.model_name",
            "ai.model.id",
            "ai.response.model",
        ],
    ),
    (
        Field::Streaming,
        &["gen_ai.request.stream", "gen_ai.is_streaming", "llm.is_streaming", "gen_ai.request.is_stream"],
    ),
    (
        Field::Prompt,
        &[
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.prompt_tokens",
            "llm.token_count.prompt",
            "llm.usage.prompt_tokens",
            "ai.usage.inputTokens",
            "ai.usage.promptTokens",
        ],
    ),
    (
        Field::Completion,
        &[
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.completion_tokens",
            "llm.token_count.completion",
            "llm.usage.completion_tokens",
            "ai.usage.outputTokens",
            "ai.usage.completionTokens",
        ],
    ),
    (
        Field::Total,
        &["gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total", "ai.usage.totalTokens"],
    ),
    (
        Field::Cached,
        &[
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "gen_ai.usage.details.cached_tokens",
            "llm.usage.cache_read_input_tokens",
            "llm.token_count.prompt_details.cache_read",
            "ai.usage.cachedInputTokens",
        ],
    ),
    (
        Field::CacheWrite,
        &[
            "gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
            "llm.usage.cache_creation_input_tokens",
            "llm.token_count.prompt_details.cache_write",
        ],
    ),
    (
        Field::Reasoning,
        &[
            "gen_ai.usage.reasoning.output_tokens",
            "gen_ai.usage.reasoning_tokens",
            "gen_ai.usage.reasoning_output_tokens",
            "llm.usage.reasoning_tokens",
            "llm.token_count.completion_details.reasoning",
            "ai.usage.reasoningTokens",
        ],
    ),
    (
        Field::FirstTokenSeconds,
        &["gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token", "llm.time_to_first_token"],
    ),
    (Field::FirstTokenMillis, &["ai.response.msToFirstChunk", "ai.stream.msToFirstChunk"]),
    (Field::Status, &["http.response.status_code", "http.status_code"]),
    (Field::ErrorType, &["error.type", "exception.type"]),
    (
        Field::FinishReason,
        &[
            "gen_ai.response.finish_reasons",
            "gen_ai.response.finish_reason",
            "llm.response.finish_reason",
            "llm.response.stop_reason",
            "llm.finish_reason",
            "ai.response.finishReason",
            "anthropic.message.stop_reason",
            "langfuse.observation.metadata.finish_reason",
        ],
    ),
];

/// Attributes that hold messages to the model. A name with a dot at its end stands for a list spelled in names.
pub(super) const INPUT: &[&str] = &[
    "gen_ai.input.messages",
    "gen_ai.prompt.",
    "langfuse.observation.input",
    "llm.prompts.",
    "llm.input_messages.",
    "ai.prompt.messages",
    "ai.prompt",
    "traceloop.entity.input",
    "gen_ai.prompt",
    "input.value",
];
/// The same of what the model answered.
pub(super) const OUTPUT: &[&str] = &[
    "gen_ai.output.messages",
    "gen_ai.completion.",
    "langfuse.observation.output",
    "llm.completions.",
    "llm.output_messages.",
    "ai.response.text",
    "ai.response.object",
    "traceloop.entity.output",
    "gen_ai.completion",
    "output.value",
];
/// What stands before all messages.
pub(super) const SYSTEM: &[&str] = &["gen_ai.system_instructions"];
/// Tools that were offered.
pub(super) const TOOLS: &[&str] =
    &["gen_ai.tool.definitions", "llm.request.functions.", "llm.tools.", "ai.prompt.tools"];
/// The provider's id of the answer: two reports with the same one are of the same call.
pub(super) const ANSWER: &[&str] = &["gen_ai.response.id", "llm.response.id", "ai.response.id"];
/// Tools that were asked for, where they do not stand in the answer's messages.
pub(super) const CALLS: &[&str] = &["ai.response.toolCalls"];
