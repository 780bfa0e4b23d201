-- What is found about a span after it was stored: shown with it, weighed with it, gone with it. `body` is the finding as JSON.
CREATE TABLE span_findings (
    id         INTEGER PRIMARY KEY,
    span       INTEGER NOT NULL,
    finding_id BLOB NOT NULL,
    body       TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX span_findings_by_span ON span_findings (span, finding_id);

-- Verdicts of the judge, by the trace they are about; they go with its last span. `reasoning` may repeat what somebody said, so it
-- stands by itself; `body` is the rest as JSON.
CREATE TABLE judge_verdicts (
    id         INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    trace_id   BLOB NOT NULL,
    verdict_id BLOB NOT NULL,
    reasoning  TEXT NOT NULL,
    body       TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX judge_verdicts_by_trace ON judge_verdicts (tenant, trace_id, verdict_id);
