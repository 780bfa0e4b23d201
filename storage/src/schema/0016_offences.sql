-- Calls for which `block_ip` counts an offence of the address they came from, and the addresses that are turned away until a time.
-- They are of the gateway, not of a tenant, and go with their time: nothing of what was said stands here.
CREATE TABLE offences (
    address TEXT NOT NULL,
    span    BLOB NOT NULL,
    at_us   INTEGER NOT NULL,
    PRIMARY KEY (address, span)
) STRICT, WITHOUT ROWID;
CREATE TABLE blocked_addresses (
    address  TEXT PRIMARY KEY,
    until_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
