//! Which tables of a database file go into which of the relational store, column by column.

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Id,
    Int,
    Text,
    Bytes,
}

use Column::{Bytes, Id, Int, Text};

/// A table of the file and its place in the store.
pub(super) struct Table {
    /// In the store.
    pub(super) name: &'static str,
    /// Its rows in the file, in an order of their own.
    pub(super) from: &'static str,
    pub(super) columns: &'static [Column],
    /// Puts a row in; parameters are the columns, then what is named below.
    pub(super) into: &'static str,
    /// The number that a gateway on this file has.
    pub(super) names_node: bool,
    /// The file's.
    pub(super) names_file: bool,
}

const fn table(name: &'static str, from: &'static str, columns: &'static [Column], into: &'static str) -> Table {
    Table { name, from, columns, into, names_node: false, names_file: false }
}

const SPENT: &str = "SELECT tenant, agent, span, period_start_s, nano_usd FROM spend ORDER BY tenant, agent, span";

/// All of them, each behind those it refers to.
pub(super) const TABLES: &[Table] = &[
    table(
        "tenants",
        "SELECT uuid, name, plan, config, ifnull(created_us, 0), updated_us, token_nonce FROM tenants WHERE length(uuid) = 16 ORDER BY id",
        &[Id, Text, Text, Text, Int, Int, Int],
        "INSERT INTO tenants (uuid, name, plan, config, created_us, updated_us, token_nonce) VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (uuid) DO UPDATE SET name = coalesce(tenants.name, excluded.name), plan = coalesce(tenants.plan, excluded.plan), \
         config = coalesce(tenants.config, excluded.config), token_nonce = coalesce(tenants.token_nonce, excluded.token_nonce)",
    ),
    table(
        "burials",
        "SELECT tenant, at_us FROM burials ORDER BY id",
        &[Id, Int],
        "INSERT INTO burials (tenant, at_us) VALUES ($1, $2) ON CONFLICT (tenant) DO UPDATE SET at_us = greatest(burials.at_us, excluded.at_us)",
    ),
    table(
        "api_keys",
        "SELECT k.key_id, t.uuid, k.name, k.key_prefix, k.sha256, k.role, k.created_us, k.revoked_us, k.last_used_us \
         FROM api_keys k JOIN tenants t ON t.id = k.tenant WHERE length(t.uuid) = 16 ORDER BY k.id",
        &[Id, Id, Text, Text, Bytes, Text, Int, Int, Int],
        "INSERT INTO api_keys (key_id, tenant, name, key_prefix, sha256, role, created_us, revoked_us, last_used_us) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
    ),
    table(
        "provider_keys",
        "SELECT t.uuid, k.upstream, k.sealed, k.key_sha256, k.created_us, k.changed_us \
         FROM provider_keys k JOIN tenants t ON t.id = k.tenant WHERE length(t.uuid) = 16 ORDER BY k.tenant, k.upstream",
        &[Id, Text, Bytes, Bytes, Int, Int],
        "INSERT INTO provider_keys (tenant, upstream, sealed, key_sha256, created_us, changed_us) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT DO NOTHING",
    ),
    table(
        "token_key",
        "SELECT sha256 FROM token_key ORDER BY id",
        &[Bytes],
        "INSERT INTO token_key (id, sha256) VALUES (1, $1) ON CONFLICT DO NOTHING",
    ),
    Table {
        names_node: true,
        ..table(
            "audit",
            "SELECT seq, at_us, tenant, actor, action, target, detail, hash FROM audit ORDER BY seq",
            &[Int, Int, Id, Text, Text, Text, Text, Bytes],
            "INSERT INTO audit (seq, at_us, tenant, actor, action, target, detail, hash, node, nth) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, \
             CASE WHEN $3::uuid IS NULL THEN 0 ELSE 1 + coalesce((SELECT max(nth) FROM audit WHERE tenant = $3), 0) END)",
        )
    },
    table(
        "reports",
        "SELECT t.uuid, r.report_id, r.report_type, r.status, r.period_start_us, r.period_end_us, r.created_us, r.completed_us, r.content, \
         r.error FROM reports r JOIN tenants t ON t.id = r.tenant WHERE length(t.uuid) = 16 ORDER BY r.id",
        &[Id, Id, Text, Text, Int, Int, Int, Int, Text, Text],
        "INSERT INTO reports (tenant, report_id, report_type, status, period_start_us, period_end_us, created_us, completed_us, content, \
         error) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING",
    ),
    Table {
        names_node: true,
        ..table(
            "spend",
            SPENT,
            &[Id, Text, Int, Int, Int],
            "INSERT INTO spend (tenant, agent, span, period_start_s, nano_usd, node) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        )
    },
    Table {
        names_node: true,
        ..table(
            "spend_ledger",
            SPENT,
            &[Id, Text, Int, Int, Int],
            "INSERT INTO spend_ledger (tenant, agent, span, period_start_s, nano_usd, node, operation, at_us) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, (extract(epoch FROM now()) * 1000000)::bigint) ON CONFLICT DO NOTHING",
        )
    },
    table(
        "batch_charges",
        "SELECT tenant, provider, batch, nano_usd, at_us FROM batch_charges ORDER BY tenant, provider, batch",
        &[Id, Text, Text, Int, Int],
        "INSERT INTO batch_charges (tenant, provider, batch, nano_usd, at_us) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
    ),
    table(
        "offences",
        "SELECT address, span, at_us FROM offences ORDER BY address, span",
        &[Text, Id, Int],
        "INSERT INTO offences (address, span, at_us) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    ),
    table(
        "blocked_addresses",
        "SELECT address, until_us FROM blocked_addresses ORDER BY address",
        &[Text, Int],
        "INSERT INTO blocked_addresses (address, until_us) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    ),
    table(
        "made_objects",
        "SELECT t.uuid, o.upstream, o.object FROM made_objects o JOIN tenants t ON t.id = o.tenant WHERE length(t.uuid) = 16 ORDER BY o.id",
        &[Id, Text, Text],
        "INSERT INTO made_objects (tenant, upstream, object) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    ),
    table(
        "judge_verdicts",
        "SELECT t.uuid, v.trace_id, v.verdict_id, v.reasoning, v.body FROM judge_verdicts v JOIN tenants t ON t.id = v.tenant \
         WHERE length(t.uuid) = 16 ORDER BY v.id",
        &[Id, Id, Id, Text, Text],
        "INSERT INTO judge_verdicts (tenant, trace_id, verdict_id, reasoning, body) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
    ),
    table(
        "alerts",
        "SELECT t.uuid, a.alert_id, a.channel, a.finding_type, a.severity, a.score, a.state, a.trace_id, a.span_id, a.first_us, a.last_us, \
         a.count, a.suppressed, a.told_us, a.quiet_us, a.escalate_us, a.escalated_us, a.escalated_to, a.resolve_us, a.resolved_us, \
         a.acked_us, a.acked_by, a.close_us FROM alerts a JOIN tenants t ON t.id = a.tenant WHERE length(t.uuid) = 16 ORDER BY a.id",
        &[
            Id, Id, Text, Text, Int, Int, Text, Id, Id, Int, Int, Int, Int, Int, Int, Int, Int, Text, Int, Int, Int,
            Text, Int,
        ],
        "INSERT INTO alerts (tenant, alert_id, channel, finding_type, severity, score, state, trace_id, span_id, first_us, last_us, count, \
         suppressed, told_us, quiet_us, escalate_us, escalated_us, escalated_to, resolve_us, resolved_us, acked_us, acked_by, close_us) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23) \
         ON CONFLICT DO NOTHING",
    ),
    Table {
        names_file: true,
        ..table(
            "alert_counts",
            "SELECT a.alert_id, a.counted, a.counted_to FROM alerts a JOIN tenants t ON t.id = a.tenant WHERE length(t.uuid) = 16 ORDER BY a.id",
            &[Id, Id, Int],
            "INSERT INTO alert_counts (alert, file, counted, counted_to) SELECT id, $4, $2, $3 FROM alerts WHERE alert_id = $1 \
             ON CONFLICT DO NOTHING",
        )
    },
    table(
        "alert_holders",
        "SELECT t.uuid, h.channel, h.finding_type, h.owner, h.until_us FROM alert_holders h JOIN tenants t ON t.id = h.tenant \
         WHERE length(t.uuid) = 16 ORDER BY h.tenant, h.channel, h.finding_type, h.owner",
        &[Id, Text, Text, Id, Int],
        "INSERT INTO alert_holders (tenant, channel, finding_type, owner, until_us) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
    ),
];
