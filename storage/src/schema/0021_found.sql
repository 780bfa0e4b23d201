-- The rows in which something was found, and those of which that is not known yet, in the order of their commits: consumers that
-- only findings concern read no others.
CREATE INDEX spans_found ON spans (id) WHERE found <> 0 OR client IS NULL;
