//! Promise: what the provider sees and what the client sees equals a direct call, bodies byte for byte, head fields but
//! for the documented list.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use crate::support::{Answer, Call, Client, Setup, Upstream, call, chat_body, chat_call, on_both_drivers, provider};

/// A head with everything that might get lost: odd case, repeated fields, an empty value, bytes beyond ASCII.
const HEAD: &[u8] = b"POST /v1/chat/completions?api-version=2%2F1&x=//y HTTP/1.1\r\n\
hOsT: llm.example\r\n\
user-AGENT: client/1.0 (odd; \xe4\xf6)\r\n\
Authorization: Bearer sk-canary-0123456789\r\n\
X-Repeated: one\r\n\
Cookie: a=b; c=d\r\n\
x-repeated: two, three\r\n\
Accept: */*\r\n\
Empty:\r\n\
Content-Type: application/json\r\n\
Accept-Encoding: gzip, br\r\n";

on_both_drivers! {
    fn the_provider_sees_the_head_of_a_direct_call(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        let body = chat_body("hello").to_string();
        let through_only = b"Connection: keep-alive, X-Per-Hop\r\nX-Per-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
            TE: trailers\r\nProxy-Authorization: Basic eA==\r\nUpgrade: h2c\r\nX-Service-Agent-ID: agent-7\r\n\
            x-service-anything: 1\r\n";
        let length = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        call(provider.addr(), [HEAD, length.as_bytes()].concat());
        call(gateway.addr, [HEAD, through_only, length.as_bytes()].concat());

        let seen = provider.take_received();
        let [direct, through] = &seen[..] else { panic!("{} requests", seen.len()) };
        let mut lines = lines(direct.request.raw_head());
        lines[1] = format!("hOsT: {}", provider.addr()).into_bytes();
        let mut got = self::lines(through.request.raw_head());
        let via = got.pop().unwrap();
        assert_eq!(printable(&got), printable(&lines_with_empty_value(lines)));
        let via = String::from_utf8(via).unwrap();
        assert!(via.starts_with("Via: 1.1 weir-"), "{via}");
        assert_eq!(through.request.raw_body(), direct.request.raw_body());
    }

    fn the_client_sees_the_head_of_a_direct_call(driver) {
        let said = b"HTTP/1.1 207 Rather  Good\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nset-cookie: a=1\r\n\
            X-Odd: \xfc\r\nSet-Cookie: b=2\r\nServer: provider/1\r\nX-RateLimit-Remaining: 7\r\nVia: 1.1 cdn\r\n\
            Content-Type: application/json\r\nContent-Encoding: identity\r\n";
        let upstream = Upstream::always(
            [
                &said[..],
                b"Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=9\r\n\
            X-Service-Trace-Id: forged\r\nx-service-flagged: forged\r\nContent-Length: 2\r\n\r\n{}",
            ]
            .concat(),
        );
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let answer = call(gateway.addr, chat_call("hello").bytes());
        let expected = lines(&[&said[..], b"Content-Length: 2\r\n"].concat());
        let mut got = lines(&answer.head);
        let added = String::from_utf8(got.pop().unwrap()).unwrap();
        assert_eq!(printable(&got), printable(&expected));
        let trace_id = added.strip_prefix("X-Service-Trace-Id: ").unwrap();
        assert!(is_uuid(trace_id), "{trace_id}");
        assert_eq!(answer.body, b"{}");
    }

    fn a_missing_date_is_added_and_nothing_else(driver) {
        let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let answer = call(gateway.addr, chat_call("hello").bytes());
        let names: Vec<String> = answer.fields().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["Content-Length", "Date", "X-Service-Trace-Id"]);
        let date = answer.header("date").unwrap();
        assert!(date.ends_with(" GMT") && date.len() == 29, "{date}");
    }

    fn server_timing_appears_only_when_asked_for(driver) {
        let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let gateway = Setup::new(driver).upstream(upstream.url()).server("timing_header: true").start();
        let timing = call(gateway.addr, chat_call("hello").bytes()).header("server-timing").unwrap();
        let ms: f64 = timing.strip_prefix("weir;dur=").unwrap().parse().unwrap();
        assert!((0.0..10_000.0).contains(&ms), "{timing}");
    }

    fn traceparent_is_continued_with_a_span_of_our_own(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        let sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let request = chat_call("hello").field("traceparent", sent).field("tracestate", "vendor=1,other=2");
        let answer = call(gateway.addr, request.bytes());
        let seen = provider.take_received().remove(0).request;
        let forwarded = seen.header("traceparent").unwrap().to_owned();
        let parts: Vec<&str> = forwarded.split('-').collect();
        assert_eq!((parts[0], parts[1], parts[3]), ("00", "4bf92f3577b34da6a3ce929d0e0e4736", "01"));
        assert_ne!(parts[2], "00f067aa0ba902b7");
        assert_eq!(seen.header("tracestate"), Some("vendor=1,other=2"));
        assert_eq!(answer.trace_id(), "4bf92f35-77b3-4da6-a3ce-929d0e0e4736");
        let span = gateway.span_of(&answer);
        assert_eq!(span["span_id"], format!("00000000-0000-0000-{}-{}", &parts[2][..4], &parts[2][4..]));
        assert_eq!(span["parent_span_id"], "00000000-0000-0000-00f0-67aa0ba902b7");
    }

    fn a_broken_traceparent_passes_as_it_is_and_names_no_trace(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        for broken in [
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "nonsense",
        ] {
            let answer = call(gateway.addr, chat_call("hello").field("traceparent", broken).bytes());
            assert_eq!(provider.take_received()[0].request.header("traceparent"), Some(broken));
            assert!(
                !["4bf92f35-77b3-4da6-a3ce-929d0e0e4736", "00000000-0000-0000-0000-000000000000"]
                    .contains(&answer.trace_id().as_str()),
                "{broken}"
            );
        }
    }

    fn no_traceparent_is_made_up(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        call(gateway.addr, chat_call("hello").bytes());
        assert_eq!(provider.take_received()[0].request.header("traceparent"), None);
    }

    fn a_compressed_answer_passes_untouched_and_is_read_all_the_same(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        let request = chat_call("hello").field("x-fake-encoding", "gzip").bytes();
        let direct = call(provider.addr(), &request);
        let through = call(gateway.addr, &request);
        assert_eq!(through.header("content-encoding").as_deref(), Some("gzip"));
        assert_same_answer(&direct, &through);
        let plain = call(provider.addr(), chat_call("hello").bytes()).json();
        assert_eq!(gateway.span_of(&through)["response"], plain["choices"][0]["message"]["content"]);
    }

    fn every_answer_of_the_provider_equals_a_direct_call(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        for request in of_every_kind() {
            let request = request.bytes();
            assert_same_answer(&call(provider.addr(), &request), &call(gateway.addr, &request));
        }
    }

    fn any_body_in_any_chunks_arrives_byte_for_byte(driver) {
        let echo = Upstream::play(|peer| {
            while let Some(request) = peer.request() {
                let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
                let chunked = request.header("x-answer") == Some("chunked");
                if chunked {
                    answer.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                    for piece in request.body.chunks(1 + request.body.len() / 3) {
                        answer.extend_from_slice(format!("{:X};ext=1\r\n", piece.len()).as_bytes());
                        answer.extend_from_slice(piece);
                        answer.extend_from_slice(b"\r\n");
                    }
                    answer.extend_from_slice(b"0\r\n\r\n");
                } else {
                    answer.extend_from_slice(format!("Content-Length: {}\r\n\r\n", request.body.len()).as_bytes());
                    answer.extend_from_slice(&request.body);
                }
                peer.say(answer);
            }
        });
        let gateway = Setup::new(driver).upstream(echo.url()).unlimited().start();
        let client = std::cell::RefCell::new(Client::connect(gateway.addr));
        let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
        let body = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..2_000),
            (0_usize..300_000, any::<u8>()).prop_map(|(length, salt)| {
                (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(salt)).collect()
            }),
        ];
        let path = prop::sample::select(vec!["/v1/chat/completions", "/v1/files", "/api/blobs/x"]);
        let cases = (body, path, 1_usize..70_000, any::<bool>(), any::<bool>());
        let outcome = TestRunner::new(config).run(&cases, |(body, path, chunk_bytes, chunked, answer_chunked)| {
            let framing = if answer_chunked { "chunked" } else { "length" };
            let request = Call::post(path, body.clone()).field("X-Answer", framing);
            let mut client = client.borrow_mut();
            client.say(if chunked { request.chunked(chunk_bytes) } else { request.bytes() });
            let answer = client.answer();
            prop_assert_eq!(answer.status, 200);
            prop_assert!(answer.body == body, "{} bytes became {}", body.len(), answer.body.len());
            let seen = echo.requests().pop().map(|request| request.body);
            prop_assert!(seen == Some(body), "the provider saw another body");
            Ok(())
        });
        outcome.unwrap();
    }

    fn the_path_of_the_upstream_url_is_written_once(driver) {
        let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let gateway = Setup::new(driver).upstream(format!("{}/openai/v1", upstream.url())).start();
        for target in ["/v1/models?x=%2e", "/openai/v1/models", "/models"] {
            call(gateway.addr, Call::get(target).bytes());
        }
        let targets: Vec<String> = upstream.requests().iter().map(|request| request.path.clone()).collect();
        assert_eq!(targets, ["/openai/v1/models", "/openai/v1/models", "/openai/v1/models"]);
        assert_eq!(upstream.requests()[0].query.as_deref(), Some("x=%2e"));
    }

    fn a_request_that_comes_round_again_is_refused(driver) {
        let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        call(gateway.addr, Call::get("/v1/models").bytes());
        let via = upstream.requests()[0].header("via").unwrap().to_owned();
        let answer = call(gateway.addr, Call::get("/v1/models").field("Via", &format!("1.1 cdn, {via}")).bytes());
        assert_eq!(answer.status, 508);
        assert_eq!(upstream.requests().len(), 1);
        let other = call(gateway.addr, Call::get("/v1/models").field("Via", "1.1 weir-0123456789ab").bytes());
        assert_eq!(other.status, 200);
    }

    fn credentials_reach_the_provider_and_nobody_else(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).log_level("trace").start();
        let request = chat_call("hello")
            .field("Authorization", "Bearer sk-canary-AAAA")
            .field("x-api-key", "canary-BBBB")
            .field("api-key", "canary-CCCC")
            .field("X-Service-Token", "canary-DDDD")
            .field("X-Service-Upstream-Authorization", "canary-EEEE");
        let answer = call(gateway.addr, request.bytes());
        let seen = provider.take_received().remove(0).request;
        assert_eq!(seen.header("authorization"), Some("Bearer sk-canary-AAAA"));
        assert_eq!((seen.header("x-api-key"), seen.header("api-key")), (Some("canary-BBBB"), Some("canary-CCCC")));
        assert!(!seen.headers.iter().any(|(name, _)| name.to_ascii_lowercase().starts_with("x-service-")), "{seen:?}");
        let trace = gateway.trace_for(&answer.trace_id(), "Authorization: Bearer sk-canary-AAAA\r\n").to_string();
        let database = std::fs::read(gateway.folder().join("weir.db")).unwrap();
        let wal = std::fs::read(gateway.folder().join("weir.db-wal")).unwrap_or_default();
        let everything = [
            trace.as_bytes(),
            gateway.metrics().as_bytes(),
            gateway.log().join("\n").as_bytes(),
            &database,
            &wal,
            &answer.head,
            &answer.body,
        ]
        .concat();
        assert!(!String::from_utf8_lossy(&everything).contains("canary"), "a credential was kept");
    }
}

