//! Promise: through an upstream's address, a route and a group, with or without a member that has failed, the provider and the client
//! see the bytes of a direct call, and the record is as complete.

use std::io::Read as _;

use serde_json::json;

use crate::support::{
    Answer, Call, Client, ClosedPort, Driver, Gateway, Setup, Upstream, call, chat_body, chat_call, on_both_drivers,
    provider, with_stream,
};
use crate::transparency::{assert_same_answer, of_every_kind};

/// A gateway that reaches one provider by address, by route, and by a group whose first member is gone. `upstream_url` leads nowhere.
fn gateway(driver: Driver, url: &str, gone: &ClosedPort) -> Gateway {
    Setup::new(driver)
        .unlimited()
        .with(&format!("upstreams:\n  one: {{url: '{url}'}}\n  gone: {{url: 'http://{}'}}", gone.addr))
        .with("upstream_groups: {group: {upstreams: [gone, one]}}")
        .with("routes: [{path: '/no/such/*', upstream: group}, {path: '*', upstream: one}]")
        .start()
}

/// How a call comes to the provider: the address in front of its path.
const WAYS: [&str; 3] = ["/upstream/one", "/upstream/group", ""];

on_both_drivers! {
    fn every_answer_and_every_body_is_that_of_a_direct_call(driver) {
        let (provider, gone) = (provider(), ClosedPort::new());
        let gateway = gateway(driver, &provider.url(), &gone);
        let mut kinds = of_every_kind();
        kinds.push(chat_call("hello").field("x-fake-encoding", "gzip"));
        for request in kinds {
            let direct = call(provider.addr(), request.bytes());
            let asked = provider.take_received().remove(0).request;
            for way in WAYS {
                let through = call(gateway.addr, request.clone().below(way).bytes());
                assert_same_answer(&direct, &through);
                let seen = provider.take_received();
                assert_eq!(seen.len(), 1, "{way}");
                let line = |head: &[u8]| head.split(|byte| *byte == b'\r').next().unwrap().to_vec();
                assert_eq!(line(seen[0].request.raw_head()), line(asked.raw_head()), "{way}");
                assert_eq!(seen[0].request.raw_body(), asked.raw_body(), "{way}");
            }
        }
        // Chunk by chunk, which is how an upload that nobody reads goes.
        let upload = Call::post("/v1/files", vec![7; 100_000]);
        for way in WAYS {
            let answer = call(gateway.addr, upload.clone().below(way).chunked(3_000));
            let seen = provider.take_received().remove(0).request;
            assert!(seen.body == [7; 100_000], "{way}: {} bytes, {}", seen.body.len(), answer.status);
        }
    }

    fn the_record_is_as_complete(driver) {
        let (provider, gone) = (provider(), ClosedPort::new());
        let gateway = gateway(driver, &provider.url(), &gone);
        let plain: Answer = call(provider.addr(), chat_call("hello").bytes());
        let said = plain.json()["choices"][0]["message"]["content"].clone();
        let usage = plain.json()["usage"].clone();
        for way in WAYS {
            let mut streamed = with_stream(chat_body("hello"));
            streamed["stream_options"] = json!({"include_usage": true});
            for body in [chat_body("hello"), streamed] {
                let answer = call(gateway.addr, Call::post("/v1/chat/completions", body.to_string()).below(way).bytes());
                let span = gateway.span_of(&answer);
                assert_eq!(span["tags"]["upstream"], "one", "{way}");
                assert!(span["prompt"].to_string().contains("hello"), "{way}: {span}");
                assert_eq!(span["response"], said, "{way}");
                for tokens in ["prompt_tokens", "completion_tokens"] {
                    assert_eq!(span[tokens], usage[tokens], "{way} {tokens} {body}");
                }
            }
        }
    }

    fn a_websocket_passes_by_address_and_group(driver) {
        let echo = Upstream::play(|peer| {
            peer.request();
            peer.say(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            );
            let mut piece = [0; 16 * 1024];
            while let Ok(count @ 1..) = peer.stream.read(&mut piece) {
                peer.say(&piece[..count]);
            }
        });
        let gone = ClosedPort::new();
        let gateway = gateway(driver, &echo.url(), &gone);
        for way in WAYS {
            let mut client = Client::connect(gateway.addr);
            client.say(format!(
                "GET {way}/v1/realtime?model=m HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            ));
            let head = client.read_until(|bytes| bytes.ends_with(b"\r\n\r\n"));
            assert!(head.starts_with(b"HTTP/1.1 101 "), "{way}: {}", String::from_utf8_lossy(&head));
            let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
            client.say(&bytes[..50_000]);
            assert!(client.read_until(|got| got.len() >= 50_000) == bytes[..50_000], "{way}");
            client.say(&bytes[50_000..]);
            assert!(client.read_until(|got| got.len() >= 50_000) == bytes[50_000..], "{way}");
            let seen = echo.requests().pop().unwrap();
            assert!(seen.raw_head().starts_with(b"GET /v1/realtime?model=m HTTP/1.1\r\n"), "{way}");
        }
        assert_eq!(json!(echo.requests().len()), json!(WAYS.len()));
    }
}
