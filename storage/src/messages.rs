//! The conversation of a call, as the interface shows it: who said what, in the order of the wire.
//!
//! It is made from the parts of a span and its two texts whenever it is asked for, and says nothing that they do not.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;
use weir_config::vocab::part::{PartForm, PartKind, PartRecord, PartSide};

use crate::record::SpanRecord;

/// One message: the parts that were said together.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Message<'a> {
    /// Whether it was sent to the model or came back.
    pub side: PartSide,
    /// The role as the body spells it, else what the provider means: `system`, `tools` (definitions), `user`, `assistant`, `tool`.
    pub role: Cow<'a, str>,
    /// Position of the message in the conversation, from 0; of the choice in an answer. Null where it stands in no list.
    pub index: Option<u32>,
    /// What it is made of.
    pub parts: Vec<MessagePart<'a>>,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MessagePart<'a> {
    /// What it is.
    #[serde(rename = "type")]
    pub part_type: MessagePartType,
    /// Its text: words, the arguments of a tool call, what a tool brought. Null where it is not kept.
    pub text: Option<&'a str>,
    /// The JSON whose strings are the text, where that says more: arguments of a tool call that are an object, a tool's definition with
    /// its schema, a result that is no text. Left out where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The tool it is about.
    pub name: Option<&'a str>,
    /// The provider's id of the tool call it is about.
    pub call_id: Option<&'a str>,
    /// The file it stands for.
    pub file: Option<FileMark>,
    /// Ids of the findings about it, as in `security_findings`.
    pub findings: Vec<Uuid>,
}

/// What a part of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessagePartType {
    /// Words.
    Text,
    /// What the model thought before it answered.
    Reasoning,
    /// The model's refusal.
    Refusal,
    /// A tool the model asks for, with its arguments.
    ToolCall,
    /// What a tool brought.
    ToolResult,
    /// What the application says about a tool.
    ToolDefinition,
    /// A picture.
    Image,
    /// Another file.
    File,
    /// A credential; its text is not kept.
    Credential,
}

/// What is kept of a file: enough to recognise it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileMark {
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// How many they are.
    pub bytes: u64,
    /// Its media type, as far as the body says it.
    pub media_type: String,
}

/// The conversation of a span; empty where its parts are not known, as in records of earlier versions.
pub fn of(span: &SpanRecord) -> Vec<Message<'_>> {
    let mut messages: Vec<Message<'_>> = Vec::new();
    let (values, mut bare) = values(span);
    for side in [PartSide::Request, PartSide::Response] {
        let mut former: Option<Group<'_>> = None;
        for (at, part) in in_order(span, side) {
            let speaker = match part.message {
                Some(_) => None,
                // A file belongs to whatever it stands in.
                None if part.form == PartForm::File => former.as_ref().and_then(|former| former.speaker),
                None => Some(role_of(part)),
            };
            let tools = part.kind == PartKind::ToolDefinition;
            let group = Group { index: part.message, speaker, tools };
            let value = match &part.text {
                _ if side == PartSide::Response => None,
                Some(text) => values.get(&text.start).cloned(),
                None if is_bare_call(part) => bare.next(),
                None => None,
            };
            let shown = MessagePart { value, ..show(span, at, part) };
            match messages.last_mut().filter(|_| former.as_ref() == Some(&group)) {
                Some(message) => {
                    if let (Some(role), true) = (part.role.as_deref(), message.parts.iter().all(is_file)) {
                        message.role = Cow::Borrowed(role);
                    }
                    message.parts.push(shown);
                }
                None => {
                    let role = role_of(part);
                    let parts = vec![shown];
                    messages.push(Message { side, role: Cow::Borrowed(role), index: part.message, parts });
                }
            }
            former = Some(group);
        }
    }
    messages
}

/// The values of a request whose strings are one text each, by where that begins, and those that hold none, in order.
fn values(span: &SpanRecord) -> (HashMap<u32, Value>, std::vec::IntoIter<Value>) {
    let (mut values, mut bare) = (HashMap::new(), Vec::new());
    if let Some(frame) = &span.frame {
        frame.filled(span.prompt.as_deref().unwrap_or_default(), |text, value| {
            match (text, serde_json::from_str(value)) {
                (Some(text), Ok(value)) => drop(values.insert(text, value)),
                (None, Ok(value)) => bare.push(value),
                (_, Err(_)) => {}
            }
        });
    }
    (values, bare.into_iter())
}

