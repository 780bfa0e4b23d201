-- Who says that what a channel was told of goes on: each process for itself, until it says that it is over or its time ends.
CREATE TABLE alert_holders (
    tenant       INTEGER NOT NULL,
    channel      TEXT NOT NULL,
    finding_type TEXT NOT NULL,
    owner        BLOB NOT NULL,
    until_us     INTEGER NOT NULL,
    PRIMARY KEY (tenant, channel, finding_type, owner)
) STRICT, WITHOUT ROWID;
-- What processes told of themselves before this table was there: they have ended.
UPDATE alerts SET resolve_us = told_us WHERE state <> 'resolved' AND resolve_us IS NULL
    AND finding_type IN ('storage_degraded', 'breaker_open_storage', 'breaker_open_security');

-- The channel that was told last because nobody had acknowledged the alert.
ALTER TABLE alerts ADD COLUMN escalated_to TEXT;

-- How far the spans of this file had been read when `counted` was: what another process finds before that place is counted.
ALTER TABLE alerts ADD COLUMN counted_to INTEGER NOT NULL DEFAULT 0;
