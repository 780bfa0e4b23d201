CREATE TABLE IF NOT EXISTS weir_calls (
    tenant_id UUID,
    start_us Int64 CODEC(Delta, ZSTD(1)),
    start_time DateTime64(6, 'UTC') ALIAS fromUnixTimestamp64Micro(start_us),
    trace_id UUID,
    span_id UUID,
    node UUID CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta, ZSTD(1)),
    version UInt64,
    provider LowCardinality(String),
    model LowCardinality(Nullable(String)),
    operation LowCardinality(String),
    agent_id Nullable(String) CODEC(ZSTD(1)),
    session_id Nullable(String) CODEC(ZSTD(1)),
    client LowCardinality(Nullable(String)),
    upstream LowCardinality(Nullable(String)),
    status UInt16,
    streaming UInt8,
    error_type LowCardinality(Nullable(String)),
    enforcement LowCardinality(String),
    score Nullable(UInt8),
    prompt_tokens UInt64,
    completion_tokens UInt64,
    total_tokens UInt64,
    cached_tokens UInt64,
    cost_nano_usd Nullable(Int64),
    duration_us Int64,
    finding_types Array(LowCardinality(String)),
    findings UInt32,
    action_types Array(LowCardinality(String)),
    action_names Array(String),
    action_succeeded Array(UInt8),
    -- What came of the prompt where it was compared with the one that its session sent before.
    prompt_broken UInt8,
    prompt_unused UInt8,
    lost_tokens UInt64,
    lost_nano_usd Int64,
    compared_tokens UInt64,
    compared_cached_tokens UInt64,
    bytes UInt64,
    INDEX by_trace trace_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX by_span span_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX by_score score TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree(version)
PARTITION BY toMonday(fromUnixTimestamp64Micro(start_us))
ORDER BY (tenant_id, start_us, span_id)
SETTINGS non_replicated_deduplication_window = 1000;
CREATE TABLE IF NOT EXISTS weir_spans (
    tenant_id UUID,
    start_us Int64 CODEC(Delta, ZSTD(1)),
    start_time DateTime64(6, 'UTC') ALIAS fromUnixTimestamp64Micro(start_us),
    trace_id UUID,
    span_id UUID,
    node UUID CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta, ZSTD(1)),
    version UInt64,
    reported UInt32,
    record String CODEC(ZSTD(3)),
    attributes String CODEC(ZSTD(3)),
    prompt Nullable(String) CODEC(ZSTD(3)),
    response Nullable(String) CODEC(ZSTD(3)),
    parts String CODEC(ZSTD(3)),
    frame String CODEC(ZSTD(3)),
    INDEX by_trace trace_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX by_span span_id TYPE bloom_filter(0.001) GRANULARITY 1
) ENGINE = ReplacingMergeTree(version)
PARTITION BY toMonday(fromUnixTimestamp64Micro(start_us))
ORDER BY (tenant_id, start_us, span_id)
SETTINGS non_replicated_deduplication_window = 1000, index_granularity_bytes = '64Mi';
CREATE TABLE IF NOT EXISTS weir_batches (
    node UUID,
    first UInt64,
    last UInt64,
    spans UInt64,
    at_us Int64
) ENGINE = ReplacingMergeTree ORDER BY (node, first) SETTINGS non_replicated_deduplication_window = 1000;