/// Whether a part is a call of a tool whose arguments hold no text.
fn is_bare_call(part: &PartRecord) -> bool {
    part.text.is_none() && part.kind == PartKind::ToolCall && part.form == PartForm::Text
}

/// What the parts of one message have in common.
#[derive(PartialEq, Eq)]
struct Group<'a> {
    index: Option<u32>,
    /// Who says it where it stands in no list: instructions and a question that are fields of the body are two messages.
    speaker: Option<&'a str>,
    tools: bool,
}

/// The parts of one side in the order of the wire, each with its place in the span's list. What has no text stands where the part
/// before it does, and a call without a word behind the texts of its message.
fn in_order(span: &SpanRecord, side: PartSide) -> Vec<(usize, &PartRecord)> {
    let mut place = 0;
    let mut parts: Vec<(u32, usize, &PartRecord)> = Vec::new();
    let of_side = || span.parts.iter().enumerate().filter(move |(_, part)| part.side == side);
    let mut ends: BTreeMap<u32, u32> = BTreeMap::new();
    if of_side().any(|(_, part)| is_bare_call(part)) {
        ends.extend(of_side().filter_map(|(_, part)| Some((part.message?, part.text.as_ref()?.start))));
    }
    for (at, part) in of_side() {
        if let (true, Some(message)) = (is_bare_call(part), part.message) {
            let end = ends.range(..=message).next_back().map_or(0, |(_, start)| *start);
            parts.push((end, at, part));
            continue;
        }
        place = part.text.as_ref().map_or(place, |text| text.start);
        parts.push((place, at, part));
    }
    parts.sort_by_key(|(place, ..)| *place);
    parts.into_iter().map(|(_, at, part)| (at, part)).collect()
}

fn show<'a>(span: &'a SpanRecord, at: usize, part: &'a PartRecord) -> MessagePart<'a> {
    let all = if part.side == PartSide::Request { span.prompt.as_deref() } else { span.response.as_deref() };
    let text = part.text.as_ref().and_then(|range| all?.get(range.start as usize..range.end as usize));
    let tool = part.tool.as_deref();
    let file =
        text.filter(|_| part.form == PartForm::File).and_then(|text| serde_json::from_str::<FileMark>(text).ok());
    let part_type = match (part.form, part.kind) {
        (PartForm::Reasoning, _) => MessagePartType::Reasoning,
        (PartForm::Refusal, _) => MessagePartType::Refusal,
        (PartForm::Credential, _) => MessagePartType::Credential,
        (PartForm::File, _) if file.as_ref().is_some_and(|file| file.media_type.starts_with("image/")) => {
            MessagePartType::Image
        }
        (PartForm::File, _) => MessagePartType::File,
        (PartForm::Text, PartKind::ToolCall) => MessagePartType::ToolCall,
        (PartForm::Text, PartKind::Tool) => MessagePartType::ToolResult,
        (PartForm::Text, PartKind::ToolDefinition) => MessagePartType::ToolDefinition,
        (PartForm::Text, _) => MessagePartType::Text,
    };
    let about = |part: Option<u32>| part.is_some_and(|part| part as usize == at);
    MessagePart {
        part_type,
        text: text.filter(|_| file.is_none()),
        value: None,
        name: tool.and_then(|tool| tool.name.as_deref()),
        call_id: tool.and_then(|tool| tool.id.as_deref()),
        file,
        findings: span.security_findings.iter().filter(|found| about(found.part)).map(|found| found.id).collect(),
    }
}

fn is_file(part: &MessagePart<'_>) -> bool {
    matches!(part.part_type, MessagePartType::File | MessagePartType::Image)
}

fn role_of(part: &PartRecord) -> &str {
    part.role.as_deref().unwrap_or_else(|| usual_role(part))
}

/// The role of a part whose body does not spell it.
fn usual_role(part: &PartRecord) -> &'static str {
    match part.kind {
        _ if part.form == PartForm::Reasoning => "assistant",
        PartKind::System => "system",
        PartKind::User => "user",
        PartKind::Assistant | PartKind::ToolCall | PartKind::Output => "assistant",
        PartKind::Tool => "tool",
        PartKind::ToolDefinition => "tools",
    }
}
