//! Rows of the analysers: detectors, output safety, streams, PII, anomalies.

use super::value::{flag, float, int, one_of, optional_path};
use super::{EnvRule, Kind, Literal, Setting, set};
use crate::settings::{ML_THRESHOLD, OperatingPoint, PiiAction};

const ML: &str = "a model beside the embedded classifier";
const NER: &str = "named-entity recognition";
const FUSION: &str = "the fusion classifier";
const GUARD_A: &str = "guard classifier A";
const GUARD_B: &str = "guard classifier B";
const OUTPUT: &str = "output safety by models";
const ANOMALY: &str = "anomaly detection";

const POINTS: [(&str, OperatingPoint); 3] = [
    ("balanced", OperatingPoint::Balanced),
    ("high_recall", OperatingPoint::HighRecall),
    ("high_precision", OperatingPoint::HighPrecision),
];

const PII_ACTIONS: [(&str, PiiAction); 3] = [
    ("alert_only", PiiAction::AlertOnly),
    ("alert_and_redact", PiiAction::AlertAndRedact),
    ("redact_silent", PiiAction::RedactSilent),
];

const OFF: Literal = Literal::Bool(false);
const ON: Literal = Literal::Bool(true);
const POSITIVE: Kind = Kind::Float { min: 0.0, max: f64::MAX };

