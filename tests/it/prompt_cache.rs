//! Promise: of each turn of a session it is on record how much of its prompt is byte for byte the one before, where the two part and
//! what stands there, what that cost, and whether the provider used what was equal; for bodies as coding agents send them and
//! for the usage that OpenAI, Anthropic and Gemini report.

use serde_json::{Value, json};

use crate::support::{Call, Driver, Gateway, Setup, Upstream, call, eventually};

/// A provider that reports what a header of the request says: tokens of the prompt, and those from its cache.
fn reporting() -> Upstream {
    Upstream::play(|peer| {
        while let Some(request) = peer.request() {
            let number = |name: &str| request.header(name).and_then(|text| text.parse::<u64>().ok());
            let (prompt, cached) =
                (number("x-test-prompt").unwrap_or(request.body.len() as u64 / 4), number("x-test-cached"));
            let body = answer(&request.path, prompt, cached).to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
            peer.say(head + &body);
        }
    })
}

fn answer(target: &str, prompt: u64, cached: Option<u64>) -> Value {
    if target.contains("generateContent") {
        let usage = json!({ "promptTokenCount": prompt, "candidatesTokenCount": 5, "totalTokenCount": prompt + 5, "cachedContentTokenCount": cached.unwrap_or(0) });
        return json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "text": "yes" }] }, "finishReason": "STOP" }], "usageMetadata": usage });
    }
    if target.contains("messages") {
        let cached = cached.unwrap_or(0);
        let usage = json!({ "input_tokens": prompt - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0, "output_tokens": 5 });
        return json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [{ "type": "text", "text": "yes" }], "stop_reason": "end_turn", "usage": usage });
    }
    if target.contains("responses") {
        let usage = json!({ "input_tokens": prompt, "input_tokens_details": { "cached_tokens": cached.unwrap_or(0) }, "output_tokens": 5, "total_tokens": prompt + 5 });
        let message =
            json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "yes" }] });
        return json!({ "id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5", "output": [message], "usage": usage });
    }
    let mut usage = json!({ "prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5 });
    if let Some(cached) = cached {
        usage["prompt_tokens_details"] = json!({ "cached_tokens": cached });
    }
    json!({ "id": "c", "object": "chat.completion", "model": "gpt-4o", "usage": usage,
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "yes" }, "finish_reason": "stop" }] })
}

fn started(more: &str) -> (Gateway, Upstream) {
    let provider = reporting();
    (Setup::new(Driver::Auto).upstream(provider.url()).unlimited().with(more).start(), provider)
}

/// The ways in which a prompt is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Chat,
    Claude,
    Codex,
    Gemini,
}

impl Form {
    const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Claude => "/v1/messages",
            Self::Codex => "/v1/responses",
            Self::Gemini => "/v1beta/models/gemini-2.5-pro:generateContent",
        }
    }
}

/// What a session's prompt is made of, whatever the form.
#[derive(Debug, Clone)]
struct Prompt {
    model: &'static str,
    tools: Vec<(String, String)>,
    system: String,
    /// Who speaks, and what.
    turns: Vec<(bool, String)>,
    choice: &'static str,
    /// The message that is marked to be cached up to.
    marked: usize,
}

