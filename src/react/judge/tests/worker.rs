//! The worker against scripted backends: every label it counts under, and what becomes of verdicts.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use weir_config::vocab::{Finding, Severity, TenantId};

use super::super::gate::{Gate, Held, Passage};
use super::super::worker::{CaseQueue, Options, Worker};
use super::*;
use crate::meter::Registry;

const PATIENCE: Duration = Duration::from_secs(30);
const OPTIONS: Options = Options {
    queue: 10,
    at_once: 2,
    min_score: 30,
    gate: Gate { min_confidence: 0.7, min_security_score: 60, require_ensemble_support: true, shadow: false },
};

/// A worker, what it counts, and where it runs.
struct Bench {
    runtime: Runtime,
    registry: Registry,
    worker: Worker,
    cases: CaseQueue,
    open: Arc<AtomicBool>,
}

impl Bench {
    fn new(judge: Judge, options: Options) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let open = Arc::new(AtomicBool::new(true));
        let is_open = Arc::clone(&open);
        let mut worker = Worker::new(judge, options, Arc::new(move || is_open.load(Ordering::Relaxed)));
        worker.start(runtime.handle());
        let (registry, cases) = (Registry::new(), worker.cases());
        registry.add_source(worker.source());
        Self { runtime, registry, worker, cases, open }
    }

    fn hear(&self, told: oneshot::Receiver<Ruling>) -> Option<Ruling> {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, told).await.unwrap().ok() })
    }

    fn rule(&self, case: Case) -> Option<Ruling> {
        self.hear(self.cases.submit(case).unwrap())
    }

    /// The value of the sample of `family` that has these labels.
    fn count(&self, family: &str, labels: &[(&str, &str)]) -> f64 {
        count(&self.registry, family, labels)
    }
}

fn count(registry: &Registry, family: &str, labels: &[(&str, &str)]) -> f64 {
    let text = registry.render().unwrap();
    let fits = |line: &&str| {
        line.strip_prefix(family).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|(name, value)| line.contains(&format!("{name}=\"{value}\"")))
    };
    text.lines().filter(fits).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

fn case(text: &str, mode: Mode) -> Case {
    let prior = vec![Finding::new("prompt_injection", Severity::High, 0.9, "rules", "x")];
    let candidate = Candidate::choose(&[(PartKind::User, text)], &[], 65_536);
    Case { tenant: TenantId::DEFAULT, candidate, prior, blocked: false, mode }
}

fn always(text: String) -> Scripted {
    Scripted::new(move |_, _, stream| answer(stream, "200 OK", "", &said("selfhosted", &text)))
}

#[test]
fn a_verdict_is_ruled_on_counted_and_remembered() {
    let scripted = always(VERDICT.to_owned());
    let bench = Bench::new(judge(scripted.addr, patient("selfhosted"), false), OPTIONS);
    let ruling = bench.rule(case(PLEASE, Mode::Inline)).unwrap();
    assert_eq!((ruling.verdict.security_score, ruling.passage), (85, Passage::Promoted));
    let finding = ruling.finding();
    let known = (finding.finding_type.as_ref(), finding.severity, finding.detector.as_ref());
    assert_eq!(known, ("llm_judge_verdict", Severity::High, "judge"));
    // The same text comes back with the next turn.
    let again = bench.rule(case(PLEASE, Mode::Async)).unwrap();
    assert_eq!((again.verdict, again.passage, again.tokens), (ruling.verdict, ruling.passage, (0, 0)));
    assert_eq!(scripted.seen().len(), 1);
    let other = Case { tenant: TenantId::from_bytes([7; 16]), ..case(PLEASE, Mode::Async) };
    assert!(bench.rule(other).is_some());
    assert_eq!(scripted.seen().len(), 2, "what is known of one tenant's text is unknown of another's");
    let own = [("backend", "selfhosted"), ("model", "judge")];
    for mode in ["inline", "async"] {
        let labels = [own[0], own[1], ("mode", mode), ("status", "success")];
        assert_eq!(bench.count("service_judge_requests_total", &labels), 1.0);
        assert_eq!(bench.count("service_judge_latency_seconds_count", &[own[0], own[1], ("mode", mode)]), 1.0);
    }
    for (direction, tokens) in [("prompt", 1_800.0), ("completion", 100.0)] {
        assert_eq!(bench.count("service_judge_tokens_total", &[own[0], own[1], ("direction", direction)]), tokens);
    }
    let verdict =
        [("category", "jailbreak"), ("recommended_action", "block"), ("is_threat", "true"), ("model", "judge")];
    assert_eq!(bench.count("service_judge_verdicts_total", &verdict), 3.0);
    assert_eq!(bench.count("service_judge_verdict_agreement", &[("agreement", "disagree_block")]), 3.0);
    assert_eq!(bench.count("service_judge_cache_hits_total", &[]), 1.0);
    assert_eq!(bench.count("service_judge_queue_depth", &[]), 0.0);
}

