-- The former version sums up nothing of prompts.
ALTER TABLE sessions DROP COLUMN broken;
ALTER TABLE sessions DROP COLUMN unused;
ALTER TABLE sessions DROP COLUMN lost_tokens;
ALTER TABLE sessions DROP COLUMN lost_nano_usd;
ALTER TABLE sessions DROP COLUMN prompt_tokens;
ALTER TABLE sessions DROP COLUMN cached_tokens;
