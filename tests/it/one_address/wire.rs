//! What an exchange was, read off the wire on the provider's side by code that shares nothing with the gateway: what was asked, what
//! was answered, what was counted. Generous: it knows the dialects' names and no more of their rules.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use weir_fake_provider::http::Request;
use weir_fake_provider::provider::Answer;
use weir_fake_provider::server::{Options, ServerHandle, StdServer};

/// One exchange as the provider saw it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) model: Option<String>,
    /// All texts of the request, those of tools left out.
    pub(super) asked: Vec<String>,
    pub(super) said: String,
    /// Tools the model asked for.
    pub(super) calls: usize,
    /// Tokens to and from the model, where the answer counts them.
    pub(super) tokens: Option<(u64, u64)>,
    pub(super) streamed: bool,
    pub(super) status: u16,
}

/// A provider that remembers its exchanges.
pub(super) struct Watched {
    pub(super) server: ServerHandle,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Watched {
    pub(super) fn start(answers: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let responder = move |request: &Request| {
            let answer = answers(request);
            log.lock().unwrap_or_else(PoisonError::into_inner).push(Seen::of(request, &answer));
            answer
        };
        let options = Options { responder: Box::new(responder), ..Options::default() };
        Self { server: StdServer::start_with("127.0.0.1:0", options).unwrap(), seen }
    }

    pub(super) fn seen(&self) -> std::sync::MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn of(request: &Request, answer: &Answer) -> Self {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let events = events(&String::from_utf8_lossy(&answer.body()));
        // Gemini's model stands in the path.
        let in_path = || Some(request.path.rsplit_once("/models/")?.1.split_once(':')?.0);
        let mut asked = Vec::new();
        for name in ["instructions", "system", "systemInstruction", "messages", "contents", "input", "prompt"] {
            texts(&body[name], &mut asked);
        }
        let counts = request.path != "/v1/messages/count_tokens" && answer.status < 400;
        Self {
            path: request.path.clone(),
            model: body["model"].as_str().or_else(in_path).map(str::to_owned),
            asked,
            said: events.iter().map(said).collect(),
            calls: events.iter().map(calls).sum(),
            tokens: counts.then(|| tokens(&events)).flatten(),
            streamed: answer.header("content-type").is_some_and(|is| is.contains("stream") || is.contains("ndjson")),
            status: answer.status,
        }
    }
}

/// The JSON values of an answer: one, or those of a stream.
fn events(body: &str) -> Vec<Value> {
    let whole = serde_json::from_str(body).ok().map(|whole| vec![whole]);
    whole.unwrap_or_else(|| {
        let lines = body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
    })
}

/// The texts of a message, a list of them, or a text.
fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => {
            for name in ["content", "text", "parts", "output"] {
                texts(fields.get(name).unwrap_or(&Value::Null), found);
            }
        }
        _ => {}
    }
}

/// What an event says of the answer's text.
fn said(event: &Value) -> String {
    let mut found = Vec::new();
    match event["type"].as_str() {
        Some("content_block_delta") => texts(&event["delta"]["text"], &mut found),
        Some("response.output_text.delta") => texts(&event["delta"], &mut found),
        Some("message") => texts(&event["content"], &mut found),
        Some(_) => {}
        None => {
            let choices = event["choices"].as_array().into_iter().flatten();
            choices
                .for_each(|choice| ["message", "delta", "text"].iter().for_each(|at| texts(&choice[at], &mut found)));
            for candidate in event["candidates"].as_array().into_iter().flatten() {
                texts(&candidate["content"], &mut found);
            }
            ["output", "message", "response"].iter().for_each(|name| texts(&event[name], &mut found));
        }
    }
    found.concat()
}

/// Tools that an event asks for, each once.
fn calls(event: &Value) -> usize {
    let list = |value: &Value, is: &dyn Fn(&Value) -> bool| {
        value.as_array().into_iter().flatten().filter(|item| is(item)).count()
    };
    let named = |call: &Value| call["function"]["name"].is_string();
    let of_type = |item: &Value| ["tool_use", "function_call"].iter().any(|name| item["type"] == *name);
    match event["type"].as_str() {
        Some("content_block_start") => usize::from(of_type(&event["content_block"])),
        Some("response.output_item.done") => usize::from(of_type(&event["item"])),
        Some("message") => list(&event["content"], &of_type),
        Some(_) => 0,
        None => {
            let choices = event["choices"].as_array().into_iter().flatten();
            let of_choices: usize = choices
                .map(|choice| {
                    ["message", "delta"].iter().map(|at| list(&choice[at]["tool_calls"], &named)).sum::<usize>()
                })
                .sum();
            of_choices + list(&event["output"], &of_type) + list(&event["message"]["tool_calls"], &named)
        }
    }
}

/// The last counters that the events bring.
fn tokens(events: &[Value]) -> Option<(u64, u64)> {
    let last = |names: [&str; 4]| {
        let places = |event: &Value| {
            [&event["usage"], &event["message"]["usage"], &event["response"]["usage"], &event["usageMetadata"], event]
                .into_iter()
                .find_map(|place| names.iter().find_map(|name| place[name].as_u64()))
        };
        events.iter().rev().find_map(places)
    };
    let sent = last(["input_tokens", "prompt_tokens", "promptTokenCount", "prompt_eval_count"])?;
    let answered = last(["output_tokens", "completion_tokens", "candidatesTokenCount", "eval_count"]);
    Some((sent, answered.unwrap_or(0)))
}
