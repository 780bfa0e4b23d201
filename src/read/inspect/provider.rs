//! Which provider a request is for, which dialect its body speaks, and what operation it is.
//!
//! | decides | in this order |
//! |---|---|
//! | provider | `X-Service-Provider`, the path, the upstream's host name, `openai` |
//! | dialect, operation | the path; where it says nothing, the provider |
//!
//! The path is classified on a normalised copy (percent-decoding, case, `//`, trailing slash, `;params`, query), so
//! that a spelling trick does not change how a body is read. Invariant: the copy is never what is forwarded. Must not
//! know: bodies, sockets.

use std::borrow::Cow;

use weir_config::vocab::{Dialect, Operation, Provider};

/// How to treat one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Who answers.
    pub provider: Provider,
    /// How bodies are read.
    pub dialect: Dialect,
    /// What the span is called.
    pub operation: Operation,
}

/// What a path alone tells.
struct Known {
    provider: Option<&'static str>,
    dialect: Option<Dialect>,
    operation: Operation,
}

impl Known {
    const fn new(provider: Option<&'static str>, dialect: Dialect, operation: Operation) -> Self {
        Self { provider, dialect: Some(dialect), operation }
    }
}

/// Classifies a request. `forced` is the value of `X-Service-Provider`, `path` the request target with or without its
/// query, `upstream_host` the host (and port) of `upstream_url`.
pub fn route(forced: Option<&str>, path: &str, upstream_host: &str) -> Route {
    let known = listed(path).unwrap_or_else(|| by_path(&normalised(path)));
    let provider = match (forced.map(str::trim).filter(|name| !name.is_empty()), known.provider) {
        (Some(name), _) | (None, Some(name)) => Provider::named(name),
        (None, None) => provider_of_host(upstream_host).map_or(Provider::OPENAI, Provider::named),
    };
    let dialect = known.dialect.unwrap_or(match provider.as_str() {
        "anthropic" => Dialect::Messages,
        "ollama" => Dialect::LocalServer,
        _ => Dialect::ChatCompletions,
    });
    Route { provider, dialect, operation: known.operation }
}

/// Whose dialect a path is, where it says so by itself.
pub fn provider_of_path(path: &str) -> Option<&'static str> {
    listed(path).unwrap_or_else(|| by_path(&normalised(path))).provider
}

fn without_query(path: &str) -> &str {
    memchr::memchr(b'?', path.as_bytes()).and_then(|at| path.get(..at)).unwrap_or(path)
}

/// The paths nearly all requests use, spelled plainly: no copy is needed for them.
fn listed(path: &str) -> Option<Known> {
    let path = without_query(path);
    Some(match path {
        "/v1/chat/completions" => openai(Operation::ChatCompletion),
        "/v1/completions" => openai(Operation::Completion),
        "/v1/embeddings" => openai(Operation::Embedding),
        "/v1/responses" => openai(Operation::Responses),
        "/v1/messages" => Known::new(Some("anthropic"), Dialect::Messages, Operation::Messages),
        "/api/chat" => ollama(Operation::Chat),
        "/api/generate" => ollama(Operation::Generate),
        _ => return None,
    })
}

const fn openai(operation: Operation) -> Known {
    Known::new(Some("openai"), Dialect::ChatCompletions, operation)
}

const fn ollama(operation: Operation) -> Known {
    Known::new(Some("ollama"), Dialect::LocalServer, operation)
}

