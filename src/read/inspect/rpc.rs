//! JSON-RPC 2.0 as agents speak it: tools called by the Model Context Protocol over HTTP, messages of agents to agents (A2A).
//!
//! | of a message | is |
//! |---|---|
//! | `params` of `tools/call` | a tool call: `name`, `arguments` |
//! | `params.message` of `message/send`, `SendMessage` and their like | a message with its role |
//! | `result` | what the application answers a server that asked for its model or its user |
//! | anything else | the application's words |
//!
//! Only an object that says `"jsonrpc": "2.0"` is one. Invariant: each object is looked at once.

use std::borrow::Cow;

use crate::json::{Event, Walker};

/// Bytes of a method's name that are kept.
const METHOD_BYTES_MAX: usize = 128;
/// Calls of tools in one batch that are kept.
const CALLS_MAX: usize = 256;

/// What a request asks for by JSON-RPC.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RpcCall {
    /// The method of its first message that names one.
    pub method: Option<String>,
    /// The calls of tools in it.
    pub calls: Vec<ToolRequest>,
}

/// A tool that is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRequest {
    /// Its name.
    pub name: String,
    /// Its arguments as the body spells them.
    pub arguments: String,
    /// Position of the message in a batch.
    pub at: Option<u32>,
}

impl RpcCall {
    pub(super) fn take(
        &mut self,
        method: Option<Cow<'_, str>>,
        call: Option<(Cow<'_, str>, &str)>,
        at: Option<u32>,
        room: usize,
    ) {
        if self.method.is_none() {
            self.method = method.map(|method| cut(&method));
        }
        let held: usize = self.calls.iter().map(|call| call.arguments.len()).sum();
        // Arguments over the bound are left out of what is analysed, too, which says so.
        if let Some((name, arguments)) = call
            && self.calls.len() < CALLS_MAX
            && held + arguments.len() <= room
        {
            self.calls.push(ToolRequest { name: cut(&name), arguments: arguments.to_owned(), at });
        }
    }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(METHOD_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// What a message means for its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Means {
    /// It calls a tool.
    Call,
    /// It sends a message to an agent.
    Message,
    /// It answers a server's request.
    Answer,
    Other,
}

/// A message of JSON-RPC.
pub(super) struct Envelope<'a> {
    pub(super) means: Means,
    pub(super) method: Option<Cow<'a, str>>,
    pub(super) call: Option<(Cow<'a, str>, &'a str)>,
}

/// Whether an object with this key may be such a message.
pub(super) fn is_member(key: &str) -> bool {
    matches!(key, "jsonrpc" | "method" | "params" | "result")
}

/// Whether the value of a key is a name that the protocols define, or an id.
pub(super) fn is_label(key: &str) -> bool {
    matches!(key, "jsonrpc" | "method" | "kind" | "messageId" | "contextId" | "taskId" | "cursor" | "action")
}

/// Reads the rest of an object whose first key of this kind is `key`; `walker` stands before its value.
pub(super) fn envelope<'a>(mut walker: Walker<'a>, key: &str) -> Option<Envelope<'a>> {
    let (mut is_rpc, mut method, mut params, mut answers) = (false, None, None, false);
    let mut note = |walker: &mut Walker<'a>, key: &str| -> Option<()> {
        let raw = walker.next_raw().ok()??;
        let text = || walker.string_of(raw).map(|text| text.decode());
        match key {
            "jsonrpc" => is_rpc = text().is_some_and(|version| version == "2.0"),
            "method" => method = text(),
            "params" => params = Some(raw),
            "result" => answers = true,
            _ => {}
        }
        Some(())
    };
    note(&mut walker, key)?;
    while let Ok(Some(Event::Key(key))) = walker.next_event() {
        note(&mut walker, &key.decode())?;
    }
    if !is_rpc {
        return None;
    }
    let means = match method.as_deref() {
        Some("tools/call") => Means::Call,
        Some("message/send" | "message/stream" | "SendMessage" | "SendStreamingMessage") => Means::Message,
        None if answers => Means::Answer,
        _ => Means::Other,
    };
    let call = params.filter(|_| means == Means::Call).and_then(tool);
    Some(Envelope { means, method, call })
}

