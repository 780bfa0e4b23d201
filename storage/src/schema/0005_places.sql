-- Every row of a list gets its place in its tenant's list, counted from 1 without gaps, so that a page is a range of places
-- and page 1,000 is as quick as page 1. It works because nothing is taken out of these lists but a whole tenant's.

ALTER TABLE audit ADD COLUMN nth INTEGER NOT NULL DEFAULT 0;
UPDATE audit SET nth = placed.nth
    FROM (SELECT seq, row_number() OVER (PARTITION BY tenant ORDER BY seq) AS nth FROM audit WHERE tenant IS NOT NULL) placed
    WHERE audit.seq = placed.seq;
DROP INDEX audit_by_tenant;
CREATE UNIQUE INDEX audit_by_tenant ON audit (tenant, nth) WHERE tenant IS NOT NULL;

ALTER TABLE reports ADD COLUMN nth INTEGER NOT NULL DEFAULT 0;
UPDATE reports SET nth = placed.nth
    FROM (SELECT id, row_number() OVER (PARTITION BY tenant ORDER BY created_us, id) AS nth FROM reports) placed
    WHERE reports.id = placed.id;
CREATE UNIQUE INDEX reports_by_place ON reports (tenant, nth);

ALTER TABLE api_keys ADD COLUMN nth INTEGER NOT NULL DEFAULT 0;
UPDATE api_keys SET nth = placed.nth
    FROM (SELECT id, row_number() OVER (PARTITION BY tenant ORDER BY created_us, id) AS nth FROM api_keys) placed
    WHERE api_keys.id = placed.id;
DROP INDEX api_keys_by_tenant;
CREATE UNIQUE INDEX api_keys_by_place ON api_keys (tenant, nth);
