-- Tenants get names, and the numbers their tokens are derived from; API keys get a table. Neither holds a credential:
-- of a key there is its SHA-256, of a token a number that means nothing without the key file.

-- A tenant that was only seen on traffic has no name of its own.
ALTER TABLE tenants ADD COLUMN name        TEXT;
ALTER TABLE tenants ADD COLUMN plan        TEXT;
ALTER TABLE tenants ADD COLUMN config      TEXT;
ALTER TABLE tenants ADD COLUMN created_us  INTEGER;
ALTER TABLE tenants ADD COLUMN updated_us  INTEGER;
-- NULL until a token is asked for.
ALTER TABLE tenants ADD COLUMN token_nonce INTEGER;
UPDATE tenants SET created_us = CAST(unixepoch('subsec') * 1000000 AS INTEGER);
-- Newest first; the UUID of a deleted tenant is longer.
CREATE INDEX tenants_by_age ON tenants (created_us, id) WHERE length(uuid) = 16;

CREATE TABLE api_keys (
    id           INTEGER PRIMARY KEY,
    key_id       BLOB NOT NULL UNIQUE,
    tenant       INTEGER NOT NULL,
    name         TEXT NOT NULL,
    key_prefix   TEXT NOT NULL,
    sha256       BLOB NOT NULL UNIQUE,
    role         TEXT NOT NULL,
    created_us   INTEGER NOT NULL,
    revoked_us   INTEGER,
    last_used_us INTEGER
) STRICT;
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, created_us, id);

-- Tells whether the key file that tokens are derived from is still the same: a digest of it, in one row.
CREATE TABLE token_key (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    sha256 BLOB NOT NULL
) STRICT;
