//! Promise: a sender for whom there is no room is told so at once and when to come back, by HTTP and by gRPC; what it sends again then
//! is kept, once, and so is what waited.

use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::grpc;
use crate::ingest::{INGEST, chat, post, request, span};
use crate::ingest_bad::{good, of_resource};
use crate::support::{Answer, Call, Client, Driver, Gateway, ReadOnly, Setup, call, eventually};

/// Batches that are granted to one tenant after the other: each gets half of what is left of 64 places, the last one the last.
const GRANTED: [usize; 7] = [32, 16, 8, 4, 2, 1, 1];
const NO_SHARE: &str = "as many batches of this tenant are under way as may be while others send";

/// A gateway whose model looks at reports until this file is there.
struct Held {
    gateway: Gateway,
    folder: tempfile::TempDir,
}

impl Held {
    fn start() -> Self {
        let setup = Setup::new(Driver::Auto).unlimited().with(INGEST).with("security_analysis_timeout_ms: 600000\n");
        let gateway = setup.with("grpc: {enabled: true, listen_addr: '127.0.0.1:0'}").guest("toy_model").start();
        Self { gateway, folder: tempfile::TempDir::new().unwrap() }
    }

    /// A batch of one span that takes until then.
    fn batch(&self, number: usize) -> String {
        let words = format!("think until there is {} and answer", self.folder.path().join("go").display());
        let mut span = span(&format!("{:016x}", 0xf0_0000 + number), &chat(&words, "done"));
        // Batches of one trace would wait for one another.
        span["traceId"] = json!(format!("{:032x}", 0xabc_0000 + number));
        request(&json!([span])).to_string()
    }
}

fn tenant(number: usize) -> String {
    format!("6f1c2b1e-0d5a-4c6f-9e7b-{number:012x}")
}

fn reported(tenant: &str, body: impl Into<Vec<u8>>) -> Vec<u8> {
    post(body).field("X-Service-Tenant-ID", tenant).bytes()
}

/// The answer to a batch; one for which no worker was free to read it is sent again, as senders do.
fn answered(gateway: &Gateway, request: &[u8]) -> Answer {
    loop {
        let mut client = Client::connect(gateway.addr);
        client.say(request);
        let answer = client.answer();
        if answer.status != 503 || !answer.text().contains("as many calls of this tenant") {
            return answer;
        }
    }
}

#[track_caller]
fn assert_told(answer: &Answer, because: &str) {
    let said = answer.json();
    assert_eq!((answer.status, answer.header("retry-after").as_deref()), (503, Some("1")), "{said}");
    // What OTLP says it in, and what every refusal of ours has.
    assert_eq!((&said["code"], &said["error"]["type"]), (&json!(14), &json!("api_saturated")), "{said}");
    assert!(said["message"].as_str().unwrap().contains(because), "{said}");
}

fn dropped(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("service_dropped_total", &format!("queue=\"ingest\",reason=\"{reason}\""))
}

fn kept(gateway: &Gateway, tenant: &str) -> Value {
    let stats = Call::get("/api/v1/stats").field("X-Service-Tenant-ID", tenant);
    call(gateway.addr, stats.bytes()).json()["total_spans"].clone()
}