pub(super) static SETTINGS: &[Setting] = &[
    // --- security_analysis; a model id without a default is chosen by whoever builds its detector ---
    Setting::built(
        "security_analysis.ml_enabled",
        Kind::Bool,
        OFF,
        "Run the embedded classifier over what users and tools say, for orders the rules have no words for.",
        set!(security_analysis.ml_enabled, flag),
    )
    .env_rule("SERVICE_ML_ENABLED", EnvRule::FalsyOrTrue)
    .wire("analyzer_ml_enabled"),
    Setting::not_built("security_analysis.ml_model", Kind::Name, Literal::Text("embedded"), ML),
    Setting::built(
        "security_analysis.ml_threshold",
        Kind::UNIT,
        Literal::Float(ML_THRESHOLD),
        "Confidence from which on the embedded classifier reports something; unless it is the default, it wins over the \
         operating point.",
        set!(security_analysis.ml_threshold, float),
    ),
    Setting::not_built("security_analysis.ml_cache_dir", Kind::File, Literal::Null, ML).env("SERVICE_ML_CACHE_DIR"),
    // Without a model there is nothing to load, early or late.
    Setting::not_built("security_analysis.ml_preload", Kind::Bool, ON, ML).or(OFF).env("SERVICE_ML_PRELOAD"),
    Setting::not_built("security_analysis.ml_download_timeout_seconds", Kind::at_least(1), Literal::Int(300), ML),
    Setting::not_built("security_analysis.ner_enabled", Kind::Bool, OFF, NER),
    Setting::not_built("security_analysis.ner_model", Kind::Name, Literal::Null, NER),
    Setting::not_built("security_analysis.fusion_enabled", Kind::Bool, OFF, FUSION),
    Setting::not_built("security_analysis.fusion_model_path", Kind::File, Literal::Null, FUSION),
    Setting::built(
        "security_analysis.jailbreak_enabled",
        Kind::Bool,
        ON,
        "Run the jailbreak detector, which also decodes base64, ROT13, leetspeak and reversed text.",
        set!(security_analysis.jailbreak_enabled, flag),
    )
    .wire("analyzer_jailbreak_enabled"),
    Setting::not_built(
        "security_analysis.jailbreak_threshold",
        Kind::UNIT,
        Literal::Float(0.7),
        "the jailbreak threshold",
    ),
    Setting::not_built("security_analysis.guard_a_enabled", Kind::Bool, OFF, GUARD_A).wire("analyzer_guard_a_enabled"),
    Setting::not_built("security_analysis.guard_a_model", Kind::Name, Literal::Null, GUARD_A),
    Setting::not_built("security_analysis.guard_a_threshold", Kind::UNIT, Literal::Float(0.85), GUARD_A),
    Setting::not_built("security_analysis.guard_b_enabled", Kind::Bool, OFF, GUARD_B).wire("analyzer_guard_b_enabled"),
    Setting::not_built("security_analysis.guard_b_model", Kind::Name, Literal::Null, GUARD_B),
    Setting::not_built("security_analysis.guard_b_threshold", Kind::UNIT, Literal::Float(0.85), GUARD_B),
    Setting::built(
        "security_analysis.operating_point",
        Kind::Choice(&["balanced", "high_recall", "high_precision"]),
        Literal::Text("balanced"),
        "How the embedded classifier weighs what it misses against what it reports in error.",
        set!(security_analysis.operating_point, |v| one_of(v, &POINTS)),
    )
    .wire("operating_point"),
    Setting::not_built("security_analysis.over_defence", Kind::Bool, OFF, "the over-defence suppressor")
        .wire("over_defence"),
    Setting::built(
        "security_analysis.max_analysis_text_bytes",
        Kind::at_least(1),
        Literal::Int(1_048_576),
        "Longest text of a request or an answer that models are given whole; the rules look at all of it.",
        set!(security_analysis.max_analysis_text_bytes, int),
    ),
    Setting::built(
        "security_analysis.rules_dir",
        Kind::File,
        Literal::Null,
        "Folder with detection rules and allow rules of your own (*.yaml); read again on SIGHUP, all or nothing.",
        set!(security_analysis.rules_dir, optional_path),
    ),
    // --- output_safety ---
    Setting::built(
        "output_safety.enabled",
        Kind::Bool,
        OFF,
        "Compare answers with the system prompt they must not repeat, and let the switches below withhold answers.",
        set!(output_safety.enabled, flag),
    ),
    Setting::not_built("output_safety.toxicity_enabled", Kind::Bool, OFF, OUTPUT),
    Setting::not_built("output_safety.toxicity_threshold", Kind::UNIT, Literal::Float(0.7), OUTPUT),
    Setting::built(
        "output_safety.block_on_critical",
        Kind::Bool,
        OFF,
        "Answer 403 in place of a JSON answer with a Critical finding, and end a stream at one; answers then wait for their \
         analysis.",
        set!(output_safety.block_on_critical, flag),
    ),
    Setting::not_built("output_safety.hallucination_enabled", Kind::Bool, OFF, OUTPUT),
    Setting::not_built("output_safety.hallucination_model", Kind::Name, Literal::Null, OUTPUT),
    Setting::not_built("output_safety.hallucination_threshold", Kind::UNIT, Literal::Float(0.5), OUTPUT),
    Setting::not_built("output_safety.hallucination_min_response_length", Kind::at_least(0), Literal::Int(50), OUTPUT),
    // --- streaming_analysis ---
    Setting::built(
        "streaming_analysis.enabled",
        Kind::Bool,
        OFF,
        "Look at streamed answers while they last, with the rules; all of an answer is analysed at its end in any case.",
        set!(streaming_analysis.enabled, flag),
    ),
    Setting::built(
        "streaming_analysis.token_interval",
        Kind::u32_at_least(1),
        Literal::Int(50),
        "Tokens of the answer from one look to the next, by estimate; after about 7 KiB of text there is a look in any case.",
        set!(streaming_analysis.token_interval, int),
    ),
    Setting::built(
        "streaming_analysis.output_enabled",
        Kind::Bool,
        OFF,
        "Let what is found in a stream stop it; needs output_safety.enabled.",
        set!(streaming_analysis.output_enabled, flag),
    ),
    Setting::built(
        "streaming_analysis.early_stop_on_critical",
        Kind::Bool,
        OFF,
        "End a stream at a Critical finding, as its dialect ends streams; needs output_enabled. Providers are asked for \
         answers without a content coding.",
        set!(streaming_analysis.early_stop_on_critical, flag),
    ),
    Setting::built(
        "streaming_analysis.hold_back",
        Kind::Bool,
        OFF,
        "Where a stream may be stopped, keep its last words back until they have been looked at: nothing of what stops it is \
         seen, and every word comes later. Ours.",
        set!(streaming_analysis.hold_back, flag),
    ),
    // --- pii ---
    Setting::built(
        "pii.action",
        Kind::Choice(&["alert_only", "alert_and_redact", "redact_silent"]),
        Literal::Text("alert_only"),
        "alert_only: report personal data and change nothing. alert_and_redact: report it, and put tags such as [PII:EMAIL] in its \
         place in requests before they are forwarded and in texts before they are stored. redact_silent: the same without \
         findings. Every request is then read whole before it is forwarded.",
        set!(pii_action, |v| one_of(v, &PII_ACTIONS)),
    ),
    // --- anomaly_detection ---
    Setting::not_built("anomaly_detection.enabled", Kind::Bool, OFF, ANOMALY),
    Setting::not_built("anomaly_detection.window_size", Kind::at_least(1), Literal::Int(100), ANOMALY),
    Setting::not_built("anomaly_detection.sigma_threshold", POSITIVE, Literal::Float(3.0), ANOMALY),
    Setting::not_built("anomaly_detection.check_cost", Kind::Bool, ON, ANOMALY),
    Setting::not_built("anomaly_detection.check_tokens", Kind::Bool, ON, ANOMALY),
    Setting::not_built("anomaly_detection.check_velocity", Kind::Bool, ON, ANOMALY),
    Setting::not_built("anomaly_detection.check_latency", Kind::Bool, ON, ANOMALY),
];
