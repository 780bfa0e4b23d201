-- How many tenants there are among each 512 integers, so that a page of their list is found without walking over those before
-- it. Places without gaps, as the other lists have them, would all change with a deletion. The triggers count for every process
-- on the file, also for one of a version before.
CREATE TABLE tenant_blocks (
    block   INTEGER PRIMARY KEY,
    tenants INTEGER NOT NULL
) STRICT;
INSERT INTO tenant_blocks SELECT id >> 9, count(*) FROM tenants WHERE length(uuid) = 16 GROUP BY 1;

CREATE TRIGGER tenant_begins AFTER INSERT ON tenants WHEN length(new.uuid) = 16 BEGIN
    INSERT INTO tenant_blocks VALUES (new.id >> 9, 1) ON CONFLICT (block) DO UPDATE SET tenants = tenants + 1;
END;
-- The UUID of a deleted tenant is longer.
CREATE TRIGGER tenant_ends AFTER UPDATE OF uuid ON tenants WHEN length(old.uuid) = 16 AND length(new.uuid) <> 16 BEGIN
    UPDATE tenant_blocks SET tenants = tenants - 1 WHERE block = new.id >> 9;
    DELETE FROM tenant_blocks WHERE block = new.id >> 9 AND tenants = 0;
END;

-- Integers are given in order, so the list needs no other: newest first, deleted ones not walked over.
DROP INDEX tenants_by_age;
CREATE INDEX tenants_there ON tenants (id) WHERE length(uuid) = 16;
