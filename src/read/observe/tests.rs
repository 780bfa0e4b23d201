//! Answers in the shapes providers send, whole and cut anywhere.

use std::io::Write;

use proptest::prelude::*;
use serde_json::{Value, json};
use weir_config::vocab::part::PartForm;
use weir_config::vocab::{Unread, UnreadSet};
use weir_inference::PartKind::{self, Output, ToolCall as Call};

use super::*;

mod bedrock;
mod built_in;
mod counters;

const MAX: usize = 1 << 20;

const CHAT: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"gpt-4o-2024","choices":[{"index":1,"message":{"role":"assistant","content":"Second \"answer\""},"finish_reason":"length"},{"message":{"content":"First","role":"assistant","refusal":null,"reasoning_content":"hm","tool_calls":[{"id":"call_a","type":"function","function":{"name":"run","arguments":"{\"c\":\"ls\"}"}},{"id":"call_b","type":"function","function":{"name":"get","arguments":"{}"}}]},"logprobs":null,"index":0,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":20,"completion_tokens":9,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":8,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":3}}}"#;

const CHAT_STREAM: &str = concat!(
    "data: {\"id\":\"chatcmpl-2\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"chatcmpl-2\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}},{\"delta\":{\"content\":\"Zwei\"},\"index\":1}]}\n\n",
    ": keep-alive\n\n",
    "data: {\"id\":\"chatcmpl-2\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo \\u00e9\\ud83d\\ude00\"}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"run\",\"arguments\":\"\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"get\",\"arguments\":\"{\\\"k\\\":\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"c\\\":1}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"2}\"}}]}}]}\n\n",
    "data: this is not JSON\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}],\"usage\":null}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7,\"total_tokens\":18}}\n\n",
    "data: [DONE]\n\n",
);

const MESSAGES_STREAM: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-x\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":10,\"cache_creation_input_tokens\":5,\"cache_read_input_tokens\":100,\"output_tokens\":1}}}\n\n",
    "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"let me\"}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
    "event: content_block_delta\ndata: {\"delta\":{\"type\":\"text_delta\",\"text\":\" you\"},\"index\":1,\"type\":\"content_block_delta\"}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"run\",\"input\":{}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"c\\\":\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"ls\\\"}\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":2}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":42}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

const RESPONSES_STREAM: &str = concat!(
    "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"model\":\"gpt-5\",\"status\":\"in_progress\",\"output\":[],\"usage\":null}}\n\n",
    "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"content\":[]}}\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"Hi \"}\n\n",
    "event: response.output_text.delta\ndata: {\"delta\":\"there\",\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0}\n\n",
    "event: response.output_text.done\ndata: {\"type\":\"response.output_text.done\",\"output_index\":0,\"content_index\":0,\"text\":\"Hi there\"}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"Hi there\"}]}}\n\n",
    "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":1,\"item\":{\"id\":\"fc_1\",\"call_id\":\"call_1\",\"type\":\"function_call\",\"name\":\"run\",\"arguments\":\"\"}}\n\n",
    "event: response.function_call_arguments.delta\ndata: {\"type\":\"response.function_call_arguments.delta\",\"item_id\":\"fc_1\",\"output_index\":1,\"delta\":\"{}\"}\n\n",
    "event: response.function_call_arguments.done\ndata: {\"type\":\"response.function_call_arguments.done\",\"item_id\":\"fc_1\",\"output_index\":1,\"arguments\":\"{}\"}\n\n",
    "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"completed\",\"model\":\"gpt-5\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"Hi there\"}]}],\"usage\":{\"input_tokens\":30,\"input_tokens_details\":{\"cached_tokens\":20},\"output_tokens\":6,\"output_tokens_details\":{\"reasoning_tokens\":2},\"total_tokens\":36}}}\n\n",
);