/// Classifies a normalised path by its last segments, so that a prefix (`/openai/deployments/x/...`) does not matter.
fn by_path(path: &str) -> Known {
    let segments: smallvec::SmallVec<[&str; 8]> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let azure = segments.windows(2).any(|pair| pair == ["openai", "deployments"]) || segments.starts_with(&["openai"]);
    let chat_style =
        |operation| Known { provider: Some(if azure { "azure_openai" } else { "openai" }), ..openai(operation) };
    match segments.as_slice() {
        [.., "api", "chat"] => ollama(Operation::Chat),
        [.., "api", "generate"] => ollama(Operation::Generate),
        [.., "api", "tags"] => ollama(Operation::ListModels),
        [.., "api", "embeddings" | "embed"] => ollama(Operation::Embedding),
        ["api", "show" | "pull" | "push" | "create" | "copy" | "delete" | "ps" | "version" | "blobs", ..] => {
            ollama(Operation::Proxy)
        }
        [.., "chat", "completions"] => chat_style(Operation::ChatCompletion),
        [.., "completions"] => chat_style(Operation::Completion),
        [.., "embeddings"] => chat_style(Operation::Embedding),
        [.., "responses"] => chat_style(Operation::Responses),
        [.., "audio", "speech"] => chat_style(Operation::Speech),
        [.., "audio", "transcriptions" | "translations"] => chat_style(Operation::Transcription),
        [.., "images", "generations" | "edits" | "variations"] => chat_style(Operation::Image),
        [.., "v1", "moderations"] => chat_style(Operation::Moderation),
        [.., "v1beta" | "v1alpha", "interactions"] => {
            Known::new(Some("gemini"), Dialect::Gemini, Operation::Interaction)
        }
        [.., "v1beta" | "v1alpha", "batches", _] => Known::new(Some("gemini"), Dialect::Gemini, Operation::Proxy),
        [.., "v1", "messages"] => Known::new(Some("anthropic"), Dialect::Messages, Operation::Messages),
        [.., "v1", "messages", _] | [.., "v1", "messages", "batches", _] | [.., "v1", "messages", "batches", _, _] => {
            Known::new(Some("anthropic"), Dialect::Messages, Operation::Proxy)
        }
        [.., "v1", "complete"] => Known::new(Some("anthropic"), Dialect::Messages, Operation::Completion),
        [.., "model", model, action] => by_bedrock_action(model, action),
        [.., last] if last.contains(':') => by_method(last),
        ["generate_stream"] => Known::new(Some("tgi"), Dialect::ChatCompletions, Operation::Generate),
        ["generate"] => Known { provider: None, dialect: None, operation: Operation::Generate },
        [.., "v1" | "v1beta" | "openai", "models"] => {
            Known { provider: None, dialect: None, operation: Operation::ListModels }
        }
        _ => Known { provider: None, dialect: None, operation: Operation::Proxy },
    }
}

/// The model a path names: `/model/{id}/...` (Bedrock), `/models/{name}:method` (Gemini), `/deployments/{name}/...` (Azure), however
/// the path is spelled: a provider may ignore case and undo escapes where it routes. Percent-decoded; a name longer than 256 bytes is
/// none.
pub fn model_in_path(path: &str) -> Option<String> {
    // The usual paths have no segment that begins like one of these, and no escape.
    let may_name = |start: &[u8]| match start {
        [b'%', ..] => true,
        [b'/', first, second] => {
            matches!((first | 0x20, second | 0x20), (b'm', b'o') | (b'd', b'e') | (b't', b'u'))
        }
        _ => false,
    };
    if !path.as_bytes().windows(3).any(may_name) {
        return None;
    }
    let mut before = Before::Nothing;
    for segment in without_query(path).split('/').filter(|segment| !segment.is_empty()) {
        let segment = decoded(segment);
        if let Some(name) = before.names(&segment) {
            return is_name(name).then(|| name.to_owned());
        }
        // Only in front of a name a `/` that is spelled as an escape parts segments; ids of models have it, too.
        let mut parts = segment.split('/').peekable();
        while let Some(part) = parts.next() {
            before = Before::of(part);
            if let Some(name) = parts.peek().and_then(|next| before.names(next)) {
                return is_name(name).then(|| name.to_owned());
            }
        }
    }
    None
}

/// What the segment before says of the next one.
#[derive(Clone, Copy)]
enum Before {
    /// Nothing.
    Nothing,
    /// It is the name of a model.
    Name,
    /// It is one where a method follows it.
    NameAndMethod,
}

impl Before {
    fn of(segment: &str) -> Self {
        let segment = segment.split(';').next().unwrap_or_default();
        let is = |name: &str| segment.eq_ignore_ascii_case(name);
        if is("model") || is("deployments") {
            Self::Name
        } else if is("models") || is("tunedModels") {
            Self::NameAndMethod
        } else {
            Self::Nothing
        }
    }

    fn names(self, segment: &str) -> Option<&str> {
        match self {
            Self::Nothing => None,
            Self::Name => Some(segment),
            Self::NameAndMethod => segment.rsplit_once(':').map(|(name, _method)| name),
        }
    }
}

