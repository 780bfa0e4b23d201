//! A fake LLM provider as pure logic: a request in, a plan of the answer out.
//!
//! Speaks four dialects well enough for their official clients: chat-completions (`/v1/chat/completions`,
//! `/v1/completions`, `/v1/embeddings`, `/v1/models`, `/v1/responses`, also below Azure's
//! `/openai/deployments/{name}`), messages (`/v1/messages`, `/v1/messages/count_tokens`, `/v1/models` with
//! `anthropic-version`), generate-content (`/v1beta/models/{name}:generateContent`, `:streamGenerateContent`) and the local server (`/api/generate`, `/api/chat`, `/api/tags`, `/api/embed`,
//! `/api/embeddings`, `/api/version`). How an answer can be bent is told in the directives' table of `steer.rs`: header
//! fields `x-fake-*`, `model@directive=value`, or `[[fake directive=value]]` in the prompt.
//!
//! Invariant: the same request always gets the same answer, and a streamed text joined equals the whole one. Performs
//! no I/O and reads no clock; the servers around it do.

mod answer;
mod ask;
mod chat;
mod digest;
mod gemini;
mod local;
mod messages;
mod reply;
mod responses;
mod steer;
mod vectors;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::Write as _;

use crate::http::Request;
pub use answer::{
    Answer, Ending, Framing, Piece, STAMP_DIGITS, Script, Write, now_ns, read_stamp, stamp_at, stamp_now,
};
use ask::Ask;
pub use digest::Digest;
use reply::Reply;
use steer::Steering;

const JSON: &str = "application/json";
const SSE: &str = "text/event-stream; charset=utf-8";
const NDJSON: &str = "application/x-ndjson";
/// The field that carries an answer's digest as 16 hex digits, where it is asked for.
pub const DIGEST_FIELD: &str = "x-fake-digest";
/// Every answer is made at this second, so that answers compare.
const CREATED: u64 = 1_700_000_000;
/// The models the lists name.
const MODELS: [&str; 3] = ["fake-large", "fake-small", "fake-embedding"];

/// Whose error shape and framing an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Chat,
    Messages,
    Gemini,
    Local,
}

/// The generating endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Chat,
    Completion,
    Responses,
    Messages,
    Gemini,
    LocalGenerate,
    LocalChat,
}

/// The provider's answer to a request.
pub fn respond(request: &Request) -> Answer {
    let dialect = dialect_of(request);
    let mut answer = match Steering::of_headers(request) {
        Ok(steering) => route(request, dialect, steering),
        Err(message) => failure(dialect, 400, &message),
    };
    // RFC 9112 section 6.1: no coding is sent to a client of HTTP/1.0; there the end of the connection ends the body.
    if request.is_http_1_0 && answer.framing == Framing::Chunked {
        answer.framing = Framing::UntilClose;
    }
    answer
}

/// An error in the shape of the provider that serves `path`, for servers that refuse a request by themselves.
pub fn refuse(path: &str, status: u16, message: &str) -> Answer {
    failure(dialect_of(&Request::new("POST", path)), status, message)
}

fn dialect_of(request: &Request) -> Dialect {
    match request.path.as_str() {
        path if path.starts_with("/v1/messages") => Dialect::Messages,
        path if path.starts_with("/v1/models") && request.header("anthropic-version").is_some() => Dialect::Messages,
        path if path.starts_with("/api/") => Dialect::Local,
        path if gemini::model_of(path).is_some() => Dialect::Gemini,
        _ => Dialect::Chat,
    }
}

