//! Many findings at once, through the feed and a store, to real receivers.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_config::settings::{ActionRouter, AlertChannel, AlertKind, Alerts as AlertSettings};
use weir_config::vocab::{Finding, Severity, SharedSecret, TenantId, Timestamp};
use weir_fake_provider::http::{RequestReader, Step};
use weir_storage::alerts::AlertFilter;
use weir_storage::query::Page;
use weir_storage::{AlertBook, Backend, BatchOutcome, SpanLog, Store, StoreObserver, StoreOptions};

use crate::feed::testing::blank_call as span;
use crate::feed::{Feed, Told};
use crate::meter::Registry;
use crate::outbound::Client;

const COOLDOWN_SECONDS: u64 = 12;
const PATIENCE: Duration = Duration::from_secs(120);
const FINDINGS: usize = 10_000;
const TENANTS: usize = 4;
const TYPES: [&str; 2] = ["jailbreak", "prompt_injection"];

struct Unobserved;

impl StoreObserver for Unobserved {
    fn batch(&self, _: usize, _: Duration, _: BatchOutcome) {}

    fn read(&self, _: &'static str, _: Duration, _: bool) {}
}

/// Takes every message; what it was told.
fn receiver() -> (String, Arc<Mutex<Vec<Value>>>) {
    let (listener, told) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(Mutex::new(Vec::new())));
    let (url, kept) = (format!("http://{}/", listener.local_addr().unwrap()), Arc::clone(&told));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || {
                let (mut reader, mut piece) = (RequestReader::default(), [0; 16 * 1024]);
                loop {
                    match reader.next_step() {
                        Ok(Step::Complete(request)) => {
                            kept.lock().unwrap().push(serde_json::from_slice(&request.body).unwrap());
                            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                        }
                        Ok(Step::SendContinue) => {}
                        Ok(Step::NeedMore) => match stream.read(&mut piece) {
                            Ok(count) if count > 0 => reader.push(&piece[..count]),
                            _ => return,
                        },
                        Err(_) => return,
                    }
                }
            });
        }
    });
    (url, told)
}

fn eventually(what: &str, probe: impl Fn() -> bool) {
    let begun = Instant::now();
    while !probe() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ten_thousand_findings_are_one_message_and_one_summary_per_tenant_type_and_channel() {
    let receivers = [receiver(), receiver()];
    let channel = |url: &String| AlertChannel {
        kind: AlertKind::Webhook,
        url: Some(SharedSecret::new(url.as_str())),
        routing_key: None,
        secret: None,
        min_severity: Severity::High,
        min_security_score: 70,
    };
    let settings = AlertSettings {
        enabled: true,
        cooldown_seconds: COOLDOWN_SECONDS,
        channels: receivers.iter().map(|(url, _)| channel(url)).collect(),
        ..AlertSettings::default()
    };
    let loaded = weir_config::load(&weir_config::Sources::default()).unwrap();
    let client = Client::new(&loaded.settings.egress, None, Duration::from_secs(10)).unwrap();
    let registry = Registry::new();
    let mut feed = Feed::new(client);
    let channels = super::super::add(&mut feed, &settings, &ActionRouter::default(), &registry);
    let inlet = feed.inlet();
    let store = Store::open(StoreOptions {
        erase: weir_storage::Erase::Rows,
        backend: Backend::Memory { max_bytes: 1 << 28 },
        batch_timeout: Duration::from_secs(10),
        queue_items: 65_536,
        queue_bytes: 1 << 28,
        observer: Arc::new(Told { inlet, also: Unobserved }),
        on_writer_start: || {},
        pause: || {},
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    channels.open(Arc::new(store.clone()));
    let log: Arc<dyn SpanLog> = Arc::new(store.clone());
    let running = feed.start(&log, runtime.handle().clone(), &registry);
    running.go();
    let nothing: super::super::Conditions = Arc::new(Vec::new);
    channels.start(runtime.handle(), &nothing);

    let tenants: Vec<TenantId> = (1..=TENANTS).map(|at| TenantId::from_bytes([at as u8; 16])).collect();
    let begun = Instant::now();
    for at in 0..FINDINGS {
        let mut span = span();
        span.tenant_id = tenants[at % TENANTS];
        span.end_time = Timestamp::now();
        span.security_score = Some(80);
        let kind = TYPES[at / TENANTS % TYPES.len()];
        span.security_findings = vec![Finding::new(kind, Severity::High, 0.9, "rules", "A finding")];
        store.append(span).unwrap();
    }
    let listed = || {
        tenants.iter().flat_map(|tenant| {
            let all = Page { limit: 1_000, ..Page::default() };
            store.list_alerts(*tenant, &AlertFilter::default(), all).unwrap().data
        })
    };
    eventually("all are counted", || listed().map(|alert| alert.count).sum::<u64>() == 2 * FINDINGS as u64);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(COOLDOWN_SECONDS), "the machine is too slow to say anything: {took:?}");
    eventually("all is told", || listed().all(|alert| alert.suppressed == 0));
    for (_, told) in &receivers {
        let mut seen: BTreeMap<(String, String, bool), (u64, u64)> = BTreeMap::new();
        for body in told.lock().unwrap().iter() {
            let text = |name: &str| body[name].as_str().unwrap().to_owned();
            let about = (text("tenant_id"), text("finding_type"), body["summary"].as_bool().unwrap());
            let (messages, count) = seen.entry(about).or_default();
            (*messages, *count) = (*messages + 1, *count + body["count"].as_u64().unwrap());
        }
        assert_eq!(seen.len(), TENANTS * TYPES.len() * 2);
        assert!(seen.values().all(|(messages, _)| *messages == 1), "{seen:?}");
        assert_eq!(seen.values().map(|(_, count)| count).sum::<u64>(), FINDINGS as u64);
    }
    println!("{FINDINGS} findings were counted for two channels in {took:?}");
    running.stop(Duration::from_secs(5));
}
