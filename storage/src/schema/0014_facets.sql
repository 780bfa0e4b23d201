-- What lists are filtered by beside provider, model, operation and score. `client` is NULL in rows of a version before until
-- housekeeping has filled them in from their bodies. `error` is a hash of the error type, `found` one bit per finding type.
ALTER TABLE spans ADD COLUMN status        INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spans ADD COLUMN streaming     INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spans ADD COLUMN error         INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spans ADD COLUMN agent         INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spans ADD COLUMN session       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spans ADD COLUMN client        INTEGER;
ALTER TABLE spans ADD COLUMN cost_nano_usd INTEGER;
ALTER TABLE spans ADD COLUMN duration_us   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spans ADD COLUMN found         INTEGER NOT NULL DEFAULT 0;

-- All cover every filter. The walk behind a filter that is not in the sums takes the narrowest one that holds what it seeks.
DROP INDEX spans_by_start;
CREATE INDEX spans_by_start ON spans (tenant, start_us, id, ord, provider, model, operation, score, status, streaming, error,
    agent, session, client, cost_nano_usd, duration_us, found);
DROP INDEX spans_scored;
CREATE INDEX spans_scored ON spans (tenant, start_us, id, ord, provider, model, operation, score, status, streaming, error,
    agent, session, client, cost_nano_usd, duration_us, found) WHERE score > 0 OR found <> 0;
CREATE INDEX spans_failed ON spans (tenant, start_us, id, ord, provider, model, operation, score, status, streaming, error,
    agent, session, client, cost_nano_usd, duration_us, found) WHERE status >= 400 OR error <> 0;
CREATE INDEX spans_by_session ON spans (tenant, session, start_us, id, ord, provider, model, operation, score, status,
    streaming, error, agent, client, cost_nano_usd, duration_us, found) WHERE session > 0;
CREATE INDEX spans_unfilled ON spans (id) WHERE client IS NULL;

-- Sessions by the name their clients gave them, with their sums. One whose last span has gone goes with it. `score` is the
-- worst any of its calls had.
CREATE TABLE sessions (
    id            INTEGER PRIMARY KEY,
    tenant        INTEGER NOT NULL,
    name          TEXT NOT NULL,
    calls         INTEGER NOT NULL DEFAULT 0,
    failed        INTEGER NOT NULL DEFAULT 0,
    tokens        INTEGER NOT NULL DEFAULT 0,
    cost_nano_usd INTEGER NOT NULL DEFAULT 0,
    score         INTEGER NOT NULL DEFAULT -1
) STRICT;
CREATE UNIQUE INDEX sessions_by_name ON sessions (tenant, name);
CREATE INDEX sessions_by_age ON sessions (tenant, id);

-- Sums per hour (number of the hour since the epoch), session, agent, client and model. 0 stands for "none".
CREATE TABLE usage (
    tenant        INTEGER NOT NULL,
    hour          INTEGER NOT NULL,
    session       INTEGER NOT NULL,
    agent         INTEGER NOT NULL,
    client        INTEGER NOT NULL,
    model         INTEGER NOT NULL,
    calls         INTEGER NOT NULL,
    failed        INTEGER NOT NULL,
    tokens        INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    PRIMARY KEY (tenant, hour, session, agent, client, model)
) STRICT, WITHOUT ROWID;

-- The agents (kind 1) and clients (kind 2) of a tenant, as integers of `names`, and how many rows of `usage` have them.
CREATE TABLE labels (
    tenant INTEGER NOT NULL,
    kind   INTEGER NOT NULL,
    name   INTEGER NOT NULL,
    rows   INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, name)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER usage_begins AFTER INSERT ON usage BEGIN
    INSERT INTO labels SELECT new.tenant, 1, new.agent, 1 WHERE new.agent > 0
        ON CONFLICT DO UPDATE SET rows = rows + 1;
    INSERT INTO labels SELECT new.tenant, 2, new.client, 1 WHERE new.client > 0
        ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER usage_ends AFTER DELETE ON usage BEGIN
    UPDATE labels SET rows = rows - 1 WHERE tenant = old.tenant AND kind = 1 AND name = old.agent;
    UPDATE labels SET rows = rows - 1 WHERE tenant = old.tenant AND kind = 2 AND name = old.client;
    DELETE FROM labels WHERE tenant = old.tenant AND kind = 1 AND name = old.agent AND rows <= 0;
    DELETE FROM labels WHERE tenant = old.tenant AND kind = 2 AND name = old.client AND rows <= 0;
END;
CREATE TRIGGER label_begins AFTER INSERT ON labels BEGIN
    UPDATE names SET refs = refs + 1 WHERE id = new.name;
END;
CREATE TRIGGER label_ends AFTER DELETE ON labels BEGIN
    UPDATE names SET refs = refs - 1 WHERE id = old.name;
END;

-- The bit of each finding type in `spans.found`. Types that come when all bits but one are given share the last one, and
-- have no row.
CREATE TABLE finding_types (
    bit  INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;
