//! Every metric's name, labels and help text, once.
//!
//! Invariant: the names, types and label names of the interface stand here exactly as the contract spells them; the
//! rest are Weir's own. Knows no values.

/// Name and help text of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Metric name.
    pub name: &'static str,
    /// One sentence for a person.
    pub help: &'static str,
}

const fn family(name: &'static str, help: &'static str) -> Family {
    Family { name, help }
}

/// Gauge; `category`.
pub const GOLDEN_ALIGNMENT: Family =
    family("service_judge_golden_set_alignment", "Share of a category's threats flagged in the last replay.");
/// Gauge; `category`.
pub const GOLDEN_FALSE_POSITIVES: Family =
    family("service_judge_golden_set_false_positive_rate", "Share of a category's harmless texts flagged.");
/// Gauge.
pub const GOLDEN_REPLAYED: Family =
    family("service_judge_golden_set_last_replay_timestamp_seconds", "When the golden set was last replayed.");
/// Counter; `provider`, `mode`.
pub const DEFENCE_APPLIED: Family =
    family("service_boundary_defense_applied_total", "Requests whose tool messages were wrapped.");
/// Histogram; `provider`.
pub const DEFENCE_WRAPPED: Family =
    family("service_boundary_defense_messages_wrapped", "Tool messages wrapped in one request.");
/// Counter; `provider`.
pub const DEFENCE_REMINDERS: Family =
    family("service_boundary_defense_reminder_injected_total", "Reminders put in front of system prompts.");
/// Histogram; `provider`.
pub const DEFENCE_BYTES: Family =
    family("service_boundary_defense_overhead_bytes", "Bytes the defence added to one request.");
/// Counter; `error_type`.
pub const DEFENCE_ERRORS: Family =
    family("service_boundary_defense_errors_total", "Requests the defence could not rewrite.");
/// Counter; `reason`.
pub const DEFENCE_SKIPPED: Family =
    family("service_boundary_defense_skipped_total", "Requests the defence left alone.");
/// Gauge.
pub const DEFENCE_SHADOW: Family =
    family("service_boundary_defense_shadow_mode", "1 while the defence computes and does not act, else 0.");
/// Counter, ours; `provider`, `mode`.
pub const DATAMARKED: Family =
    family("service_datamarking_applied_total", "Requests in whose data white space was marked.");
/// Counter, ours; `provider`, `mode`.
pub const DATAMARKS: Family = family("service_datamarking_marks_total", "White space in data that was marked.");
/// Counter, ours; `mode`.
pub const ADVISED: Family = family(
    "service_advisory_total",
    "Requests with a system message about what was found, or that would have had one.",
);
/// Counter, ours; `mode`.
pub const REDACTIONS: Family = family(
    "service_redactions_total",
    "Pieces of personal data taken out of requests before they were forwarded, and with credentials out of answers, or that would have been.",
);
/// Counter; `provider`, `model`, `status_code`.
pub const REQUESTS: Family = family("service_requests_total", "Proxied requests by the status sent to the client.");
/// Histogram; `provider`, `model`.
pub const REQUEST_DURATION: Family = family(
    "service_request_duration_seconds",
    "Time from reading the request's head to relaying the last byte of the answer.",
);
/// Counter; `direction`, `provider`, `model`.
pub const TOKENS: Family = family("service_tokens_total", "Tokens, as the provider counted them or estimated.");
/// Counter; `tenant`, `model`.
pub const COST: Family =
    family("service_cost_usd_total", "Estimated cost in micro-USD; divide by 1,000,000 for US dollars.");
