//! The keys of request bodies that mean something to us.
//!
//! A key counts at every spelling some provider's parser could take for it: escapes are decoded, ASCII case and the
//! characters between words are ignored (`toolCalls`, `TOOL_CALLS`, `tool-calls`), because parsers that ignore case
//! exist. `exact` tells whether it was the spelling of the interface.

use crate::exchange::Family;
use crate::json::Text;

macro_rules! keys {
    ($($name:ident $shown:literal $folded:literal;)*) => {
        /// A known key.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Key {
            $(#[doc = $shown] $name,)*
            /// Any other key.
            Other,
        }

        impl Key {
            /// The usual spelling; for locations.
            pub(super) const fn as_str(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($shown),)*
                    Self::Other => None,
                }
            }

            fn folded(folded: &[u8]) -> Self {
                match folded {
                    $($folded => Self::$name,)*
                    _ => Self::Other,
                }
            }
        }
    };
}

keys! {
    AccessToken "access_token" b"accesstoken";
    ApiSecret "api_key" b"apikey";
    AssistantId "assistant_id" b"assistantid";
    Args "args" b"args";
    Arguments "arguments" b"arguments";
    Audio "audio" b"audio";
    Authorization "authorization" b"authorization";
    AuthorizationToken "authorization_token" b"authorizationtoken";
    B64Json "b64_json" b"b64json";
    Blob "blob" b"blob";
    Bytes "bytes" b"bytes";
    CachedContent "cached_content" b"cachedcontent";
    CallId "call_id" b"callid";
    ClientSecret "client_secret" b"clientsecret";
    Content "content" b"content";
    Contents "contents" b"contents";
    Context "context" b"context";
    Conversation "conversation" b"conversation";
    Data "data" b"data";
    Detail "detail" b"detail";
    Document "document" b"document";
    Documents "documents" b"documents";
    Effort "effort" b"effort";
    EncodingFormat "encoding_format" b"encodingformat";
    Fallbacks "fallbacks" b"fallbacks";
    EventId "event_id" b"eventid";
    File "file" b"file";
    FileData "file_data" b"filedata";
    FileId "file_id" b"fileid";
    FileIds "file_ids" b"fileids";
    FileUri "file_uri" b"fileuri";
    Format "format" b"format";
    Function "function" b"function";
    FunctionCall "function_call" b"functioncall";
    FunctionDeclarations "function_declarations" b"functiondeclarations";
    FunctionResponse "function_response" b"functionresponse";
    Functions "functions" b"functions";
    Headers "headers" b"headers";
    Id "id" b"id";
    Image "image" b"image";
    ImageUrl "image_url" b"imageurl";
    Images "images" b"images";
    InlineData "inline_data" b"inlinedata";
    Input "input" b"input";
    InputFileId "input_file_id" b"inputfileid";
    InputIds "input_ids" b"inputids";
    InputAudio "input_audio" b"inputaudio";
    Instructions "instructions" b"instructions";
    KeepAlive "keep_alive" b"keepalive";
    MaxCompletionTokens "max_completion_tokens" b"maxcompletiontokens";
    MaxLength "max_length" b"maxlength";
    MaxNewTokens "max_new_tokens" b"maxnewtokens";
    MaxOutputTokens "max_output_tokens" b"maxoutputtokens";
    MaxTokens "max_tokens" b"maxtokens";
    MaxTokensToSample "max_tokens_to_sample" b"maxtokenstosample";
    McpServers "mcp_servers" b"mcpservers";
    MediaType "media_type" b"mediatype";
    Message "message" b"message";
    Messages "messages" b"messages";
    MimeType "mime_type" b"mimetype";
    Model "model" b"model";
    Models "models" b"models";
    Name "name" b"name";
    NumPredict "num_predict" b"numpredict";
    NPredict "n_predict" b"npredict";
    Object "object" b"object";
    Output "output" b"output";
    Parts "parts" b"parts";
    Password "password" b"password";
    Params "params" b"params";
    Result "result" b"result";
    PreviousResponseId "previous_response_id" b"previousresponseid";
    Prompt "prompt" b"prompt";
    PromptTokenIds "prompt_token_ids" b"prompttokenids";
    PromptCacheId "prompt_cache_key" b"promptcachekey";
    Reasoning "reasoning" b"reasoning";
    ReasoningContent "reasoning_content" b"reasoningcontent";
    ReasoningEffort "reasoning_effort" b"reasoningeffort";
    RefreshToken "refresh_token" b"refreshtoken";
    Role "role" b"role";
    SafetyIdentifier "safety_identifier" b"safetyidentifier";
    Secret "secret" b"secret";
    ServerUrl "server_url" b"serverurl";
    ServiceTier "service_tier" b"servicetier";
    Signature "signature" b"signature";
    Source "source" b"source";
    Status "status" b"status";
    Stream "stream" b"stream";
    StreamId "stream_id" b"streamid";
    System "system" b"system";
    SystemInstruction "system_instruction" b"systeminstruction";
    SystemPrompt "system_prompt" b"systemprompt";
    Text "text" b"text";
    Thinking "thinking" b"thinking";
    ThreadId "thread_id" b"threadid";
    Thought "thought" b"thought";
    Token "token" b"token";
    ToolCallId "tool_call_id" b"toolcallid";
    ToolCalls "tool_calls" b"toolcalls";
    ToolChoice "tool_choice" b"toolchoice";
    ToolConfig "tool_config" b"toolconfig";
    ToolResult "tool_result" b"toolresult";
    ToolUse "tool_use" b"tooluse";
    ToolUseId "tool_use_id" b"tooluseid";
    Tools "tools" b"tools";
    Truncation "truncation" b"truncation";
    Type "type" b"type";
    Url "url" b"url";
    User "user" b"user";
    VectorStoreIds "vector_store_ids" b"vectorstoreids";
    Video "video" b"video";
    XApiSecret "x-api-key" b"xapikey";
}

