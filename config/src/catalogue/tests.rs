//! The table against itself and against the built-in defaults.

use std::collections::BTreeSet;

use super::*;

#[test]
fn paths_variables_and_flags_are_unique() {
    let mut seen = BTreeSet::new();
    for setting in settings() {
        assert!(seen.insert(setting.path), "{} stands twice", setting.path);
        if let Some((name, _)) = setting.env {
            assert!(seen.insert(name), "{name} stands twice");
        }
    }
    assert_eq!(settings().filter(|setting| setting.wire.is_some()).count(), 13);
}

#[test]
fn no_setting_is_a_section_too() {
    for setting in settings() {
        assert!(!is_section(setting.path), "{}", setting.path);
    }
}

/// Of these it matters that somebody wrote them, also at the default.
const HEARD_WHERE_WRITTEN: [&str; 6] = [
    "security_analysis.ml_threshold",
    "security_analysis.jailbreak_threshold",
    "security_analysis.guard_a_threshold",
    "security_analysis.guard_b_threshold",
    "output_safety.toxicity_threshold",
    "output_safety.hallucination_threshold",
];

#[test]
fn the_defaults_of_the_table_are_those_of_the_settings() {
    for setting in settings().filter(|setting| setting.in_file()) {
        if let Build::Built { set, .. } = setting.build {
            let mut settings = Settings::default();
            assert_eq!(set(&mut settings, &setting.default.to_value()), Ok(()), "{}", setting.path);
            let is_heard = HEARD_WHERE_WRITTEN.contains(&setting.path);
            assert_eq!(settings != Settings::default(), is_heard, "{}", setting.path);
        }
    }
}

#[test]
fn a_setter_refuses_a_value_of_another_type() {
    for setting in settings() {
        if let Build::Built { set, .. } = setting.build {
            assert_eq!(set(&mut Settings::default(), &serde_json::json!([[]])), Err(Unfit), "{}", setting.path);
        }
    }
}

#[test]
fn what_carries_a_credential_is_secret() {
    let mut secrets: Vec<&str> = settings().filter(|setting| setting.secret).map(|setting| setting.path).collect();
    secrets.sort_unstable();
    assert_eq!(
        secrets,
        [
            "action_router.webhook.secret",
            "action_router.webhook.url",
            "alerts.channels",
            "alerts.webhook_url",
            "auth.admin_key",
            "environment.SERVICE_JUDGE_HOSTEDCOMPAT_API_KEY",
            "environment.SERVICE_JUDGE_HOSTEDMESSAGES_API_KEY",
            "otel_export.receivers",
            "siem_export.receivers",
            "storage.analytics_url",
            "storage.cache_url",
            "storage.relational_url",
            "upstream_api_key",
        ]
    );
}

#[test]
fn only_built_settings_carry_words_for_a_person() {
    for setting in settings() {
        assert_eq!(matches!(setting.build, Build::Built { .. }), !setting.doc.is_empty(), "{}", setting.path);
    }
}

#[test]
fn what_must_not_change_while_running_has_no_flag() {
    let fixed = [
        "listen_addr",
        "upstream_url",
        "enable_",
        "tls_",
        "storage.",
        "grpc.",
        "otel_export.",
        "siem_export.",
        "receipts.",
        "otel_ingest.",
        "auth.",
        "shutdown.",
        "server.",
    ];
    for setting in settings().filter(|setting| setting.wire.is_some()) {
        assert!(!fixed.iter().any(|prefix| setting.path.starts_with(prefix)), "{}", setting.path);
    }
}

#[test]
fn names_the_accepted_values_without_those_that_are_not_built() {
    assert_eq!(
        by_path("storage.profile").unwrap().accepted(),
        "`lite`, `memory` or `production` (`sqlite` means `lite`)"
    );
    assert_eq!(by_path("upstream_ca_file").unwrap().accepted(), "a file path, or null");
    assert_eq!(by_wire("enforcement_mode").unwrap().path, "enforcement.mode");
}