/// The deployed model that a path of Vertex AI addresses by its number (`/endpoints/{id}:method`, `/endpoints/{id}/chat/completions`):
/// what a body calls it is no matter there. `openapi` is no endpoint of that kind; the body names the model.
pub fn endpoint_in_path(path: &str) -> Option<String> {
    let path = percent_decoded(without_query(path));
    let mut segments = path.split('/').filter(|segment| !segment.is_empty()).map(|segment| segment.split(';').next());
    segments.find(|segment| segment.is_some_and(|segment| segment.eq_ignore_ascii_case("endpoints")))?;
    let segment = segments.next()??;
    let id = segment.split(':').next().unwrap_or_default();
    (is_name(id) && !id.eq_ignore_ascii_case("openapi")).then(|| id.to_owned())
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 256
}

fn decoded(text: &str) -> Cow<'_, str> {
    if text.contains('%') { Cow::Owned(percent_decoded(text)) } else { Cow::Borrowed(text) }
}

/// The model that the address of a realtime connection names: `/v1/realtime?model=...`, `/openai/realtime?deployment=...`. Two of them
/// are none: nobody here can say which one the provider takes.
pub fn model_in_query(path: &str, query: Option<&str>) -> Option<String> {
    let query = query?;
    if !normalised(path).ends_with("/realtime") {
        return None;
    }
    let is_model = |key: &str| ["model", "deployment"].iter().any(|name| decoded(key).eq_ignore_ascii_case(name));
    let mut named = query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(key, _)| is_model(key));
    let (_, name) = named.next()?;
    let name = percent_decoded(name);
    (is_name(&name) && named.next().is_none()).then_some(name)
}

/// All the models that a query names, whatever the path: some servers take one from there.
pub fn models_in_query(query: Option<&str>) -> Vec<String> {
    let is_model = |key: &str| {
        let key = decoded(key);
        ["model", "deployment", "deployment_id", "model_id"].iter().any(|name| key.eq_ignore_ascii_case(name))
    };
    let pairs = query.unwrap_or_default().split(['&', ';']).filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| is_model(key)).map(|(_, name)| percent_decoded(name)).collect()
}

/// Whether the request fetches, or ends, an answer that an earlier one has begun: `GET /v1/responses/{id}`,
/// `GET /v1/threads/{id}/runs/{id}`, and `POST` with `/cancel` behind.
pub fn retrieves_response(method: &str, path: &str) -> bool {
    let is_answer = |path: &str| {
        let path = normalised(path);
        let mut segments = path.rsplit('/');
        let id = segments.next().is_some_and(|id| !id.is_empty());
        let kind = segments.next();
        let is_run = kind == Some("runs") && segments.nth(1) == Some("threads");
        id && (kind == Some("responses") || is_run)
    };
    match method {
        "GET" => is_answer(path),
        "POST" => path.strip_suffix("/cancel").is_some_and(is_answer),
        _ => false,
    }
}

/// What the provider calls the results of a batch, where they may be what the request fetches: `files/{id}` of
/// `GET /v1/files/{id}/content` and of `GET /v1beta/files/{id}:download`, `batches/{id}` of `GET /v1/messages/batches/{id}/results` and of
/// `GET /v1beta/batches/{id}`. However the path is spelled, the same results have the same name.
pub fn fetched_results(method: &str, path: &str) -> Option<Box<str>> {
    // Most paths have neither word, in whichever spelling.
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if method != "GET" || !path.contains(['f', 'F', 'b', 'B', '%']) {
        return None;
    }
    let path = decoded(path);
    let plain = |segment: &'_ str| segment.split(';').next().unwrap_or_default().to_owned();
    let segments: smallvec::SmallVec<[String; 8]> =
        path.split('/').map(plain).filter(|segment| !segment.is_empty()).collect();
    let is = |at_end: usize, word: &str| {
        let at = segments.len().checked_sub(at_end);
        at.and_then(|at| segments.get(at)).is_some_and(|segment| segment.eq_ignore_ascii_case(word))
    };
    let from_end = |at_end: usize| segments.len().checked_sub(at_end).and_then(|at| segments.get(at));
    let (last, before) = (from_end(1)?, from_end(2)?);
    let download = last.rsplit_once(':').filter(|(_, method)| method.eq_ignore_ascii_case("download"));
    let (kind, id) = match download {
        _ if is(1, "content") && is(3, "files") => ("files", before.as_str()),
        _ if is(1, "results") && is(3, "batches") && is(4, "messages") => ("batches", before.as_str()),
        Some((id, _)) if is(2, "files") => ("files", id),
        None if is(2, "batches") && !is(3, "messages") => ("batches", last.as_str()),
        _ => return None,
    };
    Some(format!("{kind}/{id}").into_boxed_str())
}