/// The longest folded name.
const FOLDED_MAX: usize = 20;
/// A key is read up to this many decoded bytes; longer ones are none of ours.
const SPELLED_MAX: usize = 64;

impl Key {
    /// Classifies a key; the second value is true for the usual spelling (after decoding escapes).
    pub(super) fn read(text: &Text<'_>) -> (Self, bool) {
        match text.raw() {
            "role" => return (Self::Role, true),
            "content" => return (Self::Content, true),
            "type" => return (Self::Type, true),
            "text" => return (Self::Text, true),
            "model" => return (Self::Model, true),
            "stream" => return (Self::Stream, true),
            "messages" => return (Self::Messages, true),
            _ => {}
        }
        if text.raw().len() > SPELLED_MAX * 6 {
            return (Self::Other, false);
        }
        let spelled = text.decode();
        let mut folded = [0; FOLDED_MAX];
        let mut len = 0;
        for byte in spelled.bytes().filter(|&b| !matches!(b, b'_' | b'-')) {
            match folded.get_mut(len) {
                Some(slot) => *slot = byte.to_ascii_lowercase(),
                None => return (Self::Other, false),
            }
            len += 1;
        }
        let key = Self::folded(folded.get(..len).unwrap_or_default());
        (key, key.as_str() == Some(&*spelled))
    }

    /// Keys of a message whose values are what a model thought before it answered.
    pub(super) const fn is_reasoning(self) -> bool {
        matches!(self, Self::Reasoning | Self::ReasoningContent | Self::Thinking)
    }

    /// Keys whose values are names the provider defines or ids, never sentences.
    pub(super) const fn is_structural(self) -> bool {
        matches!(
            self,
            Self::CallId
                | Self::Conversation
                | Self::Detail
                | Self::Effort
                | Self::EncodingFormat
                | Self::EventId
                | Self::FileId
                | Self::Format
                | Self::Id
                | Self::KeepAlive
                | Self::MediaType
                | Self::MimeType
                | Self::Model
                | Self::Name
                | Self::Object
                | Self::PreviousResponseId
                | Self::PromptCacheId
                | Self::ReasoningEffort
                | Self::Role
                | Self::SafetyIdentifier
                | Self::ServiceTier
                | Self::Signature
                | Self::Status
                | Self::StreamId
                | Self::ToolCallId
                | Self::ToolChoice
                | Self::ToolUseId
                | Self::Truncation
                | Self::Type
                | Self::User
        )
    }

    /// Keys whose value is a credential for the provider or for a tool server it calls.
    pub(super) const fn is_credential(self) -> bool {
        matches!(
            self,
            Self::AccessToken
                | Self::ApiSecret
                | Self::Authorization
                | Self::AuthorizationToken
                | Self::ClientSecret
                | Self::RefreshToken
                | Self::XApiSecret
        )
    }

