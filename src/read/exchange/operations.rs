//! Which operation of a provider's interface a request is, read strictly: what it may be used for, and where it names its model.
//!
//! `inspect::provider` asks how a body is best read and forgives every spelling; here it is asked what somebody may do, so that a path which two
//! servers could read differently is none that is known. Invariants: pure; a path with an escape outside of a model's name, an escape
//! within an escape, a backslash, a parameter, an empty or dotted segment is unknown, and so is a method the operation does not have.

use std::borrow::Cow;

use smallvec::SmallVec;

macro_rules! families {
    ($($name:ident $word:literal $doc:literal;)*) => {
        /// What operations are allowed by.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Family {
            $(#[doc = $doc] $name,)*
        }

        impl Family {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The word for it in `allowed_operations`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

families! {
    Inference "inference" "A model answers: chats, completions, pictures, speech, reranking, realtime sessions.";
    Embeddings "embeddings" "Vectors of texts.";
    TokenCounting "token_counting" "Tokens of texts.";
    Models "models" "Which models there are.";
    Files "files" "Uploaded files and generated videos.";
    Batches "batches" "Many calls at once, answered later.";
    Responses "responses" "Answers and conversations that the provider keeps.";
    Assistants "assistants" "Assistants, threads, runs, vector stores, containers.";
    CachedContents "cached_contents" "Prompts that the provider keeps.";
    FineTuning "fine_tuning" "Models that are trained.";
    ModelFiles "model_files" "Models of a local server: pulled, made, copied, deleted.";
    Other "other" "All that is not known here: keys, members and usage of the account, and what is spelt unusually.";
}

/// Where an operation names its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelPlace {
    /// In the body: `model` at its top.
    Body,
    /// In the body, below its top: of a session, of each call of a batch.
    Each,
    /// In the path: this one.
    Path(String),
    /// In the query, of a realtime connection.
    Query,
    /// No model runs.
    Nowhere,
    /// Where nobody here reads it: in a file, or in what another call has made.
    Unread,
}

/// Whose objects an operation concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// None that is kept.
    Call,
    /// One that it makes.
    Create,
    /// The one of this id.
    Object(&'a str),
    /// The account's.
    Account,
}

/// An operation that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownOperation<'a> {
    /// What it is allowed by.
    pub family: Family,
    /// Where it names its model.
    pub model: ModelPlace,
    /// Whose objects it concerns.
    pub scope: Scope<'a>,
}

/// What methods there are, as far as they tell operations apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Read,
    Post,
    Delete,
}

type Segments<'a> = SmallVec<[&'a str; 12]>;

/// The operation; `path` is without its query. `None` where it is not known.
pub fn operation<'a>(method: &str, path: &'a str) -> Option<KnownOperation<'a>> {
    let verb = match method {
        "GET" | "HEAD" => Verb::Read,
        "POST" => Verb::Post,
        "DELETE" => Verb::Delete,
        _ => return None,
    };
    if verb == Verb::Post && matches!(path, "/v1/chat/completions" | "/v1/messages" | "/v1/completions" | "/api/chat") {
        return Some(KnownOperation { family: Family::Inference, model: ModelPlace::Body, scope: Scope::Call });
    }
    if path.bytes().any(|byte| matches!(byte, b'\\' | b';' | b'?' | b'#' | 0..=b' ' | 0x7f)) {
        return None;
    }
    let path = path.strip_prefix('/')?;
    let path = path.strip_suffix('/').unwrap_or(path);
    let folded = path.to_ascii_lowercase();
    let (given, folded): (Segments<'a>, Segments<'_>) = (path.split('/').collect(), folded.split('/').collect());
    if folded.iter().any(|segment| matches!(*segment, "" | "." | "..")) {
        return None;
    }
    let (at, named) = behind_prefix(&given, &folded)?;
    let (given, rest) = (given.get(at..)?, folded.get(at..)?);
    let is_plain = |segment: &&str| !segment.contains('%');
    if !given.iter().all(is_plain) {
        // Only the name of a model may have escapes.
        let named = matches!(rest, ["model", _, action] if is_plain(action))
            || matches!(rest, ["models" | "tunedmodels" | "endpoints", _]);
        if !named {
            return None;
        }
    }
    let (family, model, scope) = by_rest(verb, given, rest)?;
    let model = match (named, model) {
        (Some(named), ModelPlace::Body) => ModelPlace::Path(named),
        // A deployment has no files.
        (Some(_), _) => return None,
        (None, model) => model,
    };
    Some(KnownOperation { family, model, scope })
}

