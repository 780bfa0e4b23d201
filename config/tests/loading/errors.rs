//! The exact words of every refusal.

use crate::Bench;

/// Text of the file, and the lines it is refused with.
fn refused(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        let errors = Bench::with_file(text).errors();
        assert_eq!(errors, *expected, "{text}");
    }
}

#[test]
fn limits_that_have_to_be_positive() {
    let bytes = ["max_request_size_bytes", "max_response_size_bytes"];
    for (name, default) in bytes.iter().map(|name| (name, 52_428_800)) {
        let expected = format!(
            "service.yaml:1:{}: `{name}`: got 0; accepted: a whole number, at least 1; correct it, or remove it for \
             the default {default}",
            name.len() + 3
        );
        assert_eq!(Bench::with_file(format!("{name}: 0")).errors(), [expected]);
    }
    let timers = [
        ("timeout_ms", 30_000),
        ("stream_idle_timeout_ms", 300_000),
        ("connection_timeout_ms", 5_000),
        ("security_analysis_timeout_ms", 5_000),
        ("trace_storage_timeout_ms", 10_000),
    ];
    for (name, default) in timers {
        let expected = format!(
            "service.yaml:1:{}: `{name}`: got 0; accepted: a whole number from 1 to 31536000000; correct it, or \
             remove it for the default {default}",
            name.len() + 3
        );
        assert_eq!(Bench::with_file(format!("{name}: 0")).errors(), [expected]);
    }
}

#[test]
fn counts_that_have_to_be_at_least_one() {
    refused(&[
        (
            "max_connections: 0",
            &["service.yaml:1:18: `max_connections`: got 0; accepted: a whole number from 1 to 4294967295; correct \
               it, or remove it for the default 1000"],
        ),
        (
            "rate_limiting:\n  requests_per_second: 0\n  burst_size: -1\n  window_seconds: 4294967296\n",
            &[
                "service.yaml:2:24: `rate_limiting.requests_per_second`: got 0; accepted: a whole number from 1 to \
                 4294967295; correct it, or remove it for the default 100",
                "service.yaml:3:15: `rate_limiting.burst_size`: got -1; accepted: a whole number from 1 to \
                 4294967295; correct it, or remove it for the default 200",
                "service.yaml:4:19: `rate_limiting.window_seconds`: got 4294967296; accepted: a whole number from 1 \
                 to 4294967295; correct it, or remove it for the default 60",
            ],
        ),
        (
            "security_analysis: {max_analysis_text_bytes: 0}",
            &["service.yaml:1:46: `security_analysis.max_analysis_text_bytes`: got 0; accepted: a whole number, at \
               least 1; correct it, or remove it for the default 1048576"],
        ),
        (
            "circuit_breaker: {half_open_max_calls: 0}",
            &["service.yaml:1:40: `circuit_breaker.half_open_max_calls`: got 0; accepted: a whole number from 1 to \
               4294967295; correct it, or remove it for the default 3"],
        ),
    ]);
}

#[test]
fn enforcement_values() {
    refused(&[
        (
            "enforcement:\n  min_confidence: 1.01\n",
            &["service.yaml:2:19: `enforcement.min_confidence`: got 1.01; accepted: a number from 0.0 to 1.0; \
               correct it, or remove it for the default 0.8"],
        ),
        (
            "enforcement:\n  min_confidence: .nan\n",
            &["service.yaml:2:19: `enforcement.min_confidence`: got NaN; accepted: a number from 0.0 to 1.0; \
               correct it, or remove it for the default 0.8"],
        ),
        (
            "enforcement:\n  mode: blok\n  min_severity: high\n  analysis_depth: deep\n  timeout_ms: 0\n",
            &[
                "service.yaml:2:9: `enforcement.mode`: got \"blok\" (did you mean `block`?); accepted: `log`, \
                 `block` or `flag`; correct it, or remove it for the default \"log\"",
                "service.yaml:3:17: `enforcement.min_severity`: got \"high\" (did you mean `High`?); accepted: \
                 `Info`, `Low`, `Medium`, `High` or `Critical`; correct it, or remove it for the default \"High\"",
                "service.yaml:4:19: `enforcement.analysis_depth`: got \"deep\"; accepted: `fast` or `full`; correct \
                 it, or remove it for the default \"full\"",
                "service.yaml:5:15: `enforcement.timeout_ms`: got 0; accepted: a whole number from 1 to 31536000000; \
                 correct it, or remove it for the default 5000",
            ],
        ),
    ]);
}

