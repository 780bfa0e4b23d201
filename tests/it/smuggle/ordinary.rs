//! Promise: no ordinary request is refused. The heads of common clients, as they send them, times the calls people make.

use super::clients::{CALLS, CLIENTS};
use super::recorder::Recorder;
use crate::support::{Client, Setup, on_both_drivers};

/// Every client's request for every call: name and bytes, framed as that client would.
fn requests() -> Vec<(String, String, Vec<u8>)> {
    let mut requests = Vec::new();
    for (client, lines) in CLIENTS {
        for (number, (method, target, content_type, body)) in CALLS.iter().enumerate() {
            let target = format!("{target}{}n={}", if target.contains('?') { '&' } else { '?' }, requests.len());
            let mut head = format!("{method} {target} HTTP/1.1\r\n{lines}");
            let mut sent = body.replace('\n', "\r\n").into_bytes();
            if !content_type.is_empty() {
                head.push_str(&format!("Content-Type: {content_type}\r\n"));
            }
            match (body.is_empty(), number % 3) {
                (true, 0) if *method == "POST" => head.push_str("Content-Length: 0\r\n"),
                (true, _) => {}
                (false, 0) => {
                    head.push_str("Transfer-Encoding: chunked\r\n");
                    sent = [format!("{:x}\r\n", sent.len()).as_bytes(), &sent, b"\r\n0\r\n\r\n"].concat();
                }
                (false, 1) => head.push_str(&format!("content-length: {}\r\n", sent.len())),
                (false, _) => head.push_str(&format!("Content-Length: {}\r\nExpect: 100-continue\r\n", sent.len())),
            }
            head.push_str("\r\n");
            requests.push((format!("{client}: {method} {target}"), target, [head.as_bytes(), &sent].concat()));
        }
    }
    requests
}

on_both_drivers! {
    fn no_ordinary_request_is_refused(driver) {
        let requests = requests();
        assert!(requests.len() >= 300, "{}", requests.len());
        let recorder = Recorder::start();
        let upstream = format!("http://{}", recorder.addr);
        let named = "allowed_hosts: [weir.internal.example]";
        let setup = Setup::new(driver).upstream(upstream).unlimited().storage("{profile: memory}");
        let gateway = setup.server(named).start();
        // One connection for many, as clients do.
        for batch in requests.chunks(25) {
            let mut client = Client::connect(gateway.addr);
            for (name, target, request) in batch {
                client.say(request);
                let method = name.split_whitespace().find(|word| *word == "HEAD").unwrap_or("GET");
                let answer = loop {
                    let answer = client.answer_to(method).unwrap_or_else(|cut| panic!("{name}: {cut}"));
                    if answer.status != 100 {
                        break answer;
                    }
                };
                assert_eq!(answer.status, 200, "{name}: {}", answer.text());
                assert_eq!(answer.header("x-target").as_deref(), Some(target.as_str()), "{name}");
                if request.windows(19).any(|window| window.eq_ignore_ascii_case(b"connection: close\r\n")) {
                    client = Client::connect(gateway.addr);
                } else {
                    assert!(answer.keep_alive, "{name}: the connection is kept");
                }
            }
        }
        drop(gateway);
        let recorded = recorder.finish();
        assert_eq!(recorded.faults, Vec::<String>::new());
        assert_eq!(recorded.answered.len(), requests.len());
        println!("{} ordinary requests, 0 refused", requests.len());
    }
}
