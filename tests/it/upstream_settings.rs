//! Promise: what an upstream's own settings say holds for it and for no other.

use std::time::{Duration, Instant};

use crate::support::{Call, Client, Ending, Setup, Upstream, call, on_both_drivers, secure_provider, trust};
use crate::upstreams::{ok, served_by};

fn ask(upstream: &str) -> Vec<u8> {
    Call::post(&format!("/upstream/{upstream}/v1/chat/completions"), "{}").bytes()
}

on_both_drivers! {
    fn its_authority_is_trusted_there_and_nowhere_else(driver) {
        let addr = secure_provider(|_| ok("secure").into_bytes(), Ending::KeepAlive);
        let (_folder, line) = trust();
        let authority = line.strip_prefix("upstream_").unwrap();
        let url = format!("https://localhost:{}", addr.port());
        let gateway = Setup::new(driver)
            .with(&format!("upstreams:\n  trusted: {{url: '{url}', {authority}}}\n  other: {{url: '{url}'}}"))
            .start();
        assert_eq!(served_by(&call(gateway.addr, ask("trusted"))), "secure");
        let refused = call(gateway.addr, ask("other"));
        assert_eq!((refused.status, refused.json()["error"]["type"].as_str()), (502, Some("upstream_connect_error")));
        assert_eq!(served_by(&call(gateway.addr, ask("trusted"))), "secure");
    }

    fn it_has_its_own_time_to_connect_in(driver) {
        // A listener with a full backlog answers no SYN, as a black hole would not.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let addr = socket.local_addr().unwrap().as_socket().unwrap();
        let _held: Vec<_> = (0..3)
            .map_while(|_| std::net::TcpStream::connect_timeout(&addr, Duration::from_millis(100)).ok())
            .collect();
        let well = Upstream::always(ok("well"));
        let gateway = Setup::new(driver)
            .with("connection_timeout_ms: 120000")
            .with("timeout_ms: 120000")
            .with(&format!(
                "upstreams:\n  hole: {{url: 'http://{addr}', connection_timeout_ms: 200}}\n  well: {{url: '{}'}}",
                well.url()
            ))
            .start();
        let start = Instant::now();
        let given_up = call(gateway.addr, ask("hole"));
        assert!([502, 504].contains(&given_up.status), "{}", given_up.text());
        let took = start.elapsed();
        // The gateway's own limit is two minutes.
        assert!((Duration::from_millis(150)..Duration::from_secs(30)).contains(&took), "{took:?}");
        assert_eq!(served_by(&call(gateway.addr, ask("well"))), "well");
    }

    fn it_has_its_own_number_of_connections_and_takes_none_of_the_others(driver) {
        let (busy, gate) = Upstream::gated(|peer, gate| {
            while peer.request().is_some() {
                gate.pass();
                peer.say(ok("busy"));
            }
        });
        let free = Upstream::always(ok("free"));
        let gateway = Setup::new(driver)
            .with(&format!(
                "upstreams:\n  busy: {{url: '{}', max_connections: 2}}\n  free: {{url: '{}'}}",
                busy.url(),
                free.url()
            ))
            .start();
        // Far more than it has connections; all but two wait.
        let mut waiting: Vec<Client> = (0..12).map(|_| Client::connect(gateway.addr)).collect();
        waiting.iter_mut().for_each(|client| client.say(ask("busy")));
        busy.wait_for_requests(2);
        for _ in 0..20 {
            assert_eq!(served_by(&call(gateway.addr, ask("free"))), "free", "the other one is not held up");
        }
        assert_eq!((busy.connections(), busy.requests().len()), (2, 2));
        waiting.iter().for_each(|_| gate.open());
        for client in &mut waiting {
            assert_eq!(served_by(&client.answer()), "busy");
        }
    }
}
