-- Credentials for providers that tenants bring themselves, by the name of the upstream they are for. `sealed` is encrypted under the
-- key file, and `key_sha256` a digest that tells which file that was: without it nothing here says anything.
CREATE TABLE provider_keys (
    tenant     INTEGER NOT NULL,
    upstream   TEXT NOT NULL,
    sealed     BLOB NOT NULL,
    key_sha256 BLOB NOT NULL,
    created_us INTEGER NOT NULL,
    changed_us INTEGER NOT NULL,
    PRIMARY KEY (tenant, upstream)
) STRICT, WITHOUT ROWID;