#[test]
fn the_gate_holds_back_with_each_of_its_reasons_and_shadow_only_counts() {
    let verdicts = [
        (VERDICT.replace("block", "flag"), Held::NotThreatOrBlock),
        (VERDICT.replace("0.9", "0.6"), Held::BelowConfidence),
        (VERDICT.replace("85", "59"), Held::BelowScore),
        (VERDICT.to_owned(), Held::NoEnsembleSupport),
    ];
    for (text, why) in verdicts {
        let bench =
            Bench::new(judge(always(text).addr, patient("selfhosted"), false), Options { min_score: 0, ..OPTIONS });
        let mut case = case(PLEASE, Mode::Inline);
        if why == Held::NoEnsembleSupport {
            case.prior.clear();
        }
        let ruling = bench.rule(case).unwrap();
        assert_eq!(ruling.passage, Passage::Held(why));
        assert_eq!(ruling.finding().severity, Severity::Medium, "what is held back does not act");
        assert_eq!(bench.count("service_judge_promotion_rejected_total", &[("reason", why.as_str())]), 1.0);
        assert_eq!(bench.count("service_judge_promotion_rejected_total", &[]), 1.0);
    }
    let options = Options { gate: Gate { shadow: true, ..OPTIONS.gate }, ..OPTIONS };
    let bench = Bench::new(judge(always(VERDICT.to_owned()).addr, patient("selfhosted"), false), options);
    assert_eq!(bench.rule(case(PLEASE, Mode::Inline)).unwrap().passage, Passage::Shadow);
    let labels = [("category", "jailbreak"), ("recommended_action", "block")];
    assert_eq!(bench.count("service_judge_shadow_would_block_total", &labels), 1.0);
}

#[test]
fn every_verdict_is_counted_with_what_it_says_and_whether_the_detectors_said_the_same() {
    let scripted = Scripted::new(|_, body, stream| {
        let about = candidate_of(body);
        let mut words = about.split(' ');
        let verdict = json!({
            "category": words.next(),
            "recommended_action": words.next(),
            "is_threat": !about.contains("allow"),
            "confidence": 0.9,
            "security_score": 85,
            "reasoning": "As it was told.",
        });
        answer(stream, "200 OK", "", &said("selfhosted", &verdict.to_string()));
    });
    let bench = Bench::new(judge(scripted.addr, patient("selfhosted"), false), OPTIONS);
    let categories = ["prompt_injection", "jailbreak", "data_exfiltration", "policy_violation", "benign", "other"];
    for category in categories {
        for action in ["allow", "flag", "block"] {
            for blocked in [true, false] {
                let case = case(&format!("{category} {action} {blocked}"), Mode::Async);
                assert!(bench.rule(Case { blocked, ..case }).is_some(), "{category} {action}");
            }
            let is_threat = if action == "allow" { "false" } else { "true" };
            let labels = [("category", category), ("recommended_action", action), ("is_threat", is_threat)];
            assert_eq!(bench.count("service_judge_verdicts_total", &labels), 2.0, "{labels:?}");
        }
    }
    let agreed = |label: &str| bench.count("service_judge_verdict_agreement", &[("agreement", label)]);
    let of_all = ["agree_block", "disagree_block", "disagree_allow", "agree_allow"].map(agreed);
    // Six categories; who would only flag does not block.
    assert_eq!(of_all, [6.0, 6.0, 12.0, 12.0]);
}

