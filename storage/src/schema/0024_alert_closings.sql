-- When the channels that keep incidents open are to be told that what an alert went to them with is over, or known.
ALTER TABLE alerts ADD COLUMN close_us INTEGER;

-- `next_us` heeds it, too.
DROP INDEX alerts_due;
ALTER TABLE alerts DROP COLUMN next_us;
ALTER TABLE alerts ADD COLUMN next_us INTEGER AS (nullif(min(
    CASE WHEN state <> 'resolved' THEN ifnull(resolve_us, 9223372036854775807) ELSE 9223372036854775807 END,
    CASE WHEN state = 'open' THEN ifnull(escalate_us, 9223372036854775807) ELSE 9223372036854775807 END,
    CASE WHEN suppressed > 0 THEN quiet_us ELSE 9223372036854775807 END,
    ifnull(close_us, 9223372036854775807)), 9223372036854775807)) VIRTUAL;
CREATE INDEX alerts_due ON alerts (channel, next_us) WHERE next_us IS NOT NULL;