/// Counter, ours; `provider`, `model`.
pub const UNPRICED: Family = family(
    "service_unpriced_requests_total",
    "Answered requests that used tokens of a model without a known price; their cost counts nowhere.",
);
/// Counter, ours; `provider`, `state`.
pub const PROMPTS: Family = family(
    "service_prompt_cache_calls_total",
    "Answered calls of sessions by how their prompt goes on from the one before: first, kept, edited near its end, broken, started_over.",
);
/// Counter, ours; `provider`.
pub const PROMPTS_UNUSED: Family = family(
    "service_prompt_cache_unused_total",
    "Calls of whose prompt the provider read nothing from its cache, although it was equal, long enough, asked for and not old.",
);
/// Counter, ours; `provider`.
pub const PROMPT_TOKENS_LOST: Family = family(
    "service_prompt_cache_lost_tokens_total",
    "Tokens, about, that could have been read from a cache, had their prompt not parted from the one before.",
);
/// Counter; `severity`, `finding_type`.
pub const FINDINGS: Family = family("service_security_findings_total", "Security findings.");
/// Counter, ours; `outcome`.
pub const ANALYSED_BYTES: Family = family(
    "service_security_text_bytes_total",
    "Bytes of text by what the detectors did: scanned, or known to be clean from an earlier call and not scanned again.",
);
/// Counter, ours; `outcome`.
pub const ANALYSED_TEXTS: Family = family(
    "service_security_texts_total",
    "Texts by what the detectors did: scanned, or known to be clean from an earlier call; forgotten are those that made room for others in the memory of clean texts.",
);
/// Gauge, ours; `what`.
pub const KNOWN_TEXTS_BYTES: Family = family(
    "service_security_known_texts_bytes",
    "Memory for texts that are known to be clean: taken, and the most it may take, which goes by the memory of the machine.",
);
/// Histogram; `detector`.
pub const DETECTOR_LATENCY: Family =
    family("service_security_detector_latency_seconds", "Time one detector took for the text of one analysis.");
/// Gauge; `subsystem`, `state`.
pub const BREAKER_STATE: Family =
    family("service_circuit_breaker_state", "1 for the state the subsystem's circuit breaker is in, else 0.");
/// Counter; `operation`, `status`.
pub const STORAGE_OPERATIONS: Family =
    family("service_storage_operations_total", "Storage operations by outcome; writes count one per span.");
/// Gauge.
pub const ACTIVE_CONNECTIONS: Family = family("service_active_connections", "Client connections open now.");

/// Counter, ours; `event`.
pub const CLIENT_CONNECTIONS: Family = family(
    "service_client_connections_total",
    "Client connections by what became of them: accepted; evicted while idle for a new one; refused, and why.",
);

/// Gauge, ours; `version`, `io_driver`.
pub const BUILD_INFO: Family = family("service_build_info", "Always 1; the labels say what is running.");
/// Histogram, ours.
pub const OVERHEAD: Family =
    family("service_overhead_seconds", "Time the gateway added to one exchange, waits for both peers excluded.");
/// Counter, ours; `consumer`.
pub const CONSUMER_DELIVERED: Family = family(
    "service_consumer_spans_total",
    "Finished spans a consumer has taken; after a retry or a restart one may count twice.",
);
/// Counter, ours; `consumer`.
pub const CONSUMER_FAILURES: Family =
    family("service_consumer_failures_total", "Attempts to bring finished spans to a consumer that failed.");
/// Counter, ours; `consumer`, `reason`.
pub const CONSUMER_LOST: Family = family(
    "service_consumer_lost_total",
    "Finished spans a consumer will never get: no room in memory, removed from the store, refused, given up, or in memory at the end.",
);
/// Counter; `action_type`.
pub const ACTIONS: Family = family("service_action_executions_total", "Actions the router executed.");
/// Counter, ours; `action_type`, `reason`.
pub const ACTIONS_NOT_TAKEN: Family = family(
    "service_actions_not_taken_total",
    "Actions the router's rules asked for and that were not taken, with the reason.",
);
/// Counter; `anomaly_type`.
pub const ANOMALIES: Family =
    family("service_anomalies_total", "Values of calls far above those of their tenant's latest calls.");
