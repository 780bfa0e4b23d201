//! What reports say, by the names each instrumentation has for it: every name of the table alone, of two the earlier one, and a span
//! of each dialect whole.

use serde_json::{Value, json};

use super::names::{
    ANSWER, CALLS, DOCUMENTS, FIELDS, Field, INPUT, LEVEL, OUTPUT, STATUS_MESSAGE, SYSTEM, THOUGHTS, TOOL_ABOUT,
    TOOL_ARGUMENTS, TOOL_RESULT, TOOLS,
};
use super::read_json;
use crate::ingest::span::{ReportedMessage, ReportedPart, ReportedSpan, ReportedUsage};
use crate::record::RESPONSE_ID;

fn attribute((name, value): (&str, Value)) -> Value {
    let value = match value {
        Value::String(text) => json!({"stringValue": text}),
        Value::Bool(truth) => json!({"boolValue": truth}),
        Value::Number(number) if number.is_f64() => json!({"doubleValue": number}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
        other => panic!("no attribute of a test: {other}"),
    };
    json!({"key": name, "value": value})
}

fn event(name: &str, attributes: Vec<(&str, Value)>) -> Value {
    json!({"name": name, "timeUnixNano": "1700000000100000000", "attributes": attributes.into_iter().map(attribute).collect::<Vec<_>>()})
}

/// The span with these attributes and events, as it is read.
#[track_caller]
fn reported(attributes: Vec<(&str, Value)>, events: Vec<Value>) -> ReportedSpan {
    let span = json!({
        "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "00f067aa0ba902b7", "name": "call",
        "startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000001000000000",
        "attributes": attributes.into_iter().map(attribute).collect::<Vec<_>>(), "events": events,
    });
    let request = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]});
    let mut spans = read_json(request.to_string().as_bytes(), &mut |_| true).expect("a request");
    spans.read.remove(0).expect("a span")
}

fn read(attributes: Vec<(&str, Value)>) -> ReportedSpan {
    reported(attributes, Vec::new())
}

fn kept<'a>(span: &'a ReportedSpan, name: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// A value for a field, and what the span then says of it.
fn example(field: Field, number: u16) -> (Value, String) {
    let words = |text: String| (json!(text), text);
    match field {
        Field::Tenant => words(format!("6f1c2b1e-0d5a-4c6f-9e7b-{number:012x}")),
        Field::Streaming => (json!(number % 2 == 1), (number % 2 == 1).to_string()),
        Field::FirstTokenSeconds => (json!(f64::from(number) + 0.5), format!("{}", f64::from(number) * 1000.0 + 500.0)),
        Field::FirstTokenMillis => (json!(f64::from(number) + 0.5), format!("{}", f64::from(number) + 0.5)),
        Field::Prompt | Field::Completion | Field::Total | Field::Cached | Field::CacheWrite | Field::Reasoning => {
            (json!(number), number.to_string())
        }
        Field::Status => (json!(200 + number), (200 + number).to_string()),
        _ => words(format!("word-{number}")),
    }
}

fn said(span: &ReportedSpan, field: Field) -> String {
    let words = |text: &Option<String>| text.clone().unwrap_or_default();
    let count = |count: Option<u64>| count.map(|count| count.to_string()).unwrap_or_default();
    let usage = &span.usage;
    match field {
        Field::Tenant => span.tenant_id.map(|tenant| tenant.to_string()).unwrap_or_default(),
        Field::Agent => words(&span.agent_id),
        Field::Session => words(&span.session_id),
        Field::User => words(&span.user_id),
        Field::Client => words(&span.client),
        Field::Operation => words(&span.operation_name),
        Field::Provider => words(&span.provider),
        Field::Model => words(&span.model),
        Field::Streaming => span.streaming.to_string(),
        Field::Prompt => count(usage.prompt),
        Field::Completion => count(usage.completion),
        Field::Total => count(usage.total),
        Field::Cached => count(usage.cached),
        Field::CacheWrite => count(usage.cache_write),
        Field::Reasoning => count(usage.reasoning),
        Field::FirstTokenSeconds | Field::FirstTokenMillis => {
            span.time_to_first_token_ms.map(|took| took.to_string()).unwrap_or_default()
        }
        Field::Status => span.status_code.map(|status| status.to_string()).unwrap_or_default(),
        Field::ErrorType => words(&span.error_type),
        Field::FinishReason => words(&span.finish_reason),
    }
}

