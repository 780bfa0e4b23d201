//! Promise: where a company lets traffic out through a proxy only, the variables every tool reads lead through it: a
//! tunnel for an `https://` provider, whole URLs for an `http://` one, and the proxy's credential goes to nobody else.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;
use weir_fake_provider::http::Request;

use crate::support::{
    Call, Client, Ending, Setup, Upstream, call, chat_call, on_both_drivers, secure_provider, trust, weir,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

/// A proxy that tunnels to `provider` whatever it is asked for, or refuses with `refusal`. Keeps the heads it was sent.
fn tunnelling_proxy(provider: SocketAddr, refusal: Option<&'static str>) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && client.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                }
                seen.lock().unwrap().push(String::from_utf8(head).unwrap());
                if let Some(refusal) = refusal {
                    drop(client.write_all(refusal.as_bytes()));
                    return;
                }
                let mut provider = TcpStream::connect(provider).unwrap();
                client.write_all(b"HTTP/1.1 200 Connection established\r\nProxy-Agent: test\r\n\r\n").unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), provider.try_clone().unwrap());
                std::thread::spawn(move || {
                    drop(std::io::copy(&mut from, &mut to));
                    drop(to.shutdown(std::net::Shutdown::Both));
                });
                drop(std::io::copy(&mut provider, &mut client));
                drop(client.shutdown(std::net::Shutdown::Both));
            });
        }
    });
    (addr, heads)
}

fn echo(request: &Request) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len());
    [head.as_bytes(), &request.body].concat()
}

on_both_drivers! {
    fn an_https_provider_is_reached_through_a_tunnel(driver) {
        let provider = secure_provider(echo, Ending::KeepAlive);
        let (proxy, heads) = tunnelling_proxy(provider, None);
        let (_folder, trusted) = trust();
        let setup = Setup::new(driver).upstream(format!("https://localhost:{}", provider.port())).with(&trusted);
        let gateway = setup.env("HTTPS_PROXY", format!("http://me:p%40ss@{proxy}")).start();
        let mut client = Client::connect(gateway.addr);
        for bytes in [10, 300_000] {
            let body = vec![b'x'; bytes];
            client.say(Call::post("/v1/files", body.clone()).bytes());
            let answer = client.answer();
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(answer.body == body, "{bytes} bytes");
        }
        let authority = format!("localhost:{}", provider.port());
        let expected = format!(
            "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n"
        );
        assert_eq!(*heads.lock().unwrap(), [expected]);
        let shown = gateway.log().join("\n");
        assert!(shown.contains(&proxy.to_string()) && !shown.contains("p@ss") && !shown.contains("bWU6"), "{shown}");
    }

    fn an_http_provider_is_asked_for_by_its_whole_url(driver) {
        let proxy = Upstream::always(OK);
        let setup = Setup::new(driver).upstream("http://llm.test:8080/base");
        let gateway = setup.env("http_proxy", format!("http://me:secret@{}", proxy.addr())).start();
        let request = Call::get("/v1/models?x=1").field("Proxy-Authorization", "Basic the-clients-own");
        assert_eq!(call(gateway.addr, request.bytes()).status, 200);
        assert_eq!(call(gateway.addr, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
        let seen = proxy.requests();
        let line = |request: &Request| String::from_utf8_lossy(&request.raw).lines().next().map(str::to_owned).unwrap();
        assert_eq!(line(&seen[0]), "GET http://llm.test:8080/base/v1/models?x=1 HTTP/1.1");
        assert_eq!(line(&seen[1]), "OPTIONS http://llm.test:8080 HTTP/1.1");
        let all = |name: &str| {
            let named = seen[0].headers.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
            named.map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        assert_eq!(all("host"), ["llm.test:8080"]);
        assert_eq!(all("proxy-authorization"), ["Basic bWU6c2VjcmV0"], "ours, and never the client's");
    }

    fn a_proxy_that_refuses_is_named(driver) {
        let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
        let (proxy, heads) = tunnelling_proxy(SocketAddr::from(([127, 0, 0, 1], 1)), Some(refusal));
        let gateway =
            Setup::new(driver).upstream("https://llm.test").env("https_proxy", format!("http://{proxy}")).start();
        let answer = call(gateway.addr, chat_call("hello").bytes());
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (502, &json!("upstream_connect_error")));
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        for part in ["407 Proxy Authentication Required", "https_proxy", "llm.test:443", &proxy.to_string()] {
            assert!(message.contains(part), "{part} in {message}");
        }
        assert_eq!(heads.lock().unwrap().len(), 1);
    }

    fn what_no_proxy_exempts_is_reached_directly(driver) {
        let (provider, proxy) = (Upstream::always(OK), Upstream::always(OK));
        let setup = Setup::new(driver).upstream(provider.url()).env("http_proxy", proxy.url());
        let gateway = setup.clone().env("NO_PROXY", "other.test, 127.0.0.0/8").start();
        assert_eq!(call(gateway.addr, Call::get("/v1/models").bytes()).status, 200);
        assert_eq!((provider.requests().len(), proxy.requests().len()), (1, 0));
        let gateway = setup.env("NO_PROXY", "other.test").start();
        assert_eq!(call(gateway.addr, Call::get("/v1/models").bytes()).status, 200);
        assert_eq!((provider.requests().len(), proxy.requests().len()), (1, 1));
    }
}

#[test]
fn a_variable_that_names_no_proxy_or_certificate_stops_the_start_by_name() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("service.yaml");
    std::fs::write(&config, "listen_addr: 127.0.0.1:0\nstorage: {profile: memory}\n").unwrap();
    let empty = folder.path().display().to_string();
    for (name, value) in [
        ("HTTPS_PROXY", "socks5://corp:1080"),
        ("https_proxy", "http://me:hunter2@corp:port"),
        ("SSL_CERT_FILE", "/nonexistent/ca.pem"),
        ("SSL_CERT_DIR", empty.as_str()),
    ] {
        let output = weir(&["--config", config.to_str().unwrap()]).env(name, value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(name), "{name}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
