-- Consumers of finished spans read them in the order of `spans.id`, which is the order of commits, and remember how far they
-- came. For that an integer must never be given again: `gone` is the highest one whose row was taken out. `file` tells this
-- database from another one that takes its place.
CREATE TABLE span_order (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    file INTEGER NOT NULL,
    gone INTEGER NOT NULL
) STRICT;
INSERT INTO span_order VALUES (1, random(), 0);

-- How far each consumer has read: everything up to `place` in `file`.
CREATE TABLE consumers (
    name     TEXT PRIMARY KEY,
    file     INTEGER NOT NULL,
    place    INTEGER NOT NULL,
    saved_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
