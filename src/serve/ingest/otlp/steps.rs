//! Steps around calls of models, as messages: a tool that was run, documents that were found. What a tool was asked for is a tool call
//! of the model's; what it brought, and what was found, are words of strangers.

use serde_json::Value;

use super::messages;
use super::names::{DOCUMENTS, INPUT, OUTPUT, TOOL_ABOUT, TOOL_ARGUMENTS, TOOL_CALL, TOOL_NAME, TOOL_RESULT};
use super::words::{Words, of_role};
use crate::ingest::check;
use crate::ingest::span::{ReportedMessage, ReportedPart, ReportedSpan};

/// What a step has taken of the attributes that otherwise hold what a model was sent and answered.
#[derive(Default)]
pub(super) struct Step {
    pub(super) took_input: bool,
    pub(super) took_output: bool,
}

/// Takes what is said of a step.
pub(super) fn take(span: &mut ReportedSpan, words: &mut Words<'_>) -> Step {
    let operation = check::operation(span).0;
    let (is_tool, is_search) = (operation == "execute_tool", ["retrieval", "rerank"].contains(&operation));
    take_tool(span, words, is_tool);
    let generic = if is_search { OUTPUT } else { &[] };
    let found = words.first(&[DOCUMENTS, generic], |value| of_role("tool", messages::documents(value)));
    span.input.extend(found);
    Step { took_input: is_tool, took_output: is_tool || is_search }
}

/// A tool: what is said of it, what it was asked for, and what it brought. `whole`: the span is of nothing else.
fn take_tool(span: &mut ReportedSpan, words: &mut Words<'_>, whole: bool) {
    let name = words.peek(TOOL_NAME);
    let id = words.peek(TOOL_CALL);
    let named = || name.clone().unwrap_or_else(|| "tool".to_owned());
    let (asked, brought): (&[&str], &[&str]) = if whole { (INPUT, OUTPUT) } else { (&[], &[]) };
    for about in TOOL_ABOUT {
        let define = |text| ReportedPart::ToolDefinition { name: named(), text };
        span.input.extend(words.first(&[&[*about]], |value| alone("tools", value, define)));
    }
    let call = |arguments| ReportedPart::ToolCall { id: id.clone(), name: named(), arguments };
    span.output.extend(words.first(&[TOOL_ARGUMENTS, asked], |value| alone("assistant", value, call)));
    let result = |content| ReportedPart::ToolResult { id: id.clone(), name: name.clone(), content };
    span.input.extend(words.first(&[TOOL_RESULT, brought], |value| alone("tool", value, result)));
}

/// A message of one part, which is all of the value as a text.
fn alone(role: &str, value: Value, part: impl Fn(String) -> ReportedPart) -> Vec<ReportedMessage> {
    let text = Some(value).filter(|value| !value.is_null()).map(messages::text).filter(|text| !text.is_empty());
    of_role(role, text.map(part).into_iter().collect())
}