/// Calls of every kind that the fake provider answers: whole, streamed, compressed by chunks, refused.
pub(crate) fn of_every_kind() -> Vec<Call> {
    let stream = json!({ "model": "fake-small", "stream": true, "messages": [{ "role": "user", "content": "hi" }] });
    let embed = json!({ "model": "fake-embedding", "input": ["one", "two"] });
    vec![
        chat_call("hello"),
        Call::post("/v1/chat/completions", stream.to_string()),
        Call::post("/v1/messages", stream.to_string()).field("anthropic-version", "2023-06-01"),
        Call::post("/v1/embeddings", embed.to_string()),
        Call::post("/v1/responses", json!({ "model": "m", "input": "hi", "stream": true }).to_string()),
        Call::post("/api/chat", stream.to_string()),
        Call::post("/api/generate", json!({ "model": "m", "prompt": "hi" }).to_string()),
        Call::get("/v1/models"),
        Call::get("/api/tags"),
        Call::get("/no/such/path?with=query"),
        chat_call("hello").field("x-fake-status", "429").field("x-fake-retry-after", "7"),
        chat_call("hello").field("x-fake-status", "503"),
        chat_call("hello").field("x-fake-framing", "chunked"),
    ]
}

/// The lines of a head without their ends, the empty one left out.
fn lines(head: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> =
        head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec()).collect();
    lines.retain(|line| !line.is_empty());
    lines
}

