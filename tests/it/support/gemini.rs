//! A provider that speaks Gemini's dialect: the words of the field `x-fake-reply`, or always the same.

use serde_json::{Value, json};
use weir_fake_provider::http::Request;
use weir_fake_provider::provider::Answer;

/// Gemini's two ways of answering.
pub(crate) fn as_gemini(request: &Request) -> Answer {
    let reply = request.header("x-fake-reply").unwrap_or("Foxes are small canids.");
    match request.path.rsplit_once(':').map(|(_, method)| method) {
        Some("generateContent") => Answer::whole(200, "application/json", message(reply, true).to_string()),
        Some("streamGenerateContent") => {
            let words: Vec<&str> = reply.split_inclusive(' ').collect();
            let last = words.len().saturating_sub(1);
            let frame =
                |(at, word): (usize, &&str)| format!("data: {}\r\n\r\n", message(word, at == last)).into_bytes();
            Answer::stream("text/event-stream", words.iter().enumerate().map(frame).collect(), 0)
        }
        _ => Answer::whole(
            404,
            "application/json",
            r#"{"error":{"code":404,"message":"not played","status":"NOT_FOUND"}}"#,
        ),
    }
}

fn message(text: &str, is_last: bool) -> Value {
    let mut message = json!({
        "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}],
        "modelVersion": "gemini-2.5-flash"
    });
    if is_last {
        message["candidates"][0]["finishReason"] = json!("STOP");
        message["usageMetadata"] = json!({"promptTokenCount": 10, "candidatesTokenCount": 9, "totalTokenCount": 19});
    }
    message
}
