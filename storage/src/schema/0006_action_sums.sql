-- Reported actions in sum, per combination of the filter values of their spans, so that the summary scans no actions. The
-- name stands in front of the filter values, so that a name's rows lie together. Rows of kind 0, which no name has, count
-- the spans that have actions.
CREATE TABLE action_sums (
    tenant    INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    name      TEXT NOT NULL,
    provider  INTEGER NOT NULL,
    model     INTEGER NOT NULL,
    operation INTEGER NOT NULL,
    score     INTEGER NOT NULL,
    actions   INTEGER NOT NULL,
    failures  INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, name, provider, model, operation, score)
) STRICT, WITHOUT ROWID;

INSERT INTO action_sums
    SELECT s.tenant, a.kind, a.name, s.provider, s.model, s.operation, ifnull(s.score, -1), count(*), sum(NOT a.success)
    FROM actions a JOIN spans s ON s.id = a.span GROUP BY 1, 2, 3, 4, 5, 6, 7;
INSERT INTO action_sums
    SELECT s.tenant, 0, '', s.provider, s.model, s.operation, ifnull(s.score, -1), count(DISTINCT a.span), 0
    FROM actions a JOIN spans s ON s.id = a.span GROUP BY 1, 4, 5, 6, 7;
DROP INDEX actions_by_name;
