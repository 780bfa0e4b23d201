-- What gateways share besides spans. Times are microseconds since 1970, money is nanodollars: integers both.
CREATE TABLE tenants (
    id BIGSERIAL PRIMARY KEY,
    uuid UUID NOT NULL UNIQUE,
    name TEXT,
    plan TEXT,
    config TEXT,
    created_us BIGINT NOT NULL,
    updated_us BIGINT,
    token_nonce BIGINT
);
-- What began before its tenant's deletion is not recorded any more, by whichever gateway.
CREATE TABLE burials (tenant UUID PRIMARY KEY, at_us BIGINT NOT NULL);
-- Traces deleted by one gateway that may still lie in the journal of another.
CREATE TABLE erasures (
    id BIGSERIAL PRIMARY KEY,
    tenant UUID NOT NULL,
    trace_id UUID NOT NULL,
    at_us BIGINT NOT NULL
);
CREATE TABLE api_keys (
    id BIGSERIAL PRIMARY KEY,
    key_id UUID NOT NULL UNIQUE,
    tenant UUID NOT NULL REFERENCES tenants (uuid) ON DELETE CASCADE,
    name TEXT NOT NULL,
    key_prefix TEXT NOT NULL,
    sha256 BYTEA NOT NULL UNIQUE,
    role TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    revoked_us BIGINT,
    last_used_us BIGINT
);
CREATE INDEX api_keys_of_tenant ON api_keys (tenant, id);
CREATE TABLE provider_keys (
    tenant UUID NOT NULL REFERENCES tenants (uuid) ON DELETE CASCADE,
    upstream TEXT NOT NULL,
    sealed BYTEA NOT NULL,
    key_sha256 BYTEA NOT NULL,
    created_us BIGINT NOT NULL,
    changed_us BIGINT NOT NULL,
    PRIMARY KEY (tenant, upstream)
);
CREATE TABLE token_key (id INTEGER PRIMARY KEY CHECK (id = 1), sha256 BYTEA NOT NULL);
-- What all gateways derive or decrypt with, by name.
CREATE TABLE shared_secrets (name TEXT PRIMARY KEY, value BYTEA NOT NULL);
-- One chain per gateway (`node`), one numbering for all of them. `nth` is the place in the tenant's list.
CREATE TABLE audit (
    seq BIGINT PRIMARY KEY,
    node UUID NOT NULL,
    at_us BIGINT NOT NULL,
    tenant UUID,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT,
    detail TEXT NOT NULL,
    hash BYTEA NOT NULL,
    nth BIGINT NOT NULL
);
CREATE INDEX audit_of_tenant ON audit (tenant, nth);
CREATE INDEX audit_of_service ON audit (at_us, seq) WHERE tenant IS NULL;
CREATE TABLE audit_heads (node UUID PRIMARY KEY, seq BIGINT NOT NULL, hash BYTEA NOT NULL);
CREATE TABLE reports (
    id BIGSERIAL PRIMARY KEY,
    tenant UUID NOT NULL REFERENCES tenants (uuid) ON DELETE CASCADE,
    report_id UUID NOT NULL UNIQUE,
    report_type TEXT NOT NULL,
    status TEXT NOT NULL,
    period_start_us BIGINT NOT NULL,
    period_end_us BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    completed_us BIGINT,
    content TEXT,
    error TEXT
);
CREATE INDEX reports_of_tenant ON reports (tenant, id);
CREATE INDEX reports_pending ON reports (id) WHERE status = 'pending';
-- The ledger: every operation once, by its id. The sums are its own and are written with it.
CREATE TABLE spend_ledger (
    operation UUID PRIMARY KEY,
    node UUID NOT NULL,
    tenant UUID NOT NULL,
    agent TEXT NOT NULL,
    span BIGINT NOT NULL,
    period_start_s BIGINT NOT NULL,
    nano_usd BIGINT NOT NULL,
    price_version TEXT,
    at_us BIGINT NOT NULL
);
CREATE INDEX spend_ledger_by_age ON spend_ledger (at_us);
CREATE TABLE spend (
    tenant UUID NOT NULL,
    agent TEXT NOT NULL,
    span BIGINT NOT NULL,
    node UUID NOT NULL,
    period_start_s BIGINT NOT NULL,
    nano_usd BIGINT NOT NULL,
    PRIMARY KEY (tenant, agent, span, node)
);
CREATE TABLE offences (address TEXT NOT NULL, span UUID NOT NULL, at_us BIGINT NOT NULL, PRIMARY KEY (address, span));
CREATE TABLE blocked_addresses (address TEXT PRIMARY KEY, until_us BIGINT NOT NULL);
CREATE TABLE made_objects (
    id BIGSERIAL PRIMARY KEY,
    tenant UUID NOT NULL REFERENCES tenants (uuid) ON DELETE CASCADE,
    upstream TEXT NOT NULL,
    object TEXT NOT NULL,
    UNIQUE (upstream, object)
);
CREATE INDEX made_objects_of_tenant ON made_objects (tenant, id);
CREATE TABLE judge_verdicts (
    id BIGSERIAL PRIMARY KEY,
    tenant UUID NOT NULL REFERENCES tenants (uuid) ON DELETE CASCADE,
    trace_id UUID NOT NULL,
    verdict_id UUID NOT NULL,
    reasoning TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (tenant, trace_id, verdict_id)
);
CREATE TABLE alerts (
    id BIGSERIAL PRIMARY KEY,
    tenant UUID NOT NULL REFERENCES tenants (uuid) ON DELETE CASCADE,
    alert_id UUID NOT NULL UNIQUE,
    channel TEXT NOT NULL,
    finding_type TEXT NOT NULL,
    severity BIGINT NOT NULL,
    score BIGINT NOT NULL,
    state TEXT NOT NULL,
    trace_id UUID,
    span_id UUID,
    first_us BIGINT NOT NULL,
    last_us BIGINT NOT NULL,
    count BIGINT NOT NULL,
    suppressed BIGINT NOT NULL,
    told_us BIGINT NOT NULL,
    quiet_us BIGINT NOT NULL,
    escalate_us BIGINT,
    escalated_us BIGINT,
    escalated_to TEXT,
    resolve_us BIGINT,
    resolved_us BIGINT,
    acked_us BIGINT,
    acked_by TEXT,
    close_us BIGINT,
    -- When the next message about it is due; LEAST passes over nulls.
    next_us BIGINT GENERATED ALWAYS AS (LEAST(
        CASE WHEN state <> 'resolved' THEN resolve_us END,
        CASE WHEN state = 'open' THEN escalate_us END,
        CASE WHEN suppressed > 0 THEN quiet_us END,
        close_us)) STORED
);
CREATE INDEX alerts_by_subject ON alerts (tenant, channel, finding_type, id);
CREATE INDEX alerts_due ON alerts (channel, next_us);
CREATE INDEX alerts_by_age ON alerts (last_us);
-- How far the findings of each journal are counted; `file` 0 stands for findings of none.
CREATE TABLE alert_counts (
    alert BIGINT NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    file BIGINT NOT NULL,
    counted UUID NOT NULL,
    counted_to BIGINT NOT NULL,
    PRIMARY KEY (alert, file)
);
CREATE TABLE alert_claims (
    tenant UUID NOT NULL REFERENCES tenants (uuid) ON DELETE CASCADE,
    channel TEXT NOT NULL,
    finding_type TEXT NOT NULL,
    owner UUID NOT NULL,
    until_us BIGINT NOT NULL,
    PRIMARY KEY (tenant, channel, finding_type)
);
CREATE TABLE alert_holders (
    tenant UUID NOT NULL REFERENCES tenants (uuid) ON DELETE CASCADE,
    channel TEXT NOT NULL,
    finding_type TEXT NOT NULL,
    owner UUID NOT NULL,
    until_us BIGINT NOT NULL,
    PRIMARY KEY (tenant, channel, finding_type, owner)
);
-- Gateways that have been seen, by the id of their journal.
CREATE TABLE nodes (node UUID PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, seen_us BIGINT NOT NULL);
