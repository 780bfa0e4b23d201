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
            "ai.operationId",
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

/// Langfuse's word for how a step went; `ERROR` is one that failed.
pub(super) const LEVEL: &str = "langfuse.observation.level";
/// What went wrong, where it did.
pub(super) const STATUS_MESSAGE: &str = "langfuse.observation.status_message";

/// Attributes that hold messages to the model, or what it was given beside them. A name with a dot at its end stands
/// for a list spelled in names.
pub(super) const INPUT: &[&str] = &[
    "gen_ai.input.messages",
    "gen_ai.prompt.",
    "langfuse.observation.input",
    "llm.prompts.",
    "llm.input_messages.",
    "ai.prompt.messages",
    "ai.prompt",
    EMBEDDINGS,
    "embedding.text",
    "ai.values",
    "ai.value",
    "gen_ai.retrieval.query.text",
    "reranker.query",
    "traceloop.entity.input",
    "gen_ai.prompt",
    "input.value",
];
/// Texts that were embedded, as a list spelled in names; the vectors beside them stay attributes.
pub(super) const EMBEDDINGS: &str = "embedding.embeddings.";
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
/// What the model thought before it answered, where it does not stand in the answer's messages.
pub(super) const THOUGHTS: &[&str] = &["ai.response.reasoning", "ai.response.reasoningText"];

/// The tool that a span of its own was about; stays an attribute.
pub(super) const TOOL_NAME: &[&str] =
    &["gen_ai.tool.name", "ai.toolCall.name", "tool_call.function.name", "tool.name", "traceloop.entity.name"];
/// The provider's id of the call that it was run for; stays an attribute.
pub(super) const TOOL_CALL: &[&str] = &["gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id", "tool.id"];
/// What it was asked for.
pub(super) const TOOL_ARGUMENTS: &[&str] =
    &["gen_ai.tool.call.arguments", "ai.toolCall.args", "ai.toolCall.input", "tool_call.function.arguments"];
/// What it brought.
pub(super) const TOOL_RESULT: &[&str] = &["gen_ai.tool.call.result", "ai.toolCall.result", "ai.toolCall.output"];
/// What the application says about it.
pub(super) const TOOL_ABOUT: &[&str] = &["gen_ai.tool.description", "tool.description", "tool.parameters"];
/// Documents that were found.
pub(super) const DOCUMENTS: &[&str] =
    &["gen_ai.retrieval.documents", "retrieval.documents.", "reranker.input_documents.", "reranker.output_documents."];
