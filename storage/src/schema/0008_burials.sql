-- When a tenant was deleted, by its UUID: what began before is not recorded any more, whichever process writes it and
-- however often the store was opened since. A later deletion of the same tenant gets a higher `id`, so that the highest tells
-- a writer in one step whether a tenant was deleted since it last looked.
CREATE TABLE burials (
    id     INTEGER PRIMARY KEY,
    tenant BLOB NOT NULL UNIQUE,
    at_us  INTEGER NOT NULL
) STRICT;

-- Rows that another process wrote after their tenant's erasure had ended.
INSERT OR IGNORE INTO erasures
    SELECT id FROM tenants WHERE length(uuid) <> 16
    AND (EXISTS (SELECT 1 FROM spans WHERE tenant = tenants.id) OR EXISTS (SELECT 1 FROM tallies WHERE tenant = tenants.id)
        OR EXISTS (SELECT 1 FROM reports WHERE tenant = tenants.id));
