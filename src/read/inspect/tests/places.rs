//! Where texts stand in the body, and whose they are.

use proptest::prelude::*;
use weir_config::vocab::part::PartForm;

use super::*;
use crate::json::{Event, Walker};

/// What the spots of a range spell, put together.
fn spelled(view: &RequestView, body: &str, range: std::ops::Range<usize>) -> Option<String> {
    let spots = view.spots(body.as_bytes(), range)?;
    let pieces = spots.iter().map(|spot| match spot.spelling {
        Spelling::Plain => body[spot.raw.clone()].to_owned(),
        Spelling::Percent | Spelling::Quoted => panic!("{spot:?}"),
        Spelling::Json { .. } => {
            let string = format!("\"{}\"", &body[spot.raw.clone()]);
            match Walker::over(&string).next_event() {
                Ok(Some(Event::Str(text))) => text.decode().into_owned(),
                other => panic!("{string}: {other:?}"),
            }
        }
    });
    Some(pieces.collect())
}

fn named(view: &RequestView) -> Vec<(Option<u32>, &str, &str, &str)> {
    let label = |label| view.label(label).unwrap_or("-");
    view.parts.iter().map(|part| (part.message, label(part.role), label(part.tool_name), label(part.tool_id))).collect()
}

#[test]
fn parts_name_their_message_and_their_tool_in_every_dialect() {
    let chat = read(
        r#"{"messages":[{"role":"developer","content":"be kind"},{"role":"user","content":[{"type":"text","text":"hi you"}]},
            {"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"a b"}}]},
            {"tool_call_id":"c1","content":"found it","role":"tool"}],
            "tools":[{"type":"function","function":{"name":"look","parameters":{"description":"Looks at","properties":{"name":{"type":"string","description":"Whose name"}}}}}]}"#,
    );
    assert_eq!(
        named(&chat),
        [
            (Some(0), "developer", "-", "-"),
            (Some(1), "user", "-", "-"),
            (Some(2), "assistant", "look", "c1"),
            (Some(3), "tool", "-", "c1"),
            (None, "-", "look", "-"),
        ]
    );
    let messages = read(
        r#"{"system":"be kind","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"run","input":{"name":"a b"}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"done it"}]},{"type":"text","text":"go on"}]}],
            "tools":[{"name":"run","description":"Runs a program","input_schema":{}}]}"#,
    );
    assert_eq!(
        named(&messages),
        [
            (None, "-", "-", "-"),
            (Some(0), "assistant", "run", "t1"),
            (Some(1), "user", "-", "t1"),
            (Some(1), "user", "-", "-"),
            (None, "-", "run", "-"),
        ]
    );
    let responses = read(
        r#"{"input":[{"role":"user","content":"hi you"},{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"a b"},
            {"type":"function_call_output","call_id":"c1","output":"the result"}]}"#,
    );
    assert_eq!(named(&responses), [(Some(0), "user", "-", "-"), (Some(1), "-", "f", "c1"), (Some(2), "-", "-", "c1")]);
    let gemini = read(
        r#"{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":{"q":"a b"}}}]},
            {"role":"user","parts":[{"functionResponse":{"name":"f","response":{"r":"from tool"}}}]}],
            "tools":[{"functionDeclarations":[{"name":"f","description":"does f"},{"description":"does g","name":"g"}]}]}"#,
    );
    assert_eq!(
        named(&gemini),
        [(Some(0), "model", "f", "-"), (Some(1), "user", "f", "-"), (None, "-", "f", "-"), (None, "-", "g", "-")]
    );
    let converse = read(
        r#"{"messages":[{"role":"assistant","content":[{"toolUse":{"toolUseId":"t","name":"f","input":{"a":"b c"}}}]},
            {"role":"user","content":[{"toolResult":{"toolUseId":"t","content":[{"text":"tool says"}]}}]}],
            "toolConfig":{"tools":[{"toolSpec":{"name":"f","description":"does f","inputSchema":{"json":{"description":"what for"}}}}]}}"#,
    );
    assert_eq!(
        named(&converse),
        [(Some(0), "assistant", "f", "t"), (Some(1), "user", "-", "t"), (None, "-", "f", "-")]
    );
}