/// How many segments stand in front of the operation, and the model that they name.
fn behind_prefix(given: &[&str], folded: &[&str]) -> Option<(usize, Option<String>)> {
    let (mut at, mut named) = (0, None);
    loop {
        match folded.get(at..)? {
            ["projects" | "locations" | "publishers", name, ..] if !name.contains('%') => at += 2,
            ["endpoints", "openapi", ..] => at += 2,
            ["endpoints", _, "chat", "completions"] | ["deployments", _, ..] if named.is_none() => {
                named = Some(model_name(given.get(at + 1)?)?);
                at += 2;
            }
            [word, ..] if is_prefix(word) => at += 1,
            _ => return Some((at, named)),
        }
    }
}

/// Words that stand in front of operations and mean nothing by themselves.
fn is_prefix(word: &str) -> bool {
    matches!(word, "api" | "openai" | "anthropic" | "compatible-mode" | "inference" | "paas" | "beta" | "upload")
        || is_version(word)
}

/// `v1`, `v1beta`, `v1beta1`, `v4`.
fn is_version(word: &str) -> bool {
    let Some(rest) = word.strip_prefix('v') else { return false };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = rest.strip_prefix("alpha").or_else(|| rest.strip_prefix("beta")).unwrap_or(rest);
    word.len() > 1 && word.as_bytes().get(1).is_some_and(u8::is_ascii_digit) && rest.bytes().all(|b| b.is_ascii_digit())
}

/// A model's name as the path spells it, decoded once; `None` where it could be decoded once more.
fn model_name(segment: &str) -> Option<String> {
    let name = if segment.contains('%') { Cow::Owned(percent_decoded(segment)) } else { Cow::Borrowed(segment) };
    let is_clear = !name.is_empty() && !name.chars().any(|c| matches!(c, '%' | '\\') || c.is_control());
    is_clear.then(|| name.into_owned())
}

/// Undoes escapes once; what is no escape stays.
fn percent_decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digit = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

type Row<'a> = (Family, ModelPlace, Scope<'a>);

fn by_rest<'a>(verb: Verb, given: &[&'a str], rest: &[&str]) -> Option<Row<'a>> {
    calls(verb, given, rest).or_else(|| objects(verb, given, rest))
}

/// Operations that keep nothing.
fn calls<'a>(verb: Verb, given: &[&'a str], rest: &[&str]) -> Option<Row<'a>> {
    use Family::{Embeddings, Inference, ModelFiles, Models, TokenCounting};
    use ModelPlace::{Body, Each, Nowhere, Path, Query, Unread};
    let call = |family, model| Some((family, model, Scope::Call));
    match (verb, rest) {
        (
            Verb::Post,
            ["chat" | "fim", "completions"]
            | ["completions" | "chat" | "generate" | "generate_stream" | "complete" | "messages" | "interactions"]
            | ["moderations" | "rerank" | "ocr" | "classify"]
            | ["audio", "speech" | "transcriptions" | "translations"]
            | ["images", "generations" | "edits" | "variations"]
            | ["realtime", "sessions"],
        ) => call(Inference, Body),
        (Verb::Post, ["realtime", "client_secrets" | "transcription_sessions"]) => call(Inference, Each),
        (Verb::Post, ["responses"] | ["responses", "compact"] | ["videos"]) => Some((Inference, Body, Scope::Create)),
        (Verb::Read, ["realtime"]) => call(Inference, Query),
        // A connection whose messages name the model.
        (Verb::Read, ["responses"]) => call(Inference, Unread),
        (Verb::Post, ["embeddings" | "embed"]) => call(Embeddings, Body),
        (Verb::Post, ["messages", "count_tokens"] | ["responses", "input_tokens"] | ["tokenize" | "detokenize"]) => {
            call(TokenCounting, Body)
        }
        (Verb::Post, ["model", _, action]) => {
            let family = match *action {
                "converse" | "converse-stream" | "invoke" | "invoke-with-response-stream" => Inference,
                "count-tokens" => TokenCounting,
                _ => return None,
            };
            call(family, Path(model_name(given.get(1)?)?))
        }
        (Verb::Post, ["models" | "tunedmodels" | "endpoints", _]) => {
            let last = model_name(given.get(1)?)?;
            let (name, method) = last.rsplit_once(':')?;
            let family = match method.to_ascii_lowercase().as_str() {
                "generatecontent" | "streamgeneratecontent" | "predict" | "rawpredict" | "streamrawpredict" => {
                    Inference
                }
                "embedcontent" | "batchembedcontents" => Embeddings,
                "counttokens" | "computetokens" => TokenCounting,
                _ => return None,
            };
            (!name.is_empty()).then(|| (family, Path(name.to_owned()), Scope::Call))
        }
        (Verb::Read, ["models", ..] | ["tags" | "ps" | "version"]) if rest.len() <= 3 => call(Models, Nowhere),
        (Verb::Post, ["show"]) => call(Models, Body),
        (_, ["pull" | "push" | "create" | "copy" | "delete" | "blobs", ..]) | (Verb::Delete, ["models", ..]) => {
            Some((ModelFiles, Unread, Scope::Account))
        }
        _ => None,
    }
}

