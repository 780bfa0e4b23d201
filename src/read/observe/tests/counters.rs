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

#[test]
fn counters_count_however_they_are_written() {
    for (prompt, completion) in [(json!("1000"), json!("200")), (json!(999.5), json!(199.2)), (json!(1e3), json!(2e2))]
    {
        assert_eq!(usage(json!({"prompt_tokens": prompt, "completion_tokens": completion})), tokens(1_000, 200, 1_200));
    }
    let unsaid =
        read(AnswerKind::Json, &json!({"usage": {"prompt_tokens": "many", "completion_tokens": -1}}).to_string());
    assert_eq!(unsaid.usage, None);
}

/// What is left of an answer there was no room for.
fn kept_little(kind: AnswerKind, body: &str) -> Answer {
    let mut reader = AnswerReader::new(kind, None, MAX);
    for (at, piece) in body.as_bytes().chunks(5_000).enumerate() {
        if at == 1 {
            reader.keep_less();
        }
        reader.feed(piece);
    }
    reader.finish()
}

#[test]
fn what_a_document_cost_is_read_from_its_end_whatever_there_was_no_room_for() {
    let document = |text: String| {
        json!({"model": "m", "choices": [{"message": {"content": text}}], "usage": {"prompt_tokens": 3, "completion_tokens": 9}})
            .to_string()
    };
    let long = document("word, \"usage\":{\"completion_tokens\":77} ".repeat(4_000));
    let answer = kept_little(AnswerKind::Json, &long);
    assert_eq!(answer.usage, Some(tokens(3, 9, 12)), "what the text says of usage is not meant");
    assert!(answer.truncated && answer.unread.contains(Unread::Truncated));
    assert!(answer.left_out_bytes as usize > long.len() - 10_000, "{} of {}", answer.left_out_bytes, long.len());
    let short = document("word ".repeat(5_000));
    let answer = kept_little(AnswerKind::Json, &short);
    assert_eq!((answer.usage, answer.truncated, answer.complete), (Some(tokens(3, 9, 12)), false, true));
    assert_eq!(answer.left_out_bytes, 0, "the end of it was all of it");
}

#[test]
fn a_stream_without_room_is_followed_to_its_counters() {
    let word = format!("data: {}\n\n", json!({"choices": [{"delta": {"content": "word "}}]}));
    let end = format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}})
    );
    let answer = kept_little(AnswerKind::EventStream, &(word.repeat(1_000) + &end));
    assert_eq!((answer.usage, answer.complete, answer.truncated), (Some(tokens(3, 9, 12)), true, true));
    assert_eq!(answer.text.len() as u64 + answer.left_out_bytes, 5_000);
    let cut = kept_little(AnswerKind::EventStream, &word.repeat(1_000));
    assert_eq!((cut.usage, cut.text.len() as u64 + cut.left_out_bytes), (None, 5_000));
}

#[test]
fn of_a_document_there_is_no_time_for_the_end_is_read() {
    let document = json!({"choices": [{"message": {"content": "word ".repeat(20_000)}}], "usage": {"prompt_tokens": 3, "completion_tokens": 9}}).to_string();
    let mut reader = AnswerReader::new(AnswerKind::Json, None, MAX);
    reader.feed(document.as_bytes());
    reader.keep_end();
    let answer = reader.finish();
    assert_eq!((answer.usage, answer.text.as_str(), answer.truncated), (Some(tokens(3, 9, 12)), "", true));
    assert_eq!(answer.left_out_bytes, document.len() as u64);
}
