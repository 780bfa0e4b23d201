//! Every folder of `examples/` works as it stands: its settings are accepted, its script does what its page says.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::clients::{python, run_client};
use crate::coding_agents::packages;
use crate::support::{Call, Driver, Gateway, ServerHandle, Setup, Upstream, call, eventually, provider};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

/// A gateway with the settings of an example before a fake provider: addresses are others, and nothing else is.
fn started(name: &str, replaced: &[(&str, &str)]) -> (Gateway, ServerHandle) {
    let provider = provider();
    let text = std::fs::read_to_string(folder(name).join("service.yaml")).unwrap();
    let kept = text.lines().filter(|line| !line.starts_with("listen_addr:") && !line.starts_with("upstream_url:"));
    let mut settings = kept.collect::<Vec<_>>().join("\n");
    let root = env!("CARGO_MANIFEST_DIR");
    settings = settings.replace("examples/", &format!("{root}/examples/"));
    for (what, with) in replaced {
        assert!(settings.contains(what), "{name} does not say {what}");
        settings = settings.replace(what, if with.is_empty() { provider.url() } else { (*with).to_owned() }.as_str());
    }
    (Setup::new(Driver::Auto).upstream(provider.url()).with(&settings).start(), provider)
}

fn run(name: &str, gateway: &Gateway) -> String {
    let mut script = Command::new("sh");
    run_client(script.arg(folder(name).join("run.sh")).env("WEIR_URL", gateway.url()))
}

#[test]
fn the_official_libraries_of_python_answer_and_leave_traces() {
    for (name, said) in [
        ("openai", ["trace: ", "pieces of the stream: ", "recorded: gpt-4o-mini "].as_slice()),
        ("anthropic", ["text ", "recorded: "].as_slice()),
    ] {
        let (gateway, _provider) = started(name, &[]);
        let mut script = Command::new(python());
        let printed = run_client(script.arg("-B").arg(folder(name).join("ask.py")).env("WEIR_URL", gateway.url()));
        for said in said {
            assert!(printed.contains(said), "{name} does not say `{said}`: {printed}");
        }
    }
}

#[test]
fn the_ai_sdk_answers_in_one_session() {
    let Some(packages) = packages("ai_sdk") else { return };
    let (gateway, _provider) = started("ai-sdk", &[]);
    // Packages are looked for from where the script lies.
    let script = packages.join("example.mjs");
    std::fs::copy(folder("ai-sdk").join("ask.mjs"), &script).unwrap();
    let printed = run_client(Command::new("node").arg(script).env("WEIR_URL", gateway.url()));
    assert!(printed.contains("answer: ") && printed.contains("pieces of the stream: "), "{printed}");
    let of_key = Call::get("/api/v1/sessions").field("Authorization", "Bearer sk-example");
    let sessions = eventually("both calls are in the record", || {
        let sessions = call(gateway.addr, of_key.bytes()).json();
        (sessions["data"][0]["calls"] == 2).then_some(sessions)
    });
    assert_eq!(sessions["total"], 1, "{sessions}");
}

#[test]
fn an_injection_is_refused_and_a_question_is_not() {
    let (gateway, _provider) = started("block", &[]);
    let printed = run("block", &gateway);
    assert!(printed.starts_with("a question: 200\nan injection: 403\nfindings: {"), "{printed}");
    assert!(printed.contains("\"finding_type\":\"prompt_injection\""), "{printed}");
}

#[test]
fn an_agent_without_money_is_refused_and_another_goes_on() {
    let (gateway, _provider) = started("budgets", &[]);
    let printed = run("budgets", &gateway);
    assert!(printed.starts_with("the crawler was refused: 429\nthe writer goes on: 200\n"), "{printed}");
}

#[test]
fn calls_go_where_their_dialect_or_model_belongs() {
    let replaced = [("https://api.anthropic.com", ""), ("http://127.0.0.1:8001", ""), ("http://127.0.0.1:8002", "")];
    let (gateway, _provider) = started("providers", &replaced);
    let printed = run("providers", &gateway);
    for line in [
        "gpt-4o-mini: \"upstream\":\"default\"",
        "claude-sonnet-4-5: \"upstream\":\"anthropic\"",
        "qwen3-coder: \"upstream\":\"vllm-",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
}

#[test]
fn a_rule_of_ones_own_finds_and_an_exception_is_kept_to_its_agent() {
    let (gateway, _provider) = started("own-rules", &[]);
    let printed = run("own-rules", &gateway);
    let (project, course) = printed.split_once("2. the course").unwrap();
    assert!(project.contains("data_leakage") && project.contains("project-name"), "{printed}");
    assert!(course.contains("finding_allowed") && !course.contains("\"prompt_injection\""), "{printed}");
}

#[test]
fn findings_reach_both_channels() {
    let receiver = Upstream::play(|peer| {
        while peer.request().is_some() {
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let slack = format!("{}/slack", receiver.url());
    let hook = format!("{}/hook", receiver.url());
    let replaced = [
        ("https://hooks.slack.com/services/T000/B000/XXXX", slack.as_str()),
        ("https://ops.example/weir", hook.as_str()),
    ];
    let (gateway, _provider) = started("alerts", &replaced);
    let printed = run("alerts", &gateway);
    assert!(printed.contains("\"slack_1\"") && printed.contains("\"webhook_2\""), "{printed}");
}

#[test]
fn a_reported_call_is_recorded_and_priced() {
    let (gateway, _provider) = started("otlp", &[]);
    let mut script = Command::new("python3");
    let printed = run_client(script.arg("-B").arg(folder("otlp").join("report.py")).env("WEIR_URL", gateway.url()));
    assert!(printed.starts_with("recorded: gpt-4o-mini 46 tokens, 0.0000"), "{printed}");
}

#[test]
fn every_example_is_in_the_list_and_has_a_page() {
    let list = std::fs::read_to_string(folder("README.md")).unwrap();
    for entry in std::fs::read_dir(folder("")).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir()) {
        let name = entry.file_name().into_string().unwrap();
        assert!(list.contains(&format!("| [{name}]({name}) |")), "{name} is not in the list");
        assert!(entry.path().join("README.md").exists(), "{name} has no page");
    }
}
