//! How each provider's requests spell what is said: instructions, turns, tools, what tools bring, pictures.

use super::settings::RequestDialect;

/// A tool that a request defines: its name, what it does, its one argument.
pub(super) type Tool = (&'static str, &'static str, &'static str);

/// The tools of a coding agent.
pub(super) const TOOLS: [Tool; 4] = [
    ("read_file", "Reads a file and returns its lines with their numbers.", "path"),
    ("list_files", "Lists the files below a folder with their sizes, newest first.", "folder"),
    ("run_command", "Runs a command in the project's folder and returns what it printed.", "command"),
    ("edit_file", "Replaces one passage of a file by another one and returns the lines around it.", "path"),
];

/// A text as JSON, quotes included.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The definitions of [`TOOLS`]: the value of a body's `tools`, without its brackets.
pub(super) fn tools(dialect: RequestDialect) -> String {
    let definition = |(name, about, argument): &Tool| {
        let schema = format!(
            r#"{{"type":"object","properties":{{"{argument}":{{"type":"string","description":"The {argument}, relative to the project."}}}},"required":["{argument}"]}}"#
        );
        match dialect {
            RequestDialect::Messages => {
                format!(r#"{{"name":"{name}","description":"{about}","input_schema":{schema}}}"#)
            }
            RequestDialect::Responses => {
                format!(r#"{{"type":"function","name":"{name}","description":"{about}","parameters":{schema}}}"#)
            }
            RequestDialect::Gemini => format!(r#"{{"name":"{name}","description":"{about}","parameters":{schema}}}"#),
            RequestDialect::Chat | RequestDialect::Local => format!(
                r#"{{"type":"function","function":{{"name":"{name}","description":"{about}","parameters":{schema}}}}}"#
            ),
        }
    };
    let definitions = TOOLS.iter().map(definition).collect::<Vec<_>>().join(",");
    match dialect {
        RequestDialect::Gemini => format!(r#"{{"functionDeclarations":[{definitions}]}}"#),
        _ => definitions,
    }
}

/// One turn of a conversation.
pub(super) fn turn(dialect: RequestDialect, is_users: bool, text: &str) -> String {
    let role = match (is_users, dialect) {
        (true, _) => "user",
        (false, RequestDialect::Gemini) => "model",
        (false, _) => "assistant",
    };
    match dialect {
        RequestDialect::Gemini => format!(r#"{{"role":"{role}","parts":[{{"text":{}}}]}}"#, quoted(text)),
        _ => format!(r#"{{"role":"{role}","content":{}}}"#, quoted(text)),
    }
}

/// A user's turn with a picture, given in base64.
pub(super) fn turn_with_picture(dialect: RequestDialect, text: &str, picture: &str) -> String {
    let text = quoted(text);
    match dialect {
        RequestDialect::Chat => format!(
            r#"{{"role":"user","content":[{{"type":"text","text":{text}}},{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{picture}"}}}}]}}"#
        ),
        RequestDialect::Messages => format!(
            r#"{{"role":"user","content":[{{"type":"text","text":{text}}},{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{picture}"}}}}]}}"#
        ),
        RequestDialect::Responses => format!(
            r#"{{"role":"user","content":[{{"type":"input_text","text":{text}}},{{"type":"input_image","image_url":"data:image/png;base64,{picture}"}}]}}"#
        ),
        RequestDialect::Gemini => format!(
            r#"{{"role":"user","parts":[{{"text":{text}}},{{"inlineData":{{"mimeType":"image/png","data":"{picture}"}}}}]}}"#
        ),
        RequestDialect::Local => format!(r#"{{"role":"user","content":{text},"images":["{picture}"]}}"#),
    }
}

/// A model's turn that says something and calls a tool.
pub(super) fn call(dialect: RequestDialect, says: &str, id: &str, tool: &str, arguments: &str) -> String {
    let says = quoted(says);
    match dialect {
        RequestDialect::Messages => format!(
            r#"{{"role":"assistant","content":[{{"type":"text","text":{says}}},{{"type":"tool_use","id":"{id}","name":"{tool}","input":{arguments}}}]}}"#
        ),
        RequestDialect::Responses => format!(
            r#"{{"role":"assistant","content":{says}}},{{"type":"function_call","call_id":"{id}","name":"{tool}","arguments":{}}}"#,
            quoted(arguments)
        ),
        RequestDialect::Gemini => format!(
            r#"{{"role":"model","parts":[{{"text":{says}}},{{"functionCall":{{"name":"{tool}","args":{arguments}}}}}]}}"#
        ),
        RequestDialect::Chat | RequestDialect::Local => format!(
            r#"{{"role":"assistant","content":{says},"tool_calls":[{{"id":"{id}","type":"function","function":{{"name":"{tool}","arguments":{}}}}}]}}"#,
            quoted(arguments)
        ),
    }
}

/// What a tool brought.
pub(super) fn result(dialect: RequestDialect, id: &str, tool: &str, text: &str) -> String {
    let text = quoted(text);
    match dialect {
        RequestDialect::Messages => {
            format!(r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":{text}}}]}}"#)
        }
        RequestDialect::Responses => {
            format!(r#"{{"type":"function_call_output","call_id":"{id}","output":{text}}}"#)
        }
        RequestDialect::Gemini => format!(
            r#"{{"role":"user","parts":[{{"functionResponse":{{"name":"{tool}","response":{{"result":{text}}}}}}}]}}"#
        ),
        RequestDialect::Chat | RequestDialect::Local => {
            format!(r#"{{"role":"tool","tool_call_id":"{id}","content":{text}}}"#)
        }
    }
}

/// Words of a stream's frame that show whether it brings the model's text.
pub(super) fn brings_text(dialect: RequestDialect, frame: &[u8]) -> bool {
    let has = |words: &[u8]| memchr::memmem::find(frame, words).is_some();
    // An empty text is none: the first frame of some dialects only says who speaks.
    let has_more = |words: &[u8]| {
        let at = memchr::memmem::find(frame, words).map(|at| at + words.len());
        at.and_then(|at| frame.get(at)).is_some_and(|next| *next != b'"')
    };
    match dialect {
        RequestDialect::Chat | RequestDialect::Local => {
            has_more(br#""content":""#) || has_more(br#""content": ""#) || has(br#""tool_calls""#)
        }
        RequestDialect::Messages => has(b"text_delta") || has(b"input_json_delta"),
        RequestDialect::Responses => has(b"response.output_text.delta") || has(b"function_call_arguments.delta"),
        RequestDialect::Gemini => has(br#""text""#) || has(br#""functionCall""#),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_only_says_who_speaks_is_no_token() {
        let chat = |frame: &[u8]| brings_text(RequestDialect::Chat, frame);
        assert!(!chat(br#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#));
        assert!(chat(br#"data: {"choices":[{"delta":{"content":"Hi"}}]}"#));
        assert!(!brings_text(RequestDialect::Messages, br#"data: {"type":"message_start"}"#));
        assert!(brings_text(RequestDialect::Messages, br#"data: {"delta":{"type":"text_delta","text":"a"}}"#));
    }
}
