//! Rows of the action router. What actions need beside their names is checked behind all layers (`load::router`).

use serde_json::Value;

use super::value::{flag, float, int, one_of, optional_secret, parsed, text};
use super::{Field, Kind, Literal, Setting, Unfit, set};
use crate::settings::{ActionRule, ActionSet, RouterAction};
use crate::vocab::{Severity, SharedSecret};

const ACTIONS: &[&str] = &["log", "webhook", "judge_route", "alert", "block_ip", "flag", "block"];
const RULE: &[Field] = &[
    Field::optional("finding_type", Kind::Name),
    Field::optional("min_severity", Kind::SEVERITY),
    Field::optional("min_confidence", Kind::UNIT),
    Field::required("actions", Kind::Choices(ACTIONS)),
];

pub(super) static SETTINGS: &[Setting] = &[
    Setting::built(
        "action_router.enabled",
        Kind::Bool,
        Literal::Bool(false),
        "Do about findings what the rules below say.",
        set!(action_router.enabled, flag),
    ),
    Setting::built(
        "action_router.default_actions",
        Kind::Choices(ACTIONS),
        Literal::Texts(&["log"]),
        "What is done about a finding that no rule matches.",
        set!(action_router.default_actions, actions),
    ),
    Setting::built(
        "action_router.rules",
        Kind::Records(RULE),
        Literal::EmptyList,
        "What is done about findings of a type (any), from a severity (Info) and a confidence (0.0) on; several matching \
         rules add up. log, webhook, alert (all channels of `alerts`), block_ip, flag and block act once for each call; flag \
         and block only on a request whose finding is there before it is forwarded, and not while `enforcement.mode` is log.",
        set!(action_router.rules, rules),
    ),
    Setting::built(
        "action_router.ip_block.ttl_seconds",
        Kind::Int { min: 0, max: 31_536_000 },
        Literal::Int(3_600),
        "For how long block_ip turns an address away, and for how long an offence counts; 0 only while the router is off.",
        set!(action_router.ip_block.ttl_seconds, int),
    ),
    Setting::built(
        "action_router.ip_block.max_offenses",
        Kind::u32_at_least(0),
        Literal::Int(3),
        "With how many offending calls block_ip begins to turn an address away; 0 only while the router is off.",
        set!(action_router.ip_block.max_offenses, int),
    ),
    Setting::built(
        "action_router.ip_block.allow_shared",
        Kind::Bool,
        Literal::Bool(false),
        "Turn away loopback, too, and an address that most requests come from, which may be a proxy in front (ours).",
        set!(action_router.ip_block.allow_shared, flag),
    ),
    Setting::built(
        "action_router.webhook.url",
        Kind::Text,
        Literal::Text(""),
        "Receiver of the action webhook, as JSON.",
        set!(action_router.webhook.url, filled_secret),
    )
    .secret(),
    Setting::built(
        "action_router.webhook.timeout_ms",
        Kind::millis(1),
        Literal::Int(5_000),
        "For one message to it, the answer included.",
        set!(action_router.webhook.timeout_ms, int),
    ),
    Setting::built(
        "action_router.webhook.secret",
        Kind::Name,
        Literal::Null,
        "`whsec_` and base64: signs the messages as Standard Webhooks does (ours).",
        set!(action_router.webhook.secret, optional_secret),
    )
    .secret(),
    Setting::built(
        "action_router.judge_route.inline_await",
        Kind::Bool,
        Literal::Bool(false),
        "Requests whose findings ask for `judge_route` wait for the verdict, which may block them; not while \
         `enforcement.mode` is log. Else calls are judged after they have ended.",
        set!(action_router.inline_await, flag),
    ),
    Setting::built(
        "action_router.judge_route.inline_timeout_ms",
        Kind::millis(1),
        Literal::Int(10_000),
        "Milliseconds such a request waits at most; then it goes on without a verdict.",
        set!(action_router.inline_timeout_ms, int),
    ),
];

fn filled_secret(value: &Value) -> Result<Option<SharedSecret>, Unfit> {
    text(value).map(|text| (!text.is_empty()).then(|| SharedSecret::new(text)))
}

fn actions(value: &Value) -> Result<ActionSet, Unfit> {
    let named = RouterAction::ALL.map(|action| (action.as_str(), action));
    value.as_array().ok_or(Unfit)?.iter().map(|name| one_of(name, &named)).collect()
}

fn rules(value: &Value) -> Result<Vec<ActionRule>, Unfit> {
    value.as_array().ok_or(Unfit)?.iter().map(rule).collect()
}

fn rule(entry: &Value) -> Result<ActionRule, Unfit> {
    let field = |name: &str| entry.get(name).filter(|value| !value.is_null());
    Ok(ActionRule {
        finding_type: field("finding_type").map(|name| text(name).map(str::to_owned)).transpose()?,
        min_severity: field("min_severity").map_or(Ok(Severity::Info), parsed)?,
        min_confidence: field("min_confidence").map_or(Ok(0.0), float)?,
        actions: actions(entry.get("actions").ok_or(Unfit)?)?,
    })
}
