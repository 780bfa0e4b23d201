-- Names that no sum refers to any more go: clients choose models, and what a deleted tenant called them is not kept. The
-- triggers count the rows that refer to a name, for every process on the file, also for one of a version before.
ALTER TABLE names ADD COLUMN refs INTEGER NOT NULL DEFAULT 0;
UPDATE names SET refs = found.refs FROM (
        SELECT name, count(*) AS refs FROM (
            SELECT provider AS name FROM tallies UNION ALL SELECT model FROM tallies UNION ALL SELECT operation FROM tallies
            UNION ALL SELECT kind FROM action_sums)
        GROUP BY name) found
    WHERE names.id = found.name;
CREATE INDEX names_idle ON names (id) WHERE refs <= 0;

CREATE TRIGGER tally_begins AFTER INSERT ON tallies BEGIN
    UPDATE names SET refs = refs + 1 WHERE id = new.provider;
    UPDATE names SET refs = refs + 1 WHERE id = new.model;
    UPDATE names SET refs = refs + 1 WHERE id = new.operation;
END;
CREATE TRIGGER tally_ends AFTER DELETE ON tallies BEGIN
    UPDATE names SET refs = refs - 1 WHERE id = old.provider;
    UPDATE names SET refs = refs - 1 WHERE id = old.model;
    UPDATE names SET refs = refs - 1 WHERE id = old.operation;
END;
CREATE TRIGGER action_sum_begins AFTER INSERT ON action_sums BEGIN
    UPDATE names SET refs = refs + 1 WHERE id = new.kind;
END;
CREATE TRIGGER action_sum_ends AFTER DELETE ON action_sums BEGIN
    UPDATE names SET refs = refs - 1 WHERE id = old.kind;
END;

-- How often names were taken out: tells a writer that what it remembers of them may be wrong.
CREATE TABLE name_sweeps (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    sweeps INTEGER NOT NULL
) STRICT;
INSERT INTO name_sweeps VALUES (1, 0);

-- The bytes of a reported action are what it takes in all: its name stands in its row and in the sums, where a long one has
-- a page of its own.
UPDATE tallies SET bytes = tallies.bytes + weighed.bytes FROM (
        SELECT s.tenant, s.provider, s.model, s.operation, ifnull(s.score, -1) AS score,
            sum(512 + 2 * octet_length(a.name) + iif(octet_length(a.name) > 1000, 8192, 0)) AS bytes
        FROM actions a JOIN spans s ON s.id = a.span GROUP BY 1, 2, 3, 4, 5) weighed
    WHERE tallies.tenant = weighed.tenant AND tallies.provider = weighed.provider AND tallies.model = weighed.model
        AND tallies.operation = weighed.operation AND tallies.score = weighed.score;
