//! The table of every route the gateway answers itself. A route that is not here is 404, and what stands here is what the
//! OpenAPI document says.
//!
//! Invariant: one row per method and path; every path is one of the gateway's own (`paths`). Handlers live in one file per
//! resource.

use weir_storage::actions::ActionsSummary;
use weir_storage::alerts::AlertRecord;
use weir_storage::query::Paged;
use weir_storage::record::{SpanRecord, TraceRecord};
use weir_storage::reports::ReportRecord;
use weir_storage::stats::Stats;
use weir_storage::tenants::TenantRecord;
use weir_storage::usage::SessionRecord;

use super::access::{ADMIN, OPEN, OPERATOR, VIEWER};
use super::listed::{LINES, Listed};
use super::route::Route;
use super::shown::{SpanShown, TraceShown};
use super::state::NotPersisted;
use super::{
    actions, alerts, audit, config, console, costs, debug as debugging, keys, openapi, operations, otlp, provider_keys,
    query, receipts, replays, reports, series, sessions, spans, stats, swagger, tenants, traces,
};
use crate::control::{REPORTS, Word};
use crate::golden;
use crate::identity::ProviderKeyRecord;
use crate::ops::health::Report;
use crate::replay::ReplayRequest;

/// All routes.
pub(super) fn table() -> Vec<Route> {
    [
        operational(),
        documentation(),
        browsing(),
        records(),
        agents(),
        compliance(),
        trials(),
        money(),
        config(),
        identities(),
        debug(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn operational() -> Vec<Route> {
    vec![
        Route::get("/health", OPEN, operations::health)
            .says("Operations", "health", "What works and what does not")
            .any_query()
            .answers::<Report>(200, "Healthy or degraded: traffic is served")
            .answers::<Report>(503, "Starting or draining"),
        Route::get("/livez", OPEN, operations::livez)
            .says("Operations", "livez", "Whether the process answers at all")
            .any_query()
            .answers::<Word>(200, "It does"),
        Route::get("/readyz", OPEN, operations::readyz)
            .says("Operations", "readyz", "Whether traffic should be sent here")
            .any_query()
            .answers::<Word>(200, "Ready")
            .answers::<Word>(503, "Starting or draining"),
        Route::get("/metrics", ADMIN, operations::metrics)
            .for_scrapers()
            .says("Operations", "metrics", "Prometheus text 0.0.4")
            .any_query()
            .content(200, "The exposition", Some((crate::meter::CONTENT_TYPE, operations::text_schema))),
    ]
}

fn debug() -> Vec<Route> {
    vec![
        Route::get("/debug/judge/verdicts", OPEN, debugging::verdicts)
            .says("Debug", "list_verdicts", "The judge's verdicts about a trace")
            .query(query::VERDICTS)
            .answers::<debugging::Verdicts>(200, "The verdicts; none where the tenant has no such trace")
            .content(200, "", Some((LINES, operations::text_schema)))
            .debug(),
        Route::get("/debug/judge/golden_set/replay", OPEN, debugging::replay)
            .says("Debug", "replay_golden_set", "Looks at the golden set and says where it disagrees")
            .any_query()
            .answers::<golden::Report>(200, "What came of it")
            .refuses(503, "SERVICE_GOLDEN_SET_PATH is not set, or a file below it is no fixture")
            .debug(),
    ]
}

fn documentation() -> Vec<Route> {
    let page = |path, operation| {
        Route::get(path, OPEN, swagger::index)
            .says("Documentation", operation, "Swagger UI over this document")
            .any_query()
            .content(200, "The page", Some(("text/html", operations::text_schema)))
            .undocumented()
    };
    vec![
        Route::get("/api-doc/openapi.json", OPEN, openapi::show)
            .says("Documentation", "openapi", "This document")
            .any_query()
            .answers::<serde_json::Map<String, serde_json::Value>>(200, "OpenAPI 3.1"),
        page("/swagger-ui", "swagger_ui"),
        page("/swagger-ui/", "swagger_ui_folder"),
        Route::get("/swagger-ui/{file}", OPEN, swagger::file)
            .says("Documentation", "swagger_ui_file", "A file of Swagger UI")
            .any_query()
            .content(200, "The file", Some(("text/css", operations::text_schema)))
            .undocumented(),
    ]
}

fn browsing() -> Vec<Route> {
    let page = |path, operation| {
        Route::get(path, OPEN, console::index)
            .says("Console", operation, "The console's page")
            .any_query()
            .content(200, "The page", Some(("text/html", operations::text_schema)))
            .console()
    };
    vec![
        page("/ui", "console"),
        page("/ui/", "console_folder"),
        Route::get("/ui/{file}", OPEN, console::file)
            .says("Console", "console_file", "A page of the console by its name, or a file of it")
            .any_query()
            .content(200, "The file", Some(("text/javascript", operations::text_schema)))
            .console(),
    ]
}

fn records() -> Vec<Route> {
    vec![
        Route::get("/api/v1/traces", VIEWER, traces::list)
            .says("Records", "list_traces", "Traces with their spans, newest first")
            .query(query::TRACES)
            .answers::<Listed<TraceRecord>>(200, "One page of traces")
            .content(200, "", Some((LINES, operations::text_schema))),
        Route::get("/api/v1/traces/{trace_id}", VIEWER, traces::one)
            .says("Records", "get_trace", "One trace with all its spans")
            .query(query::ONE)
            .answers::<TraceShown<'_>>(200, "The trace"),
        Route::delete("/api/v1/traces/{trace_id}", ADMIN, traces::delete)
            .says("Records", "delete_trace", "Delete a trace with its spans, actions and texts")
            .content(204, "It is gone", None),
        Route::get("/api/v1/spans", VIEWER, spans::list)
            .says("Records", "list_spans", "Spans, newest first")
            .query(query::SPANS)
            .answers::<Listed<SpanRecord>>(200, "One page of spans")
            .content(200, "", Some((LINES, operations::text_schema))),
        Route::get("/api/v1/spans/{span_id}", VIEWER, spans::one)
            .says("Records", "get_span", "One span, by its id or by the 16 digits that OpenTelemetry has of it")
            .query(query::ONE)
            .answers::<SpanShown<'_>>(200, "The span"),
        Route::get("/api/v1/security/findings", VIEWER, spans::findings)
            .says("Records", "list_findings", "Spans with a score above 0, newest first, findings included")
            .query(query::FINDINGS)
            .answers::<Listed<SpanRecord>>(200, "One page of spans")
            .content(200, "", Some((LINES, operations::text_schema))),
        Route::get("/api/v1/alerts", VIEWER, alerts::list)
            .says("Records", "list_alerts", "What channels of alerts were told, newest first")
            .query(query::ALERTS)
            .answers::<Paged<AlertRecord>>(200, "One page of alerts")
            .content(200, "", Some((LINES, operations::text_schema))),
        Route::post("/api/v1/alerts/{alert_id}/ack", OPERATOR, alerts::acknowledge)
            .says(
                "Records",
                "acknowledge_alert",
                "Says that somebody knows: neither this alert nor another one of its type in the tenant goes to a further channel",
            )
            .answers::<AlertRecord>(200, "The alert, acknowledged now or before, or resolved"),
        Route::post("/api/v1/alerts/{alert_id}/redeliver", OPERATOR, alerts::redeliver)
            .says("Records", "redeliver_alert", "Has the alert's channel told of it once more, now, whatever its cooldown")
            .answers::<AlertRecord>(202, "The alert; what is over is not told again"),
        Route::get("/api/v1/sessions", VIEWER, sessions::list)
            .says("Records", "list_sessions", "Sessions in the order in which they were first seen, newest first")
            .query(query::SESSIONS)
            .answers::<Listed<SessionRecord>>(200, "One page of sessions")
            .content(200, "", Some((LINES, operations::text_schema))),
        Route::get("/api/v1/stats", VIEWER, stats::show)
            .says("Records", "get_stats", "The tenant's records in sum")
            .answers::<Stats>(200, "The sums"),
    ]
}

fn agents() -> Vec<Route> {
    vec![
        Route::post("/api/v1/traces/{trace_id}/actions", OPERATOR, actions::report)
            .says("Agents", "report_action", "Records what an agent did, and says what is dangerous about it")
            .takes::<actions::ActionReport>()
            .answers::<actions::ActionRecorded<'_>>(201, "The action is recorded"),
        Route::get("/api/v1/actions/summary", VIEWER, actions::summary)
            .says("Agents", "summarise_actions", "Reported actions in sum")
            .query(query::ACTIONS)
            .answers::<ActionsSummary>(200, "The sums"),
        Route::post(REPORTS, OPERATOR, otlp::traces)
            .says("Agents", "export_traces", "Takes traces by OTLP/HTTP, JSON or protobuf, once they are committed")
            .for_ingest(otlp::BODY_BYTES_MAX)
            .any_query()
            .answers::<otlp::Exported>(200, "Taken, but for the spans that are named")
            .refuses(413, "The body is too long, as sent or decoded")
            .refuses(415, "Neither JSON nor protobuf, or an unknown content coding")
            .refuses(503, "No room at the moment; try again after `Retry-After`"),
    ]
}

fn compliance() -> Vec<Route> {
    vec![
        Route::post("/api/v1/reports/generate", OPERATOR, reports::generate)
            .says("Compliance", "generate_report", "Has a report built in the background")
            .takes::<reports::ReportRequest>()
            .answers::<reports::ReportAccepted>(202, "It is being built")
            .refuses(429, "Ten reports of the tenant wait to be built"),
        Route::get("/api/v1/reports", VIEWER, reports::list)
            .says("Compliance", "list_reports", "Reports, newest first")
            .query(query::PAGE)
            .answers::<Paged<ReportRecord>>(200, "One page of reports")
            .content(200, "", Some((LINES, operations::text_schema))),
        Route::get("/api/v1/reports/{report_id}", VIEWER, reports::one)
            .says("Compliance", "get_report", "One report")
            .answers::<ReportRecord>(200, "The report"),
        Route::get("/api/v1/receipts/key", OPEN, receipts::key)
            .says("Compliance", "receipt_key", "The public key by which signed receipts are checked")
            .any_query()
            .answers::<receipts::ReceiptKey>(200, "The key")
            .refuses(404, "`receipts.enabled` is false"),
        Route::get("/api/v1/audit", ADMIN, audit::list)
            .says("Compliance", "list_audit", "Administrative events, newest first, and whether the log is whole")
            .query(query::AUDIT)
            .answers::<audit::AuditPage>(200, "One page of events")
            .content(200, "", Some((LINES, operations::text_schema))),
    ]
}

fn trials() -> Vec<Route> {
    vec![
        Route::post("/api/v1/replays", OPERATOR, replays::begin)
            .says(
                "Replays",
                "begin_replay",
                "Has a change of rules or settings tried on recorded calls, in the background",
            )
            .takes::<ReplayRequest>()
            .answers::<replays::ReplayProgress>(202, "It begins as soon as it is its turn")
            .refuses(429, "A replay of the tenant is under way, or as many as may be of all tenants"),
        Route::get("/api/v1/replays", OPERATOR, replays::list)
            .says("Replays", "list_replays", "The tenant's replays since the gateway's start, newest first")
            .query(query::WHOLE)
            .answers::<replays::ReplayList>(200, "The replays; what came of each is shown by its id")
            .content(200, "", Some((LINES, operations::text_schema))),
        Route::get("/api/v1/replays/{replay_id}", OPERATOR, replays::one)
            .says("Replays", "get_replay", "How far a replay is, and what would be different as far as it has come")
            .answers::<replays::ReplayShown>(200, "The replay"),
        Route::delete("/api/v1/replays/{replay_id}", OPERATOR, replays::delete)
            .says(
                "Replays",
                "end_replay",
                "Ends a replay that waits or runs, which stays to be read; forgets one that is over",
            )
            .content(204, "It ends, or is gone", None),
    ]
}

fn money() -> Vec<Route> {
    vec![
        Route::get("/api/v1/costs/current", VIEWER, costs::current)
            .says(
                "Costs",
                "current_costs",
                "What an agent, its tenant and a key have spent in the windows they have budgets for",
            )
            .query(query::COSTS)
            .answers::<costs::SpendSnapshot>(200, "The running windows")
            .refuses(404, "Cost caps are switched off, and no key with budgets is asked for"),
        Route::get("/api/v1/costs/series", VIEWER, series::costs)
            .says("Costs", "cost_series", "Calls, tokens and cost, hour by hour or day by day")
            .query(query::SERIES)
            .answers::<series::CostSeries>(200, "The buckets in which something was used")
            .content(200, "", Some((LINES, operations::text_schema))),
    ]
}

fn config() -> Vec<Route> {
    vec![
        Route::get("/api/v1/config/features", ADMIN, config::features)
            .says("Configuration", "get_features", "The flags that change without a restart")
            .answers::<config::Flags>(200, "Every flag with its value in effect"),
        Route::put("/api/v1/config/features", ADMIN, config::change_features)
            .says("Configuration", "change_features", "Change some flags, all or none")
            .takes::<config::Flags>()
            .answers::<config::Flags>(200, "Every flag after the change, and `persisted`")
            .refuses(409, "An environment variable pins the flag"),
        Route::get("/api/v1/config/live", ADMIN, config::live)
            .says("Configuration", "get_live_config", "The running configuration, secrets masked")
            .answers::<config::Live>(200, "Every setting and the layer it comes from"),
        Route::get("/admin/feature-flags", ADMIN, config::admin_flags)
            .says("Configuration", "get_admin_flags", "The judge's flag")
            .answers::<config::AdminFlags>(200, "The flag"),
        Route::put("/admin/feature-flags/llm_judge_enabled", ADMIN, config::change_admin_flag)
            .says("Configuration", "change_judge_flag", "Switch the judge on or off")
            .takes::<config::Switch>()
            .answers::<config::AdminFlags>(200, "The flag after the change")
            .refuses(409, "An environment variable pins the flag"),
    ]
}

fn identities() -> Vec<Route> {
    vec![
        Route::post("/api/v1/tenants", ADMIN, tenants::create)
            .says("Tenants", "create_tenant", "Create a tenant")
            .takes::<tenants::Create>()
            .answers::<TenantRecord>(201, "The tenant"),
        Route::get("/api/v1/tenants", ADMIN, tenants::list)
            .says("Tenants", "list_tenants", "All tenants, newest first")
            .query(query::PAGE)
            .answers::<Paged<TenantRecord>>(200, "One page of tenants")
            .content(200, "", Some((LINES, operations::text_schema))),
        Route::get("/api/v1/tenants/{id}", ADMIN, tenants::one)
            .says("Tenants", "get_tenant", "One tenant")
            .answers::<TenantRecord>(200, "The tenant"),
        Route::put("/api/v1/tenants/{id}", ADMIN, tenants::update)
            .says("Tenants", "update_tenant", "Change name, plan or config; what is left out stays")
            .takes::<tenants::Update>()
            .answers::<TenantRecord>(200, "The tenant as it is now"),
        Route::delete("/api/v1/tenants/{id}", ADMIN, tenants::delete)
            .ends_credentials()
            .says("Tenants", "delete_tenant", "Delete a tenant with its keys, token and records")
            .content(204, "It is gone", None)
            .answers::<NotPersisted>(202, "Its credentials let nobody in; the store could not take the deletion yet"),
        Route::get("/api/v1/tenants/current/token", OPERATOR, tenants::own_token)
            .says("Tenants", "get_own_token", "The token of the caller's tenant, issued now if it has none")
            .answers::<tenants::Token<'_>>(200, "The token"),
        Route::get("/api/v1/tenants/{id}/token", ADMIN, tenants::token)
            .says("Tenants", "get_token", "A tenant's token, issued now if it has none")
            .answers::<tenants::Token<'_>>(200, "The token"),
        Route::post("/api/v1/tenants/{id}/token/reset", ADMIN, tenants::reset_token)
            .ends_credentials()
            .says("Tenants", "reset_token", "Replace a tenant's token; the former one is refused from now on")
            .answers::<tenants::Reset<'_>>(200, "The new token"),
        Route::get("/api/v1/tenants/{id}/provider-keys", ADMIN, provider_keys::list)
            .says("Tenants", "list_provider_keys", "For which upstreams a tenant has a credential of its own")
            .query(query::WHOLE)
            .answers::<provider_keys::ProviderKeys>(200, "The upstreams; no credential is shown")
            .content(200, "", Some((LINES, operations::text_schema))),
        Route::put("/api/v1/tenants/{id}/provider-keys/{upstream}", ADMIN, provider_keys::put)
            .says("Tenants", "set_provider_key", "Set or rotate a tenant's own credential for an upstream")
            .takes::<provider_keys::Put>()
            .answers::<ProviderKeyRecord>(200, "It is stored encrypted, and in force")
            .refuses(409, "Authentication is off, or the tenant has as many as it may"),
        Route::delete("/api/v1/tenants/{id}/provider-keys/{upstream}", ADMIN, provider_keys::delete)
            .says("Tenants", "remove_provider_key", "Remove a tenant's own credential for an upstream")
            .content(204, "It is gone; calls go with the upstream's own, if it has one", None),
        Route::get("/api/v1/auth/current", VIEWER, keys::current)
            .says("API keys", "current_caller", "Who the caller is: role, tenant, and how that is known")
            .answers::<keys::Current>(200, "The caller"),
        Route::post("/api/v1/auth/keys", ADMIN, keys::create)
            .says("API keys", "create_key", "Create a key; its text is shown this once")
            .takes::<keys::Create>()
            .answers::<keys::Created<'_>>(201, "The key")
            .refuses(404, "No such tenant"),
        Route::get("/api/v1/auth/keys", ADMIN, keys::list)
            .says("API keys", "list_keys", "The tenant's keys, newest first, revoked ones among them")
            .query(query::KEYS)
            .answers::<Paged<keys::Listed>>(200, "One page of keys")
            .content(200, "", Some((LINES, operations::text_schema))),
        Route::put("/api/v1/auth/keys/{id}", ADMIN, keys::update)
            .says("API keys", "update_key", "Set what a key may use, in force at once")
            .takes::<keys::Update>()
            .answers::<keys::Updated>(200, "What it may use from now on")
            .refuses(404, "No such key")
            .refuses(409, "What its tenant may use cannot be read"),
        Route::delete("/api/v1/auth/keys/{id}", ADMIN, keys::revoke)
            .ends_credentials()
            .says("API keys", "revoke_key", "Revoke a key; it lets nobody in from now on")
            .content(204, "It is revoked", None)
            .answers::<NotPersisted>(202, "It lets nobody in; the store could not take the revocation yet"),
    ]
}
