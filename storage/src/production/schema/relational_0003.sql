-- Results of batches whose calls have been charged, by whichever gateway: which provider's, whose, which ones, and how much in all, in
-- nanodollars. Written in the transaction in which their cost is added to what was spent.
CREATE TABLE batch_charges (
    tenant UUID NOT NULL,
    provider TEXT NOT NULL,
    batch TEXT NOT NULL,
    nano_usd BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    PRIMARY KEY (tenant, provider, batch)
);
CREATE INDEX batch_charges_by_age ON batch_charges (at_us);