const LOCAL_STREAM: &str = concat!(
    "{\"model\":\"llama3\",\"created_at\":\"2026-01-01T00:00:00Z\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"},\"done\":false}\n",
    "{\"model\":\"llama3\",\"message\":{\"role\":\"assistant\",\"content\":\"Good \"},\"done\":false}\n",
    "{\"model\":\"llama3\",\"message\":{\"role\":\"assistant\",\"content\":\"day\",\"tool_calls\":[{\"function\":{\"name\":\"a\",\"arguments\":{\"x\":1}}},{\"function\":{\"name\":\"b\",\"arguments\":{}}}]},\"done\":false}\r\n",
    "\n",
    "{\"model\":\"llama3\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":26,\"eval_count\":298}",
);

fn read_pieces(kind: AnswerKind, pieces: &[&[u8]]) -> Answer {
    let mut reader = AnswerReader::new(kind, None, MAX);
    for piece in pieces {
        reader.feed(piece);
    }
    reader.finish()
}

fn read(kind: AnswerKind, body: &str) -> Answer {
    read_pieces(kind, &[body.as_bytes()])
}

fn parts(answer: &Answer) -> Vec<(PartKind, String, &str)> {
    answer.parts.iter().map(|part| (part.kind, part.location.to_string(), &answer.text[part.range.clone()])).collect()
}

fn assert_parts(answer: &Answer, expected: &[(PartKind, &str, &str)]) {
    let found = parts(answer);
    let found: Vec<_> = found.iter().map(|(kind, at, text)| (*kind, at.as_str(), *text)).collect();
    assert_eq!(found, expected);
}

fn call(id: Option<&str>, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.map(Into::into), name: name.into(), arguments: arguments.into(), writes: false }
}

fn tokens(prompt: u64, completion: u64, total: u64) -> Usage {
    Usage { prompt: Some(prompt), completion: Some(completion), total: Some(total), ..Usage::default() }
}

