//! Rows of the judge.

use serde_json::Value;

use super::value::{flag, float, int, one_of, optional_path, optional_secret, owned_text};
use super::{Kind, Literal, Setting, Unfit, set};
use crate::settings::{EMBEDDED_MODEL, JudgeBackend, JudgeTier};

const OFF: Literal = Literal::Bool(false);
const ON: Literal = Literal::Bool(true);
const TEMPERATURE: Kind = Kind::Float { min: 0.0, max: 2.0 };
/// The longest answer a judge may be allowed, in tokens.
const TOKENS: Kind = Kind::Int { min: 1, max: 65_536 };
/// The longest candidate: what is kept of a text at most.
const CANDIDATE: Kind = Kind::Int { min: 1, max: 16_777_216 };
/// More that wait than memory is meant to hold.
const QUEUE: Kind = Kind::Int { min: 1, max: 100_000 };
/// More questions at the same time than a backend takes.
const AT_ONCE: Kind = Kind::Int { min: 1, max: 1_024 };
/// More tries than any deadline leaves time for.
const RETRIES: Kind = Kind::Int { min: 0, max: 100 };
const KEY: Kind = Kind::Credential { min: 1 };
const TIER: Kind = Kind::Choice(&["selfhosted", "hostedcompat", "hostedmessages", "classifier"]);
const BACKEND: Kind = Kind::Choice(&["selfhosted", "hostedcompat", "hostedmessages", "classifier", "cascade"]);
const TIERS: [(&str, JudgeTier); 4] = [
    ("selfhosted", JudgeTier::SelfHosted),
    ("hostedcompat", JudgeTier::HostedCompat),
    ("hostedmessages", JudgeTier::HostedMessages),
    ("classifier", JudgeTier::Classifier),
];