#[test]
fn each_name_alone_fills_its_field_and_is_not_kept_twice() {
    for (field, names) in FIELDS {
        for name in *names {
            // Cached tokens are of a prompt that has at least as many.
            let (value, expected) = example(*field, 7);
            let span = read(vec![(*name, value)]);
            assert_eq!(said(&span, *field), expected, "{name}");
            assert_eq!(kept(&span, name), None, "{name}");
        }
    }
}

#[test]
fn of_two_names_the_earlier_one_holds_and_the_other_stays_an_attribute() {
    for (field, names) in FIELDS {
        for pair in names.windows(2) {
            for ((first, expected), (second, _)) in
                [(example(*field, 7), example(*field, 8)), (example(*field, 8), example(*field, 7))]
            {
                for turned in [false, true] {
                    let mut attributes = vec![(pair[0], first.clone()), (pair[1], second.clone())];
                    if turned {
                        attributes.reverse();
                    }
                    let span = read(attributes);
                    assert_eq!(said(&span, *field), expected, "{pair:?}");
                    assert_eq!(kept(&span, pair[1]).cloned(), Some(second.clone()), "{pair:?}");
                }
            }
        }
    }
}

/// The attributes that say these words under a name of a table of texts.
fn spelled(name: &str, words: &str) -> Vec<(String, Value)> {
    let definition = json!({"name": "search", "description": words}).to_string();
    let one = |end: &str, value: Value| vec![(format!("{name}{end}"), value)];
    match name {
        "llm.input_messages." | "llm.output_messages." => one("0.message.content", json!(words)),
        "embedding.embeddings." => one("0.embedding.text", json!(words)),
        "llm.request.functions." => [one("0.name", json!("search")), one("0.description", json!(words))].concat(),
        "llm.tools." => one("0.tool.json_schema", json!(definition)),
        "gen_ai.tool.definitions" | "ai.prompt.tools" => one("", json!(format!("[{definition}]"))),
        "gen_ai.retrieval.documents" => one("", json!(json!([{"id": "d1", "content": words}]).to_string())),
        "retrieval.documents." | "reranker.input_documents." | "reranker.output_documents." => {
            one("0.document.content", json!(words))
        }
        "ai.response.toolCalls" => one("", json!(json!([{"toolName": "search", "args": words}]).to_string())),
        name if name.ends_with('.') => one("0.content", json!(words)),
        _ => one("", json!(words)),
    }
}

/// All texts of messages, and the answer's id.
fn texts(messages: &[ReportedMessage]) -> Vec<String> {
    let text = |part: &ReportedPart| match part {
        ReportedPart::Text(text) | ReportedPart::Reasoning(text) | ReportedPart::Refusal(text) => text.clone(),
        ReportedPart::ToolCall { arguments, .. } => arguments.clone(),
        ReportedPart::ToolResult { content, .. } => content.clone(),
        ReportedPart::ToolDefinition { text, .. } => text.clone(),
    };
    messages.iter().flat_map(|message| &message.parts).map(text).collect()
}

