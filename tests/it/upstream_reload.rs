//! Promise: routes, groups and rules of health that come with a SIGHUP are put to work, and streams and WebSockets that are open go
//! on where they began.

use std::io::Read as _;

use crate::support::{Call, Client, Driver, Gateway, Setup, Upstream, call, chat_call, eventually, on_both_drivers};
use crate::upstreams::{ok, served_by, status};

/// A gateway whose settings behind `upstream_url` can be replaced.
struct World {
    gateway: Gateway,
    now: String,
}

impl World {
    fn new(driver: Driver, settings: &str) -> Self {
        Self { gateway: Setup::new(driver).unlimited().with(settings).start(), now: settings.to_owned() }
    }

    fn reload(&mut self, settings: &str) {
        let config = self.gateway.folder().join("service.yaml");
        let text = std::fs::read_to_string(&config).unwrap();
        assert!(text.contains(&self.now));
        std::fs::write(&config, text.replace(&self.now, settings)).unwrap();
        settings.clone_into(&mut self.now);
        self.gateway.hang_up();
    }

    fn ask(&self) -> String {
        served_by(&call(self.gateway.addr, chat_call("hello").bytes()))
    }
}

on_both_drivers! {
    fn new_routes_groups_and_rules_of_health_are_put_to_work(driver) {
        let (one, two) = (Upstream::always(ok("one")), Upstream::always(ok("two")));
        let bad = Upstream::always(status("500 Internal Server Error", ""));
        let upstreams = format!(
            "upstreams: {{one: {{url: '{}', providers: [openai]}}, two: {{url: '{}'}}, bad: {{url: '{}'}}}}",
            one.url(),
            two.url(),
            bad.url()
        );
        let mut world = World::new(driver, &upstreams);
        assert_eq!(world.ask(), "one");

        world.reload(&format!("{upstreams}\nroutes: [{{model: 'gpt-*', upstream: two}}]"));
        let by_model = || {
            let body = r#"{"model":"gpt-4o","messages":[]}"#;
            served_by(&call(world.gateway.addr, Call::post("/v1/chat/completions", body).bytes()))
        };
        eventually("the route by model is used", || (by_model() == "two").then_some(()));
        let other = r#"{"model":"o3","messages":[]}"#;
        assert_eq!(served_by(&call(world.gateway.addr, Call::post("/v1/chat/completions", other).bytes())), "one");

        world.reload(&format!(
            "{upstreams}\nupstream_groups: {{all: {{upstreams: [bad, two]}}}}\nroutes: [{{path: '/v1/chat/*', upstream: all}}]\n\
             upstream_health: {{eject_after: 1, eject_ms: 300000}}"
        ));
        // One failure is enough from now on.
        eventually("the group is used, and its first member put aside", || (world.ask() == "two").then_some(()));
        assert_eq!(bad.requests().len(), 1);
        assert_eq!([world.ask(), world.ask()], ["two", "two"]);

        world.reload(&upstreams);
        eventually("all of that is gone", || (world.ask() == "one").then_some(()));
    }

    fn an_open_stream_and_a_websocket_go_on_where_they_began(driver) {
        let (first, gate) = Upstream::gated(|peer, gate| {
            let Some(request) = peer.request() else { return };
            if request.raw_head().starts_with(b"GET ") {
                peer.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                          Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n");
                let mut piece = [0; 1024];
                while let Ok(count @ 1..) = peer.stream.read(&mut piece) {
                    peer.say(&piece[..count]);
                }
                return;
            }
            if !String::from_utf8_lossy(&request.body).contains("\"stream\":true") {
                return peer.say(ok("first"));
            }
            peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            peer.say("d\r\ndata: first\n\n\r\n");
            gate.pass();
            peer.say("c\r\ndata: last\n\n\r\n0\r\n\r\n");
        });
        let second = Upstream::always(ok("second"));
        let settings = |url: &str| format!("upstreams: {{one: {{url: '{url}', providers: [openai]}}}}");
        let mut world = World::new(driver, &settings(&first.url()));
        let mut stream = Client::connect(world.gateway.addr);
        stream.say(Call::post("/v1/chat/completions", r#"{"model":"m","stream":true,"messages":[]}"#).bytes());
        stream.read_until(|bytes| bytes.windows(11).any(|piece| piece == b"data: first"));
        let mut socket = Client::connect(world.gateway.addr);
        socket.say(
            "GET /upstream/one/v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        let head = socket.read_until(|bytes| bytes.ends_with(b"\r\n\r\n"));
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));

        world.reload(&settings(&second.url()));
        eventually("calls go to the new address", || (world.ask() == "second").then_some(()));
        for piece in [&b"still"[..], b"there"] {
            socket.say(piece);
            assert_eq!(socket.read_until(|got| got.len() >= piece.len()), piece);
        }
        gate.open();
        let rest = stream.read_until(|bytes| bytes.ends_with(b"0\r\n\r\n"));
        assert!(rest.windows(10).any(|piece| piece == b"data: last"), "{}", String::from_utf8_lossy(&rest));
        assert!(second.requests().iter().all(|request| request.raw_head().starts_with(b"POST ")));
    }
}
