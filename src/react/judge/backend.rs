//! One question to a model behind an API: chat completions with a JSON Schema, or messages with a forced tool.
//!
//! What a model refuses (400 or 422 that names it) is left out or renamed; once an answer has come without it, from then on, for as
//! long as the process lives. Whoever writes a text too long for the model gets a refusal, too, and must not change how others' texts
//! are asked about.
//! Invariant: an answer is read up to a bound, and no message shows the key.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};
use weir_config::settings::{JudgeModel, JudgeTier};

use super::failure::{Again, Failure, Status};
use super::prompt::{Prompt, schema};
use crate::money::Counted;
use crate::outbound::{Answer, Call, Client, Limits, retry_after};

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// The version of the messages API.
const MESSAGES_VERSION: &str = "2023-06-01";

/// What may be refused, and the words a refusal has for it.
const REFUSABLE: [(u8, &[&str]); 5] = [
    (NO_TEMPERATURE, &["temperature"]),
    // What asks for the other name, and then what refuses that one.
    (NEW_MAX_TOKENS, &["max_tokens"]),
    (NO_MAX_TOKENS, &["max_completion_tokens"]),
    (NO_SCHEMA, &["response_format", "json_schema", "tool_choice", "tools"]),
    (NO_CACHE, &["cache_control"]),
];
const NO_TEMPERATURE: u8 = 1;
const NEW_MAX_TOKENS: u8 = 2;
const NO_MAX_TOKENS: u8 = 4;
const NO_SCHEMA: u8 = 8;
const NO_CACHE: u8 = 16;

/// What a backend said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Said {
    /// The text of its answer.
    pub text: String,
    /// The tokens it counted.
    pub tokens: Counted,
}

/// A model behind an API.
pub(super) struct Backend {
    tier: JudgeTier,
    model: JudgeModel,
    client: Client,
    /// What it has refused.
    refused: AtomicU8,
}

impl Backend {
    pub(super) const fn new(tier: JudgeTier, model: JudgeModel, client: Client) -> Self {
        Self { tier, model, client, refused: AtomicU8::new(0) }
    }

    /// Asks once, or again at once without what is refused.
    pub(super) async fn ask(&self, prompt: &Prompt, limit: Duration) -> Result<Said, Failure> {
        let until = tokio::time::Instant::now() + limit;
        let mut refused = self.refused.load(Ordering::Relaxed);
        for _ in 0..=REFUSABLE.len() {
            let call = self.call(prompt, refused)?;
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            let limits = Limits { total: left, answer_bytes: ANSWER_BYTES_MAX, cut: false };
            let answer = self.client.send(call, limits).await?;
            if answer.status.is_success() {
                self.keep(refused);
                return self.read(&answer.body);
            }
            let Some(new) = self.refused_by(&answer, refused) else { return Err(refusal(&answer)) };
            refused |= new;
        }
        Err(Failure::lasting(Status::BackendError, "the backend refuses every form of the question"))
    }

    /// What is refused beside what is `known` to be.
    fn refused_by(&self, answer: &Answer, known: u8) -> Option<u8> {
        if !matches!(answer.status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) {
            return None;
        }
        let said = String::from_utf8_lossy(&answer.body).to_ascii_lowercase();
        // A refusal of `max_tokens` names the other one as well: the first that is new is meant.
        let is_new = |(bit, words): &&(u8, &[&str])| {
            let usable = self.tier != JudgeTier::HostedMessages || !matches!(*bit, NEW_MAX_TOKENS | NO_MAX_TOKENS);
            usable && known & bit == 0 && words.iter().any(|word| said.contains(word))
        };
        REFUSABLE.iter().find(is_new).map(|(bit, _)| *bit)
    }

    /// Notes what was left out of a question that was answered.
    fn keep(&self, refused: u8) {
        let known = self.refused.fetch_or(refused, Ordering::Relaxed);
        let new = REFUSABLE.iter().filter(|(bit, _)| refused & !known & bit != 0);
        for what in new.filter_map(|(_, words)| words.first()) {
            let backend = self.tier.as_str();
            tracing::info!(backend, model = %self.model.model, parameter = what, "the judge's backend refuses a parameter; it is asked without it from now on");
        }
    }

