//! What a generation request asks for, whatever its dialect.
//!
//! Reads leniently what all dialects spell alike (model, stream, messages, tools) and knows their differences only
//! as lists of places to look at.

use serde_json::Value;

/// A tool the model may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tool {
    pub(super) name: String,
    /// Arguments made up from the tool's schema, as JSON text.
    pub(super) arguments: String,
}

/// A generation request, reduced to what shapes the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ask {
    /// The model as it is echoed: without directives.
    pub(super) model: String,
    /// The model as sent.
    pub(super) model_sent: String,
    /// The newest text of the user.
    pub(super) prompt: String,
    /// Bytes of all text in the request.
    pub(super) text_bytes: usize,
    /// The `stream` member, if given.
    pub(super) stream: Option<bool>,
    /// Whether a chat-completions stream ends with a usage chunk.
    pub(super) include_usage: bool,
    /// The cap on reply tokens.
    pub(super) max_tokens: Option<usize>,
    /// The tool to call: offered, and mentioned by the newest text.
    pub(super) tool: Option<Tool>,
}

impl Ask {
    /// Reads a request body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let json: Value = serde_json::from_slice(body).map_err(|error| format!("body is not JSON: {error}"))?;
        match json.get("model").and_then(Value::as_str) {
            Some(model) if !model.is_empty() => Ok(Self::of(&json, model.to_owned())),
            _ => Err("you must provide a model parameter".to_owned()),
        }
    }

    /// Reads a request body whose path names the model, and whether the answer is a stream.
    pub(super) fn parse_named(body: &[u8], model: &str, stream: bool) -> Result<Self, String> {
        let json: Value = serde_json::from_slice(body).map_err(|error| format!("body is not JSON: {error}"))?;
        Ok(Self { stream: Some(stream), ..Self::of(&json, model.to_owned()) })
    }

    fn of(json: &Value, model_sent: String) -> Self {
        let mut texts = Vec::new();
        for member in ["system", "instructions", "systemInstruction", "prompt", "input", "messages", "contents"] {
            collect_text(json.get(member), &mut texts);
        }
        let prompt = newest_user_text(json);
        let answered = last_message(json).is_some_and(is_tool_result);
        let tool = if answered { None } else { called_tool(json, &prompt) };
        let cap = ["max_tokens", "max_completion_tokens", "max_output_tokens"].iter().find_map(|name| json.get(name));
        let cap = cap.or_else(|| json.get("options")?.get("num_predict"));
        let cap = cap.or_else(|| json.get("generationConfig")?.get("maxOutputTokens"));
        Self {
            model: model_sent.split('@').next().unwrap_or_default().to_owned(),
            model_sent,
            text_bytes: texts.iter().map(|text| text.len()).sum(),
            prompt,
            stream: json.get("stream").and_then(Value::as_bool),
            include_usage: json.pointer("/stream_options/include_usage") == Some(&Value::Bool(true)),
            max_tokens: cap.and_then(Value::as_u64).and_then(|cap| usize::try_from(cap).ok()),
            tool,
        }
    }
}

/// Every text of a string, a list of strings, messages or content parts.
fn collect_text<'a>(value: Option<&'a Value>, texts: &mut Vec<&'a str>) {
    match value {
        Some(Value::String(text)) => texts.push(text),
        Some(Value::Array(items)) => items.iter().for_each(|item| collect_text(Some(item), texts)),
        Some(Value::Object(members)) => {
            for name in ["text", "content", "parts"] {
                collect_text(members.get(name), texts);
            }
        }
        _ => {}
    }
}

fn text_of(value: Option<&Value>) -> String {
    let mut texts = Vec::new();
    collect_text(value, &mut texts);
    texts.join("\n")
}

fn newest_user_text(json: &Value) -> String {
    for member in ["messages", "input", "contents"] {
        let Some(Value::Array(items)) = json.get(member) else { continue };
        let spoken = |item: &&Value| item.get("role").and_then(Value::as_str) == Some("user");
        if let Some(message) = items.iter().rev().find(spoken).or_else(|| items.last()) {
            return text_of(Some(message));
        }
    }
    text_of(json.get("prompt").or_else(|| json.get("input")))
}