#[test]
fn entries_of_lists_and_maps() {
    refused(&[
        (
            "enforcement:\n  categories:\n    - {finding_type: jailbreak, action: refuse}\n    - {action: flag}\n    \
             - {finding_type: '', actoin: flag}\n    - jailbreak\n",
            &[
                "service.yaml:3:41: `enforcement.categories[0].action`: got \"refuse\"; accepted: `block` or `flag`; \
                 correct it",
                "service.yaml:4:7: `enforcement.categories[1]`: `finding_type` is missing; accepted: text that is \
                 not empty; add it",
                "service.yaml:5:22: `enforcement.categories[2].finding_type`: got \"\"; accepted: text that is not \
                 empty; correct it",
                "service.yaml:5:26: `enforcement.categories[2].actoin`: unknown field; did you mean `action`?",
                "service.yaml:5:7: `enforcement.categories[2]`: `action` is missing; accepted: `block` or `flag`; \
                 add it",
                "service.yaml:6:7: `enforcement.categories[3]`: got \"jailbreak\"; accepted: an object with \
                 `finding_type`, `action`; correct it",
            ],
        ),
        (
            "rate_limiting:\n  tenant_overrides:\n    acme: {requests_per_second: 1, burst_size: 1}\n    \
             00000000-0000-0000-0000-000000000000:\n      requests_per_second: 0\n",
            &[
                "service.yaml:3:5: `rate_limiting.tenant_overrides.acme`: the key `acme` is not a UUID such as \
                 6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10; correct the key",
                "service.yaml:5:28: `rate_limiting.tenant_overrides.00000000-0000-0000-0000-000000000000.\
                 requests_per_second`: got 0; accepted: a whole number from 1 to 4294967295; correct it",
                "service.yaml:5:7: `rate_limiting.tenant_overrides.00000000-0000-0000-0000-000000000000`: \
                 `burst_size` is missing; accepted: a whole number from 1 to 4294967295; add it",
            ],
        ),
        (
            "rate_limiting:\n  tenant_overrides: []\n",
            &["service.yaml:2:21: `rate_limiting.tenant_overrides`: got a list of 0; accepted: a map from a UUID to \
               an object with `requests_per_second`, `burst_size`; correct it or remove it"],
        ),
    ]);
}

#[test]
fn addresses() {
    refused(&[
        (
            "listen_addr: 8080",
            &["service.yaml:1:14: `listen_addr`: got 8080; accepted: host:port, where host is an IP address, \
               `localhost` or empty (all IPv4 addresses), such as 0.0.0.0:8080, [::]:8080 or localhost:8080; correct \
               it, or remove it for the default \"0.0.0.0:8080\""],
        ),
        (
            "upstream_url: https://alice:hunter2@api.example.com?key=s3cret",
            &["service.yaml:1:15: `upstream_url`: got \"https://***@api.example.com?***\": it has a query; accepted: \
               http://host[:port][/path] or https://host[:port][/path]; correct it, or remove it for the default \
               \"https://api.openai.com\""],
        ),
        (
            "upstream_url: alice:hunter2@api.example.com",
            &["service.yaml:1:15: `upstream_url`: got \"***@api.example.com\": it has no http:// or https:// in \
               front; accepted: http://host[:port][/path] or https://host[:port][/path]; correct it, or remove it for \
               the default \"https://api.openai.com\""],
        ),
    ]);
}

#[test]
fn an_upstream_that_is_the_gateway_itself() {
    refused(&[(
        "listen_addr: 127.0.0.1:9000\nupstream_url:\n  http://localhost:9000/v1\n",
        &["service.yaml:3:3: `upstream_url`: got \"http://localhost:9000/v1\", which is this gateway's own listener \
           (127.0.0.1:9000): every request would come back; name the provider's address, or move `listen_addr` to \
           another port"],
    )]);
    let errors = Bench::new().env(&[("SERVICE_UPSTREAM_URL", "http://127.0.0.1:8080")]).errors();
    assert_eq!(
        errors,
        ["SERVICE_UPSTREAM_URL: `upstream_url`: got \"http://127.0.0.1:8080\", which is this gateway's own listener \
          (0.0.0.0:8080): every request would come back; name the provider's address, or move `listen_addr` to \
          another port"]
    );
}