#[test]
fn of_two_names_of_a_text_the_earlier_one_is_read_and_the_other_stays_an_attribute_and_is_inspected() {
    for names in [INPUT, OUTPUT, SYSTEM, TOOLS, CALLS, THOUGHTS, ANSWER, TOOL_ARGUMENTS, TOOL_RESULT, DOCUMENTS] {
        for pair in names.windows(2) {
            for turned in [false, true] {
                let mut attributes = [spelled(pair[0], "the words"), spelled(pair[1], "others")];
                if turned {
                    attributes.reverse();
                }
                let attributes = attributes.concat();
                let span = read(attributes.iter().map(|(name, value)| (name.as_str(), value.clone())).collect());
                let mut read = texts(&[&*span.input, &*span.output].concat());
                read.extend(kept(&span, RESPONSE_ID).map(Value::to_string));
                assert!(matches!(&*read, [one] if one.contains("the words")), "{pair:?}: {read:?}");
                let left = kept(&span, pair[1].trim_end_matches('.')).map(Value::to_string).unwrap_or_default();
                assert!(left.contains("others"), "{pair:?}: {:?}", span.attributes);
                let elsewhere: Vec<_> = span
                    .elsewhere
                    .iter()
                    .map(|(name, message)| (name.as_str(), texts(std::slice::from_ref(message)).concat()))
                    .collect();
                match (names, &*elsewhere) {
                    (ANSWER, []) => {}
                    (_, [(name, words)]) if *name == pair[1].trim_end_matches('.') && words.contains("others") => {}
                    _ => panic!("{pair:?}: {elsewhere:?}"),
                }
            }
        }
    }
}

#[test]
fn what_says_nothing_leaves_the_text_to_the_next_name_and_what_says_the_same_is_not_inspected_twice() {
    for nothing in ["", "[]", "null", r#"[{"role":"user","content":""}]"#] {
        let span = read(vec![("gen_ai.input.messages", json!(nothing)), ("input.value", json!("the words"))]);
        let expected = if nothing == "null" { "null" } else { "the words" };
        assert_eq!(texts(&span.input), [expected], "{nothing}");
    }
    let span = read(vec![("gen_ai.input.messages", json!("the words")), ("input.value", json!("the words"))]);
    assert_eq!((texts(&span.input), span.elsewhere.len()), (vec!["the words".to_owned()], 0));
    assert_eq!(kept(&span, "input.value"), Some(&json!("the words")));
    let span = read(vec![("gen_ai.response.id", json!("")), ("llm.response.id", json!("msg_1"))]);
    let ids: Vec<_> = span.attributes.iter().filter(|(name, _)| name == RESPONSE_ID).collect();
    assert!(ids.iter().any(|(_, id)| *id == json!("msg_1")), "{ids:?}");
}

#[test]
fn a_value_that_is_none_leaves_the_field_to_the_next_name() {
    let span = read(vec![
        ("gen_ai.usage.input_tokens", json!("many")),
        ("llm.token_count.prompt", json!(12)),
        ("gen_ai.request.model", json!("")),
        ("llm.model_name", json!("gpt-4o")),
    ]);
    assert_eq!((span.usage.prompt, span.model.as_deref()), (Some(12), Some("gpt-4o")));
    assert_eq!(kept(&span, "gen_ai.usage.input_tokens"), Some(&json!("many")));
}

fn text(role: &str, words: &str) -> ReportedMessage {
    ReportedMessage { role: role.to_owned(), parts: vec![ReportedPart::Text(words.to_owned())] }
}