#[test]
fn the_record_of_an_answer_names_choices_calls_and_places() {
    let answer = read(AnswerKind::Json, CHAT);
    let records: Vec<_> = answer.part_records().collect();
    let shown: Vec<_> = records
        .iter()
        .map(|part| {
            let text = part.text.clone().unwrap();
            let tool = part.tool.as_ref().map(|tool| (tool.name.as_deref().unwrap_or("-"), tool.id.as_deref()));
            (part.message, part.form, &answer.text[text.start as usize..text.end as usize], tool)
        })
        .collect();
    assert_eq!(
        shown,
        [
            (Some(0), PartForm::Text, "First", None),
            (Some(0), PartForm::Reasoning, "hm", None),
            (Some(0), PartForm::Text, "{\"c\":\"ls\"}", Some(("run", Some("call_a")))),
            (Some(0), PartForm::Text, "{}", Some(("get", Some("call_b")))),
            (Some(1), PartForm::Text, "Second \"answer\"", None),
        ]
    );
    let raw: Vec<&str> = records
        .iter()
        .map(|part| {
            let raw = part.raw.clone().unwrap();
            &CHAT[raw.start as usize..raw.end as usize]
        })
        .collect();
    assert_eq!(raw, ["First", "hm", r#"{\"c\":\"ls\"}"#, "{}", r#"Second \"answer\""#]);
    let answer = read(AnswerKind::EventStream, CHAT_STREAM);
    let streamed: Vec<_> = answer.part_records().collect();
    assert!(streamed.len() == 4 && streamed.iter().all(|part| part.raw.is_none()));
}

#[test]
fn reads_a_chat_completion_with_all_its_choices() {
    let answer = read(AnswerKind::Json, CHAT);
    assert_parts(
        &answer,
        &[
            (Output, "response.choices[0].message.content", "First"),
            (Output, "response.choices[0].message.reasoning_content", "hm"),
            (Call, "response.choices[0].message.tool_calls[0].function.arguments", "{\"c\":\"ls\"}"),
            (Call, "response.choices[0].message.tool_calls[1].function.arguments", "{}"),
            (Output, "response.choices[1].message.content", "Second \"answer\""),
        ],
    );
    assert_eq!(answer.text, "First\nhm\n{\"c\":\"ls\"}\n{}\nSecond \"answer\"");
    assert_eq!(answer.tool_calls, [call(Some("call_a"), "run", "{\"c\":\"ls\"}"), call(Some("call_b"), "get", "{}")]);
    assert_eq!(answer.usage, Some(Usage { cached: Some(8), reasoning: Some(3), ..tokens(20, 9, 29) }));
    assert_eq!((answer.model.as_deref(), answer.response_id.as_deref()), (Some("gpt-4o-2024"), Some("chatcmpl-1")));
    assert_eq!(answer.finish_reason.as_deref(), Some("tool_calls"), "the first choice's");
    assert!(answer.complete && answer.first_text_seen && answer.unreadable.is_none() && !answer.truncated);
}

#[test]
fn reads_a_chat_stream() {
    let answer = read(AnswerKind::EventStream, CHAT_STREAM);
    assert_parts(
        &answer,
        &[
            (Output, "response.choices[0].message.content", "Hello é😀"),
            (Call, "response.choices[0].message.tool_calls[0].function.arguments", "{\"c\":1}"),
            (Call, "response.choices[0].message.tool_calls[1].function.arguments", "{\"k\":2}"),
            (Output, "response.choices[1].message.content", "Zwei"),
        ],
    );
    assert_eq!(answer.tool_calls, [call(Some("a"), "run", "{\"c\":1}"), call(Some("b"), "get", "{\"k\":2}")]);
    assert_eq!(answer.usage, Some(tokens(11, 7, 18)));
    assert_eq!(answer.finish_reason.as_deref(), Some("tool_calls"));
    assert_eq!((answer.complete, answer.skipped_events, answer.unreadable), (true, 1, None));
}

#[test]
fn an_object_is_read_ahead_once_however_many_of_its_keys_ask_for_it() {
    let event = |keys: usize| format!("data: {{{}\"last\":0}}\n\n", "\"delta\":0,".repeat(keys));
    for keys in [1, 10, 1_000] {
        let before = head::LOOKS.get();
        read(AnswerKind::EventStream, &event(keys));
        assert_eq!(head::LOOKS.get() - before, 1, "{keys} keys");
    }
}

#[test]
fn tool_calls_of_choices_that_stream_at_once_stand_in_the_order_of_their_arguments() {
    let delta = |choice: u8, name: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":{choice},\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"{name}\",\
             \"function\":{{\"name\":\"{name}\",\"arguments\":\"{{{name}}}\"}}}}]}}}}]}}\n\n"
        )
    };
    let answer = read(AnswerKind::EventStream, &[delta(1, "second"), delta(0, "first")].concat());
    assert_parts(
        &answer,
        &[
            (Call, "response.choices[0].message.tool_calls[0].function.arguments", "{first}"),
            (Call, "response.choices[1].message.tool_calls[0].function.arguments", "{second}"),
        ],
    );
    assert_eq!(
        answer.tool_calls,
        [call(Some("first"), "first", "{first}"), call(Some("second"), "second", "{second}")]
    );
}

#[test]
fn tells_tool_calls_apart_when_indexes_do_not() {
    let stream = |deltas: &[&str]| {
        let events: String = deltas
            .iter()
            .map(|delta| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{delta}]}}}}]}}\n\n"))
            .collect();
        read(AnswerKind::EventStream, &events).tool_calls
    };
    let expected = [call(Some("a"), "f", "{1}"), call(Some("b"), "g", "{2}")];
    for deltas in [
        // All numbered 0.
        [
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}"#,
            r#"{"index":0,"function":{"arguments":"1}"}}"#,
            r#"{"index":0,"id":"b","function":{"name":"g","arguments":"{"}}"#,
            r#"{"index":0,"function":{"arguments":"2}"}}"#,
        ],
        // Not numbered.
        [
            r#"{"id":"a","function":{"name":"f","arguments":"{"}}"#,
            r#"{"function":{"arguments":"1}"}}"#,
            r#"{"id":"b","function":{"name":"g","arguments":"{"}}"#,
            r#"{"function":{"arguments":"2}"}}"#,
        ],
        // Interleaved, id on every piece.
        [
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}"#,
            r#"{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}"#,
            r#"{"index":0,"id":"a","function":{"arguments":"1}"}}"#,
            r#"{"index":1,"id":"b","function":{"arguments":"2}"}}"#,
        ],
        // Numbered from 1, empty ids later.
        [
            r#"{"index":1,"id":"a","function":{"name":"f","arguments":"{"}}"#,
            r#"{"index":2,"id":"b","function":{"name":"g","arguments":"{"}}"#,
            r#"{"index":1,"id":"","function":{"name":"","arguments":"1}"}}"#,
            r#"{"index":2,"id":"","function":{"name":null,"arguments":"2}"}}"#,
        ],
    ] {
        assert_eq!(stream(&deltas), expected, "{deltas:?}");
    }
    let legacy = concat!(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"function_call\":{\"name\":\"f\",\"arguments\":\"{\"}}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"function_call\":{\"arguments\":\"}\"}}}]}\n\n",
    );
    assert_eq!(read(AnswerKind::EventStream, legacy).tool_calls, [call(None, "f", "{}")]);
}