#[test]
fn storage_that_is_not_there() {
    refused(&[
        (
            "storage:\n  profile: production\n  database_path: ':memory:'\n",
            &[
                "service.yaml:3:18: `storage.database_path`: got \":memory:\"; accepted: the path of a database \
                 file (for no file, use `storage.profile: memory`); correct it, or remove it for the default \
                 \"service.db\"",
                "service.yaml: `storage.analytics_url`: is not set, and the profile `production` needs it; accepted: \
                 an http:// or https:// address; set it, or choose the profile `lite`",
                "service.yaml: `storage.relational_url`: is not set, and the profile `production` needs it; accepted: \
                 a postgres:// address; set it, or choose the profile `lite`",
                "service.yaml: `storage.cache_url`: is not set, and the profile `production` needs it; accepted: \
                 a redis:// or rediss:// address; set it, or choose the profile `lite`",
            ],
        ),
        (
            "storage:\n  profile: redis\n",
            &[
                "service.yaml:2:12: `storage.profile`: got \"redis\"; accepted: `lite`, `memory` or `production` (`sqlite` \
               means `lite`); correct it, or remove it for the default \"lite\"",
            ],
        ),
    ]);
}

#[test]
fn unknown_keys_with_a_suggestion() {
    refused(&[
        (
            "enforcment:\n  mode: block\n",
            &["service.yaml:1:1: `enforcment`: unknown setting; did you mean `enforcement`?"],
        ),
        (
            "logging:\n  levle: info\n",
            &["service.yaml:2:3: `logging.levle`: unknown setting; did you mean `logging.level`?"],
        ),
        (
            "storage: {database: x.db}",
            &["service.yaml:1:11: `storage.database`: unknown setting; did you mean `storage.database_path`?"],
        ),
        (
            "{logging: {level: info, formt: json}}",
            &["service.yaml:1:25: `logging.formt`: unknown setting; did you mean `logging.format`?"],
        ),
        (
            "min_confidence_x: 1\nburst_size: 1\n",
            &[
                "service.yaml:1:1: `min_confidence_x`: unknown setting; remove it",
                "service.yaml:2:1: `burst_size`: unknown setting; did you mean `rate_limiting.burst_size`?",
            ],
        ),
        (
            "analyzer_jailbreak_enabled: false\n",
            &["service.yaml:1:1: `analyzer_jailbreak_enabled`: unknown setting; in the file this flag is \
               `security_analysis.jailbreak_enabled`"],
        ),
        (
            "storage.profile: memory\n",
            &["service.yaml:1:1: `storage.profile`: unknown setting; write it nested: each part on a line of its \
               own, indented below the one before"],
        ),
        (
            "base: &b {level: info}\nlogging:\n  <<: *b\n",
            &[
                "service.yaml:1:1: `base`: unknown setting; remove it",
                "service.yaml:3:3: `logging.<<`: unknown setting; merge keys are not supported, write the settings \
                 out",
            ],
        ),
        ("environment:\n  RUST_LOG: info\n", &["service.yaml:1:1: `environment`: unknown setting; remove it"]),
    ]);
}

#[test]
fn keys_written_twice_and_sections_that_are_none() {
    refused(&[
        ("timeout_ms: 1\ntimeout_ms: 2\n", &["service.yaml:2:1: `timeout_ms`: is written twice; keep one of them"]),
        (
            "shutdown: 30\n",
            &["service.yaml:1:11: `shutdown`: got 30; accepted: a section with timeout_seconds; indent its settings \
               below it"],
        ),
        (
            "timeout_ms:\nlogging:\n  format: [json]\n",
            &[
                "service.yaml:1:12: `timeout_ms`: got nothing; accepted: a whole number from 1 to 31536000000; \
                 correct it, or remove it for the default 30000",
                "service.yaml:3:11: `logging.format`: got a list of 1; accepted: `text` or `json`; correct it, or \
                 remove it for the default \"text\"",
            ],
        ),
        (
            "enable_streaming: yes\n",
            &["service.yaml:1:19: `enable_streaming`: got \"yes\"; accepted: true or false; correct it, or remove \
               it for the default true"],
        ),
    ]);
    assert_eq!(Bench::with_file("logging:\n  # level: debug\n").loaded().settings, weir_config::Settings::default());
}

