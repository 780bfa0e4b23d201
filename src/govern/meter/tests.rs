//! The meter as a whole: what is written on cores and elsewhere is what a strict reader of the exposition finds.

use weir_config::vocab::{Severity, TenantId};

use super::*;

/// A sample line: name with labels, and value.
fn value_of(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Reads the exposition the way a strict scraper does and returns every sample.
fn read_strictly(text: &str) -> Vec<(String, f64)> {
    let mut types = std::collections::BTreeMap::new();
    let mut samples = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type line has a name and a type");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(types.insert(name.to_owned(), kind.to_owned()), None, "{name} is declared twice");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        let name = series.split('{').next().unwrap();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
            let base = name.strip_suffix(suffix)?;
            (types.get(base).map(String::as_str) == Some("histogram")).then_some(base)
        });
        assert!(types.contains_key(base.unwrap_or(name)), "{name} has no type line before it");
        samples.push((series.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}"))));
    }
    let mut names: Vec<_> = samples.iter().map(|(series, _)| series).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "no series appears twice");
    samples
}

/// A model that a tenant of its own names.
fn from_somebody(model: &str, vouched: bool) -> Model<'_> {
    Model { name: Some(model), tenant: TenantId::from_credential(model.as_bytes()), vouched }
}

/// Counts a call by its status, its microseconds in all and of the gateway's own, and its tokens.
fn count<'a>(
    meter: &CoreMeter,
    provider_label: &'static str,
    model: impl Into<Model<'a>>,
    (status, duration_us, overhead_us): (u16, u64, u64),
    (prompt_tokens, completion_tokens): (Option<u64>, Option<u64>),
) {
    let model = model.into();
    meter.request(&Counted {
        provider_label,
        model,
        status,
        duration_us,
        overhead_us,
        prompt_tokens,
        completion_tokens,
    });
}

