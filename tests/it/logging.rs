//! Promise: a log line is one object, says nothing a caller confided, and the banner says what is on and off.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    AUTH, Call, Client, ClosedPort, Driver, Setup, Upstream, call, chat_body, chat_call, eventually, on_both_drivers,
    provider,
};

const CANARY_TEXT: &str = "the-canary-sentence-of-this-test";
const CANARY_KEY: &str = "sk-canary-0123456789abcdef";

/// Log lines as objects.
fn objects(lines: &[String]) -> Vec<Value> {
    let object = |line: &String| serde_json::from_str(line).unwrap_or_else(|_| panic!("not one object: {line}"));
    lines.iter().map(object).collect()
}

on_both_drivers! {
    fn no_prompt_and_no_credential_is_logged_at_info(driver) {
        let provider = provider();
        // Every exchange has a line.
        let gateway = Setup::new(driver).upstream(provider.url()).log_level("debug").with("logging: {access: json}").start();
        let body = chat_body(CANARY_TEXT).to_string();
        let fields = [
            ("authorization", format!("Bearer {CANARY_KEY}")),
            ("x-api-key", CANARY_KEY.to_owned()),
            ("x-service-token", CANARY_KEY.to_owned()),
        ];
        for (at, (field, value)) in fields.iter().enumerate() {
            let path = format!("/v1/chat/completions?marker={at}&key={CANARY_KEY}");
            call(gateway.addr, Call::post(&path, body.clone()).field(field, value).bytes());
        }
        call(gateway.addr, Call::post("/v1/chat/completions", "{broken").field("authorization", CANARY_KEY).bytes());
        call(gateway.addr, Call::get("/seen/in/the/log?canary=1").field("x-fake-status", "500").bytes());
        call(gateway.addr, format!("GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\nAuthorization: {CANARY_KEY}\r\n\r\n"));
        // The log does speak of requests, so it could have said more.
        let told = |lines: &[String]| lines.iter().filter(|line| line.contains("\"method\":\"")).count();
        eventually("every exchange is logged", || (told(&gateway.log()) >= 6 && gateway.access_log().len() >= 6).then_some(()));
        assert!(gateway.log().iter().any(|line| line.contains("/seen/in/the/log")));
        let lines = [gateway.log(), gateway.access_log()].concat();
        for (line, object) in lines.iter().zip(objects(&lines)) {
            assert!(!line.contains("canary") && !line.contains("marker"), "{line}");
            assert!(object["timestamp"].is_string(), "{line}");
        }
        for object in objects(&gateway.log()) {
            for key in ["level", "message", "target"] {
                assert!(object[key].is_string(), "{key}: {object}");
            }
        }
    }

    fn what_fails_or_is_refused_is_one_line_and_what_is_well_is_none(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let token = gateway.token(&tenant);
        let line = |what: &str| {
            let found = gateway.logged(what, |line| line.contains(what) && line.contains("\"exchange "));
            serde_json::from_str::<Value>(&found).unwrap()
        };
        let say = |token: &str, status: &str| {
            let request = Call::post("/v1/chat/completions?secret=1", chat_body("hello").to_string());
            call(gateway.addr, request.field("x-service-token", token).field("x-fake-status", status).bytes())
        };
        assert_eq!(say(&token, "200").status, 200);
        let failed = say(&token, "503");
        assert_eq!(failed.status, 503);
        let told = line("\"status\":503");
        assert_eq!((&told["level"], &told["message"]), (&json!("WARN"), &json!("exchange failed")));
        assert_eq!((&told["status"], &told["reason"], &told["by"]), (&json!(503), &json!("provider_status"), &json!("provider")));
        assert_eq!((&told["method"], &told["path"]), (&json!("POST"), &json!("/v1/chat/completions")));
        assert_eq!((&told["tenant"], &told["trace_id"]), (&json!(tenant), &json!(failed.header("x-service-trace-id").unwrap())));
        assert!(told["duration_ms"].is_number());

        assert_eq!(say("svt_nobody", "200").status, 401);
        let told = line("\"status\":401");
        assert_eq!((&told["level"], &told["message"]), (&json!("INFO"), &json!("exchange refused")));
        assert_eq!((&told["status"], &told["reason"], &told["by"]), (&json!(401), &json!("authentication_error"), &json!("weir")));

        assert_eq!(gateway.admin(Call::get("/api/v1/traces/no-uuid")).status, 400);
        let told = line("/api/v1/traces/no-uuid");
        assert_eq!((&told["level"], &told["reason"]), (&json!("INFO"), &json!("invalid_request")));

        let told = objects(&gateway.log()).into_iter().filter(|line| line["method"].is_string()).count();
        assert_eq!(told, 3, "a good exchange has no line at info");
    }

    fn a_provider_that_is_down_fills_no_log(driver) {
        let nobody = ClosedPort::new();
        let gateway = Setup::new(driver).upstream(format!("http://{}", nobody.addr)).unlimited().start();
        for _ in 0..100 {
            assert_eq!(call(gateway.addr, chat_call("hello").bytes()).status, 502);
        }
        let (written, summed) = eventually("all are accounted for", || {
            let lines = objects(&gateway.log());
            let of = |message: &str| lines.iter().filter(|line| line["message"].as_str() == Some(message)).count() as u64;
            let left: u64 = lines.iter().filter_map(|line| line["lines"].as_u64()).sum();
            (of("exchange failed") + left == 100).then_some((of("exchange failed"), left))
        });
        assert!(written >= 10 && summed > 0 || written == 100, "{written} and {summed} more");
        let line = gateway.logged("the reason", |line| line.contains("exchange failed"));
        assert!(line.contains("\"reason\":\"upstream_connect_error\"") && line.contains("refused"), "{line}");
    }

    fn the_access_log_has_a_line_for_every_exchange(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).with("logging: {access: json}").start();
        let answer = call(gateway.addr, Call::post("/v1/chat/completions?a=b", chat_body("hello").to_string()).bytes());
        call(gateway.addr, Call::get("/livez").bytes());
        call(gateway.addr, "nonsense\r\n\r\n");
        let lines = eventually("three lines", || Some(objects(&gateway.access_log())).filter(|lines| lines.len() == 3));
        let of = |path: &str| lines.iter().find(|line| line["path"] == path).unwrap();
        let chat = of("/v1/chat/completions");
        assert_eq!((&chat["status"], &chat["method"], &chat["by"]), (&json!(200), &json!("POST"), &json!("provider")));
        assert_eq!(chat["bytes"], json!(answer.body.len()));
        assert_eq!(chat["trace_id"], json!(answer.header("x-service-trace-id").unwrap()));
        assert_eq!(chat["model"], gateway.trace_of(&answer)["spans"][0]["model"]);
        let (total, upstream) = (chat["duration_ms"].as_f64().unwrap(), chat["upstream_ms"].as_f64().unwrap());
        assert!(0.0 < upstream && upstream <= total, "{chat}");
        assert_eq!((&of("/livez")["status"], &of("/livez")["by"]), (&json!(200), &json!("weir")));
        assert_eq!((&of("")["status"], &of("")["reason"]), (&json!(400), &json!("invalid_request")));
    }

    // Whoever reads `overhead_us` or `upstream_ms` looks for who is slow.
    fn waiting_for_either_side_is_no_time_of_ours(driver) {
        let pause = Duration::from_millis(800);
        let upstream = Upstream::play(move |peer| {
            // Takes its time before it reads the body; of a tunnel, before it ends it.
            std::thread::sleep(pause);
            let Some(request) = peer.request() else { return };
            if request.header("upgrade").is_some() {
                let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
                peer.say(format!("{switched}Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"));
                return std::thread::sleep(pause);
            }
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
        });
        // Bodies are relayed as they come, and held until they are whole.
        for held in ["", "enable_streaming: false"] {
            let gateway = Setup::new(driver).upstream(upstream.url()).with("logging: {access: json}").with(held).start();
            let large = Call::post("/v1/files", vec![b'x'; 16 << 20]);
            assert_eq!(call(gateway.addr, large.bytes()).status, 200);
            let mut client = Client::connect(gateway.addr);
            client.say("POST /v1/files HTTP/1.1\r\nHost: weir\r\nContent-Length: 9\r\n\r\nhalf");
            std::thread::sleep(pause);
            drop(client);
            let handshake = "GET /v1/realtime HTTP/1.1\r\nHost: weir\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
            let mut tunnel = Client::connect(gateway.addr);
            tunnel.say(handshake);
            tunnel.rest();
            gateway.newest_span_of(3);
            let spans = gateway.json("/api/v1/spans?limit=3");
            for span in spans["data"].as_array().unwrap() {
                let (took, ours) = (span["duration_ms"].as_f64().unwrap(), span["overhead_us"].as_f64().unwrap() / 1e3);
                assert!(took >= 700.0 && ours < took / 2.0, "{held}: {ours} of {took} ms are ours: {span}");
            }
            let lines = eventually("three lines", || Some(objects(&gateway.access_log())).filter(|lines| {
                lines.iter().filter(|line| line["by"] == "provider").count() == 3
            }));
            let waited = |status: u16| {
                // Each core writes its lines when it likes: those of the questions above may stand before.
                let line = lines.iter().find(|line| line["status"] == status && line["by"] == "provider").unwrap();
                (line["upstream_ms"].as_f64().unwrap(), line["duration_ms"].as_f64().unwrap())
            };
            for (upstream_ms, took) in [waited(200), waited(101)] {
                assert!(upstream_ms > took / 2.0 && upstream_ms <= took, "{held}: {upstream_ms} of {took}");
            }
        }
    }
}