#[test]
fn files_that_are_no_settings() {
    refused(&[
        (
            "logging: {level: info",
            &["service.yaml:2:1: the file cannot be read as YAML: did not find expected ',' or '}', while \
             parsing a flow mapping at line 1 column 10; correct the file"],
        ),
        (
            "- a\n- b\n",
            &["service.yaml: got a list of 2 instead of settings; accepted: a YAML map such as \
            `listen_addr: 0.0.0.0:8080`; correct the file"],
        ),
    ]);
    let bench = Bench::with_file([0xff, 0xfe, b'a']);
    assert_eq!(
        bench.errors(),
        ["service.yaml: the configuration file cannot be read: not UTF-8 text; correct the path given by --config, \
          or leave it out for the built-in defaults"]
    );
    let bench = Bench::new();
    let absent = bench.dir.path().join("absent.yaml");
    let bench = bench.env(&[("SERVICE_CONFIG", absent.to_str().unwrap())]);
    assert_eq!(
        bench.errors(),
        ["absent.yaml: the configuration file cannot be read: No such file or directory (os error 2); correct the \
          path given by SERVICE_CONFIG, or leave it out for the built-in defaults"]
    );
}

#[test]
fn variables_and_options() {
    let bench = Bench::new()
        .env(&[("SERVICE_MAX_REQUEST_BYTES", "0"), ("SERVICE_LOG_FORMAT", "xml"), ("SERVICE_IO_DRIVER", "uring")])
        .cli(Some("loud"), None);
    assert_eq!(
        bench.errors(),
        [
            "SERVICE_MAX_REQUEST_BYTES: `SERVICE_MAX_REQUEST_BYTES`: got 0; accepted: a whole number, at least 1; \
             correct it, or unset the variable for the default 1048576",
            "SERVICE_LOG_FORMAT: `logging.format`: got \"xml\"; accepted: `text` or `json`; correct it, or unset the \
             variable for the default \"text\"",
            "SERVICE_IO_DRIVER: `server.io_driver`: got \"uring\"; accepted: `auto`, `io_uring`, `io_uring_coop`, `io_uring_plain` or `epoll`; correct \
             it, or unset the variable for the default \"auto\"",
            "--log-level: `logging.level`: got \"loud\"; accepted: `trace`, `debug`, `info`, `warn` or `error`; \
             correct it, or drop the option for the default \"info\"",
        ]
    );
}

#[test]
fn rate_limit_variables_that_make_no_sense_are_ignored_with_a_warning() {
    for nonsense in ["0", "-1", "ten", "4294967296", "1.5"] {
        let bench = Bench::new().env(&[("SERVICE_RATE_LIMIT_RPS", nonsense)]);
        assert_eq!(bench.loaded().settings.rate_limiting.default.requests_per_second, 100, "{nonsense}");
        let warnings = bench.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("SERVICE_RATE_LIMIT_RPS: `rate_limiting.requests_per_second`: got "));
        assert!(warnings[0].ends_with("; accepted: a whole number from 1 to 4294967295; ignored"), "{warnings:?}");
    }
}

#[test]
fn a_category_that_never_acts_is_pointed_out() {
    let file = "enforcement:\n  categories:\n    - {finding_type: secret_leakage, action: block}\n    \
                - {finding_type: pii_detected, action: flag}\n    - {finding_type: is_urgent, action: flag}\n";
    assert_eq!(
        Bench::with_file(file).warnings(),
        [
            "enforcement.categories[1]: `pii_detected` is never acted on: its findings are Medium at worst, and \
             enforcement.min_severity is High; set enforcement.min_severity to Medium",
            "enforcement.categories[2]: `is_urgent` is never acted on: its findings are Low at worst, and \
             enforcement.min_severity is High; set enforcement.min_severity to Low",
        ]
    );
    let low = file.replace("categories", "min_severity: Low\n  categories");
    assert_eq!(Bench::with_file(low).warnings(), Vec::<String>::new());
}

