//! Promise: models and verdicts from outside count like any detector, run on no core, and hold nobody up for longer than they
//! may.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Client, Gateway, Setup, call, chat_call, eventually, on_both_drivers_in_full, provider};

const ANIMAL: &str = "Please write a long and friendly story about the platypus who lived beside the river.";

/// What enforcement may wait for a pool that is stuck, in milliseconds.
const STUCK_LIMIT: u64 = 400;

/// What may come on top of it: much on a machine that is busy with other tests, `WEIR_STUCK_SLACK_MS` on one that is not.
fn slack() -> Duration {
    let named = std::env::var("WEIR_STUCK_SLACK_MS").ok();
    Duration::from_millis(named.map_or(5_000, |text| text.parse().expect("WEIR_STUCK_SLACK_MS in milliseconds")))
}

/// Half of them took so long at most, and all but the slowest.
fn spread(took: &mut [Duration]) -> (Duration, Duration) {
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() - 2])
}

on_both_drivers_in_full! {
    fn a_stuck_pool_holds_enforcement_up_for_its_limit_and_the_data_path_not_at_all(driver) {
        let (provider, folder) = (provider(), tempfile::tempdir().unwrap());
        let text = |turn: usize| format!("Tell me what happened in the year {} to those who lived beside the river.", 1400 + turn);
        let timed = |gateway: &Gateway, turns: std::ops::Range<usize>, status: &str| {
            let mut all = Vec::new();
            for turn in turns {
                let begun = Instant::now();
                let answer = call(gateway.addr, chat_call(&text(turn)).bytes());
                all.push(begun.elapsed());
                let said = answer.header("x-service-analysis").unwrap_or_default();
                assert_eq!((answer.status, &*said), (200, status));
            }
            all
        };
        for mode in ["block", "log"] {
            let settings = format!(
                "enforcement: {{mode: {mode}, timeout_ms: {STUCK_LIMIT}}}\ncircuit_breaker: {{enabled: false}}\n"
            );
            let gateway = Setup::new(driver).upstream(provider.url()).unlimited().with(&settings).guest("toy_faults").start();
            let mut before = timed(&gateway, 0..20, "");
            // As many models that do not answer as there can be threads for.
            let file = |at: usize| folder.path().join(format!("{mode}{at}"));
            let threads = std::thread::available_parallelism().unwrap().get();
            let mut stuck: Vec<Client> = Vec::new();
            for at in 0..threads {
                let mut client = Client::connect(gateway.addr);
                client.say(chat_call(&format!("the model waits for {} and for nothing else", file(at).display())).bytes());
                stuck.push(client);
            }
            let is_stuck = |at: usize| file(at).with_extension("begun").exists();
            eventually("a model is stuck", || (0..threads).any(is_stuck).then_some(()));
            let waits = mode == "block";
            let mut during = timed(&gateway, 20..40, if waits { "skipped;reason=analyzer_timeout" } else { "" });
            let limit = Duration::from_millis(if waits { STUCK_LIMIT } else { 0 });
            assert!(during.iter().all(|took| *took >= limit && *took < limit + slack()), "{during:?}");
            println!("{mode}: before {:?}, with a stuck pool {:?} (middle, slowest but one)", spread(&mut before), spread(&mut during));
            (0..threads).for_each(|at| std::fs::write(file(at), "").unwrap());
            stuck.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
        }
    }

    fn a_model_is_heard_before_a_request_is_forwarded(driver) {
        let provider = provider();
        let block = "enforcement: {mode: block}";
        let gateway = Setup::new(driver).upstream(provider.url()).with(block).guest("toy_model").start();
        let harmless = call(gateway.addr, chat_call("What is the capital of France, and how old is that town?").bytes());
        assert_eq!(harmless.status, 200);
        assert_eq!(gateway.span_of(&harmless)["security_score"], 0);
        let long = format!("{ANIMAL} {}", "The river was long. ".repeat(4_000));
        for (seen, text) in (1..).zip([ANIMAL, &long, ANIMAL]) {
            let blocked = call(gateway.addr, chat_call(text).bytes());
            assert_eq!(blocked.status, 403, "{}", blocked.text());
            let span = gateway.span_of(&blocked);
            let findings = span["security_findings"].as_array().unwrap();
            assert!(findings.iter().all(|finding| finding["finding_type"] != "ran_on_a_core"), "{span}");
            let found = findings.iter().find(|finding| finding["detector"] == "classifier").unwrap();
            assert_eq!((&found["evidence"], &found["location"]), (&"platypus".into(), &"request.messages[0].content".into()));
            assert!(span["detectors"].as_array().unwrap().contains(&"classifier".into()), "{span}");
            let series = "service_security_detector_latency_seconds_count";
            let timed = || gateway.metric(series, r#"detector="classifier""#) >= f64::from(seen);
            eventually("each look is timed", || timed().then_some(()));
        }
        assert_eq!(provider.requests_seen(), 1);
    }

    fn only_full_depth_waits_for_a_model_and_fast_has_what_it_said_in_the_record(driver) {
        let (provider, folder) = (provider(), tempfile::tempdir().unwrap());
        let depth = |depth: &str| {
            let block = format!("enforcement: {{mode: block, timeout_ms: 60000, analysis_depth: {depth}}}");
            Setup::new(driver).upstream(provider.url()).with(&block).guest("toy_faults").start()
        };
        // Nothing but the file lets the model go on.
        let text = |file: &Path| format!("the model waits for {} and says that it is guilty", file.display());
        let (fast, file) = (depth("fast"), folder.path().join("fast"));
        let answer = call(fast.addr, chat_call(&text(&file)).bytes());
        assert_eq!((answer.status, answer.header("x-service-analysis")), (200, None), "it is forwarded while the model thinks");
        eventually("the model looks at it", || file.with_extension("begun").exists().then_some(()));
        std::fs::write(&file, "").unwrap();
        let span = fast.span_of(&answer);
        let found = span["security_findings"].as_array().unwrap().iter().any(|found| found["detector"] == "classifier");
        assert!(found && span["security_score"].as_u64() >= Some(60) && span["enforcement"] == "none", "{span}");
        assert_eq!(provider.requests_seen(), 1);
        let (full, file) = (depth("full"), folder.path().join("full"));
        let mut waiting = Client::connect(full.addr);
        waiting.say(chat_call(&text(&file)).bytes());
        eventually("the model looks at it", || file.with_extension("begun").exists().then_some(()));
        waiting.assert_silent(Duration::from_millis(200));
        std::fs::write(&file, "").unwrap();
        let answer = waiting.answer();
        assert_eq!((answer.status, provider.requests_seen()), (403, 1), "{}", answer.text());
        assert_eq!(full.span_of(&answer)["enforcement"], "blocked");
        // What both cost where a real model is asked: the embedded one.
        for depth in ["fast", "full"] {
            let settings = format!("enforcement: {{mode: block, analysis_depth: {depth}}}\nsecurity_analysis: {{ml_enabled: true}}");
            let gateway = Setup::new(driver).upstream(provider.url()).unlimited().with(&settings).start();
            let mut added: Vec<u64> = (0..40)
                .map(|turn| {
                    let words = format!("Tell me what happened in the year {} to the people who lived beside the river.", 1400 + turn);
                    gateway.span_of(&call(gateway.addr, chat_call(&words).bytes()))["overhead_us"].as_u64().unwrap()
                })
                .collect();
            added.sort_unstable();
            println!("analysis_depth {depth}: added p50 {} us, p95 {} us", added[20], added[38]);
        }
    }

    fn a_model_looks_at_what_was_forwarded_before_it_is_recorded(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).guest("toy_model").start();
        for text in [ANIMAL.to_owned(), format!("{ANIMAL} {}", "The river was long. ".repeat(4_000))] {
            let answer = call(gateway.addr, chat_call(&text).bytes());
            assert_eq!(answer.status, 200);
            let span = gateway.span_of(&answer);
            assert!(span["security_score"].as_u64() >= Some(60), "{span}");
            assert!(span["security_findings"].to_string().contains("platypus"), "{span}");
            assert!(!span["security_findings"].to_string().contains("ran_on_a_core"), "{span}");
        }
    }

    fn what_a_model_cannot_say_in_time_is_said_and_the_request_goes_on(driver) {
        let provider = provider();
        // Long enough for the first text of a process, whose patterns are compiled, to come to the model.
        let block = "enforcement: {mode: block, timeout_ms: 4000}";
        let one = "core_threads: 1";
        let gateway = Setup::new(driver).upstream(provider.url()).with(block).server(one).guest("toy_model").start();
        let folder = tempfile::TempDir::new().unwrap();
        let end = folder.path().join("end");
        let mut waiting = Client::connect(gateway.addr);
        waiting.say(chat_call(&format!("Dear model, think until there is {}", end.display())).bytes());
        eventually("the model thinks", || folder.path().join("end.begun").exists().then_some(()));
        // It goes on thinking until the end of this test: were the core held, this would get no answer.
        let path = crate::support::Call::get("/livez").bytes();
        assert_eq!(call(gateway.addr, path).status, 200);
        let answer = waiting.answer();
        assert_eq!((answer.status, answer.header("x-service-analysis").as_deref()), (200, Some("skipped;reason=analyzer_timeout")));
        std::fs::write(end, "").unwrap();
    }

    fn a_verdict_from_outside_is_awaited_and_joins_the_decision(driver) {
        let provider = provider();
        let block = "enforcement: {mode: block}";
        let gateway = Setup::new(driver).upstream(provider.url()).with(block).guest("toy_verdict").start();
        let innocent = call(gateway.addr, chat_call("A case for the judge: somebody walks by the river.").bytes());
        assert_eq!(innocent.status, 200);
        assert!(gateway.span_of(&innocent)["detectors"].as_array().unwrap().contains(&"judge".into()));
        let guilty = call(gateway.addr, chat_call("A case for the judge: somebody is guilty.").bytes());
        assert_eq!(guilty.status, 403, "{}", guilty.text());
        let span = gateway.span_of(&guilty);
        assert!(span["security_findings"].to_string().contains("The toy judge finds it guilty"), "{span}");
        assert_eq!((&span["enforcement"], span["security_score"].as_u64() >= Some(60)), (&"blocked".into(), true));
        let unasked = call(gateway.addr, chat_call("Nothing for anybody else to look at.").bytes());
        assert!(!gateway.span_of(&unasked)["detectors"].as_array().unwrap().contains(&"judge".into()));
        assert_eq!(provider.requests_seen(), 2);
    }

    fn a_slow_verdict_keeps_the_first_decision_and_holds_no_core(driver) {
        let provider = provider();
        let block = "enforcement: {mode: block}";
        let one = "core_threads: 1";
        let gateway = Setup::new(driver).upstream(provider.url()).with(block).server(one).guest("toy_verdict").start();
        let begun = Instant::now();
        let mut waiting = Client::connect(gateway.addr);
        waiting.say(chat_call("A case for the slow judge: somebody is guilty.").bytes());
        std::thread::sleep(Duration::from_millis(100));
        let other = call(gateway.addr, chat_call("Nothing for anybody else to look at.").bytes());
        assert_eq!(other.status, 200);
        assert!(begun.elapsed() < Duration::from_millis(1_400), "it is served meanwhile: {:?}", begun.elapsed());
        let answer = waiting.answer();
        let took = begun.elapsed();
        assert_eq!(answer.status, 200);
        assert!(took >= Duration::from_millis(1_500) && took < Duration::from_secs(8), "{took:?}");
        let span = gateway.span_of(&answer);
        assert!(span["events"].to_string().contains("verdict_timeout"), "{span}");
        assert_eq!(span["enforcement"], "none");
    }
}
