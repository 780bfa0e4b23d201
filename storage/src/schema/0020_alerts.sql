-- What channels of alerts were told, and what is still to be told: one row for findings of one type in one tenant at one channel,
-- made when the channel has accepted a message. `counted` is the last finding that is in `count`, so that a batch which comes again
-- is not counted again. Nothing of what was said stands here.
CREATE TABLE alerts (
    id           INTEGER PRIMARY KEY,
    tenant       INTEGER NOT NULL,
    alert_id     BLOB NOT NULL,
    channel      TEXT NOT NULL,
    finding_type TEXT NOT NULL,
    severity     INTEGER NOT NULL,
    score        INTEGER NOT NULL,
    state        TEXT NOT NULL,
    trace_id     BLOB,
    span_id      BLOB,
    first_us     INTEGER NOT NULL,
    last_us      INTEGER NOT NULL,
    count        INTEGER NOT NULL,
    suppressed   INTEGER NOT NULL DEFAULT 0,
    counted      BLOB NOT NULL,
    told_us      INTEGER NOT NULL,
    quiet_us     INTEGER NOT NULL,
    escalate_us  INTEGER,
    escalated_us INTEGER,
    resolve_us   INTEGER,
    resolved_us  INTEGER,
    acked_us     INTEGER,
    acked_by     TEXT,
    -- When the next message about it is due: the resolution, the escalation, or how many more there were.
    next_us      INTEGER AS (nullif(min(
        CASE WHEN state <> 'resolved' THEN ifnull(resolve_us, 9223372036854775807) ELSE 9223372036854775807 END,
        CASE WHEN state = 'open' THEN ifnull(escalate_us, 9223372036854775807) ELSE 9223372036854775807 END,
        CASE WHEN suppressed > 0 THEN quiet_us ELSE 9223372036854775807 END), 9223372036854775807)) VIRTUAL
) STRICT;
CREATE UNIQUE INDEX alerts_by_id ON alerts (tenant, alert_id);
CREATE INDEX alerts_by_subject ON alerts (tenant, channel, finding_type, id);
CREATE INDEX alerts_due ON alerts (channel, next_us) WHERE next_us IS NOT NULL;
CREATE INDEX alerts_by_age ON alerts (last_us);
CREATE INDEX alerts_by_trace ON alerts (tenant, trace_id) WHERE trace_id IS NOT NULL;

-- Who is about to send a message, so that no other process sends it, too; over with its time.
CREATE TABLE alert_claims (
    tenant       INTEGER NOT NULL,
    channel      TEXT NOT NULL,
    finding_type TEXT NOT NULL,
    owner        BLOB NOT NULL,
    until_us     INTEGER NOT NULL,
    PRIMARY KEY (tenant, channel, finding_type)
) STRICT, WITHOUT ROWID;
