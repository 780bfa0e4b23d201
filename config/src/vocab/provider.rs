//! Providers, the dialects they speak, and the operations a span can stand for.

use std::borrow::Cow;
use std::fmt;

/// Who answers: one of the identifiers `X-Service-Provider` accepts, or a custom name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Provider(Cow<'static, str>);

/// Identifiers with built-in knowledge; any other value is a custom provider.
const KNOWN: [&str; 9] =
    ["openai", "anthropic", "ollama", "azure_openai", "bedrock", "vllm", "sglang", "tgi", "gemini"];

impl Provider {
    /// Chat-completions-style, the default when nothing else is known.
    pub const OPENAI: Self = Self(Cow::Borrowed("openai"));
    /// Messages-style.
    pub const ANTHROPIC: Self = Self(Cow::Borrowed("anthropic"));
    /// Local-server-style.
    pub const OLLAMA: Self = Self(Cow::Borrowed("ollama"));

    /// The provider a client or an upstream host names. Known names borrow; others are kept, at most 64 characters
    /// of `[A-Za-z0-9._:/-]` (anything else becomes `custom`).
    pub fn named(name: &str) -> Self {
        if let Some(known) = KNOWN.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            return Self(Cow::Borrowed(known));
        }
        let legal = |c: u8| c.is_ascii_alphanumeric() || b"._:/-".contains(&c);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(legal) {
            return Self(Cow::Borrowed("custom"));
        }
        Self(Cow::Owned(name.to_ascii_lowercase()))
    }

    /// The identifier as stored and filtered.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value of the `provider` metric label: custom names fold into `custom`, so that clients cannot grow the set.
    pub fn label(&self) -> &'static str {
        KNOWN.iter().find(|known| **known == self.0).copied().unwrap_or("custom")
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The wire dialect of a path: decides how bodies are read and how our own errors are shaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`, `/v1/responses` and everything unlisted.
    ChatCompletions,
    /// `/v1/messages`.
    Messages,
    /// `/api/generate`, `/api/chat`, `/api/tags`, `/api/embeddings`.
    LocalServer,
    /// `models/{name}:generateContent` and relatives.
    Gemini,
    /// `/model/{id}/converse`, `/model/{id}/invoke` and their streaming forms.
    Bedrock,
}

/// What else depends on a dialect and on nothing a message says: code that passes a call on asks here and names none.
impl Dialect {
    /// What is spoken where no path has said it yet, or the path is our own.
    pub const DEFAULT: Self = Self::ChatCompletions;

    /// Whether a request may name what its provider keeps: conversations, files, batches.
    pub const fn names_objects(self) -> bool {
        matches!(self, Self::ChatCompletions | Self::Messages)
    }

    /// Whether a provider may keep a turn, so that the next request names it in place of the conversation.
    pub const fn keeps_turns(self) -> bool {
        matches!(self, Self::ChatCompletions)
    }

    /// Whether providers look into their prompt cache without being asked to by the request.
    pub const fn caches_unasked(self) -> bool {
        !matches!(self, Self::Messages | Self::Bedrock)
    }

    /// The field a credential goes into; `None` where the provider decides it.
    pub const fn key_field(self) -> Option<&'static str> {
        match self {
            Self::Messages => Some("x-api-key"),
            _ => None,
        }
    }
}

/// What a span stands for (`operation_name`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `/v1/chat/completions`.
    ChatCompletion,
    /// `/v1/responses`.
    Responses,
    /// `models/{name}:generateContent`, streamed or not.
    GenerateContent,
    /// `/v1beta/interactions`.
    Interaction,
    /// `/model/{id}/converse`, streamed or not.
    Converse,
    /// `/v1/completions`.
    Completion,
    /// `/v1/embeddings`, `/api/embeddings`, `/api/embed`.
    Embedding,
    /// `/v1/messages`.
    Messages,
    /// `/api/generate`.
    Generate,
    /// `/api/chat`.
    Chat,
    /// `/v1/models`, `/api/tags`.
    ListModels,
    /// `/v1/audio/speech`.
    Speech,
    /// `/v1/audio/transcriptions`, `/v1/audio/translations`.
    Transcription,
    /// `/v1/images/...`.
    Image,
    /// `/v1/moderations`.
    Moderation,
    /// `/v1/realtime`: the socket, and each of its turns.
    Realtime,
    /// Everything else.
    Proxy,
}

impl Operation {
    /// The name as stored and filtered.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletion => "chat_completion",
            Self::Responses => "responses",
            Self::GenerateContent => "generate_content",
            Self::Interaction => "interaction",
            Self::Converse => "converse",
            Self::Completion => "completion",
            Self::Embedding => "embedding",
            Self::Messages => "messages",
            Self::Generate => "generate",
            Self::Chat => "chat",
            Self::ListModels => "list_models",
            Self::Speech => "speech",
            Self::Transcription => "transcription",
            Self::Image => "image",
            Self::Moderation => "moderation",
            Self::Realtime => "realtime",
            Self::Proxy => "proxy",
        }
    }
}