impl Prompt {
    fn body(&self, form: Form) -> Value {
        let schema = json!({ "type": "object", "properties": { "path": { "type": "string", "description": "Where it lies." } } });
        let list = |of: &dyn Fn(&str, &str) -> Value| -> Vec<Value> {
            self.tools.iter().map(|(name, about)| of(name, about)).collect()
        };
        let turns = |of: &dyn Fn(usize, bool, &str) -> Value| -> Vec<Value> {
            self.turns.iter().enumerate().map(|(at, (by_user, text))| of(at, *by_user, text)).collect()
        };
        match form {
            Form::Chat => {
                let mut messages = vec![json!({ "role": "system", "content": self.system })];
                messages.extend(turns(
                    &|_, by_user, text| json!({ "role": if by_user { "user" } else { "assistant" }, "content": text }),
                ));
                let tools = list(
                    &|name, about| json!({ "type": "function", "function": { "name": name, "description": about, "parameters": schema } }),
                );
                json!({ "model": self.model, "messages": messages, "tools": tools, "tool_choice": self.choice })
            }
            Form::Claude => {
                let messages = turns(&|at, by_user, text| {
                    let mut block = json!({ "type": "text", "text": text });
                    if at == self.marked {
                        block["cache_control"] = json!({ "type": "ephemeral" });
                    }
                    json!({ "role": if by_user { "user" } else { "assistant" }, "content": [block] })
                });
                let system = json!([{ "type": "text", "text": self.system, "cache_control": { "type": "ephemeral" } }]);
                let tools = list(&|name, about| json!({ "name": name, "description": about, "input_schema": schema }));
                json!({ "model": self.model, "max_tokens": 100, "messages": messages, "system": system, "tools": tools, "tool_choice": { "type": self.choice } })
            }
            Form::Codex => {
                let input = turns(&|_, by_user, text| {
                    let kind = if by_user { "input_text" } else { "output_text" };
                    json!({ "type": "message", "role": if by_user { "user" } else { "assistant" }, "content": [{ "type": kind, "text": text }] })
                });
                let tools = list(
                    &|name, about| json!({ "type": "function", "name": name, "description": about, "strict": false, "parameters": schema }),
                );
                json!({ "model": self.model, "instructions": self.system, "input": input, "tools": tools, "tool_choice": self.choice, "store": false, "stream": false })
            }
            Form::Gemini => {
                let contents = turns(
                    &|_, by_user, text| json!({ "role": if by_user { "user" } else { "model" }, "parts": [{ "text": text }] }),
                );
                let tools = list(&|name, about| json!({ "name": name, "description": about, "parameters": schema }));
                json!({ "contents": contents, "systemInstruction": { "parts": [{ "text": self.system }] }, "tools": [{ "functionDeclarations": tools }] })
            }
        }
    }

    fn send(&self, gateway: &Gateway, form: Form, session: &str, more: &[(&str, &str)]) -> String {
        let mut request = Call::post(form.path(), self.body(form).to_string()).field("X-Service-Session-Id", session);
        for (name, value) in more {
            request = request.field(name, value);
        }
        let answer = call(gateway.addr, request.bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.trace_id()
    }
}

/// Numbers that look made by chance, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn text(&mut self, words: usize) -> String {
        const WORDS: [&str; 16] = [
            "river", "kettle", "maple", "copper", "quiet", "harbour", "seven", "lantern", "orchard", "gravel",
            "window", "thistle", "market", "saddle", "violet", "anchor",
        ];
        (0..words).map(|_| WORDS[self.below(WORDS.len())]).collect::<Vec<_>>().join(" ")
    }
}

fn composed(dice: &mut Dice) -> Prompt {
    let tools = (0..3 + dice.below(8)).map(|at| (format!("tool_{at}"), dice.text(40))).collect();
    let system = format!("You are careful. Today is 2026-11-27. {}", dice.text(200));
    let mut turns = Vec::new();
    for at in 0..5 + 2 * dice.below(3) {
        let words = 120 + dice.below(200);
        turns.push((at % 2 == 0, dice.text(words)));
    }
    Prompt { model: "gpt-4o", tools, system, turns, choice: "auto", marked: 0 }
}

/// Another letter in the place of one; the byte it stands at.
fn alter(text: &mut String, dice: &mut Dice) -> usize {
    let at = 20 + dice.below(text.len() - 20);
    let other = if text.as_bytes()[at] == b'x' { "y" } else { "x" };
    text.replace_range(at..=at, other);
    at
}

/// What is to be on record of the second turn: kind, place among its kind, change, and the byte where there is one.
type Truth = Option<(&'static str, usize, &'static str, Option<usize>)>;

/// Changes a prompt in one way, after a new turn was added.
fn broken(prompt: &mut Prompt, way: usize, form: Form, dice: &mut Dice) -> Truth {
    let (tools, turns) = (prompt.tools.len(), prompt.turns.len() - 2);
    match way {
        0 => None,
        1 => {
            let at = dice.below(tools);
            let byte = alter(&mut prompt.tools[at].1, dice);
            Some(("tool", at, "changed", Some(byte)))
        }
        2 => {
            let at = dice.below(tools);
            prompt.tools.remove(at);
            Some(("tool", at, "removed", None))
        }
        3 => {
            let at = dice.below(tools + 1);
            prompt.tools.insert(at, ("added".to_owned(), dice.text(40)));
            Some(("tool", at, "inserted", None))
        }
        4 => {
            let at = dice.below(tools - 1);
            prompt.tools.swap(at, at + 1);
            Some(("tool", at, "moved", None))
        }
        5 => {
            let at = prompt.system.find("2026-11-27").unwrap();
            prompt.system = prompt.system.replace("2026-11-27", "2026-11-28");
            Some(("system", 0, "changed", Some(at + 9)))
        }
        6 => {
            let at = dice.below(turns);
            let byte = alter(&mut prompt.turns[at].1, dice);
            Some(("message", at, "changed", Some(byte)))
        }
        7 => {
            prompt.turns.drain(..2);
            Some(("message", 0, "removed", None))
        }
        // The model of Gemini's calls stands in the path, and its choice elsewhere.
        8 if form != Form::Gemini => {
            prompt.model = "gpt-4o-mini";
            Some(("model", 0, "changed", None))
        }
        9 if form != Form::Gemini => {
            prompt.choice = "any";
            Some(("message_setting", 0, "changed", None))
        }
        _ => None,
    }
}

