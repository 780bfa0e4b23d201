-- A call that is alone in its trace and whose id is the trace's, too, keeps the id once: `trace_id` is empty then, and `spans_by_span`
-- finds it. Versions before would not find such a trace: they are to refuse the file.
DROP INDEX spans_by_trace;
CREATE UNIQUE INDEX spans_by_trace ON spans (tenant, trace_id, ord) WHERE trace_id <> x'';

-- Who asks for an error type, a session or a finding walks the narrower index of those rows: here they need not stand.
DROP INDEX spans_by_start;
CREATE INDEX spans_by_start ON spans (tenant, start_us, id, ord, provider, model, operation, score, status, streaming, agent,
    client, cost_nano_usd, duration_us, upstream);