/// Operations on what the provider keeps.
fn objects<'a>(verb: Verb, given: &[&'a str], rest: &[&str]) -> Option<Row<'a>> {
    use Family::{Assistants, Batches, CachedContents, Files, FineTuning, Responses};
    use ModelPlace::{Body, Each, Nowhere, Unread};
    let object = |at: usize| given.get(at).map(|id| Scope::Object(id));
    Some(match (verb, rest) {
        (Verb::Post, ["files" | "uploads"]) => (Files, Unread, Scope::Create),
        (Verb::Post, ["uploads", _, ..]) => (Files, Unread, object(1)?),
        (Verb::Read, ["files" | "uploads" | "videos"]) => (Files, Nowhere, Scope::Account),
        (Verb::Read | Verb::Delete, ["files" | "uploads" | "videos", _, ..]) => (Files, Nowhere, object(1)?),
        (Verb::Post, ["batches"]) => (Batches, Unread, Scope::Create),
        (Verb::Post, ["messages", "batches"]) => (Batches, Each, Scope::Create),
        (Verb::Read, ["batches"] | ["messages", "batches"]) => (Batches, Nowhere, Scope::Account),
        (Verb::Read | Verb::Delete, ["batches", _]) | (Verb::Post, ["batches", _, "cancel"]) => {
            (Batches, Nowhere, object(1)?)
        }
        (Verb::Read | Verb::Delete, ["messages", "batches", _])
        | (Verb::Read, ["messages", "batches", _, "results"])
        | (Verb::Post, ["messages", "batches", _, "cancel"]) => (Batches, Nowhere, object(2)?),
        (Verb::Read | Verb::Delete, ["responses", _])
        | (Verb::Read, ["responses", _, "input_items"])
        | (Verb::Post, ["responses", _, "cancel"]) => (Responses, Nowhere, object(1)?),
        (Verb::Post, ["conversations"]) => (Responses, Nowhere, Scope::Create),
        (_, ["conversations", _, ..]) => (Responses, Nowhere, object(1)?),
        (Verb::Read, ["chat", "completions"]) => (Responses, Nowhere, Scope::Account),
        (_, ["chat", "completions", _] | ["chat", "completions", _, "messages"]) => (Responses, Nowhere, object(2)?),
        (Verb::Post, ["assistants"] | ["threads", "runs"]) => (Assistants, Body, Scope::Create),
        (Verb::Post, ["threads" | "vector_stores" | "containers"]) => (Assistants, Nowhere, Scope::Create),
        (Verb::Post, ["assistants", _] | ["threads", _, "runs"]) => (Assistants, Body, object(1)?),
        (Verb::Read, ["assistants" | "vector_stores" | "containers"]) => (Assistants, Nowhere, Scope::Account),
        (_, ["assistants" | "threads" | "vector_stores" | "containers", _, ..]) => (Assistants, Nowhere, object(1)?),
        (Verb::Post, ["cachedcontents"]) => (CachedContents, Body, Scope::Create),
        (Verb::Read, ["cachedcontents"]) => (CachedContents, Nowhere, Scope::Account),
        (_, ["cachedcontents", _]) => (CachedContents, Nowhere, object(1)?),
        (_, ["fine_tuning" | "fine-tunes", ..]) => (FineTuning, Unread, Scope::Account),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(method: &str, path: &'static str) -> Option<(Family, ModelPlace)> {
        operation(method, path).map(|known| (known.family, known.model))
    }

    #[test]
    fn an_operation_is_known_by_its_plain_spelling() {
        use Family::{Assistants, Batches, Embeddings, Files, Inference, ModelFiles, Models, TokenCounting};
        use ModelPlace::{Body, Each, Nowhere, Query, Unread};
        let path = |name: &str| ModelPlace::Path(name.to_owned());
        for (method, at, expected) in [
            ("POST", "/v1/chat/completions", (Inference, Body)),
            ("POST", "/V1/Chat/Completions/", (Inference, Body)),
            ("POST", "/openai/deployments/mini/chat/completions", (Inference, path("mini"))),
            ("POST", "/openai/Deployments/mini/embeddings", (Embeddings, path("mini"))),
            ("POST", "/v1/projects/p/locations/l/endpoints/77:rawPredict", (Inference, path("77"))),
            ("POST", "/v1/projects/p/locations/l/endpoints/77/chat/completions", (Inference, path("77"))),
            ("POST", "/v1/projects/p/locations/l/endpoints/openapi/chat/completions", (Inference, Body)),
            ("POST", "/v1/projects/p/locations/l/publishers/google/models/g:countTokens", (TokenCounting, path("g"))),
            ("POST", "/v1beta/models/g:streamGenerateContent", (Inference, path("g"))),
            ("POST", "/v1beta/openai/chat/completions", (Inference, Body)),
            ("POST", "/api/paas/v4/chat/completions", (Inference, Body)),
            ("POST", "/model/anthropic.claude-v1%3A0/invoke", (Inference, path("anthropic.claude-v1:0"))),
            ("POST", "/model/arn%3Aaws%3Abedrock%3A%3A1%3Ax%2Fy/converse", (Inference, path("arn:aws:bedrock::1:x/y"))),
            ("GET", "/v1/realtime", (Inference, Query)),
            ("GET", "/v1/models/owner/name", (Models, Nowhere)),
            ("POST", "/v1/files", (Files, Unread)),
            ("POST", "/v1/messages/batches", (Batches, Each)),
            ("POST", "/v1/threads/t/runs", (Assistants, Body)),
            ("POST", "/api/copy", (ModelFiles, Unread)),
        ] {
            assert_eq!(known(method, at), Some(expected), "{method} {at}");
        }
        assert_eq!(operation("GET", "/v1/files/file-Ab/content").unwrap().scope, Scope::Object("file-Ab"));
        assert_eq!(operation("GET", "/v1/files").unwrap().scope, Scope::Account);
    }

    #[test]
    fn what_two_servers_could_read_differently_is_unknown() {
        for (method, path) in [
            ("POST", "/v1/chat//completions"),
            ("POST", "//v1/chat/completions"),
            ("POST", "/v1/./chat/completions"),
            ("POST", "/v1/x/../chat/completions"),
            ("POST", "/v1/%63hat/completions"),
            ("POST", "/v1/chat/completions;x"),
            ("POST", "/openai/deployments%5clarge/chat/completions"),
            ("POST", "/openai/deployments\\large/chat/completions"),
            ("POST", "/openai/deployments/a%255cb/chat/completions"),
            ("POST", "/openai/deployments/a/deployments/b/chat/completions"),
            ("POST", "/openai/deployments/a/files"),
            ("POST", "/v1beta/models/large%253AgenerateContent"),
            ("POST", "/v1beta/models/owner/large:generateContent"),
            ("POST", "/v1beta/dynamic/large:generateContent"),
            ("POST", "/v1/engines/large/completions"),
            ("POST", "/models/owner/name/v1/chat/completions"),
            ("POST", "/models/owner/name"),
            ("POST", "/async-invoke"),
            ("post", "/v1/chat/completions"),
            ("PATCH", "/v1/chat/completions"),
            ("GET", "/v1/organization/api_keys"),
        ] {
            assert_eq!(known(method, path), None, "{method} {path}");
        }
        assert_eq!(known("POST", ""), None);
    }
}