#[test]
fn breaks_of_200_composed_sessions_are_found_where_they_are() {
    let (gateway, _provider) = started("");
    let mut sessions = Vec::new();
    for number in 0..200 {
        let mut dice = Dice(number as u64 + 1);
        let form = [Form::Chat, Form::Claude, Form::Codex, Form::Gemini][number % 4];
        let mut prompt = composed(&mut dice);
        prompt.marked = prompt.turns.len() - 1;
        let session = format!("composed-{number}");
        prompt.send(&gateway, form, &session, &[]);
        prompt.turns.push((false, dice.text(60)));
        prompt.turns.push((true, dice.text(60)));
        prompt.marked = prompt.turns.len() - 1;
        let truth = broken(&mut prompt, number / 4 % 10, form, &mut dice);
        sessions.push((session, form, prompt, truth));
    }
    eventually("the first turns are on record", || {
        (gateway.json("/api/v1/spans?limit=1")["total"] == 200).then_some(())
    });
    for (session, form, prompt, _) in &sessions {
        prompt.send(&gateway, *form, session, &[]);
    }
    eventually("all turns are on record", || (gateway.json("/api/v1/spans?limit=1")["total"] == 400).then_some(()));
    let mut wrong = Vec::new();
    for (session, form, _, truth) in sessions {
        let page = gateway.json(&format!("/api/v1/spans?session_id={session}&limit=1&fields=prompt_cache,span_id"));
        let cache = &page["data"][0]["prompt_cache"];
        if !agrees(cache, truth) {
            wrong.push(format!("{session} {form:?}: {truth:?}\n{cache:#}"));
        }
    }
    assert!(wrong.is_empty(), "{} of 200:\n{}", wrong.len(), wrong.join("\n"));
    let broken = gateway.json("/api/v1/sessions?prompt_cache=broken&limit=500");
    let counted = gateway.metric("service_prompt_cache_calls_total", "state=\"broken\"");
    assert_eq!(broken["data"].as_array().unwrap().len() as f64, counted);
    assert_eq!(broken["total"].as_f64(), Some(counted));
    assert!(counted > 60.0, "{counted}");
    assert_eq!(gateway.metric("service_prompt_cache_calls_total", "state=\"first\""), 200.0);
}

fn agrees(cache: &Value, truth: Truth) -> bool {
    let (at, number) = (&cache["broke_at"], |name: &str| cache[name].as_u64().unwrap_or(u64::MAX));
    let Some((part, index, change, byte)) = truth else {
        return cache["state"] == "kept"
            && at.is_null()
            && number("equal_bytes") == number("previous_bytes")
            && cache["lost_tokens"] == 0;
    };
    let lost = number("lost_tokens");
    let is_broken =
        matches!((cache["state"].as_str().unwrap_or_default(), lost), ("broken", 1024..) | ("edited", 0..1024));
    let byte_fits = match (byte, at["byte"].as_u64()) {
        (Some(truth), Some(said)) => (said..said + 16).contains(&(truth as u64)),
        (None, _) => true,
        _ => false,
    };
    let date_fits = part != "system" || at["stands"] == "date";
    is_broken
        && at["part"] == part
        && at["index"] == index
        && at["change"] == change
        && byte_fits
        && date_fits
        && number("equal_bytes") < number("previous_bytes")
        && !at["says"].as_str().unwrap_or_default().is_empty()
}

/// The spans of a session, oldest first.
fn turns(gateway: &Gateway, session: &str, count: usize) -> Vec<Value> {
    let path = format!("/api/v1/spans?session_id={session}&limit=50&texts=false");
    let mut all = eventually("the turns are on record", || {
        let page = gateway.json(&path)["data"].as_array().unwrap().clone();
        (page.len() == count).then_some(page)
    });
    all.reverse();
    all
}