#[test]
fn reads_a_messages_style_stream() {
    let answer = read(AnswerKind::EventStream, MESSAGES_STREAM);
    assert_parts(
        &answer,
        &[
            (Output, "response.content[0].thinking", "let me"),
            (Output, "response.content[1].text", "Hello you"),
            (Call, "response.content[2].input", "{\"c\":\"ls\"}"),
        ],
    );
    assert_eq!(answer.tool_calls, [call(Some("toolu_1"), "run", "{\"c\":\"ls\"}")]);
    // 10 fresh + 100 read from the cache + 5 written to it.
    let usage = Usage { cached: Some(100), cache_write: Some(5), ..tokens(115, 42, 157) };
    assert_eq!(answer.usage, Some(usage));
    assert_eq!((answer.model.as_deref(), answer.response_id.as_deref()), (Some("claude-x"), Some("msg_1")));
    assert_eq!((answer.finish_reason.as_deref(), answer.complete), (Some("tool_use"), true));
}

#[test]
fn reads_a_messages_style_answer() {
    let answer = read(
        AnswerKind::Json,
        r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"text":"Hi","type":"text"},{"input":{"a":"b"},"name":"f","id":"t","type":"tool_use"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":4}}"#,
    );
    assert_parts(
        &answer,
        &[(Output, "response.content[0].text", "Hi"), (Call, "response.content[1].input", "{\"a\":\"b\"}")],
    );
    assert_eq!(answer.usage, Some(tokens(3, 4, 7)));
    assert_eq!(answer.tool_calls, [call(Some("t"), "f", "{\"a\":\"b\"}")]);
}

#[test]
fn reads_a_responses_stream_once() {
    let answer = read(AnswerKind::EventStream, RESPONSES_STREAM);
    assert_parts(
        &answer,
        &[(Output, "response.output[0].content[0].text", "Hi there"), (Call, "response.output[1].arguments", "{}")],
    );
    assert_eq!(answer.tool_calls, [call(Some("call_1"), "run", "{}")]);
    assert_eq!(answer.usage, Some(Usage { cached: Some(20), reasoning: Some(2), ..tokens(30, 6, 36) }));
    assert_eq!((answer.finish_reason.as_deref(), answer.complete), (Some("completed"), true));
    assert_eq!((answer.response_id.as_deref(), answer.model.as_deref()), (Some("resp_1"), Some("gpt-5")));
    let whole = r#"{"id":"resp_2","object":"response","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"thought"}]},{"type":"message","content":[{"type":"output_text","text":"A"},{"type":"refusal","refusal":"No"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]}"#;
    let answer = read(AnswerKind::Json, whole);
    assert_parts(
        &answer,
        &[
            (Output, "response.output[0].summary[0].text", "thought"),
            (Output, "response.output[1].content[0].text", "A"),
            (Output, "response.output[1].content[1].refusal", "No"),
            (Call, "response.output[2].arguments", "{}"),
        ],
    );
    assert_eq!(answer.finish_reason.as_deref(), Some("max_output_tokens"));
}

/// Events of a server that says with each text how the generation fares.
fn faring(texts: &[&str]) -> String {
    let event = |text: &&str| format!("data: {}\n\n", json!({"text": text, "meta_info": {"id": "g"}, "index": 0}));
    texts.iter().map(event).collect::<String>() + "data: [DONE]\n\n"
}

