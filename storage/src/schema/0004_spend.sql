-- What agents of tenants have spent in their running calendar windows: one row per agent and window (0 hour, 1 day, 2 ISO
-- week, 3 month), overwritten when the next period begins. The tenant is its UUID here: a budget needs no record.
CREATE TABLE spend (
    tenant         BLOB NOT NULL,
    agent          TEXT NOT NULL,
    span           INTEGER NOT NULL,
    period_start_s INTEGER NOT NULL,
    nano_usd       INTEGER NOT NULL,
    PRIMARY KEY (tenant, agent, span)
) STRICT, WITHOUT ROWID;