/// Counter, ours; `receiver`, `outcome`.
pub const OTEL_SPANS: Family = family(
    "service_otel_export_spans_total",
    "Spans by receiver of `otel_export` and outcome: sent, and of these cut; rejected by a receiver that took the others, refused with their request, not wanted by its filters, not sampled.",
);
/// Counter, ours; `receiver`.
pub const OTEL_REQUESTS: Family =
    family("service_otel_export_requests_total", "Requests with spans that were sent to a receiver of `otel_export`.");
/// Counter, ours; `receiver`.
pub const OTEL_FAILURES: Family = family(
    "service_otel_export_failures_total",
    "Requests that a receiver of `otel_export` did not take and that are sent again.",
);
/// Counter, ours; `receiver`, `outcome`.
pub const OTEL_METRICS: Family = family(
    "service_otel_export_metrics_requests_total",
    "Requests with metrics to a receiver of `otel_export`, by whether it took all of them; the next one says all again.",
);
/// Gauge, ours; `receiver`.
pub const OTEL_LAG: Family = family(
    "service_otel_export_lag_seconds",
    "Time since the oldest call ended that is being sent to a receiver of `otel_export`; 0 while none is.",
);
/// Counter, ours; `receiver`.
pub const SIEM_EVENTS: Family = family(
    "service_siem_export_events_total",
    "Events that were written to a receiver of `siem_export`, or that it took.",
);
/// Counter, ours; `receiver`.
pub const SIEM_REFUSED: Family = family(
    "service_siem_export_refused_total",
    "Events that a receiver of `siem_export` refused for good while it took others.",
);
/// Counter, ours; `receiver`.
pub const SIEM_FAILURES: Family = family(
    "service_siem_export_failures_total",
    "Attempts to send events to a receiver of `siem_export` that failed and are made again.",
);
/// Counter, ours; `kind`.
pub const RECEIPTS: Family =
    family("service_receipts_total", "Receipts that were signed and written, of calls and of the audit log.");
/// Counter, ours; `kind`.
pub const RECEIPT_FAILURES: Family = family(
    "service_receipts_failures_total",
    "Attempts to write receipts, of calls and of the audit log, that failed and are made again.",
);
/// Counter, ours; `channel`, `outcome`.
pub const ALERTS: Family = family(
    "service_alerts_total",
    "Alerts by channel and outcome: messages sent, summaries, escalations, resolutions and failed attempts; findings suppressed by the cooldown, refused by the receiver, too old, or without room.",
);
/// Counter, ours; `queue`, `reason`.
pub const DROPPED: Family = family("service_dropped_total", "Items a bounded queue turned away or gave up.");
/// Counter, ours; `method`, `code`.
pub const GRPC_CALLS: Family =
    family("service_grpc_requests_total", "Calls of the gRPC listener by method and by how they ended.");
/// Counter, ours; `direction`, `reason`.
pub const UNREAD: Family =
    family("service_unread_total", "Requests and answers that were not read whole, by what kept them from it.");
/// Counter, ours; `how`.
pub const ANSWERS_STOPPED: Family = family(
    "service_answers_stopped_total",
    "Answers that were withheld, by what the client got: a legal end of the stream, an error instead, or a cut.",
);
/// Histogram, ours.
pub const ANSWER_HELD_BYTES: Family = family(
    "service_answer_held_bytes",
    "Bytes that waited at most of an answer that may be withheld, for each answer of which some did.",
);
/// Counter, ours; `bound`.
pub const REMOVED_FOR_ROOM: Family = family(
    "service_storage_removed_spans_total",
    "Spans removed for want of room, by the bound: of the database (`storage.max_bytes`) or of a tenant.",
);
/// Gauge, ours.
pub const GATEWAYS: Family =
    family("service_gateways", "Gateways that share rate limits and budgets with this one, itself included.");
/// Gauge, ours; `store`.
pub const STORE_AWAY: Family =
    family("service_store_away", "1 while a store that gateways share does not answer this one, else 0.");
