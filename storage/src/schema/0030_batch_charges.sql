-- Results of batches whose calls have been charged: which provider's, whose, which ones, and how much in all, in nanodollars. Written in the
-- transaction in which their cost is added to what was spent, so that no restart charges them again. `at_us` says when, so that the oldest go.
CREATE TABLE batch_charges (
    tenant   BLOB NOT NULL,
    provider TEXT NOT NULL,
    batch    TEXT NOT NULL,
    nano_usd INTEGER NOT NULL,
    at_us    INTEGER NOT NULL,
    PRIMARY KEY (tenant, provider, batch)
) STRICT, WITHOUT ROWID;
CREATE INDEX batch_charges_by_age ON batch_charges (at_us);