#[test]
fn a_category_is_pointed_out_by_what_its_detectors_find_at_worst() {
    let warned = |more: &str, finding_type: &str| {
        let file = format!("enforcement:\n  {more}categories: [{{finding_type: {finding_type}, action: block}}]\n");
        let warnings = Bench::with_file(file).warnings();
        let begin = format!("enforcement.categories[0]: `{finding_type}` is never acted on: ");
        warnings.first().map(|said| said.strip_prefix(&begin).unwrap_or_else(|| panic!("{said}")).to_owned())
    };
    let worst = |severity: &str, least: &str| {
        let said = format!("its findings are {severity} at worst, and enforcement.min_severity is {least}; ");
        Some(format!("{said}set enforcement.min_severity to {severity}"))
    };
    assert_eq!(warned("", "person_name"), worst("Low", "High"));
    assert_eq!(warned("", "organization"), worst("Info", "High"));
    assert_eq!(warned("min_severity: Medium\n  ", "location"), worst("Info", "Medium"));
    for high in ["prompt_injection", "jailbreak", "role_injection", "ml_prompt_injection", "guard_a_injection"] {
        assert_eq!(warned("", high), None);
        assert_eq!(warned("min_severity: Critical\n  ", high), worst("High", "Critical"));
    }
    assert_eq!(warned("min_severity: Critical\n  ", "secret_leakage"), None);
    // A type that nobody knows may be anything.
    assert_eq!(warned("min_severity: Critical\n  ", "of_our_own"), None);
    let answers = "it is found in answers only, and `enforcement` is for requests; see `output_safety`";
    assert_eq!(warned("min_severity: Info\n  ", "output_toxicity").as_deref(), Some(answers));
    // Rules of the operator's own may say more of the types that rules find.
    let own = "security_analysis: {rules_dir: rules}\nenforcement:\n  min_severity: Critical\n  categories:\n    \
               - {finding_type: sql_injection, action: flag}\n    - {finding_type: person_name, action: flag}\n";
    let warnings = Bench::with_file(own).warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("`person_name` is never acted on"), "{warnings:?}");
}

#[test]
fn mistyped_variables_are_pointed_out_and_foreign_ones_left_alone() {
    let bench = Bench::new().env(&[
        ("SERVICE_LISTN_ADDR", ":1"),
        ("SERVICE_PORT", "tcp://10.0.0.1:80"),
        ("SERVICE_TIMEOUT_MS", "5000"),
        ("SERVICE_SERVICE_HOST", "10.0.0.1"),
        ("LISTEN_ADDR", ":1"),
    ]);
    assert_eq!(
        bench.warnings(),
        [
            "SERVICE_LISTN_ADDR: unknown variable; did you mean `SERVICE_LISTEN_ADDR`?",
            "SERVICE_TIMEOUT_MS: no variable sets `timeout_ms`, so this one does nothing; set it in the file",
        ]
    );
}

#[test]
fn all_violations_of_all_layers_come_at_once() {
    let errors = Bench::with_file("output_safety:\n  hallucination_threshold: 1.1\ntimeout_ms: 0\nlogin: {}\n")
        .env(&[("SERVICE_AUTH_ADMIN_KEY", "a b"), ("SERVICE_LISTEN_ADDR", "nowhere")])
        .cli(None, Some("yaml"))
        .errors();
    let heads: Vec<&str> = errors.iter().filter_map(|line| line.split_inclusive("`: ").next()).collect();
    assert_eq!(
        heads,
        [
            "service.yaml:2:28: `output_safety.hallucination_threshold`: ",
            "service.yaml:3:13: `timeout_ms`: ",
            "service.yaml:4:1: `login`: ",
            "SERVICE_LISTEN_ADDR: `listen_addr`: ",
            "SERVICE_AUTH_ADMIN_KEY: `auth.admin_key`: ",
            "--log-format: `logging.format`: ",
        ]
    );
}

#[test]
fn a_key_cannot_forge_lines_or_colours() {
    let errors = Bench::with_file("\"a\\nb\\e[31m\": 1\n").errors();
    assert_eq!(errors, ["service.yaml:1:1: `a\\nb\\u{1b}[31m`: unknown setting; remove it"]);
}

