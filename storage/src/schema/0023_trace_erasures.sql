-- Traces that were deleted and whose spans are still to be removed, those up to the one numbered `until`: what is recorded of the
-- same trace afterwards stays. A process that ends between two pieces leaves the rest to the next one.
CREATE TABLE trace_erasures (
    tenant   INTEGER NOT NULL,
    trace_id BLOB    NOT NULL,
    until    INTEGER NOT NULL,
    PRIMARY KEY (tenant, trace_id)
) STRICT, WITHOUT ROWID;
