//! The shipped example file is complete and true.

use weir_config::catalogue::{self, Build};
use weir_config::settings::{
    GUARD_THRESHOLD, HALLUCINATION_THRESHOLD, JAILBREAK_THRESHOLD, ML_THRESHOLD, TOXICITY_THRESHOLD,
};
use weir_config::{Origin, Settings};

use crate::Bench;

const EXAMPLE: &str = include_str!("../../service.example.yaml");

/// The example with every setting switched on: `#key: value` lines lose their `#`, prose begins with `# `.
fn uncommented() -> String {
    let line = |line: &str| {
        let body = line.trim_start();
        let indent = &line[..line.len() - body.len()];
        match body.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') && !setting.is_empty() => format!("{indent}{setting}\n"),
            _ => format!("{line}\n"),
        }
    };
    EXAMPLE.lines().map(line).collect()
}

#[test]
fn the_example_as_shipped_is_the_default_configuration() {
    let loaded = Bench::with_file(EXAMPLE).loaded();
    assert_eq!(loaded.settings, Settings::default());
    assert_eq!(loaded.warnings, Vec::<String>::new());
}

#[test]
fn the_example_names_every_built_setting_with_its_default_and_no_other() {
    let loaded = Bench::with_file(uncommented()).loaded();
    let mut expected = Settings::default();
    // Of these it matters that somebody wrote them.
    expected.security_analysis.ml_threshold = Some(ML_THRESHOLD);
    expected.security_analysis.jailbreak_threshold = Some(JAILBREAK_THRESHOLD);
    expected.security_analysis.guard_a.threshold = Some(GUARD_THRESHOLD);
    expected.security_analysis.guard_b.threshold = Some(GUARD_THRESHOLD);
    expected.toxicity.threshold = Some(TOXICITY_THRESHOLD);
    expected.hallucination.threshold = Some(HALLUCINATION_THRESHOLD);
    assert_eq!(loaded.settings, expected);
    for setting in catalogue::settings().filter(|setting| setting.in_file()) {
        let expected = if matches!(setting.build, Build::Built { .. }) { Origin::File } else { Origin::Default };
        assert_eq!(loaded.origins[setting.path], expected, "{}", setting.path);
    }
}

#[test]
fn the_example_explains_every_setting_in_the_words_of_the_table() {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let prose: String = EXAMPLE
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("# "))
        .map(|line| format!("{line} "))
        .collect();
    let prose = squeezed(&prose);
    for setting in catalogue::settings().filter(|setting| setting.in_file()) {
        if matches!(setting.build, Build::Built { .. }) {
            assert!(prose.contains(&squeezed(setting.doc)), "{}: {}", setting.path, setting.doc);
        }
    }
}

/// The one for coding agents is read as it stands, and sets nothing that is refused or doubted.
#[test]
fn the_example_for_coding_agents_is_usable_and_sets_what_they_need() {
    let loaded = Bench::with_file(include_str!("../../agents.example.yaml")).loaded();
    assert_eq!(loaded.warnings, [""; 0]);
    assert_eq!(loaded.remarks(), [""; 0]);
    assert!(loaded.settings.limits.timeout_ms >= 600_000, "models think for minutes");
    assert_eq!(loaded.settings.websocket, Some(weir_config::settings::WebSocket::Deny));
    assert!(loaded.settings.enforcement.retrying_clients.iter().any(|client| client == "claude-cli"));
}
