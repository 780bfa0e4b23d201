-- What came of the prompts of a session's calls: how many parted from the one before so that a cache was of no use, how many a provider
-- did not use although it could, and what that came to. Of all calls that came since, those that retention has taken among them.
ALTER TABLE sessions ADD COLUMN broken        INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN unused        INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN lost_tokens   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN lost_nano_usd INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN prompt_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cached_tokens INTEGER NOT NULL DEFAULT 0;
