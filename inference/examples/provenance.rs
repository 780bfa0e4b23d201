//! What speaks for and against each call of agents' runs, for `inference/train/provenance.py`.
//!
//! One run per line in (`inference/data/runs`), one line per call that acts out: the run's id and label, whether the call is in its last
//! turn, the signs, and what the crate says.

use std::error::Error;
use std::io::{BufRead as _, BufWriter, Write as _};

use serde_json::{Value, json};
use weir_inference::PartKind;
use weir_inference::provenance::{Origins, ToolUse};

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let run: Value = serde_json::from_str(&line?)?;
        let messages = run["messages"].as_array().ok_or("a run has messages")?;
        let last = messages.iter().rposition(|message| message["tool_calls"].is_array());
        let mut origins = Origins::default();
        for (at, message) in messages.iter().enumerate() {
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (name, arguments) = (text(&call["function"]["name"]), text(&call["function"]["arguments"]));
                let call = ToolUse { name: &name, arguments: &arguments, writes: false };
                let Some(weighed) = origins.weighed(&call) else { continue };
                let signs: serde_json::Map<String, Value> =
                    weighed.signs().map(|(name, value)| (name.to_owned(), json!(value))).collect();
                let said = weighed.severity().map(weir_config::vocab::Severity::as_str);
                let row = json!({
                    "id": run["id"], "domain": run["domain"], "label": run["label"], "last": Some(at) == last, "tool": name,
                    "signs": signs, "confidence": weighed.confidence(), "severity": said,
                });
                writeln!(out, "{row}")?;
            }
            let kind = match message["role"].as_str() {
                Some("user") => PartKind::User,
                Some("system" | "developer") => PartKind::System,
                Some("tool") => PartKind::Tool,
                _ => PartKind::Assistant,
            };
            origins.add(kind, message["content"].as_str().unwrap_or_default());
        }
    }
    Ok(())
}