/// Whether a path is that of chat completions, however it is written.
pub fn is_chat_completion(path: &str) -> bool {
    const END: &str = "/chat/completions";
    path.ends_with(END) || normalised(path).ends_with(END)
}

/// Whether the answer is a stream in the form of one JSON array: `:streamGenerateContent` without `alt=sse`.
pub fn array_stream(path: &str) -> bool {
    const METHOD: &[u8] = b":streamGenerateContent";
    path.as_bytes().last_chunk::<{ METHOD.len() }>().is_some_and(|end| end.eq_ignore_ascii_case(METHOD))
}

/// `/model/{id}/converse`, `/invoke` and their streaming forms.
fn by_bedrock_action(model: &str, action: &str) -> Known {
    match action {
        "converse" | "converse-stream" => Known::new(Some("bedrock"), Dialect::Bedrock, Operation::Converse),
        "invoke" | "invoke-with-response-stream" if model.contains("anthropic.") => {
            Known::new(Some("bedrock"), Dialect::Bedrock, Operation::Messages)
        }
        "invoke" | "invoke-with-response-stream" => Known::new(Some("bedrock"), Dialect::Bedrock, Operation::Generate),
        _ => Known { provider: None, dialect: None, operation: Operation::Proxy },
    }
}

/// `models/{name}:generateContent` and relatives (the method follows the last colon).
fn by_method(last: &str) -> Known {
    let method = last.rsplit(':').next().unwrap_or_default();
    let (dialect, operation) = match method {
        "generatecontent" | "streamgeneratecontent" => (Dialect::Gemini, Operation::GenerateContent),
        "embedcontent" | "batchembedcontents" => (Dialect::Gemini, Operation::Embedding),
        "rawpredict" | "streamrawpredict" => {
            return Known { provider: None, dialect: Some(Dialect::Messages), operation: Operation::Messages };
        }
        "counttokens" | "batchgeneratecontent" | "download" => (Dialect::Gemini, Operation::Proxy),
        _ => return Known { provider: None, dialect: None, operation: Operation::Proxy },
    };
    Known::new(Some("gemini"), dialect, operation)
}

/// What a host name tells; `host` may carry a port.
pub fn provider_of_host(host: &str) -> Option<&'static str> {
    let host = host.to_ascii_lowercase();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (name, port),
        _ => (host.as_str(), ""),
    };
    let under = |domain: &str| name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if under("openai.azure.com") || under("cognitiveservices.azure.com") || under("services.ai.azure.com") {
        return Some("azure_openai");
    }
    if under("openai.com") {
        return Some("openai");
    }
    if under("anthropic.com") {
        return Some("anthropic");
    }
    if under("amazonaws.com") && name.starts_with("bedrock") {
        return Some("bedrock");
    }
    if under("generativelanguage.googleapis.com") || name.ends_with("aiplatform.googleapis.com") {
        return Some("gemini");
    }
    // Names of services in a cluster: `vllm`, `ollama.models.svc`, `my-tgi`.
    let service = name.split('.').next().unwrap_or_default();
    let named = |kind: &str| service.split(['-', '_']).any(|word| word == kind);
    if let Some(kind) = ["ollama", "vllm", "sglang", "tgi"].into_iter().find(|kind| named(kind)) {
        return Some(kind);
    }
    (port == "11434").then_some("ollama")
}

/// The copy a path is classified on: decoded once, lower case, without query, parameters, empty segments and the
/// slash at the end.
fn normalised(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let decoded = percent_decoded(path);
    let mut copy = String::with_capacity(decoded.len());
    for segment in decoded.split('/') {
        let segment = segment.split(';').next().unwrap_or_default();
        if !segment.is_empty() {
            copy.push('/');
            copy.push_str(segment);
        }
    }
    copy.make_ascii_lowercase();
    copy
}