fn said(span: &Value) -> &str {
    span["prompt_cache"]["broke_at"]["says"].as_str().unwrap_or_default()
}

#[test]
fn turns_of_claude_code_break_where_its_reminder_changes_and_not_where_its_marks_move() {
    let (gateway, _provider) = started("");
    let mut dice = Dice(7);
    let reminder = |date: &str| {
        format!(
            "<system-reminder>\nAs you answer, use the following context:\n# currentDate\nToday's date is {date}.\n</system-reminder>"
        )
    };
    let tools: Vec<Value> = ["Bash", "Edit", "Glob", "Grep", "Read", "Task", "TodoWrite", "WebFetch", "Write"]
        .iter()
        .map(|name| json!({ "name": name, "description": dice.text(120), "input_schema": { "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": { "file_path": { "type": "string", "description": "The absolute path." }, "limit": { "type": "number" } }, "required": ["file_path"], "additionalProperties": false } }))
        .collect();
    let cached = json!({ "type": "ephemeral" });
    let system = json!([
        { "type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude.", "cache_control": cached },
        { "type": "text", "text": dice.text(600), "cache_control": cached },
    ]);
    let results: Vec<String> = (0..4).map(|_| dice.text(300)).collect();
    // As the client sends it: the last block of the last message is marked, and earlier ones are as they were without.
    let body = |date: &str, rounds: usize| {
        let mut messages = vec![
            json!({ "role": "user", "content": [{ "type": "text", "text": reminder(date) }, { "type": "text", "text": "Find out why the parser drops the last line." }] }),
        ];
        for (round, result) in results.iter().enumerate().take(rounds) {
            let id = format!("toolu_{round}");
            messages.push(json!({ "role": "assistant", "content": [{ "type": "text", "text": "I read the file." }, { "type": "tool_use", "id": id, "name": "Read", "input": { "file_path": format!("/src/parser_{round}.rs"), "limit": 100 } }] }));
            messages.push(
                json!({ "role": "user", "content": [{ "tool_use_id": id, "type": "tool_result", "content": result }] }),
            );
        }
        let last = messages.last_mut().unwrap()["content"].as_array_mut().unwrap().last_mut().unwrap();
        last["cache_control"] = json!({ "type": "ephemeral" });
        json!({ "model": "claude-sonnet-4-5", "max_tokens": 32000, "messages": messages, "system": system, "tools": tools, "metadata": { "user_id": "user_ab_account__session_7d1f5f9e-8c3b-4f5e-9a31-0b7a0c0d1e2f" }, "stream": false })
    };
    let helper = json!({ "model": "claude-haiku-4-5", "max_tokens": 512, "messages": [{ "role": "user", "content": dice.text(100) }], "system": [{ "type": "text", "text": dice.text(80) }], "metadata": { "user_id": "user_ab_account__session_7d1f5f9e-8c3b-4f5e-9a31-0b7a0c0d1e2f" } });
    let send = |body: &Value, prompt: u64, cached: u64| {
        let request = Call::post("/v1/messages?beta=true", body.to_string())
            .field("User-Agent", "claude-cli/2.0.1 (external, cli)");
        let request = request.field("X-Test-Prompt", &prompt.to_string()).field("X-Test-Cached", &cached.to_string());
        let answer = call(gateway.addr, request.bytes());
        gateway.span_of(&answer)
    };
    let first = send(&body("2026-11-27", 1), 20_000, 0);
    assert_eq!(first["prompt_cache"]["state"], "first");
    let second = send(&body("2026-11-27", 2), 22_000, 19_900);
    assert_eq!(
        (&second["prompt_cache"]["state"], &second["prompt_cache"]["provider_use"]),
        (&json!("kept"), &json!("used"))
    );
    assert_eq!(second["prompt_cache"]["previous_span_id"], first["span_id"]);
    let aside = send(&helper, 300, 0);
    assert_eq!(aside["prompt_cache"]["state"], "first", "{:#}", aside["prompt_cache"]);
    let third = send(&body("2026-11-27", 3), 24_000, 21_900);
    assert_eq!(third["prompt_cache"]["state"], "kept");
    assert_eq!(third["prompt_cache"]["previous_span_id"], second["span_id"]);
    let fourth = send(&body("2026-11-28", 4), 26_000, 9_000);
    let cache = &fourth["prompt_cache"];
    assert_eq!(
        (&cache["state"], &cache["broke_at"]["part"], &cache["broke_at"]["stands"]),
        (&json!("broken"), &json!("message"), &json!("date"))
    );
    assert_eq!(cache["broke_at"]["path"], "messages[0].content[0].text");
    assert!(cache["lost_tokens"].as_u64() > Some(5_000) && cache["lost_usd"].as_f64() > Some(0.0), "{cache:#}");
    assert!(said(&fourth).starts_with("message 1 (`user`) has changed at byte"), "{}", said(&fourth));
    let found = fourth["security_findings"].as_array().unwrap();
    assert!(found.iter().any(
        |it| it["finding_type"] == "prompt_cache_break" && it["location"] == "request.messages[0].content[0].text"
    ));
    assert_eq!(fourth["security_score"], 0, "it is no matter of security");
}