#[test]
fn words_to_and_from_the_model_are_read_under_every_name() {
    for (names, role) in [(INPUT, "user"), (OUTPUT, "assistant")] {
        for name in names {
            let spelled = spelled(name, "the words");
            let span = read(spelled.iter().map(|(name, value)| (name.as_str(), value.clone())).collect());
            let read = if role == "user" { &span.input } else { &span.output };
            assert_eq!(read, &[text(role, "the words")], "{name}");
            assert_eq!(span.elsewhere, [], "{name}");
            assert!(spelled.iter().all(|(name, _)| kept(&span, name).is_none()), "{name}");
        }
    }
    let span = read(vec![(SYSTEM[0], json!(r#"[{"type":"text","content":"be kind"}]"#)), (INPUT[0], json!("hi"))]);
    assert_eq!(span.input, [text("system", "be kind"), text("user", "hi")]);
}

#[test]
fn tools_calls_and_answers_ids_are_read_under_every_name() {
    for name in TOOLS {
        let spelled = spelled(name, "looks things up");
        let span = read(spelled.iter().map(|(name, value)| (name.as_str(), value.clone())).collect());
        let [ReportedMessage { role, parts }] = &*span.input else { panic!("{name}: {:?}", span.input) };
        let expected = ReportedPart::ToolDefinition {
            name: "search".to_owned(),
            text: r#"{"description":"looks things up"}"#.to_owned(),
        };
        assert_eq!((role.as_str(), &**parts), ("tools", &[expected][..]), "{name}");
    }
    for name in CALLS {
        let span = read(vec![(*name, json!(r#"[{"toolCallId":"c1","toolName":"search","args":"{\"q\":1}"}]"#))]);
        let call = ReportedPart::ToolCall {
            id: Some("c1".to_owned()),
            name: "search".to_owned(),
            arguments: r#"{"q":1}"#.to_owned(),
        };
        assert_eq!(span.output, [ReportedMessage { role: "assistant".to_owned(), parts: vec![call] }], "{name}");
    }
    for name in ANSWER {
        let span = read(vec![(*name, json!("msg_1"))]);
        assert_eq!(kept(&span, RESPONSE_ID), Some(&json!("msg_1")), "{name}");
    }
}

#[test]
fn the_ai_sdk_says_it_in_names_of_its_own() {
    let span = read(vec![
        ("ai.operationId", json!("ai.streamText.doStream")),
        ("ai.model.id", json!("gpt-4o-mini")),
        ("ai.model.provider", json!("openai.chat")),
        (
            "ai.prompt.messages",
            json!(
                r#"[{"role":"system","content":"be kind"},{"role":"user","content":[{"type":"text","text":"weather?"}]}]"#
            ),
        ),
        ("ai.response.text", json!("It rains.")),
        ("ai.response.toolCalls", json!(r#"[{"toolCallId":"c1","toolName":"weather","input":"{}"}]"#)),
        ("ai.response.finishReason", json!("tool-calls")),
        ("ai.response.id", json!("chatcmpl-1")),
        ("ai.response.msToFirstChunk", json!(12.5)),
        ("ai.usage.promptTokens", json!(30)),
        ("ai.usage.completionTokens", json!(4)),
        ("ai.telemetry.metadata.userId", json!("ann")),
    ]);
    assert_eq!(span.input, [text("system", "be kind"), text("user", "weather?")]);
    let call =
        ReportedPart::ToolCall { id: Some("c1".to_owned()), name: "weather".to_owned(), arguments: "{}".to_owned() };
    let answer = vec![ReportedPart::Text("It rains.".to_owned()), call];
    assert_eq!(span.output, [ReportedMessage { role: "assistant".to_owned(), parts: answer }]);
    let words = [&span.model, &span.provider, &span.finish_reason, &span.user_id].map(|words| words.as_deref());
    assert_eq!(words, [Some("gpt-4o-mini"), Some("openai.chat"), Some("tool-calls"), Some("ann")]);
    let used = ReportedUsage { prompt: Some(30), completion: Some(4), ..ReportedUsage::default() };
    assert_eq!((span.usage, span.time_to_first_token_ms), (used, Some(12.5)));
}

#[test]
fn messages_in_events_are_read_in_both_forms() {
    let one_each = reported(
        vec![("gen_ai.system", json!("openai"))],
        vec![
            event("gen_ai.system.message", vec![("content", json!("be kind"))]),
            event("gen_ai.user.message", vec![("content", json!("weather?"))]),
            event("gen_ai.tool.message", vec![("id", json!("c1")), ("content", json!("rain"))]),
            event(
                "gen_ai.choice",
                vec![("index", json!(0)), ("message", json!(r#"{"role":"assistant","content":"It rains."}"#))],
            ),
            event("cache.miss", vec![("key", json!("k"))]),
        ],
    );
    let roles: Vec<&str> = one_each.input.iter().map(|message| message.role.as_str()).collect();
    assert_eq!((roles, &*one_each.output), (vec!["system", "user", "tool"], &[text("assistant", "It rains.")][..]));
    let left: Vec<&str> = one_each.events.iter().map(|event| &*event.event_type).collect();
    assert_eq!((one_each.provider.as_deref(), left), (Some("openai"), vec!["cache.miss"]));
    let together = reported(
        Vec::new(),
        vec![event(
            "gen_ai.client.inference.operation.details",
            vec![
                ("gen_ai.system_instructions", json!(r#"[{"type":"text","content":"be kind"}]"#)),
                ("gen_ai.input.messages", json!(r#"[{"role":"user","parts":[{"type":"text","content":"weather?"}]}]"#)),
                (
                    "gen_ai.output.messages",
                    json!(r#"[{"role":"assistant","parts":[{"type":"text","content":"It rains."}]}]"#),
                ),
            ],
        )],
    );
    assert_eq!(together.input, [text("system", "be kind"), text("user", "weather?")]);
    assert_eq!((&*together.output, together.events.len()), (&[text("assistant", "It rains.")][..], 0));
}

#[test]
fn what_went_wrong_is_said_by_attribute_or_exception() {
    let by_event = reported(
        Vec::new(),
        vec![event("exception", vec![("exception.type", json!("Timeout")), ("exception.message", json!("too slow"))])],
    );
    assert_eq!(
        (by_event.error_type.as_deref(), by_event.error_message.as_deref()),
        (Some("Timeout"), Some("too slow"))
    );
    assert_eq!(by_event.events.len(), 1, "the exception stays");
}

#[test]
fn tokens_read_from_a_cache_are_of_the_prompt() {
    let beside =
        read(vec![("gen_ai.usage.input_tokens", json!(10)), ("gen_ai.usage.cache_read.input_tokens", json!(90))]);
    assert_eq!((beside.usage.prompt, beside.usage.cached), (Some(100), Some(90)));
    let within =
        read(vec![("gen_ai.usage.input_tokens", json!(100)), ("gen_ai.usage.cache_read.input_tokens", json!(90))]);
    assert_eq!((within.usage.prompt, within.usage.cached), (Some(100), Some(90)));
}

fn alone(role: &str, part: ReportedPart) -> ReportedMessage {
    ReportedMessage { role: role.to_owned(), parts: vec![part] }
}

#[test]
fn a_tool_that_was_run_is_a_call_of_the_models_and_words_of_a_stranger() {
    let call = |arguments: &str| {
        let (id, name) = (Some("c1".to_owned()), "weather".to_owned());
        alone("assistant", ReportedPart::ToolCall { id, name, arguments: arguments.to_owned() })
    };
    let result = |content: &str| {
        let (id, name) = (Some("c1".to_owned()), Some("weather".to_owned()));
        alone("tool", ReportedPart::ToolResult { id, name, content: content.to_owned() })
    };
    // A span of a tool has what it was asked for and brought under its own names, or as what any step was given and gave.
    let own = TOOL_ARGUMENTS.iter().flat_map(|asked| TOOL_RESULT.iter().map(move |brought| (*asked, *brought, "chat")));
    let any = [
        ("input.value", "output.value", "TOOL"),
        ("traceloop.entity.input", "traceloop.entity.output", "tool"),
        ("langfuse.observation.input", "langfuse.observation.output", "tool"),
        ("gen_ai.input.messages", "ai.toolCall.result", "execute_tool"),
        ("ai.toolCall.args", "output.value", "ai.toolCall"),
    ];
    for (asked, brought, kind) in own.chain(any) {
        let span = read(vec![
            ("openinference.span.kind", json!(kind)),
            ("gen_ai.tool.name", json!("weather")),
            ("gen_ai.tool.call.id", json!("c1")),
            (asked, json!(r#"{"city":"Oslo"}"#)),
            (brought, json!("rain")),
        ]);
        assert_eq!(
            (&*span.output, &*span.input),
            (&[call(r#"{"city":"Oslo"}"#)][..], &[result("rain")][..]),
            "{asked}"
        );
        assert!(kept(&span, asked).is_none() && kept(&span, brought).is_none());
        assert_eq!(kept(&span, "gen_ai.tool.name"), Some(&json!("weather")));
    }
    for about in TOOL_ABOUT {
        let span = read(vec![("tool.name", json!("weather")), (about, json!("says the weather"))]);
        let definition =
            ReportedPart::ToolDefinition { name: "weather".to_owned(), text: "says the weather".to_owned() };
        assert_eq!(span.input, [alone("tools", definition)], "{about}");
    }
}

#[test]
fn documents_are_words_of_strangers_and_embedded_texts_the_users() {
    let result = |id: Option<&str>, content: &str| ReportedPart::ToolResult {
        id: id.map(str::to_owned),
        name: None,
        content: content.to_owned(),
    };
    let span = read(vec![
        ("openinference.span.kind", json!("RETRIEVER")),
        ("input.value", json!("weather?")),
        ("output.value", json!("[{\"page_content\": \"of the whole\"}]")),
        ("retrieval.documents.0.document.id", json!("d1")),
        ("retrieval.documents.0.document.content", json!("rain")),
        ("retrieval.documents.0.document.score", json!(0.5)),
        ("retrieval.documents.0.document.metadata", json!(r#"{"source":"paper"}"#)),
        ("retrieval.documents.1.document.content", json!("sun")),
    ]);
    let found = vec![result(Some("d1"), "rain\n{\"source\":\"paper\"}"), result(None, "sun")];
    let expected = [ReportedMessage { role: "tool".to_owned(), parts: found }, text("user", "weather?")];
    assert_eq!(span.input, expected);
    assert_eq!(span.elsewhere, [("output.value".to_owned(), alone("tool", result(None, "of the whole")))]);
    let span = read(vec![
        ("openinference.span.kind", json!("EMBEDDING")),
        ("embedding.embeddings.1.embedding.text", json!("two")),
        ("embedding.embeddings.0.embedding.text", json!("one")),
        ("embedding.embeddings.0.embedding.vector", json!("[0.5]")),
        ("ai.values", json!(r#"["one","three"]"#)),
    ]);
    assert_eq!((texts(&span.input), span.input.len()), (vec!["one".to_owned(), "two".to_owned()], 1));
    assert_eq!(kept(&span, "embedding.embeddings.0.embedding.vector"), Some(&json!("[0.5]")));
    assert_eq!(span.elsewhere, [("ai.values".to_owned(), text("user", "three"))]);
}

#[test]
fn thoughts_stand_before_the_answer_and_a_level_says_that_a_call_failed() {
    let span = read(vec![("ai.response.text", json!("It rains.")), (THOUGHTS[0], json!("The sky is grey."))]);
    let parts =
        vec![ReportedPart::Reasoning("The sky is grey.".to_owned()), ReportedPart::Text("It rains.".to_owned())];
    assert_eq!(span.output, [ReportedMessage { role: "assistant".to_owned(), parts }]);
    for (level, failed) in [("ERROR", true), ("WARNING", false), ("DEFAULT", false)] {
        let span = read(vec![(LEVEL, json!(level)), (STATUS_MESSAGE, json!("too slow"))]);
        let said = (span.error_type.as_deref(), span.error_message.as_deref());
        assert_eq!(said, if failed { (Some("error"), Some("too slow")) } else { (None, None) });
        assert_eq!(kept(&span, LEVEL), Some(&json!(level)));
        assert_eq!(kept(&span, STATUS_MESSAGE).is_some(), !failed);
    }
}
