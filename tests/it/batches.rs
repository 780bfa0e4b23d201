//! Promise: the calls of a batch are charged once, when their results are fetched first, whoever fetches them, at whichever gateway on the
//! store, over stops and kills: in the records and in what was spent, to the nanodollar.

use serde_json::{Value, json};

use crate::support::{Call, Driver, Gateway, Setup, Upstream, call, eventually};

/// One result costs 1000 x 0.625 + 100 x 5 millionths of a dollar.
const NANO: u64 = 1000 * 625 + 100 * 5000;

pub(crate) const CAPS: &str =
    "cost_caps: {enabled: true, default_budget_caps: [{window: monthly, hard_limit_usd: 100}]}\n";

/// A provider whose files are results: as many as the last character of the file's name says.
pub(crate) fn provider() -> Upstream {
    Upstream::play(|peer| {
        while let Some(request) = peer.request() {
            let many = request.path.trim_end_matches("/content").chars().last().and_then(|last| last.to_digit(10));
            let usage = json!({ "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 });
            let body = json!({ "id": "x", "object": "chat.completion", "model": "gpt-5", "usage": usage,
                "choices": [{ "index": 0, "message": { "role": "assistant", "content": "ok" }, "finish_reason": "stop" }] });
            let line = |at| json!({ "id": "r", "custom_id": at, "response": { "status_code": 200, "body": body }, "error": null });
            let lines: String = (0..many.unwrap_or(1)).map(|at| format!("{}\n", line(at.to_string()))).collect();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n";
            peer.say(format!("{head}Content-Length: {}\r\n\r\n{lines}", lines.len()));
        }
    })
}

fn keyed(call: Call, key: Option<&str>) -> Call {
    match key {
        Some(key) => call.key(key),
        None => call,
    }
}

fn fetch(gateway: &Gateway, key: Option<&str>, file: &str) {
    let asked = keyed(Call::get(&format!("/v1/files/{file}/content")), key).field("X-Service-Agent-ID", "ada");
    let answer = call(gateway.addr, asked.bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Nanodollars in the records of all fetches, once there are so many.
fn recorded(gateway: &Gateway, key: Option<&str>, fetches: usize) -> (u64, usize) {
    let spans = eventually(&format!("{fetches} fetches are recorded"), || {
        let page = call(gateway.addr, keyed(Call::get("/api/v1/spans?limit=100"), key).bytes()).json();
        let spans: Vec<Value> = page["data"].as_array()?.clone();
        (spans.len() >= fetches).then_some(spans)
    });
    assert_eq!(spans.len(), fetches);
    let cost = |span: &Value| (span["estimated_cost_usd"].as_f64().unwrap_or(0.0) * 1e9).round() as u64;
    let before = |span: &&Value| span["tags"]["batch"] == "charged_before";
    (spans.iter().map(cost).sum(), spans.iter().filter(before).count())
}

fn knows(gateway: &Gateway, key: Option<&str>, nano_usd: u64) {
    eventually(&format!("it knows of {nano_usd} nanodollars"), || {
        let costs = call(gateway.addr, keyed(Call::get("/api/v1/costs/current?agent_id=ada"), key).bytes()).json();
        let windows = costs["windows"].as_array()?;
        let monthly = windows.iter().find(|window| window["window"] == "monthly")?;
        let spent = (monthly["current_spend_usd"].as_f64()? * 1e9).round() as u64;
        assert!(spent <= nano_usd, "{costs}");
        (spent == nano_usd).then_some(())
    });
}

/// Two gateways on one store fetch the same results, one of them is killed in between.
pub(crate) fn are_charged_once(mut pair: [Gateway; 2], key: Option<&str>) -> [Gateway; 2] {
    let [one, two] = &mut pair;
    fetch(one, key, "file-2");
    assert_eq!(recorded(one, key, 1), (2 * NANO, 0));
    // What was spent is kept with the charge, not a second later.
    one.kill();
    fetch(two, key, "file-2");
    assert_eq!(recorded(two, key, 2), (2 * NANO, 1));
    knows(two, key, 2 * NANO);
    one.restart();
    fetch(one, key, "file-2");
    assert_eq!(recorded(one, key, 3), (2 * NANO, 2));
    // Both at the same moment, by several clients of each.
    std::thread::scope(|scope| {
        for gateway in [&*one, &*two, &*one, &*two] {
            scope.spawn(move || fetch(gateway, key, "file-3"));
        }
    });
    assert_eq!(recorded(one, key, 7), (5 * NANO, 5));
    one.terminate();
    one.wait();
    one.restart();
    fetch(one, key, "file-3");
    // Spelled otherwise, they are the same.
    fetch(two, key, "%66ile-2");
    assert_eq!(recorded(one, key, 9), (5 * NANO, 7));
    for gateway in [&*one, &*two] {
        knows(gateway, key, 5 * NANO);
    }
    pair
}

#[test]
fn results_are_charged_once_by_all_gateways_on_a_file_over_stops_and_kills() {
    let (upstream, folder) = (provider(), tempfile::TempDir::new().unwrap());
    let database = folder.path().join("weir.db");
    let storage = format!("{{database_path: '{}', shared_file: true}}", database.display());
    let on = || Setup::new(Driver::Auto).upstream(upstream.url()).storage(&storage).unlimited().with(CAPS).start();
    are_charged_once([on(), on()], None);
}