/// A relayed field has one space behind its colon, also where its value is empty.
fn lines_with_empty_value(lines: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    lines.into_iter().map(|line| if line == b"Empty:" { b"Empty: ".to_vec() } else { line }).collect()
}

fn printable(lines: &[Vec<u8>]) -> Vec<String> {
    lines.iter().map(|line| line.escape_ascii().to_string()).collect()
}

fn is_uuid(text: &str) -> bool {
    let shape: Vec<usize> = text.split('-').map(str::len).collect();
    shape == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// Status, body and fields are those of a direct call, but for the two that are ours. The framing field belongs to each
/// connection and may be spelled anew.
pub(crate) fn assert_same_answer(direct: &Answer, through: &Answer) {
    assert_eq!(through.status, direct.status);
    assert_eq!(through.body, direct.body);
    assert_eq!(through.raw_body, direct.raw_body);
    let ours = ["date", "x-service-trace-id"];
    let fields = |answer: &Answer| {
        let theirs =
            answer.fields().into_iter().filter(|(name, _)| !ours.contains(&name.to_ascii_lowercase().as_str()));
        let spelled = |name: String| {
            if name.eq_ignore_ascii_case("transfer-encoding") { name.to_ascii_lowercase() } else { name }
        };
        theirs.map(|(name, value)| (spelled(name), value)).collect::<Vec<_>>()
    };
    assert_eq!(fields(through), fields(direct));
    assert!(is_uuid(&through.trace_id()));
}