#[test]
fn a_text_that_is_repeated_with_every_event_is_read_once() {
    for (texts, expected) in [
        (&["Hel", "Hello", "Hello", "Hello you \u{e9}"][..], "Hello you \u{e9}"),
        // A letter that has not come whole yet holds the text up.
        (&["Hello", "Hello", "Hello", "Hello \u{e9}", "Hello \u{e9}"], "Hello \u{e9}"),
        (&["Hel", "lo", " you", ""], "Hello you"),
        (&["ha", "ha", "ha", " Nelson"], "hahaha Nelson"),
        // Taken for all there is so far, until it cannot be.
        (&["-", "--", "BEGIN", "-", "-"], "--BEGIN--"),
    ] {
        let answer = read(AnswerKind::EventStream, &faring(texts));
        assert_parts(&answer, &[(Output, "response.text", expected)]);
        assert!(answer.complete);
    }
    // Each of several has a text of its own.
    let event =
        |index: u32, text: &str| format!("data: {}\n\n", json!({"index": index, "text": text, "meta_info": {}}));
    let both = [event(0, "one"), event(1, "on"), event(0, "one more"), event(1, "only")].concat();
    assert_eq!(read(AnswerKind::EventStream, &both).text, "one more\nonly");
    // What is kept is as bounded as that of any stream, and so is what counts as left out.
    let texts: Vec<String> = (1..=400).map(|words| "word ".repeat(words)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut reader = AnswerReader::new(AnswerKind::EventStream, None, 600);
    reader.feed(faring(&texts).as_bytes());
    let answer = reader.finish();
    assert_eq!((answer.text.len(), answer.truncated, answer.left_out_bytes), (600, true, 1_400));
}

#[test]
fn the_end_that_repeats_all_of_a_text_adds_nothing() {
    let event = |kind: &str, more: Value| {
        let mut event = json!({"event_type": kind, "is_finished": kind == "stream-end"});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("{event}\n")
    };
    let end = |said: &str| {
        event("stream-end", json!({"finish_reason": "COMPLETE", "response": {"generation_id": "g", "text": said}}))
    };
    let said = ["Hel", "lo"].map(|word| event("text-generation", json!({"text": word}))).concat();
    let answer = read(AnswerKind::JsonLines, &format!("{said}{}", end("Hello")));
    assert_eq!((answer.text.as_str(), answer.finish_reason.as_deref()), ("Hello", Some("COMPLETE")));
    // What was not said before is read.
    assert_eq!(read(AnswerKind::JsonLines, &format!("{said}{}", end("Something else"))).text, "Hello\nSomething else");
    assert_eq!(read(AnswerKind::JsonLines, &end("Hello")).text, "Hello");
}

#[test]
fn reads_a_local_server_stream() {
    let answer = read(AnswerKind::JsonLines, LOCAL_STREAM);
    assert_parts(
        &answer,
        &[
            (Output, "response.message.reasoning_content", "hm"),
            (Output, "response.message.content", "Good day"),
            (Call, "response.message.tool_calls[0].function.arguments", "{\"x\":1}"),
            (Call, "response.message.tool_calls[1].function.arguments", "{}"),
        ],
    );
    assert_eq!(answer.tool_calls, [call(None, "a", "{\"x\":1}"), call(None, "b", "{}")]);
    assert_eq!(answer.usage, Some(tokens(26, 298, 324)));
    assert_eq!((answer.finish_reason.as_deref(), answer.complete), (Some("stop"), true));
    let cut = LOCAL_STREAM.rsplit_once('\n').unwrap().0;
    assert!(!read(AnswerKind::JsonLines, cut).complete);
    // The same lines under the name of JSON.
    assert_eq!(read(AnswerKind::Json, LOCAL_STREAM).text, answer.text);
}

#[test]
fn reads_the_other_shapes() {
    for (body, text, finish) in [
        (r#"{"choices":[{"text":" a"},{"text":" b","finish_reason":"stop"}]}"#, " a\n b", Some("stop")),
        (
            r#"{"model":"m","response":"generated","done":true,"done_reason":"stop","eval_count":2}"#,
            "generated",
            Some("stop"),
        ),
        (
            r#"{"candidates":[{"content":{"parts":[{"text":"think ","thought":true},{"text":"G1"},{"text":" G2"},{"functionCall":{"name":"f","args":{"a":1}}}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":6,"totalTokenCount":15}}"#,
            "think \nG1 G2\n{\"a\":1}",
            Some("STOP"),
        ),
        (
            r#"[{"candidates":[{"content":{"parts":[{"text":"a"}]}}]},{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}]"#,
            "ab",
            Some("STOP"),
        ),
        (
            r#"[{"candidates":[{"content":{"parts":[{"text":"be"},{"text":"fore"}]}}]},{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":"x"}}}]}}]},{"candidates":[{"content":{"parts":[{"text":"af"}]}}]},{"candidates":[{"content":{"parts":[{"text":"ter"}]},"finishReason":"STOP"}]}]"#,
            "before\n{\"a\":\"x\"}\nafter",
            Some("STOP"),
        ),
        (
            r#"{"output":{"message":{"role":"assistant","content":[{"text":"B"},{"toolUse":{"toolUseId":"t","name":"f","input":{"q":"x"}}},{"reasoningContent":{"reasoningText":{"text":"why"}}}]}},"stopReason":"tool_use","usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3}}"#,
            "B\n{\"q\":\"x\"}\nwhy",
            Some("tool_use"),
        ),
        (r#"[{"generated_text":"tgi"}]"#, "tgi", None),
        (r#"{"created":1,"data":[{"b64_json":"AAAA","revised_prompt":"a cat"}]}"#, "a cat", None),
        (
            r#"{"object":"list","data":[{"object":"embedding","embedding":[0.1,-2e-3],"index":0}],"model":"e","usage":{"prompt_tokens":5,"total_tokens":5}}"#,
            "",
            None,
        ),
        (
            r#"{"choices":[{"message":{"content":[{"type":"text","text":"part"}],"audio":{"transcript":"said"}}}]}"#,
            "part\nsaid",
            None,
        ),
        (r#"{"outcome":{"says":"words of an unknown shape","id":"x"}}"#, "words of an unknown shape", None),
    ] {
        let answer = read(AnswerKind::Json, body);
        assert_eq!((answer.text.as_str(), answer.finish_reason.as_deref()), (text, finish), "{body}");
        assert!(answer.complete && answer.unreadable.is_none(), "{body}");
    }
    let gemini = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"index":2}]}"#;
    assert_parts(&read(AnswerKind::Json, gemini), &[(Output, "response.candidates[2].content.parts[0].text", "a")]);
    let stream = "data:{\"token\":{\"text\":\"a\",\"special\":false},\"generated_text\":null}\n\ndata:{\"token\":{\"text\":\"</s>\",\"special\":true},\"generated_text\":\"a\"}\n\n";
    assert_eq!(read(AnswerKind::EventStream, stream).text, "a");
}

#[test]
fn reads_errors() {
    for (body, type_, message) in [
        (
            r#"{"error":{"message":"Bad key","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
            Some("invalid_request_error"),
            "Bad key",
        ),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}"#,
            Some("overloaded_error"),
            "Overloaded",
        ),
        (
            r#"{"error":{"code":429,"message":"Quota","status":"RESOURCE_EXHAUSTED"}}"#,
            Some("RESOURCE_EXHAUSTED"),
            "Quota",
        ),
        (r#"{"error":"model 'x' not found"}"#, None, "model 'x' not found"),
        (r#"{"__type":"ValidationException","message":"no such model"}"#, Some("ValidationException"), "no such model"),
        (r#"{"detail":"Not Found"}"#, None, "Not Found"),
    ] {
        let answer = read(AnswerKind::Json, body);
        assert_eq!((answer.error_type.as_deref(), answer.error_message.as_deref()), (type_, Some(message)), "{body}");
        assert_eq!(answer.text, "", "{body}");
    }
    let stream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"par\"}}]}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"boom\"}}\n\n";
    let answer = read(AnswerKind::EventStream, stream);
    assert_eq!(
        (answer.text.as_str(), answer.error_type.as_deref(), answer.complete),
        ("par", Some("api_error"), false)
    );
    assert_eq!(read(AnswerKind::Json, r#"{"error":null,"choices":[]}"#).error_message, None);
}

#[test]
fn says_when_it_cannot_read() {
    assert_eq!(read(AnswerKind::Json, "{\"a\":").unreadable, Some("JSON ends early"));
    assert_eq!(read(AnswerKind::Json, "<html>").unreadable, Some("invalid JSON"));
    assert_eq!(read(AnswerKind::EventStream, "data: {]\n\n").unreadable, Some("invalid JSON"));
    assert_eq!(read(AnswerKind::Json, ""), Answer::default());
    let mut unread = UnreadSet::default();
    unread.insert(Unread::MediaType);
    assert_eq!(read(AnswerKind::Other, "<html>{}"), Answer { unread, ..Answer::default() });
    let unread = |kind, body: &str| read(kind, body).unread.to_string();
    assert_eq!(unread(AnswerKind::Json, "{\"a\":"), "unreadable_body");
    assert_eq!(unread(AnswerKind::EventStream, "data: {}\n\ndata: {]\n\n"), "unreadable_body", "one event of two");
    assert_eq!(unread(AnswerKind::Json, CHAT), "");
    let coded = |coding: &[u8]| {
        let mut reader = AnswerReader::new(AnswerKind::Json, Some(coding), usize::MAX);
        reader.feed(CHAT.as_bytes());
        reader.finish().unread.to_string()
    };
    for coding in [&b"gzip"[..], b"gzip, br", b"compress"] {
        assert_eq!(coded(coding), "unreadable_body");
    }
    let partial = read(AnswerKind::Json, r#"{"choices":[{"message":{"content":"got this far"},"#);
    assert_eq!((partial.text.as_str(), partial.complete), ("got this far", false));
}

#[test]
fn recognises_what_nobody_announced() {
    assert_eq!(read(AnswerKind::Other, CHAT).text, read(AnswerKind::Json, CHAT).text);
    assert_eq!(read(AnswerKind::Other, CHAT_STREAM).text, read(AnswerKind::EventStream, CHAT_STREAM).text);
    for (content_type, kind) in [
        ("application/json; charset=utf-8", AnswerKind::Json),
        ("application/problem+json", AnswerKind::Json),
        ("Text/Event-Stream", AnswerKind::EventStream),
        ("application/x-ndjson", AnswerKind::JsonLines),
        ("application/jsonl", AnswerKind::JsonLines),
        ("application/vnd.amazon.eventstream", AnswerKind::AmazonEvents),
        ("text/html", AnswerKind::Other),
        ("", AnswerKind::Other),
    ] {
        assert_eq!(AnswerKind::from_content_type(Some(content_type.as_bytes())), kind, "{content_type}");
    }
}

#[test]
fn text_is_bounded_and_says_so() {
    let mut reader = AnswerReader::new(AnswerKind::EventStream, None, 7);
    for _ in 0..100 {
        reader.feed("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"aé\"}}]}\n\n".as_bytes());
    }
    let answer = reader.finish();
    assert_eq!((answer.text.as_str(), answer.truncated), ("aéaéa", true));
    let many: String = (0..2000)
        .map(|n| format!("data: {{\"choices\":[{{\"index\":{n},\"delta\":{{\"content\":\"x\"}}}}]}}\n\n"))
        .collect();
    let answer = read(AnswerKind::EventStream, &many);
    assert_eq!((answer.parts.len(), answer.truncated), (512, true));
    let deep = format!("{{\"response\":{}", "{\"response\":".repeat(1_000_000));
    assert!(read(AnswerKind::Json, &deep).truncated);
    assert_eq!(read(AnswerKind::JsonLines, &deep[..100_000]).unreadable, Some("nested too deep"));
}

#[test]
fn reads_compressed_answers_as_they_come() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(CHAT_STREAM.as_bytes()).unwrap();
    let gzip = encoder.finish().unwrap();
    let mut reader = AnswerReader::new(AnswerKind::EventStream, Some(b"gzip"), MAX);
    gzip.chunks(7).for_each(|piece| reader.feed(piece));
    assert_eq!(reader.decoded_bytes(), CHAT_STREAM.len(), "what it takes in memory, not on the wire");
    assert!(reader.first_text_seen());
    assert_eq!(reader.finish(), read(AnswerKind::EventStream, CHAT_STREAM));
    let mut reader = AnswerReader::new(AnswerKind::EventStream, Some(b"gzip"), MAX);
    reader.feed(&gzip[..gzip.len() - 4]);
    assert_eq!(reader.finish().unreadable, Some("compressed body ends early"));
    let mut reader = AnswerReader::new(AnswerKind::Json, Some(b"x-new"), MAX);
    reader.feed(CHAT.as_bytes());
    assert_eq!(reader.finish().unreadable, Some("unknown content coding"));
}

#[test]
fn what_waits_is_read_once_somebody_asks() {
    let mut reader = AnswerReader::new(AnswerKind::EventStream, None, MAX);
    assert!(reader.may_wait());
    let (text, end) = CHAT_STREAM.split_at(CHAT_STREAM.len() - "data: [DONE]\n\n".len());
    reader.feed_later(text.as_bytes());
    assert_eq!(reader.text_bytes(), 0);
    // Only what comes from here on is left out.
    reader.keep_less();
    let read = reader.text_bytes();
    assert!(read > 0);
    reader.feed_later(end.as_bytes());
    assert!(!reader.is_complete());
    reader.catch_up();
    assert_eq!((reader.is_complete(), reader.text_bytes()), (true, read));
    assert!(!AnswerReader::new(AnswerKind::Json, None, MAX).may_wait());
    assert!(!AnswerReader::new(AnswerKind::EventStream, Some(b"gzip"), MAX).may_wait());
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_answer(
        which in 0usize..7, cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8), single in any::<bool>(),
        waits in any::<u8>(), times in 1usize..4,
    ) {
        let amazon = bedrock::converse_stream();
        let (kind, bytes) = [
            (AnswerKind::EventStream, CHAT_STREAM.as_bytes()), (AnswerKind::EventStream, MESSAGES_STREAM.as_bytes()),
            (AnswerKind::EventStream, RESPONSES_STREAM.as_bytes()), (AnswerKind::JsonLines, LOCAL_STREAM.as_bytes()),
            (AnswerKind::Json, CHAT.as_bytes()), (AnswerKind::Other, CHAT_STREAM.as_bytes()),
            (AnswerKind::AmazonEvents, &amazon),
        ][which];
        let pieces: Vec<&[u8]> = if single {
            bytes.chunks(1).collect()
        } else {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
        };
        prop_assert_eq!(read_pieces(kind, &pieces), read_pieces(kind, &[bytes]));
        // Pieces that wait are read as if they had come with those that follow, over the bound of what may wait, too.
        let mut reader = AnswerReader::new(kind, None, MAX);
        for (number, piece) in pieces.repeat(times).into_iter().enumerate() {
            if waits >> (number % 8) & 1 == 1 { reader.feed_later(piece) } else { reader.feed(piece) }
        }
        prop_assert_eq!(reader.finish(), read_pieces(kind, &[&bytes.repeat(times)]));
    }

    #[test]
    fn junk_never_panics_and_parts_stay_inside_the_text(
        which in 0usize..4, at in any::<prop::sample::Index>(), junk in proptest::collection::vec(any::<u8>(), 0..12),
        text_max in 0usize..60,
    ) {
        let (kind, body) = [
            (AnswerKind::EventStream, CHAT_STREAM), (AnswerKind::EventStream, MESSAGES_STREAM),
            (AnswerKind::JsonLines, LOCAL_STREAM), (AnswerKind::Json, CHAT),
        ][which];
        let mut bytes = body.as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes.splice(at..(at + junk.len()).min(body.len()), junk);
        let mut reader = AnswerReader::new(kind, None, text_max);
        reader.feed(&bytes);
        let answer = reader.finish();
        for part in &answer.parts {
            prop_assert!(answer.text.get(part.range.clone()).is_some());
        }
    }
}
