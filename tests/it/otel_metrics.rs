//! Promise: a receiver of `otel_export` with `metrics: true` is sent what a scraper of `/metrics` sees, from the same counters, and the
//! client metrics of the conventions, cumulative; one that fails costs nothing but time. With `tries: true` tries at upstreams are spans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::support::{
    Client, ClosedPort, Driver, OtlpPoint, Setup, Upstream, call, chat_call, eventually, otlp_points, otlp_spans,
    provider, weir,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn setup(upstream: &str, receivers: &str) -> Setup {
    let export = format!("otel_export: {{enabled: true, metrics_interval_seconds: 1, receivers: [{receivers}]}}");
    Setup::new(Driver::Auto).upstream(upstream).unlimited().with(&export)
}

/// The samples of an exposition by their series.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().ok()?))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

/// The samples that a scraper would see of a point.
fn as_samples(point: &OtlpPoint) -> Vec<(String, f64)> {
    let series = |ending: &str, more: Option<String>| {
        let labels = point.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).chain(more);
        let labels = labels.collect::<Vec<_>>().join(",");
        let name = format!("{}{ending}", point.name);
        if labels.is_empty() { name } else { format!("{name}{{{labels}}}") }
    };
    if point.kind != 9 {
        return vec![(series("", None), point.value)];
    }
    let bounds = point.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    let mut seen = 0;
    let buckets = point.buckets.iter().zip(bounds).map(|(count, bound)| {
        seen += count;
        (series("_bucket", Some(format!("le=\"{bound}\""))), seen as f64)
    });
    let mut all: Vec<_> = buckets.collect();
    all.extend([(series("_sum", None), point.value), (series("_count", None), point.count as f64)]);
    all
}

#[test]
fn what_is_sent_is_what_a_scraper_sees() {
    let (provider, receiver) = (provider(), Upstream::always(OK));
    let one =
        format!("{{endpoint: '{0}', metrics: true, metrics_endpoint: '{0}/m', compression: gzip}}", receiver.url());
    let gateway = setup(&provider.url(), &one).start();
    let mut client = Client::connect(gateway.addr);
    for _ in 0..20 {
        client.say(chat_call("What is the capital of France?").bytes());
        assert_eq!(client.answer().status, 200);
    }
    eventually("all are stored", || {
        (gateway.metric("service_storage_operations_total", "") > 0.0
            && gateway.json("/api/v1/spans?limit=20")["data"].as_array()?.len() == 20)
            .then_some(())
    });
    let before = samples(&gateway.metrics());
    // One may have been on its way; the next one was made behind it.
    let all = || receiver.requests().into_iter().filter(|request| request.path == "/m").collect::<Vec<_>>();
    let count = all().len();
    let request = eventually("they are sent", || all().get(count + 1).cloned());
    let after = samples(&gateway.metrics());
    assert_eq!((request.path.as_str(), request.header("content-encoding")), ("/m", Some("gzip")));
    let (points, resource) = otlp_points(&request);
    assert_eq!(resource["service.name"], json!("weir"));
    let sent: BTreeMap<String, f64> =
        points.iter().filter(|point| point.name.starts_with("service_")).flat_map(as_samples).collect();
    let still: Vec<_> = before.iter().filter(|(series, value)| after.get(*series) == Some(value)).collect();
    // Levels of the moment move between a scrape and a request, by the scrape alone.
    let levels: BTreeSet<&str> =
        points.iter().filter(|point| point.kind == 5).map(|point| point.name.as_str()).collect();
    let is_level = |series: &str| levels.contains(series.split('{').next().unwrap_or_default());
    for (series, value) in &still {
        let sent = sent.get(*series).unwrap_or_else(|| panic!("{series} is not sent"));
        let is_equal = (sent - **value).abs() <= 1e-9 * value.abs();
        assert!(is_equal || is_level(series), "{series}: {sent}, scraped {value}");
    }
    let calls =
        still.iter().filter(|(series, _)| series.starts_with("service_requests_total")).map(|(_, value)| **value);
    assert!(still.len() > 100 && calls.sum::<f64>() == 20.0, "{} series stood still", still.len());
    for series in sent.keys() {
        assert!(after.contains_key(series), "{series} is not scraped");
    }
    for point in &points {
        let is_sum = point.kind == 7;
        assert_eq!((point.is_monotonic, point.temporality), (is_sum, if point.kind == 5 { 0 } else { 2 }), "{point:?}");
        assert_eq!(point.start_ns > 0, point.kind != 5, "{point:?}");
        assert!(point.start_ns < point.time_ns);
    }
    let unit = |name: &str| points.iter().find(|point| point.name == name).map(|point| point.unit.as_str());
    assert_eq!(unit("service_request_duration_seconds"), Some("s"));
}

