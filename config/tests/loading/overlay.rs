//! The runtime overlay: above the file, below the environment, and never in the way of a start.

use proptest::prelude::*;
use serde_json::json;
use weir_config::settings::EnforcementMode;
use weir_config::{Origin, Settings, catalogue};

use crate::Bench;

const FULL: &str = "analyzer_jailbreak_enabled: false\nenforcement_mode: block\nrate_limiting_enabled: false\n\
                    cost_caps_enabled: true\nllm_advisory_injection_enabled: false\n";

#[test]
fn the_wire_flags_are_those_of_the_interface() {
    let mut flags: Vec<(&str, &str)> =
        catalogue::settings().filter_map(|setting| setting.wire.map(|flag| (flag, setting.path))).collect();
    flags.sort_unstable();
    assert_eq!(
        flags,
        [
            ("analyzer_guard_a_enabled", "security_analysis.guard_a_enabled"),
            ("analyzer_guard_b_enabled", "security_analysis.guard_b_enabled"),
            ("analyzer_jailbreak_enabled", "security_analysis.jailbreak_enabled"),
            ("analyzer_ml_enabled", "security_analysis.ml_enabled"),
            ("boundary_defense_enabled", "boundary_defense.enabled"),
            ("boundary_defense_shadow_mode", "boundary_defense.shadow_mode"),
            ("cost_caps_enabled", "cost_caps.enabled"),
            ("enforcement_mode", "enforcement.mode"),
            ("llm_advisory_injection_enabled", "llm_advisory_injection_enabled"),
            ("llm_judge_enabled", "judge.enabled"),
            ("operating_point", "security_analysis.operating_point"),
            ("over_defence", "security_analysis.over_defence"),
            ("rate_limiting_enabled", "rate_limiting.enabled"),
        ]
    );
}

#[test]
fn the_overlay_beats_the_file() {
    let file = "enforcement: {mode: flag}\nrate_limiting: {enabled: true}\n";
    let loaded = Bench::with_file(file).overlay(FULL).loaded();
    assert_eq!(loaded.settings.enforcement.mode, EnforcementMode::Block);
    assert!(!loaded.settings.rate_limiting.enabled);
    assert!(!loaded.settings.security_analysis.jailbreak_enabled);
    assert!(loaded.settings.cost_caps.enabled);
    assert!(!loaded.settings.llm_advisory_injection_enabled);
    assert_eq!(loaded.origins["enforcement.mode"], Origin::Overlay);
    assert_eq!(loaded.origins["enforcement.min_severity"], Origin::Default);
    assert_eq!(loaded.warnings, Vec::<String>::new());
}

#[test]
fn the_environment_beats_the_overlay() {
    let bench = Bench::new().overlay("analyzer_ml_enabled: true\n").env(&[("SERVICE_ML_ENABLED", "no")]);
    assert_eq!(bench.loaded().origins["security_analysis.ml_enabled"], Origin::Env);
}

#[test]
fn without_a_path_the_overlay_lies_beside_the_file() {
    let bench = Bench::with_file("");
    bench.write("config.runtime.yaml", "enforcement_mode: flag\n");
    let loaded = bench.loaded();
    assert_eq!(loaded.settings.enforcement.mode, EnforcementMode::Flag);
    assert_eq!(loaded.overlay_path, Some(bench.dir.path().join("config.runtime.yaml")));
}

#[test]
fn what_cannot_be_used_is_ignored_with_a_warning_and_the_rest_applies() {
    let bench = Bench::new().overlay(
        "analyzer_regex_enabled: false\nenforcement_mode: b\nrate_limiting_enabled: 'false'\nover_defence: \
         true\nanalyzer_jailbreak_enabled: false\nanalyzer_guard_a_enabled: false\n",
    );
    assert_eq!(
        bench.warnings(),
        [
            "overlay.yaml:1:1: `analyzer_regex_enabled`: unknown flag; ignored",
            "overlay.yaml:2:19: `enforcement_mode`: got \"b\"; accepted: `log`, `block` or `flag`; ignored",
            "overlay.yaml:3:24: `rate_limiting_enabled`: got \"false\"; accepted: true or false; ignored",
        ]
    );
    let mut expected = Settings::default();
    expected.security_analysis.jailbreak_enabled = false;
    expected.security_analysis.over_defence = true;
    assert_eq!(bench.loaded().settings, expected);
}

