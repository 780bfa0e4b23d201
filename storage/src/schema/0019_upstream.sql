-- Which upstream a call went to, as a hash of its name; 0 where there is only one, NULL in rows of a version before until
-- housekeeping has filled them in from their bodies.
ALTER TABLE spans ADD COLUMN upstream INTEGER;

-- All cover every filter.
DROP INDEX spans_by_start;
CREATE INDEX spans_by_start ON spans (tenant, start_us, id, ord, provider, model, operation, score, status, streaming, error,
    agent, session, client, cost_nano_usd, duration_us, found, upstream);
DROP INDEX spans_scored;
CREATE INDEX spans_scored ON spans (tenant, start_us, id, ord, provider, model, operation, score, status, streaming, error,
    agent, session, client, cost_nano_usd, duration_us, found, upstream) WHERE score > 0 OR found <> 0;
DROP INDEX spans_failed;
CREATE INDEX spans_failed ON spans (tenant, start_us, id, ord, provider, model, operation, score, status, streaming, error,
    agent, session, client, cost_nano_usd, duration_us, found, upstream) WHERE status >= 400 OR error <> 0;
DROP INDEX spans_by_session;
CREATE INDEX spans_by_session ON spans (tenant, session, start_us, id, ord, provider, model, operation, score, status,
    streaming, error, agent, client, cost_nano_usd, duration_us, found, upstream) WHERE session > 0;
DROP INDEX spans_unfilled;
CREATE INDEX spans_unfilled ON spans (id) WHERE client IS NULL OR upstream IS NULL;