    /// Keys that hold a credential where a tool is described, and may be any word elsewhere.
    pub(super) const fn is_credential_of_tool(self) -> bool {
        matches!(self, Self::Password | Self::Secret | Self::Token)
    }

    /// Top-level keys that hold the operator's own instructions.
    pub(super) const fn is_instruction(self) -> bool {
        matches!(self, Self::Instructions | Self::System | Self::SystemInstruction | Self::SystemPrompt)
    }

    /// Top-level keys whose numbers are tokens, which the model reads and nobody here can.
    pub(super) const fn may_hold_tokens(self) -> bool {
        matches!(self, Self::Context | Self::Input | Self::Prompt)
    }

    /// Keys whose numbers are tokens wherever they stand.
    pub(super) const fn holds_tokens(self) -> bool {
        matches!(self, Self::InputIds | Self::PromptTokenIds)
    }

    /// What the strings under a key name of what the provider keeps.
    pub(super) const fn names_object(self) -> Option<Family> {
        match self {
            Self::FileId | Self::FileIds | Self::InputFileId | Self::FileUri => Some(Family::Files),
            Self::CachedContent => Some(Family::CachedContents),
            Self::PreviousResponseId | Self::Conversation => Some(Family::Responses),
            Self::AssistantId | Self::ThreadId | Self::VectorStoreIds => Some(Family::Assistants),
            _ => None,
        }
    }

    /// The id in what stands under a key that names an object: Gemini's are the last word of a name (`files/abc`), or of an address that
    /// ends with it. `None` for addresses of something else.
    pub(super) fn object_id(self, named: &str) -> Option<&str> {
        let folder = match self {
            Self::FileUri => "files",
            Self::CachedContent => "cachedContents",
            _ => return Some(named),
        };
        let (before, id) = named.rsplit_once('/')?;
        let is_there = before.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case(folder));
        let id = id.split(['?', '#', ':']).next().unwrap_or_default();
        (is_there && !id.is_empty()).then_some(id)
    }

    /// Keys that bound the tokens of the answer.
    pub(super) const fn bounds_answer(self) -> bool {
        matches!(
            self,
            Self::MaxCompletionTokens
                | Self::MaxLength
                | Self::MaxNewTokens
                | Self::MaxOutputTokens
                | Self::MaxTokens
                | Self::MaxTokensToSample
                | Self::NumPredict
                | Self::NPredict
        )
    }

    /// Keys whose object holds a file and what is known about it.
    pub(super) const fn wraps_file(self) -> bool {
        matches!(self, Self::InlineData | Self::InputAudio | Self::Source)
    }

    /// Keys whose string value may be a file, as base64 or as a `data:` URL.
    pub(super) const fn may_hold_binary(self) -> bool {
        matches!(
            self,
            Self::Audio
                | Self::B64Json
                | Self::Blob
                | Self::Bytes
                | Self::Data
                | Self::Document
                | Self::File
                | Self::FileData
                | Self::Image
                | Self::ImageUrl
                | Self::Images
                | Self::Url
                | Self::Video
        )
    }
}

/// Whether a string looks like a name or an id rather than like words or an address: no space, bounded, an `@` only at
/// the start (some model names have it there).
pub(super) fn is_token(text: &str) -> bool {
    let rest = text.strip_prefix('@').unwrap_or(text);
    rest.len() <= 128 && rest.bytes().all(|b| TOKEN.get(usize::from(b)).is_some_and(|is_token| *is_token))
}

/// The bytes that [`is_token`] allows.
static TOKEN: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut at = 0;
    while at < bytes.len() {
        let byte = at as u8;
        bytes[at] =
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'/' | b'+' | b'=' | b'~' | b'-');
        at += 1;
    }
    bytes
};

/// Bytes of a model's name that are kept.
pub(super) const MODEL_BYTES_MAX: usize = 256;

