//! Rows of the analysers: detectors, output safety, streams, PII, anomalies.

use super::value::{flag, float, int, one_of, optional_float, optional_path, optional_text, owned_text, written_float};
use super::{EnvRule, Kind, Literal, Setting, set};
use crate::settings::{
    ActionFromData, AnomalyMethod, EMBEDDED_MODEL, GUARD_THRESHOLD, HALLUCINATION_THRESHOLD, JAILBREAK_THRESHOLD,
    ML_THRESHOLD, OperatingPoint, PiiAction, RedactAnswers, SECOND_STAGE_CPU_SHARE, TOXICITY_THRESHOLD, ToolChanges,
};

const CHANGES: [(&str, ToolChanges); 3] =
    [("ignore", ToolChanges::Ignore), ("record", ToolChanges::Record), ("refuse", ToolChanges::Refuse)];
const FROM_DATA: [(&str, ActionFromData); 3] =
    [("ignore", ActionFromData::Ignore), ("record", ActionFromData::Record), ("refuse", ActionFromData::Refuse)];
const POINTS: [(&str, OperatingPoint); 3] = [
    ("balanced", OperatingPoint::Balanced),
    ("high_recall", OperatingPoint::HighRecall),
    ("high_precision", OperatingPoint::HighPrecision),
];

const ANOMALY_METHODS: [(&str, AnomalyMethod); 2] =
    [("sigma", AnomalyMethod::Sigma), ("robust", AnomalyMethod::Robust)];

const PII_ACTIONS: [(&str, PiiAction); 3] = [
    ("alert_only", PiiAction::AlertOnly),
    ("alert_and_redact", PiiAction::AlertAndRedact),
    ("redact_silent", PiiAction::RedactSilent),
];

const REDACT_ANSWERS: [(&str, RedactAnswers); 4] = [
    ("off", RedactAnswers::Off),
    ("personal", RedactAnswers::Personal),
    ("secrets", RedactAnswers::Secrets),
    ("all", RedactAnswers::All),
];

const OFF: Literal = Literal::Bool(false);
const ON: Literal = Literal::Bool(true);