/// The tool that the parameters of a call name, and its arguments.
fn tool<'a>(params: &'a str) -> Option<(Cow<'a, str>, &'a str)> {
    let mut walker = Walker::over(params);
    let Ok(Some(Event::ObjectStart)) = walker.next_event() else { return None };
    let (mut name, mut arguments) = (None, "{}");
    while let Ok(Some(Event::Key(key))) = walker.next_event() {
        let raw = walker.next_raw().ok()??;
        match &*key.decode() {
            "name" => name = walker.string_of(raw).map(|text| text.decode()),
            "arguments" => arguments = raw,
            _ => {}
        }
    }
    Some((name.unwrap_or_default(), arguments))
}

#[cfg(test)]
mod tests {
    use weir_config::vocab::Dialect;
    use weir_inference::PartKind;

    use crate::inspect::{Declared, RequestView, Takes, read_request};

    fn read(body: &str) -> Box<RequestView> {
        let declared =
            Declared { content_type: Some(b"application/json"), takes: Takes::Json, cut: false, until: None };
        read_request(Dialect::ChatCompletions, declared, body.as_bytes(), 1 << 20)
    }

    fn parts(view: &RequestView) -> Vec<(PartKind, &str, Option<&str>, String)> {
        let of = |part: &crate::inspect::TextPart| {
            (part.kind, &view.text[part.range.clone()], view.label(part.tool_name), part.location.to_string())
        };
        view.parts.iter().map(of).collect()
    }

    #[test]
    fn a_call_of_a_tool_is_one_wherever_its_keys_stand() {
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"ls -la"}}}"#,
            r#"{"method":"tools/call","params":{"arguments":{"command":"ls -la"},"name":"bash"},"jsonrpc":"2.0","id":1}"#,
            r#"{"params":{"name":"bash","arguments":{"command":"ls -la"}},"id":"1","jsonrpc":"2.0","method":"tools/call"}"#,
        ] {
            let view = read(body);
            let place = "request.params.arguments".to_owned();
            assert_eq!(parts(&view), [(PartKind::ToolCall, "ls -la", Some("bash"), place)], "{body}");
            let rpc = view.rpc.unwrap();
            assert_eq!(rpc.method.as_deref(), Some("tools/call"));
            assert_eq!((&*rpc.calls[0].name, &*rpc.calls[0].arguments), ("bash", r#"{"command":"ls -la"}"#));
        }
    }

    #[test]
    fn a_batch_is_read_message_by_message() {
        let view = read(
            r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":"one two"}}},
                {"jsonrpc":"2.0","id":2,"method":"prompts/get","params":{"name":"p","arguments":{"who":"the user"}}},
                {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"b","arguments":{}}}]"#,
        );
        let seen: Vec<_> = parts(&view).into_iter().map(|(kind, text, ..)| (kind, text)).collect();
        assert_eq!(seen, [(PartKind::ToolCall, "one two"), (PartKind::User, "the user")]);
        assert_eq!(view.rpc.as_ref().unwrap().calls.len(), 2);
        assert_eq!(view.bare.len(), 1, "a call without arguments is one all the same");
    }

    #[test]
    fn messages_of_agents_have_their_roles() {
        let view = read(
            r#"{"jsonrpc":"2.0","id":"7","method":"message/send","params":{"message":{"role":"user","kind":"message","messageId":"m1",
                "parts":[{"kind":"text","text":"hello agent"},{"kind":"data","data":{"note":"some data here"}}]}}}"#,
        );
        let seen: Vec<_> = parts(&view).into_iter().map(|(kind, text, ..)| (kind, text)).collect();
        assert_eq!(seen, [(PartKind::User, "hello agent"), (PartKind::User, "some data here")]);
        let view = read(
            r#"{"jsonrpc":"2.0","id":"7","result":{"role":"assistant","content":{"type":"text","text":"what the model said"},"model":"m"}}"#,
        );
        let seen: Vec<_> = parts(&view).into_iter().map(|(kind, text, ..)| (kind, text)).collect();
        assert_eq!(seen, [(PartKind::Assistant, "what the model said")]);
    }

    #[test]
    fn what_is_no_message_of_json_rpc_is_read_as_before() {
        for body in [
            r#"{"method":"tools/call","params":{"name":"bash","arguments":{"command":"ls -la"}}}"#,
            r#"{"jsonrpc":"1.0","method":"tools/call","params":{"name":"bash","arguments":{"command":"ls -la"}}}"#,
        ] {
            let view = read(body);
            assert!(view.rpc.is_none());
            assert!(parts(&view).iter().all(|(kind, ..)| *kind == PartKind::User), "{body}");
            assert!(view.text.contains("ls -la"));
        }
    }
}