#[test]
fn whoever_finds_the_door_full_is_told_when_to_come_back_and_nothing_is_lost() {
    let held = Held::start();
    let gateway = &held.gateway;
    std::thread::scope(|scope| {
        let (told, answers) = mpsc::channel();
        let send = |number: usize, tenant: String| {
            let (told, request) = (told.clone(), reported(&tenant, held.batch(number)));
            scope.spawn(move || {
                let answer = answered(gateway, &request);
                told.send((number, tenant, answer)).unwrap();
            });
        };
        let (mut refused, mut number) = (Vec::new(), 0);
        for (at, granted) in GRANTED.iter().enumerate() {
            for _ in 0..=*granted {
                send(number, tenant(at));
                number += 1;
            }
            // All but one have come in, and wait.
            let (which, whose, answer) = answers.recv_timeout(Duration::from_secs(60)).unwrap();
            assert_told(&answer, NO_SHARE);
            assert_eq!(whose, tenant(at));
            refused.push((which, whose));
        }
        assert_eq!(number - refused.len(), 64, "as many as there are places");
        // Somebody who has sent nothing yet finds none either, in whatever encoding and by gRPC.
        let other = tenant(99);
        assert_told(&answered(gateway, &reported(&other, held.batch(999))), NO_SHARE);
        let body = of_resource(&[], &[good(0x900)]);
        let head = format!(
            "POST /v1/traces HTTP/1.1\r\nHost: weir\r\nX-Service-Tenant-ID: {other}\r\nContent-Type: \
             application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let answer = answered(gateway, &[head.as_bytes(), &body].concat());
        assert_eq!((answer.status, answer.header("retry-after").as_deref()), (503, Some("1")));
        // `google.rpc.Status`: code 14, and the message.
        assert_eq!(&answer.body[..3], [0x08, 14, 0x12]);
        assert!(answer.text().contains(NO_SHARE));
        let mut script = grpc::script(gateway, "test_grpc_full.py");
        script.env("TENANT", &other).env("BECAUSE", NO_SHARE).env("GO", held.folder.path().join("go"));
        grpc::run(script);
        // The first of each tenant and this one's: JSON, protobuf, both gRPC services, and a call beside the stream that waits.
        let refusals = refused.len() as f64 + 5.0;
        assert_eq!(dropped(gateway, "full"), refusals);
        // The script has let the others go.
        for _ in 0..64 {
            let (which, whose, answer) = answers.recv_timeout(Duration::from_secs(60)).unwrap();
            assert_eq!((answer.status, answer.text().as_str()), (200, "{}"), "{which} of {whose}");
        }
        for (which, whose) in refused {
            let answer = answered(gateway, &reported(&whose, held.batch(which)));
            assert_eq!((answer.status, answer.text().as_str()), (200, "{}"), "{which} of {whose}, sent again");
        }
        for (at, granted) in GRANTED.iter().enumerate() {
            assert_eq!(kept(gateway, &tenant(at)), json!(granted + 1), "tenant {at}");
        }
        assert_eq!(kept(gateway, &other), json!(2), "what the script sent again");
    });
}

#[test]
fn a_report_for_which_no_memory_is_free_is_refused_with_a_time() {
    let setup = Setup::new(Driver::Auto).unlimited().with(INGEST).server("max_body_memory_bytes: 1048576");
    let gateway = setup.with("grpc: {enabled: true, listen_addr: '127.0.0.1:0'}").start();
    let one = span("00f067aa0ba902b7", &chat("hello", "hi"));
    let fits = request(&json!([one]));
    assert_eq!(call(gateway.addr, post(fits.to_string()).bytes()).status, 200);
    // 50,000 values take 32 bytes each, beside the text.
    let mut many = fits.clone();
    many["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["links"] = json!(vec![1; 50_000]);
    let answer = call(gateway.addr, post(many.to_string()).bytes());
    assert_told(&answer, "no memory is free for this request");
    assert_eq!(dropped(&gateway, "no_memory"), 1.0);
    // A body that does not even fit as it is sent.
    let answer = call(gateway.addr, post(vec![b' '; 2 * 1024 * 1024]).bytes());
    assert_eq!((answer.status, answer.header("retry-after").as_deref()), (503, Some("1")));
    assert_eq!(answer.json()["error"]["type"], "bodies_saturated");
    // Nor do batches by gRPC, of either service.
    grpc::run(grpc::script(&gateway, "test_grpc_memory.py"));
    assert_eq!(dropped(&gateway, "no_memory"), 4.0);
    // Nothing is held any longer.
    let again = span("00f067aa0ba902b8", &chat("hello again", "hi"));
    let taken = eventually("a report fits again", || {
        let answer = call(gateway.addr, post(request(&json!([again])).to_string()).bytes());
        (answer.status == 200).then_some(answer)
    });
    assert_eq!((taken.text().as_str(), gateway.json("/api/v1/stats")["total_spans"].as_u64()), ("{}", Some(4)));
}

#[test]
fn a_report_that_the_store_does_not_take_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("weir.db");
    let setup = Setup::new(Driver::Auto).unlimited().with(INGEST).with("trace_storage_timeout_ms: 300");
    let gateway = setup.storage(&format!("{{database_path: '{}'}}", database.display())).start();
    let body = |id: &str| request(&json!([span(id, &chat("hello", "hi"))])).to_string();
    assert_eq!(call(gateway.addr, post(body("00f067aa0ba902b7")).bytes()).status, 200);
    let Some(read_only) = ReadOnly::make(&database) else { return };
    let late = body("00f067aa0ba902b8");
    let answer = call(gateway.addr, post(late.clone()).bytes());
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(dropped(&gateway, "not_taken") >= 1.0);
    drop(read_only);
    eventually("it is taken then", || (call(gateway.addr, post(late.clone()).bytes()).status == 200).then_some(()));
    assert_eq!(gateway.json("/api/v1/stats")["total_spans"], 2);
}
