-- Database files whose record was copied here (`weir migrate --to production`), by their number: what is beside spans went in with the
-- row; spans are shipped up to `shipped`, and the batch that was cut last goes up to `cut`.
CREATE TABLE imports (
    file BIGINT PRIMARY KEY,
    cut BIGINT NOT NULL,
    shipped BIGINT NOT NULL,
    began_us BIGINT NOT NULL
);