#[test]
fn no_refusal_shows_a_secret() {
    let canary = "sk-canary-5f2d";
    let file = format!(
        "auth: {{admin_key: '{canary} x'}}\nstorage: {{cache_url: 'http://u:{canary}@h'}}\nalerts: {{webhook_url: \
         '{canary}', channels: [{{type: slack, url: {canary}}}, {{type: webhook, url: 'http://h', secret: {canary}}}, \
         {{type: pagerduty, routing_key: '{canary} x'}}, \
         {{type: email, url: 'smtp://u:{canary}@mail.example.org?from=a@b.org&to=c@d.org'}}]}}\nupstream_url: 'https://{canary}@h'\n\
         upstream_api_key: '{canary} x'\n"
    );
    let bench = Bench::with_file(file).env(&[
        ("SERVICE_AUTH_ADMIN_KEY", "sk-canary-5f2d x"),
        ("SERVICE_RELATIONAL_URL", canary),
        ("SERVICE_JUDGE_HOSTEDCOMPAT_API_KEY", "sk-canary-5f2d x"),
        ("SERVICE_UPSTREAM_URL", "https://u:sk-canary-5f2d@h"),
    ]);
    let errors = bench.errors();
    assert_eq!(errors.len(), 13, "{errors:#?}");
    assert!(!errors.join("\n").contains("canary"), "{errors:#?}");
}

#[test]
fn a_word_in_rust_log_that_is_no_level_is_named() {
    let warned = |filter: &str| Bench::new().env(&[("RUST_LOG", filter)]).warnings();
    for fine in [
        "info",
        "WARN",
        "off",
        "5",
        "debug,weir::gateway::flow=trace",
        "weir",
        "rustls=warn,info",
        "weir_storage=debug",
    ] {
        assert_eq!(warned(fine), Vec::<String>::new(), "{fine}");
    }
    let said = "it is taken for the name of a module, of which nothing is logged here; use error, warn, info, debug or trace, \
                or directives such as `info,weir::gateway::flow=debug`";
    assert_eq!(warned("verbose"), [format!("RUST_LOG: `verbose` is no level: {said}")]);
    assert_eq!(warned("inof"), [format!("RUST_LOG: `inof` is no level (did you mean `info`?): {said}")]);
}

#[test]
fn a_judge_is_not_asked_in_the_clear_unless_that_is_allowed() {
    let judge = |text: &str| Bench::with_file(format!("judge: {text}\n"));
    let far = "http://gpu.internal:8000";
    let errors = judge(&format!("{{selfhosted: {{base_url: '{far}'}}}}")).errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    for part in ["`judge.selfhosted.base_url`: got http://gpu.internal:8000", "https://", "allow_plaintext: true"] {
        assert!(errors[0].contains(part), "{part} in {errors:?}");
    }
    for fine in [
        format!("{{selfhosted: {{base_url: '{far}', allow_plaintext: true}}}}"),
        format!("{{backend: classifier, selfhosted: {{base_url: '{far}'}}}}"),
        "{selfhosted: {base_url: 'http://127.0.0.1:1/v1'}}".to_owned(),
        "{selfhosted: {base_url: 'http://[::1]:1'}}".to_owned(),
        "{selfhosted: {base_url: 'http://LOCALHOST'}}".to_owned(),
    ] {
        assert_eq!(judge(&fine).loaded().warnings, Vec::<String>::new(), "{fine}");
    }
    let cascade =
        format!("{{backend: cascade, cascade: {{slow_backend: selfhosted}}, selfhosted: {{base_url: '{far}'}}}}");
    assert_eq!(judge(&cascade).errors().len(), 1);
    let warned = judge(&format!("{{backend: hostedcompat, hostedcompat: {{base_url: '{far}'}}}}")).loaded().warnings;
    assert!(warned.len() == 1 && warned[0].contains("unencrypted"), "{warned:?}");
    assert!(judge("{selfhosted: {base_url: 'localhost:8000'}}").errors()[0].contains("no http:// or https://"));
    let errors = judge("{cascade: {ambiguous_low: 0.9}}").errors();
    assert!(errors.len() == 1 && errors[0].contains("begins at 0.9 and ends before that, at 0.7"), "{errors:?}");
}