#[test]
fn every_failure_is_counted_under_its_status_in_both_modes() {
    for mode in [Mode::Inline, Mode::Async] {
        let failed = |judge: Judge, backend: &str, status: &str| {
            let bench = Bench::new(judge, OPTIONS);
            assert_eq!(bench.rule(case(PLEASE, mode)), None, "{status}");
            let labels = [("backend", backend), ("mode", mode.as_str()), ("status", status)];
            assert_eq!(bench.count("service_judge_requests_total", &labels), 1.0, "{status}");
            assert_eq!(bench.count("service_judge_verdicts_total", &[]), 0.0);
        };
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        failed(judge(closed, patient("selfhosted"), false), "selfhosted", "transport_error");
        failed(judge(closed, patient("hostedcompat"), false), "hostedcompat", "misconfigured");
        let garbage = always("garbage".to_owned());
        failed(judge(garbage.addr, patient("selfhosted"), false), "selfhosted", "parse_error");
        let angry = Scripted::new(|_, _, stream| answer(stream, "403 Forbidden", "", "{}"));
        failed(judge(angry.addr, patient("selfhosted"), false), "selfhosted", "backend_error");
        let silent = Scripted::new(|_, _, _| std::thread::sleep(Duration::from_secs(2)));
        failed(judge(silent.addr, hasty("selfhosted"), false), "selfhosted", "timeout");
    }
}

#[test]
fn what_is_turned_away_is_counted_with_its_reason() {
    let scripted = Scripted::new(|_, _, stream| {
        std::thread::sleep(Duration::from_secs(60));
        drop(stream.shutdown(std::net::Shutdown::Both));
    });
    let options = Options { queue: 2, at_once: 1, ..OPTIONS };
    let bench = Bench::new(judge(scripted.addr, patient("selfhosted"), false), options);
    let dropped = |reason: &str| bench.count("service_judge_dropped_total", &[("reason", reason)]);
    bench.open.store(false, Ordering::Relaxed);
    assert!(bench.cases.submit(case(PLEASE, Mode::Async)).is_none());
    bench.open.store(true, Ordering::Relaxed);
    let harmless = Case { prior: Vec::new(), ..case(PLEASE, Mode::Async) };
    assert!(bench.cases.submit(harmless).is_none());
    assert_eq!((dropped("disabled"), dropped("below_threshold")), (1.0, 1.0));
    // One is asked, one waits for its place, one behind that, and the next is one too many.
    let mut cut = case("first", Mode::Inline);
    cut.candidate.truncated = true;
    let asked = bench.cases.submit(cut).unwrap();
    let begun = std::time::Instant::now();
    while scripted.seen().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "the backend is asked");
        std::thread::yield_now();
    }
    let second = bench.cases.submit(case("second", Mode::Async)).unwrap();
    let waiting = ["third"].map(|text| bench.cases.submit(case(text, Mode::Async)).unwrap());
    assert_eq!(bench.count("service_judge_queue_depth", &[]), 2.0);
    let begun = std::time::Instant::now();
    assert!(bench.cases.submit(case("fifth", Mode::Inline)).is_none());
    assert!(begun.elapsed() < PATIENCE, "nobody waits at a full queue");
    assert_eq!((dropped("channel_full"), dropped("analysis_text_truncated")), (1.0, 1.0));
    let Bench { runtime, registry, worker, cases, .. } = bench;
    runtime.block_on(async { tokio::time::timeout(PATIENCE, worker.stop()).await.unwrap() });
    assert!(cases.submit(case("sixth", Mode::Async)).is_none());
    let dropped = |reason: &str| count(&registry, "service_judge_dropped_total", &[("reason", reason)]);
    assert_eq!((dropped("shutdown"), dropped("semaphore_closed"), dropped("channel_closed")), (1.0, 1.0, 1.0));
    let labels = [("mode", "inline"), ("status", "shutdown")];
    assert_eq!(count(&registry, "service_judge_requests_total", &labels), 1.0);
    for told in waiting.into_iter().chain([asked, second]) {
        assert!(runtime.block_on(told).is_err(), "nobody waits for ever");
    }
}