    fn call(&self, prompt: &Prompt, refused: u8) -> Result<Call, Failure> {
        let key = match (&self.model.key, self.tier) {
            (None, JudgeTier::HostedCompat | JudgeTier::HostedMessages) => {
                let name = format!("SERVICE_JUDGE_{}_API_KEY", self.tier.as_str().to_ascii_uppercase());
                return Err(Failure::lasting(Status::Misconfigured, format!("{name} is not set")));
            }
            (key, _) => key.as_ref(),
        };
        let (path, body) = match self.tier {
            JudgeTier::HostedMessages => ("/v1/messages", self.messages(prompt, refused)),
            _ => ("/v1/chat/completions", self.chat(prompt, refused)),
        };
        let base = self.model.base_url.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        let mut call = Call::post(&format!("{base}{path}"), "application/json", body.to_string())?;
        if self.tier == JudgeTier::HostedMessages {
            let version = HeaderName::from_static("anthropic-version");
            call = call.field(version, HeaderValue::from_static(MESSAGES_VERSION));
        }
        if let Some(key) = key {
            let (name, prefix) = match self.tier {
                JudgeTier::HostedMessages => (HeaderName::from_static("x-api-key"), &b""[..]),
                _ => (AUTHORIZATION, &b"Bearer "[..]),
            };
            let value = HeaderValue::from_bytes(&[prefix, key.expose()].concat());
            let mut value =
                value.map_err(|_| Failure::lasting(Status::Misconfigured, "the key fits no header field"))?;
            value.set_sensitive(true);
            call = call.field(name, value);
        }
        Ok(call)
    }

    fn chat(&self, prompt: &Prompt, refused: u8) -> Value {
        let refuses = |bit| refused & bit != 0;
        let mut body = json!({
            "model": self.model.model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
        });
        if !refuses(NO_TEMPERATURE) {
            body["temperature"] = json!(self.model.temperature);
        }
        if !refuses(NO_MAX_TOKENS) {
            let name = if refuses(NEW_MAX_TOKENS) { "max_completion_tokens" } else { "max_tokens" };
            body[name] = json!(self.model.max_tokens);
        }
        if !refuses(NO_SCHEMA) {
            let schema = json!({"name": "verdict", "strict": true, "schema": schema()});
            body["response_format"] = json!({"type": "json_schema", "json_schema": schema});
        }
        body
    }

    fn messages(&self, prompt: &Prompt, refused: u8) -> Value {
        let refuses = |bit: u8| refused & bit != 0;
        let mut system = json!({"type": "text", "text": prompt.system});
        let mut tool = json!({"name": "verdict", "description": "Gives the verdict.", "input_schema": schema()});
        if !refuses(NO_CACHE) {
            // Tools stand before the system prompt: both are cached up to here.
            system["cache_control"] = json!({"type": "ephemeral"});
            tool["cache_control"] = json!({"type": "ephemeral"});
        }
        let mut body = json!({
            "model": self.model.model,
            "max_tokens": self.model.max_tokens,
            "system": [system],
            "messages": [{"role": "user", "content": prompt.user}],
        });
        if !refuses(NO_TEMPERATURE) {
            body["temperature"] = json!(self.model.temperature);
        }
        if !refuses(NO_SCHEMA) {
            body["tools"] = json!([tool]);
            body["tool_choice"] = json!({"type": "tool", "name": "verdict"});
        }
        body
    }

    fn read(&self, body: &[u8]) -> Result<Said, Failure> {
        let answer: Value = serde_json::from_slice(body)
            .map_err(|error| Failure::lasting(Status::ParseError, format!("the answer is no JSON: {error}")))?;
        Ok(if self.tier == JudgeTier::HostedMessages { read_messages(&answer) } else { read_chat(&answer) })
    }
}

/// The text of the first choice, whole or in parts.
fn read_chat(answer: &Value) -> Said {
    let content = &answer["choices"][0]["message"]["content"];
    let parts = content.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    let text = content.as_str().map(str::to_owned).unwrap_or_else(|| parts.collect());
    let usage = &answer["usage"];
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    let tokens = Counted {
        input: count(&usage["prompt_tokens"]),
        cache_read: count(&usage["prompt_tokens_details"]["cached_tokens"]),
        output: count(&usage["completion_tokens"]),
        ..Counted::default()
    };
    Said { text, tokens }
}

/// The text, and what the tool was called with: as one text, so that there is still one verdict or none.
fn read_messages(answer: &Value) -> Said {
    let blocks = answer["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let said = blocks.iter().filter_map(|block| match block["type"].as_str()? {
        "text" => block["text"].as_str().map(str::to_owned),
        "tool_use" => Some(block["input"].to_string()),
        _ => None,
    });
    let usage = &answer["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap_or_default();
    let (read, written) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
    let tokens = Counted {
        input: count("input_tokens").saturating_add(read).saturating_add(written),
        cache_read: read,
        cache_write: written,
        output: count("output_tokens"),
        ..Counted::default()
    };
    Said { text: said.collect::<Vec<_>>().join("\n"), tokens }
}

fn refusal(answer: &Answer) -> Failure {
    let retried = answer.status.is_server_error()
        || matches!(answer.status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    let again = if retried { Again::After(retry_after(&answer.fields, SystemTime::now())) } else { Again::No };
    // Its words may be those of the candidate, and this is logged.
    let reason = format!("the backend answered {} with {} bytes", answer.status, answer.body.len());
    Failure { status: Status::BackendError, reason, again }
}