#[test]
fn a_judge_that_is_on_needs_the_key_of_everybody_it_may_ask() {
    const COMPAT: &str = "SERVICE_JUDGE_HOSTEDCOMPAT_API_KEY";
    const MESSAGES: &str = "SERVICE_JUDGE_HOSTEDMESSAGES_API_KEY";
    let both = "backend: cascade, cascade: {fast_backend: hostedcompat, slow_backend: hostedmessages}";
    for (text, needed) in [
        ("backend: selfhosted", &[][..]),
        ("backend: classifier", &[]),
        ("backend: cascade", &[]),
        ("backend: hostedcompat", &[COMPAT]),
        ("backend: hostedmessages", &[MESSAGES]),
        ("backend: cascade, cascade: {slow_backend: hostedmessages}", &[MESSAGES]),
        (both, &[COMPAT, MESSAGES]),
    ] {
        let judge = |is_on: bool| Bench::with_file(format!("judge: {{enabled: {is_on}, {text}}}\n"));
        // The flag may switch it on later; then a question without its key is misconfigured.
        judge(false).loaded();
        let keys: Vec<_> = needed.iter().map(|name| (*name, "sk-of-the-judge")).collect();
        judge(true).env(&keys).loaded();
        for missing in needed {
            let others: Vec<_> = keys.iter().filter(|(name, _)| name != missing).copied().collect();
            let errors = judge(true).env(&others).errors();
            assert!(errors.len() == 1 && errors[0].contains(&format!("{missing} is not set")), "{text}: {errors:?}");
        }
    }
}

#[test]
fn the_router_s_actions_have_what_they_need_or_the_start_is_refused() {
    let router = |text: &str| Bench::with_file(format!("action_router: {{enabled: true, {text}}}\n"));
    for (text, parts) in [
        ("default_actions: [webhook]", ["`action_router.webhook.url`", "names the action `webhook`"]),
        ("rules: [{actions: [webhook]}], webhook: {url: ''}", ["`action_router.webhook.url`", "name its receiver"]),
        (
            "default_actions: [webhook], webhook: {url: 'ftp://h'}",
            ["`action_router.webhook.url`", "http:// or https://"],
        ),
        ("webhook: {secret: abc}", ["`action_router.webhook.secret`", "whsec_"]),
        ("rules: [{actions: [blok]}]", ["`action_router.rules[0].actions[0]`", "did you mean `block`?"]),
        ("rules: [{}]", ["`action_router.rules[0]", "actions"]),
        ("ip_block: {ttl_seconds: 0}", ["`action_router.ip_block.ttl_seconds`", "got 0"]),
        ("ip_block: {max_offenses: 0}", ["`action_router.ip_block.max_offenses`", "got 0"]),
        ("webhook: {timeout_ms: 0}", ["`action_router.webhook.timeout_ms`", "got 0"]),
    ] {
        let errors = router(text).errors();
        assert_eq!(errors.len(), 1, "{text}: {errors:#?}");
        for part in parts {
            assert!(errors[0].contains(part), "{text}: {part} in {errors:#?}");
        }
    }
    let unused = Bench::with_file("action_router: {default_actions: [webhook]}\n").errors();
    assert!(unused.len() == 1 && unused[0].contains("names the action `webhook`"), "also while it is off: {unused:?}");
    let zeros = Bench::with_file("action_router: {ip_block: {ttl_seconds: 0, max_offenses: 0}}\n");
    assert_eq!(zeros.warnings(), Vec::<String>::new(), "not even an hour to block for");
    assert_eq!(router("ip_block: {ttl_seconds: 0, max_offenses: 0}").errors().len(), 2);
    let idle = router("default_actions: [block, alert, judge_route]").warnings();
    assert_eq!(idle.len(), 3, "{idle:?}");
}

