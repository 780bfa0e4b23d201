//! Promise: an `https://` provider is verified, against the system's roots and an extra CA file, and served like a
//! plain one.

use std::sync::atomic::Ordering;

use serde_json::json;
use tempfile::TempDir;
use weir_fake_provider::http::Request;

use crate::support::{
    Call, Client, Ending, Setup, call, chat_call, counted_provider, on_both_drivers, secure_peer_as,
    secure_provider as provider, trust,
};

fn echo(request: &Request) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len());
    [head.as_bytes(), &request.body].concat()
}

const SERVER: &str = include_str!("data/server.pem");
const KEY: &str = include_str!("data/server.key.pem");

on_both_drivers! {
    fn bodies_pass_in_both_directions_on_one_connection(driver) {
        let addr = provider(echo, Ending::KeepAlive);
        let (_folder, trusted) = trust();
        let gateway = Setup::new(driver).upstream(format!("https://localhost:{}", addr.port())).with(&trusted).start();
        let mut client = Client::connect(gateway.addr);
        for bytes in [10, 100_000, 3_000_000, 1] {
            let body: Vec<u8> = (0..bytes).map(|at: u32| (at % 251) as u8).collect();
            client.say(Call::post("/v1/files", body.clone()).bytes());
            let answer = client.answer();
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(answer.body == body, "{bytes} bytes");
        }
    }

    fn a_certificate_nobody_vouches_for_is_refused(driver) {
        let addr = provider(echo, Ending::KeepAlive);
        let gateway = Setup::new(driver).upstream(format!("https://localhost:{}", addr.port())).start();
        let answer = call(gateway.addr, chat_call("hello").bytes());
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (502, &json!("upstream_connect_error")));
        let message = answer.json()["error"]["message"].as_str().unwrap().to_lowercase();
        assert!(message.contains("certificate"), "{message}");
    }

    fn a_certificate_for_another_name_is_refused(driver) {
        let addr = provider(echo, Ending::KeepAlive);
        let (_folder, trusted) = trust();
        // The certificate is for `localhost` only.
        let gateway = Setup::new(driver).upstream(format!("https://{addr}")).with(&trusted).start();
        let answer = call(gateway.addr, chat_call("hello").bytes());
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (502, &json!("upstream_connect_error")));
    }

    fn an_answer_until_close_is_whole_only_with_a_farewell(driver) {
        let said = |_: &Request| b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nthe whole text".to_vec();
        let (_folder, trusted) = trust();
        for ending in [Ending::CloseNotify, Ending::Abrupt] {
            let addr = provider(said, ending);
            let gateway =
                Setup::new(driver).upstream(format!("https://localhost:{}", addr.port())).with(&trusted).start();
            let mut client = Client::connect(gateway.addr);
            client.say(Call::get("/v1/files/x").bytes());
            match client.answer_to("GET") {
                Ok(answer) => {
                    assert!(ending == Ending::CloseNotify, "a truncated answer looks whole (RFC 9112 section 9.8)");
                    assert_eq!(answer.text(), "the whole text");
                }
                Err(_) => assert!(ending == Ending::Abrupt, "a whole answer was cut"),
            }
        }
    }

    fn certificates_named_by_the_environment_are_trusted_beside_the_system(driver) {
        let addr = provider(echo, Ending::KeepAlive);
        let (folder, _) = trust();
        let file = folder.path().join("ca.pem").display().to_string();
        let folders = format!("{}", folder.path().display());
        for (name, value) in [("SSL_CERT_FILE", file), ("SSL_CERT_DIR", folders)] {
            let setup = Setup::new(driver).upstream(format!("https://localhost:{}", addr.port()));
            let gateway = setup.env(name, value).start();
            let answer = call(gateway.addr, chat_call("hello").bytes());
            assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        }
    }

    fn a_second_connection_resumes_the_session_of_the_first(driver) {
        let (addr, handshakes) = counted_provider(echo, Ending::CloseNotify);
        let (_folder, trusted) = trust();
        let gateway = Setup::new(driver).upstream(format!("https://localhost:{}", addr.port())).with(&trusted).start();
        for _ in 0..3 {
            assert_eq!(call(gateway.addr, chat_call("hello").bytes()).status, 200);
        }
        let (full, resumed) = (handshakes.full.load(Ordering::SeqCst), handshakes.resumed.load(Ordering::SeqCst));
        assert_eq!((full, resumed), (1, 2), "a full handshake costs the provider a signature and the client a round trip");
    }

    fn the_provider_is_told_which_name_is_meant_and_an_address_is_verified_as_one(driver) {
        // A name travels in the handshake (SNI); an address must not (RFC 6066 section 3), and its certificate names it.
        let said = |stream: &mut rustls::Stream<'_, rustls::ServerConnection, std::net::TcpStream>| {
            let mut piece = [0; 4096];
            assert!(std::io::Read::read(stream, &mut piece).is_ok());
            let name = stream.conn.server_name().unwrap_or("nothing").to_owned();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{name}", name.len());
            std::io::Write::write_all(stream, answer.as_bytes()).unwrap();
        };
        let (_folder, trusted) = trust();
        let port = secure_peer_as((SERVER, KEY), said);
        let gateway = Setup::new(driver).upstream(format!("https://localhost:{port}")).with(&trusted).start();
        assert_eq!(call(gateway.addr, Call::get("/v1/models").bytes()).text(), "localhost");
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, include_str!("data/address-ca.pem")).unwrap();
        let pair = (include_str!("data/address.pem"), include_str!("data/address.key.pem"));
        let port = secure_peer_as(pair, said);
        let setup = Setup::new(driver).upstream(format!("https://127.0.0.1:{port}"));
        let gateway = setup.with(&format!("upstream_ca_file: '{}'", path.display())).start();
        let answer = call(gateway.addr, Call::get("/v1/models").bytes());
        assert_eq!((answer.status, answer.text().as_str()), (200, "nothing"));
    }
}