#[test]
fn the_client_metrics_count_tokens_and_seconds_and_name_a_trace() {
    let (provider, receiver, old) = (provider(), Upstream::always(OK), Upstream::always(OK));
    let receivers = format!(
        "{{endpoint: '{}', metrics: true}}, {{endpoint: '{}', metrics: true, semconv: '1.36'}}",
        receiver.url(),
        old.url()
    );
    let gateway = setup(&provider.url(), &receivers).start();
    for _ in 0..3 {
        let request = chat_call("What is the capital of France?")
            .field("traceparent", &format!("00-{TRACE}-00f067aa0ba902b7-01"));
        assert_eq!(call(gateway.addr, request.bytes()).status, 200);
    }
    let found = |receiver: &Upstream, provider_name: &str| {
        eventually("they are counted", || {
            let request = receiver.requests().into_iter().rfind(|request| request.path == "/v1/metrics")?;
            let (points, _) = otlp_points(&request);
            let label = |point: &OtlpPoint, name: &str| {
                point.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
            };
            let of = |name: &str, kind: Option<&str>| {
                let mut own = points.iter().filter(|point| point.name == name);
                own.find(|point| label(point, "gen_ai.token.type").as_deref() == kind).cloned()
            };
            let duration = of("gen_ai.client.operation.duration", None).filter(|point| point.count == 3)?;
            let (input, output) =
                (of("gen_ai.client.token.usage", Some("input"))?, of("gen_ai.client.token.usage", Some("output"))?);
            assert_eq!(label(&duration, provider_name).as_deref(), Some("openai"));
            assert_eq!(label(&duration, "gen_ai.operation.name").as_deref(), Some("chat"));
            Some((duration, input, output))
        })
    };
    let (duration, input, output) = found(&receiver, "gen_ai.provider.name");
    found(&old, "gen_ai.system");
    let records = gateway.json("/api/v1/spans")["data"].as_array().unwrap().clone();
    let sum = |name: &str| records.iter().map(|record| record[name].as_f64().unwrap()).sum::<f64>();
    assert_eq!((input.value, output.value), (sum("prompt_tokens"), sum("completion_tokens")));
    assert!((duration.value * 1e3 - sum("duration_ms")).abs() < 1e-6);
    assert_eq!((duration.unit.as_str(), input.unit.as_str()), ("s", "{token}"));
    let (trace, span) = duration.exemplar.unwrap();
    assert_eq!(trace, TRACE);
    let sent = eventually("the span comes, too", || {
        let all = receiver.requests().into_iter().filter(|request| request.path == "/v1/traces");
        let all: Vec<String> = all.flat_map(|request| otlp_spans(&request)).map(|span| span.id).collect();
        (all.len() == 3).then_some(all)
    });
    assert!(sent.contains(&span));
}

#[test]
fn what_was_counted_since_the_last_request_is_sent_when_the_process_stops() {
    let (provider, receiver) = (provider(), Upstream::always(OK));
    let export = format!(
        "otel_export: {{enabled: true, metrics_interval_seconds: 86400, receivers: [{{endpoint: '{}', metrics: true}}]}}",
        receiver.url()
    );
    let mut gateway = Setup::new(Driver::Auto).upstream(provider.url()).unlimited().with(&export).start();
    let sent = || receiver.requests().into_iter().filter(|request| request.path == "/v1/metrics").collect::<Vec<_>>();
    eventually("the first request comes at once", || (sent().len() == 1).then_some(()));
    for _ in 0..3 {
        assert_eq!(call(gateway.addr, chat_call("What is the capital of France?").bytes()).status, 200);
    }
    gateway.terminate();
    assert!(gateway.wait().success());
    let sent = sent();
    assert_eq!(sent.len(), 2);
    let (points, _) = otlp_points(&sent[1]);
    let durations = points.iter().find(|point| point.name == "gen_ai.client.operation.duration").unwrap();
    assert_eq!(durations.count, 3);
}