fn last_message(json: &Value) -> Option<&Value> {
    ["messages", "input", "contents"].iter().find_map(|name| json.get(name))?.as_array()?.last()
}

fn is_tool_result(message: &Value) -> bool {
    let is = |value: &Value, name: &str, wanted: &str| value.get(name).and_then(Value::as_str) == Some(wanted);
    let in_parts = |part: &Value| is(part, "type", "tool_result");
    let brought = |part: &Value| part.get("functionResponse").is_some();
    is(message, "role", "tool")
        || is(message, "type", "function_call_output")
        || message.get("content").and_then(Value::as_array).is_some_and(|parts| parts.iter().any(in_parts))
        || message.get("parts").and_then(Value::as_array).is_some_and(|parts| parts.iter().any(brought))
}

/// The first offered tool whose name the prompt mentions.
fn called_tool(json: &Value, prompt: &str) -> Option<Tool> {
    let prompt = prompt.to_ascii_lowercase();
    let tools = json.get("tools")?.as_array()?;
    let declared = tools.iter().filter_map(|tool| tool.get("functionDeclarations")?.as_array()).flatten();
    tools.iter().chain(declared).find_map(|tool| {
        let function = tool.get("function").unwrap_or(tool);
        let name = function.get("name")?.as_str()?;
        let schema = function.get("parameters").or_else(|| function.get("input_schema"));
        prompt
            .contains(&name.to_ascii_lowercase())
            .then(|| Tool { name: name.to_owned(), arguments: made_up_object(schema, 0) })
    })
}

fn made_up_object(schema: Option<&Value>, depth: usize) -> String {
    let Some(Value::Object(properties)) = schema.and_then(|schema| schema.get("properties")) else {
        return "{}".to_owned();
    };
    let members: Vec<String> = properties
        .iter()
        .map(|(name, schema)| format!("{}:{}", Value::from(name.as_str()), made_up(name, schema, depth)))
        .collect();
    format!("{{{}}}", members.join(","))
}

fn made_up(name: &str, schema: &Value, depth: usize) -> String {
    if let Some(first) = schema.get("enum").and_then(Value::as_array).and_then(|values| values.first()) {
        return first.to_string();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("integer" | "number") => "1".to_owned(),
        Some("boolean") => "true".to_owned(),
        Some("array") => "[]".to_owned(),
        Some("object") if depth < 8 => made_up_object(Some(schema), depth + 1),
        Some("object") => "{}".to_owned(),
        _ => Value::from(format!("sample {name}")).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_newest_user_text_in_every_dialect() {
        for (body, prompt) in [
            (
                r#"{"model":"m","messages":[{"role":"user","content":"old"},{"role":"assistant","content":"x"},{"role":"user","content":[{"type":"text","text":"new"}]}]}"#,
                "new",
            ),
            (r#"{"model":"m","prompt":["one","two"]}"#, "one\ntwo"),
            (r#"{"model":"m","input":"plain"}"#, "plain"),
            (r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"part"}]}]}"#, "part"),
        ] {
            assert_eq!(Ask::parse(body.as_bytes()).unwrap().prompt, prompt);
        }
    }

    #[test]
    fn calls_a_tool_only_when_mentioned_and_not_yet_answered() {
        let ask = |messages: &str| {
            let tool = r#"{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"unit":{"enum":["c","f"]}}}}}"#;
            Ask::parse(format!(r#"{{"model":"m","tools":[{tool}],"messages":{messages}}}"#).as_bytes()).unwrap().tool
        };
        let called = ask(r#"[{"role":"user","content":"Use get_weather"}]"#).unwrap();
        let arguments: Value = serde_json::from_str(&called.arguments).unwrap();
        assert_eq!(arguments, serde_json::json!({"city": "sample city", "days": 1, "unit": "c"}));
        assert_eq!(ask(r#"[{"role":"user","content":"Hello"}]"#), None);
        assert_eq!(ask(r#"[{"role":"user","content":"get_weather"},{"role":"tool","content":"rain"}]"#), None);
    }

    #[test]
    fn says_what_is_missing() {
        assert_eq!(Ask::parse(b"{}").unwrap_err(), "you must provide a model parameter");
        assert!(Ask::parse(b"{").unwrap_err().starts_with("body is not JSON: "));
    }
}
