-- What is written one by one and acknowledged: the audit log, agent actions, compliance reports. And the running sums by
-- time, which make totals over a window and deep pages cheap.

-- Administrative events, chained: `hash` is the SHA-256 of the line before it and of this line's fields, so a line that
-- is removed or altered shows. The tenant is its UUID here, because the log outlives the tenant.
CREATE TABLE audit (
    seq    INTEGER PRIMARY KEY,
    at_us  INTEGER NOT NULL,
    tenant BLOB,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT,
    detail TEXT NOT NULL,
    hash   BLOB NOT NULL
) STRICT;
CREATE INDEX audit_by_tenant ON audit (tenant, seq);

-- The chain's end, so that removing the last lines shows, too.
CREATE TABLE audit_head (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    seq  INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;

-- Actions that clients reported, each belonging to a span. `kind` and `name` are integers of `names`.
CREATE TABLE actions (
    id        INTEGER PRIMARY KEY,
    tenant    INTEGER NOT NULL,
    span      INTEGER NOT NULL,
    action_id BLOB NOT NULL,
    kind      INTEGER NOT NULL,
    name      TEXT NOT NULL,
    success   INTEGER NOT NULL,
    findings  INTEGER NOT NULL,
    body      BLOB NOT NULL
) STRICT;
CREATE INDEX actions_by_span ON actions (span);
-- Covers the summary.
CREATE INDEX actions_by_name ON actions (tenant, kind, name, success, span);

CREATE TABLE reports (
    id              INTEGER PRIMARY KEY,
    tenant          INTEGER NOT NULL,
    report_id       BLOB NOT NULL,
    report_type     TEXT NOT NULL,
    status          TEXT NOT NULL,
    period_start_us INTEGER NOT NULL,
    period_end_us   INTEGER NOT NULL,
    created_us      INTEGER NOT NULL,
    completed_us    INTEGER,
    content         TEXT,
    error           TEXT
) STRICT;
CREATE UNIQUE INDEX reports_by_id ON reports (tenant, report_id);
CREATE INDEX reports_pending ON reports (id) WHERE status = 'pending';

-- Tenants that were deleted and whose rows are still to be removed. Their rows can no longer be found: the tenant's
-- UUID was made unfindable when it was deleted.
CREATE TABLE erasures (
    tenant INTEGER PRIMARY KEY
) STRICT;

-- The sums of `tallies`, cut into slices of time: slice number `start_us >> 20`, `>> 28`, `>> 36` for the levels 0, 1, 2.
CREATE TABLE slices (
    tenant    INTEGER NOT NULL,
    level     INTEGER NOT NULL,
    slice     INTEGER NOT NULL,
    provider  INTEGER NOT NULL,
    model     INTEGER NOT NULL,
    operation INTEGER NOT NULL,
    score     INTEGER NOT NULL,
    spans     INTEGER NOT NULL,
    traces    INTEGER NOT NULL,
    PRIMARY KEY (tenant, level, slice, provider, model, operation, score)
) STRICT, WITHOUT ROWID;

INSERT INTO slices
    SELECT tenant, 0, start_us >> 20, provider, model, operation, ifnull(score, -1), count(*), sum(ord = 0)
    FROM spans GROUP BY 1, 3, 4, 5, 6, 7;
INSERT INTO slices
    SELECT tenant, 1, slice >> 8, provider, model, operation, score, sum(spans), sum(traces)
    FROM slices WHERE level = 0 GROUP BY 1, 3, 4, 5, 6, 7;
INSERT INTO slices
    SELECT tenant, 2, slice >> 8, provider, model, operation, score, sum(spans), sum(traces)
    FROM slices WHERE level = 1 GROUP BY 1, 3, 4, 5, 6, 7;

-- Bytes of the stored bodies.
ALTER TABLE tallies ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
INSERT INTO tallies
    SELECT tenant, provider, model, operation, ifnull(score, -1), 0, 0, 0, 0, 0, sum(length(body))
    FROM spans GROUP BY 1, 2, 3, 4, 5
    ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