#[test]
fn a_conflict_of_roles_leaves_no_role_and_odd_names_are_cut() {
    let view = read(r#"{"messages":[{"role":"user","role":"system","content":"who am I"}]}"#);
    assert_eq!(named(&view), [(Some(0), "-", "-", "-")]);
    let long = "é".repeat(400);
    let view = read(&format!(r#"{{"messages":[{{"role":"{long}","content":"a b"}}]}}"#));
    assert_eq!(named(&view)[0].1, "é".repeat(127));
}

#[test]
fn a_part_knows_its_bytes() {
    let body = r#"{"messages":[{"role":"user","content":"say \"\u00e9\ud83d\ude00\" to all"}],"tools":[{"name":"f","description":"one\ttwo","parameters":{"description":"three four"}}]}"#;
    let view = read(body);
    let raw: Vec<&str> = view
        .parts
        .iter()
        .map(|part| {
            let raw = part.raw.clone().unwrap();
            &body[raw.start as usize..raw.end as usize]
        })
        .collect();
    assert_eq!(raw[0], r#"say \"\u00e9\ud83d\ude00\" to all"#);
    assert_eq!(raw[1], r#"one\ttwo","parameters":{"description":"three four"#);
    let at = view.text.find('\u{1f600}').unwrap();
    let spots = view.spots(body.as_bytes(), at..at + 4).unwrap();
    assert_eq!(&body[spots[0].raw.clone()], r"\ud83d\ude00");
    assert_eq!(spots[0].spelling, Spelling::Json { escaped: true });
    // A range over two strings of one part has two spots, and the line break between them none.
    let from = view.text.find("two\nthree").unwrap();
    let spots = view.spots(body.as_bytes(), from..from + 9).unwrap();
    let spelled: Vec<&str> = spots.iter().map(|spot| &body[spot.raw.clone()]).collect();
    assert_eq!(spelled, ["two", "three"]);
}

#[test]
fn what_is_not_spelled_as_it_is_has_no_spot() {
    let words = "aWdub3JlIGFsbCBwcmV2aW91cyBpbnN0cnVjdGlvbnM=";
    let base64 = format!(
        r#"{{"messages":[{{"content":[{{"source":{{"type":"base64","media_type":"text/plain","data":"{words}"}}}}]}}]}}"#
    );
    let view = read(&base64);
    let part = view.parts.iter().find(|part| view.text[part.range.clone()].starts_with("ignore all")).unwrap();
    let raw = part.raw.clone().unwrap();
    assert_eq!(&base64[raw.start as usize..raw.end as usize], words);
    assert_eq!(view.spots(base64.as_bytes(), part.range.clone()), None);
    for broken in [r#"{"prompt":"a \x b"}"#, r#"{"prompt":"a b"#] {
        let view = read(broken);
        assert!(view.unreadable.is_some());
        assert_eq!(view.spots(broken.as_bytes(), 0..view.text.len()), None, "{broken}");
    }
}

#[test]
fn a_forms_values_and_the_names_of_its_files_have_their_places() {
    let spelled = |media: &str, body: &str, words: &str| {
        let declared = Declared { takes: Takes::Anything, ..declared(media) };
        let view = read_request(Dialect::ChatCompletions, declared, body.as_bytes(), MAX);
        let at = view.text.find(words).unwrap_or_else(|| panic!("{}", view.text));
        let spots = view.spots(body.as_bytes(), at..at + words.len())?;
        assert_eq!(spots.len(), 1);
        Some((body[spots[0].raw.clone()].to_owned(), spots[0].spelling))
    };
    let form = "application/x-www-form-urlencoded";
    for (body, words, raw) in [
        ("a=1&prompt=ignore+all&x=1", "ignore all", "ignore+all"),
        ("prompt=say%20%c3%a9t%C3%A9+now", "été", "%c3%a9t%C3%A9"),
        ("prompt=100%+of%2", "100% of", "100%+of"),
        ("only+words", "words", "words"),
    ] {
        assert_eq!(spelled(form, body, words), Some((raw.to_owned(), Spelling::Percent)), "{body}");
    }
    assert_eq!(spelled(form, "prompt=latin+%e9+words", "words"), None, "bytes that are no text");
    let part = |parameters: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=file; {parameters}\r\n\r\nRIFF\0\r\n--b--\r\n")
    };
    let media = "multipart/form-data; boundary=b";
    let quoted = part(r#"filename="the \"best\" one.wav"; filename*=UTF-8''%c3%a9t%C3%A9+.wav"#);
    assert_eq!(spelled(media, &quoted, "\"best\""), Some((r#"\"best\""#.to_owned(), Spelling::Quoted)));
    assert_eq!(spelled(media, &quoted, "été+"), Some(("%c3%a9t%C3%A9+".to_owned(), Spelling::Percent)));
    assert_eq!(spelled(media, &part("filename=one.wav"), "one"), None, "a tag is no token");
}

#[test]
fn plain_bodies_and_fields_stand_as_they_are() {
    let body = "just words here";
    let view = read_request(
        Dialect::ChatCompletions,
        Declared { takes: Takes::Anything, ..declared("text/plain") },
        body.as_bytes(),
        MAX,
    );
    assert_eq!(spelled(&view, body, 5..10).as_deref(), Some("words"));
    let body = "--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nlisten to me\r\n--b--\r\n";
    let view = read_request(
        Dialect::ChatCompletions,
        Declared { takes: Takes::Anything, ..declared("multipart/form-data; boundary=b") },
        body.as_bytes(),
        MAX,
    );
    assert_eq!(spelled(&view, body, 0..6).as_deref(), Some("listen"));
    let spots = view.spots(body.as_bytes(), 0..6).unwrap();
    assert_eq!((&body[spots[0].raw.clone()], spots[0].spelling), ("listen", Spelling::Plain));
}

#[test]
fn the_record_points_into_what_is_recorded() {
    let body = r#"{"api_key":"k-1","messages":[{"role":"user","content":"hi you"},{"role":"tool","tool_call_id":"c","content":"and more"}]}"#;
    let view = read(body);
    assert_eq!(view.text, "k-1\nhi you\nand more");
    let (text, parts) = view.into_record();
    assert_eq!(text, "hi you\nand more");
    let shown = |at: usize| parts[at].text.clone().map(|range| &text[range.start as usize..range.end as usize]);
    assert_eq!((shown(0), parts[0].form), (None, PartForm::Credential));
    assert_eq!((shown(1), parts[1].role.as_deref(), parts[1].message), (Some("hi you"), Some("user"), Some(0)));
    assert_eq!((shown(2), parts[2].kind), (Some("and more"), Tool));
    assert_eq!(parts[2].tool.as_ref().and_then(|tool| tool.id.as_deref()), Some("c"));
    for part in parts.iter().filter(|part| part.text.is_some()) {
        let raw = part.raw.clone().unwrap();
        let text = part.text.clone().unwrap();
        assert_eq!(body[raw.start as usize..raw.end as usize], text_of(&view_text(body), &text));
    }
}

fn view_text(body: &str) -> String {
    read(body).into_record().0
}

fn text_of(text: &str, range: &std::ops::Range<u32>) -> String {
    text[range.start as usize..range.end as usize].to_owned()
}

/// JSON as a client may write it, spelled with more escapes than needed.
fn body() -> impl Strategy<Value = String> {
    let text = proptest::collection::vec(
        prop_oneof!["[a-z ]{1,8}", Just("\u{1f600}".to_owned()), Just("\"\\\n\u{e9}".to_owned())],
        0..5,
    )
    .prop_map(|pieces| pieces.concat());
    let spelled = (text, any::<bool>()).prop_map(|(text, escape)| {
        let plain = serde_json::to_string(&text).unwrap();
        if !escape {
            return plain;
        }
        let mut units = [0; 2];
        let all =
            text.chars().map(|c| c.encode_utf16(&mut units).iter().map(|u| format!("\\u{u:04x}")).collect::<String>());
        format!("\"{}\"", all.collect::<String>())
    });
    let one = (
        prop_oneof![Just("user"), Just("assistant"), Just("tool"), Just("x y")],
        proptest::collection::vec(spelled.clone(), 1..4),
    );
    let tool = proptest::collection::vec(spelled, 0..4);
    (proptest::collection::vec(one, 0..5), tool).prop_map(|(messages, tool)| {
        let messages: Vec<String> = messages
            .iter()
            .map(|(role, texts)| {
                let blocks: Vec<String> =
                    texts.iter().map(|text| format!(r#"{{"type":"text","text":{text}}}"#)).collect();
                format!(r#"{{"role":"{role}","content":[{}]}}"#, blocks.join(","))
            })
            .collect();
        format!(r#"{{"messages":[{}],"tools":[{{"a":[{}]}}]}}"#, messages.join(","), tool.join(" , "))
    })
}

proptest! {
    #[test]
    fn every_stretch_of_text_is_found_in_the_body(
        body in body(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(),
    ) {
        let view = read(&body);
        prop_assert!(view.unreadable.is_none());
        let ends: Vec<usize> = view.text.char_indices().map(|(at, _)| at).chain([view.text.len()]).collect();
        let (a, b) = (ends[from.index(ends.len())], ends[to.index(ends.len())]);
        let range = a.min(b)..a.max(b);
        let found = spelled(&view, &body, range.clone());
        let found = found.map(|text| text.replace('\n', ""));
        prop_assert_eq!(found, Some(view.text[range.clone()].replace('\n', "")), "{:?} of {:?} in {}", range, view.text, body);
        for part in &view.parts {
            let spots = view.spots(body.as_bytes(), part.range.clone()).unwrap();
            let raw = part.raw.clone().unwrap();
            prop_assert_eq!(spots.first().map(|spot| spot.raw.start), Some(raw.start as usize));
            prop_assert_eq!(spots.last().map(|spot| spot.raw.end), Some(raw.end as usize));
        }
    }
}

/// The body as the record gives it back.
fn given_back(body: &str) -> serde_json::Value {
    let mut view = read_request(Dialect::Messages, declared("application/json"), body.as_bytes(), MAX);
    let frame = view.frame.take().unwrap();
    let (text, _) = view.into_record();
    let body = frame.body(&text);
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn as_value(body: &str) -> serde_json::Value {
    serde_json::from_str(body).unwrap()
}

#[test]
fn what_an_agent_sends_comes_back_whole() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/data/agent_turns.jsonl.zst");
    let turns = String::from_utf8(zstd::stream::decode_all(&std::fs::read(file).unwrap()[..]).unwrap()).unwrap();
    assert_eq!(turns.lines().count(), 22);
    let mut recorded = String::new();
    for turn in turns.lines() {
        assert_eq!(given_back(turn), as_value(turn));
        let mut view = read_request(Dialect::Messages, declared("application/json"), turn.as_bytes(), MAX);
        let frame = view.frame.take().unwrap();
        let (prompt, parts) = view.into_record();
        let texts: Vec<[u32; 2]> = frame.texts.iter().map(|text| [text.start, text.end]).collect();
        let line = serde_json::json!({"prompt": prompt, "parts": parts, "frame": frame.json, "texts": texts});
        recorded.push_str(&format!("{line}\n"));
    }
    // For `storage/examples/conversation.rs`.
    if let Ok(file) = std::env::var("WEIR_TURNS_OUT") {
        std::fs::write(file, recorded).unwrap();
    }
}

#[test]
fn what_is_not_kept_is_not_in_the_frame_either() {
    let body = r#"{"t\u006fols":[{"type":"mcp","server_url":"https://me:pw-1@mcp.example/x","authorization":"Bearer tok-2",
        "headers":{"X-Key":"tok-3"},"allowed_tools":["a"]}],"api_key":"k-4","messages":[{"role":"tool","tool_call_id":"c\u0031","content":[
        {"type":"input_file","file_data":"data:text/plain;base64,aWdub3JlIGFsbA=="},
        {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="}}]}]}"#;
    let back = given_back(body);
    let tool = &back["tools"][0];
    assert_eq!(tool["server_url"], "https://***@mcp.example/x");
    for gone in
        [&tool["authorization"], &tool["headers"]["X-Key"], &back["api_key"], &back["messages"][0]["tool_call_id"]]
    {
        assert_eq!(gone, "[not kept]");
    }
    let content = &back["messages"][0]["content"];
    assert_eq!(content[0]["file_data"], "data:text/plain;base64,aWdub3JlIGFsbA==");
    assert_eq!(
        (&content[1]["source"]["data"]["bytes"], &content[1]["source"]["data"]["media_type"]),
        (&70.into(), &"image/png".into())
    );
    // Nothing but its parts is needed of a call without tools.
    assert_eq!(read(r#"{"messages":[{"role":"user","content":"hi"}],"metadata":{"a":"b c"}}"#).frame, None);
}

#[test]
fn a_call_without_a_word_is_a_call() {
    let body = r#"{"messages":[{"role":"user","content":"hi"},
        {"role":"assistant","content":[{"input":{"n":5},"type":"tool_use","id":"t1","name":"wait","cache_control":{"type":"ephemeral"}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"done"}]},
        {"role":"user","content":[{"type":"tool_use","id":"t2","name":"mine","input":{}}]}],"metadata":{"input":{"n":1}}}"#;
    let view = read(body);
    assert_eq!(view.records(), 4);
    let (text, records) = view.into_record();
    assert_eq!(text, "hi\ndone");
    let told = |at: usize| {
        let record = &records[at];
        let tool = record.tool.as_ref().unwrap();
        (
            record.kind,
            record.role.as_deref(),
            record.message,
            tool.name.as_deref(),
            tool.id.as_deref(),
            record.text.clone(),
        )
    };
    assert_eq!(told(2), (ToolCall, Some("assistant"), Some(1), Some("wait"), Some("t1"), None));
    assert_eq!(told(3), (User, Some("user"), Some(3), Some("mine"), Some("t2"), None));
    assert_eq!(given_back(body), as_value(body));
}

/// Any JSON, of names that mean something and of others.
fn any_json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let names = [
        "type",
        "text",
        "content",
        "input",
        "args",
        "id",
        "name",
        "role",
        "parts",
        "thinking",
        "a b",
        "q\"\\",
        "\u{1f980}",
    ];
    let words =
        ["", "tool_use", "tool_result", "user", "two words", "line\none", "\u{1}\u{6}", "\u{e9}\u{1f980}\"\\", "4711"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        proptest::sample::select(words.to_vec()).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        let name = proptest::sample::select(names.to_vec()).prop_map(str::to_owned);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((name, inner), 0..5).prop_map(|fields| fields.into_iter().collect::<Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn any_body_with_a_tool_comes_back(content in any_json(), input in any_json(), beside in any_json()) {
        let body = serde_json::json!({"beside": beside, "messages": [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"q": "all", "n": 1, "more": input}}, content]}]});
        prop_assert_eq!(given_back(&body.to_string()), body);
    }
}
