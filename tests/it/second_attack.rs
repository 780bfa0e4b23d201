//! Promise: what a second look by fresh eyes named and did not try holds: fields that steer the gateway count once and go no further,
//! however they are written, and compressed messages of a WebSocket are held to what others are.

use flate2::{Compress, Compression, FlushCompress};
use serde_json::{Value, json};

use crate::support::{AUTH, Call, Client, Setup, Upstream, call, chat_body, eventually, on_both_drivers};
use crate::turns::{Heard, INJECTION, SWITCHED, create, deflated, frame, handshake, messages, start};

/// A provider that agrees on compression and answers nothing.
fn agreeing() -> Upstream {
    Upstream::play(|peer| {
        peer.request();
        peer.say(format!("{SWITCHED}Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"));
        let mut heard = Heard { bytes: Vec::new() };
        while heard.next(peer).is_some() {}
    })
}

/// A message whose last block of compression ends before its bytes do, and more of it behind.
fn with_more_behind_its_last_block(first: &Value, then: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * 1024);
    for (message, flush) in [(first, FlushCompress::Finish), (then, FlushCompress::Sync)] {
        let mut piece = Vec::with_capacity(32 * 1024);
        Compress::new(Compression::default(), false)
            .compress_vec(message.to_string().as_bytes(), &mut piece, flush)
            .unwrap();
        out.extend(piece);
    }
    out.truncate(out.len() - 4);
    frame(0xc1, &out, true)
}

on_both_drivers! {
    fn a_compressed_message_is_held_to_what_others_are(driver) {
        let mut window = Compress::new(Compression::default(), false);
        let attack = deflated(&mut window, &create("a", INJECTION), true);
        let mut window = Compress::new(Compression::default(), false);
        let bomb = deflated(&mut window, &create("a", &"0".repeat(32 << 20)), true);
        let hidden = with_more_behind_its_last_block(&json!({ "type": "response.cancel" }), &create("a", INJECTION));
        let block = "enforcement: {mode: block}\n";
        let budget = "cost_caps: {enabled: true, default_budget_caps: [{window: daily, hard_limit_usd: 5}]}\n";
        let redact = "pii: {action: redact_silent}\n";
        for (name, settings, message) in [
            ("attack", block, &attack), ("bomb", block, &bomb), ("hidden", block, &hidden),
            ("bomb", budget, &bomb), ("hidden", budget, &hidden),
            ("bomb", redact, &bomb), ("hidden", redact, &hidden),
        ] {
            let upstream = agreeing();
            let gateway = start(driver, &upstream, settings);
            let mut client = Client::connect(gateway.addr);
            client.say(handshake("/v1/responses", "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"));
            client.read_until(|bytes| bytes.windows(4).any(|piece| piece == b"\r\n\r\n"));
            client.try_say(message);
            let got = client.read_until(|bytes| messages(bytes).iter().any(|message| message["opcode"] == 8));
            assert!(!got.is_empty(), "{name} under {settings}");
            let offered = upstream.requests().first().and_then(|request| request.header("sec-websocket-extensions").map(str::to_owned));
            assert!(settings != block || offered.is_none(), "{offered:?}");
            drop(client);
            let socket = eventually("the socket is recorded", || {
                let page = gateway.json("/api/v1/spans?limit=50");
                page["data"].as_array().unwrap().iter().find(|span| span["status_code"] == 101).cloned()
            });
            // What was not read went nowhere.
            let unread = socket["tags"].get("websocket_messages_unread").is_some();
            assert_eq!(unread, name != "attack", "{name} under {settings}: {socket}");
        }
    }

    fn fields_that_steer_the_gateway_count_once_and_go_no_further(driver) {
        let answer = "HTTP/1.1 200 OK\r\nX-Service-Trace-Id: theirs\r\nX-SERVICE-Flagged: true\r\nx-service-analysis: complete\r\nx-service-anything: 1\r\n\
            Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
        let upstream = Upstream::always(answer);
        let gateway = Setup::new(driver).unlimited().upstream(upstream.url()).with(AUTH).start();
        let [one, two] = ["one", "two"].map(|name| gateway.tenant(name));
        let (key, token_of_two) = (gateway.key(&one, "operator").1, gateway.token(&two));
        let chat = || Call::post("/v1/chat/completions", chat_body("hi").to_string()).key(&key);
        // Whose it is says the credential; another tenant's name or token beside it changes nothing, or is refused.
        let odd = [
            chat().field("X-Service-Tenant-ID", &one).field("x-SERVICE-tenant-id", &two),
            chat().field("x-service-tenant-id", &two),
            chat().field("X-Service-Token", "none").field("X-Service-Token", &token_of_two),
            chat().key("none"),
            chat().field("X-Service-Tenant-ID ", &two),
            chat().field("X-Service-Tenant-ID\t", &two),
            chat().field(" X-Service-Tenant-ID", &two),
            chat().field("X-Service-Agent-ID", "a\r\n X-Service-Tenant-ID: b"),
            chat().field("X-Service-Agent-ID", "a\rX-Service-Tenant-ID: b"),
            chat().field("X-Service-Agent-ID", "a\nX-Service-Token: b"),
            chat().field("Connection", "close, X-Service-Token, Authorization, X-Service-Agent-ID"),
            chat().field("X-Service-Provider", "ollama").field("X-Service-Provider", "openai"),
            chat().field("X-Service-Agent-ID", "ada").field("x-service-agent-id", "bob"),
            chat().field("X-SERVICE-MAX-COST", "0").field("X_Service_Token", &token_of_two),
        ];
        let mut passed = 0;
        for asked in odd {
            let answer = call(gateway.addr, asked.bytes());
            assert!([200, 400, 401, 403].contains(&answer.status), "{}", answer.text());
            if answer.status != 200 {
                continue;
            }
            passed += 1;
            let trace = answer.header("x-service-trace-id").unwrap();
            assert_ne!(trace, "theirs");
            assert_eq!((answer.header("x-service-flagged"), answer.header("x-service-anything")), (None, None), "{:?}", answer.fields());
        }
        assert!(passed >= 4, "{passed}");
        for request in upstream.wait_for_requests(passed) {
            let names: Vec<String> = request.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
            assert!(!names.iter().any(|name| name.trim().starts_with("x-service-")), "{names:?}");
            let whole = format!("{:?}", request.headers);
            assert!(!whole.contains(&key), "{whole}");
        }
        let count = |tenant: &str| {
            let page = gateway.admin(Call::get("/api/v1/spans?limit=100").field("X-Service-Tenant-ID", tenant)).json();
            page["data"].as_array().unwrap().iter().map(|span| span["status_code"] == 200).filter(|ok| *ok).count()
        };
        eventually("they are recorded as their sender's", || (count(&one) == passed).then_some(()));
        assert_eq!(count(&two), 0);
    }
}
