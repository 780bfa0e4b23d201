//! Promise: `weir export` writes the record as lines or as a table, whole or not at all; `weir reconcile` names each difference between a
//! provider's bill and the record, and the differences add up.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Call, Driver, Gateway, Peer, Setup, Upstream, call, chat_call, eventually, weir};

/// Exit code and both outputs.
fn said(args: &[&str]) -> (i32, String, String) {
    let output = weir(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// A provider that counts its answers and says of each which it is.
fn model() -> Upstream {
    let number = std::sync::atomic::AtomicUsize::new(0);
    Upstream::play(move |peer: &mut Peer| {
        while let Some(request) = peer.request() {
            let asked: Value = serde_json::from_slice(&request.body).unwrap();
            // Providers say which release answered.
            let model = if asked["model"] == "gpt-4o" { json!("gpt-4o-2024-08-06") } else { asked["model"].clone() };
            let number = number.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let body = json!({
                "id": format!("chatcmpl-{number}"), "object": "chat.completion", "created": 1, "model": model,
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}}],
                "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
            })
            .to_string();
            peer.say(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
        }
    })
}

fn recorded(provider: &Upstream, models: &[&str]) -> (Gateway, Vec<Value>) {
    let gateway = Setup::new(Driver::Auto).upstream(provider.url()).unlimited().start();
    for model in models {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "Is it?"}]});
        assert_eq!(call(gateway.addr, Call::post("/v1/chat/completions", body.to_string()).bytes()).status, 200);
    }
    let all = eventually("all are stored", || {
        let spans = gateway.json("/api/v1/spans")["data"].as_array().unwrap().clone();
        (spans.len() == models.len()).then_some(spans)
    });
    // The newest first.
    (gateway, all.into_iter().rev().collect())
}

fn reconcile(gateway: &Gateway, files: &[&Path], more: &[&str]) -> (i32, Value) {
    let database = gateway.folder().join("weir.db");
    let files: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let args = [&["reconcile", "--json", "--database", database.to_str().unwrap()], more, &files].concat();
    let (code, out, err) = said(&args);
    assert_eq!(err, "", "{args:?}");
    (code, serde_json::from_str(&out).unwrap())
}

#[test]
fn a_bill_of_single_calls_is_held_against_the_record_by_their_ids() {
    let provider = model();
    let (gateway, spans) = recorded(&provider, &["gpt-4o", "gpt-4o", "gpt-4o", "model-without-a-price"]);
    let cost = spans[0]["estimated_cost_usd"].as_f64().unwrap();
    assert!(cost > 0.0 && spans[3]["estimated_cost_usd"].is_null());
    let at = spans[0]["start_time"].as_str().unwrap();
    let file = gateway.folder().join("bill.csv");
    let row = |id: &str, input: u64, cost: f64| format!("{id},{at},gpt-4o-2024-08-06,{input},100,{cost}\n");
    let head = "generation_id,created_at,model_permaslug,tokens_prompt,tokens_completion,cost_total\n";
    let rows = [
        row("chatcmpl-0", 1_000, cost),
        row("chatcmpl-1", 1_000, cost * 2.0),
        row("chatcmpl-3", 1_000, 0.5),
        row("chatcmpl-elsewhere", 700, 0.25),
    ];
    std::fs::write(&file, format!("{head}{}", rows.concat())).unwrap();
    let (code, found) = reconcile(&gateway, &[&file], &[]);
    let residuals = found["residuals"].as_array().unwrap();
    let by_reason = |reason: &str| {
        residuals.iter().find(|one| one["reason"] == reason).unwrap_or_else(|| panic!("{reason}: {found:#}"))
    };
    assert_eq!((code, residuals.len(), &found["agreed"]), (1, 4, &json!(1)), "{found:#}");
    assert_eq!(by_reason("price")["span_id"], spans[1]["span_id"]);
    assert!((by_reason("price")["usd"].as_f64().unwrap() - cost).abs() < 1e-8);
    assert_eq!(by_reason("not_billed")["response_id"], "chatcmpl-2");
    assert_eq!((&by_reason("no_price")["usd"], &by_reason("no_price")["input_tokens"]), (&json!(0.5), &json!(0)));
    assert_eq!((&by_reason("other_key")["usd"], &by_reason("other_key")["input_tokens"]), (&json!(0.25), &json!(700)));
    let sum: f64 = residuals.iter().map(|one| one["usd"].as_f64().unwrap()).sum();
    let whole = found["billed"]["usd"].as_f64().unwrap() - found["recorded"]["usd"].as_f64().unwrap();
    assert!((sum - whole).abs() < 1e-9, "{sum} of {whole}");
    let database = gateway.folder().join("weir.db");
    let (code, table, _) = said(&["reconcile", "--database", database.to_str().unwrap(), file.to_str().unwrap()]);
    assert_eq!(code, 1);
    for words in ["billed", "recorded", "no_price", "another key, or beside it", "1 of 4 calls or buckets agree"] {
        assert!(table.contains(words), "{words}: {table}");
    }
}

