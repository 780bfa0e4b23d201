-- Texts that spans of one tenant share: an agent sends its instructions, its tools and all that was said with every turn. A span's
-- body names them by `id`, and a text may be made of others. `name` is a keyed digest of what the text is, in two halves; the key is the
-- tenant's own, so that texts of two tenants never meet. `refs` counts who names it: spans, and other texts; what nobody names
-- any more is taken out by housekeeping. The counts lie apart from the texts, because they change with every span.
CREATE TABLE texts (
    id     INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    name_a INTEGER NOT NULL,
    name_b INTEGER NOT NULL,
    refs   INTEGER NOT NULL,
    bytes  INTEGER NOT NULL
) STRICT;
CREATE INDEX texts_by_name ON texts (name_a);
CREATE INDEX texts_idle ON texts (id) WHERE refs <= 0;

CREATE TABLE text_bodies (
    id   INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

-- What a tenant's shared texts take together.
CREATE TABLE text_sums (
    tenant INTEGER PRIMARY KEY,
    bytes  INTEGER NOT NULL
) STRICT;

-- How far a tenant's texts have gone before their spans (`storage.text_retention_days`): those of all spans up to this one.
CREATE TABLE text_ages (
    tenant   INTEGER PRIMARY KEY,
    start_us INTEGER NOT NULL,
    span     INTEGER NOT NULL
) STRICT;

ALTER TABLE tenants ADD COLUMN text_key BLOB;