#[test]
fn the_access_log_is_off_unless_asked_for_and_text_where_that_is_asked_for() {
    let provider = provider();
    let silent = Setup::new(Driver::Auto).upstream(provider.url()).start();
    let told = Setup::new(Driver::Auto).upstream(provider.url()).env("SERVICE_LOG_ACCESS", "text").start();
    for mut gateway in [silent, told] {
        assert_eq!(call(gateway.addr, chat_call("hello").bytes()).status, 200);
        gateway.terminate();
        assert!(gateway.wait().success());
        let lines = gateway.access_log();
        let Some(line) = lines.first() else { continue };
        assert_eq!(lines.len(), 1);
        assert!(
            line.contains(" 200 POST /v1/chat/completions bytes=") && line.contains(" by=provider reason=- "),
            "{line}"
        );
    }
}

#[test]
fn the_banner_says_what_is_on_off_and_failing_open() {
    let gateway = Setup::new(Driver::Auto).with("enable_streaming: false").unlimited().start();
    let line = gateway.logged("the features", |line| line.contains("\"message\":\"features\""));
    let object: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&object["streaming"], &object["rate_limit"]), (&Value::from("off"), &Value::from("off")));
    assert_eq!((&object["analysis"], &object["authentication"]), (&Value::from("on"), &Value::from("off")));
    assert!(object["fails_open"].as_str().is_some_and(|text| text.contains("analysis") && text.contains("storage")));
    assert_eq!(object["classifier"], "on");
    let without = Setup::new(Driver::Auto).with("security_analysis: {ml_enabled: false}").start();
    let line = without.logged("the features", |line| line.contains("\"message\":\"features\""));
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["classifier"], "off");
}

#[test]
fn levels_are_per_module() {
    let gateway = Setup::new(Driver::Auto).env("RUST_LOG", "warn,weir::app::cli=info").start();
    call(gateway.addr, "nonsense\r\n\r\n");
    call(gateway.addr, chat_call("hello").bytes());
    gateway.logged("a failure", |line| line.contains("\"WARN\"") && line.contains("exchange failed"));
    let lines = objects(&gateway.log());
    let told: Vec<_> = lines.iter().filter(|line| line["level"] == "INFO").map(|line| &line["target"]).collect();
    assert!(!told.is_empty() && told.iter().all(|target| **target == "weir::app::cli::serve"), "{lines:?}");
    // Without the directive others speak, too.
    let all = Setup::new(Driver::Auto).start();
    let lines = objects(&all.log());
    let is_of_others = |line: &&Value| line["level"] == "INFO" && line["target"] != "weir::app::cli::serve";
    assert!(lines.iter().any(|line| is_of_others(&line)), "{lines:?}");
}