/// Gauge, ours.
pub const LIMITS_APART: Family = family(
    "service_rate_limits_apart",
    "1 while the cache does not answer and each gateway grants its own part of rate limits, else 0.",
);
/// Counter, ours.
pub const LIMITED_APART: Family = family(
    "service_rate_limits_apart_decisions_total",
    "Requests decided by this gateway's own part of a rate limit, because the cache did not answer.",
);
/// Gauge, ours; `queue`.
pub const QUEUE_DEPTH: Family = family("service_queue_depth", "Items waiting in a bounded queue now.");
/// Gauge, ours; `queue`.
pub const QUEUE_CAPACITY: Family = family("service_queue_capacity", "Items a bounded queue holds at most.");
/// Counter, ours.
pub const PANICS: Family = family("service_panics_total", "Panics caught; each cost one request.");
/// Gauge, ours; `state`.
pub const UPSTREAM_CONNECTIONS: Family =
    family("service_upstream_connections", "Connections to the upstream by what they are doing.");
/// Counter, ours; `upstream`, `outcome`.
pub const UPSTREAM_CALLS: Family =
    family("service_upstream_calls_total", "Tries at an upstream of `upstreams` by what became of them.");
/// Gauge, ours; `upstream`.
pub const UPSTREAM_HEALTHY: Family =
    family("service_upstream_healthy", "1 while calls go to the upstream, 0 while its groups pass it by.");
/// Counter, ours; `upstream`.
pub const UPSTREAM_EJECTIONS: Family =
    family("service_upstream_ejections_total", "Times the groups of an upstream began to pass it by.");
/// Counter, ours; `label`.
pub const LABEL_FOLDS: Family = family(
    "service_label_folds_total",
    "Observations shown as `other` because their label value was malformed or too many.",
);
/// Gauge, ours; `core`.
pub const LOOP_LAG: Family =
    family("service_core_loop_lag_seconds", "How much later than asked a core's loop last woke.");
/// Gauge, ours; `core`.
pub const LOOP_LAG_MAX: Family =
    family("service_core_loop_lag_max_seconds", "The largest lag of a core's loop since the start.");
/// Gauge, ours; `core`.
pub const HEARTBEAT_AGE: Family =
    family("service_core_heartbeat_age_seconds", "Time since a core's loop last turned; about a second when idle.");

/// Counter; `backend`, `model`, `mode`, `status`.
pub const JUDGE_REQUESTS: Family = family("service_judge_requests_total", "Questions to the judge by outcome.");
/// Histogram; `backend`, `model`, `mode`.
pub const JUDGE_LATENCY: Family = family("service_judge_latency_seconds", "Time the judge took for one verdict.");
/// Counter; `direction`, `backend`, `model`.
pub const JUDGE_TOKENS: Family = family("service_judge_tokens_total", "Tokens the judge used.");
/// Counter; `category`, `recommended_action`, `is_threat`, `model`.
pub const JUDGE_VERDICTS: Family = family("service_judge_verdicts_total", "Verdicts of the judge.");
/// Gauge.
pub const JUDGE_QUEUE_DEPTH: Family = family("service_judge_queue_depth", "Items in the judge worker's queue now.");
/// Counter; `agreement`, the judge's view named last.
pub const JUDGE_AGREEMENT: Family =
    family("service_judge_verdict_agreement", "Verdicts by agreement with the prior decision.");
/// Counter; `reason`.
pub const JUDGE_DROPPED: Family = family("service_judge_dropped_total", "Requests never sent to the judge's backend.");
/// Counter; `reason`.
pub const JUDGE_HELD: Family =
    family("service_judge_promotion_rejected_total", "Verdicts the promotion gate held back.");
/// Counter; `category`, `recommended_action`.
pub const JUDGE_SHADOW: Family =
    family("service_judge_shadow_would_block_total", "Blocks the judge would have made outside shadow mode.");
/// Counter, ours; `backend`, `model`.
pub const JUDGE_COST: Family =
    family("service_judge_cost_usd_total", "Cost of the judge in micro-USD; it counts in no tenant's budget.");
/// Counter, ours.
pub const JUDGE_REMEMBERED: Family =
    family("service_judge_cache_hits_total", "Verdicts given again about a text the judge has seen a short while ago.");