#[test]
fn receivers_of_spans_and_events_have_what_they_need_or_the_start_is_refused() {
    let spans = |text: &str| Bench::with_file(format!("otel_export: {{enabled: true, {text}}}\n"));
    let events = |text: &str| Bench::with_file(format!("siem_export: {{enabled: true, {text}}}\n"));
    for (bench, parts) in [
        (spans("receivers: [{content: full}]"), ["`otel_export.receivers[0].endpoint`", "OTEL_EXPORTER_OTLP_ENDPOINT"]),
        (spans("receivers: [{endpoint: 'h:4318'}]"), ["`otel_export.receivers[0].endpoint`", "http:// or https://"]),
        (
            spans("receivers: [{endpoint: 'http://h', headers: ['a b=c']}]"),
            ["`otel_export.receivers[0].headers`", "header=value"],
        ),
        (
            spans("receivers: [{name: a, endpoint: 'http://h'}, {name: a, endpoint: 'http://g'}]"),
            ["`otel_export.receivers[1].name`", "another receiver"],
        ),
        (
            spans("receivers: [{endpoint: 'http://h:4317', protocol: grpc}]"),
            ["`otel_export.receivers[0].protocol`", "OTLP/HTTP, usually 4318"],
        ),
        (spans("resource_attributes: [a]"), ["`otel_export.resource_attributes[0]`", "name=value"]),
        (events("receivers: [{url: 'udp://h:514'}]"), ["`siem_export.receivers[0].url`", "tcp://host:port"]),
        (
            events("receivers: [{url: 'tcp://h:1', name: a}, {url: 'tcp://h:1', name: a}]"),
            ["receivers[1].name`", "another receiver"],
        ),
        (events("receivers: [{url: 'https://?'}]"), ["`siem_export.receivers[0].url`", "http:// or https://"]),
        (events("receivers: [{url: 'https://h', format: cef}]"), ["receivers[0].format`", "ocsf or ecs"]),
        (events("receivers: [{url: 'tcp://h:1', headers: [a=b]}]"), ["receivers[0].headers`", "https:// address"]),
        (events("receivers: [{url: 'https://h', headers: [a]}]"), ["receivers[0].headers`", "header=value"]),
        (events("receivers: [{url: 'https://h', headers: ['a={token}']}]"), ["receivers[0].headers`", "`token_env`"]),
        (
            events("receivers: [{url: 'https://h', token_env: ABSENT}]"),
            ["receivers[0].token_env`", "`ABSENT` is not set"],
        ),
        (
            events("receivers: [{url: 'https://h', headers: ['a={token}'], token_file: /nowhere/token}]"),
            ["receivers[0].token_file`", "`/nowhere/token` cannot be read"],
        ),
    ] {
        let errors = bench.errors();
        assert_eq!(errors.len(), 1, "{errors:#?}");
        for part in parts {
            assert!(errors[0].contains(part), "{part} in {errors:#?}");
        }
    }
    assert!(spans("receivers: []").warnings()[0].contains("no receiver"));
    assert!(events("receivers: []").warnings()[0].contains("no receiver"));
    let token = "receivers: [{url: 'https://h', headers: ['Authorization=Splunk {token}'], token_env: HEC_TOKEN}]";
    assert_eq!(events(token).env(&[("HEC_TOKEN", "walrus")]).warnings(), Vec::<String>::new());
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon"),
    ];
    let told = spans("receivers: []").env(&env).warnings();
    assert!(told.len() == 2 && told[0].contains("`soon`") && told[1].contains("http/protobuf"), "{told:?}");
    let port = spans("receivers: [{endpoint: 'http://h:4317'}]").warnings();
    assert!(port.len() == 1 && port[0].contains("usually on port 4318"), "{port:?}");
    let off = Bench::with_file("otel_export: {receivers: []}\n").env(&env);
    assert_eq!(off.warnings(), Vec::<String>::new(), "variables alone switch nothing on");
}

#[test]
fn a_grpc_listener_where_another_one_is() {
    for (text, grpc, other) in [
        (
            "listen_addr: 127.0.0.1:9000\ngrpc: {enabled: true, listen_addr: '0.0.0.0:9000'}",
            "0.0.0.0:9000",
            "`listen_addr` (127.0.0.1:9000)",
        ),
        (
            "server: {metrics_addr: '[::1]:50051'}\ngrpc: {enabled: true, listen_addr: '[::]:50051'}",
            "[::]:50051",
            "`server.metrics_addr` ([::1]:50051)",
        ),
        ("grpc: {enabled: true}\nlisten_addr: 127.0.0.1:50051", "0.0.0.0:50051", "`listen_addr` (127.0.0.1:50051)"),
    ] {
        let expected = format!(
            "service.yaml: `grpc.listen_addr`: got {grpc}, on which {other} listens already; accepted: an address and port of \
             its own; choose another port for one of them"
        );
        assert_eq!(Bench::with_file(text).errors(), [expected], "{text}");
    }
}