pub(super) static SETTINGS: &[Setting] = &[
    // --- security_analysis; a model id without a default is chosen by whoever builds its detector ---
    Setting::built(
        "security_analysis.ml_enabled",
        Kind::Bool,
        ON,
        "Run a classifier over what users and tools say, for orders the rules have no words for: the embedded one, or `ml_model`.",
        set!(security_analysis.ml_enabled, flag),
    )
    .env_rule("SERVICE_ML_ENABLED", EnvRule::FalsyOrTrue)
    .wire("analyzer_ml_enabled"),
    Setting::built(
        "security_analysis.ml_model",
        Kind::Name,
        Literal::Text(EMBEDDED_MODEL),
        "The classifier: embedded, or an ONNX model of your own in its place, as a folder (/..., ./..., ../...) with \
         config.json, tokenizer.json and model.onnx, or as an id (owner/name) below `ml_cache_dir`. A model that cannot be \
         loaded is missing, not fatal: the embedded classifier stands in.",
        set!(security_analysis.ml_model, owned_text),
    ),
    Setting::built(
        "security_analysis.ml_threshold",
        Kind::UNIT,
        Literal::Float(ML_THRESHOLD),
        "Confidence from which on the classifier reports something; where it is written, it wins over the operating point, \
         whatever it says.",
        set!(security_analysis.ml_threshold, written_float),
    ),
    Setting::built(
        "security_analysis.second_stage_cpu_share",
        Kind::UNIT,
        Literal::Float(SECOND_STAGE_CPU_SHARE),
        "Share of one core, in the mean, that a small transformer may take for a second look at what the embedded classifier finds \
         suspicious, on the pool. What there is no time for is decided by the words and tagged second_stage_skipped. 0 leaves all to the \
         words, as a model of your own (`ml_model`) does. Ours.",
        set!(security_analysis.second_stage_cpu_share, float),
    )
    .env("SERVICE_SECOND_STAGE_CPU_SHARE"),
    Setting::built(
        "security_analysis.finding_threshold",
        Kind::UNIT,
        Literal::Null,
        "How probable an attack is to the second stage, from which on it is a finding of Low severity; null is the operating point's. \
         Ours.",
        set!(security_analysis.finding_threshold, optional_float),
    ),
    Setting::built(
        "security_analysis.flag_threshold",
        Kind::UNIT,
        Literal::Null,
        "The same for Medium severity, which flags a trace (a score of 60). Ours.",
        set!(security_analysis.flag_threshold, optional_float),
    ),
    Setting::built(
        "security_analysis.block_threshold",
        Kind::UNIT,
        Literal::Null,
        "The same for High severity, which `enforcement` refuses by default in block mode. Ours.",
        set!(security_analysis.block_threshold, optional_float),
    ),
    Setting::built(
        "security_analysis.ml_cache_dir",
        Kind::File,
        Literal::Null,
        "Folder for models that are named by an id; null is weir/models in $XDG_CACHE_HOME or ~/.cache.",
        set!(security_analysis.ml_cache_dir, optional_path),
    )
    .env("SERVICE_ML_CACHE_DIR"),
    Setting::built(
        "security_analysis.ml_runtime_path",
        Kind::File,
        Literal::Null,
        "The file or folder of libonnxruntime (1.17 or later), which runs ONNX models; null looks beside the binary and where \
         packages put it. What it names is code that Weir runs. Ours.",
        set!(security_analysis.ml_runtime_path, optional_path),
    ),
    Setting::built(
        "security_analysis.ml_preload",
        Kind::Bool,
        ON,
        "Load ONNX models before /health says ready; requests are served without them meanwhile. false loads each when it is \
         first missed.",
        set!(security_analysis.ml_preload, flag),
    )
    .env_rule("SERVICE_ML_PRELOAD", EnvRule::FalsyOrTrue),
    Setting::built(
        "security_analysis.ml_hub_url",
        Kind::UpstreamUrl,
        Literal::Text("https://huggingface.co"),
        "Where models are fetched from that are named by an id and are not in `ml_cache_dir`; null fetches nothing, ever. Calls go \
         through the proxy and trust that provider calls do. Ours.",
        set!(security_analysis.ml_hub_url, optional_text),
    )
    .or_null(),
    Setting::built(
        "security_analysis.ml_download_timeout_seconds",
        Kind::at_least(1),
        Literal::Int(300),
        "How long fetching one model may take; after that it is missing.",
        set!(security_analysis.ml_download_timeout_seconds, int),
    ),
    Setting::built(
        "security_analysis.ner_enabled",
        Kind::Bool,
        OFF,
        "Look for names of people, organisations and places with `ner_model`.",
        set!(security_analysis.ner.enabled, flag),
    ),
    Setting::built(
        "security_analysis.ner_model",
        Kind::Name,
        Literal::Null,
        "An ONNX model of names (classes B-PER, I-PER, ...), as a folder or an id; see `ml_model`.",
        set!(security_analysis.ner.model, optional_text),
    ),
    Setting::built(
        "security_analysis.fusion_enabled",
        Kind::Bool,
        OFF,
        "Weigh together what rules, classifier and guards say of a text, and report what adds up to an attack.",
        set!(security_analysis.fusion_enabled, flag),
    ),
    Setting::built(
        "security_analysis.fusion_model_path",
        Kind::File,
        Literal::Null,
        "Weights for that (JSON, in the form of inference/model/fusion.json) in the place of those in the binary.",
        set!(security_analysis.fusion_model_path, optional_path),
    ),
    Setting::built(
        "security_analysis.jailbreak_enabled",
        Kind::Bool,
        ON,
        "Run the jailbreak detector, which also decodes base64, ROT13, leetspeak and reversed text.",
        set!(security_analysis.jailbreak_enabled, flag),
    )
    .wire("analyzer_jailbreak_enabled"),
    Setting::built(
        "security_analysis.jailbreak_threshold",
        Kind::UNIT,
        Literal::Float(JAILBREAK_THRESHOLD),
        "Confidence from which on a jailbreak is reported; where it is written, it wins over the operating point, whatever it \
         says.",
        set!(security_analysis.jailbreak_threshold, written_float),
    ),
    Setting::built(
        "security_analysis.guard_a_enabled",
        Kind::Bool,
        OFF,
        "Ask the guard `guard_a_model`, a second classifier of attacks beside `ml_model`.",
        set!(security_analysis.guard_a.enabled, flag),
    )
    .wire("analyzer_guard_a_enabled"),
    Setting::built(
        "security_analysis.guard_a_model",
        Kind::Name,
        Literal::Null,
        "The ONNX model of guard A, as a folder or an id; see `ml_model`.",
        set!(security_analysis.guard_a.model, optional_text),
    ),
    Setting::built(
        "security_analysis.guard_a_threshold",
        Kind::UNIT,
        Literal::Float(GUARD_THRESHOLD),
        "Confidence from which on guard A reports something by itself; from 0.5 on it does where another detector has \
         found an attack in the same text. Where it is written, it wins over the operating point, whatever it says.",
        set!(security_analysis.guard_a.threshold, written_float),
    ),
    Setting::built(
        "security_analysis.guard_b_enabled",
        Kind::Bool,
        OFF,
        "Ask the guard `guard_b_model`, a second classifier of attacks beside `ml_model`.",
        set!(security_analysis.guard_b.enabled, flag),
    )
    .wire("analyzer_guard_b_enabled"),
    Setting::built(
        "security_analysis.guard_b_model",
        Kind::Name,
        Literal::Null,
        "The ONNX model of guard B, as a folder or an id; see `ml_model`.",
        set!(security_analysis.guard_b.model, optional_text),
    ),
    Setting::built(
        "security_analysis.guard_b_threshold",
        Kind::UNIT,
        Literal::Float(GUARD_THRESHOLD),
        "Confidence from which on guard B reports something by itself; from 0.5 on it does where another detector has \
         found an attack in the same text. Where it is written, it wins over the operating point, whatever it says.",
        set!(security_analysis.guard_b.threshold, written_float),
    ),
    Setting::built(
        "security_analysis.operating_point",
        Kind::Choice(&["balanced", "high_recall", "high_precision"]),
        Literal::Text("balanced"),
        "How detectors weigh what they miss against what they report in error: the rules about orders and every model. \
         Credentials and personal data are found alike at each.",
        set!(security_analysis.operating_point, |v| one_of(v, &POINTS)),
    )
    .wire("operating_point"),
    Setting::built(
        "security_analysis.over_defence",
        Kind::Bool,
        OFF,
        "Lower to Low what the rules say of two kinds of harmless text, and of no other: weak words of a jailbreak in a question of up to 240 \
         characters that the embedded classifier is sure about, and an order to tell the instructions that its own sentence forbids. It halves false \
         alarms on such texts.",
        set!(security_analysis.over_defence, flag),
    )
    .wire("over_defence"),
    Setting::built(
        "security_analysis.tool_changes",
        Kind::Choice(&["ignore", "record", "refuse"]),
        Literal::Text("record"),
        "What is done when the definition of a tool says something that it did not say before, to the same \
         tenant and since the gateway was started. record: what is new is judged by itself, reported \
         (tool_definition_changed, Low), and known from then on unless it reads like an order to the model. \
         refuse: it is High, each time it comes, until a restart; what is new to an agent and not to \
         its tenant is recorded, as two servers may have a tool of one name. ignore: no definition is remembered.",
        set!(security_analysis.tool_changes, |v| one_of(v, &CHANGES)),
    ),
    Setting::built(
        "security_analysis.action_from_data",
        Kind::Choice(&["ignore", "record", "refuse"]),
        Literal::Text("record"),
        "What is done when an answer calls a tool that acts (sends, pays, deletes, runs) and what the call is about stands in \
         tools' results and nowhere in the words of the user or the operator. record: it is reported (action_from_data): Low \
         where little speaks for it or the user asked for what was read to be used, else Medium, High where the data asks \
         for it. refuse: from Medium on it is Critical, and the answer is withheld where `output_safety.block_on_critical` \
         is set. ignore: nothing is compared.",
        set!(security_analysis.action_from_data, |v| one_of(v, &FROM_DATA)),
    ),
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
    Setting::built(
        "output_safety.toxicity_enabled",
        Kind::Bool,
        OFF,
        "Look for toxic answers, while output_safety.enabled is true: with `toxicity_model`, or with the small embedded model.",
        set!(toxicity.enabled, flag),
    ),
    Setting::built(
        "output_safety.toxicity_model",
        Kind::Name,
        Literal::Null,
        "An ONNX classifier of toxic texts in the place of the embedded one, as a folder or an id; see `ml_model`. Classes with `severe` or `threat` in their names \
         are Critical from 0.9 on and High below, all others Medium. The embedded one is Critical from 0.95 on, where it finds two in five toxic \
         comments and none of 4,507 ordinary texts, and Medium below. Ours.",
        set!(toxicity.model, optional_text),
    ),
    Setting::built(
        "output_safety.toxicity_threshold",
        Kind::UNIT,
        Literal::Float(TOXICITY_THRESHOLD),
        "Confidence from which on an answer is toxic; where it is written, it wins over the operating point, whatever it says.",
        set!(toxicity.threshold, written_float),
    ),
    Setting::built(
        "output_safety.block_on_critical",
        Kind::Bool,
        OFF,
        "Answer 403 in place of a JSON answer with a Critical finding, and end a stream at one; answers then wait for their \
         analysis.",
        set!(output_safety.block_on_critical, flag),
    ),
    Setting::built(
        "output_safety.hallucination_enabled",
        Kind::Bool,
        OFF,
        "Ask `hallucination_model` whether the request supports what answers say, while output_safety.enabled is true.",
        set!(hallucination.enabled, flag),
    ),
    Setting::built(
        "output_safety.hallucination_model",
        Kind::Name,
        Literal::Null,
        "An ONNX model that reads a text and a sentence (classes such as entailment or consistent, or one number), as a folder or an \
         id; see `ml_model`. The text is what users, tools and the system prompt say in the request.",
        set!(hallucination.model, optional_text),
    ),
    Setting::built(
        "output_safety.hallucination_threshold",
        Kind::UNIT,
        Literal::Float(HALLUCINATION_THRESHOLD),
        "Sentences of an answer with less support than this are flagged; where it is written, it wins over the operating point, whatever it says.",
        set!(hallucination.threshold, written_float),
    ),
    Setting::built(
        "output_safety.hallucination_min_response_length",
        Kind::at_least(0),
        Literal::Int(50),
        "Shorter answers are not asked about, in characters.",
        set!(hallucination.min_response_length, int),
    ),
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
        "End a stream at a Critical finding of the rules or of the model of toxicity, as its dialect ends streams; needs \
         output_enabled. Providers are asked for answers without a content coding.",
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
    Setting::built(
        "pii.shadow_mode",
        Kind::Bool,
        OFF,
        "With an action that redacts, count what would be taken out of requests (`service_redactions_total`) and forward them as \
         they came. What is stored is redacted all the same. Ours.",
        set!(pii_shadow_mode, flag),
    ),
    Setting::built(
        "pii.redact_answers",
        Kind::Choice(&["off", "personal", "secrets", "all"]),
        Literal::Text("off"),
        "Put tags in the place of personal data ([PII:EMAIL]), of credentials ([SECRET:JWT]) or of both in the texts of answers on \
         their way to their clients. Documents up to 1 MiB are read whole first; of a stream the last words wait until they can \
         no longer grow into such a piece. Arguments of tool calls and signed reasoning go on as they came: tag \
         `answer_unredacted`. Ours.",
        set!(pii_redact_answers, |v| one_of(v, &REDACT_ANSWERS)),
    ),
    Setting::built(
        "pii.redact_answers_shadow_mode",
        Kind::Bool,
        OFF,
        "With redact_answers, count what would be taken out of answers (`service_redactions_total`) and leave them as they come. \
         Ours.",
        set!(pii_redact_answers_shadow_mode, flag),
    ),
    // --- anomaly_detection ---
    Setting::built(
        "anomaly_detection.enabled",
        Kind::Bool,
        OFF,
        "Hold each call against the latest ones of its tenant, and report what is far above them as a finding `anomaly_cost`, \
         `anomaly_tokens`, `anomaly_velocity` or `anomaly_latency`. After a restart it begins from nothing.",
        set!(anomaly_detection.enabled, flag),
    ),
    Setting::built(
        "anomaly_detection.window_size",
        Kind::Int { min: 1, max: 10_000 },
        Literal::Int(100),
        "Calls that a call is held against, and slots of ten seconds; from ten of them on something is said. 10,000 tenants are \
         watched at a time, fewer where their windows take more than 64 MiB together.",
        set!(anomaly_detection.window_size, int),
    ),
    Setting::built(
        "anomaly_detection.sigma_threshold",
        Kind::Float { min: 0.1, max: 1000.0 },
        Literal::Float(3.0),
        "Standard deviations above the mean from which on a value is too far.",
        set!(anomaly_detection.sigma_threshold, float),
    ),
    Setting::built(
        "anomaly_detection.method",
        Kind::Choice(&["sigma", "robust"]),
        Literal::Text("sigma"),
        "sigma: mean and standard deviation. robust: median and median absolute deviation of logarithms, for values that are mostly \
         small and sometimes large, as tokens are; 4 is a good threshold then. Ours.",
        set!(anomaly_detection.method, |v| one_of(v, &ANOMALY_METHODS)),
    ),
    Setting::built(
        "anomaly_detection.check_cost",
        Kind::Bool,
        ON,
        "Watch what calls cost.",
        set!(anomaly_detection.check_cost, flag),
    ),
    Setting::built(
        "anomaly_detection.check_tokens",
        Kind::Bool,
        ON,
        "Watch how many tokens calls take.",
        set!(anomaly_detection.check_tokens, flag),
    ),
    Setting::built(
        "anomaly_detection.check_velocity",
        Kind::Bool,
        ON,
        "Watch how many calls there are in ten seconds; fewer than twenty are never too many.",
        set!(anomaly_detection.check_velocity, flag),
    ),
    Setting::built(
        "anomaly_detection.check_latency",
        Kind::Bool,
        ON,
        "Watch how long the provider takes: to the first byte of a stream, to the end of another answer.",
        set!(anomaly_detection.check_latency, flag),
    ),
];