#[test]
fn turns_of_codex_are_kept_with_their_reasoning_and_break_at_a_tool() {
    let (gateway, _provider) = started("");
    let mut dice = Dice(11);
    let (instructions, about) = (dice.text(700), dice.text(120));
    let outputs: Vec<String> = (0..3).map(|_| dice.text(300)).collect();
    let body = |rounds: usize, shell: &str| {
        let mut input = vec![
            json!({ "type": "message", "role": "developer", "content": [{ "type": "input_text", "text": "<permissions instructions>sandboxed</permissions instructions>" }] }),
            json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "<environment_context>\n  <cwd>/src</cwd>\n</environment_context>" }] }),
            json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Fix the failing test." }] }),
        ];
        for (round, output) in outputs.iter().enumerate().take(rounds) {
            input.push(json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": "I look first." }], "content": null, "encrypted_content": format!("gAAAAAB{round}") }));
            input.push(json!({ "type": "function_call", "name": "shell", "arguments": format!("{{\"command\":[\"cat\",\"{round}.rs\"]}}"), "call_id": format!("call_{round}") }));
            input.push(json!({ "type": "function_call_output", "call_id": format!("call_{round}"), "output": output }));
        }
        let tools = json!([{ "type": "function", "name": "shell", "description": shell, "strict": false, "parameters": { "type": "object", "properties": { "command": { "type": "array", "items": { "type": "string" } } } } }, { "type": "web_search" }]);
        json!({ "model": "gpt-5", "instructions": instructions, "input": input, "tools": tools, "tool_choice": "auto", "parallel_tool_calls": false, "reasoning": { "effort": "medium" }, "store": false, "stream": false, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "11111111-2222-4333-8444-555555555555" })
    };
    let send = |body: Value, cached: &str| {
        let request = Call::post("/v1/responses", body.to_string())
            .field("X-Test-Prompt", "20000")
            .field("X-Test-Cached", cached);
        gateway.span_of(&call(gateway.addr, request.field("User-Agent", "codex_cli_rs/0.50.0").bytes()))
    };
    send(body(1, &about), "0");
    let second = send(body(2, &about), "15000");
    assert_eq!(
        (&second["prompt_cache"]["state"], &second["prompt_cache"]["provider_use"]),
        (&json!("kept"), &json!("used")),
        "{:#}",
        second["prompt_cache"]
    );
    let third = send(body(3, &format!("{about} Mind the sandbox.")), "0");
    let cache = &third["prompt_cache"];
    assert_eq!(
        (&cache["state"], &cache["broke_at"]["part"], &cache["broke_at"]["name"]),
        (&json!("broken"), &json!("tool"), &json!("shell"))
    );
    assert!(said(&third).starts_with("tool 1 (`shell`) has changed in its `description` at byte"), "{}", said(&third));
}

/// The use that is on record of a second turn which has the first as its beginning.
fn used(gateway: &Gateway, form: Form, session: &str, tokens: [&str; 2], marked: bool) -> Value {
    let mut prompt = composed(&mut Dice(3));
    let fields = |cached| [("X-Test-Prompt", tokens[0]), ("X-Test-Cached", cached)];
    let send = |prompt: &Prompt, cached| {
        let mut body = prompt.body(form);
        if !marked && form == Form::Claude {
            body["system"] = json!(prompt.system);
        }
        let mut request = Call::post(form.path(), body.to_string()).field("X-Service-Session-Id", session);
        for (name, value) in fields(cached) {
            request = request.field(name, value);
        }
        call(gateway.addr, request.bytes());
    };
    prompt.marked = usize::MAX;
    send(&prompt, "0");
    turns(gateway, session, 1);
    prompt.turns.push((true, "And now?".to_owned()));
    send(&prompt, tokens[1]);
    turns(gateway, session, 2).remove(1)
}