#[test]
fn a_receiver_that_fails_gets_all_with_the_next_request_and_is_counted() {
    let asked = AtomicUsize::new(0);
    let receiver = Upstream::play(move |peer| {
        while let Some(request) = peer.request() {
            let first = request.path == "/m" && asked.fetch_add(1, Ordering::SeqCst) == 0;
            peer.say(if first { "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n" } else { OK });
        }
    });
    let provider = provider();
    let one = format!("{{endpoint: '{0}', metrics: true, metrics_endpoint: '{0}/m'}}", receiver.url());
    let gateway = setup(&provider.url(), &one).start();
    assert_eq!(call(gateway.addr, chat_call("Hello").bytes()).status, 200);
    eventually("a later request has the call", || {
        let (points, _) = otlp_points(&receiver.requests().into_iter().rfind(|request| request.path == "/m")?);
        let calls = points.iter().filter(|point| point.name == "service_requests_total").map(|point| point.value);
        (calls.sum::<f64>() == 1.0).then_some(())
    });
    eventually("both outcomes are counted", || {
        let count = |outcome: &str| {
            gateway.metric("service_otel_export_metrics_requests_total", &format!("outcome=\"{outcome}\""))
        };
        (count("failed") == 1.0 && count("sent") >= 1.0).then_some(())
    });
}

#[test]
fn metrics_go_to_nobody_who_may_see_some_tenants_alone_and_grpc_is_refused_by_name() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("service.yaml");
    for (field, says) in [
        ("metrics: true, tenants: [6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10]", "metrics are of all of them"),
        ("protocol: grpc", "OTLP/HTTP, usually 4318"),
    ] {
        let receiver = format!("{{endpoint: 'http://127.0.0.1:4318', {field}}}");
        std::fs::write(&config, format!("otel_export: {{enabled: true, receivers: [{receiver}]}}\n")).unwrap();
        let output = weir(&["check", "--config", config.to_str().unwrap()]).output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(output.status.code() == Some(78) && text.contains(says), "{field}: {text}");
    }
}

#[test]
fn tries_at_upstreams_are_children_of_the_call_where_they_are_wanted() {
    let (provider, gone, with, without) = (provider(), ClosedPort::new(), Upstream::always(OK), Upstream::always(OK));
    let receivers = format!("{{endpoint: '{}', tries: true}}, {{endpoint: '{}'}}", with.url(), without.url());
    let gateway = setup("http://127.0.0.1:1", &receivers)
        .with(&format!("upstreams: {{first: {{url: 'http://{}'}}, second: {{url: '{}'}}}}", gone.addr, provider.url()))
        .with("upstream_groups: {all: {upstreams: [first, second], providers: [openai]}}")
        .start();
    assert_eq!(call(gateway.addr, chat_call("Hello").bytes()).status, 200);
    let spans = |receiver: &Upstream| -> Vec<_> { receiver.requests().iter().flat_map(otlp_spans).collect() };
    let plain = eventually("the span comes", || spans(&without).pop());
    assert_eq!(spans(&without).len(), 1);
    let events = plain.events.iter().filter(|(name, _)| name == "weir.upstream_attempt").count();
    assert!(events > 0, "{plain:?}");
    let all = eventually("it comes with its children", || Some(spans(&with)).filter(|all| !all.is_empty()));
    let (call, tries) = all.split_first().unwrap();
    assert_eq!((&call.id, tries.len()), (&plain.id, events));
    assert!(call.events.iter().all(|(name, _)| name != "weir.upstream_attempt"));
    for tried in tries {
        assert_eq!((&tried.trace, &tried.parent, tried.kind), (&call.trace, &call.id, 3));
        assert!(tried.id != call.id && tried.start_ns <= tried.end_ns);
    }
    let failed = tries.iter().find(|tried| tried.get("weir.upstream") == "first").unwrap();
    assert_eq!((failed.name.as_str(), failed.status), ("try first", 2));
    assert!(failed.get("error.type").is_string());
}
