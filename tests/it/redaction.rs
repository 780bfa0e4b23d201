//! Promise: with `pii.action` set to redact, no personal data that the detector knows leaves in a request or lies in the store;
//! every other byte of the request stays. What a detector calls a credential is never stored in clear.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::ingest::{INGEST, post, request, shown, span};
use crate::support::{
    Call, Gateway, Setup, call, chat_body, chat_call, eventually, messages_body, on_both_drivers_in_full, provider,
    with_stream,
};

const TEXT: &str = "Write to anna.berg@example.com, card 4111 1111 1111 1111, about 12 apples";
const WITHOUT: &str = "Write to [PII:EMAIL], card [PII:CREDIT_CARD], about 12 apples";
/// Of a tool's definition: an address there is its publisher's and stays (`docs/decisions.md`), a card does not.
const DEFINED: &str = "Pays with 4111 1111 1111 1111, made by shop@example.com";
/// Random, and of the form that the detector for GitHub tokens knows; put together so that scanners of code hosts stay quiet.
const TOKEN: [&str; 2] = ["ghp_", "6hIKgwt74CPInlfRDAagj6fvyEobZLVfjgvh"];

fn types(span: &Value) -> Vec<&str> {
    span["security_findings"].as_array().unwrap().iter().filter_map(|found| found["finding_type"].as_str()).collect()
}