#[test]
fn a_provider_that_does_not_use_an_equal_prompt_is_named() {
    let (gateway, _provider) = started("");
    for (form, name) in
        [(Form::Chat, "openai"), (Form::Codex, "openai"), (Form::Claude, "anthropic"), (Form::Gemini, "gemini")]
    {
        let what = |session: &str, tokens, marked| {
            let span = used(&gateway, form, &format!("{form:?}-{session}"), tokens, marked);
            (span["prompt_cache"]["provider_use"].clone(), span)
        };
        assert_eq!(what("used", ["20000", "19000"], true).0, "used", "{form:?}");
        assert_eq!(what("partly", ["20000", "2048"], true).0, "partly_used", "{form:?}");
        assert_eq!(what("short", ["900", "0"], true).0, "too_short", "{form:?}");
        let (not_used, span) = what("not", ["20000", "0"], true);
        assert_eq!((&not_used, &span["prompt_cache"]["state"]), (&json!("not_used"), &json!("kept")), "{form:?}");
        let found = span["security_findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["finding_type"] == "prompt_cache_unused")
            .unwrap();
        assert_eq!(found["metadata"]["provider"], name);
        assert!(found["description"].as_str().unwrap().starts_with(name), "{found}");
    }
    assert_eq!(
        used(&gateway, Form::Claude, "unasked", ["20000", "0"], false)["prompt_cache"]["provider_use"],
        "not_asked"
    );
    let listed = gateway.json("/api/v1/sessions?prompt_cache=unused");
    assert_eq!(listed["total"], 4, "{listed:#}");
    assert_eq!(listed["data"][0]["prompt_cache"]["unused_calls"], 1);
    assert_eq!(gateway.metric("service_prompt_cache_unused_total", ""), 4.0);
}

#[test]
fn a_break_is_told_by_a_rule_of_the_router() {
    let receiver = Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let rule = "action_router: {enabled: true, default_actions: [], rules: [{finding_type: prompt_cache_break, actions: [alert]}]}";
    let (gateway, _provider) = started(&format!(
        "alerts: {{enabled: true, channels: [{{type: webhook, url: '{}/hook'}}]}}\n{rule}",
        receiver.url()
    ));
    let mut prompt = composed(&mut Dice(5));
    prompt.send(&gateway, Form::Chat, "told", &[("X-Test-Prompt", "30000")]);
    turns(&gateway, "told", 1);
    prompt.system = prompt.system.replace("2026-11-27", "2026-11-28");
    prompt.turns.push((true, "And now?".to_owned()));
    prompt.send(&gateway, Form::Chat, "told", &[("X-Test-Prompt", "30000")]);
    let told = eventually("the receiver is told", || {
        let bodies =
            receiver.requests().into_iter().map(|request| serde_json::from_slice::<Value>(&request.body).unwrap());
        bodies.into_iter().find(|body| body["finding_type"] == "prompt_cache_break")
    });
    assert!(told.to_string().contains("a date stands"), "{told:#}");
}

#[test]
fn calls_without_a_session_refused_ones_and_those_of_another_tenant_are_compared_with_nothing() {
    let (gateway, _provider) = started("");
    let prompt = composed(&mut Dice(9));
    let bare = call(gateway.addr, Call::post(Form::Chat.path(), prompt.body(Form::Chat).to_string()).bytes());
    assert!(gateway.span_of(&bare).get("prompt_cache").is_none());
    let send = |tenant: &str| {
        let request = Call::post(Form::Chat.path(), prompt.body(Form::Chat).to_string())
            .field("X-Service-Session-Id", "one-name");
        let answer = call(gateway.addr, request.field("X-Service-Tenant-ID", tenant).bytes());
        gateway.trace_for(&answer.trace_id(), &format!("X-Service-Tenant-ID: {tenant}\r\n"))["spans"][0]["prompt_cache"]
            ["state"]
            .clone()
    };
    let (mine, other) = ("7d1f5f9e-8c3b-4f5e-9a31-0b7a0c0d1e2f", "11111111-2222-4333-8444-555555555555");
    assert_eq!([send(mine), send(mine), send(other)], [json!("first"), json!("kept"), json!("first")]);
}
