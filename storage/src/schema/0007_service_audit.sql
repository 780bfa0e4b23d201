-- The audit lines of the whole service by time, for reports, which read a period of them beside the tenant's own.
CREATE INDEX IF NOT EXISTS audit_of_service ON audit (at_us, seq) WHERE tenant IS NULL;
