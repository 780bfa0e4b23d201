//! Requests as LLM clients send them.

use serde_json::{Value, json};

/// A request in the making.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: &'static str,
    target: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Call {
    pub(crate) fn post(target: &str, body: impl Into<Vec<u8>>) -> Self {
        let fields = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self { method: "POST", target: target.to_owned(), fields, body: body.into() }
    }

    /// A JSON body, unless it is empty.
    pub(crate) fn with_method(method: &'static str, target: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { method, ..Self::post(target, body) }
    }

    pub(crate) fn get(target: &str) -> Self {
        Self { method: "GET", target: target.to_owned(), fields: Vec::new(), body: Vec::new() }
    }

    /// The same at an address below another one, for instance `/upstream/<name>`.
    pub(crate) fn below(mut self, address: &str) -> Self {
        self.target.insert_str(0, address);
        self
    }

    pub(crate) fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with another `Content-Type`.
    pub(crate) fn content_type(mut self, media: &str) -> Self {
        self.fields.retain(|(name, _)| name != "Content-Type");
        self.field("Content-Type", media)
    }

    fn head(&self) -> String {
        let fields: String = self.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("{} {} HTTP/1.1\r\nHost: weir\r\n{fields}", self.method, self.target)
    }

    /// The request with its body counted by Content-Length.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut head = self.head();
        if self.method != "GET" {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        [head.as_bytes(), &self.body].concat()
    }

    /// The request with its body in chunks of `chunk_bytes`.
    pub(crate) fn chunked(&self, chunk_bytes: usize) -> Vec<u8> {
        let mut out = format!("{}Transfer-Encoding: chunked\r\n\r\n", self.head()).into_bytes();
        for chunk in self.body.chunks(chunk_bytes) {
            out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
        out
    }
}

/// A harmless text for which the rules run out of what they may cost: pairs of words that many of them wait for.
pub(crate) fn too_much_to_try() -> String {
    let words = "ignore forget previous instructions reveal act pretend disregard override";
    let pairs = words.split(' ').flat_map(|one| words.split(' ').map(move |other| (one, other)));
    let pairs: String = pairs.map(|(one, other)| format!("{one} {other} the apple. ")).collect();
    pairs.repeat(30)
}

/// A chat completion with one user message.
pub(crate) fn chat_body(text: &str) -> Value {
    json!({ "model": "fake-large", "messages": [{ "role": "user", "content": text }] })
}

/// The same body, streamed.
pub(crate) fn with_stream(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

/// A messages-style call with one user message.
pub(crate) fn messages_body(text: &str) -> Value {
    json!({ "model": "fake-large", "max_tokens": 256, "messages": [{ "role": "user", "content": text }] })
}

/// `POST /v1/chat/completions` with one user message.
pub(crate) fn chat_call(text: &str) -> Call {
    Call::post("/v1/chat/completions", chat_body(text).to_string())
}