on_both_drivers_in_full! {
    fn every_shape_is_redacted_and_every_other_byte_stays(driver) {
        let provider = provider();
        let settings = "pii: {action: alert_and_redact}\nllm_advisory_injection_enabled: false";
        let gateway = Setup::new(driver).upstream(provider.url()).with(settings).start();
        let long = format!("{} {TEXT}", "word ".repeat(4000));
        let embedding = json!({ "model": "fake-embedding", "input": [TEXT, "plain"] });
        for (path, body) in [
            ("/v1/chat/completions", chat_body(TEXT)),
            ("/v1/chat/completions", with_stream(chat_body(TEXT))),
            ("/v1/chat/completions", chat_body(&long)),
            ("/v1/messages", messages_body(TEXT)),
            ("/v1/messages", with_stream(messages_body(TEXT))),
            ("/v1/responses", json!({"model": "fake-large", "input": TEXT})),
            ("/v1/completions", json!({"model": "fake-large", "prompt": TEXT})),
            ("/v1/embeddings", embedding),
            ("/api/chat", chat_body(TEXT)),
            ("/v1/some/new/path", json!({"anything": {"at": ["all", TEXT]}})),
        ] {
            let body = body.to_string();
            for request in [Call::post(path, body.clone()).bytes(), Call::post(path, body.clone()).chunked(17)] {
                let answer = call(gateway.addr, request);
                assert_eq!(answer.header("x-service-redaction"), None, "{path}");
                let seen = String::from_utf8(provider.take_received().remove(0).request.body).unwrap();
                assert_eq!(seen, body.replace(TEXT, WITHOUT), "{path}");
            }
        }
        // Cut over the texts of one message, as the user's and as a tool's, it goes as a whole; what merely stands beside it stays.
        for (cut, without) in [
            (["write to anna.berg@exa", "mple.com please"], ["write to [PII:EMAIL]", "[PII:EMAIL] please"]),
            (["card 4111 1111 ", "1111 1111, thanks"], ["card [PII:CREDIT_CARD]", "[PII:CREDIT_CARD], thanks"]),
            (["it is GB82WEST", "12345698765432"], ["it is [PII:IBAN]", "[PII:IBAN]"]),
            (["write to anna.berg@example.com", "please"], ["write to [PII:EMAIL]", "please"]),
            (["from 10 to 20", "1980-04-01"], ["from 10 to 20", "1980-04-01"]),
        ] {
            let bodies = |texts: [&str; 2]| {
                let blocks = texts.map(|text| json!({"type": "text", "text": text}));
                let result = json!([{"type": "tool_result", "tool_use_id": "t", "content": blocks}]);
                [("/v1/chat/completions", json!(blocks)), ("/v1/messages", result)].map(|(path, content)| {
                    (path, json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}))
                })
            };
            for ((path, body), (_, expected)) in bodies(cut).into_iter().zip(bodies(without)) {
                let answer = call(gateway.addr, Call::post(path, body.to_string()).bytes());
                let seen = String::from_utf8(provider.take_received().remove(0).request.body).unwrap();
                assert_eq!(seen, expected.to_string(), "{path}");
                let span = gateway.span_of(&answer);
                assert_eq!(span["prompt"], without.join("\n"), "{path}: {span}");
                assert_eq!(types(&span).contains(&"pii_detected"), cut != without, "{path}: {span}");
            }
        }
    }

    fn so_is_every_other_place_for_words(driver) {
        let provider = provider();
        let settings = "pii: {action: redact_silent}\nllm_advisory_injection_enabled: false";
        let gateway = Setup::new(driver).upstream(provider.url()).with(settings).start();
        let tool = json!({"type": "function", "function": {"name": "find", "description": DEFINED, "parameters": {"type": "object"}}});
        let called = json!({"id": "t1", "type": "function", "function": {"name": "find", "arguments": "{}"}});
        let parts = json!([{"text": TEXT}]);
        let gemini = json!({"contents": [{"role": "user", "parts": parts}], "systemInstruction": {"parts": parts}});
        let converse = json!({"messages": [{"role": "user", "content": parts}], "system": parts});
        let result = json!([{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": TEXT}]}]);
        let asked = json!([{"type": "tool_use", "id": "t1", "name": "find", "input": {"who": TEXT}}]);
        let messages = json!({"model": "fake-large", "max_tokens": 9, "system": TEXT, "tools": [{"name": "find", "description": DEFINED,
            "input_schema": {"type": "object"}}], "messages": [{"role": "user", "content": TEXT},
            {"role": "assistant", "content": asked}, {"role": "user", "content": result}]});
        let chat = json!({"model": "fake-large", "tools": [tool], "messages": [{"role": "system", "content": TEXT},
            {"role": "user", "content": [{"type": "text", "text": TEXT}]}, {"role": "assistant", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "t1", "content": TEXT}]});
        let mut bedrock = messages.clone();
        bedrock.as_object_mut().unwrap().remove("model");
        bedrock["anthropic_version"] = json!("bedrock-2023-05-31");
        let input = json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": TEXT}]},
            {"type": "function_call_output", "call_id": "t1", "output": TEXT}]);
        for (path, body) in [
            ("/v1beta/models/gemini-2.0-flash:generateContent", gemini.clone()),
            ("/v1beta/models/gemini-2.0-flash:streamGenerateContent?alt=sse", gemini),
            ("/model/anthropic.claude-3-haiku/converse", converse.clone()),
            ("/model/anthropic.claude-3-haiku/converse-stream", converse),
            ("/model/anthropic.claude-3-haiku/invoke", bedrock.clone()),
            ("/model/anthropic.claude-3-haiku/invoke-with-response-stream", bedrock),
            ("/api/generate", json!({"model": "fake-large", "system": TEXT, "prompt": TEXT})),
            ("/generate", json!({"inputs": TEXT, "parameters": {"max_new_tokens": 9}})),
            ("/generate_stream", json!({"inputs": TEXT})),
            ("/openai/deployments/d/chat/completions?api-version=2024-10-21", chat.clone()),
            ("/openai/deployments/d/chat/completions?api-version=2024-10-21", with_stream(chat.clone())),
            ("/v1/chat/completions", chat),
            ("/v1/messages", messages),
            ("/v1/responses", json!({"model": "fake-large", "instructions": TEXT, "input": input})),
        ] {
            let body = body.to_string();
            let answer = call(gateway.addr, Call::post(path, body.clone()).bytes());
            assert_eq!(answer.header("x-service-redaction"), None, "{path}");
            let seen = String::from_utf8(provider.take_received().remove(0).request.body).unwrap();
            let without = body.replace(TEXT, WITHOUT).replace("4111 1111 1111 1111", "[PII:CREDIT_CARD]");
            assert_eq!(seen, without, "{path}");
            let span = gateway.span_of(&answer);
            assert!(!span.to_string().contains("anna.berg") && !span.to_string().contains("4111 1111"), "{path}: {span}");
        }
        // A form's words; its file stays as it is.
        let part = |name: &str, content: &str| format!("--x\r\nContent-Disposition: form-data; {name}\r\n\r\n{content}\r\n");
        let form = [part("name=prompt", TEXT), part("name=file; filename=a.wav", "RIFF\u{0}\u{1}"), "--x--\r\n".to_owned()].concat();
        let head = "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: weir\r\nContent-Type: multipart/form-data; boundary=x";
        let answer = call(gateway.addr, format!("{head}\r\nContent-Length: {}\r\n\r\n{form}", form.len()));
        assert_eq!(answer.header("x-service-redaction"), None);
        let seen = String::from_utf8(provider.take_received().remove(0).request.body).unwrap();
        assert_eq!(seen, form.replace(TEXT, WITHOUT));
    }

    fn of_thousands_of_messages_each_is_redacted_and_every_other_byte_stays(driver) {
        let provider = provider();
        let settings = "pii: {action: redact_silent}\nllm_advisory_injection_enabled: false";
        let gateway = Setup::new(driver).upstream(provider.url()).with(settings).start();
        let turn = |at: usize| if at % 1_500 == 1_499 { TEXT.to_owned() } else { format!("turn {at}") };
        let turns: Vec<Value> = (0..6_000).map(|at| json!({ "role": "user", "content": turn(at) })).collect();
        let texts: Vec<String> = (0..6_000).map(turn).collect();
        for (path, body) in [
            ("/v1/chat/completions", json!({ "model": "fake-large", "messages": turns })),
            ("/v1/embeddings", json!({ "model": "fake-embedding", "input": texts })),
        ] {
            let body = body.to_string();
            let span = gateway.span_of(&call(gateway.addr, Call::post(path, body.clone()).bytes()));
            let seen = String::from_utf8(provider.take_received().remove(0).request.body).unwrap();
            assert_eq!(seen, body.replace(TEXT, WITHOUT), "{path}");
            assert!(!span.to_string().contains("anna.berg"), "{path}");
        }
    }

    fn what_is_stored_is_redacted_and_findings_point_at_the_original(driver) {
        let provider = provider();
        let setup = Setup::new(driver).upstream(provider.url());
        for (action, reported) in [("alert_and_redact", true), ("redact_silent", false)] {
            let gateway = setup.clone().with(&format!("pii: {{action: {action}}}")).start();
            let answer = call(gateway.addr, chat_call(TEXT).bytes());
            let span = gateway.span_of(&answer);
            assert_eq!(span["prompt"], WITHOUT, "{action}");
            assert!(!span.to_string().contains("anna.berg") && !span.to_string().contains("4111 1111"), "{action}: {span}");
            assert_eq!(types(&span).contains(&"pii_detected"), reported, "{action}");
            let sent: Value = serde_json::from_slice(&provider.take_received().remove(0).request.body).unwrap();
            let roles: Vec<_> = sent["messages"].as_array().unwrap().iter().map(|turn| &turn["role"]).collect();
            if reported {
                assert_eq!(roles, ["system", "user"], "the advisory stands beside what was redacted");
                assert_eq!(sent["messages"][1]["content"], WITHOUT);
                let findings = span["security_findings"].as_array().unwrap();
                let mail = findings.iter().find(|found| found["metadata"]["pii_type"] == "email").unwrap();
                let at = |end: &str| mail["span"][end].as_u64().unwrap() as usize;
                assert_eq!(&TEXT[at("start")..at("end")], "anna.berg@example.com");
            } else {
                assert_eq!(roles, ["user"]);
                assert_eq!(sent["messages"][0]["content"], WITHOUT);
            }
        }
    }

    fn nothing_is_redacted_where_nobody_asked(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).with("llm_advisory_injection_enabled: false").start();
        let answer = call(gateway.addr, chat_call(TEXT).bytes());
        assert_eq!(provider.take_received()[0].request.body, chat_body(TEXT).to_string().as_bytes());
        assert_eq!(gateway.span_of(&answer)["prompt"], TEXT);
    }

    fn a_shadow_counts_and_forwards_what_came(driver) {
        let provider = provider();
        let settings = "pii: {action: alert_and_redact, shadow_mode: true}\nllm_advisory_injection_enabled: false";
        let setup = Setup::new(driver).upstream(provider.url());
        let (gateway, active) = (setup.clone().with(settings).start(), setup.with(&settings.replace("true", "false")).start());
        let counted = |gateway: &Gateway, mode: &str| gateway.metric("service_redactions_total", &format!("mode=\"{mode}\""));
        for body in [chat_body(TEXT), with_stream(chat_body(TEXT))] {
            let request = Call::post("/v1/chat/completions", body.to_string());
            let answer = call(gateway.addr, request.bytes());
            assert_eq!(answer.header("x-service-redaction"), None);
            assert_eq!(provider.take_received()[0].request.body, body.to_string().as_bytes());
            let span = gateway.span_of(&answer);
            assert_eq!((&span["prompt"], &span["events"]), (&json!(WITHOUT), &json!([])), "the record is redacted");
            assert!(types(&span).contains(&"pii_detected"));
            call(active.addr, request.bytes());
            provider.take_received();
        }
        assert_eq!((counted(&gateway, "shadow"), counted(&gateway, "active")), (4.0, 0.0));
        assert_eq!((counted(&active, "shadow"), counted(&active, "active")), (0.0, 4.0));
    }

    fn it_does_not_depend_on_the_analysis(driver) {
        let provider = provider();
        let settings = "pii: {action: redact_silent}\nenable_security_analysis: false";
        let gateway = Setup::new(driver).upstream(provider.url()).with(settings).start();
        call(gateway.addr, chat_call(TEXT).bytes());
        assert_eq!(provider.take_received()[0].request.body, chat_body(WITHOUT).to_string().as_bytes());
    }

    fn of_a_form_only_the_coded_piece_of_a_value_and_of_a_files_name_changes(driver) {
        let provider = provider();
        let settings = "pii: {action: redact_silent}\nllm_advisory_injection_enabled: false";
        let gateway = Setup::new(driver).upstream(provider.url()).with(settings).start();
        let sent = |content_type: &str, body: &str| {
            let head = format!("POST /v1/some/form HTTP/1.1\r\nHost: weir\r\nContent-Type: {content_type}");
            let answer = call(gateway.addr, format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
            assert_eq!(answer.header("x-service-redaction"), None, "{body}");
            assert!(!gateway.span_of(&answer).to_string().contains("anna.berg"), "{body}");
            String::from_utf8(provider.take_received().remove(0).request.body).unwrap()
        };
        let form = "model=fake-large&prompt=Write+to+anna.berg%40example.com%2c+card+4111+1111%201111+1111&a=%zz+k%65pt%&\
                    mail=bob@example.com&&x=%c3%a9";
        let expected = form
            .replace("anna.berg%40example.com", "%5BPII%3AEMAIL%5D")
            .replace("bob@example.com", "%5BPII%3AEMAIL%5D")
            .replace("4111+1111%201111+1111", "%5BPII%3ACREDIT_CARD%5D");
        assert_eq!(sent("application/x-www-form-urlencoded", form), expected);
        assert_eq!(sent("application/x-www-form-urlencoded", &expected), expected, "once is enough");
        let multipart = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"to \\\"Anna\\\" anna.berg@example.com, 1.wav\"; \
                         filename*=UTF-8''f%c3%bcr%20anna.berg%40example.com%2C%201.wav\r\nContent-Type: audio/wav\r\n\r\n\
                         RIFF\0\u{1}\r\n--x--\r\n";
        let expected = multipart
            .replace("anna.berg@example.com", "[PII:EMAIL]")
            .replace("anna.berg%40example.com", "%5BPII%3AEMAIL%5D");
        assert_eq!(sent("multipart/form-data; boundary=x", multipart), expected);
        assert_eq!(sent("multipart/form-data; boundary=x", &expected), expected, "once is enough");
    }

    fn a_file_that_is_text_in_base64_is_spelled_anew(driver) {
        let provider = provider();
        let settings = "pii: {action: redact_silent}\nllm_advisory_injection_enabled: false";
        let gateway = Setup::new(driver).upstream(provider.url()).with(settings).start();
        let (text, without) = (format!("{TEXT} ?>~ {TEXT}"), format!("{WITHOUT} ?>~ {WITHOUT}"));
        let long = |text: &str| format!("{text} {}", "words 12 Words ".repeat(20));
        let standard = (STANDARD.encode(&text), STANDARD.encode(&without));
        let escaped = (standard.0.replace('/', "\\/"), standard.1.clone());
        assert!(escaped.0 != standard.0 && TEXT == "Write to anna.berg@example.com, card 4111 1111 1111 1111, about 12 apples");
        let bare = (STANDARD_NO_PAD.encode(long(&text)), STANDARD_NO_PAD.encode(long(&without)));
        let url_safe = (URL_SAFE_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&without));
        let lines = (standard.0.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line) + "\\r\\n").collect(), standard.1.clone());
        let file = |data: &str| {
            format!(
                "{{\"model\":\"fake-large\", \"messages\": [{{\"role\":\"user\",\"content\":[{{\"type\":\"file\",\"file\":{{\"file_data\":\
                 \"{data}\",\"filename\":\"a.txt\"}}}},{{\"type\":\"text\",\"text\":\"{TEXT}\"}}] }}]}}"
            )
        };
        for (announced, (came, goes)) in
            [("data:text/plain;base64,", standard), ("data:text/csv;base64,", escaped), ("", bare), ("data:text/plain;base64,", url_safe), ("data:text/plain;base64,", lines)]
        {
            let body = file(&format!("{announced}{came}"));
            let answer = call(gateway.addr, Call::post("/v1/chat/completions", body).bytes());
            assert_eq!(answer.header("x-service-redaction"), None, "{came}");
            let seen = String::from_utf8(provider.take_received().remove(0).request.body).unwrap();
            let expected = file(&format!("{announced}{goes}")).replace(TEXT, WITHOUT);
            assert_eq!(seen, expected, "{came}");
            call(gateway.addr, Call::post("/v1/chat/completions", seen).bytes());
            assert_eq!(provider.take_received().remove(0).request.body, expected.as_bytes(), "once is enough");
        }
    }

    fn what_cannot_be_redacted_is_said(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).with("pii: {action: alert_and_redact}").start();
        let wide: Vec<u8> = TEXT.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let data = format!("data:text/plain;base64,{}", STANDARD.encode(wide));
        let content = json!([{"type": "file", "file": {"file_data": data, "filename": "a.txt"}}]);
        let body = json!({"model": "fake-large", "messages": [{"role": "user", "content": content}]});
        let answer = call(gateway.addr, Call::post("/v1/chat/completions", body.to_string()).bytes());
        assert_eq!(answer.header("x-service-redaction").as_deref(), Some("incomplete"));
        let sent: Value = serde_json::from_slice(&provider.take_received().remove(0).request.body).unwrap();
        assert!(sent.to_string().contains(&data), "{sent}");
        let span = gateway.span_of(&answer);
        assert_eq!(span["tags"]["pii_unredacted"], "not_in_place");
        assert!(!span["prompt"].as_str().unwrap().contains("anna.berg"), "{span}");
    }

    fn where_requests_are_blocked_nothing_goes_on_that_was_not_redacted_in_time(driver) {
        let provider = provider();
        let setup = Setup::new(driver).upstream(provider.url()).with("pii: {action: redact_silent}");
        let text = format!("{}{TEXT}", "The quick brown fox jumps over the lazy dog. ".repeat(200_000));
        let late = || Call::post("/v1/messages", messages_body(&text).to_string()).bytes();
        // By its length, or because the pool had no turn for it on a busy machine.
        for (mode, statuses) in [("block", &[400, 503][..]), ("log", &[200])] {
            let gateway = setup.clone().with(&format!("enforcement: {{mode: {mode}, timeout_ms: 1}}")).start();
            let answer = call(gateway.addr, late());
            assert!(statuses.contains(&answer.status), "{mode}: {} {}", answer.status, answer.text());
            let received = provider.take_received();
            let span = gateway.span_of(&answer);
            assert!(!span.to_string().contains("anna.berg"), "{mode}: the record is redacted");
            if mode == "block" {
                assert!(received.is_empty(), "nothing has gone on");
                assert!(answer.text().contains("personal data could not be taken out"), "{}", answer.text());
            } else {
                assert_eq!(answer.header("x-service-redaction").as_deref(), Some("incomplete"));
                assert_eq!(span["tags"]["pii_unredacted"], "not_read");
            }
            // What is read in time is redacted and goes on, in either mode. A millisecond is not always enough on a busy machine: then
            // the call is refused, or goes on with a word about it.
            eventually("a short text is read in time", || {
                let answer = call(gateway.addr, chat_call(TEXT).bytes());
                (answer.status == 200 && answer.header("x-service-redaction").is_none()).then_some(())
            });
            let seen = provider.take_received().pop().unwrap().request.body;
            assert!(String::from_utf8(seen).unwrap().contains(WITHOUT), "{mode}");
        }
    }

    fn what_reported_spans_say_beside_their_messages_is_masked(driver) {
        let token = TOKEN.concat();
        let said = |word: &str| format!("{word} {token} for anna.berg@example.com");
        let mut reported = span("00f067aa0ba902b7", &json!({"custom.note": said("note"), "user.id": "anna.berg@example.com"}));
        reported["name"] = json!(said("name"));
        reported["status"] = json!({"code": 2, "message": said("status")});
        let pair = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let time = reported["startTimeUnixNano"].clone();
        reported["events"] = json!([{"name": "retried", "timeUnixNano": time, "attributes": [pair("why", &said("event"))]}]);
        let nested = json!({"kvlistValue": {"values": [pair("deep", &said("nested"))]}});
        reported["attributes"].as_array_mut().unwrap().push(json!({"key": "custom.list", "value": nested}));
        let mut sent = request(&json!([reported]));
        sent["resourceSpans"][0]["resource"]["attributes"].as_array_mut().unwrap().push(pair("deploy", &said("resource")));
        for (settings, masked) in [("pii: {action: redact_silent}\n", true), ("", false)] {
            let setup = Setup::new(driver).unlimited().with(INGEST).with(settings);
            let folder = tempfile::tempdir().unwrap();
            let database = folder.path().join("weir.db");
            let storage = format!("{{database_path: '{}', mask_secrets: {masked}}}", database.display());
            let gateway = setup.storage(&storage).start();
            let answer = call(gateway.addr, post(sent.to_string()).bytes());
            assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
            let span = shown(&gateway, "00f067aa0ba902b7").to_string();
            for word in ["note", "name", "status", "event", "nested", "resource"] {
                let kept = format!("{word} [SECRET:GITHUB_PAT] for [PII:EMAIL]");
                assert_eq!((span.contains(&kept), span.contains(&said(word))), (masked, !masked), "{word}: {span}");
            }
            let found = gateway.json("/api/v1/security/findings");
            let found = found["data"][0]["security_findings"].as_array().unwrap();
            let is_secret = |found: &&Value| found["finding_type"] == "secret_leakage" && found["evidence"] == "";
            assert_eq!(found.iter().filter(is_secret).count(), 6, "{found:?}");
            assert_eq!(gateway.json("/api/v1/traces")["data"][0]["security_score"], 80);
            let paths = ["/api/v1/traces", "/api/v1/spans", "/api/v1/security/findings", "/api/v1/stats"];
            for path in paths.into_iter().filter(|_| masked) {
                let answer = gateway.json(path).to_string();
                assert!(!answer.contains(TOKEN[1]) && !answer.contains("anna.berg"), "{path}: {answer}");
            }
        }
    }

    fn a_compressed_body_is_redacted_and_goes_on_without_its_coding(driver) {
        let provider = provider();
        let setup = Setup::new(driver).upstream(provider.url()).with("llm_advisory_injection_enabled: false");
        let gateway = setup.with("pii: {action: redact_silent}\nboundary_defense: {enabled: true}").start();
        let packed = |text: &str| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut encoder, chat_body(text).to_string().as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        for long in ["", &"word ".repeat(10_000)] {
            let (text, without) = (format!("{long}{TEXT}"), format!("{long}{WITHOUT}"));
            let call_made = Call::post("/v1/chat/completions", packed(&text)).field("Content-Encoding", "gzip");
            for request in [call_made.bytes(), call_made.chunked(17)] {
                let answer = call(gateway.addr, request);
                assert_eq!((answer.status, answer.header("x-service-redaction")), (200, None), "{}", answer.text());
                let seen = provider.take_received().remove(0).request;
                assert_eq!(String::from_utf8(seen.body).unwrap(), chat_body(&without).to_string());
                assert!(!seen.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-encoding")));
            }
        }
        // `identity` is no coding.
        let plain = Call::post("/v1/chat/completions", chat_body(TEXT).to_string()).field("Content-Encoding", "identity");
        let answer = call(gateway.addr, plain.bytes());
        assert_eq!((answer.status, answer.header("x-service-redaction")), (200, None));
        let seen = provider.take_received().remove(0).request.body;
        assert_eq!(String::from_utf8(seen).unwrap(), chat_body(WITHOUT).to_string());
        // What needs no change goes on as it came.
        let plain = packed("about 12 apples");
        call(gateway.addr, Call::post("/v1/chat/completions", plain.clone()).field("Content-Encoding", "gzip").bytes());
        let seen = provider.take_received().remove(0).request;
        assert_eq!(seen.body, plain);
        assert!(seen.headers.iter().any(|(name, value)| name.eq_ignore_ascii_case("content-encoding") && value == "gzip"));
    }

    fn a_credential_is_forwarded_and_not_stored(driver) {
        let provider = provider();
        let setup = Setup::new(driver).upstream(provider.url());
        let kept = setup.clone().storage("{profile: memory, mask_secrets: false}").start();
        let gateway = setup.start();
        let text = format!("push with {} please", TOKEN.concat());
        let answer = call(gateway.addr, chat_call(&text).bytes());
        let seen = String::from_utf8(provider.take_received().remove(0).request.body).unwrap();
        assert!(seen.contains(&TOKEN.concat()), "{seen}");
        let span = gateway.span_of(&answer);
        assert_eq!(span["prompt"], "push with [SECRET:GITHUB_PAT] please");
        assert!(!span.to_string().contains(TOKEN[1]) && types(&span).contains(&"secret_leakage"), "{span}");
        let answer = call(kept.addr, chat_call(&text).bytes());
        assert_eq!(kept.span_of(&answer)["prompt"], text);
    }
}