pub(super) static SETTINGS: &[Setting] = &[
    Setting::built(
        "judge.enabled",
        Kind::Bool,
        OFF,
        "Judge calls for which the action router asks for `judge_route`; the flag llm_judge_enabled.",
        set!(judge.enabled, flag),
    )
    .wire("llm_judge_enabled"),
    Setting::built(
        "judge.backend",
        BACKEND,
        Literal::Text("selfhosted"),
        "Who gives the judge's verdicts: a model server of your own, a hosted chat completions API, a hosted messages API, the \
         embedded classifier, or a cascade of two of them.",
        set!(judge.backend, backend),
    ),
    Setting::built(
        "judge.min_score_threshold",
        Kind::SCORE,
        Literal::Int(30),
        "Calls whose findings score less than this are not judged.",
        set!(judge.min_score, int),
    ),
    Setting::built(
        "judge.persist_verdicts",
        Kind::Bool,
        ON,
        "Keep verdicts beside the findings they become, for /debug/judge/verdicts.",
        set!(judge.persist, flag),
    ),
    Setting::built(
        "judge.system_prompt",
        Kind::Name,
        Literal::Null,
        "Instruction to the judge in place of the built-in one; how texts are framed and what is answered is added to it.",
        |settings, value| {
            settings.judge.system_prompt = if value.is_null() { None } else { Some(owned_text(value)?) };
            Ok(())
        },
    ),
    Setting::built(
        "judge.selfhosted.base_url",
        Kind::UpstreamUrl,
        Literal::Text("http://localhost:8000"),
        "Your own model server; /v1/chat/completions is put behind it.",
        set!(judge.selfhosted.base_url, owned_text),
    ),
    Setting::built(
        "judge.selfhosted.model",
        Kind::Name,
        Literal::Text("judge"),
        "The model's name on your own server.",
        set!(judge.selfhosted.model, owned_text),
    ),
    Setting::built(
        "judge.selfhosted.max_tokens",
        TOKENS,
        Literal::Int(512),
        "Longest answer of your own server, in tokens.",
        set!(judge.selfhosted.max_tokens, int),
    ),
    Setting::built(
        "judge.selfhosted.temperature",
        TEMPERATURE,
        Literal::Float(0.1),
        "Temperature of your own server.",
        set!(judge.selfhosted.temperature, float),
    ),
    Setting::built(
        "judge.selfhosted.allow_plaintext",
        Kind::Bool,
        OFF,
        "Allow http:// to a model server on another machine: whoever listens on the way reads the texts.",
        set!(judge.allow_plaintext, flag),
    ),
    Setting::built(
        "judge.hostedcompat.base_url",
        Kind::UpstreamUrl,
        Literal::Text("https://api.openai.com"),
        "The hosted chat completions API; /v1/chat/completions is put behind it.",
        set!(judge.hostedcompat.base_url, owned_text),
    ),
    Setting::built(
        "judge.hostedcompat.model",
        Kind::Name,
        Literal::Text("gpt-4o-mini"),
        "The model of the hosted chat completions API.",
        set!(judge.hostedcompat.model, owned_text),
    ),
    Setting::built(
        "judge.hostedcompat.max_tokens",
        TOKENS,
        Literal::Int(512),
        "Longest answer of the hosted chat completions API, in tokens.",
        set!(judge.hostedcompat.max_tokens, int),
    ),
    Setting::built(
        "judge.hostedcompat.temperature",
        TEMPERATURE,
        Literal::Float(0.1),
        "Temperature of the hosted chat completions API; left out for models that refuse it.",
        set!(judge.hostedcompat.temperature, float),
    ),
    Setting::built(
        "judge.hostedmessages.base_url",
        Kind::UpstreamUrl,
        Literal::Text("https://api.anthropic.com"),
        "The hosted messages API; /v1/messages is put behind it. Ours.",
        set!(judge.hostedmessages.base_url, owned_text),
    ),
    Setting::built(
        "judge.hostedmessages.model",
        Kind::Name,
        Literal::Text("claude-haiku-4-5"),
        "The model of the hosted messages API.",
        set!(judge.hostedmessages.model, owned_text),
    ),
    Setting::built(
        "judge.hostedmessages.max_tokens",
        TOKENS,
        Literal::Int(512),
        "Longest answer of the hosted messages API, in tokens.",
        set!(judge.hostedmessages.max_tokens, int),
    ),
    Setting::built(
        "judge.hostedmessages.temperature",
        TEMPERATURE,
        Literal::Float(0.1),
        "Temperature of the hosted messages API; left out for models that refuse it.",
        set!(judge.hostedmessages.temperature, float),
    ),
    Setting::built(
        "judge.classifier.model_id",
        Kind::Name,
        Literal::Text(EMBEDDED_MODEL),
        "The classifier that judges: embedded, or an ONNX model of your own, as `security_analysis.ml_model` says. While that is not \
         there, it gives no verdict.",
        set!(judge.classifier.model, owned_text),
    ),
    Setting::built(
        "judge.classifier.threshold",
        Kind::UNIT,
        Literal::Float(0.5),
        "Probability from which on the classifier as judge calls a text a threat.",
        set!(judge.classifier.threshold, float),
    ),
    Setting::built(
        "judge.classifier.cache_dir",
        Kind::File,
        Literal::Null,
        "The folder for that model, where it is named by an id; null is `security_analysis.ml_cache_dir`. Nothing is fetched into \
         another one.",
        set!(judge.classifier.cache_dir, optional_path),
    ),
    Setting::built(
        "judge.cascade.fast_backend",
        TIER,
        Literal::Text("classifier"),
        "Who is asked first in a cascade.",
        set!(judge.cascade.fast, tier),
    ),
    Setting::built(
        "judge.cascade.slow_backend",
        TIER,
        Literal::Null,
        "Who is asked in a cascade where the first one is not sure or fails; null asks nobody.",
        |settings, value| {
            settings.judge.cascade.slow = if value.is_null() { None } else { Some(tier(value)?) };
            Ok(())
        },
    ),
    Setting::built(
        "judge.cascade.ambiguous_low",
        Kind::UNIT,
        Literal::Float(0.3),
        "In a cascade the first one is not sure when its confidence is above this and below ambiguous_high.",
        set!(judge.cascade.low, float),
    ),
    Setting::built(
        "judge.cascade.ambiguous_high",
        Kind::UNIT,
        Literal::Float(0.7),
        "See ambiguous_low.",
        set!(judge.cascade.high, float),
    ),
    Setting::built(
        "judge.retry.max_retries",
        RETRIES,
        Literal::Int(2),
        "How often a call to the judge's backend is tried again after a timeout, a refused connection, 408, 429 or 5xx.",
        set!(judge.retry.max, int),
    ),
    Setting::built(
        "judge.retry.backoff_base_ms",
        Kind::millis(0),
        Literal::Int(1_000),
        "Milliseconds the first wait between two tries takes at most; each further one takes up to twice as long as the one \
         before, and what a backend asks for by Retry-After is kept.",
        set!(judge.retry.backoff_base_ms, int),
    ),
    Setting::built(
        "judge.promotion.min_confidence",
        Kind::UNIT,
        Literal::Float(0.7),
        "A verdict blocks only when the judge is at least so sure.",
        set!(judge.promotion.min_confidence, float),
    ),
    Setting::built(
        "judge.promotion.min_security_score",
        Kind::SCORE,
        Literal::Int(60),
        "A verdict blocks only when its security score is at least this.",
        set!(judge.promotion.min_security_score, int),
    ),
    Setting::built(
        "judge.promotion.require_ensemble_support",
        Kind::Bool,
        ON,
        "A verdict blocks only when somebody else has found something of severity Medium or worse.",
        set!(judge.promotion.require_ensemble_support, flag),
    ),
    Setting::built(
        "judge.promotion.shadow",
        Kind::Bool,
        OFF,
        "Judge and count, and let no verdict block.",
        set!(judge.promotion.shadow, flag),
    ),
    Setting::built(
        "judge.worker.channel_buffer",
        QUEUE,
        Literal::Int(1_000),
        "Calls that wait for the judge at most, each with max_analysis_text_bytes of text; further ones are not judged.",
        set!(judge.worker.queue, int),
    ),
    Setting::built(
        "judge.worker.max_concurrency",
        AT_ONCE,
        Literal::Int(4),
        "Calls that are judged at the same time.",
        set!(judge.worker.at_once, int),
    ),
    Setting::built(
        "judge.worker.timeout_ms",
        Kind::millis(1),
        Literal::Int(30_000),
        "Milliseconds for one call of the judge's backend, up to the last byte of its answer.",
        set!(judge.worker.timeout_ms, int),
    ),
    Setting::built(
        "judge.worker.max_analysis_text_bytes",
        CANDIDATE,
        Literal::Int(65_536),
        "Bytes of a call's texts the judge is given at most, those around the findings first.",
        set!(judge.worker.max_text_bytes, int),
    ),
    Setting::built(
        "judge.worker.total_deadline_ms",
        Kind::millis(0),
        Literal::Int(45_000),
        "Milliseconds for one verdict with all tries and the waits between them; 0 for no such bound.",
        set!(judge.worker.total_deadline_ms, int),
    ),
    Setting::built(
        "environment.SERVICE_JUDGE_HOSTEDCOMPAT_API_KEY",
        KEY,
        Literal::Null,
        "The key of the hosted chat completions API that judges.",
        set!(judge.hostedcompat.key, optional_secret),
    )
    .env("SERVICE_JUDGE_HOSTEDCOMPAT_API_KEY")
    .secret(),
    Setting::built(
        "environment.SERVICE_JUDGE_HOSTEDMESSAGES_API_KEY",
        KEY,
        Literal::Null,
        "The key of the hosted messages API that judges.",
        set!(judge.hostedmessages.key, optional_secret),
    )
    .env("SERVICE_JUDGE_HOSTEDMESSAGES_API_KEY")
    .secret(),
];

fn tier(value: &Value) -> Result<JudgeTier, Unfit> {
    one_of(value, &TIERS)
}

fn backend(value: &Value) -> Result<JudgeBackend, Unfit> {
    tier(value).map(JudgeBackend::One).or_else(|_| one_of(value, &[("cascade", JudgeBackend::Cascade)]))
}
