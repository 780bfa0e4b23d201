//! A reported call as the bodies it would have had, so that it is read by the readers of proxied calls: the same parts, roles,
//! tool calls and counters, whoever brought it.

use std::borrow::Cow;

use serde::Serialize;

use super::span::{ReportedMessage, ReportedPart, ReportedSpan, ReportedUsage};

/// The body of the request; `None` where nothing is said of it.
pub(super) fn request(span: &ReportedSpan) -> Option<Vec<u8>> {
    if span.input.is_empty() && span.model.is_none() {
        return None;
    }
    let tools = parts(&span.input).filter_map(Tool::of).collect();
    let messages = span.input.iter().flat_map(messages).collect();
    Some(written(&Request { model: span.model.as_deref(), tools, messages }))
}

/// The body of the answer; `None` where nothing is said of it.
pub(super) fn answer(span: &ReportedSpan) -> Option<Vec<u8>> {
    if span.output.is_empty() && span.usage.is_empty() && span.finish_reason.is_none() {
        return None;
    }
    let finish_reason = span.finish_reason.as_deref();
    let choice = |(index, message)| Choice { index, message: Said::of(message), finish_reason };
    let mut choices: Vec<Choice<'_>> = span.output.iter().enumerate().map(choice).collect();
    if choices.is_empty() && finish_reason.is_some() {
        let message = Said { role: "assistant", ..Said::default() };
        choices.push(Choice { index: 0, message, finish_reason });
    }
    let usage = Some(Usage::of(&span.usage)).filter(|_| !span.usage.is_empty());
    Some(written(&Answer { object: "chat.completion", choices, usage }))
}

fn written(body: &impl Serialize) -> Vec<u8> {
    // Texts and numbers can always be written.
    serde_json::to_vec(body).unwrap_or_default()
}

fn parts(messages: &[ReportedMessage]) -> impl Iterator<Item = &ReportedPart> {
    messages.iter().flat_map(|message| &message.parts)
}

/// The messages one reported message becomes: what a tool brought stands in one of its own.
fn messages(message: &ReportedMessage) -> impl Iterator<Item = Message<'_>> {
    let is_said =
        |part: &ReportedPart| !matches!(part, ReportedPart::ToolResult { .. } | ReportedPart::ToolDefinition { .. });
    let said = message.parts.iter().any(is_said).then(|| Message::Said(Said::of(message)));
    message.parts.iter().filter_map(Brought::of).map(Message::Brought).chain(said)
}

#[derive(Serialize)]
struct Request<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct Answer<'a> {
    object: &'static str,
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    message: Said<'a>,
    finish_reason: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Message<'a> {
    Said(Said<'a>),
    Brought(Brought<'a>),
}

/// A message without what tools brought.
#[derive(Default, Serialize)]
struct Said<'a> {
    role: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning_content: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    refusal: Cow<'a, str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    content: Vec<Text<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

impl<'a> Said<'a> {
    fn of(message: &'a ReportedMessage) -> Self {
        let mut said = Self { role: &message.role, ..Self::default() };
        for part in &message.parts {
            match part {
                ReportedPart::Text(text) => said.content.push(Text { kind: "text", text }),
                ReportedPart::Reasoning(text) => append(&mut said.reasoning_content, text),
                ReportedPart::Refusal(text) => append(&mut said.refusal, text),
                ReportedPart::ToolCall { id, name, arguments } => {
                    let function = Function { name, arguments: Some(arguments), description: None };
                    said.tool_calls.push(Call { id: id.as_deref(), kind: "function", function });
                }
                ReportedPart::ToolResult { .. } | ReportedPart::ToolDefinition { .. } => {}
            }
        }
        said
    }
}

fn append<'a>(all: &mut Cow<'a, str>, text: &'a str) {
    if all.is_empty() {
        *all = Cow::Borrowed(text);
    } else {
        let all = all.to_mut();
        all.push('\n');
        all.push_str(text);
    }
}

#[derive(Serialize)]
struct Text<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct Call<'a> {
    id: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

impl<'a> Tool<'a> {
    fn of(part: &'a ReportedPart) -> Option<Self> {
        let ReportedPart::ToolDefinition { name, text } = part else { return None };
        Some(Self { kind: "function", function: Function { name, arguments: None, description: Some(text) } })
    }
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
}

#[derive(Serialize)]
struct Brought<'a> {
    role: &'static str,
    tool_call_id: Option<&'a str>,
    name: Option<&'a str>,
    content: &'a str,
}

impl<'a> Brought<'a> {
    fn of(part: &'a ReportedPart) -> Option<Self> {
        let ReportedPart::ToolResult { id, name, content } = part else { return None };
        Some(Self { role: "tool", tool_call_id: id.as_deref(), name: name.as_deref(), content })
    }
}

#[derive(Serialize)]
struct Usage {
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read_input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_tokens_details: Option<Details>,
}

#[derive(Serialize)]
struct Details {
    reasoning_tokens: u64,
}

impl Usage {
    fn of(usage: &ReportedUsage) -> Self {
        Self {
            prompt_tokens: usage.prompt,
            completion_tokens: usage.completion,
            total_tokens: usage.total,
            cache_read_input_tokens: usage.cached,
            cache_creation_input_tokens: usage.cache_write,
            completion_tokens_details: usage.reasoning.map(|reasoning_tokens| Details { reasoning_tokens }),
        }
    }
}