fn route(request: &Request, dialect: Dialect, steering: Steering) -> Answer {
    let post = request.method == "POST";
    let read = matches!(request.method.as_str(), "GET" | "HEAD");
    // Azure serves chat completions and the like below each deployment.
    let deployed = request.path.strip_prefix("/openai/deployments/").and_then(|path| path.split_once('/'));
    let path = deployed.map_or_else(|| Cow::from(request.path.as_str()), |(_, rest)| Cow::from(format!("/v1/{rest}")));
    match &*path {
        "/v1/chat/completions" if post => generate(Endpoint::Chat, dialect, request, steering),
        "/v1/completions" if post => generate(Endpoint::Completion, dialect, request, steering),
        "/v1/responses" if post => generate(Endpoint::Responses, dialect, request, steering),
        "/v1/messages" if post => generate(Endpoint::Messages, dialect, request, steering),
        "/api/generate" if post => generate(Endpoint::LocalGenerate, dialect, request, steering),
        "/api/chat" if post => generate(Endpoint::LocalChat, dialect, request, steering),
        path if post && dialect == Dialect::Gemini && gemini::model_of(path).is_some() => {
            generate(Endpoint::Gemini, dialect, request, steering)
        }
        "/v1/messages/count_tokens" if post => counted(request, dialect, steering),
        "/v1/embeddings" | "/api/embed" | "/api/embeddings" if post => embed(request, dialect, steering),
        "/v1/models" if read && dialect == Dialect::Messages => finish(dialect, steering, messages::models()),
        "/v1/models" if read => finish(dialect, steering, chat::models()),
        "/api/tags" if read => finish(dialect, steering, local::tags()),
        "/api/version" if read => finish(dialect, steering, r#"{"version":"0.0.0"}"#.to_owned()),
        "/" if read => bend(Answer::whole(200, "text/plain; charset=utf-8", "fake provider is running"), steering),
        path => match path.strip_prefix("/v1/models/").filter(|_| read) {
            Some(model) if dialect == Dialect::Messages => finish(dialect, steering, messages::model(model)),
            Some(model) => finish(dialect, steering, chat::model(model)),
            None if steering.status.is_some() => finish(dialect, steering, String::new()),
            None => failure(dialect, 404, &format!("unknown request: {} {path}", request.method)),
        },
    }
}

fn generate(endpoint: Endpoint, dialect: Dialect, request: &Request, steering: Steering) -> Answer {
    let (ask, steering) = match asked(request, steering) {
        Ok(both) => both,
        Err(message) => return failure(dialect, 400, &message),
    };
    if steering.status.is_some_and(|status| status >= 400) {
        return finish(dialect, steering, String::new());
    }
    let mut reply = Reply::to(&ask, &steering);
    // The local server streams unless told not to, the others only when told to.
    if ask.stream.unwrap_or(dialect == Dialect::Local) {
        let stamp = if steering.stamp { answer::STAMP_BLANK } else { "" };
        let frames = match endpoint {
            Endpoint::Chat | Endpoint::Completion => chat::frames(endpoint, &ask, &reply, &steering, stamp),
            Endpoint::Responses => responses::frames(&ask, &reply, &steering, stamp),
            Endpoint::Messages => messages::frames(&ask, &reply, &steering, stamp),
            Endpoint::Gemini => gemini::frames(&ask, &reply, &steering, stamp),
            Endpoint::LocalGenerate | Endpoint::LocalChat => local::frames(endpoint, &ask, &reply, &steering, stamp),
        };
        let content_type = if dialect == Dialect::Local { NDJSON } else { SSE };
        let frames = frames.into_iter().map(String::into_bytes).collect();
        let mut answer = Answer::stream(content_type, frames, steering.frame_ms.unwrap_or(0));
        answer.headers.push(request_id(dialect, &reply.key));
        return bend(answer, steering);
    }
    let render = |reply: &Reply| match endpoint {
        Endpoint::Chat => chat::whole(&ask, reply, &steering),
        Endpoint::Completion => chat::whole_completion(&ask, reply, &steering),
        Endpoint::Responses => responses::whole(&ask, reply, &steering),
        Endpoint::Messages => messages::whole(&ask, reply, &steering),
        Endpoint::Gemini => gemini::whole(&ask, reply, &steering),
        Endpoint::LocalGenerate | Endpoint::LocalChat => local::whole(endpoint, &ask, reply, &steering),
    };
    if let Some(target) = steering.answer_bytes {
        reply.fit(target, |reply| render(reply).len());
    }
    let mut answer = Answer::whole(200, JSON, render(&reply));
    answer.headers.push(request_id(dialect, &reply.key));
    bend(answer, steering)
}

/// The request's body, and its directives beside those of the header.
fn asked(request: &Request, steering: Steering) -> Result<(Ask, Steering), String> {
    let ask = match gemini::model_of(&request.path) {
        Some((model, stream)) => Ask::parse_named(&request.body, model, stream)?,
        None => Ask::parse(&request.body)?,
    };
    let steering = steering.or(Steering::of_prompt(&ask.prompt)?).or(Steering::of_model(&ask.model_sent)?);
    Ok((ask, steering))
}

fn counted(request: &Request, dialect: Dialect, steering: Steering) -> Answer {
    match asked(request, steering) {
        Ok((ask, steering)) => {
            let tokens = Reply::to(&ask, &steering).prompt_tokens;
            finish(dialect, steering, format!(r#"{{"input_tokens":{tokens}}}"#))
        }
        Err(message) => failure(dialect, 400, &message),
    }
}

fn embed(request: &Request, dialect: Dialect, steering: Steering) -> Answer {
    let rendered = vectors::Inputs::parse(&request.body).and_then(|inputs| {
        let steering = steering.or(Steering::of_model(&inputs.model_sent)?);
        let body = match request.path.as_str() {
            "/v1/embeddings" => inputs.list(),
            "/api/embed" => inputs.local_list(),
            _ => inputs.local_single(),
        };
        Ok((steering, body))
    });
    match rendered {
        Ok((steering, body)) => finish(dialect, steering, body),
        Err(message) => failure(dialect, 400, &message),
    }
}

/// A whole JSON answer, or the error the directives ask for, with everything else they ask for.
fn finish(dialect: Dialect, steering: Steering, body: String) -> Answer {
    match steering.status {
        Some(status) if status >= 400 => bend(failure(dialect, status, "this failure was asked for"), steering),
        _ => bend(Answer::whole(200, JSON, body), steering),
    }
}

/// Applies what the directives say about status, headers, timing and framing.
fn bend(mut answer: Answer, steering: Steering) -> Answer {
    answer.status = steering.status.unwrap_or(answer.status);
    answer.delay_ms = steering.delay_ms.unwrap_or(0);
    answer.headers.extend(steering.headers);
    if steering.gzip {
        compress(&mut answer);
    }
    if steering.digest {
        answer.headers.push((DIGEST_FIELD.to_owned(), format!("{:016x}", Digest::of(&answer.body()))));
    }
    answer.framing = steering.framing.unwrap_or(answer.framing);
    if steering.close {
        answer.ending = Ending::Close;
    }
    if let Some(bytes) = steering.cut_after {
        answer.ending = Ending::CutAfter(bytes);
    }
    answer
}

/// Compresses the pieces with gzip, each flushed so that it can be read when it arrives.
fn compress(answer: &mut Answer) {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let last = answer.pieces.len().saturating_sub(1);
    for (index, piece) in answer.pieces.iter_mut().enumerate() {
        // Writing into memory cannot fail; were it to, the plain piece stays and the client sees a broken body.
        let flushed = encoder.write_all(&piece.bytes).and_then(|()| match index == last {
            true => encoder.try_finish(),
            false => encoder.flush(),
        });
        if flushed.is_ok() {
            piece.bytes = std::mem::take(encoder.get_mut());
        }
    }
    answer.headers.push(("content-encoding".to_owned(), "gzip".to_owned()));
}

fn failure(dialect: Dialect, status: u16, message: &str) -> Answer {
    let body = match dialect {
        Dialect::Chat => chat::error(status, message),
        Dialect::Messages => messages::error(status, message),
        Dialect::Gemini => gemini::error(status, message),
        Dialect::Local => format!(r#"{{"error":{}}}"#, quoted(message)),
    };
    let mut answer = Answer::whole(status, JSON, body);
    answer.headers.push(request_id(dialect, &format!("{:016x}", reply::fnv1a(&[message.as_bytes()]))));
    answer
}

fn request_id(dialect: Dialect, key: &str) -> (String, String) {
    let name = if dialect == Dialect::Messages { "request-id" } else { "x-request-id" };
    (name.to_owned(), format!("req_{key}"))
}

/// A string as JSON, quotes included.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
