//! Rows of the upstreams beside `upstream_url`. What the names in them refer to, and where keys are kept, is settled behind
//! all layers (`load::upstreams`).

use serde_json::Value;

use super::value::{flag, int, one_of, optional_int, optional_path, optional_secret, owned_text, text, texts};
use super::{Field, Keys, Kind, Literal, Setting, Unfit, set};
use crate::address;
use crate::egress::Egress;
use crate::settings::{Balance, NamedUpstream, Pattern, RouteRule, UpstreamGroup};
use crate::vocab::Provider;

const UPSTREAM: &[Field] = &[
    Field::required("url", Kind::UpstreamUrl),
    Field::optional("providers", Kind::TextList),
    Field::optional("api_key", Kind::Credential { min: 8 }),
    Field::optional("api_key_env", Kind::Name),
    Field::optional("api_key_file", Kind::File),
    Field::optional("ca_file", Kind::File),
    Field::optional("timeout_ms", Kind::millis(1)),
    Field::optional("connection_timeout_ms", Kind::millis(1)),
    Field::optional("max_connections", Kind::u32_at_least(1)),
    Field::optional("weight", Kind::Int { min: 1, max: 1_000 }),
];
const GROUP: &[Field] = &[
    Field::required("upstreams", Kind::TextList),
    Field::optional("providers", Kind::TextList),
    Field::optional("balance", Kind::Choice(&["order", "weights"])),
    Field::optional("sticky", Kind::Bool),
    Field::optional("retry_refused", Kind::Bool),
];
const ROUTE: &[Field] = &[
    Field::optional("model", Kind::Name),
    Field::optional("path", Kind::Name),
    Field::required("upstream", Kind::Name),
];

pub(super) static SETTINGS: &[Setting] = &[
    Setting::built(
        "upstreams",
        Kind::RecordMap(Keys::Text, UPSTREAM),
        Literal::EmptyMap,
        "Further providers behind the same address, by name: url; providers it serves; api_key (or api_key_env, api_key_file) \
         for requests that bring none; ca_file, timeout_ms, connection_timeout_ms and max_connections in place of the \
         gateway's; weight in its groups. Read again on SIGHUP. Ours.",
        set!(upstreams.members, members),
    ),
    Setting::built(
        "upstream_groups",
        Kind::RecordMap(Keys::Text, GROUP),
        Literal::EmptyMap,
        "Upstreams that stand in for each other, by name: upstreams in their order; providers the group serves; balance (order \
         or weights); sticky keeps a session at one member; retry_refused sends what one refuses with 429 or 503 and a \
         Retry-After to the next. Read again on SIGHUP. Ours.",
        set!(upstreams.groups, groups),
    ),
    Setting::built(
        "routes",
        Kind::Records(ROUTE),
        Literal::EmptyList,
        "Which calls go to which upstream or group, the first that fits: a pattern of model names, a pattern of paths (`*` is any \
         text), upstream. Read again on SIGHUP. Ours.",
        set!(upstreams.routes, routes),
    ),
    Setting::built(
        "upstream_health.eject_after",
        Kind::u32_at_least(1),
        Literal::Int(3),
        "Failures in a row (no connection, no answer, 5xx, a client that gave up) after which a member of a group is passed by. Ours.",
        set!(upstreams.health.eject_after, int),
    ),
    Setting::built(
        "upstream_health.eject_ms",
        Kind::millis(1),
        Literal::Int(10_000),
        "For how long it is passed by the first time, before one call tries it; each further failure doubles that, up to 16 \
         times. Ours.",
        set!(upstreams.health.eject_ms, int),
    ),
    Setting::built(
        "upstream_health.panic_percent",
        Kind::Int { min: 0, max: 100 },
        Literal::Int(50),
        "With fewer healthy members than this part of a group that is balanced by weights, those whose time is up get their \
         share at once, not one call. Members are counted, whatever they weigh. Ours.",
        set!(upstreams.health.panic_percent, int),
    ),
    Setting::built(
        "upstream_health.left_after_ms",
        Kind::millis(0),
        Literal::Int(10_000),
        "A client that has waited so long for the beginning of an answer and leaves counts as a failure of the member that was \
         asked; 0: none does. Ours.",
        set!(upstreams.health.left_after_ms, int),
    ),
];

/// What `read` makes of a field; `None` where it is left out or null.
fn field<T>(entry: &Value, name: &str, read: impl FnOnce(&Value) -> Result<T, Unfit>) -> Result<Option<T>, Unfit> {
    entry.get(name).filter(|value| !value.is_null()).map(read).transpose()
}

fn members(value: &Value) -> Result<Vec<NamedUpstream>, Unfit> {
    let entries = value.as_object().ok_or(Unfit)?;
    entries.iter().map(|(name, entry)| member(name, entry)).collect()
}

fn member(name: &str, entry: &Value) -> Result<NamedUpstream, Unfit> {
    let url = text(entry.get("url").ok_or(Unfit)?)?;
    Ok(NamedUpstream {
        name: name.to_owned(),
        endpoint: address::upstream(url).map_err(|_| Unfit)?,
        egress: Egress::default(),
        providers: providers(entry)?,
        api_key: field(entry, "api_key", optional_secret)?.flatten(),
        ca_file: field(entry, "ca_file", optional_path)?.flatten(),
        timeout_ms: field(entry, "timeout_ms", optional_int)?.flatten(),
        connection_timeout_ms: field(entry, "connection_timeout_ms", optional_int)?.flatten(),
        max_connections: field(entry, "max_connections", optional_int)?.flatten(),
        weight: field(entry, "weight", int)?.unwrap_or(1),
    })
}

fn providers(entry: &Value) -> Result<Vec<Provider>, Unfit> {
    let names = field(entry, "providers", texts)?.unwrap_or_default();
    Ok(names.iter().map(|name| Provider::named(name)).collect())
}

fn groups(value: &Value) -> Result<Vec<UpstreamGroup>, Unfit> {
    let entries = value.as_object().ok_or(Unfit)?;
    let group = |(name, entry): (&String, &Value)| {
        let balance = |value: &Value| one_of(value, &[("order", Balance::Order), ("weights", Balance::Weights)]);
        Ok(UpstreamGroup {
            name: name.clone(),
            members: texts(entry.get("upstreams").ok_or(Unfit)?)?,
            providers: providers(entry)?,
            balance: field(entry, "balance", balance)?.unwrap_or(Balance::Order),
            sticky: field(entry, "sticky", flag)?.unwrap_or(false),
            retry_refused: field(entry, "retry_refused", flag)?.unwrap_or(false),
        })
    };
    entries.iter().map(group).collect()
}

fn routes(value: &Value) -> Result<Vec<RouteRule>, Unfit> {
    let pattern = |value: &Value| text(value).map(Pattern::new);
    let route = |entry: &Value| {
        Ok(RouteRule {
            model: field(entry, "model", pattern)?,
            path: field(entry, "path", pattern)?,
            upstream: owned_text(entry.get("upstream").ok_or(Unfit)?)?,
        })
    };
    value.as_array().ok_or(Unfit)?.iter().map(route).collect()
}
