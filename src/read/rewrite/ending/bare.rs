//! Models that are invoked by themselves on Bedrock and speak in pieces of bare text: Titan, Llama, Mistral.

use serde_json::{Value, json};

use super::message::{Message, Stream, keep};

/// Which of them it is.
enum Model {
    Titan,
    Llama,
    Mistral,
}

struct Bare {
    model: Model,
    prompt_tokens: Value,
    completion_tokens: Value,
}

pub(super) fn opens(_: Option<&str>, message: &Value) -> Option<Box<dyn Stream>> {
    let has = |key: &str, fits: fn(&Value) -> bool| message.get(key).is_some_and(fits);
    let model = match () {
        () if has("outputText", Value::is_string) => Model::Titan,
        () if has("generation", Value::is_string) => Model::Llama,
        () if has("outputs", Value::is_array) => Model::Mistral,
        () => return None,
    };
    Some(Box::new(Bare { model, prompt_tokens: Value::Null, completion_tokens: Value::Null }))
}

impl Stream for Bare {
    fn note(&mut self, _: Option<&str>, message: &Value) {
        for key in ["inputTextTokenCount", "prompt_token_count"] {
            keep(&mut self.prompt_tokens, message.get(key));
        }
        for key in ["totalOutputTextTokenCount", "generation_token_count"] {
            keep(&mut self.completion_tokens, message.get(key));
        }
    }

    /// Llama and Mistral know no reason that would say why.
    fn end(&self, warning: &str) -> Vec<Message> {
        vec![Message::json(match self.model {
            Model::Titan => json!({
                "outputText": warning, "index": 0, "completionReason": "CONTENT_FILTERED",
                "inputTextTokenCount": self.prompt_tokens, "totalOutputTextTokenCount": self.completion_tokens,
            }),
            Model::Llama => json!({
                "generation": warning, "stop_reason": "stop", "prompt_token_count": self.prompt_tokens,
                "generation_token_count": self.completion_tokens,
            }),
            Model::Mistral => json!({ "outputs": [{ "text": warning, "stop_reason": "stop" }] }),
        })]
    }
}