#[test]
fn two_cores_are_summed_under_the_names_of_the_contract() {
    let registry = Registry::new();
    registry.set_build("0.1.0", "epoll");
    let (one, two) = (registry.core(), registry.core());
    count(&one, "openai", Some("gpt-4o"), (200, 3_000, 20), (Some(7), Some(5)));
    count(&two, "openai", Some("gpt-4o"), (200, 700_000, 30), (Some(3), None));
    count(&two, "anthropic", None, (0, 10, 9_000), (None, None));
    one.finding(Severity::High, "prompt_injection");
    two.finding(Severity::High, "prompt_injection");
    one.detector("rules", 4);
    registry.shared().detector("rules", 40);
    registry.shared().storage("write_trace", true, 64);
    registry.shared().storage("read_traces", false, 1);
    one.dropped("storage", "queue_full");
    registry.shared().dropped("storage", "queue_full", 2);
    one.connections_add(3);
    two.connections_add(2);
    one.connections_add(-1);
    one.upstream_connections_add(UpstreamState::Idle, 2);
    one.panic();
    registry.shared().panic();
    registry.watch_queue(QueueGauge { name: "storage", capacity: 10, depth: Box::new(|| 4) });

    let text = registry.render().unwrap();
    read_strictly(&text);
    for (series, value) in [
        (r#"service_requests_total{provider="openai",model="gpt-4o",status_code="200"}"#, 2.0),
        (r#"service_requests_total{provider="anthropic",model="unknown",status_code="none"}"#, 1.0),
        (r#"service_request_duration_seconds_bucket{provider="openai",model="gpt-4o",le="0.001"}"#, 0.0),
        (r#"service_request_duration_seconds_bucket{provider="openai",model="gpt-4o",le="0.005"}"#, 1.0),
        (r#"service_request_duration_seconds_bucket{provider="openai",model="gpt-4o",le="300"}"#, 2.0),
        (r#"service_request_duration_seconds_bucket{provider="openai",model="gpt-4o",le="+Inf"}"#, 2.0),
        (r#"service_request_duration_seconds_sum{provider="openai",model="gpt-4o"}"#, 0.703),
        (r#"service_request_duration_seconds_count{provider="openai",model="gpt-4o"}"#, 2.0),
        (r#"service_tokens_total{direction="prompt",provider="openai",model="gpt-4o"}"#, 10.0),
        (r#"service_tokens_total{direction="completion",provider="openai",model="gpt-4o"}"#, 5.0),
        (r#"service_security_findings_total{severity="High",finding_type="prompt_injection"}"#, 2.0),
        (r#"service_security_detector_latency_seconds_count{detector="rules"}"#, 2.0),
        (r#"service_security_detector_latency_seconds_sum{detector="rules"}"#, 0.000044),
        (r#"service_storage_operations_total{operation="write_trace",status="success"}"#, 64.0),
        (r#"service_storage_operations_total{operation="read_traces",status="error"}"#, 1.0),
        ("service_active_connections", 4.0),
        (r#"service_upstream_connections{state="idle"}"#, 2.0),
        (r#"service_dropped_total{queue="storage",reason="queue_full"}"#, 3.0),
        (r#"service_queue_depth{queue="storage"}"#, 4.0),
        (r#"service_queue_capacity{queue="storage"}"#, 10.0),
        ("service_panics_total", 2.0),
        ("service_overhead_seconds_count", 3.0),
        (r#"service_overhead_seconds_bucket{le="0.00002"}"#, 1.0),
        (r#"service_build_info{version="0.1.0",io_driver="epoll"}"#, 1.0),
        (r#"service_label_folds_total{label="model"}"#, 0.0),
    ] {
        assert_eq!(value_of(&text, series), Some(value), "{series}\n{text}");
    }
}

#[test]
fn families_have_the_types_of_the_contract() {
    let registry = Registry::new();
    let core = registry.core();
    count(&core, "openai", Some("m"), (200, 1, 1), (Some(1), Some(1)));
    core.finding(Severity::Low, "is_urgent");
    core.detector("pii", 1);
    registry.shared().storage("write_trace", true, 1);
    let text = registry.render().unwrap();
    for line in [
        "# TYPE service_requests_total counter",
        "# TYPE service_request_duration_seconds histogram",
        "# TYPE service_tokens_total counter",
        "# TYPE service_security_findings_total counter",
        "# TYPE service_security_detector_latency_seconds histogram",
        "# TYPE service_storage_operations_total counter",
        "# TYPE service_active_connections gauge",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn malformed_models_are_shown_as_other_and_counted() {
    let registry = Registry::new();
    let core = registry.core();
    let long = "x".repeat(65);
    for model in ["two words", "evil\"} 1\n", "", long.as_str(), "other"] {
        count(&core, "openai", Some(model), (200, 1, 1), (None, None));
    }
    let text = registry.render().unwrap();
    read_strictly(&text);
    assert_eq!(
        value_of(&text, r#"service_requests_total{provider="openai",model="other",status_code="200"}"#),
        Some(5.0)
    );
    assert_eq!(value_of(&text, r#"service_label_folds_total{label="model"}"#), Some(4.0));
}

#[test]
fn one_core_shows_two_hundred_models_and_folds_the_rest() {
    let registry = Registry::new();
    let core = registry.core();
    for round in 0..2 {
        for n in 0..MODELS_MAX + 50 {
            count(&core, "openai", from_somebody(&format!("m{n}"), true), (200, 1, 1), (None, None));
        }
        let text = registry.render().unwrap();
        let models = text.lines().filter(|line| line.starts_with("service_requests_total{")).count();
        assert_eq!(models, MODELS_MAX + 1);
        let folds = value_of(&text, r#"service_label_folds_total{label="model"}"#);
        assert_eq!(folds, Some(50.0 * f64::from(round + 1)));
    }
}

#[test]
fn two_cores_together_show_two_hundred_models_and_no_request_is_lost() {
    let registry = Registry::new();
    let (one, two) = (registry.core(), registry.core());
    for n in 0..MODELS_MAX {
        count(&one, "openai", from_somebody(&format!("one-{n}"), true), (200, 1, 1), (None, None));
        count(&two, "openai", from_somebody(&format!("two-{n}"), true), (200, 1, 1), (None, None));
    }
    for _ in 0..2 {
        let samples = read_strictly(&registry.render().unwrap());
        let requests: Vec<f64> =
            samples.iter().filter(|(name, _)| name.starts_with("service_requests_total{")).map(|(_, n)| *n).collect();
        assert_eq!(requests.len(), MODELS_MAX + 1);
        assert_eq!(requests.iter().sum::<f64>(), 2.0 * MODELS_MAX as f64);
        let folds = samples.iter().find(|(name, _)| name == r#"service_label_folds_total{label="model"}"#).unwrap().1;
        assert_eq!(folds, MODELS_MAX as f64);
    }
}

#[test]
fn a_name_nobody_vouches_for_is_shown_only_where_it_is_known() {
    let registry = Registry::new();
    let core = registry.core();
    count(&core, "openai", from_somebody("junk", false), (404, 1, 1), (None, None));
    count(&core, "openai", from_somebody("own-model", true), (200, 1, 1), (None, None));
    count(&core, "openai", from_somebody("own-model", false), (500, 1, 1), (None, None));
    let text = registry.render().unwrap();
    let count = |model: &str, status: u16| {
        value_of(
            &text,
            &format!(r#"service_requests_total{{provider="openai",model="{model}",status_code="{status}"}}"#),
        )
    };
    assert_eq!((count("other", 404), count("junk", 404)), (Some(1.0), None));
    assert_eq!((count("own-model", 200), count("own-model", 500)), (Some(1.0), Some(1.0)));
}

#[test]
fn one_tenant_leaves_labels_and_series_of_costs_to_the_others() {
    let registry = Registry::new();
    let core = registry.core();
    let [greedy, modest] = ["greedy", "modest"].map(|name| TenantId::from_credential(name.as_bytes()));
    for n in 0..11_000 {
        let name = format!("gpt-4o-{n}");
        count(&core, "openai", Model { name: Some(&name), tenant: greedy, vouched: true }, (200, 1, 1), (None, None));
        core.cost(greedy, Some(&name), 1_000);
    }
    count(&core, "openai", Model { name: Some("mine"), tenant: modest, vouched: true }, (200, 1, 1), (None, None));
    core.cost(modest, Some("mine"), 7_000);
    let text = registry.render().unwrap();
    let served = r#"service_requests_total{provider="openai",model="mine",status_code="200"}"#;
    assert_eq!(value_of(&text, served), Some(1.0));
    assert_eq!(value_of(&text, &format!(r#"service_cost_usd_total{{tenant="{modest}",model="mine"}}"#)), Some(7.0));
    let of_greedy = |line: &&str| line.starts_with(&format!(r#"service_cost_usd_total{{tenant="{greedy}""#));
    assert_eq!(text.lines().filter(of_greedy).count(), 101, "a hundred models and `other`");
}

#[test]
fn tenants_beyond_the_bound_are_counted_as_folded() {
    let registry = Registry::new();
    let core = registry.core();
    for n in 0..TENANTS_MAX + 5 {
        let tenant = TenantId::from_credential(n.to_string().as_bytes());
        core.cost(tenant, Some("gpt-4o"), 2_000);
        core.cost(tenant, Some("gpt-4o"), 2_000);
    }
    let text = registry.render().unwrap();
    assert_eq!(value_of(&text, r#"service_cost_usd_total{tenant="other",model="gpt-4o"}"#), Some(20.0));
    assert_eq!(value_of(&text, r#"service_label_folds_total{label="tenant"}"#), Some(10.0));
}

#[test]
fn statuses_of_one_model_are_bounded() {
    let registry = Registry::new();
    let core = registry.core();
    for status in 100..=999 {
        count(&core, "openai", Some("m"), (status, 1, 1), (None, None));
    }
    let text = registry.render().unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("service_requests_total{")).count(), 41);
    assert_eq!(
        value_of(&text, r#"service_requests_total{provider="openai",model="m",status_code="other"}"#),
        Some(860.0)
    );
}

#[test]
fn a_core_that_ends_takes_its_levels_along_and_leaves_its_counts() {
    let registry = Registry::new();
    let core = registry.core();
    core.connections_add(5);
    count(&core, "openai", Some("m"), (200, 1, 1), (None, None));
    drop(core);
    let text = registry.render().unwrap();
    assert_eq!(value_of(&text, "service_active_connections"), Some(0.0));
    assert_eq!(value_of(&text, r#"service_requests_total{provider="openai",model="m",status_code="200"}"#), Some(1.0));
}

#[test]
fn scrapes_while_cores_write_see_sums_that_never_fall() {
    const EACH: u64 = 20_000;
    let registry = Registry::new();
    let series = r#"service_requests_total{provider="openai",model="m1",status_code="200"}"#;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let core = registry.core();
                scope.spawn(move || {
                    for n in 0..EACH {
                        count(
                            &core,
                            "openai",
                            Some(if n % 2 == 0 { "m0" } else { "m1" }),
                            (200, n, n),
                            (Some(1), None),
                        );
                    }
                })
            })
            .collect();
        let mut last = 0.0;
        while !writers.iter().all(|writer| writer.is_finished()) {
            let now = value_of(&registry.render().unwrap(), series).unwrap_or(0.0);
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    });
    assert_eq!(value_of(&registry.render().unwrap(), series), Some(EACH as f64));
}

/// Prints what one request costs; run with `--ignored --nocapture` in a release build.
#[test]
#[ignore = "a measurement, not a check"]
fn cost_of_one_request() {
    let registry = Registry::new();
    let core = registry.core();
    let models: Vec<String> = (0..8).map(|n| format!("gpt-4o-mini-2024-07-{n:02}")).collect();
    let rounds = 5_000_000_u64;
    let start = std::time::Instant::now();
    for n in 0..rounds {
        let model = &models[(n % 8) as usize];
        count(
            &core,
            "openai",
            Some(std::hint::black_box(model.as_str())),
            (200, n & 0xff_ffff, n & 0xfff),
            (Some(100), Some(20)),
        );
    }
    println!("request(): {:.1} ns", start.elapsed().as_nanos() as f64 / rounds as f64);

    for provider in ["openai", "anthropic", "ollama", "vllm", "tgi"] {
        for n in 0..180 {
            count(&core, provider, Some(format!("m{n}").as_str()), (200, n, n), (Some(1), Some(1)));
        }
    }
    let start = std::time::Instant::now();
    let text = registry.render().unwrap();
    println!("render(): {} lines, {} bytes, {:?}", text.lines().count(), text.len(), start.elapsed());
}