/// A model's name, kept to 256 bytes: it becomes a label and a column.
pub(super) fn model_name(text: &str) -> String {
    let mut end = text.len().min(MODEL_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// Whether the value of a credential's key can be one: a scheme at most, then one word.
pub(super) fn is_credential(text: &str) -> bool {
    let secret = text.strip_prefix("Bearer ").unwrap_or(text);
    secret.len() <= 4096 && secret.bytes().all(|b| b.is_ascii_graphic())
}

/// An address without what lets somebody in: the user and password in front of its host, and what its query or fragment says of a
/// credential. `None` when there is none of that.
pub(super) fn without_secrets(address: &str) -> Option<String> {
    let bare = without_user(address);
    let address = bare.as_deref().unwrap_or(address);
    let is_address = address.contains("://");
    let query = address.find(['?', '#']).filter(|_| is_address);
    let Some((path, query)) = query.and_then(|at| address.split_at_checked(at)) else { return bare };
    let mut masked = path.to_owned();
    let mut hides = false;
    for pair in query.split_inclusive(['?', '#', '&', ';']) {
        let (pair, end) = pair.split_at(pair.trim_end_matches(['?', '#', '&', ';']).len());
        match pair.split_once('=') {
            Some((name, value)) if !value.is_empty() && names_secret(name) => {
                hides = true;
                masked.push_str(name);
                masked.push_str("=***");
            }
            _ => masked.push_str(pair),
        }
        masked.push_str(end);
    }
    if hides { Some(masked) } else { bare }
}

/// Whether a name in a query is that of a credential, spelled as it may be.
fn names_secret(name: &str) -> bool {
    let name = super::coded::percent_decoded(name.as_bytes(), true).to_ascii_lowercase();
    const WORDS: [&[u8]; 10] =
        [b"token", b"key", b"secret", b"passw", b"auth", b"credential", b"sig", b"session", b"jwt", b"code"];
    WORDS.iter().any(|word| memchr::memmem::find(&name, word).is_some())
}

fn without_user(address: &str) -> Option<String> {
    let (scheme, rest) = address.split_once("://")?;
    let host_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(host_end)?;
    let (_, host) = authority.rsplit_once('@')?;
    Some(format!("{scheme}://***@{host}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Event, Walker};

    fn read(spelled: &str) -> (Key, bool) {
        let document = format!("{{\"{spelled}\":1}}");
        let mut walker = Walker::over(&document);
        walker.next_event().unwrap();
        match walker.next_event().unwrap() {
            Some(Event::Key(text)) => Key::read(&text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn knows_a_key_at_every_spelling() {
        assert_eq!(read("messages"), (Key::Messages, true));
        assert_eq!(read(r"\u006dessages"), (Key::Messages, true));
        assert_eq!(read("Messages"), (Key::Messages, false));
        assert_eq!(read("toolCalls"), (Key::ToolCalls, false));
        assert_eq!(read("tool_calls"), (Key::ToolCalls, true));
        assert_eq!(read("Tool-Calls"), (Key::ToolCalls, false));
        assert_eq!((read("X-Api-Key").0, read("Api-Key").0), (Key::XApiSecret, Key::ApiSecret));
        assert_eq!(read("max_completion_tokens"), (Key::MaxCompletionTokens, true));
        assert_eq!(read("previous_response_id"), (Key::PreviousResponseId, true));
        assert_eq!(read("message"), (Key::Message, true));
        assert_eq!(read(&"a".repeat(1000)), (Key::Other, false));
    }

    #[test]
    fn an_address_loses_its_user_and_nothing_else() {
        let bare = |address| without_user(address);
        assert_eq!(bare("https://u:p@mcp.example/x?a=b@c").as_deref(), Some("https://***@mcp.example/x?a=b@c"));
        assert_eq!(bare("https://u@h@mcp.example").as_deref(), Some("https://***@mcp.example"));
        for whole in ["https://mcp.example/@path", "mail me at a@b.example", "https://mcp.example"] {
            assert_eq!(bare(whole), None, "{whole}");
        }
    }

    #[test]
    fn an_address_loses_what_lets_somebody_in_and_nothing_else() {
        for (address, expected) in [
            ("https://mcp.example/sse?token=abc", "https://mcp.example/sse?token=***"),
            ("https://mcp.example/sse?a=b&apiKey=abc&c=d", "https://mcp.example/sse?a=b&apiKey=***&c=d"),
            ("https://mcp.example/sse?api%5Fkey=abc#x", "https://mcp.example/sse?api%5Fkey=***#x"),
            ("https://mcp.example/#access_token=abc", "https://mcp.example/#access_token=***"),
            ("https://u:p@mcp.example/x?to%6ben=a=b", "https://***@mcp.example/x?to%6ben=***"),
        ] {
            assert_eq!(without_secrets(address).as_deref(), Some(expected), "{address}");
        }
        for whole in ["https://mcp.example/sse?a=b", "https://mcp.example/?token=", "is it ?token=abc", "a"] {
            assert_eq!(without_secrets(whole), None, "{whole}");
        }
    }
}