#[test]
fn an_overlay_that_is_no_map_or_no_file_is_ignored_with_a_warning() {
    assert_eq!(
        Bench::new().overlay("- a").warnings(),
        ["overlay.yaml: the runtime overlay is not a map of flags; ignored"]
    );
    assert_eq!(
        Bench::new().overlay([0xc3, 0x28]).warnings(),
        ["overlay.yaml: the runtime overlay cannot be read: not UTF-8 text; ignored"]
    );
    let mut bench = Bench::new();
    bench.sources.runtime_config = Some(bench.dir.path().join("folder"));
    std::fs::create_dir(bench.dir.path().join("folder")).unwrap();
    assert_eq!(bench.warnings(), ["folder: the runtime overlay cannot be read: Is a directory (os error 21); ignored"]);
}

#[test]
fn an_overlay_cut_at_any_byte_never_stops_a_start_nor_invents_a_value() {
    let whole = |text: &str| text.is_empty() || FULL.lines().any(|line| text.trim_end().ends_with(line));
    for end in 0..=FULL.len() {
        let cut = &FULL[..end];
        let loaded = Bench::new().overlay(cut).loaded();
        assert_eq!(loaded.warnings.is_empty(), whole(cut), "{cut:?}: {:?}", loaded.warnings);

        // A line torn in its key makes the rest unreadable as well; one torn in its value is skipped alone.
        let mut expected = Settings::default();
        if !loaded.warnings.iter().any(|warning| warning.contains("cannot be read as YAML")) {
            expected.security_analysis.jailbreak_enabled = !cut.contains("analyzer_jailbreak_enabled: false");
            expected.rate_limiting.enabled = !cut.contains("rate_limiting_enabled: false");
            expected.cost_caps.enabled = cut.contains("cost_caps_enabled: true");
            expected.llm_advisory_injection_enabled = !cut.contains("llm_advisory_injection_enabled: false");
            if cut.contains("enforcement_mode: block") {
                expected.enforcement.mode = EnforcementMode::Block;
            }
        }
        assert_eq!(loaded.settings, expected, "{cut:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_overlay_stops_a_start(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        Bench::new().overlay(&bytes).loaded();
    }

    #[test]
    fn no_file_makes_loading_panic(text in "[a-z_:{}\\[\\]&*! \\n\"'|>#-]{0,80}") {
        let _first = Bench::with_file(text).load();
    }
}

// === changing flags ===

fn changes(value: serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn flags_show_what_is_in_effect() {
    let loaded = Bench::with_file("enforcement: {mode: flag}\n").overlay("rate_limiting_enabled: false\n").loaded();
    assert_eq!(
        serde_json::Value::Object(loaded.flags()),
        serde_json::json!({
            "analyzer_guard_a_enabled": false,
            "analyzer_guard_b_enabled": false,
            "analyzer_jailbreak_enabled": true,
            "analyzer_ml_enabled": true,
            "boundary_defense_enabled": false,
            "boundary_defense_shadow_mode": false,
            "cost_caps_enabled": false,
            "enforcement_mode": "flag",
            "llm_advisory_injection_enabled": true,
            "llm_judge_enabled": false,
            "operating_point": "balanced",
            "over_defence": false,
            "rate_limiting_enabled": false,
        })
    );
}

#[test]
fn a_change_that_does_not_fit_names_the_flag_and_what_is_accepted() {
    let loaded = Bench::new().loaded();
    for (change, expected) in [
        (serde_json::json!({"analyzer_regex_enabled": false}), "regex detection is always on and has no switch; leave"),
        (serde_json::json!({"enforcement_mod": "log"}), "unknown flag; did you mean `enforcement_mode`?"),
        (serde_json::json!({"x": 1}), "unknown flag; accepted: llm_advisory_injection_enabled, rate_limiting_enabled,"),
        (serde_json::json!({"enforcement_mode": "allow"}), "got \"allow\"; accepted: `log`, `block` or `flag`"),
        (serde_json::json!({"rate_limiting_enabled": "false"}), "got \"false\"; accepted: true or false"),
        (serde_json::json!({"rate_limiting_enabled": null}), "got nothing; accepted: true or false"),
        (serde_json::json!({"rate_limiting_enabled": 1}), "got 1; accepted: true or false"),
        (serde_json::json!({"enforcement_mode": {"a": [1.5]}}), "; accepted: `log`, `block` or `flag`"),
        (serde_json::json!({"llm_judge_enabled": "yes"}), "got \"yes\"; accepted: true or false"),
    ] {
        let faults = loaded.with_flags(&changes(change.clone())).unwrap_err();
        let flag = change.as_object().unwrap().keys().next().unwrap();
        assert_eq!(faults.len(), 1, "{change}");
        let text = faults[0].to_string();
        assert!(text.starts_with(&format!("`{flag}`: ")) && text.contains(expected), "{change}: {text}");
    }
}

#[test]
fn a_flag_pinned_by_the_environment_moves_only_there() {
    let loaded = Bench::new().env(&[("SERVICE_ML_ENABLED", "no")]).loaded();
    assert!(loaded.with_flags(&changes(serde_json::json!({"analyzer_ml_enabled": false}))).is_ok());
    let faults = loaded.with_flags(&changes(serde_json::json!({"analyzer_ml_enabled": true}))).unwrap_err();
    assert_eq!(faults.len(), 1);
}

proptest! {
    /// What was changed at run time is what the next start reads.
    #[test]
    fn the_overlay_written_is_the_overlay_read(
        mode in prop::sample::select(&["log", "block", "flag"][..]),
        rate in any::<bool>(),
        jailbreak in any::<bool>(),
        advisory in any::<bool>(),
    ) {
        let bench = Bench::new();
        let changed = bench.loaded().with_flags(&changes(serde_json::json!({
            "enforcement_mode": mode,
            "rate_limiting_enabled": rate,
            "analyzer_jailbreak_enabled": jailbreak,
            "llm_advisory_injection_enabled": advisory,
            "over_defence": false,
        }))).unwrap();
        let bench = bench.overlay("");
        weir_config::write_overlay(bench.sources.runtime_config.as_ref().unwrap(), &changed.overlay_text()).unwrap();
        let again = bench.loaded();
        prop_assert_eq!(&again.warnings, &Vec::<String>::new());
        prop_assert_eq!(again.settings.clone(), changed.settings.clone());
        prop_assert_eq!(again.flags(), changed.flags());
    }
}

#[test]
fn an_entry_that_beats_the_file_is_named_and_goes_when_the_flag_is_put_back() {
    let bench = Bench::with_file("enforcement: {mode: block}\n")
        .overlay("enforcement_mode: log\nrate_limiting_enabled: false\n");
    let loaded = bench.loaded();
    let said: Vec<String> = loaded.remarks().iter().map(|remark| bench.cut(remark)).collect();
    let undo = |flag: &str, value: &str| {
        format!(
            "to undo it, set the flag `{flag}` to {value} (PUT /api/v1/config/features), or delete its line and restart"
        )
    };
    assert_eq!(
        said,
        [
            format!(
                "`enforcement.mode` is \"log\": the runtime overlay overlay.yaml wins over \"block\" in service.yaml; {}",
                undo("enforcement_mode", "\"block\"")
            ),
            format!(
                "`rate_limiting.enabled` is false: the runtime overlay overlay.yaml wins over the default true; {}",
                undo("rate_limiting_enabled", "true")
            ),
        ]
    );
    let back = json!({ "enforcement_mode": "block", "rate_limiting_enabled": true });
    let back = loaded.with_flags(back.as_object().unwrap()).unwrap();
    assert_eq!(back.overlay_text().lines().filter(|line| !line.starts_with('#')).count(), 0, "{}", back.overlay_text());
    assert_eq!(
        (back.origins["enforcement.mode"], back.origins["rate_limiting.enabled"]),
        (Origin::File, Origin::Default)
    );
    assert_eq!(back.remarks(), Vec::<String>::new());
    // Away and back again.
    let away = back.with_flags(json!({ "enforcement_mode": "flag" }).as_object().unwrap()).unwrap();
    assert!(away.overlay_text().ends_with("\nenforcement_mode: \"flag\"\n"), "{}", away.overlay_text());
}

#[test]
fn an_entry_that_changes_nothing_or_is_beaten_itself_is_not_named() {
    let same = Bench::with_file("enforcement: {mode: flag}\n").overlay("enforcement_mode: flag\n");
    assert_eq!(same.loaded().remarks(), Vec::<String>::new());
    let off = Bench::new().overlay("over_defence: false\n");
    assert_eq!(off.loaded().remarks(), Vec::<String>::new(), "it is off in any case");
}

#[test]
fn a_link_under_the_temporary_name_is_not_written_through() {
    let folder = tempfile::TempDir::new().unwrap();
    let (overlay, victim) = (folder.path().join("config.runtime.yaml"), folder.path().join("victim"));
    std::fs::write(&victim, "precious").unwrap();
    let temporary = folder.path().join(format!(".config.runtime.yaml.{}.tmp", std::process::id()));
    std::os::unix::fs::symlink(&victim, &temporary).unwrap();
    weir_config::write_overlay(&overlay, "enforcement_mode: flag\n").unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert!(std::fs::symlink_metadata(&overlay).unwrap().is_file());
    assert_eq!(std::fs::read_to_string(&overlay).unwrap(), "enforcement_mode: flag\n");
}
