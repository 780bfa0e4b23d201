//! Counters that only some models and interfaces have.

use serde_json::{Value, json};

use super::*;

fn usage(usage: Value) -> Usage {
    read(AnswerKind::Json, &json!({ "usage": usage }).to_string()).usage.unwrap()
}

#[test]
fn thinking_is_a_part_of_the_output() {
    let counted =
        usage(json!({"input_tokens": 5, "output_tokens": 40, "output_tokens_details": {"thinking_tokens": 22}}));
    assert_eq!(counted, Usage { reasoning: Some(22), ..tokens(5, 40, 45) });
}

#[test]
fn passes_that_compact_are_summed_and_not_doubled() {
    let pass = |input: u32, output: u32| json!({"type": "message", "input_tokens": input, "output_tokens": output});
    let compacted = usage(json!({"input_tokens": 20, "output_tokens": 4, "iterations": [pass(100, 10), pass(20, 4)]}));
    assert_eq!(compacted, tokens(120, 14, 134));
    let single = usage(json!({"input_tokens": 20, "output_tokens": 4, "iterations": [pass(20, 4)]}));
    assert_eq!(single, tokens(20, 4, 24));
}

#[test]
fn an_interaction_is_read_whole_and_in_events() {
    let counted = json!({"total_input_tokens": 7, "total_output_tokens": 3, "total_thought_tokens": 2, "total_cached_tokens": 1, "total_tokens": 12});
    let expected = Usage { reasoning: Some(2), cached: Some(1), ..tokens(7, 5, 12) };
    let whole = json!({"id": "i_1", "status": "completed", "model": "g", "outputs": [{"type": "text", "text": "Hello"}], "usage": counted});
    let whole = read(AnswerKind::Json, &whole.to_string());
    assert_eq!((whole.text.as_str(), whole.usage), ("Hello", Some(expected)));
    let events = [
        json!({"event_type": "interaction.created", "interaction": {"id": "i_1", "model": "g", "status": "in_progress"}}),
        json!({"event_type": "content.delta", "index": 0, "delta": {"type": "text", "text": "Hel"}}),
        json!({"event_type": "content.delta", "index": 0, "delta": {"type": "text", "text": "lo"}}),
        json!({"event_type": "interaction.completed", "interaction": {"id": "i_1", "status": "completed", "usage": counted}}),
    ];
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let answer = read(AnswerKind::EventStream, &stream);
    assert_eq!((answer.text.as_str(), answer.usage, answer.complete), ("Hello", Some(expected), true));
}
