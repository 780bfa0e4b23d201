-- Objects that tenants have made at providers with the operator's credential: files, batches, kept answers, by the name of the upstream
-- and the id that the provider gave. Who made one first is who it belongs to. `id` grows, so that the oldest of a tenant can go.
CREATE TABLE made_objects (
    id       INTEGER PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    upstream TEXT NOT NULL,
    object   TEXT NOT NULL,
    UNIQUE (upstream, object)
) STRICT;
CREATE INDEX made_objects_by_tenant ON made_objects (tenant, id);