#[test]
fn usage_and_costs_by_the_day_are_held_against_the_record_by_model() {
    let provider = model();
    let (gateway, spans) = recorded(&provider, &["gpt-4o", "gpt-4o", "gpt-4o-2024-08-06"]);
    let cost: f64 = spans.iter().map(|span| span["estimated_cost_usd"].as_f64().unwrap()).sum();
    let at = spans[0]["start_time"].as_str().unwrap();
    let seconds =
        time::OffsetDateTime::parse(at, &time::format_description::well_known::Rfc3339).unwrap().unix_timestamp();
    let (from, to) = (seconds - seconds.rem_euclid(86_400), seconds - seconds.rem_euclid(86_400) + 86_400);
    let write = |name: &str, results: Value| {
        let page = json!({"object": "page", "data": [{"object": "bucket", "start_time": from, "end_time": to, "results": results}]});
        let file = gateway.folder().join(name);
        std::fs::write(&file, page.to_string()).unwrap();
        file
    };
    let usage = |calls: u64, input: u64| json!([{"model": "gpt-4o-2024-08-06", "num_model_requests": calls, "input_tokens": input, "output_tokens": 300}]);
    let same = write("usage.json", usage(3, 3_000));
    let costs = write(
        "costs.json",
        json!([
            {"amount": {"value": cost / 2.0, "currency": "usd"}, "line_item": "gpt-4o-2024-08-06, input"},
            {"amount": {"value": cost / 2.0, "currency": "usd"}, "line_item": "gpt-4o-2024-08-06, output"},
        ]),
    );
    let (code, found) = reconcile(&gateway, &[&same, &costs], &["--provider", "openai"]);
    assert_eq!((code, &found["agreed"], &found["compared"]), (0, &json!(1), &json!(1)), "{found:#}");
    assert_eq!(found["billed"]["calls"], 3);
    let more = write("more.json", usage(5, 4_200));
    let (code, found) = reconcile(&gateway, &[&more], &[]);
    assert_eq!(code, 1);
    let [one] = found["residuals"].as_array().unwrap().as_slice() else { panic!("{found:#}") };
    assert_eq!((&one["reason"], &one["calls"], &one["input_tokens"]), (&json!("other_key"), &json!(2), &json!(1_200)));
    let bad = gateway.folder().join("bad.csv");
    std::fs::write(&bad, "model,cost\nx,1\n").unwrap();
    let (code, _, err) = said(&["reconcile", bad.to_str().unwrap()]);
    assert!(code == 2 && err.contains("no row has a time"), "{code} {err}");
}

#[test]
fn the_record_is_written_as_lines_or_as_a_table_into_a_file_that_is_whole() {
    let provider = crate::support::provider();
    let gateway = Setup::new(Driver::Auto).upstream(provider.url()).unlimited().start();
    for name in ["=HYPERLINK(1)", "plain, with a comma"] {
        let request = chat_call("Hello").field("X-Service-Agent-ID", name);
        assert_eq!(call(gateway.addr, request.bytes()).status, 200);
    }
    eventually("both are stored", || (gateway.json("/api/v1/spans")["total"] == 2).then_some(()));
    let (database, file) = (gateway.folder().join("weir.db"), gateway.folder().join("calls.csv"));
    let of = ["export", "--database", database.to_str().unwrap()];
    let (code, out, err) = said(&[&of[..], &["--csv", "--output", file.to_str().unwrap()]].concat());
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    let table = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!((lines.len(), lines[0].starts_with("trace_id,span_id,")), (3, true), "{table}");
    assert!(table.contains(",'=HYPERLINK(1),") && table.contains(",\"plain, with a comma\","), "{table}");
    assert!(!gateway.folder().join("calls.csv.part").exists());
    let (code, out, _) = said(&[&of[..], &["--spans"]].concat());
    let spans: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, spans.len()), (0, 2));
    let (code, _, err) = said(&[&of[..], &["--output", "/nowhere/at/all"]].concat());
    assert!(code == 2 && err.contains("it cannot be written"), "{code} {err}");
}