pub(super) fn percent_decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = digits.filter(|_| first == b'%').and_then(|pair| u8::from_str_radix(pair, 16).ok());
        // `from_str_radix` would take a sign.
        match byte.filter(|_| tail.first().is_some_and(u8::is_ascii_hexdigit)) {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(forced: Option<&str>, path: &str, host: &str) -> (String, Dialect, Operation) {
        let route = route(forced, path, host);
        (route.provider.as_str().to_owned(), route.dialect, route.operation)
    }

    #[test]
    fn reads_the_path_in_every_spelling() {
        use Dialect::{Bedrock, ChatCompletions, Gemini, LocalServer, Messages};
        for (path, provider, dialect, operation) in [
            ("/v1/chat/completions", "openai", ChatCompletions, Operation::ChatCompletion),
            ("/V1//Chat/Completions/", "openai", ChatCompletions, Operation::ChatCompletion),
            ("/v1/chat/completions;x=1?api-version=2", "openai", ChatCompletions, Operation::ChatCompletion),
            ("/v1/%63hat%2fcompletions", "openai", ChatCompletions, Operation::ChatCompletion),
            ("/v1/chat/completions?x=/v1/messages", "openai", ChatCompletions, Operation::ChatCompletion),
            ("/openai/deployments/x/chat/completions", "azure_openai", ChatCompletions, Operation::ChatCompletion),
            ("/v1/completions", "openai", ChatCompletions, Operation::Completion),
            ("/v1/embeddings", "openai", ChatCompletions, Operation::Embedding),
            ("/v1/responses", "openai", ChatCompletions, Operation::Responses),
            ("/v1/models", "openai", ChatCompletions, Operation::ListModels),
            ("/v1/messages", "anthropic", Messages, Operation::Messages),
            ("/proxy/anthropic/v1/messages/", "anthropic", Messages, Operation::Messages),
            ("/v1/messages/count_tokens", "anthropic", Messages, Operation::Proxy),
            ("/v1/threads/t/messages", "openai", ChatCompletions, Operation::Proxy),
            ("/api/generate", "ollama", LocalServer, Operation::Generate),
            ("/api/chat", "ollama", LocalServer, Operation::Chat),
            ("/api/tags", "ollama", LocalServer, Operation::ListModels),
            ("/api/embeddings", "ollama", LocalServer, Operation::Embedding),
            ("/api/embed", "ollama", LocalServer, Operation::Embedding),
            ("/v1beta/models/g-2:streamGenerateContent?alt=sse", "gemini", Gemini, Operation::GenerateContent),
            ("/model/anthropic.claude-3/invoke", "bedrock", Bedrock, Operation::Messages),
            ("/model/us.amazon.nova-pro-v1%3A0/converse-stream", "bedrock", Bedrock, Operation::Converse),
            ("/v1beta/interactions", "gemini", Gemini, Operation::Interaction),
            ("/v1/audio/speech", "openai", ChatCompletions, Operation::Speech),
            ("/v1/audio/translations", "openai", ChatCompletions, Operation::Transcription),
            ("/openai/deployments/x/images/generations", "azure_openai", ChatCompletions, Operation::Image),
            ("/v1/moderations", "openai", ChatCompletions, Operation::Moderation),
            ("/generate_stream", "tgi", ChatCompletions, Operation::Generate),
            ("/", "openai", ChatCompletions, Operation::Proxy),
            ("/v1/%", "openai", ChatCompletions, Operation::Proxy),
        ] {
            assert_eq!(seen(None, path, "gateway.example"), (provider.into(), dialect, operation), "{path}");
        }
    }

    #[test]
    fn the_path_may_name_the_model() {
        for (path, model) in [
            ("/model/us.amazon.nova-pro-v1%3A0/converse-stream", Some("us.amazon.nova-pro-v1:0")),
            ("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", Some("gemini-2.5-pro")),
            (
                "/v1/projects/p/locations/l/publishers/google/models/gemini-2.5-pro:generateContent",
                Some("gemini-2.5-pro"),
            ),
            ("/openai/deployments/my-gpt/chat/completions?api-version=1", Some("my-gpt")),
            ("/openai/Deployments/my-gpt/chat/completions", Some("my-gpt")),
            ("/openai/deploymen%74s/my-gpt/chat/completions", Some("my-gpt")),
            ("/openai%2Fdeployments%2fmy-gpt/chat/completions", Some("my-gpt")),
            ("/openai/deployments;x=1//my-gpt/chat/completions", Some("my-gpt")),
            ("/%6dodel/arn%3Aaws%3A1%2Finference-profile%2Fx/converse", Some("arn:aws:1/inference-profile/x")),
            ("/v1beta/models/gemini-2.5-pro%3AgenerateContent", Some("gemini-2.5-pro")),
            ("/v1beta/tunedModels/mine:generateContent", Some("mine")),
            ("/v1/models", None),
            ("/v1/models/gpt-4o", None),
            ("/v1/model%73", None),
            ("/v1/chat/completions", None),
            ("/model", None),
        ] {
            assert_eq!(model_in_path(path).as_deref(), model, "{path}");
        }
        assert_eq!(model_in_path(&format!("/model/{}/invoke", "x".repeat(257))), None);
    }

    #[test]
    fn a_realtime_address_names_its_model() {
        let model = |path, query| model_in_query(path, query);
        assert_eq!(model("/v1/realtime", Some("x=1&model=gpt%2Drealtime")).as_deref(), Some("gpt-realtime"));
        assert_eq!(model("/V1/%72ealtime/", Some("%6dodel=a")).as_deref(), Some("a"));
        assert_eq!(model("/openai/realtime", Some("api-version=1&deployment=a")).as_deref(), Some("a"));
        for (path, query) in [
            ("/v1/realtime", None),
            ("/v1/realtime", Some("model=")),
            ("/v1/realtime", Some("model=a&model=b")),
            ("/openai/realtime", Some("model=a&deployment=b")),
            ("/v1/chat", Some("model=m")),
        ] {
            assert_eq!(model(path, query), None, "{path} {query:?}");
        }
    }

    #[test]
    fn fetching_an_answer_is_told_from_asking_for_one() {
        for (method, path, retrieves) in [
            ("GET", "/v1/responses/resp_1", true),
            ("GET", "/openai/V1/%72esponses/resp_1/", true),
            ("POST", "/v1/responses/resp_1/cancel", true),
            ("GET", "/v1/threads/thread_1/runs/run_1", true),
            ("POST", "/v1/threads/thread_1/runs/run_1/cancel", true),
            ("GET", "/v1/threads/thread_1/runs", false),
            ("GET", "/v1/threads/thread_1/runs/run_1/steps", false),
            ("GET", "/v1/evals/eval_1/runs/run_1", false),
            ("POST", "/v1/responses", false),
            ("POST", "/v1/responses/compact", false),
            ("GET", "/v1/responses/resp_1/input_items", false),
            ("GET", "/v1/responses/", false),
            ("DELETE", "/v1/responses/resp_1", false),
            ("GET", "/v1/chat/completions", false),
        ] {
            assert_eq!(retrieves_response(method, path), retrieves, "{method} {path}");
        }
        assert!(array_stream("/v1beta/models/g:streamGenerateContent"));
        assert!(!array_stream("/v1beta/models/g:generateContent"));
    }

    #[test]
    fn the_header_names_the_provider_and_the_path_still_names_the_dialect() {
        let forced = seen(Some("vllm"), "/v1/messages", "api.openai.com");
        assert_eq!(forced, ("vllm".into(), Dialect::Messages, Operation::Messages));
        let unlisted = seen(Some(" Anthropic "), "/anything", "api.openai.com");
        assert_eq!(unlisted, ("anthropic".into(), Dialect::Messages, Operation::Proxy));
        assert_eq!(seen(Some("my llm"), "/v1/messages", "").0, "custom");
        assert_eq!(seen(Some(""), "/v1/messages", "").0, "anthropic");
    }

    #[test]
    fn the_host_decides_where_the_path_is_silent() {
        for (host, provider) in [
            ("api.openai.com", "openai"),
            ("me.openai.azure.com:443", "azure_openai"),
            ("API.anthropic.com", "anthropic"),
            ("notanthropic.com", "openai"),
            ("bedrock-runtime.eu-west-1.amazonaws.com", "bedrock"),
            ("s3.amazonaws.com", "openai"),
            ("generativelanguage.googleapis.com", "gemini"),
            ("europe-west4-aiplatform.googleapis.com", "gemini"),
            ("127.0.0.1:11434", "ollama"),
            ("vllm.models.svc:8000", "vllm"),
            ("my-tgi:80", "tgi"),
            ("[::1]:8000", "openai"),
            ("", "openai"),
        ] {
            assert_eq!(seen(None, "/v1/models", host).0, provider, "{host}");
        }
        assert_eq!(seen(None, "/v1/chat/completions", "api.anthropic.com").0, "openai", "the path comes first");
    }
}
