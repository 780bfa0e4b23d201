-- Records of proxied exchanges. Text and rarely asked fields live in `body`; what lists filter and order by are columns.

-- Tenants seen, as small integers for rows and indexes.
CREATE TABLE tenants (
    id   INTEGER PRIMARY KEY,
    uuid BLOB NOT NULL UNIQUE
) STRICT;

-- Providers, models and operation names, as small integers. 0 stands for "none" and has no row.
CREATE TABLE names (
    id   INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE
) STRICT;

-- One row per span. `ord` is 0 for the earliest span of its trace and unique within the trace, so the list of traces is
-- the list of spans with ord = 0, and a trace needs no row of its own.
CREATE TABLE spans (
    id        INTEGER PRIMARY KEY,
    tenant    INTEGER NOT NULL,
    trace_id  BLOB NOT NULL,
    span_id   BLOB NOT NULL,
    start_us  INTEGER NOT NULL,
    ord       INTEGER NOT NULL,
    provider  INTEGER NOT NULL,
    model     INTEGER NOT NULL,
    operation INTEGER NOT NULL,
    score     INTEGER,
    body      BLOB NOT NULL
) STRICT;

-- Makes a replayed batch harmless.
CREATE UNIQUE INDEX spans_by_span ON spans (tenant, span_id);
CREATE UNIQUE INDEX spans_by_trace ON spans (tenant, trace_id, ord);
-- Cover every filter of the trace and span lists, so that paging never touches the rows it skips; `id` stands where the
-- order of the lists needs it, so that paging never sorts either.
CREATE INDEX spans_by_start ON spans (tenant, start_us, id, ord, provider, model, operation, score);
CREATE INDEX spans_scored ON spans (tenant, start_us, id, score, operation, model) WHERE score > 0;

-- Running sums per combination of filter values, so that totals need no scan. `traces` counts the spans with ord = 0,
-- `score` is -1 for spans without one.
CREATE TABLE tallies (
    tenant        INTEGER NOT NULL,
    provider      INTEGER NOT NULL,
    model         INTEGER NOT NULL,
    operation     INTEGER NOT NULL,
    score         INTEGER NOT NULL,
    spans         INTEGER NOT NULL,
    traces        INTEGER NOT NULL,
    findings      INTEGER NOT NULL,
    tokens        INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    PRIMARY KEY (tenant, provider, model, operation, score)
) STRICT, WITHOUT ROWID;
